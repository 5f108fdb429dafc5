"""`keystead doctor`: find and repair defects in live data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer

from keystead.catalogue import message
from keystead.cli.billing import announce_examination
from keystead.cli.confirmation import confirm
from keystead.cli.doctor_report import ReportFormat, print_report
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import one_line, print_json
from keystead.cli.interrupts import PauseSignals, stop_on_signals
from keystead.cli.keyspace_arguments import (
    Json,
    MoreKeyspaces,
    Stores,
    Targets,
    all_targets,
    find_family,
    keyspaces,
    open_keyspaces,
    open_stores,
    other_keyspaces,
    run,
)
from keystead.cli.name_hints import complete_family
from keystead.cli.priority import lower_priority
from keystead.cli.progress_bar import progress
from keystead.cli.terminal_language import plural, say
from keystead.errors import WrongSealKey
from keystead.schema import Keyspace
from keystead.schema.doctor import Excess, Progress, QuarantineKeys, Report, examine, repair, restore
from keystead.schema.doctor.removal_limits import ASTRAY
from keystead.schema.quarantine import KEPT

_FAMILY_HELP = "Examine only this family: token, or AppKeys.token. Repeatable."
_FIX_HELP = """Examine, print the plan, then repair in small steps that are safe while the application runs. Unreadable
keys are set aside for 30 days; orphans and dangling mappings are deleted."""
_UNKNOWN_HELP = """With --fix: also set aside keys of no family, except those of kits and the server. Use it only if no
other program writes to the store."""
_YES_HELP = "With --fix: set aside or delete more than 1 % of a family without confirmation."
_EXAMPLES_HELP = """The number of findings to show of each code; all are counted.
[dim]\\[default: 3, or 1 if there are many codes; 20 with --json][/dim]"""
_EVERYTHING_HELP = "Show every finding with its remedy, instead of a summary by code."
_RESTORE_HELP = "Restore a key that was set aside, and do nothing else."

_EXAMPLES: Final = 20
_EVERY: Final = 1_000_000  # findings of a code

Families = Annotated[
    list[str] | None,
    typer.Option("--family", metavar="NAME", help=_FAMILY_HELP, show_default=False, autocompletion=complete_family),
]
Fix = Annotated[bool, typer.Option("--fix", metavar=NO_VALUE, help=_FIX_HELP)]
SetAsideUnknown = Annotated[bool, typer.Option("--set-aside-unknown", metavar=NO_VALUE, help=_UNKNOWN_HELP)]
Yes = Annotated[bool, typer.Option("--yes", metavar=NO_VALUE, help=_YES_HELP)]
Examples = Annotated[
    int | None, typer.Option("--examples", metavar="NUMBER", min=0, help=_EXAMPLES_HELP, show_default=False)
]
Everything = Annotated[bool, typer.Option("--all", metavar=NO_VALUE, help=_EVERYTHING_HELP)]
Restore = Annotated[str | None, typer.Option("--restore", metavar="KEY", help=_RESTORE_HELP, show_default=False)]


def doctor(
    targets: Targets = None,
    more: MoreKeyspaces = None,
    store: Stores = None,
    family: Families = None,
    fix: Fix = False,
    set_aside_unknown: SetAsideUnknown = False,
    yes: Yes = False,
    examples: Examples = None,
    everything: Everything = False,
    restore_key: Restore = None,
    as_json: Json = False,
) -> None:
    """Find defects in live data: orphans, dead entries, wrong lifetimes, unreadable values, unknown keys.

    It scans while the application runs, without blocking it, and prints a summary by code; --all prints every finding.
    With --fix it prints a plan, then repairs each finding in
    one atomic step, only if it is still present. Before it sets aside or deletes more than 1 % of a family it asks for
    confirmation; without a terminal it skips that part unless --yes is given.

    If no key of a family has its owner, the owners are probably in another store, and none of the family is deleted.
    KEYSTEAD_SEAL_KEYS opens sealed values; if none of a family opens, the keys are wrong, and nothing is repaired.
    `keystead guide findings` explains the code of each finding.

    The exit code is 0 if there are no findings or all were repaired, 1 if findings remain, and 2 for a usage error or
    wrong seal keys.

    [bold]Examples[/bold]

      keystead doctor myapp.keys:AppKeys --store redis://localhost:6379/0

      keystead doctor myapp.keys --all

      keystead doctor myapp.keys --family session --fix

      keystead doctor --restore user:42
    """
    if set_aside_unknown and not fix:
        fail(say("--set-aside-unknown changes keys: add --fix"), USAGE_ERROR)
    if restore_key is not None:
        run(lambda: _restore(restore_key, store, as_json))
        return
    _require_targets(fix, all_targets(targets, more))
    classes = keyspaces(targets, more)
    families = None if family is None else {find_family(name, classes) for name in family}
    options: dict[str, Any] = {
        "families": families,
        "known": other_keyspaces(classes) if families is None else (),
        "examples": (_EVERY if everything else _EXAMPLES) if examples is None else examples,
    }
    report_as = ReportFormat(as_json, everything, examples)
    mending = _Mending(set_aside_unknown, yes) if fix else None
    run(lambda: _examine(classes, store, options, mending, report_as))


@dataclass(frozen=True)
class _Mending:
    """What --fix may do."""

    set_aside_unknown: bool
    yes: bool


async def _examine(
    classes: Sequence[type[Keyspace]],
    store: Sequence[str] | None,
    options: dict[str, Any],
    mending: _Mending | None,
    report_as: ReportFormat,
) -> int:
    """Examine, repair if asked to, and print the report. Returns the exit code."""
    lower_priority()
    plan: dict[str, Any] = {}
    watch = _Watch()
    with stop_on_signals(watch.describe_stop) as pause:
        async with open_keyspaces(classes, store) as bound_keys:
            await announce_examination(bound_keys, repairs=mending is not None)
            with progress(say("examining")) as show:
                report = await examine(bound_keys, on_progress=watch.report_to(show), **options)
            if report.locked:
                fail(str(WrongSealKey(report.locked)), USAGE_ERROR)
            if mending is not None and report.findings:
                excess = report.excess(unknown=mending.set_aside_unknown)
                plan = {"plan": {"codes": report.as_json()["codes"], "needs_yes": [asdict(one) for one in excess]}}
                if not report_as.json:
                    _print_plan(report, mending.set_aside_unknown)
                confirmed_all = _confirm_excess(excess, mending.yes, pause, quiet=report_as.json)
                with progress(say("repairing")) as show:
                    report = await repair(
                        bound_keys,
                        plan=report,
                        set_aside="all" if confirmed_all else "few",
                        unknown="set-aside" if mending.set_aside_unknown else "report",
                        on_progress=watch.report_to(show),
                        **options,
                    )
    if report_as.json:
        print_json(report.as_json() | plan)
    else:
        print_report(report, report_as, fixed=mending is not None)
    return FAILED if report.left else 0


def _require_targets(fix: bool, targets: Sequence[str]) -> None:
    if fix and not targets:
        fail(
            say(
                "--fix changes keys: name their keyspaces, as in keystead doctor myapp.keys:AppKeys --fix, "
                "or kits for all"
            ),
            USAGE_ERROR,
        )


class _Watch:
    """The latest progress, for the bar and for the message after Ctrl-C."""

    progress = Progress(0, None, 0, 0)

    def report_to(self, show: Callable[[int, int | None, str], None]) -> Callable[[Progress], None]:
        def on_progress(now: Progress) -> None:
            self.progress = now
            show(now.examined, now.total, _describe_progress(now))

        return on_progress

    def describe_stop(self) -> str:
        now = self.progress
        return say(
            "stopped after {keys}, with {findings}, {fixed} of them repaired. Each repair is complete or was not "
            "started; run it again to continue.",
            keys=plural("{count} key", "{count} keys", now.examined),
            findings=plural("{count} finding", "{count} findings", now.findings),
            fixed=f"{now.fixed:,}",
        )


def _describe_progress(now: Progress) -> str:
    if not now.findings:
        return ""
    return f", {plural('{count} finding', '{count} findings', now.findings)}" + (
        f", {say('{count} repaired', count=f'{now.fixed:,}')}" if now.fixed else ""
    )


# --- the plan of --fix -------------------------------------------------------------------------------------

# The repair of each code.
REPAIRS: Final = {
    "orphan": message("delete"),
    "dead-entry": message("remove from the index"),
    "not-listed": message("add to the index; delete if the index admits its records"),
    "wrong-score": message("write the score of the record"),
    "no-deadline": message("set a deadline"),
    "late-deadline": message("bring the deadline forward"),
    "early-deadline": message("postpone the deadline to that of the value"),
    "unexpected-deadline": message("remove the deadline"),
    "wrong-kind": message("set aside"),
    "unreadable": message("set aside"),
    "too-long": message("drop the oldest entries of logs; leave lists"),
    "unknown-key": message("leave alone"),
    "leads-nowhere": message("delete"),
    "old-seal": message("seal with the current key"),
    "old-version": message("write in the current version"),
}

_QUESTIONS: Final = {"set aside": message("Set aside {shares}?"), "delete": message("Delete {shares}?")}
_SKIPPED: Final = {
    "set aside": message(
        "not set aside without --yes, because it is more than 1 % of a family: {shares}. Everything else is repaired"
    ),
    "delete": message(
        "not deleted without --yes, because it is more than 1 % of a family: {shares}. Everything else is repaired"
    ),
}


def _print_plan(plan: Report, set_aside_unknown: bool) -> None:
    astray = plan.astray
    typer.echo(say("to do:"))
    for code, families in plan.counts.items():
        what = "set aside" if code == "unknown-key" and set_aside_unknown else REPAIRS[code]
        for family, count in families.items():
            todo = say("leave alone: {why}", why=ASTRAY[code]) if astray.get(family) == code else say(what)
            number = plural("{count} finding", "{count} findings", count)
            found = say("{findings} in {families}", findings=number, families=family) if family else number
            typer.echo(f"  {code}, {found}: {todo}")


def _confirm_excess(excess: Sequence[Excess], yes: bool, pause: PauseSignals, *, quiet: bool) -> bool:
    """Ask whether so much may be set aside or deleted. Without a terminal, print that this part is skipped."""
    if yes or not excess:
        return True
    by_action = {
        action: ", ".join(_share(one) for one in excess if one.repair == action) for action in ("set aside", "delete")
    }
    if sys.stdin.isatty():
        question = " ".join(say(_QUESTIONS[action], shares=shares) for action, shares in by_action.items() if shares)
        return confirm(question, yes, pause, say("nothing was repaired"))
    for action, shares in by_action.items():
        if shares and not quiet:
            typer.echo(f"keystead: {say(_SKIPPED[action], shares=shares)}", err=True)
    return False


def _share(one: Excess) -> str:
    whole = one.family or say("unknown")
    if one.what == "entry":
        total = plural("{count} entry", "{count} entries", one.total)
    else:
        total = plural("{count} key", "{count} keys", one.total)
    return say("{part} of {total} ({family})", part=f"{one.count:,}", total=total, family=whole)


async def _restore(key: str, stores: Sequence[str] | None, as_json: bool) -> int:
    async with open_stores(stores) as by_role:
        for one in {id(store): store for store in by_role.values()}.values():
            copy = await restore(QuarantineKeys(one), key)
            if copy is not None:
                break
        else:
            fail(say("no key {key} was set aside in the last {kept}", key=repr(key), kept=KEPT))
    if as_json:
        print_json({"restored": copy.key, "kind": copy.kind, "store": one.url})
    else:
        typer.echo(
            say(
                "restored {key} in {url}, unchanged. The doctor may find it again.", key=one_line(copy.key), url=one.url
            )
        )
    return 0
