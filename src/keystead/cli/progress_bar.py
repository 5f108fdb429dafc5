"""A progress bar on stderr, shown only on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as bars
from rich.console import Console

from keystead.cli.terminal_language import plural


class Show(Protocol):
    def __call__(self, done: int, total: int | None, details: str = "") -> None: ...


@contextmanager
def progress(text: str) -> Iterator[Show]:
    """Yield a function that updates the bar. Without a terminal it shows nothing."""
    console = Console(stderr=True)
    with bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TextColumn("{task.fields[count]}{task.fields[details]}"),
        bars.TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(text, total=None, count="", details="")

        def show(done: int, total: int | None, details: str = "") -> None:
            # The scan may find more keys than the store counted at first.
            count = plural("{count} key", "{count} keys", done)
            bar.update(
                task, completed=done, total=None if total is None else max(total, done), count=count, details=details
            )

        yield show
