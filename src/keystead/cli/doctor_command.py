"""`keystead doctor`: what is wrong in a live store, and its repair."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keystead.cli.confirmation import confirmed
from keystead.cli.exit import FAILED, USAGE_ERROR, leave
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import counted
from keystead.cli.interrupts import Paused, stoppable
from keystead.cli.keyspace_arguments import (
    Json,
    Stores,
    Targets,
    bound,
    family_named,
    keyspaces,
    opened,
    other_keyspaces,
    run,
)
from keystead.cli.priority import step_back
from keystead.cli.progress_bar import progress
from keystead.errors import WrongSealKey
from keystead.schema.doctor import Excess, Found, Progress, QuarantineKeys, Report, examine, repair, restore
from keystead.schema.doctor.quarantine import KEPT
from keystead.schema.doctor.removal_limits import ASTRAY
from keystead.schema.finding import CODES

_FAMILY_HELP = "Look at this family only; its keyspace may stand before it: AppKeys.token. May be given several times."
_FIX_HELP = """Examine, print what would be done, then repair it, in small steps that are safe while the application
runs. What cannot be read is set aside for 30 days; orphans and mappings to nothing are deleted."""
_UNKNOWN_HELP = """With --fix: also set aside keys of no family. Only if no other program uses the store. Keys of any
kit and of the server itself are never among them."""
_YES_HELP = "With --fix: set aside or delete more than 1 % of a family without asking."
_EXAMPLES_HELP = "How many findings of each code are shown; all are counted."
_RESTORE_HELP = "Bring a key back that was set aside, and do nothing else."

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
    """Find what is wrong in a live store: orphans, dead entries, wrong lifetimes, unreadable values, unknown keys.

    It scans while the application runs, without blocking it. With --fix it prints what it would do, then repairs each
    finding in one step that holds only if it is still so. It asks before it sets aside or deletes more than 1 %
    of a family; without a terminal to ask on, that part is left unless --yes is given. Where not one key of a family
    has its owner, the owners are looked for in the wrong store, and no key of it is deleted. KEYSTEAD_SEAL_KEYS opens
    sealed values; where not one of a family opens, the keys are wrong, and nothing is repaired. Each finding has a
    code, which docs/findings.md explains.

    The exit code is 0 when there are no findings or all were repaired, 1 when findings are left, and 2 when it was
    asked wrongly or the seal keys are wrong.

    [bold]Examples[/bold]

      keystead doctor myapp.keys:AppKeys --store redis://localhost:6379/0

      keystead doctor myapp.keys --family session --fix

      keystead doctor --restore user:42
    """
    if set_aside_unknown and not fix:
        leave("--set-aside-unknown changes keys, so it goes with --fix", USAGE_ERROR)
    if restore_key is not None:
        run(lambda: _restore(restore_key, store, as_json))
        return
    _require_targets(fix, targets)
    classes = keyspaces(targets)
    families = None if family is None else {family_named(name, classes) for name in family}
    watch = _Watch()
    options: dict[str, Any] = {
        "families": families,
        "known": other_keyspaces(classes) if families is None else (),
        "examples": examples,
    }

    async def work() -> int:
        step_back()
        plan: dict[str, Any] = {}
        with stoppable(watch.describe_stop) as paused:
            async with bound(classes, store) as bound_keys:
                with progress("examining") as show:
                    report = await examine(bound_keys, on_progress=watch.report_to(show), **options)
                if report.locked:
                    leave(str(WrongSealKey(report.locked)), USAGE_ERROR)
                if fix and report.findings:
                    excess = report.excess(unknown=set_aside_unknown)
                    plan = {"plan": _plan_as_json(report, excess)}
                    if not as_json:
                        _print_plan(report, set_aside_unknown)
                    confirmed_all = _confirm(excess, yes, paused, quiet=as_json)
                    with progress("repairing") as show:
                        report = await repair(
                            bound_keys,
                            plan=report,
                            set_aside="all" if confirmed_all else "few",
                            unknown="set-aside" if set_aside_unknown else "report",
                            on_progress=watch.report_to(show),
                            **options,
                        )
        if as_json:
            typer.echo(json.dumps(report.as_json() | plan, indent=2, ensure_ascii=False))
        else:
            _print(report, fix)
        return FAILED if report.left else 0

    run(work)


def _require_targets(fix: bool, targets: Sequence[str] | None) -> None:
    if fix and not targets:
        leave(
            "--fix changes keys by what their families say, so say which: keystead doctor myapp.keys:AppKeys --fix, or "
            "kits for those of all kits",
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
            f"stopped after {counted(now.examined, 'key')}, with {counted(now.findings, 'finding')}, "
            f"{now.fixed:,} of them repaired. Every repair that was begun is whole; run it again to go on."
        )


def _describe_progress(now: Progress) -> str:
    if not now.findings:
        return ""
    return f", {counted(now.findings, 'finding')}" + (f", {now.fixed:,} repaired" if now.fixed else "")


# --- what --fix would do -----------------------------------------------------------------------------------

# What a repair does about each code.
REPAIRS: Final = {
    "orphan": "delete",
    "dead-entry": "take out of the index",
    "not-listed": "list again; delete where the index admits its records",
    "wrong-score": "write the score that the record says",
    "no-deadline": "give a deadline",
    "late-deadline": "bring the deadline forward",
    "early-deadline": "put the deadline off to what the value says",
    "unexpected-deadline": "take the deadline away",
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
            typer.echo(f"  {code}, {counted(count, 'finding')}{f' in {family}' if family else ''}: {todo}")


def _confirm(excess: Sequence[Excess], yes: bool, paused: Paused, *, quiet: bool) -> bool:
    """Ask whether so much may be set aside or deleted. Without a terminal that part is left, with a message."""
    if yes or not excess:
        return True
    by_action = {
        action: ", ".join(_share(one) for one in excess if one.repair == action) for action in ("set aside", "delete")
    }
    if sys.stdin.isatty():
        question = ", and ".join(f"{action} {shares}" for action, shares in by_action.items() if shares)
        return confirmed(f"{question[0].upper()}{question[1:]}?", yes, paused, "nothing was repaired")
    for action, shares in by_action.items():
        if shares and not quiet:
            typer.echo(
                f"keystead: not {_DONE[action]} without --yes, because it is more than 1 % of a family: {shares}. The "
                "rest is repaired",
                err=True,
            )
    return False


def _share(one: Excess) -> str:
    whole = "unknown" if not one.family else one.family
    return f"{one.count:,} of {counted(one.total, one.what, 'entries' if one.what == 'entry' else 'keys')} ({whole})"


def _plan_as_json(plan: Report, excess: Sequence[Excess]) -> dict[str, Any]:
    return {"codes": plan.as_json()["codes"], "needs_yes": [asdict(one) for one in excess]}


async def _restore(key: str, stores: Sequence[str] | None, as_json: bool) -> int:
    async with opened(stores) as by_role:
        for one in {id(store): store for store in by_role.values()}.values():
            copy = await restore(QuarantineKeys(one), key)
            if copy is not None:
                break
        else:
            leave(f"nothing was set aside for {key!r}, or its {KEPT} are over")
    if as_json:
        typer.echo(json.dumps({"restored": copy.key, "kind": copy.kind, "store": one.url}, ensure_ascii=False))
    else:
        typer.echo(f"{copy.key} is back in {one.url}, as it was found. The doctor may find it again.")
    return 0


# --- for people --------------------------------------------------------------------------------------------


def _print(report: Report, fixed: bool) -> None:
    console = Console(highlight=False, width=None if Console().is_terminal else _UNBROKEN)
    for found in sorted(report.found, key=lambda one: list(CODES).index(one.finding.code)):
        _print_one(console, found, fixed)
    if report.findings:
        console.print(_table(report))
    for family, count in report.not_read.items():
        console.print(f"{family}: {counted(count, 'key')} too large to be read at once; their entries were not checked")
    if report.others:
        said = ", ".join(f"{keyspace} ({count:,})" for keyspace, count in report.others.items())
        console.print(f"not examined, because their keyspaces were not named: keys of {said}")
    for family, count in report.sealed.items():
        console.print(
            f"{family}: {counted(count, 'value')} sealed, and there are no keys; what they name was not followed. "
            "Set KEYSTEAD_SEAL_KEYS"
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
    looked_at = f"{counted(report.examined, 'key')}"
    if not report.findings:
        return f"{looked_at}: no findings"
    said = f"{looked_at}: {counted(report.findings, 'finding')}"
    return f"{said}, {report.repaired:,} repaired, {report.left:,} left" if fixed else said
