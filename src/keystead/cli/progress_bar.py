"""A progress bar for people: on the error stream, and only where that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as bars
from rich.console import Console


class Show(Protocol):
    def __call__(self, done: int, total: int | None, said: str = "") -> None: ...


@contextmanager
def progress(text: str) -> Iterator[Show]:
    """A progress bar; call it to update. Without a terminal it shows nothing."""
    console = Console(stderr=True)
    with bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TextColumn("{task.completed:,} keys{task.fields[said]}"),
        bars.TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as shown:
        task = shown.add_task(text, total=None, said="")

        def show(done: int, total: int | None, said: str = "") -> None:
            # More may be found than the store counted at the beginning.
            shown.update(task, completed=done, total=None if total is None else max(total, done), said=said)

        yield show
