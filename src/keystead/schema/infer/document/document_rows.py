"""The rows of a key document: what each of its tables, blocks, lists and commands says of one key."""
# ruff: noqa: RUF001 - punctuation of these languages

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from keystead.schema.infer.document.document_blocks import (
    Block,
    CodeBlock,
    Heading,
    Line,
    Table,
    Text,
    code_spans,
    plain,
)
from keystead.schema.infer.document.document_vocabulary import Column, column_of, kind_in
from keystead.schema.infer.document.written_commands import WrittenCommand, command_of, commands_in
from keystead.schema.infer.document.written_keys import WrittenKey, looks_like_key, read_key
from keystead.schema.infer.document.written_lifetimes import mentions_expiry, read_lifetime
from keystead.schema.infer.document.written_values import WrittenValues, braces_in, json_value, shape_in
from keystead.schema.infer.draft import Kind

Source: TypeAlias = Literal["table", "block", "list", "command", "example"]

_PLAIN_CODE: Final = ("", "text", "txt", "plain", "plaintext", "redis", "yaml", "yml", "bash", "sh", "console", "md")
_BULLET: Final = re.compile(r"^\s*(?:[-*•+・]|\d+[.)])\s+")
_EXAMPLE: Final = re.compile(r"^\**(?:例|example|e\.g\.|예시?|ex)\**\s*[:：]\**\s*", re.IGNORECASE)
_ITEM: Final = re.compile(
    r"^(`[^`]+`|\S+?)(?:\s*(→|⇒|->|=>)\s*|\s*(?=[(（])|\s*[–—：]\s*|\s+(?:[-=#:|]+|//)\s+|:\s+|\s{2,}|\t+|\s*$)(.*)",
    re.DOTALL,
)
_COMMENT: Final = re.compile(r"^\s*(?:#|//|--|;)\s?(.*)")
_LABEL: Final = re.compile(r"^\s*(?:[-*•+]\s+)?\**([^:：`|{}]{1,24}?)\**\s*[:：]\**\s*(\S.*)$")
_ASIDE: Final = re.compile(r"\s*[(（]([^()（）]*)[)）]")
_CLAUSES: Final = re.compile(r"(?<=[.。;；])\s*|[:：]\s+")
_PARTS: Final = re.compile(r"[、,;；。]")
_SHORT: Final = 24  # characters of a cell that only names a kind or a lifetime
_NUMBER: Final = re.compile(r"(?:no\.?|nr\.?|#|id|番号|번호)?", re.IGNORECASE)  # the heading of numbers of rows
_SEPARATED: Final = re.compile(r"<br\s*/?>|\s*[,、]\s+|、|\s+/\s+|\s+(?:or|and|または|및|또는)\s+")


@dataclass(slots=True)
class Row:
    """What one place of the document says of a key; texts as written, empty if it does not say."""

    line: int
    key: WrittenKey
    source: Source
    kind: Kind | None = None
    value: str = ""
    lifetime: str = ""
    doc: str = ""
    heading: str = ""
    note: str = ""  # what was written beside the key itself
    example: Any = None  # of the value
    command: WrittenCommand | None = None
    ttl_ms: int | None = None


