"""`keystead check`: find errors in keyspace declarations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from keystead.catalogue import message
from keystead.cli.exit import FAILED
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import (
    NAMED,
    Json,
    MoreKeyspaces,
    Targets,
    all_targets,
    keyspaces,
    open_stores,
    run,
    source_location,
)
from keystead.cli.terminal_language import plural, say
from keystead.errors import BadDeclaration
from keystead.schema import Keyspace
from keystead.schema.check import check as found_in
from keystead.schema.docs.procedures import procedure_entries
from keystead.schema.finding import CODES, Finding
from keystead.schema.lifetime import in_words
from keystead.stores import Guarantees

_STORE_HELP = """Also check the families against the guarantees of this store; role=URL for a role. Repeatable.
[dim]\\[default: no store is opened][/dim]"""
_CLUSTER_HELP = "Also report what differs in a cluster, where two keys may be in different slots."

_UNBROKEN = 100_000
_RUNS = {
    "atomic": message("Procedures that are one atomic step"),
    "ordered": message("Procedures that run in order across slots, and what repairs an interruption"),
    "refused": message("Procedures that are refused across slots"),
    "unknown": message(
        "Procedures whose steps are not known in advance: one atomic step if their keys are in one slot"
    ),
}

Stores = Annotated[list[str] | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)]
Cluster = Annotated[bool, typer.Option("--cluster", metavar=NO_VALUE, help=_CLUSTER_HELP)]


def check(
    targets: Targets = None,
    more: MoreKeyspaces = None,
    store: Stores = None,
    cluster: Cluster = False,
    as_json: Json = False,
) -> None:
    """Find errors in keyspace declarations before a program runs: overlaps, relations, lifetimes, names.

    No data is read. Each finding has a remedy and a code, which `keystead guide findings` explains. The exit code is
    1 if there are findings, even if only warnings, and 2 if a keyspace cannot be found.

    [bold]Examples[/bold]

      keystead check myapp.keys:AppKeys

      keystead check myapp.keys --store redis://localhost:6379/0

      keystead check login sharing --cluster --json
    """
    declared, findings = _import_keyspaces(all_targets(targets, more))

    async def work() -> int:
        guarantees = None
        if store:
            async with open_stores(store) as by_role:
                guarantees = {role: (one.url, one.guarantees) for role, one in by_role.items()}
        found = [*findings, *found_in(declared, guarantees, cluster)]
        procedures = [one for keyspace in declared for one in _procedures(keyspace, _has_slots(guarantees, cluster))]
        near = [] if guarantees is None else list(_near_reads(declared, guarantees))
        (_print_json if as_json else _print)(declared, found, procedures, near)
        return FAILED if found else 0

    run(work)


def _import_keyspaces(targets: Sequence[str]) -> tuple[list[type[Keyspace]], list[Finding]]:
    """The keyspaces that can be imported, each once, and the findings about the others.

    Exits with code 2 if a keyspace does not exist, or importing its module fails for another reason.
    """
    found: dict[type[Keyspace], None] = {}
    findings: dict[Finding, None] = {}
    for target in targets or NAMED:
        try:
            found.update(dict.fromkeys(keyspaces([target])))
        except BadDeclaration as error:
            code = error.finding if error.finding in CODES else "bad-declaration"
            findings[Finding(code, source_location(error), str(error), CODES[code].remedy)] = None
    return list(found), list(findings)


@dataclass(frozen=True)
class _Procedure:
    """How a procedure runs on the given stores."""

    name: str
    runs: Literal["atomic", "ordered", "refused", "unknown"]
    repair: str
    not_compiled: str


def _has_slots(guarantees: Mapping[str, tuple[str, Guarantees]] | None, cluster: bool) -> bool:
    return cluster or any(promised.atomic == "one slot" for _, promised in (guarantees or {}).values())


def _procedures(keyspace: type[Keyspace], has_slots: bool) -> Iterator[_Procedure]:
    for entry in procedure_entries(keyspace):
        runs: Literal["atomic", "ordered", "refused", "unknown"] = "atomic"
        if has_slots and not entry.is_atomic:
            runs = "ordered" if entry.repair else "unknown" if entry.problem else "refused"
        repair = entry.repair if runs == "ordered" else ""
        yield _Procedure(f"{keyspace.__name__}.{entry.name}", runs, repair, entry.not_compiled)


@dataclass(frozen=True)
class _NearReads:
    """How a family with `near` is read on the given stores."""

    family: str
    bound_ms: int
    reads: Literal["exact", "bounded", "none"]
    store: str

    def __str__(self) -> str:
        descriptions = {
            "exact": say("never behind"),
            "bounded": say("at most {duration} behind", duration=in_words(self.bound_ms)),
            "none": say("read from the store each time, because it does not report changes"),
        }
        return f"{self.family}: {descriptions[self.reads]} ({self.store})"


def _near_reads(
    declared: Sequence[type[Keyspace]], guarantees: Mapping[str, tuple[str, Guarantees]]
) -> Iterator[_NearReads]:
    for keyspace in declared:
        for family in keyspace.families.values():
            role = family.role if family.role in guarantees else "default"
            if family.near_ms and role in guarantees:
                url, promised = guarantees[role]
                yield _NearReads(f"{keyspace.__name__}.{family.name}", family.near_ms, promised.near, url)


def _print_json(
    declared: Sequence[type[Keyspace]],
    findings: Sequence[Finding],
    procedures: Sequence[_Procedure],
    near: Sequence[_NearReads],
) -> None:
    report: dict[str, Any] = {
        "keyspaces": [f"{one.__module__}:{one.__qualname__}" for one in declared],
        "families": _count(declared),
        "findings": [finding.as_json() for finding in findings],
        "procedures": [asdict(one) for one in procedures],
        "near_reads": [asdict(one) for one in near],
    }
    print_json(report)


def _print(
    declared: Sequence[type[Keyspace]],
    findings: Sequence[Finding],
    procedures: Sequence[_Procedure],
    near: Sequence[_NearReads],
) -> None:
    # Lines wrap on a terminal only: piped output has one line per sentence.
    console = Console(highlight=False, width=None if Console().is_terminal else _UNBROKEN)
    for finding in findings:
        style = "bold red" if finding.severity == "error" else "bold yellow"
        console.print(Text.assemble((f"{finding.severity} {finding.code}", style), "  ", (finding.where, "bold")))
        for line in (Text(finding.sentence), Text(finding.remedy), Text(finding.guide, "dim")):
            console.print(Padding(line, (0, 0, 0, 2), expand=False))
        console.print()
    for runs, heading in _RUNS.items():
        matching = [one for one in procedures if one.runs == runs]
        if not matching:
            continue
        console.print(Text(say(heading), "bold"))
        for one in matching:
            console.print(Text(f"  {one.name}{f': {one.repair}' if one.repair else ''}"))
            if one.not_compiled:
                console.print(Text(say("    planned at each call: {why}", why=one.not_compiled), "dim"))
        console.print()
    if near:
        console.print(Text(say("Near reads, from a copy in the process:"), "bold"))
        for reads in near:
            console.print(Text(f"  {reads}"))
        console.print()
    console.print(_summary(declared, findings))


def _summary(declared: Sequence[type[Keyspace]], findings: Sequence[Finding]) -> str:
    families = plural("{count} family", "{count} families", _count(declared))
    looked_at = f"{plural('{count} keyspace', '{count} keyspaces', len(declared))}, {families}"
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    if not findings:
        return f"{looked_at}: {say('no findings')}"
    warned = plural("{count} warning", "{count} warnings", warnings)
    if not errors:
        return f"{looked_at}: {say('{warnings}, and the check fails on warnings too', warnings=warned)}"
    return f"{looked_at}: {plural('{count} error', '{count} errors', errors)}, {warned}"


def _count(declared: Sequence[type[Keyspace]]) -> int:
    return len({family for one in declared for family in one.families.values()})
