"""The key document as one self-contained HTML page: no script, font or picture from elsewhere."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from keystead.catalogue import message
from keystead.schema.docs.diagram import diagram
from keystead.schema.docs.document import KeyDocument
from keystead.schema.docs.document_templates import Say, plain, render_main, render_page
from keystead.schema.docs.generated_marker import made_by
from keystead.schema.docs.relation_rows import LEADS_TO, LISTS, OWNS
from keystead.schema.docs.verbs import OF_EVERY_KEY


class RelationStyle(NamedTuple):
    """How a relation is drawn: its style class, and its text in the legend."""

    style: str
    meaning: str


_LOOKS: Final = {
    OWNS: RelationStyle("owns", message("owns: is deleted with it")),
    LISTS: RelationStyle("lists", message("lists: an index names it")),
    LEADS_TO: RelationStyle("leads", message("leads to: its value names it")),
}


def page(document: KeyDocument) -> str:
    return render_page("document.html", **_values(document, plain))


def content(document: KeyDocument, say: Say) -> str:
    """The content of the page, for a frame of another page."""
    return render_main("document.html", **_values(document, say))


def _values(document: KeyDocument, say: Say) -> dict[str, Any]:
    used = {edge.says for edge in document.edges}
    return {
        "say": say,
        "title": document.title,
        "made_by": made_by(document.made_from),
        "document": document,
        "keys": {entry.name: entry.key for entry in document.families},
        "diagram": diagram(document),
        "looks": {says: look for says, look in _LOOKS.items() if says in used},
        "of_every_key": OF_EVERY_KEY,
    }
