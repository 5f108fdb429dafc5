"""The key document in Markdown, as GitHub and most editors show it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from keystead.schema.docs.document import FamilyEntry, KeyDocument
from keystead.schema.docs.generated_marker import made_by
from keystead.schema.docs.prose import as_cell, as_markdown, blocks, code
from keystead.schema.docs.relation_rows import LEADS_TO, LISTS, OWNS
from keystead.schema.docs.value_phrases import Field, Model
from keystead.schema.docs.verbs import OF_EVERY_KEY

_ARROWS = {OWNS: "-->", LISTS: "-.->", LEADS_TO: "==>"}
_NONE = "-"
_PROCEDURES = "Each is one atomic step and round trip on every store except a cluster: see the last column."


def page(document: KeyDocument) -> str:
    """The whole document. It ends with a newline."""
    lines = [
        f"<!-- {made_by(document.made_from)} -->",
        "",
        f"# {as_markdown(document.title)}",
        "",
        *_introduction(document),
        "## All keys at a glance",
        "",
        *_table(document),
        *_picture(document),
        *_procedures(document),
        "## All families",
        "",
        *_sections(document),
        *_part_keys(document),
        "## Operations by kind",
        "",
        *_kinds(document),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of a table. Cells are Markdown."""
    names = list(head)
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(cell or _NONE for cell in row)} |"
    yield ""


def _introduction(document: KeyDocument) -> Iterator[str]:
    for block in blocks(document.doc):
        yield from [as_markdown(block)] if isinstance(block, str) else [f"- {as_markdown(item)}" for item in block]
        yield ""
    if document.source:
        yield f"Source: {as_markdown(document.source)}"
        yield ""
    if document.changes:
        yield "Changes, and why:"
        yield ""
        yield from (f"- {as_markdown(change)}" for change in document.changes)
        yield ""


def _table(document: KeyDocument) -> Iterator[str]:
    yield from table(
        ("key", "kind", "role", "value", "lifetime", "operations", "used by"),
        (
            (
                f"[{as_cell(code(entry.key))}](#{entry.anchor})" + (f"<br>{as_cell(entry.doc)}" if entry.doc else ""),
                entry.kind,
                entry.role,
                as_cell(entry.short_value),
                as_cell(entry.lifetime),
                as_cell(_codes(entry.operations.few)),
                as_cell(", ".join(one if " " in one else code(one) for one in entry.used_by)),
            )
            for entry in document.families
        ),
    )


def _picture(document: KeyDocument) -> Iterator[str]:
    if not document.edges:
        return
    related = {name for edge in document.edges for name in (edge.start, edge.end)}
    yield from ("## Relation diagram", "", "```mermaid", "flowchart LR")
    for entry in document.families:
        if entry.name in related:
            yield f'    {_node(entry.name)}["{_label(entry)}"]'
    for edge in document.edges:
        yield f"    {_node(edge.start)} {_ARROWS[edge.says]}|{edge.says}| {_node(edge.end)}"
    yield from ("```", "")


def _procedures(document: KeyDocument) -> Iterator[str]:
    if not document.procedures:
        return
    yield from ("## Procedures", "", _PROCEDURES, "")
    yield from table(
        ("procedure", "changes", "reads", "stops at", "in a cluster"),
        (
            (
                as_cell(code(one.call)) + (f"<br>{as_cell(one.doc)}" if one.doc else ""),
                as_cell(_codes(one.changes)),
                as_cell(_codes(one.reads)),
                "<br>".join(as_cell(guard) for guard in one.guards),
                as_cell(one.in_cluster + (f". Interrupted: {one.repair}" if one.repair else "")),
            )
            for one in document.procedures
        ),
    )
    planned = [one.name for one in document.procedures if one.not_compiled]
    if planned:
        yield from (f"Planned at each call, not compiled: {_codes(planned)}.", "")
    for one in document.procedures:
        if one.problem:
            yield from (f"The steps of {code(one.name)} cannot be determined: {as_markdown(one.problem)}.", "")


