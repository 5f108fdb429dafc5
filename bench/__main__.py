"""`python -m bench`: run the benchmarks, print and save the results."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from inspect import signature
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
    infer = "infer"
    console = "console"
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
    synchronous = "synchronous"
    django = "django"
    install = "install"
    web = "web"
    upstash = "upstash"
    gateway = "gateway"
    all = "all"


# The module of each subject. It is imported only when it runs: `python -m bench sqlite` needs no redis.
MODULES = {
    Subject.redis: "on_redis",
    Subject.sqlite: "on_sqlite",
    Subject.growth: "growth",
    Subject.sweep: "sweep",
    Subject.schema: "on_schema",
    Subject.doctor: "on_doctor",
    Subject.infer: "on_infer",
    Subject.console: "on_console",
    Subject.sessions: "on_web_sessions",
    Subject.backup: "on_backup",
    Subject.copy: "on_copy",
    Subject.widgets: "on_widgets",
    Subject.limits: "on_limits",
    Subject.cache: "on_cache",
    Subject.membership: "on_membership",
    Subject.sessiondata: "on_sessiondata",
    Subject.notices: "on_notices",
    Subject.procedures: "on_procedures",
    Subject.synchronous: "on_synchronous",
    Subject.django: "on_django",
    Subject.install: "on_install",
    Subject.web: "on_web",
    Subject.upstash: "on_upstash",
    Subject.gateway: "on_gateway",
}


def main(
    subjects: Annotated[
        list[Subject] | None,
        typer.Argument(help="What to run; everything by default.", show_default=False),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short trial with few keys. Its numbers mean little.")
    ] = False,
    keys: Annotated[
        int | None,
        typer.Option(min=2_000, help="The number of keys for doctor, backup and copy.", show_default="1,000,000"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a target is missed.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Where to save the result.", show_default="bench/results/<time>.json")
    ] = None,
    folder: Annotated[Path, typer.Option(help="A temporary place for databases, on a real disk, not tmpfs.")] = RESULTS,
) -> None:
    """Compare Keystead with the alternatives, side by side in one run.

    redis: redis-py, on a real Redis and a real Valkey.
    sqlite: raw sqlite3, diskcache and lmdb, on the same disk.
    growth: GET, SET and memory at 1,000,000 keys and at 10,000.
    sweep: the longest call while 1,000,000 expired keys are removed.
    schema: the overhead of typed keys over raw commands, on Redis and on SQLite.
    infer: memory and speed of `keystead infer` on 1,000,000 keys, and its effect on concurrent reads.
    doctor: memory and speed of `keystead doctor` on 1,000,000 keys, and its effect on concurrent reads.
    console: the first page of a family of 1,000,000 keys, and its effect on concurrent reads.
    sessions: a web application with and without sessions, and its peers; 1,000,000 sessions.
    backup: 1,000,000 keys of all kinds from Redis into a file and into SQLite, all compared.
    copy: 1,000,000 keys of all kinds from Redis to PostgreSQL, SQLite and Redis, each copy killed and resumed.
    widgets: a million counters and few, and GET /api/visit beside hand-written routes.
    limits: hits of each kind of limit beside the limits library, and their round trips.
    cache: cached memberships beside cashews, and provider calls after an expiry.
    membership: validate of the membership kit beside hand-written code, and its round trips.
    web: all that serves requests, in under five minutes: routes, sessions, near reads, Redis, validate, session data in
    MariaDB, notices, overload, memory; where the time goes.
    sessiondata: session data in PostgreSQL, MariaDB and SQLite, beside Django's sessions and a plain upsert.
    notices: latency and throughput of notifications, and delivery through kills.
    procedures: two commands and a guard, beside a redis-py script and a hand-written transaction.
    django: sessions of Django on Redis beside django-redis, and on SQLite beside Django's own.
    install: packages, size and import time of the core, of the extra asgi and of the server.

    Contenders take turns; each round gives one ratio, and the table shows the median ratio. See docs/benchmarks.md.
    """
    console = Console()
    if not console.is_terminal:
        console.width = 120  # a pipe has no width; the table needs this much
    wanted = [s for s in MODULES if not subjects or s in subjects or Subject.all in subjects]
    folder.mkdir(parents=True, exist_ok=True)
    if _filesystem(folder) == "tmpfs":
        console.print(f"[yellow]note[/] {folder} is in memory, where a sync is free; use --folder on a real disk")
    rows, seconds = asyncio.run(_run(wanted, folder, report.Bar(console), quick, keys))
    report.show(rows, console)
    console.print(f"took {', '.join(f'{subject} {took:,.0f} s' for subject, took in seconds.items())}")
    if quick:
        console.print("[yellow]note[/] a quick run is too short for conclusions")
    path = json or RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}.json"
    report.save(rows, seconds, path, quick=quick)
    console.print(f"saved in {path}")
    if strict and any(row.passed is False for row in rows):
        raise typer.Exit(1)


async def _run(
    wanted: Sequence[Subject], folder: Path, progress: Progress, quick: bool, keys: int | None
) -> tuple[list[Row], dict[str, float]]:
    """The rows, and the seconds that each subject took."""
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    for subject in wanted:
        began = time.monotonic()
        place = Path(tempfile.mkdtemp(prefix=f"{subject}-", dir=folder))
        try:
            rows += await _run_subject(subject, place, progress, quick, keys)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        seconds[subject.value] = time.monotonic() - began
    return rows, seconds


async def _run_subject(subject: Subject, folder: Path, progress: Progress, quick: bool, keys: int | None) -> list[Row]:
    """Call `run` of the module with the arguments that it takes."""
    run = import_module(f"bench.{MODULES[subject]}").run
    effort = QUICK if quick else FULL
    given = {"folder": folder, "effort": effort, "progress": progress, "quick": quick, "keys": keys}
    rows: list[Row] = await run(**{name: given[name] for name in signature(run).parameters})
    return rows


def _filesystem(folder: Path) -> str:
    """The type of the file system of a folder, on Linux; empty elsewhere."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    path = folder.resolve()
    on = [(len(mount[1]), mount[2]) for mount in mounts if path.is_relative_to(mount[1])]
    return max(on)[1] if on else ""


if __name__ == "__main__":
    typer.run(main)
