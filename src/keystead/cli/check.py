"""`keystead check`: what is wrong with keyspaces, found in their declarations alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from keystead.cli.flags import NO_VALUE
from keystead.cli.leave import FAILED
from keystead.cli.targets import NAMED, Json, Targets, keyspaces, opened, place_of, run
from keystead.errors import BadDeclaration
from keystead.schema import Keyspace
from keystead.schema.check import check as found_in
from keystead.schema.finding import CODES, Finding

_STORE_HELP = """Hold the families to what this store promises, too; role=URL for a role of its own. May be given
several times. [dim]\\[default: no store is opened][/dim]"""
_CLUSTER_HELP = "Say what changes in a cluster, where two keys may be in different slots."

_UNBROKEN = 100_000

Stores = Annotated[list[str] | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)]
Cluster = Annotated[bool, typer.Option("--cluster", metavar=NO_VALUE, help=_CLUSTER_HELP)]


def check(targets: Targets = None, store: Stores = None, cluster: Cluster = False, as_json: Json = False) -> None:
    """Find what is wrong with keyspaces before a program runs: overlaps, relations, lifetimes, names.

    Only declarations are read. Each finding has a code, which docs/findings.md explains, and says what to do.
    The exit code is 1 when there are findings, warnings among them, and 2 when a keyspace cannot be found.

    [bold]Examples[/bold]

      keystead check myapp.keys:AppKeys

      keystead check myapp.keys --store redis://localhost:6379/0

      keystead check login sharing --cluster --json
    """
    declared, findings = _declared(targets)

    async def work() -> int:
        guarantees = None
        if store:
            async with opened(store) as by_role:
                guarantees = {role: (one.url, one.guarantees) for role, one in by_role.items()}
        found = [*findings, *found_in(declared, guarantees, cluster)]
        (_print_json if as_json else _print)(declared, found)
        return FAILED if found else 0

    run(work)


def _declared(targets: Sequence[str] | None) -> tuple[list[type[Keyspace]], list[Finding]]:
    """The keyspaces that can be imported, each once, and what is wrong with the declaration of the others.

    Leaves with exit code 2 where there is no such keyspace, or where importing its module fails for another reason.
    """
    found: dict[type[Keyspace], None] = {}
    findings: dict[Finding, None] = {}
    for target in targets or NAMED:
        try:
            found.update(dict.fromkeys(keyspaces([target])))
        except BadDeclaration as error:
            code = error.finding if error.finding in CODES else "bad-declaration"
            findings[Finding(code, place_of(error), str(error), CODES[code].remedy)] = None
    return list(found), list(findings)


def _print_json(declared: Sequence[type[Keyspace]], findings: Sequence[Finding]) -> None:
    report: dict[str, Any] = {
        "keyspaces": [f"{one.__module__}:{one.__qualname__}" for one in declared],
        "families": _count(declared),
        "findings": [finding.as_json() for finding in findings],
    }
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False))


def _print(declared: Sequence[type[Keyspace]], findings: Sequence[Finding]) -> None:
    # Lines are broken for a person's window only: what is piped elsewhere keeps one line a sentence.
    console = Console(highlight=False, width=None if Console().is_terminal else _UNBROKEN)
    for finding in findings:
        style = "bold red" if finding.severity == "error" else "bold yellow"
        console.print(Text.assemble((f"{finding.severity} {finding.code}", style), "  ", (finding.where, "bold")))
        for line in (Text(finding.sentence), Text(finding.remedy), Text(finding.link, "dim")):
            console.print(Padding(line, (0, 0, 0, 2), expand=False))
        console.print()
    console.print(_summary(declared, findings))


def _summary(declared: Sequence[type[Keyspace]], findings: Sequence[Finding]) -> str:
    looked_at = f"{_counted(len(declared), 'keyspace')}, {_counted(_count(declared), 'family', 'families')}"
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    if not findings:
        return f"{looked_at}: no findings"
    if not errors:
        return f"{looked_at}: {_counted(warnings, 'warning')}, and the check fails on warnings, too"
    return f"{looked_at}: {_counted(errors, 'error')}, {_counted(warnings, 'warning')}"


def _count(declared: Sequence[type[Keyspace]]) -> int:
    return len({family for one in declared for family in one.families.values()})


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
