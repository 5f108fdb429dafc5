"""The blocks of a document: headings, tables, code and text, each with its line numbers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"^\s*(`{3,}|~{3,})\s*([\w+#-]*)")
_HEADING: Final = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_RULE: Final = re.compile(r"^[\s|:+=─━┼├┤┌┐└┘┬┴│-]+$")
_DASHES: Final = re.compile(r"[-=─━]{2,}|\|\s*:?-+")
_GAP: Final = re.compile(r"\t+|\s{2,}")


class Line(NamedTuple):
    number: int
    text: str


@dataclass(slots=True)
class Heading:
    line: int
    text: str


@dataclass(slots=True)
class Table:
    """`rows` are those below the header."""

    line: int
    header: list[str]
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


@dataclass(slots=True)
class CodeBlock:
    line: int
    language: str
    lines: list[Line] = field(default_factory=list)


@dataclass(slots=True)
class Text:
    line: int
    lines: list[Line] = field(default_factory=list)


Block = Heading | Table | CodeBlock | Text


def blocks_of(text: str) -> list[Block]:
    """The blocks of a document, in order. A table inside code is a table, too."""
    lines = [Line(number, one) for number, one in enumerate(text.splitlines(), 1)]
    found: list[Block] = []
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at].text)
        if fence is not None:
            at = _read_code(lines, at, fence, found)
            continue
        heading = _HEADING.match(lines[at].text)
        if heading is not None:
            found.append(Heading(lines[at].number, heading[1]))
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not _FENCE.match(lines[end].text) and not _HEADING.match(lines[end].text):
            end += 1
        found += _tables_and_text(lines[at:end])
        at = end
    return found


def _read_code(lines: Sequence[Line], at: int, fence: re.Match[str], found: list[Block]) -> int:
    end = at + 1
    while end < len(lines) and not lines[end].text.strip().startswith(fence[1]):
        end += 1
    inside = lines[at + 1 : end]
    tables = [block for block in _tables_and_text(inside) if isinstance(block, Table)]
    if tables:
        found += tables
    else:
        found.append(CodeBlock(lines[at].number, fence[2].lower(), list(inside)))
    return end + 1


def _tables_and_text(lines: Sequence[Line]) -> Iterator[Block]:
    text: list[Line] = []
    at = 0
    while at < len(lines):
        rows = _rows_from(lines, at)
        if len(rows) < 2:
            text.append(lines[at])
            at += 1
            continue
        if text:
            yield Text(text[0].number, text)
            text = []
        (line, header), *body = rows
        yield Table(line, header, body)
        at = next(i for i, one in enumerate(lines) if one.number == rows[-1][0]) + 1
    if any(line.text.strip() for line in text):
        yield Text(text[0].number, text)


def _rows_from(lines: Sequence[Line], at: int) -> list[tuple[int, list[str]]]:
    """The rows of a table that begins here; fewer than two: none does."""
    if "|" in lines[at].text or "│" in lines[at].text:
        return _rows(lines, at, _cells)
    if _RULE.match(lines[at].text) or len(_columns(lines[at].text)) < 2:
        return []
    # Columns that are aligned with spaces: only below a line of dashes, or if all lines have as many columns.
    rows = _rows(lines, at, _columns)
    is_ruled = at + 1 < len(lines) and _DASHES.search(lines[at + 1].text) and _RULE.match(lines[at + 1].text)
    is_even = len(rows) > 2 and all(len(one[1]) == len(other[1]) > 2 for one, other in pairwise(rows))
    return rows if is_ruled or is_even else []


def _rows(lines: Sequence[Line], at: int, split: object) -> list[tuple[int, list[str]]]:
    rows: list[tuple[int, list[str]]] = []
    for line in lines[at:]:
        if _RULE.match(line.text) and line.text.strip():
            continue
        cells = split(line.text)  # type: ignore[operator]
        if len(cells) < 2 or (rows and split is _cells and not re.search(r"[|│]", line.text)):
            break
        rows.append((line.number, cells))
    return rows


def _columns(text: str) -> list[str]:
    return [cell for cell in _GAP.split(text.strip()) if cell]


def _cells(text: str) -> list[str]:
    """The cells of a row. A bar in code or behind a backslash does not separate them."""
    text = text.strip().replace("│", "|")
    cells, current, in_code, at = [], "", False, 0
    while at < len(text):
        character = text[at]
        if character == "\\" and text[at + 1 : at + 2] == "|":
            current, at = current + "|", at + 2
            continue
        in_code ^= character == "`"
        if character == "|" and not (in_code and "`" in text[at + 1 :]):
            cells.append(current.strip())
            current = ""
        else:
            current += character
        at += 1
    cells.append(current.strip())
    if cells and not cells[0] and text.startswith("|"):
        cells = cells[1:]
    return cells[:-1] if cells and not cells[-1] and text.endswith("|") else cells


def plain(text: str) -> str:
    """Text without emphasis and code marks, with full-width characters as usual ones."""
    return unicodedata.normalize("NFKC", re.sub(r"[*`]|<br\s*/?>|(?<!\w)__|__(?!\w)", " ", text)).strip()


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)
