"""`keystead doctor`: what is wrong in a live store, and its repair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keystead.cli.flags import NO_VALUE
from keystead.cli.leave import ASKED_WRONGLY, FAILED, leave
from keystead.cli.priority import step_back
from keystead.cli.progress import progress
from keystead.cli.stopping import stoppable
from keystead.cli.targets import Json, Stores, Targets, bound, family_named, keyspaces, opened, run
from keystead.cli.words import counted
from keystead.schema.doctor import Found, Progress, QuarantineKeys, Report, examine, restore
from keystead.schema.doctor.quarantine import KEPT
from keystead.schema.finding import CODES

_FAMILY_HELP = "Look at this family only; its keyspace may stand before it: AppKeys.token. May be given several times."
_FIX_HELP = """Repair what is found, in small steps that are safe while the application runs. What cannot be read is
set aside for 30 days."""
_UNKNOWN_HELP = "With --fix: set keys of no family aside, too. Only where no other program uses the store."
_EXAMPLES_HELP = "How many findings of each code are shown; all are counted."
_RESTORE_HELP = "Bring a key back that was set aside, and do nothing else."

_UNBROKEN = 100_000

Families = Annotated[list[str] | None, typer.Option("--family", metavar="NAME", help=_FAMILY_HELP, show_default=False)]
Fix = Annotated[bool, typer.Option("--fix", metavar=NO_VALUE, help=_FIX_HELP)]
SetAsideUnknown = Annotated[bool, typer.Option("--set-aside-unknown", metavar=NO_VALUE, help=_UNKNOWN_HELP)]
Examples = Annotated[int, typer.Option("--examples", metavar="NUMBER", min=0, help=_EXAMPLES_HELP)]
Restore = Annotated[str | None, typer.Option("--restore", metavar="KEY", help=_RESTORE_HELP, show_default=False)]


def doctor(
    targets: Targets = None,
    store: Stores = None,
    family: Families = None,
    fix: Fix = False,
    set_aside_unknown: SetAsideUnknown = False,
    examples: Examples = 20,
    restore_key: Restore = None,
    as_json: Json = False,
) -> None:
    """Find what is wrong in a live store: orphans, dead entries, wrong lifetimes, unreadable values, unknown keys.

    It scans while the application runs and blocks nobody. With --fix each finding is repaired at once, in one step
    that holds only if it is still so. Each finding has a code, which docs/findings.md explains. The exit code is 1 when
    findings are left, and 0 when there are none or all were repaired. KEYSTEAD_SEAL_KEYS opens sealed values.

    [bold]Examples[/bold]

      keystead doctor myapp.keys:AppKeys --store redis://localhost:6379/0

      keystead doctor myapp.keys --family session --fix

      keystead doctor --restore user:42
    """
    if set_aside_unknown and not fix:
        leave("--set-aside-unknown changes keys, so it goes with --fix", ASKED_WRONGLY)
    if restore_key is not None:
        run(lambda: _restore(restore_key, store, as_json))
        return
    if fix and not targets:
        leave(
            "--fix changes keys by what their families say, so say which: keystead doctor myapp.keys:AppKeys --fix, or "
            "kits for those of all kits",
            ASKED_WRONGLY,
        )
    classes = keyspaces(targets)
    families = None if family is None else {family_named(name, classes) for name in family}
    said = _Said()

    async def work() -> int:
        step_back()
        with stoppable(said.stopped), progress("examining") as show:

            def on_progress(now: Progress) -> None:
                said.progress = now
                show(now.examined, now.total, _found(now))

            async with bound(classes, store) as bound_keys:
                report = await examine(
                    bound_keys,
                    fix=fix,
                    families=families,
                    unknown="set-aside" if set_aside_unknown else "report",
                    on_progress=on_progress,
                    examples=examples,
                )
        if as_json:
            typer.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
        else:
            _print(report, fix)
        return FAILED if report.left else 0

    run(work)


class _Said:
    progress = Progress(0, None, 0, 0)

    def stopped(self) -> str:
        now = self.progress
        return (
            f"stopped after {counted(now.examined, 'key')}, with {counted(now.findings, 'finding')}, "
            f"{now.fixed:,} of them repaired. Every repair that was begun is whole; run it again to go on."
        )


def _found(now: Progress) -> str:
    if not now.findings:
        return ""
    return f", {counted(now.findings, 'finding')}" + (f", {now.fixed:,} repaired" if now.fixed else "")


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
