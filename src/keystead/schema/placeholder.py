"""Placeholders of a pattern: how values are written to a key and read back.

A type turns a value into text and back. The text is then percent-escaped where its position in the pattern requires
it, so that every key parses back to its values.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from urllib.parse import unquote_to_bytes
from uuid import UUID

from keystead.errors import BadKey, printable
from keystead.schema.key_escapes import escape_language, percent
from keystead.schema.overlap import ANY, Bounded, Characters, Language, Repeat, choice, longest, regex, repeat, sequence
from keystead.schema.placeholder_types import ALNUM, TYPES, PlaceholderType, Unfit

SHORTEST_BOUND = 45  # bytes of a hashed value: the mark and 43 characters

# No escape produces this, so a hashed value is never confused with a plain one.
_HASH_MARK = "%~"
# 256 bits are 42 characters of 6 bits, and one with its last two bits zero.
_LAST_OF_DIGEST = "AEIMQUYcgkosw048"
_DIGEST = rf"[A-Za-z0-9_-]{{42}}[{_LAST_OF_DIGEST}]"
_DIGESTS = sequence(repeat(ALNUM | Characters.of("_-"), 42, 42), Characters.of(_LAST_OF_DIGEST))

_PLAIN = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_QUICK_INT = 10**18  # beyond it, Python may refuse to write out all digits
# The type to write when a value of this Python type is passed for a text.
_TYPE_OF: dict[type, str] = {int: "int", UUID: "uuid", date: "date", IPv4Address: "ip", IPv6Address: "ip"}


@dataclass(frozen=True, slots=True)
class Hashed:
    """A value that a key contains only as a digest, because its text is longer than the bound of its placeholder.

    `digest` is the SHA-256 of the text, in base64url without padding. It can be rendered in place of the value.
    """

    digest: str


class PlaceholderPosition:
    """One placeholder at its position in a pattern: its type, its bound, and what must be escaped there.

    `separator` is the first character of the literal between it and the next placeholder, if both are in the same
    segment, and otherwise empty. A value never contains a raw `:` or its separator; so it ends at the next of
    these, or where the literal after the last placeholder of a segment begins.

    marks  the characters that are always escaped here
    """

    def __init__(self, pattern: str, name: str, type_: PlaceholderType, bound: int | None, separator: str) -> None:
        self.name = name
        self.type = type_
        self._pattern = pattern
        self.marks = "%:{}" + separator  # the first of these occurs in the escapes of the others
        self._escapes = (ANY - type_.unescaped) | Characters.of(self.marks)
        self._escape = re.compile(self._escapes.regex())
        self.bound = bound if bound is not None and self._can_pass(bound) else None
        self.write: Callable[[object], str] = self._writer()
        self.read: Callable[[str], Any] = self._reader()

    def _reader(self) -> Callable[[str], Any]:
        """The function that reads the text found by `expression`. It may raise anything for an unknown text.

        Most texts are their own values and need no decoding: the expression found no escaped character.
        """
        careful, language = self._read, self.type.language
        if not self.type.is_text or self.bound is not None or not isinstance(language, Repeat):
            return careful
        alphabet = language.part
        if not isinstance(alphabet, Characters) or language.least > 1 or language.most is not None:
            return careful
        if (ANY - self._escapes) - alphabet:
            return careful

        def read(written: str) -> Any:
            return written if "%" not in written and written.isascii() else careful(written)

        return read

    def _read(self, written: str) -> Any:
        if written.startswith(_HASH_MARK):
            hashed = Hashed(written.removeprefix(_HASH_MARK))
            self.write(hashed)
            return hashed
        value = self.type.parse(unquote_to_bytes(written).decode() if "%" in written else written)
        if self.write(value) != written:
            raise Unfit("the text is not in canonical form")
        return value

    @property
    def expression(self) -> str:
        """The regular expression that finds the text in a key; `read` validates it."""
        raw, code = self._escapes.regex_of_others(), "%[0-9A-F][0-9A-F]"
        units = f"(?:{raw}|{code}){raw}*(?:{code}{raw}*)*"
        return units if self.bound is None else f"(?:{_HASH_MARK}{_DIGEST}|{units})"

    @cached_property
    def language(self) -> Language:
        """What `write` makes."""
        written = escape_language(self.type.language, self._escapes)
        if self.bound is None:
            return written
        return choice(Bounded(written, self.bound), sequence(_HASH_MARK, _DIGESTS))

    def example(self) -> str:
        return self._escape.sub(_escape_match, self.type.example)

    def _can_pass(self, bound: int) -> bool:
        """Whether a value can be longer than the bound; otherwise nothing is ever hashed."""
        if longest(self.type.language) is None:
            return True
        most = longest(escape_language(self.type.language, self._escapes))
        return most is None or most > bound

    def _writer(self) -> Callable[[object], str]:
        """The function that turns a value into its text in a key, or raises BadKey; fast in the common case."""
        if self.type.is_text:
            return self._text_writer()
        if self.type is TYPES["int"] and self.bound is None and not self._escapes & Characters.of("-0123456789"):
            return self._int_writer()
        return self._write

    def _text_writer(self) -> Callable[[object], str]:
        has_special, careful, bound = self._special_finder(self._escapes), self._write, self.bound
        has_more_special = self._special_finder(self._escapes - Characters.of(self.marks))
        marks = [(mark, percent(mark)) for mark in dict.fromkeys(self.marks)]
        # They can be escaped one after the other if only the first of them occurs in an escape code.
        in_turn = bound is None and not any(mark in code for mark, _ in marks[1:] for _, code in marks)

        def write(value: object) -> str:
            if type(value) is not str or not value:
                return careful(value)
            if not has_special(value):
                return value
            if not in_turn or has_more_special(value):
                return careful(value)
            for mark, code in marks:  # as in most addresses of IPv6
                value = value.replace(mark, code)
            return value

        if bound is None:
            return write if has_special(_PLAIN) else self._plain_first(write)
        surely_short = bound // 4  # characters, each of at most four bytes

        def write_bounded(value: object) -> str:
            return write(value) if type(value) is str and len(value) <= surely_short else careful(value)

        return write_bounded

    def _plain_first(self, write: Callable[[object], str]) -> Callable[[object], str]:
        """Most ids are letters and digits, which Python detects faster than an expression does."""

        def write_plain(value: object) -> str:
            return value if type(value) is str and value.isalnum() and value.isascii() else write(value)

        return write_plain

    def _special_finder(self, escapes: Characters) -> Callable[[str], object]:
        """Finds a character of a non-empty text that does not fit or must be escaped. One fast check."""
        match self.type.language:
            case Repeat(Characters() as alphabet, _, None):
                return re.compile((alphabet - escapes).regex_of_others()).search
            case language:
                return re.compile(rf"(?!{regex(language, without=escapes)}\Z)").match

    def _int_writer(self) -> Callable[[object], str]:
        careful = self._write

        def write(value: object) -> str:
            if type(value) is int and -_QUICK_INT < value < _QUICK_INT:
                return str(value)
            return careful(value)

        return write

    def _write(self, value: object) -> str:
        if isinstance(value, Hashed):
            return self._write_digest(value)
        text = self._render_text(value)
        written = self._escape.sub(_escape_match, text)
        if self.bound is not None and len(written.encode()) > self.bound:
            return _HASH_MARK + urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")
        return written

    def _write_digest(self, hashed: Hashed) -> str:
        if self.bound is None:
            raise self._refusal("is never hashed here; pass the value itself")
        if not re.fullmatch(_DIGEST, hashed.digest):
            raise self._refusal("is Hashed with an invalid digest; a digest has 43 characters, SHA-256 in base64url")
        return _HASH_MARK + hashed.digest

    def _render_text(self, value: object) -> str:
        if not isinstance(value, self.type.takes):
            raise self._refusal(f"takes {self.type.doc}, not {self._describe_value(value)}{self._advice(value)}")
        if isinstance(value, str) and not value:
            raise self._refusal("is empty; a key needs at least one character there")
        try:
            text = self.type.render(value)
        except Unfit as unfit:
            raise self._refusal(f"takes {self.type.doc}; {unfit}") from unfit.__cause__
        if not text:
            raise self._refusal(f"is empty: the type {self.type.name} returned an empty text")
        return text

    def _refusal(self, reason: str) -> BadKey:
        return BadKey(f"{printable(self._pattern)}: {self.name} {reason}")

    def _describe_value(self, value: object) -> str:
        """The type of a value, and the value itself if its type cannot hold secrets."""
        if value is None:
            return "None"
        name = type(value).__name__
        if str in self.type.takes or not isinstance(value, int | float | date | UUID | IPv4Address | IPv6Address):
            return name
        if isinstance(value, int) and abs(value) >= _QUICK_INT:
            return name
        text = printable(str(value))
        return f"the {name} {text if len(text) <= 60 else text[:59] + '…'}"

    def _advice(self, value: object) -> str:
        if isinstance(value, bytes):
            return f"; pass {self.name}.decode()"
        if self.type.is_text and not isinstance(value, bool | datetime):
            for python_type, name in _TYPE_OF.items():
                if isinstance(value, python_type):
                    return f"; write {{{self.name}:{name}}} in the pattern, or pass str({self.name})"
        if isinstance(value, str) and int in self.type.takes:
            return f"; pass int({self.name})"
        return ""


def _escape_match(match: re.Match[str]) -> str:
    return percent(match[0])
