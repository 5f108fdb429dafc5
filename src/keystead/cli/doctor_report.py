"""The report of `keystead doctor` for people: a summary by code that fits a screen, or every finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keystead.catalogue import message
from keystead.cli.terminal_language import plural, say
from keystead.schema.doctor import Found, Report
from keystead.schema.finding import CODES

_UNKNOWN: Final = message("it matches no family of the given keyspaces")
_UNKNOWN_MANY: Final = message("they match no family of the given keyspaces; `keystead infer` drafts families for them")
_UNBROKEN: Final = 100_000

# What fits a screen of 24 lines.
_EXAMPLES: Final = 3
_EXPLAINED_CODES: Final = 3  # with more codes, each has one example and no remedy


@dataclass(frozen=True)
class ReportFormat:
    """As JSON, with every finding, or with this many examples of each code."""

    json: bool
    everything: bool
    examples: int | None


def print_report(report: Report, form: ReportFormat, *, fixed: bool) -> None:
    console = Console(highlight=False, width=None if Console().is_terminal else _UNBROKEN)
    if form.everything:
        for found in _by_code(report):
            _print_one(console, found)
        for found in _unknown_shapes(report, report.examples):
            _print_one(console, found)
    else:
        _print_summary(console, report, form.examples)
    _print_notes(console, report)
    if report.findings and (form.everything or form.examples == 0):
        console.print(_table(report))
    console.print(_last_line(report, fixed))


def _by_code(report: Report) -> list[Found]:
    known = [one for one in report.found if one.finding.code != "unknown-key"]
    return sorted(known, key=lambda one: list(CODES).index(one.finding.code))


def _print_summary(console: Console, report: Report, wanted: int | None) -> None:
    is_brief = len(report.counts) > _EXPLAINED_CODES
    examples = wanted if wanted is not None else 1 if is_brief else _EXAMPLES
    groups = [list(group) for _, group in groupby(_by_code(report), key=lambda one: one.finding.code)]
    hidden = False
    for group in groups:
        count = report.count(group[0].finding.code)
        hidden = hidden or count > examples or is_brief
        if count == 1 and examples:
            _print_one(console, group[0], is_brief)
        else:
            _print_group(console, report, group, examples, is_brief)
    shapes = list(_unknown_shapes(report, examples))
    for found in shapes[:-1]:
        _print_heading(console, found)
    for found in shapes[-1:]:  # what is said of one holds for all
        _print_one(console, found, is_brief)
    others = len(report.unknown.as_json()) - len(shapes)
    if shapes and others:
        hidden = True
        console.print(
            say("unknown keys of {shapes}", shapes=plural("{count} more shape", "{count} more shapes", others))
        )
    if hidden:
        console.print(say("--all shows every finding with its remedy; --examples NUMBER shows more of each code."))


def _print_group(console: Console, report: Report, group: Sequence[Found], examples: int, is_brief: bool) -> None:
    """The findings of one code: how many in which family, the first of them, and what to do."""
    first = group[0].finding
    families = ", ".join(
        f"{family or say('no family')} ({count:,})"
        if len(report.counts[first.code]) > 1
        else family or say("no family")
        for family, count in report.counts[first.code].items()
    )
    repaired = report.fixed.get(first.code, 0)
    state = f", {say('{count} repaired', count=f'{repaired:,}')}" if repaired else ""
    number = plural("{count} finding", "{count} findings", report.count(first.code))
    heading = f"{say('{findings} in {families}', findings=number, families=families)}{state}"
    console.print(Text.assemble((f"{first.severity} {first.code}", _style(first.severity)), "  ", (heading, "bold")))
    for found in group[:examples]:
        _print_indented(console, Text(f"{found.finding.where}: {found.finding.sentence}"))
    if is_brief:
        return
    more = report.count(first.code) - min(examples, len(group))
    if more:
        _print_indented(console, Text(say("and {more} more", more=f"{more:,}")))
    note = next((found.note for found in group if found.note), "")
    if note:
        _print_indented(console, Text(say("not repaired: {note}", note=note)))
    elif repaired < report.count(first.code):
        _print_indented(console, Text(first.remedy))
    _print_indented(console, Text(first.guide, "dim"))
    console.print()


def _print_one(console: Console, found: Found, is_brief: bool = False) -> None:
    finding = found.finding
    _print_heading(console, found)
    _print_indented(
        console, Text(finding.sentence if finding.family is None else f"{finding.family}: {finding.sentence}")
    )
    if is_brief:
        return
    if found.note:
        _print_indented(console, Text(say("not repaired: {note}", note=found.note)))
    elif not found.fixed:
        _print_indented(console, Text(finding.remedy))
    if not found.fixed:
        _print_indented(console, Text(finding.guide, "dim"))
    console.print()


def _print_heading(console: Console, found: Found) -> None:
    finding = found.finding
    state = f" {say('repaired')}" if found.fixed else ""
    console.print(
        Text.assemble(
            (f"{finding.severity} {finding.code}", _style(finding.severity)),
            "  ",
            (finding.where, "bold"),
            (state, "bold green"),
        )
    )


def _print_indented(console: Console, line: Text) -> None:
    console.print(Padding(line, (0, 0, 0, 2), expand=False))


def _style(severity: str) -> str:
    return "bold red" if severity == "error" else "bold yellow"


def _unknown_shapes(report: Report, most: int) -> Iterator[Found]:
    """Keys of no family, by shape: a million keys that one program left behind are one finding to read."""
    first = next((found for found in report.found if found.finding.code == "unknown-key"), None)
    if first is None:
        return
    for row in report.unknown.as_json()[:most]:
        is_one = row["count"] == 1
        where = row["example"]
        if not is_one:
            where = say("{shape} ({count} keys, such as {example})", **{**row, "count": f"{row['count']:,}"})
        finding = replace(first.finding, where=str(where), sentence=say(_UNKNOWN if is_one else _UNKNOWN_MANY))
        yield replace(first, finding=finding)


def _print_notes(console: Console, report: Report) -> None:
    for family, count in report.not_read.items():
        console.print(
            say(
                "{family}: {keys} too large to read; their entries were not checked",
                family=family,
                keys=plural("{count} key", "{count} keys", count),
            )
        )
    if report.others:
        others = ", ".join(f"{keyspace} ({count:,})" for keyspace, count in report.others.items())
        console.print(say("not examined, because their keyspaces were not named: keys of {others}", others=others))
    for family, count in report.sealed.items():
        console.print(
            say(
                "{family}: without keys, {sealed_values} could not be checked for references. Set KEYSTEAD_SEAL_KEYS",
                family=family,
                sealed_values=plural("{count} sealed value", "{count} sealed values", count),
            )
        )


def _table(report: Report) -> Table:
    table = Table(title=say("Findings"), title_justify="left", header_style="bold")
    table.add_column(say("code"))
    table.add_column(say("family"))
    table.add_column(say("count"), justify="right")
    for code, families in report.counts.items():
        for family, count in families.items():
            table.add_row(code, family or say("none"), f"{count:,}")
    return table


def _last_line(report: Report, fixed: bool) -> str:
    looked_at = plural("{count} key", "{count} keys", report.examined)
    if not report.findings:
        return f"{looked_at}: {say('no findings')}"
    summary = f"{looked_at}: {plural('{count} finding', '{count} findings', report.findings)}"
    if not fixed:
        return summary
    counts = {"repaired": f"{report.repaired:,}", "left": f"{report.left:,}"}
    return f"{summary}, {say('{repaired} repaired, {left} left', **counts)}"
