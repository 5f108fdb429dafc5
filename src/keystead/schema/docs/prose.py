"""Prose: a line of text with code between backticks, for Markdown and for HTML.

All text in a declaration (`doc`, `changed`, docstrings, descriptions) is read as such a line. There is no other markup:
anything else that looks like Markdown or HTML is shown as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import NamedTuple

from markupsafe import Markup, escape

_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
# Escaped only where CommonMark or GitHub would see an emphasis, a link, a tag, an entity or an escape: the raw text
# should stay readable. An underscore within a word is none of these.
_MARKUP = re.compile(r"\\(?=[!-/:-@\[-`{-~])|[*<`]|~(?=~)|\](?=[(\[:])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_LINE_START = re.compile(r"([#+=>\[-])|(\d+)(?=[.)])")
_ITEM = re.compile(r"\s*[-*] ")


class ProsePiece(NamedTuple):
    is_code: bool
    text: str


def code(text: str) -> str:
    """Any text as code in a line of prose."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def pieces(prose: str) -> Iterator[ProsePiece]:
    """The text and the code of a line, alternating. An unmatched backtick is text."""
    at = 0
    for found in _SPAN.finditer(prose):
        if found.start() > at:
            yield ProsePiece(False, prose[at : found.start()])
        inside = found[2]
        if inside.startswith(" ") and inside.endswith(" ") and inside.strip():
            inside = inside[1:-1]
        yield ProsePiece(True, inside)
        at = found.end()
    if at < len(prose):
        yield ProsePiece(False, prose[at:])


def as_markdown(prose: str) -> str:
    """The same in Markdown, for a paragraph or an item of a list, on one line."""
    line = "".join(code(piece.text) if piece.is_code else _escape(piece.text) for piece in pieces(_on_one_line(prose)))
    start = _LINE_START.match(line)
    if start is None:
        return line
    return (f"\\{start[1]}" if start[1] else f"{start[2]}\\") + line[start.end() :]


def as_cell(prose: str) -> str:
    """The same in a cell of a table, where a line ends the row and `|` the cell, also within code."""
    return as_markdown(prose).replace("|", "\\|")


def as_html(prose: str) -> Markup:
    """The same in HTML."""
    return Markup("").join(
        Markup("<code>{}</code>").format(piece.text) if piece.is_code else escape(piece.text) for piece in pieces(prose)
    )


def blocks(docstring: str) -> list[str | list[str]]:
    """The paragraphs and the lists of a docstring: a line each, and a list of lines."""
    found: list[str | list[str]] = []
    for block in re.split(r"\n\s*\n", cleandoc(docstring)):
        if _ITEM.match(block):
            found.append(
                [_on_one_line(item) for item in re.split(r"^\s*[-*] ", block, flags=re.MULTILINE) if item.strip()]
            )
        elif block.strip():
            found.append(_on_one_line(block))
    return found


def _escape(text: str) -> str:
    return _MARKUP.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), text)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
