"""The key document as one self-contained HTML page: no script, font or picture from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from keystead.schema.docs.diagram import diagram
from keystead.schema.docs.document import KeyDocument
from keystead.schema.docs.document_templates import TEMPLATES
from keystead.schema.docs.generated_marker import made_by
from keystead.schema.docs.relation_rows import LEADS_TO, LISTS, OWNS
from keystead.schema.docs.verbs import OF_EVERY_KEY


class RelationStyle(NamedTuple):
    """How a relation is drawn: its style class, and its text in the legend."""

    style: str
    meaning: str


_LOOKS: Final = {
    OWNS: RelationStyle("owns", "owns: is deleted with it"),
    LISTS: RelationStyle("lists", "lists: an index names it"),
    LEADS_TO: RelationStyle("leads", "leads to: its value names it"),
}


def page(document: KeyDocument, links: Mapping[str, str], aside: str) -> str:
    """The whole page, with these links and this HTML in its head."""
    used = {edge.says for edge in document.edges}
    return TEMPLATES.get_template("document.html").render(
        title=document.title,
        links=links,
        aside=aside,
        made_by=made_by(document.made_from),
        document=document,
        keys={entry.name: entry.key for entry in document.families},
        diagram=diagram(document),
        looks={says: look for says, look in _LOOKS.items() if says in used},
        of_every_key=OF_EVERY_KEY,
    )
