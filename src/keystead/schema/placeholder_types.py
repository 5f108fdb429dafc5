"""Placeholder types: the allowed values and their text in a key. Built-in and custom types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address
from types import FunctionType
from typing import Any, TypeVar
from uuid import UUID

from keystead.errors import BadDeclaration, printable
from keystead.schema.overlap import ANY, ASCII, Characters, Language, choice, regex, repeat, sequence

T = TypeVar("T")

_LOWER = Characters.between("a", "z")
_DIGIT = Characters.between("0", "9")
_NOT_ZERO = Characters.between("1", "9")
ALNUM = _LOWER | _DIGIT | Characters.between("A", "Z")
_HEX = _DIGIT | Characters.between("a", "f")
_IPV6_GROUP = sequence(_HEX - Characters.of("0"), repeat(_HEX, 0, 3))


class Unfit(ValueError):
    """Why a value or a text does not fit a type, as the end of a message. It never contains the value."""


@dataclass(frozen=True, slots=True)
class PlaceholderType:
    """The values of a placeholder, and how they become text.

    For each value that `render` accepts, `parse(render(value)) == value`, and no two values have the same text.
    `render` raises Unfit for an unsuitable value of the right Python type, `parse` raises any error for a text
    that no value has. Errors of a type for texts never show the value, which may be a secret.

    `uuid` and `ip` also accept a text, for convenience; it is read back as a UUID or an address.
    """

    name: str
    takes: tuple[type, ...]
    render: Callable[[Any], str]
    parse: Callable[[str], Any]
    language: Language  # the texts that render produces, before escaping
    doc: str  # after "takes": "an int"
    example: str
    unescaped: Characters = ANY  # all other characters are percent-escaped everywhere
    is_text: bool = False  # a value is its own text


def placeholder(
    name: str,
    python_type: type[T],
    *,
    render: Callable[[T], str],
    parse: Callable[[str], T],
    characters: str | None = None,
    doc: str = "",
) -> PlaceholderType:
    """Register a custom type, to be written `{name_of_placeholder:name}`, and return it.

    `render` returns the text of a value, and `parse` the value of a text; `parse` raises for a text that no value has.
    Each time a key is created, the text is parsed back: BadKey if that does not return the same value. `characters`
    restricts the text, so that `check` can compare patterns more exactly.

    Registering the same type again is allowed, as when a module is reloaded. A different type under a name that is
    taken is BadDeclaration.
    """
    if not name.isidentifier():
        raise _bad_type(name, "is not a valid type name", "write one word of letters, digits and '_'")
    if characters is not None and not Characters.of(characters):
        raise _bad_type(name, "has no characters", "leave characters= out to allow all of them")
    declared = tuple(map(_identity, (python_type, render, parse, characters, doc)))
    if name in TYPES and _declared.get(name) != declared:
        raise _bad_type(name, "is already the name of another type", "choose another name")
    alphabet = ANY if characters is None else Characters.of(characters)
    _declared[name] = declared
    TYPES[name] = PlaceholderType(
        name=name,
        takes=(python_type,),
        render=_verify_render(render, parse, alphabet),
        parse=parse,
        language=repeat(alphabet, 1, None),
        doc=doc or python_type.__name__,
        example=name if set(name) <= set(alphabet & ASCII) else alphabet.pick(),
    )
    return TYPES[name]


def unknown_type(name: str) -> str:
    """The message for an unknown type name."""
    near = _OTHER_NAMES.get(name.lower()) or next(iter(get_close_matches(name.lower(), TYPES, 1)), None)
    advice = f"did you mean {near}?" if near else "register your own with placeholder()."
    return f"there is no type {printable(name)!r}; {advice} The types are {', '.join(TYPES)}"


def _verify_render(render: Callable[[T], str], parse: Callable[[str], T], alphabet: Characters) -> Callable[[T], str]:
    """The user's render, checked by parsing its text back."""

    def render_verified(value: T) -> str:
        try:
            text: object = render(value)
        except Exception as error:
            raise Unfit(f"its render raised {type(error).__name__}") from error
        if not isinstance(text, str):
            raise Unfit(f"its render returned {type(text).__name__}, not str")
        outside = _first_outside(alphabet, text)
        if outside:
            raise Unfit(f"its render returned a text with {outside}")
        try:
            same = parse(text) == value
        except Exception as error:
            raise Unfit(f"its parse raised {type(error).__name__} for what its render returned") from error
        if not same:
            raise Unfit("its parse does not return the value that was rendered")
        return str.__str__(text)

    return render_verified


