"""The index of the key documents in a folder: README.md in Markdown, index.html in HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from keystead.schema.docs.document import KeyDocument
from keystead.schema.docs.document_templates import Say, plain, render_main, render_page
from keystead.schema.docs.generated_marker import made_by
from keystead.schema.docs.markdown_page import table
from keystead.schema.docs.prose import as_cell, blocks, code

TITLE = "Key documents"
_MADE_FROM = "the keyspaces that it lists"


def markdown(documents: Mapping[str, KeyDocument]) -> str:
    """The index of documents by file name."""
    lines = [
        f"<!-- {made_by(_MADE_FROM)} -->",
        "",
        f"# {TITLE}",
        "",
        *table(
            ("document", "subject", "keys"),
            (
                (f"[{as_cell(one.title)}]({file})", as_cell(first_words(one)), str(len(one.families)))
                for file, one in documents.items()
            ),
        ),
        "## Every key",
        "",
        *_every_key(documents),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def html(documents: Mapping[str, KeyDocument]) -> str:
    """The same as a self-contained HTML page."""
    return render_page("index.html", **_values(documents, plain))


def content(documents: Mapping[str, KeyDocument], say: Say) -> str:
    """The content of that page, for a frame of another page."""
    return render_main("index.html", **_values(documents, say))


def _values(documents: Mapping[str, KeyDocument], say: Say) -> dict[str, Any]:
    return {
        "say": say,
        "documents": documents,
        "first_words": first_words,
        "made_by": made_by(_MADE_FROM),
        "title": TITLE,
    }


def first_words(document: KeyDocument) -> str:
    """The first paragraph of its docstring."""
    return next((block for block in blocks(document.doc) if isinstance(block, str)), "")


def _every_key(documents: Mapping[str, KeyDocument]) -> Iterator[str]:
    yield from table(
        ("key", "kind", "purpose"),
        (
            (f"[{as_cell(code(entry.key))}]({file}#{entry.anchor})", entry.kind, as_cell(entry.doc))
            for file, one in documents.items()
            for entry in one.families
        ),
    )
