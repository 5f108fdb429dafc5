"""`keystead doctor`: find and repair defects in live data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keystead.cli.billing import announce_examination
from keystead.cli.confirmation import confirm
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import one_line, pluralize, print_json
from keystead.cli.interrupts import PauseSignals, stop_on_signals
from keystead.cli.keyspace_arguments import (
    Json,
    Stores,
    Targets,
    find_family,
    keyspaces,
    open_keyspaces,
    open_stores,
    other_keyspaces,
    run,
)
from keystead.cli.priority import lower_priority
from keystead.cli.progress_bar import progress
from keystead.errors import WrongSealKey
from keystead.schema import Keyspace
from keystead.schema.doctor import Excess, Found, Progress, QuarantineKeys, Report, examine, repair, restore
from keystead.schema.doctor.removal_limits import ASTRAY
from keystead.schema.finding import CODES
from keystead.schema.quarantine import KEPT

_FAMILY_HELP = "Examine only this family: token, or AppKeys.token. Repeatable."
_FIX_HELP = """Examine, print the plan, then repair in small steps that are safe while the application runs. Unreadable
keys are set aside for 30 days; orphans and dangling mappings are deleted."""
_UNKNOWN_HELP = """With --fix: also set aside keys of no family, except those of kits and the server. Use it only if no
other program writes to the store."""
_YES_HELP = "With --fix: set aside or delete more than 1 % of a family without confirmation."
_EXAMPLES_HELP = "The number of findings to show of each code; all are counted."
_RESTORE_HELP = "Restore a key that was set aside, and do nothing else."

_UNKNOWN: Final = "it matches no family of the given keyspaces"
_UNKNOWN_MANY: Final = "they match no family of the given keyspaces; `keystead infer` drafts families for them"
_UNBROKEN = 100_000

Families = Annotated[list[str] | None, typer.Option("--family", metavar="NAME", help=_FAMILY_HELP, show_default=False)]
Fix = Annotated[bool, typer.Option("--fix", metavar=NO_VALUE, help=_FIX_HELP)]
SetAsideUnknown = Annotated[bool, typer.Option("--set-aside-unknown", metavar=NO_VALUE, help=_UNKNOWN_HELP)]
Yes = Annotated[bool, typer.Option("--yes", metavar=NO_VALUE, help=_YES_HELP)]
Examples = Annotated[int, typer.Option("--examples", metavar="NUMBER", min=0, help=_EXAMPLES_HELP)]
Restore = Annotated[str | None, typer.Option("--restore", metavar="KEY", help=_RESTORE_HELP, show_default=False)]


def doctor(
    targets: Targets = None,
    store: Stores = None,
    family: Families = None,
    fix: Fix = False,
    set_aside_unknown: SetAsideUnknown = False,
    yes: Yes = False,
    examples: Examples = 20,
    restore_key: Restore = None,
    as_json: Json = False,
) -> None:
    """Find defects in live data: orphans, dead entries, wrong lifetimes, unreadable values, unknown keys.

    It scans while the application runs, without blocking it. With --fix it prints a plan, then repairs each finding in
    one atomic step, only if it is still present. Before it sets aside or deletes more than 1 % of a family it asks for
    confirmation; without a terminal it skips that part unless --yes is given.

    If no key of a family has its owner, the owners are probably in another store, and none of the family is deleted.
    KEYSTEAD_SEAL_KEYS opens sealed values; if none of a family opens, the keys are wrong, and nothing is repaired.
    docs/reference/findings.md explains the code of each finding.

    The exit code is 0 if there are no findings or all were repaired, 1 if findings remain, and 2 for a usage error or
    wrong seal keys.

    [bold]Examples[/bold]

      keystead doctor myapp.keys:AppKeys --store redis://localhost:6379/0

      keystead doctor myapp.keys --family session --fix

      keystead doctor --restore user:42
    """
    if set_aside_unknown and not fix:
        fail("--set-aside-unknown changes keys: add --fix", USAGE_ERROR)
    if restore_key is not None:
        run(lambda: _restore(restore_key, store, as_json))
        return
    _require_targets(fix, targets)
    classes = keyspaces(targets)
    families = None if family is None else {find_family(name, classes) for name in family}
    options: dict[str, Any] = {
        "families": families,
        "known": other_keyspaces(classes) if families is None else (),
        "examples": examples,
    }
    mending = _Mending(set_aside_unknown, yes) if fix else None
    run(lambda: _examine(classes, store, options, mending, as_json))


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
    as_json: bool,
) -> int:
    """Examine, repair if asked to, and print the report. Returns the exit code."""
    lower_priority()
    plan: dict[str, Any] = {}
    watch = _Watch()
    with stop_on_signals(watch.describe_stop) as pause:
        async with open_keyspaces(classes, store) as bound_keys:
            await announce_examination(bound_keys)
            with progress("examining") as show:
                report = await examine(bound_keys, on_progress=watch.report_to(show), **options)
            if report.locked:
                fail(str(WrongSealKey(report.locked)), USAGE_ERROR)
            if mending is not None and report.findings:
                excess = report.excess(unknown=mending.set_aside_unknown)
                plan = {"plan": {"codes": report.as_json()["codes"], "needs_yes": [asdict(one) for one in excess]}}
                if not as_json:
                    _print_plan(report, mending.set_aside_unknown)
                confirmed_all = _confirm_excess(excess, mending.yes, pause, quiet=as_json)
                with progress("repairing") as show:
                    report = await repair(
                        bound_keys,
                        plan=report,
                        set_aside="all" if confirmed_all else "few",
                        unknown="set-aside" if mending.set_aside_unknown else "report",
                        on_progress=watch.report_to(show),
                        **options,
                    )
    if as_json:
        print_json(report.as_json() | plan)
    else:
        _print(report, mending is not None)
    return FAILED if report.left else 0


def _require_targets(fix: bool, targets: Sequence[str] | None) -> None:
    if fix and not targets:
        fail(
            "--fix changes keys: name their keyspaces, as in keystead doctor myapp.keys:AppKeys --fix, or kits for all",
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
        return (
            f"stopped after {pluralize(now.examined, 'key')}, with {pluralize(now.findings, 'finding')}, "
            f"{now.fixed:,} of them repaired. Each repair is complete or was not started; run it again to continue."
        )


def _describe_progress(now: Progress) -> str:
    if not now.findings:
        return ""
    return f", {pluralize(now.findings, 'finding')}" + (f", {now.fixed:,} repaired" if now.fixed else "")


# --- the plan of --fix -------------------------------------------------------------------------------------

# The repair of each code.
REPAIRS: Final = {
    "orphan": "delete",
    "dead-entry": "remove from the index",
    "not-listed": "add to the index; delete if the index admits its records",
    "wrong-score": "write the score of the record",
    "no-deadline": "set a deadline",
    "late-deadline": "bring the deadline forward",
    "early-deadline": "postpone the deadline to that of the value",
    "unexpected-deadline": "remove the deadline",
    "wrong-kind": "set aside",
    "unreadable": "set aside",
    "too-long": "drop the oldest entries of logs; leave lists",
    "unknown-key": "leave alone",
    "leads-nowhere": "delete",
    "old-seal": "seal with the current key",
    "old-version": "write in the current version",
}

_DONE: Final = {"set aside": "set aside", "delete": "deleted"}


def _print_plan(plan: Report, set_aside_unknown: bool) -> None:
    astray = plan.astray
    typer.echo("to do:")
    for code, families in plan.counts.items():
        what = "set aside" if code == "unknown-key" and set_aside_unknown else REPAIRS[code]
        for family, count in families.items():
            todo = f"leave alone: {ASTRAY[code]}" if astray.get(family) == code else what
            typer.echo(f"  {code}, {pluralize(count, 'finding')}{f' in {family}' if family else ''}: {todo}")


def _confirm_excess(excess: Sequence[Excess], yes: bool, pause: PauseSignals, *, quiet: bool) -> bool:
    """Ask whether so much may be set aside or deleted. Without a terminal, print that this part is skipped."""
    if yes or not excess:
        return True
    by_action = {
        action: ", ".join(_share(one) for one in excess if one.repair == action) for action in ("set aside", "delete")
    }
    if sys.stdin.isatty():
        question = ", and ".join(f"{action} {shares}" for action, shares in by_action.items() if shares)
        return confirm(f"{question[0].upper()}{question[1:]}?", yes, pause, "nothing was repaired")
    for action, shares in by_action.items():
        if shares and not quiet:
            typer.echo(
                f"keystead: not {_DONE[action]} without --yes, because it is more than 1 % of a family: {shares}. "
                "Everything else is repaired",
                err=True,
            )
    return False


def _share(one: Excess) -> str:
    whole = "unknown" if not one.family else one.family
    return f"{one.count:,} of {pluralize(one.total, one.what, 'entries' if one.what == 'entry' else 'keys')} ({whole})"


async def _restore(key: str, stores: Sequence[str] | None, as_json: bool) -> int:
    async with open_stores(stores) as by_role:
        for one in {id(store): store for store in by_role.values()}.values():
            copy = await restore(QuarantineKeys(one), key)
            if copy is not None:
                break
        else:
            fail(f"no key {key!r} was set aside in the last {KEPT}")
    if as_json:
        print_json({"restored": copy.key, "kind": copy.kind, "store": one.url})
    else:
        typer.echo(f"restored {one_line(copy.key)} in {one.url}, unchanged. The doctor may find it again.")
    return 0


# --- for people --------------------------------------------------------------------------------------------


def _print(report: Report, fixed: bool) -> None:
    console = Console(highlight=False, width=None if Console().is_terminal else _UNBROKEN)
    for found in sorted(report.found, key=lambda one: list(CODES).index(one.finding.code)):
        if found.finding.code != "unknown-key":
            _print_one(console, found, fixed)
    _print_unknown(console, report, fixed)
    if report.findings:
        console.print(_table(report))
    for family, count in report.not_read.items():
        console.print(f"{family}: {pluralize(count, 'key')} too large to read; their entries were not checked")
    if report.others:
        others = ", ".join(f"{keyspace} ({count:,})" for keyspace, count in report.others.items())
        console.print(f"not examined, because their keyspaces were not named: keys of {others}")
    for family, count in report.sealed.items():
        console.print(
            f"{family}: without keys, {pluralize(count, 'sealed value')} could not be checked for references. Set "
            "KEYSTEAD_SEAL_KEYS"
        )
    console.print(_summary(report, fixed))


def _print_one(console: Console, found: Found, fixing: bool) -> None:
    finding = found.finding
    style = "bold red" if finding.severity == "error" else "bold yellow"
    state = " repaired" if found.fixed else ""
    console.print(
        Text.assemble(
            (f"{finding.severity} {finding.code}", style), "  ", (finding.where, "bold"), (state, "bold green")
        )
    )
    lines = [Text(finding.sentence if finding.family is None else f"{finding.family}: {finding.sentence}")]
    if found.note:
        lines.append(Text(f"not repaired: {found.note}"))
    elif not found.fixed:
        lines.append(Text(finding.remedy))
    lines += [] if found.fixed else [Text(finding.link, "dim")]
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2), expand=False))
    console.print()


def _print_unknown(console: Console, report: Report, fixing: bool) -> None:
    """Keys of no family, by shape: a million keys that one program left behind are one finding to read."""
    first = next((found for found in report.found if found.finding.code == "unknown-key"), None)
    rows = report.unknown.as_json()
    if first is None:
        return
    for row in rows[: report.examples]:
        is_one = row["count"] == 1
        where = row["example"] if is_one else f"{row['shape']} ({row['count']:,} keys, such as {row['example']})"
        finding = replace(first.finding, where=str(where), sentence=_UNKNOWN if is_one else _UNKNOWN_MANY)
        _print_one(console, replace(first, finding=finding), fixing)
    if len(rows) > report.examples:
        console.print(f"unknown keys of {len(rows) - report.examples:,} more shapes; see --json, or --examples")


def _table(report: Report) -> Table:
    table = Table(title="Findings", title_justify="left", header_style="bold")
    table.add_column("code")
    table.add_column("family")
    table.add_column("count", justify="right")
    for code, families in report.counts.items():
        for family, count in families.items():
            table.add_row(code, family or "none", f"{count:,}")
    return table


def _summary(report: Report, fixed: bool) -> str:
    looked_at = pluralize(report.examined, "key")
    if not report.findings:
        return f"{looked_at}: no findings"
    summary = f"{looked_at}: {pluralize(report.findings, 'finding')}"
    return f"{summary}, {report.repaired:,} repaired, {report.left:,} left" if fixed else summary
