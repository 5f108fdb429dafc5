"""Percent-escaping in keys: of one character, and of a whole language of texts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from keystead.schema.overlap import (
    ANY,
    ASCII,
    Bounded,
    Characters,
    Choice,
    Language,
    Repeat,
    Series,
    choice,
    sequence,
)


def escape_language(language: Language, escapes: Characters) -> Language:
    """The language with these characters percent-escaped. Exact."""
    match language:
        case Characters():
            hit = language & escapes
            return choice(language - escapes, sequence("%", _codes(hit))) if hit else language
        case Series(parts):
            return Series(tuple(escape_language(part, escapes) for part in parts))
        case Choice(options):
            return Choice(tuple(escape_language(option, escapes) for option in options))
        case Repeat(part, least, most):
            return Repeat(escape_language(part, escapes), least, most)
        case Bounded(part, most_bytes):
            return Bounded(escape_language(part, escapes), most_bytes)


@lru_cache(maxsize=1024)
def percent(character: str) -> str:
    """`:` -> `%3A`: the bytes of UTF-8, upper-case."""
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _codes(characters: Characters) -> Language:
    """The text after the first `%` of the escapes of these characters."""
    beyond = characters - ASCII
    ascii_codes = _codes_of_bytes(map(ord, characters & ASCII))
    if beyond == ANY - ASCII:
        return choice(ascii_codes, _CODES_BEYOND_ASCII)
    return choice(ascii_codes, *(percent(character)[1:] for character in beyond))


def _codes_of_bytes(members: Iterable[int]) -> Language:
    """The two hex digits of any of these bytes; common first digits are merged, for a smaller automaton."""
    rows: dict[str, str] = {}
    for member in members:
        code = f"{member:02X}"
        rows[code[0]] = rows.get(code[0], "") + code[1]
    return choice(*(sequence(high, Characters.of(lows)) for high, lows in rows.items()))


def _codes_between(first: int, last: int) -> Language:
    return _codes_of_bytes(range(first, last + 1))


_MORE = sequence("%", _codes_between(0x80, 0xBF))
# All characters outside ASCII: well-formed UTF-8, so neither overlong nor a surrogate.
_CODES_BEYOND_ASCII = choice(
    sequence(_codes_between(0xC2, 0xDF), _MORE),
    sequence("E0%", _codes_between(0xA0, 0xBF), _MORE),
    sequence(choice(_codes_between(0xE1, 0xEC), "EE", "EF"), _MORE, _MORE),
    sequence("ED%", _codes_between(0x80, 0x9F), _MORE),
    sequence("F0%", _codes_between(0x90, 0xBF), _MORE, _MORE),
    sequence(_codes_between(0xF1, 0xF3), _MORE, _MORE, _MORE),
    sequence("F4%", _codes_between(0x80, 0x8F), _MORE, _MORE),
)