def _identity(thing: object) -> object:
    """An identity that survives a reload of an unchanged module."""
    if isinstance(thing, type):
        return thing.__module__, thing.__qualname__
    if isinstance(thing, FunctionType):
        code, cells = thing.__code__, tuple(cell.cell_contents for cell in thing.__closure__ or ())
        return thing.__module__, thing.__qualname__, code.co_code, code.co_consts, code.co_names, cells
    return thing


def _bad_type(name: str, what: str, advice: str) -> BadDeclaration:
    return BadDeclaration(
        f"placeholder({printable(name)!r}): {printable(name)!r} {what}; {advice}", finding="bad-placeholder"
    )


def _first_outside(alphabet: Characters, text: str) -> str:
    """The class of the first character outside the alphabet; empty if there is none."""
    return next((_character_class(character) for character in text if character not in alphabet), "")


def _character_class(character: str) -> str:
    """The class of a character: enough to find it, without revealing a secret that contains it."""
    if "\ud800" <= character <= "\udfff":
        return "a lone surrogate, which has no UTF-8 encoding"
    if character.isspace():
        return "white space"
    if not character.isascii():
        return "a character outside ASCII"
    if not character.isprintable():
        return "a control character"
    if character.isalpha():
        return "an upper-case letter" if character.isupper() else "a lower-case letter"
    return "a digit" if character.isdigit() else "punctuation"


def _text_type(
    name: str,
    alphabet: Characters,
    doc: str,
    example: str,
    first: Characters | None = None,
    unescaped: Characters = ANY,
) -> PlaceholderType:
    """A type whose values are texts of an alphabet; the first character may have a smaller one."""
    language = repeat(alphabet, 1, None) if first is None else sequence(first, repeat(alphabet, 0, None))
    fits = re.compile(regex(language)).fullmatch

    def render(value: str) -> str:
        if not fits(value):
            outside = _first_outside(alphabet, value)
            raise Unfit(f"the str given has {outside}" if outside else "the str given begins with another character")
        return str.__str__(value)  # the text of an Enum is its value, not its name

    return PlaceholderType(name, (str,), render, render, language, doc, example, unescaped, is_text=True)


def _render_int(value: int) -> str:
    if isinstance(value, bool):
        raise Unfit("a bool was given; pass int(...) if you mean a number")
    try:
        return int.__repr__(value)
    except ValueError as error:
        raise Unfit("the int given has more digits than Python can write") from error


_UUID_GROUPS = (8, 4, 4, 4, 12)
_UUID_TEXT = re.compile("-".join(f"[0-9A-Fa-f]{{{size}}}" for size in _UUID_GROUPS))


def _render_uuid(value: UUID | str) -> str:
    if isinstance(value, UUID):
        return UUID.__str__(value)
    if not _UUID_TEXT.fullmatch(value):
        raise Unfit("the str given is not 32 hex digits in five groups separated by '-'")
    return value.lower()


def _uuid_language() -> Language:
    first, *others = (repeat(_HEX, size, size) for size in _UUID_GROUPS)
    return sequence(first, *(part for group in others for part in ("-", group)))


def _render_date(value: date) -> str:
    if isinstance(value, datetime):
        raise Unfit("a datetime was given; pass its .date(), in the intended time zone")
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"


def _render_month(value: date) -> str:
    text = _render_date(value)
    if value.day != 1:
        raise Unfit(f"{text} was given; pass .replace(day=1) of it")
    return text[:7]


_DIGITS = repeat(_DIGIT, 2, 2)
_YEAR = choice(
    sequence(_NOT_ZERO, _DIGIT, _DIGITS),
    sequence("0", _NOT_ZERO, _DIGITS),
    sequence("00", _NOT_ZERO, _DIGIT),
    sequence("000", _NOT_ZERO),
)
_MONTH = choice(sequence("0", _NOT_ZERO), sequence("1", Characters.of("012")))


def _date_language() -> Language:
    """Every valid date; the 29th of February only in leap years."""
    by_four = choice(
        sequence("0", Characters.of("48")),
        sequence(Characters.of("2468"), Characters.of("048")),
        sequence(Characters.of("13579"), Characters.of("26")),
    )
    to_28 = choice(sequence("0", _NOT_ZERO), sequence("1", _DIGIT), sequence("2", Characters.between("0", "8")))
    return choice(
        sequence(_YEAR, "-", _MONTH, "-", to_28),
        sequence(
            _YEAR, "-", choice(sequence("0", _NOT_ZERO - Characters.of("2")), "10", "11", "12"), "-", choice("29", "30")
        ),
        sequence(_YEAR, "-", choice("01", "03", "05", "07", "08", "10", "12"), "-31"),
        sequence(choice(sequence(_DIGITS, by_four), sequence(by_four, "00")), "-02-29"),
    )


