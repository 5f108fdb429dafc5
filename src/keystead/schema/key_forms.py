"""Forms of the segments of a key: which are words, and which are ids, and of which types."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
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

# A word of a programmer: `sessions`, `rateLimit`, `pwa-session`, `v1`, `oauth2`, `INDEX_NAME`; not an id.
_WORD: Final = re.compile(r"(?:[A-Z]{1,10}|[A-Z]{2,16}(?=_)|(?<=_)[A-Z]{2,16}|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*)[0-9]{0,2}")
_WORDS: Final = re.compile(rf"[-_./]*{_WORD.pattern}(?:[-_.]+{_WORD.pattern})*[-_./]*")
_LONGEST_WORD: Final = 40
_LONGEST_WORDS: Final = 120
_SEPARATORS: Final = re.compile(r"([-_./#|@+=~{}]+)")
_MOST_PIECES: Final = 16
_CACHED: Final = 20_000
# Ids that contain separators.
_WITH_SEPARATORS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    r"|[0-9]{4}-(?:0[1-9]|1[0-2])(?:-[0-3][0-9])?(?!-[0-9])"
    r"|(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\.[0-9])"
    r"|eyJ[\w-]+\.eyJ[\w-]+\.[\w-]*"
    r")(?![A-Za-z0-9])"
)
_SEPARATOR: Final = frozenset("-_./#|@+=~{}")
_PIECES: Final = re.compile(rf"{_WITH_SEPARATORS.pattern}|[-_./#|@+=~{{}}]+|[^-_./#|@+=~{{}}]+")
_BASE64: Final = re.compile(r"(?=.*(?:\+|=$))[A-Za-z0-9+/]{16,}={0,2}")
NUMBERED: Final = re.compile(r"(?!sha|utf|aes|port)([A-Za-z]{3,}?)((?:0|[1-9][0-9]*))")  # `user42`
_SURELY_NUMBERED: Final = 3  # digits; `oauth2` and `base64` are words
_SHORTEST_TOKEN: Final = 16
# Beside a random token, which may look like words.
_SURE_WORD: Final = re.compile(r"[A-Z]?[a-z]{3,}[a-zA-Z]*[0-9]{0,2}")
_DIGEST_BEFORE_WORD: Final = re.compile(rf"[0-9a-f]{{16,}}[-_]+{_SURE_WORD.pattern}\Z")  # `9f86…08_readOnce`
_TOKEN_BEHIND_WORD: Final = re.compile(rf"{_SURE_WORD.pattern}[-_]+[^-_@][^@]*\Z")  # `cus_Nff1…`
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
    """The form of a segment between two delimiters: `session_42` is `session_` and the id 42."""
    if segment.isdigit() or segment.startswith("//"):  # the rest of a URL
        return Form(VARIABLE, (segment,))
    if not segment or is_word(segment):
        return Form(segment)
    if (numbered := NUMBERED.fullmatch(segment)) is not None and len(numbered[2]) >= _SURELY_NUMBERED:
        return Form(numbered[1] + VARIABLE, (numbered[2],)) if not _is_digest(segment) else Form(VARIABLE, (segment,))
    if is_id(segment) and not (_TOKEN_BEHIND_WORD.match(segment) or _DIGEST_BEFORE_WORD.match(segment)):
        return Form(VARIABLE, (segment,))
    return _mixed(segment)


@lru_cache(_CACHED)
def is_word(segment: str) -> bool:
    """Whether a person chose this text, rather than a program that numbers or draws ids."""
    return (
        len(segment) <= _LONGEST_WORDS
        and _WORDS.fullmatch(segment) is not None
        and not any(_is_digest(piece) or len(piece) > _LONGEST_WORD for piece in _SEPARATORS.split(segment))
    )


def is_id(text: str) -> bool:
    """Whether a text is an id as a whole: a number, a UUID, a date, a digest, a random token, an address."""
    if _TOKEN.fullmatch(text) is None:
        if _IP.fullmatch(text) is not None or "%" in text or _EMAIL.fullmatch(text) is not None:
            return True
        return _BASE64.fullmatch(text) is not None and _is_mixed(text)
    if text.isdigit() or _is_digest(text) or _INT.fullmatch(text):
        return True
    if (shape := _BY_LENGTH.get(len(text))) is not None and shape[1].fullmatch(text):
        return True
    if _ALNUM.fullmatch(text):
        return any(map(str.isdigit, text)) or len(text) > _LONGEST_WORD or not _WORD.fullmatch(text)
    return _is_token(text)


def _is_digest(text: str) -> bool:
    """Hex digits; without a decimal one it takes eight letters, because `face` and `decade` are words."""
    return len(text) >= 6 and _HEX.fullmatch(text) is not None and (len(text) >= 8 or any(map(str.isdigit, text)))


def _is_token(text: str) -> bool:
    """A long random text of letters, digits, `-` and `_`."""
    return len(text) >= _SHORTEST_TOKEN and _TOKEN.fullmatch(text) is not None and _is_mixed(text)


def _is_mixed(text: str) -> bool:
    return text.upper() != text and text.lower() != text and any(map(str.isdigit, text))


def _mixed(segment: str) -> Form:
    """Words and ids with separators between them: `cart-42`, `celery-task-meta-{uuid}`, `{guid}_readOnce`."""
    pieces = _PIECES.findall(segment)
    ids = [at for at, piece in enumerate(pieces) if piece[0] not in _SEPARATOR and not is_word(piece)]
    if not ids:
        return Form(segment)  # words with separators in other places than most, such as `_kombu.binding.`
    first, last = ids[0], ids[-1]
    is_free = len(ids) > _MOST_PIECES or not all(is_id(pieces[at]) for at in ids)
    if is_free or _is_one_token(pieces[first : last + 1]):
        first, last = _with_short_words(pieces, first, len(pieces) - 1 if is_free else last)
        before, id = "".join(pieces[:first]), "".join(pieces[first : last + 1])
        if not is_free and len(before) > 1 and set(before[-2:]) <= {"-", "_"}:
            before, id = before[:-1], before[-1] + id
        return _form_of_pieces([before, id, "".join(pieces[last + 1 :])], [1])
    if len(ids) > 1 and "".join(piece for at, piece in enumerate(pieces) if at not in ids).strip("-_.") == "":
        return Form(VARIABLE, (segment,))  # only ids: one text, such as 12-34 or a version
    return _form_of_pieces(*_parsable(pieces, ids))


def _form_of_pieces(pieces: Sequence[str], ids: Collection[int]) -> Form:
    text = "".join(VARIABLE if at in ids else piece for at, piece in enumerate(pieces))
    return Form(text, tuple(pieces[at] for at in ids))


def _is_one_token(pieces: Sequence[str]) -> bool:
    """Whether these are one random token that happens to contain separators."""
    return _is_token("".join(pieces)) and not any(
        _SURE_WORD.fullmatch(one) or _WITH_SEPARATORS.fullmatch(one) for one in pieces
    )


def _with_short_words(pieces: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """Beside a random token, `ab-` and `-X` are parts of it; `sess_` is a word."""
    while first >= 2 and pieces[first - 1] in ("-", "_") and not _SURE_WORD.fullmatch(pieces[first - 2]):
        first -= 2
    while last + 2 < len(pieces) and pieces[last + 1] in ("-", "_") and not _SURE_WORD.fullmatch(pieces[last + 2]):
        last += 2
    if pieces[last + 1 :] in (["-"], ["_"]):
        last += 1
    return first, last


def _parsable(pieces: list[str], ids: list[int]) -> tuple[list[str], list[int]]:
    """Ids that contain the separator behind them, joined with the next one: no pattern could tell the two apart."""
    for number, at in enumerate(ids[:-1]):
        if pieces[at + 1][0] in pieces[at]:
            end = ids[number + 1]
            joined = [*pieces[:at], "".join(pieces[at : end + 1]), *pieces[end + 1 :]]
            moved = [one - (end - at) for one in ids[number + 2 :]]
            return _parsable(joined, [*ids[:number], at, *moved])
    return pieces, ids


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
