"""Forms of the segments of a key: which are words, and which are ids, and of which types."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from keystead.schema.pattern import Pattern

# Placeholder types, the narrowest first; the types that fit a text are a set of bits.
TYPE_NAMES: Final = ("int", "uuid", "date", "month", "ip", "hex", "alnum", "slug", "token", "uri", "text")
_BIT: Final = {name: 1 << number for number, name in enumerate(TYPE_NAMES)}
VARIABLE: Final = "\0"  # stands for an id in a form; keys with this character have no form

_INT: Final = re.compile(r"0|-?[1-9][0-9]{0,25}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MONTH: Final = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])")
_IP: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
_HEX: Final = re.compile(r"[0-9a-f]+")
_ALNUM: Final = re.compile(r"[A-Za-z0-9]+")
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_EMAIL: Final = re.compile(r"[^\s:{}%@/]+@[^\s:{}%@/]+\.[A-Za-z]{2,}")

# A word of a programmer: `sessions`, `rateLimit`, `pwa-session`, `v1`, `oauth2`; not an id.
_WORD: Final = re.compile(r"(?:[A-Z]{1,5}|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*)[0-9]{0,2}")
_WORDS: Final = re.compile(rf"{_WORD.pattern}(?:[-_.]+{_WORD.pattern})*")
_LONGEST_WORD: Final = 40
_SEPARATORS: Final = re.compile(r"([-_./#|@+=~]+)")
_MOST_PIECES: Final = 8
_CACHED: Final = 20_000
_JUST_SEEN: Final = 256  # most texts are asked for twice in a row
# Types that have one length.
_BY_LENGTH: Final = {36: ("uuid", _UUID), 10: ("date", _DATE), 7: ("month", _MONTH)}
_NONE: Final = ("", re.compile(r"(?!)"))
_FALLBACKS: Final = {name: Pattern(f"{{x:{name}}}") for name in ("uri", "text")}


class Form(NamedTuple):
    """A segment as text in which each id is `VARIABLE`, and these ids. A form without ids is a literal."""

    text: str
    ids: tuple[str, ...] = ()


def form_of(segment: str) -> Form:
    """The form of a segment between two colons: `session_42` is `session_` and the id 42."""
    if is_word(segment):
        return Form(segment)
    if is_id(segment):
        return Form(VARIABLE, (segment,))
    return _mixed(segment)


@lru_cache(_CACHED)
def is_word(segment: str) -> bool:
    """Whether a person chose this text, rather than a program that numbers or draws ids."""
    return (
        len(segment) <= _LONGEST_WORD
        and _WORDS.fullmatch(segment) is not None
        and not any(map(_is_digest, _SEPARATORS.split(segment)))
    )


def is_id(text: str) -> bool:
    """Whether a text is an id as a whole: a number, a UUID, a date, a digest, a random token, an address."""
    if _TOKEN.fullmatch(text) is None:
        return _IP.fullmatch(text) is not None or "%" in text or _EMAIL.fullmatch(text) is not None
    if text.isdigit() or _is_digest(text) or _INT.fullmatch(text):
        return True
    if (shape := _BY_LENGTH.get(len(text))) is not None and shape[1].fullmatch(text):
        return True
    has_digit = any(map(str.isdigit, text))
    is_mixed = has_digit and text.upper() != text and text.lower() != text
    if _ALNUM.fullmatch(text):
        return has_digit or len(text) > _LONGEST_WORD or is_mixed or not _WORD.fullmatch(text)
    return is_mixed and len(text) >= 16


def _is_digest(text: str) -> bool:
    """Hex digits; without a decimal one it takes eight letters, because `face` and `decade` are words."""
    return len(text) >= 6 and _HEX.fullmatch(text) is not None and (len(text) >= 8 or any(map(str.isdigit, text)))


def _mixed(segment: str) -> Form:
    """Words and ids with separators between them: `cart-42`, `@7`, `{guid}_readOnce`."""
    pieces = _SEPARATORS.split(segment)
    if len(pieces) > 2 * _MOST_PIECES or not _TOKEN.fullmatch("".join(pieces[::2]) or "-"):
        return Form(VARIABLE, (segment,))
    ids = tuple(piece for piece in pieces[::2] if piece and not is_word(piece))
    if not ids or not all(map(is_id, ids)):
        return Form(VARIABLE, (segment,))
    text = "".join(
        VARIABLE if at % 2 == 0 and piece and not is_word(piece) else piece for at, piece in enumerate(pieces)
    )
    if len(ids) > 1 and text.replace(VARIABLE, "").strip("-_./#|@+=~") == "":
        return Form(VARIABLE, (segment,))  # only ids: one text, such as 12-34 or a version
    return Form(text, ids)


@lru_cache(_JUST_SEEN)
def types_of(text: str) -> int:
    """The placeholder types whose keys may contain this text, as bits; 0: none, so no pattern has this key."""
    if _TOKEN.fullmatch(text) is None:
        bits = _BIT["ip"] if _IP.fullmatch(text) else 0
        return bits | sum(_BIT[name] for name, one in _FALLBACKS.items() if one.parse(text) is not None)
    bits = _TOKEN_BITS
    for bit, expression in _EXPRESSIONS:
        if expression.fullmatch(text):
            bits |= bit
    name, expression = _BY_LENGTH.get(len(text), _NONE)
    if expression.fullmatch(text) and (name != "date" or _is_date(text)):
        bits |= _BIT[name]
    return bits


_TOKEN_BITS: Final = _BIT["token"] | _BIT["uri"] | _BIT["text"]
_EXPRESSIONS: Final = tuple(
    (_BIT[name], one) for name, one in (("int", _INT), ("hex", _HEX), ("alnum", _ALNUM), ("slug", _SLUG))
)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def narrowest(bits: int) -> str | None:
    """The narrowest of these types; None: there is none."""
    return next((name for name in TYPE_NAMES if bits & _BIT[name]), None)


@lru_cache
def types_overlap(one: str, other: str) -> bool:
    """Whether a text may be of both types."""
    return Pattern(f"{{x:{one}}}").overlap(Pattern(f"{{x:{other}}}")) is not None


def allows(bits: int, name: str) -> bool:
    return bool(bits & _BIT[name])


def is_email(text: str) -> bool:
    return _EMAIL.fullmatch(text) is not None