def _render_ip(value: IPv4Address | IPv6Address | str) -> str:
    if isinstance(value, IPv4Interface | IPv6Interface):
        raise Unfit("an interface was given; pass its .ip")
    try:
        address = ip_address(value) if isinstance(value, str) else value
    except ValueError:
        # Its own message contains the text, which may be a secret that was passed by mistake.
        raise Unfit("the str given is not an IPv4 or IPv6 address") from None
    return str(address) if isinstance(address, IPv4Address) else _ipv6_text(address)


def _ipv6_text(address: IPv6Address) -> str:
    """Lower-case and compressed. Not str(): from Python 3.13 on it writes some addresses differently."""
    packed = int(address)
    groups = [f"{packed >> shift & 0xFFFF:x}" for shift in range(112, -16, -16)]
    scope = f"%{address.scope_id}" if address.scope_id else ""
    return _compress_zeros(groups) + scope


def _compress_zeros(groups: Sequence[str]) -> str:
    """Join the groups with ':', with '::' for the first longest run of two or more zeros."""
    zeros = "".join("0" if group == "0" else "." for group in groups)
    run = max(re.findall("00+", zeros), key=len, default="")
    if not run:
        return ":".join(groups)
    start = zeros.index(run)
    return ":".join(groups[:start]) + "::" + ":".join(groups[start + len(run) :])


def _ip_language() -> Language:
    octet = choice(
        _DIGIT,
        sequence(_NOT_ZERO, _DIGIT),
        sequence("1", _DIGITS),
        sequence("2", Characters.between("0", "4"), _DIGIT),
        sequence("25", Characters.between("0", "5")),
    )
    groups = (["0" if zeros >> place & 1 else "x" for place in range(8)] for zeros in range(2**8))
    scope = sequence("%", repeat(ANY - Characters.of("%/"), 1, None))
    return choice(
        sequence(octet, ".", octet, ".", octet, ".", octet),
        sequence(_ipv6_language(frozenset(map(_compress_zeros, groups))), choice("", scope)),
    )


@lru_cache
def _ipv6_language(shapes: frozenset[str]) -> Language:
    """Any of these shapes, where `x` is a non-zero group; common prefixes are merged."""
    options = [
        sequence(
            _IPV6_GROUP if head == "x" else head, _ipv6_language(frozenset(s[1:] for s in shapes if s[:1] == head))
        )
        for head in "x0:"
        if any(shape[:1] == head for shape in shapes)
    ]
    return choice(*options, *([""] if "" in shapes else []))


# Unchanged by JavaScript's encodeURIComponent.
_UNRESERVED = ALNUM | Characters.of("-_.!~*'()")

_BUILT_IN = (
    _text_type("text", ANY, "a str", "a1b2c3"),
    PlaceholderType(
        "int",
        (int,),
        _render_int,
        int,
        choice("0", sequence(choice("", "-"), _NOT_ZERO, repeat(_DIGIT, 0, None))),
        "an int",
        "42",
    ),
    _text_type("token", ALNUM | Characters.of("_-"), "a str of A-Z, a-z, 0-9, '_' and '-'", "Zk3-x_Q"),
    _text_type("alnum", ALNUM, "a str of A-Z, a-z and 0-9", "Zk3xQ"),
    _text_type("hex", _HEX, "a str of 0-9 and a-f", "9f86d0"),
    _text_type(
        "slug",
        _LOWER | _DIGIT | Characters.of("-"),
        "a str of a-z, 0-9 and, not first, '-'",
        "example-a1b2c3d4",
        first=_LOWER | _DIGIT,
    ),
    PlaceholderType(
        "uuid",
        (UUID, str),
        _render_uuid,
        UUID,
        _uuid_language(),
        "a UUID or its text",
        "3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f",
    ),
    PlaceholderType(
        "date", (date,), _render_date, date.fromisoformat, _date_language(), "a datetime.date", "2026-02-23"
    ),
    PlaceholderType(
        "month",
        (date,),
        _render_month,
        lambda text: date.fromisoformat(f"{text}-01"),
        sequence(_YEAR, "-", _MONTH),
        "a datetime.date, the first of a month",
        "2026-02",
    ),
    _text_type("uri", ANY, "a str", "https://example.com", unescaped=_UNRESERVED),
    PlaceholderType(
        "ip",
        (IPv4Address, IPv6Address, str),
        _render_ip,
        ip_address,
        _ip_language(),
        "an IPv4Address, an IPv6Address or its text",
        "203.0.113.7",
    ),
)

# All types by their names in patterns. `placeholder` adds to them.
TYPES: dict[str, PlaceholderType] = {type_.name: type_ for type_ in _BUILT_IN}
_declared: dict[str, tuple[object, ...]] = {}

# Common synonyms.
_OTHER_NAMES = {"str": "text", "string": "text", "integer": "int", "number": "int", "url": "uri", "guid": "uuid"}
