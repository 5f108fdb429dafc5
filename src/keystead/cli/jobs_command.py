"""`keystead jobs`: list scheduled jobs and their runs, and run a job now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from time import time_ns
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from keystead.catalogue import message
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import Command, CommandGroup
from keystead.cli.formatting import print_json, rough_duration
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import Json, Stores, check_stores, run, settings_for
from keystead.cli.terminal_language import say
from keystead.errors import printable
from keystead.parts.sanitize import visible
from keystead.parts.schedule import Busy, Job, JobNow, RunEntry, Schedule, ScheduleKeys
from keystead.schema.times import moment

_KITS_HELP = """The kits whose jobs to use, separated by commas; one of your own as myapp.kit:KIT.
[dim]\\[env: KEYSTEAD_KITS; default: all that have routes][/dim]"""
_NAME_HELP = "The job, such as sharing.clean-up."
_LIMIT_HELP = "The number of runs to show of each job."

_UNBROKEN = 200
_LONGEST = 2_000
_OUTCOMES = {
    "done": message("done"),
    "failed": message("failed"),
    "lost": message("lost"),
    "stopped": message("stopped"),
}
_STYLES = {"done": "green", "failed": "bold red", "lost": "bold red", "stopped": "yellow"}

Kits = Annotated[str | None, typer.Option("--kits", metavar="NAMES", help=_KITS_HELP, show_default=False)]
Limit = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, help=_LIMIT_HELP)]

jobs = typer.Typer(
    name="jobs", cls=CommandGroup, no_args_is_help=True, help="List scheduled jobs and their history, and run them now."
)


@jobs.command("list", cls=Command)
def list_jobs(store: Stores = None, kits: Kits = None, as_json: Json = False) -> None:
    """List scheduled jobs: the schedule, the next run, whether it is running, and the last outcome.

    [bold]keystead serve[/bold] runs them, each run in one of its processes.

    [bold]Examples[/bold]

      keystead jobs list

      keystead jobs list --store redis://localhost:6379/0 --json
    """

    async def work() -> int:
        async with _open_schedule(store, kits) as (schedule, _):
            found = await schedule.list()
        if as_json:
            print_json([_job_as_json(one) for one in found])
        elif found:
            _print(_job_table(found))
        else:
            typer.echo(say("these kits have no scheduled jobs"))
        return 0

    run(work)


@jobs.command("history", cls=Command)
def history(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=_NAME_HELP, show_default=False)] = None,
    limit: Limit = 20,
    store: Stores = None,
    kits: Kits = None,
    as_json: Json = False,
) -> None:
    """Show the last runs of a job, or of all jobs, newest first: time, duration, outcome, result and process.

    The last 100 runs of each job are kept.

    [bold]Examples[/bold]

      keystead jobs history

      keystead jobs history sharing.clean-up --limit 5
    """

    async def work() -> int:
        async with _open_schedule(store, kits) as (schedule, names):
            wanted = names if name is None else [_check_name(name, names)]
            found = [(one, entry) for one in wanted for entry in await schedule.history(one, limit)]
        found.sort(key=lambda pair: pair[1].began_ms, reverse=True)
        if as_json:
            print_json([{"job": one, **_entry_as_json(entry)} for one, entry in found])
        elif found:
            _print(_history_table(found))
        else:
            typer.echo(say("no job has run yet"))
        return 0

    run(work)


@jobs.command("run", cls=Command)
def run_job(
    name: Annotated[str, typer.Argument(metavar="NAME", help=_NAME_HELP)],
    store: Stores = None,
    kits: Kits = None,
    as_json: Json = False,
) -> None:
    """Run a job now, in this process, unless it is already running. Its schedule does not change.

    The kits are opened with the server's settings. The exit code is 1 if the run failed or did not start.

    [bold]Examples[/bold]

      keystead jobs run sharing.clean-up
    """

    async def work() -> int:
        with stop_on_signals(lambda: say("stopped; {name} was cancelled", name=name)):
            async with _open_schedule(store, kits) as (schedule, names):
                outcome = await schedule.run_now(_check_name(name, names))
        if isinstance(outcome, Busy):
            _fail_busy(name, outcome, as_json)
        if as_json:
            print_json({"job": name, **_entry_as_json(outcome)})
        else:
            typer.echo(f"{name}: {_in_one_line(outcome)}")
        return 0 if outcome.outcome == "done" else FAILED

    run(work)


@asynccontextmanager
async def _open_schedule(stores: Sequence[str] | None, kits: str | None) -> AsyncIterator[tuple[Schedule, list[str]]]:
    """The schedule of the kits that have jobs, opened as the server opens them, and the names of the jobs."""
    # Imported here: the help needs no web framework.
    from keystead.server.app import site_of
    from keystead.server.kit_loading import keyspaces_of, load_kits, open_kit_tables, open_kits, open_stores, split_kits
    from keystead.server.scheduled_jobs import jobs_of, kits_with_jobs, schedule_keys

    settings = settings_for(stores, kits=kits)
    running, _ = split_kits(settings, load_kits(settings))
    check_stores(stores, [ScheduleKeys, *(kit.keyspace for kit in running)])
    site, known, running = site_of(settings), keyspaces_of(running), kits_with_jobs(running)
    async with (
        open_stores(settings) as by_role,
        open_kit_tables(running, settings) as tables,
        open_kits(running, by_role, settings, replace(site, tables=tables, keyspaces=known)) as services,
    ):
        found = jobs_of(running, services)
        yield Schedule(schedule_keys(by_role, site.now_ms), found), [job.name for job in found]


def _check_name(name: str, names: Sequence[str]) -> str:
    if name not in names:
        fail(
            say(
                "there is no job {name}; the jobs are: {names}", name=repr(name), names=", ".join(names) or say("none")
            ),
            USAGE_ERROR,
        )
    return name


def _fail_busy(name: str, busy: Busy, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"job": name, "running": _busy_as_json(busy)})
        raise typer.Exit(FAILED)
    since = "" if busy.since_ms is None else say(", since {moment}", moment=_utc(busy.since_ms))
    fail(
        say(
            "{name} is already running{since}, in {by}; nothing was started",
            name=name,
            since=since,
            by=printable(busy.by),
        )
    )


# --- for people --------------------------------------------------------------------------------------------


def _print(table: Table) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNBROKEN
    console.print(table)


def _job_table(found: Iterable[JobNow]) -> Table:
    table = Table(header_style="bold")
    for column in (say("job"), say("when"), say("next run"), say("last run")):
        table.add_column(column, overflow="fold", min_width=8)
    for one in found:
        job = one.job
        name = Text.assemble(job.name, "\n", (job.doc, "dim")) if job.doc else Text(job.name)
        when = Text.assemble(job.moments.words, "\n", (f"{job.cron}  {job.zone}", "dim"))
        table.add_row(name, when, _next(one), _last(one))
    return table


def _next(one: JobNow) -> Text:
    if one.running is not None:
        since = one.running.since_ms
        began = "" if since is None else f"\n{say('since {moment}', moment=_local(one.job, since))}"
        where = say("in {process}", process=printable(one.running.by))
        return Text.assemble((say("running"), "bold green"), (f"{began}\n{where}", "dim"))
    if one.next_ms is None:
        return Text.assemble((say("not known"), "bold red"), "\n", (say("run keystead doctor"), "dim"))
    left_ms = one.next_ms - time_ns() // 1_000_000
    soon = say("in {duration}", duration=rough_duration(left_ms)) if left_ms > 0 else say("due now")
    return Text.assemble(_local(one.job, one.next_ms), "\n", (soon, "dim"))


def _last(one: JobNow) -> Text:
    if one.trouble is not None:
        return Text(visible(one.trouble, _LONGEST), "bold red")
    if one.last is None:
        return Text(say("none yet"), "dim")
    row = f", {say('{count} times in a row', count=one.failures)}" if one.failures > 1 else ""
    text = Text.assemble((say(_OUTCOMES[one.last.outcome]), _STYLES[one.last.outcome]), row)
    return text.append(f"\n{_local(one.job, one.last.began_ms)}, {_duration_text(one.last)}", "dim")


def _history_table(found: Iterable[tuple[str, RunEntry]]) -> Table:
    table = Table(header_style="bold")
    for column in (say("began"), say("job"), say("run"), say("took"), say("outcome"), say("process")):
        table.add_column(column, overflow="fold", justify="right" if column in (say("run"), say("took")) else "left")
    for name, entry in found:
        outcome = Text.assemble(
            (say(_OUTCOMES[entry.outcome]), _STYLES[entry.outcome]), f" {say('by hand')}" if entry.by_hand else ""
        )
        if result := _result_text(entry):
            outcome.append(f"\n{result}")
        table.add_row(
            _utc(entry.began_ms), name, str(entry.number), _duration_text(entry), outcome, printable(entry.by)
        )
    return table


def _in_one_line(entry: RunEntry) -> str:
    result = _result_text(entry)
    outcome = say(_OUTCOMES[entry.outcome])
    ended = say("{outcome} after {duration}", outcome=outcome, duration=_duration_text(entry))
    return f"{ended}{': ' if result else ''}{result}"


def _result_text(entry: RunEntry) -> str:
    # Other programs can write to the history, so escape terminal control characters.
    return visible(entry.error or _join_result(entry.result), _LONGEST)


def _join_result(result: Mapping[str, int | str]) -> str:
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in result.items()
    )


def _duration_text(entry: RunEntry) -> str:
    ms = max(0, entry.ended_ms - entry.began_ms)
    return f"{ms / 1000:.1f} s" if ms < 60_000 else rough_duration(ms)


def _utc(ms: int) -> str:
    return f"{moment(ms):%Y-%m-%d %H:%M:%S} UTC"


def _local(job: Job, ms: int) -> str:
    return f"{job.moments.local(ms):%Y-%m-%d %H:%M %Z}"


# --- for programs ------------------------------------------------------------------------------------------


def _iso(ms: int) -> str:
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _job_as_json(one: JobNow) -> dict[str, Any]:
    job = one.job
    return {
        "name": job.name,
        "doc": job.doc,
        "cron": job.cron,
        "zone": job.zone,
        "in_words": job.moments.words,
        "missed": job.missed,
        "lease": job.lease,
        "next": None if one.next_ms is None else _iso(one.next_ms),
        "running": None if one.running is None else _busy_as_json(one.running),
        "failures": one.failures,
        "last": None if one.last is None else _entry_as_json(one.last),
        "trouble": one.trouble,
    }


def _busy_as_json(busy: Busy) -> dict[str, Any]:
    return {"by": busy.by, "since": None if busy.since_ms is None else _iso(busy.since_ms)}


def _entry_as_json(entry: RunEntry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "due": _iso(entry.due_ms),
        "began": _iso(entry.began_ms),
        "ended": _iso(entry.ended_ms),
        "outcome": entry.outcome,
        "result": entry.result,
        "error": entry.error,
        "by": entry.by,
        "by_hand": entry.by_hand,
    }