def _sections(document: KeyDocument) -> Iterator[str]:
    for entry in document.families:
        yield from (f"### {as_markdown(entry.name)}", "", f"{code(entry.key)}, {entry.kind}", "")
        if entry.doc:
            yield from (as_markdown(entry.doc), "")
        yield from (f"- {fact}" for fact in _facts(entry))
        yield ""
        for model in entry.models:
            first = document.first_with(model)
            yield from _fields(model) if first is entry else _see(model, first)
        if entry.changed:
            yield from (f"**Changed:** {as_markdown(entry.changed)}", "")


def _part_keys(document: KeyDocument) -> Iterator[str]:
    if not document.part_keys:
        return
    yield from ("## Keys of its parts", "", "The same program writes these. They have separate documents.", "")
    yield from table(
        ("document", "key", "kind", "purpose"),
        ((as_cell(one.keyspace), as_cell(code(one.key)), one.kind, as_cell(one.doc)) for one in document.part_keys),
    )


def _facts(entry: FamilyEntry) -> Iterator[str]:
    if entry.pattern != entry.key:
        yield f"Pattern: {code(entry.pattern)}{_placeholders(entry)}"
    yield f"Example: {code(entry.example)}"
    if entry.says_what_it_holds:
        yield f"Holds: {as_markdown(entry.value)}"
    yield from map(as_markdown, entry.relations)
    if entry.hash_tag:
        yield f"In a cluster, keys with the same {code(entry.hash_tag)} (the hash tag) are in one slot."
    if entry.naming_exempt:
        yield f"Exempt from the naming rule: {as_markdown(entry.naming_exempt)}"


def _placeholders(entry: FamilyEntry) -> str:
    conditions = "; ".join(f"{code(one.name)} takes {as_markdown(one.takes)}" for one in entry.placeholders)
    return f", where {conditions}" if conditions else ""


def _fields(model: Model) -> Iterator[str]:
    yield from (f"Fields of {code(model.name)}{f': {as_markdown(model.doc)}' if model.doc else ''}", "")
    columns: list[tuple[str, Callable[[Field], str]]] = [
        ("field", lambda field: as_cell(code(field.name))),
        ("type", lambda field: as_cell(field.type)),
        ("required", lambda field: "yes" if field.required else "no"),
    ]
    if model.has_sealed:
        columns.append(("sealed", lambda field: "sealed" if field.sealed else ""))
    if model.has_descriptions:
        columns.append(("description", lambda field: as_cell(field.description)))
    yield from table([name for name, _ in columns], ([cell(field) for _, cell in columns] for field in model.fields))


def _kinds(document: KeyDocument) -> Iterator[str]:
    yield from table(
        ("kind", "writes", "reads"),
        (
            (kind.name, as_cell(_codes(kind.operations.writes)), as_cell(_codes(kind.operations.reads)))
            for kind in document.kinds
        ),
    )
    yield f"Every key except a channel also has {_codes(OF_EVERY_KEY)}."


def _see(model: Model, first: FamilyEntry) -> Iterator[str]:
    yield from (f"See the fields of {code(model.name)} under [{as_markdown(first.name)}](#{first.anchor}).", "")


def _codes(names: Iterable[str]) -> str:
    return ", ".join(name if name == "…" else code(name) for name in names)


def _node(name: str) -> str:
    """A name that is not a keyword of Mermaid, such as `end`."""
    return f"k_{name}"


def _label(entry: FamilyEntry) -> str:
    more = f", of a {entry.belongs_to}" if entry.belongs_to else ""
    return f"{_mermaid(entry.key)}<br>{entry.kind}{more}"


def _mermaid(text: str) -> str:
    """Escape for Mermaid, with character codes. `{` and `:` are plain between quotes."""
    return re.sub(r"[^\w :{}/.,+\[\]()-]", lambda found: f"#{ord(found[0])};", text)