@dataclass(slots=True)
class DocumentRows:
    """All rows in order. `problems` are what was not understood, and `mentions` the keys in running text, by line."""

    values: WrittenValues
    rows: list[Row] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    mentions: list[tuple[int, WrittenKey]] = field(default_factory=list)
    _heading: str = ""
    _heading_key: tuple[int, WrittenKey] | None = None  # the only key in it
    _section: list[Row] = field(default_factory=list)  # the rows since the last heading
    _mentioned: WrittenKey | None = None  # the last key since then

    def read(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if isinstance(block, CodeBlock):
                self.values.read_interfaces("\n".join(line.text for line in block.lines))
        for block in blocks:
            match block:
                case Heading():
                    self._begin_section(block)
                case Table():
                    self._read_table(block)
                case CodeBlock():
                    self._read_code(block)
                case Text():
                    self._read_text(block)

    def _add(self, row: Row) -> None:
        row.heading = self._heading
        self.rows.append(row)
        self._section.append(row)
        self._mentioned = row.key

    def _begin_section(self, heading: Heading) -> None:
        self._heading, self._section, self._mentioned = plain(heading.text), [], None
        named = [one for one in (code_spans(heading.text) or [heading.text]) if looks_like_key(one)]
        key = read_key(named[0]) if len(named) == 1 else None
        self._heading_key = None if key is None else (heading.line, key)
        self._mention(Line(heading.line, heading.text))

    def _mention(self, line: Line) -> None:
        """Remember the keys that a line of text names."""
        for span in code_spans(line.text):
            key = read_key(span)
            if key is not None and looks_like_key(span):
                self.mentions.append((line.number, key))
                self._mentioned = key

    # --- tables --------------------------------------------------------------------------------------------

    def _read_table(self, table: Table) -> None:
        columns = _columns_of(table)
        wanted: tuple[Column, ...] = ("key", "channel", "name")
        keyed = sorted((wanted.index(column), at) for at, column in enumerate(columns) if column in wanted)
        if not keyed:
            return
        place = keyed[0][1]
        cells = [row[place] for _, row in table.rows if place < len(row) and row[place]]
        keys = sum(any(looks_like_key(one) for one in _texts(cell)) for cell in cells)
        # Names may be those of fields or settings.
        says_more = {"kind", "lifetime"} & set(columns) if columns[place] != "name" else set()
        could_be = says_more and any(read_key(one) for cell in cells for one in _texts(cell))
        if keys * 2 < len(cells) and not could_be:
            return
        unused = [plain(cell) for cell, column in zip(table.header, columns, strict=True) if column is None]
        if names := ", ".join(name for name in unused if not _NUMBER.fullmatch(name)):
            self.problems.append((table.line, f"columns that were not used: {names[:100]}"))
        for line, row in table.rows:
            self._read_row(line, columns, row, place)

    def _read_row(self, line: int, columns: Sequence[Column | None], row: Sequence[str], place: int) -> None:
        by_column: dict[Column | None, str] = {}
        for column, cell in zip(columns, row, strict=False):
            by_column[column] = f"{by_column[column]} {cell}" if column in by_column else cell
        cell = row[place] if place < len(row) else ""
        found = [key for one in _texts(cell) if (key := read_key(one)) is not None]
        if not found and plain(cell):
            self.problems.append((line, f"not a key: {plain(cell)[:60]}"))
        note = by_column.get("note", "") or by_column.get(None, "")
        value = by_column.get("value", "") or (note if shape_in(note) else "")
        for key in found:
            kind = self._kind(line, by_column.get("kind", ""), by_column.get("value", ""))
            if kind is None and columns[place] == "channel":
                kind = "Channel"
            self._add(
                Row(
                    line, key, "table", kind,
                    f"{by_column.get('kind', '')} {value}".strip(),
                    by_column.get("lifetime", "") or (note if mentions_expiry(note) else ""),
                    note,
                    note=cell,
                )
            )  # fmt: skip

    def _kind(self, line: int, kind: str, value: str) -> Kind | None:
        """The kind that these cells state."""
        if self.values.named_in(kind) or (not kind and self.values.named_in(value)):
            return kind_in(kind) or "Value"
        found = kind_in(kind) or kind_in(value)
        if found is None and plain(kind).strip("-— "):
            self.problems.append((line, f"unknown kind: {plain(kind)[:60]}"))
        return found

    # --- code ----------------------------------------------------------------------------------------------

    def _read_code(self, code: CodeBlock) -> None:
        text = "\n".join(line.text for line in code.lines)
        example = json_value(text)
        if example is not None:
            self._attach(example)
            return
        for command in commands_in(code.lines):
            self._read_command(command)
        if code.language in _PLAIN_CODE:
            self._read_labels(code.lines)
            self._read_items(code.lines, in_code=True)

    def _attach(self, example: Any) -> None:
        """A JSON example belongs to the key that was named last in this section."""
        key = self._mentioned
        if key is None:
            return
        row = next((one for one in reversed(self.rows) if one.key.shape == key.shape), None)
        if row is not None and row.example is None:
            row.example = example

    def _read_command(self, command: WrittenCommand) -> None:
        key = read_key(command.key)
        if key is not None:
            kind = command.kind
            self._add(Row(command.line, key, "command", kind, command=command, ttl_ms=command.ttl_ms))
            self._mentioned = key

    # --- lines ---------------------------------------------------------------------------------------------

    def _read_text(self, text: Text) -> None:
        self._read_labels(text.lines)
        self._read_items(text.lines, in_code=False)
        for line in text.lines:
            self._mention(line)
            for command in command_of(line.number, line.text) if "`" not in line.text else ():
                if looks_like_key(command.key):  # or capital letters in a sentence
                    self._read_command(command)
            for span in code_spans(line.text):
                for command in command_of(line.number, span):
                    self._read_command(command)

    def _read_labels(self, lines: Sequence[Line]) -> None:
        """Lines such as `Key: session:{id}`, `Type: HASH`, `TTL: 1800s`. One without a key is about the last one."""
        row: Row | None = None
        for number, text in lines:
            match = _LABEL.match(text)
            column = None if match is None else column_of(match[1])
            if match is None or column is None:
                continue
            said = match[2]
            if column in ("key", "channel"):
                row = self._labelled_key(number, said, column)
            elif row is None and not self._section and self._heading_key is not None:
                row = Row(self._heading_key[0], self._heading_key[1], "block", note=self._heading)
                self._add(row)
                self._label(number, column, said, row, is_later=False)
            elif row is not None or self._section:
                self._label(number, column, said, row or self._section[-1], is_later=row is None)

    def _labelled_key(self, number: int, said: str, column: Column) -> Row | None:
        spans = code_spans(said) or [said.split()[0] if " " in said and "{" not in said.split()[-1] else said]
        key = read_key(spans[0])
        further = _PARTS.split(said.partition(spans[0])[2])
        if key is None:
            self.problems.append((number, f"not a key: {plain(said)[:60]}"))
            return None
        row = Row(number, key, "block", "Channel" if column == "channel" else None, note=said)
        row.doc = self._heading
        self._add(row)
        for part in further:  # `Key: a:{id}, type: hash, TTL: 1h`
            match = _LABEL.match(part)
            if match is not None and (said_of := column_of(match[1])) is not None:
                self._label(number, said_of, match[2], row, is_later=False)
        return row

    def _label(self, number: int, column: Column, said: str, row: Row, *, is_later: bool) -> None:
        if column == "lifetime":
            later = [one for one in self._section if one.source == "block" and not one.lifetime] if is_later else [row]
            for one in later:
                one.lifetime = said
        elif column in ("kind", "value") and not is_later:
            row.value = f"{row.value} {said}".strip()
            if column == "kind" or row.kind is None:
                row.kind = self._kind(number, said if column == "kind" else "", said) or row.kind
        elif column == "note" and not is_later:
            row.doc = said

    def _read_items(self, lines: Sequence[Line], *, in_code: bool) -> None:
        """Lines that begin with a key: `counter:{id}:total → number`, `- session:<id>: the session, 30 days`."""
        comment = ""
        for at, (number, text) in enumerate(lines):
            if not text.strip():
                comment = ""
                continue
            remark = _COMMENT.match(text) if in_code else None
            if remark is not None and not looks_like_key(remark[1].strip()):
                comment = remark[1]
                continue
            is_indented = text.startswith(("    ", "\t"))
            if not (in_code or is_indented or _BULLET.match(text) or _EXAMPLE.match(text)):
                continue
            item = _EXAMPLE.sub("", _BULLET.sub("", text.strip())).replace("**", "")
            match = _ITEM.match(item)
            if match is None or not _is_item(match) or (match[1][-1] == ":" and not match[3]):
                continue
            key = read_key(match[1])
            if key is not None and not (key.concrete and not match[3]):
                said = _with_braces(match[3], lines[at + 1 :])
                self._add_item(number, key, said, comment, holds=match[2] is not None)

    def _add_item(self, number: int, key: WrittenKey, said: str, comment: str, *, holds: bool) -> None:
        """`holds`: an arrow leads from the key to what it holds."""
        words = re.sub(r"\{.*\}", " ", said, flags=re.DOTALL)
        whole = f"{words} {comment}"
        clauses = [*_CLAUSES.split(words), comment]
        lifetime = next((text for text in clauses if mentions_expiry(text)), "")
        aside = _ASIDE.match(words)
        kind = kind_in(aside[1] if aside is not None else words.split("(")[0])
        kind = kind or kind_in(f"{words} {comment}" if aside is not None else comment, prose=True)
        if kind is None and holds:
            kind = "Value"
        is_value = holds or kind is not None or "{" in said
        doc = comment or _ASIDE.sub("", whole, count=1).strip(" :：-–—") or whole
        self._add(Row(number, key, "list", kind, said if is_value else "", lifetime, plain(doc)))


def _is_item(match: re.Match[str]) -> bool:
    """Whether a line begins with a key. A word is one only as code with a kind beside it: `online` (sorted set)."""
    if looks_like_key(match[1]):
        return True
    aside = _ASIDE.match(match[3])
    is_word = match[1].startswith("`") and read_key(match[1]) is not None
    return is_word and aside is not None and kind_in(aside[1]) is not None


def _columns_of(table: Table) -> list[Column | None]:
    """What the columns hold: by their headings, or, where these say nothing, lifetimes and kinds by their cells."""
    columns = [column_of(cell) for cell in table.header]
    guesses: tuple[tuple[Column, Callable[[str], object]], ...] = (("lifetime", _is_lifetime), ("kind", _is_kind))
    for column, fits in guesses:
        if column in columns:
            continue
        for at, known in enumerate(columns):
            cells = [row[at] for _, row in table.rows if at < len(row) and plain(row[at])]
            if known is None and cells and sum(map(bool, map(fits, cells))) * 2 > len(cells):
                columns[at] = column
                break
    return columns


def _is_lifetime(cell: str) -> bool:
    return not plain(cell).isdigit() and len(plain(cell)) <= _SHORT and read_lifetime(cell) is not None


def _is_kind(cell: str) -> bool:
    return len(plain(cell)) <= _SHORT and kind_in(cell) is not None


def _texts(cell: str) -> list[str]:
    """The keys of a cell: its code, or what separators leave."""
    spans = code_spans(cell)
    return spans or [one.strip() for one in _SEPARATED.split(plain(cell)) if one.strip()]


def _with_braces(said: str, following: Sequence[Line]) -> str:
    """What is said of a key, with the lines that an open brace needs."""
    if "{" not in said or braces_in(said) is not None:
        return said
    text = said
    for line in following[:60]:
        text += f"\n{line.text}"
        if braces_in(text) is not None:
            return text
    return said


def rows_by_shape(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows of each key, however its placeholders are called, in the order of the document."""
    by_shape: dict[str, list[Row]] = {}
    for row in rows:
        by_shape.setdefault(row.key.shape, []).append(row)
    yield from by_shape.values()
