"""Docs: the key document of a keyspace, as Markdown, HTML or data."""

from collections.abc import Mapping

from keystead.extras import from_extra
from keystead.schema.keyspace import Keyspace

with from_extra("cli", "keystead.schema.docs"):
    from keystead.schema.docs import html_page, index_page, markdown_page
    from keystead.schema.docs.document import KeyDocument, document, in_words
    from keystead.schema.docs.document_templates import Say
    from keystead.schema.docs.generated_marker import is_made

__all__ = [
    "KeyDocument",
    "document",
    "html",
    "html_content",
    "html_index",
    "html_index_content",
    "in_words",
    "is_made",
    "markdown",
    "markdown_index",
]


def markdown(keyspace: type[Keyspace]) -> str:
    """The key document in Markdown. The same declarations give the same text, byte for byte."""
    return markdown_page.page(document(keyspace))


def html(keyspace: type[Keyspace]) -> str:
    """The key document as one self-contained page. The same declarations give the same text, byte for byte."""
    return html_page.page(document(keyspace))


def html_content(keyspace: type[Keyspace], say: Say) -> str:
    """The content of that page, for another frame with the styles `STYLES`. `say` translates its texts."""
    return html_page.content(document(keyspace), say)


def markdown_index(documents: Mapping[str, type[Keyspace]]) -> str:
    """A README.md that links to documents and to every key in them. `documents` are keyspaces by file name."""
    return index_page.markdown({file: document(keyspace) for file, keyspace in documents.items()})


def html_index(documents: Mapping[str, type[Keyspace]]) -> str:
    """The same as a self-contained index.html."""
    return index_page.html({file: document(keyspace) for file, keyspace in documents.items()})


def html_index_content(documents: Mapping[str, type[Keyspace]], say: Say) -> str:
    """The content of that page, as of `html_content`."""
    return index_page.content({file: document(keyspace) for file, keyspace in documents.items()}, say)
