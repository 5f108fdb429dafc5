"""`python -m bench`: run the comparisons, print them, keep them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import report
from bench.measure import FULL, QUICK, Progress, Row

RESULTS = Path(__file__).parent / "results"


class Subject(StrEnum):
    redis = "redis"
    sqlite = "sqlite"
    growth = "growth"
    sweep = "sweep"
    schema = "schema"
    doctor = "doctor"
    sessions = "sessions"
    backup = "backup"
    copy = "copy"
    widgets = "widgets"
    limits = "limits"
    cache = "cache"
    membership = "membership"
    sessiondata = "sessiondata"
    notices = "notices"
    procedures = "procedures"
    install = "install"
    web = "web"
    all = "all"


async def _notices(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_notices

    return await on_notices.run(folder, progress, quick=quick)


async def _web(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_web

    return await on_web.run(folder, QUICK if quick else FULL, progress, quick=quick)


async def _install(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_install

    return await on_install.run(folder, progress, quick=quick)


async def _procedures(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_procedures

    return await on_procedures.run(folder, QUICK if quick else FULL, progress)


async def _redis(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_redis

    return await on_redis.run(QUICK if quick else FULL, progress)


async def _sqlite(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_sqlite

    return await on_sqlite.run(folder, QUICK if quick else FULL, progress, quick=quick)


async def _growth(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import growth

    return await growth.run(folder, QUICK if quick else FULL, progress, quick=quick)


async def _sweep(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import sweep

    return await sweep.run(folder, progress, quick=quick)


async def _schema(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_schema

    return await on_schema.run(folder, QUICK if quick else FULL, progress)


async def _doctor(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_doctor

    return await on_doctor.run(folder, progress, quick=quick, keys=keys)


async def _sessions(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_web_sessions

    return await on_web_sessions.run(folder, QUICK if quick else FULL, progress, quick=quick)


async def _backup(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_backup

    return await on_backup.run(folder, progress, quick=quick, keys=keys)


async def _copy(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_copy

    return await on_copy.run(folder, progress, quick=quick, keys=keys)


async def _widgets(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_widgets

    return await on_widgets.run(folder, QUICK if quick else FULL, progress, quick=quick)


async def _limits(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_limits

    return await on_limits.run(folder, QUICK if quick else FULL, progress, quick=quick)


async def _cache(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_cache

    return await on_cache.run(QUICK if quick else FULL, progress, quick=quick)


async def _membership(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_membership

    return await on_membership.run(folder, QUICK if quick else FULL, progress, quick=quick)


async def _sessiondata(folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    from bench import on_sessiondata

    return await on_sessiondata.run(folder, QUICK if quick else FULL, progress, quick=quick)


# The peers of one subject are imported only when it runs: `python -m bench sqlite` needs no redis.
RUNS: dict[Subject, Callable[[Path, Progress, bool, int | None], Awaitable[list[Row]]]] = {
    Subject.redis: _redis,
    Subject.sqlite: _sqlite,
    Subject.growth: _growth,
    Subject.sweep: _sweep,
    Subject.schema: _schema,
    Subject.doctor: _doctor,
    Subject.sessions: _sessions,
    Subject.backup: _backup,
    Subject.copy: _copy,
    Subject.widgets: _widgets,
    Subject.limits: _limits,
    Subject.cache: _cache,
    Subject.membership: _membership,
    Subject.sessiondata: _sessiondata,
    Subject.notices: _notices,
    Subject.procedures: _procedures,
    Subject.install: _install,
    Subject.web: _web,
}


def main(
    subjects: Annotated[
        list[Subject] | None,
        typer.Argument(help="What to run; all of it if nothing is named.", show_default=False),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A try of some seconds with few keys. Its numbers mean little.")
    ] = False,
    keys: Annotated[
        int | None,
        typer.Option(
            min=2_000, help="How many keys the doctor, a backup and a copy are given.", show_default="1,000,000"
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a target is missed.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Where to save the result.", show_default="bench/results/<time>.json")
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Where the databases are made, and removed again. A real disk, no tmpfs.")
    ] = RESULTS,
) -> None:
    """Compare Keystead's stores with what you would use instead, side by side in one run.

    redis: redis-py on a real Redis and a real Valkey, which are started for it.
    sqlite: raw sqlite3, diskcache and lmdb on files of the same disk.
    growth: GET, SET and memory at 1,000,000 keys against 10,000.
    sweep: the longest call while 1,000,000 expired keys are removed.
    schema: what typed keys cost over the same raw commands, on Redis and on SQLite.
    doctor: memory and speed of `keystead doctor` on 1,000,000 keys, and what reads beside it pay.
    sessions: a web application with sessions and without, beside its peers; and 1,000,000 sessions.
    backup: 1,000,000 keys of all kinds from Redis into a file and into SQLite, all of them compared.
    copy: 1,000,000 keys of all kinds from Redis to PostgreSQL, SQLite and Redis, each copy killed and resumed.
    widgets: a million counters against few, and GET /api/visit beside routes written by hand.
    limits: hits of each kind of limit beside the limits library, and their round trips.
    cache: cached memberships beside cashews, and how often the provider is asked for one that has expired.
    membership: validate of the membership kit beside the same by hand, and its round trips.
    procedures: two commands and a guard, beside a script that redis-py calls and a transaction by hand.
    install: packages, size and import time of the core, of the extra asgi and of the server.
    web: requests beside routes written by hand, sessions, near reads, too much load; where the time goes.
    sessiondata: session data in PostgreSQL, MariaDB and SQLite, beside Django's sessions and a plain upsert.

    Contenders take turns, and each round gives one ratio; shown is the median of these ratios.
    docs/benchmarks.md says how to read the table.
    """
    console = Console()
    if not console.is_terminal:
        console.width = 120  # a pipe has no width; the table needs this much
    wanted = [s for s in RUNS if not subjects or s in subjects or Subject.all in subjects]
    folder.mkdir(parents=True, exist_ok=True)
    if _filesystem(folder) == "tmpfs":
        console.print(
            f"[yellow]note[/] {folder} is in memory: a sync costs nothing there; pass --folder on a real disk"
        )
    rows = asyncio.run(_run(wanted, folder, report.Bar(console), quick, keys))
    report.show(rows, console)
    if quick:
        console.print("[yellow]note[/] a quick run is too short to judge by")
    path = json or RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}.json"
    report.save(rows, path, quick=quick)
    console.print(f"saved in {path}")
    if strict and any(row.passed is False for row in rows):
        raise typer.Exit(1)


async def _run(wanted: Sequence[Subject], folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    rows: list[Row] = []
    for subject in wanted:
        place = Path(tempfile.mkdtemp(prefix=f"{subject}-", dir=folder))
        try:
            rows += await RUNS[subject](place, progress, quick, keys)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return rows


def _filesystem(folder: Path) -> str:
    """The type of the file system a folder is on, as Linux says it; empty elsewhere."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    path = folder.resolve()
    on = [(len(mount[1]), mount[2]) for mount in mounts if path.is_relative_to(mount[1])]
    return max(on)[1] if on else ""


if __name__ == "__main__":
    typer.run(main)
