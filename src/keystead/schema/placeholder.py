"""Placeholders: what may stand between the braces of a pattern, and how a value stands in a key.

A type turns a value into text and back. The text is then percent-escaped exactly where its place in the pattern
needs it, so that a key can be taken apart again whatever the value was.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from functools import cached_property, lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address
from types import FunctionType
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes
from uuid import UUID

from keystead.errors import BadDeclaration, BadKey, shown
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
    longest,
    regex,
    repeat,
    sequence,
)

T = TypeVar("T")

SHORTEST_BOUND = 45  # bytes of a hashed value: the mark and 43 characters


class Unfit(ValueError):
    """Why a value or a text does not fit a type, to stand behind a semicolon. The value itself is not in it."""


@dataclass(frozen=True, slots=True)
class PlaceholderType:
    """What a placeholder takes, and how it becomes text.

    For each value that `render` takes, `parse(render(value)) == value`, and no two values have the same text.
    `render` raises Unfit for a value of the right Python type that it cannot take, `parse` any error for a text
    that no value has. Errors of a type that takes text show no value, for it may be a secret.

    `uuid` and `ip` take a text, too, for convenience; it is read back as a UUID or an address.
    """

    name: str
    takes: tuple[type, ...]
    render: Callable[[Any], str]
    parse: Callable[[str], Any]
    language: Language  # the texts that render makes, before anything is escaped
    doc: str  # behind "takes": "an int"
    example: str
    unescaped: Characters = ANY  # what else there is, is percent-escaped wherever it stands
    is_text: bool = False  # a value is its own text


@dataclass(frozen=True, slots=True)
class Hashed:
    """A value of which a key holds only the digest, because its text is longer than the bound of its placeholder.

    `digest` is the SHA-256 of the text, in base64url without padding. When a key is rendered, it stands for the value.
    """

    digest: str


def placeholder(
    name: str,
    python_type: type[T],
    *,
    render: Callable[[T], str],
    parse: Callable[[str], T],
    characters: str | None = None,
    doc: str = "",
) -> PlaceholderType:
    """Register a type of your own, to be written `{name_of_placeholder:name}`, and return it.

    `render` gives the text of a value, and `parse` the value of a text; `parse` raises for a text that no value has.
    Each time a key is made, the text is parsed back: BadKey if that does not give the value again. With `characters`
    the text may have no others, and `check` can tell more exactly which patterns never meet.

    Registering the same thing again is fine, as when a module is reloaded. Another one under a name that is taken
    is BadDeclaration.
    """
    if not name.isidentifier():
        raise _bad_type(name, "is no name of a type", "write one word of letters, digits and '_'")
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
        render=_verified(render, parse, alphabet),
        parse=parse,
        language=repeat(alphabet, 1, None),
        doc=doc or python_type.__name__,
        example=name if set(name) <= set(alphabet & ASCII) else alphabet.pick(),
    )
    return TYPES[name]


def unknown_type(name: str) -> str:
    """What to say about the name of a type that there is none of."""
    near = _OTHER_NAMES.get(name.lower()) or next(iter(get_close_matches(name.lower(), TYPES, 1)), None)
    advice = f"did you mean {near}?" if near else "register your own with placeholder()."
    return f"there is no type {shown(name)!r}; {advice} The types are {', '.join(TYPES)}"


class PlaceholderPosition:
    """One placeholder where it stands in a pattern: its type, its bound, and what must be escaped there.

    `separator` is the first character of the literal between it and the next placeholder, if both are in the same
    segment, and otherwise empty. A value never has a raw `:`, and never its separator; so each value ends where the
    next of these stands, or where the literal behind the last of a segment begins.
    """

    def __init__(self, pattern: str, name: str, type_: PlaceholderType, bound: int | None, separator: str) -> None:
        self.name = name
        self.type = type_
        self._pattern = pattern
        self._marks = "%:{}" + separator  # the first of these stands in what the others become
        self._escapes = (ANY - type_.unescaped) | Characters.of(self._marks)
        self._escape = re.compile(self._escapes.regex())
        self.bound = bound if bound is not None and self._can_pass(bound) else None
        self.write: Callable[[object], str] = self._writer()
        self.read: Callable[[str], Any] = self._reader()

    def _reader(self) -> Callable[[str], Any]:
        """The function that gives the value of what `expression` finds in a key. Any error if `write` never makes it.

        Most texts are their own values, and need no second look: the expression found no character that is escaped.
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
            raise Unfit("the text is not written as it would be here")
        return value

    @property
    def expression(self) -> str:
        """The regular expression that finds what stands in a key; `read` says whether it is good."""
        raw, code = self._escapes.regex_of_others(), "%[0-9A-F][0-9A-F]"
        units = f"(?:{raw}|{code}){raw}*(?:{code}{raw}*)*"
        return units if self.bound is None else f"(?:{_HASH_MARK}{_DIGEST}|{units})"

    @cached_property
    def language(self) -> Language:
        """What `write` makes."""
        written = escaped(self.type.language, self._escapes)
        if self.bound is None:
            return written
        return choice(Bounded(written, self.bound), sequence(_HASH_MARK, _DIGESTS))

    def example(self) -> str:
        return self._escape.sub(_percent, self.type.example)

    def _can_pass(self, bound: int) -> bool:
        """Whether a value can be longer than the bound; one that none can pass never hashes anything."""
        if longest(self.type.language) is None:
            return True
        most = longest(escaped(self.type.language, self._escapes))
        return most is None or most > bound

    def _writer(self) -> Callable[[object], str]:
        """The function that turns a value into what stands in a key, or raises BadKey; quick in the plain case."""
        if self.type.is_text:
            return self._text_writer()
        if self.type is TYPES["int"] and self.bound is None and not self._escapes & Characters.of("-0123456789"):
            return self._int_writer()
        return self._write

    def _text_writer(self) -> Callable[[object], str]:
        is_odd, careful, bound = self._oddness(self._escapes), self._write, self.bound
        is_odder = self._oddness(self._escapes - Characters.of(self._marks))
        marks = [(mark, percent(mark)) for mark in dict.fromkeys(self._marks)]
        # One after the other can be escaped where none but the first of them stands in a code.
        in_turn = bound is None and not any(mark in code for mark, _ in marks[1:] for _, code in marks)

        def write(value: object) -> str:
            if type(value) is not str or not value:
                return careful(value)
            if not is_odd(value):
                return value
            if not in_turn or is_odder(value):
                return careful(value)
            for mark, code in marks:  # as in most addresses of IPv6
                value = value.replace(mark, code)
            return value

        if bound is None:
            return write if is_odd(_PLAIN) else self._plain_first(write)
        surely_short = bound // 4  # characters, each of at most four bytes

        def write_bounded(value: object) -> str:
            return write(value) if type(value) is str and len(value) <= surely_short else careful(value)

        return write_bounded

    def _plain_first(self, write: Callable[[object], str]) -> Callable[[object], str]:
        """Most ids are letters and digits, which Python tells quicker than an expression does."""

        def write_plain(value: object) -> str:
            return value if type(value) is str and value.isalnum() and value.isascii() else write(value)

        return write_plain

    def _oddness(self, escapes: Characters) -> Callable[[str], object]:
        """Finds something in a text that is not empty if it does not fit or is one of these. One quick look."""
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
        text = self._text(value)
        written = self._escape.sub(_percent, text)
        if self.bound is not None and len(written.encode()) > self.bound:
            return _HASH_MARK + urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")
        return written

    def _write_digest(self, hashed: Hashed) -> str:
        if self.bound is None:
            raise self._refusal("is never hashed here; pass the value itself")
        if not re.fullmatch(_DIGEST, hashed.digest):
            raise self._refusal("is Hashed with what is no digest: that is 43 characters, SHA-256 in base64url")
        return _HASH_MARK + hashed.digest

    def _text(self, value: object) -> str:
        if not isinstance(value, self.type.takes):
            raise self._refusal(f"takes {self.type.doc}, not {self._given(value)}{self._advice(value)}")
        if isinstance(value, str) and not value:
            raise self._refusal("is empty; a key needs at least one character there")
        try:
            text = self.type.render(value)
        except Unfit as unfit:
            raise self._refusal(f"takes {self.type.doc}; {unfit}") from unfit.__cause__
        if not text:
            raise self._refusal(f"is empty: the type {self.type.name} gave no text for it")
        return text

    def _refusal(self, reason: str) -> BadKey:
        return BadKey(f"{shown(self._pattern)}: {self.name} {reason}")

    def _given(self, value: object) -> str:
        """The type of a value, and the value itself if it is of a kind that holds no secrets."""
        if value is None:
            return "None"
        name = type(value).__name__
        if str in self.type.takes or not isinstance(value, int | float | date | UUID | IPv4Address | IPv6Address):
            return name
        if isinstance(value, int) and abs(value) >= _QUICK_INT:
            return name
        text = shown(str(value))
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


def escaped(language: Language, escapes: Characters) -> Language:
    """What becomes of a language when these characters are percent-escaped in it. Exact."""
    match language:
        case Characters():
            hit = language & escapes
            return choice(language - escapes, sequence("%", _codes(hit))) if hit else language
        case Series(parts):
            return Series(tuple(escaped(part, escapes) for part in parts))
        case Choice(options):
            return Choice(tuple(escaped(option, escapes) for option in options))
        case Repeat(part, least, most):
            return Repeat(escaped(part, escapes), least, most)
        case Bounded(part, most_bytes):
            return Bounded(escaped(part, escapes), most_bytes)


@lru_cache(maxsize=1024)
def percent(character: str) -> str:
    """`:` -> `%3A`: the bytes of UTF-8, upper-case."""
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _percent(match: re.Match[str]) -> str:
    return percent(match[0])


def _codes(characters: Characters) -> Language:
    """What stands behind the first `%` of these characters when they are escaped."""
    beyond = characters - ASCII
    ascii_codes = _codes_of_bytes(map(ord, characters & ASCII))
    if beyond == ANY - ASCII:
        return choice(ascii_codes, _CODES_BEYOND_ASCII)
    return choice(ascii_codes, *(percent(character)[1:] for character in beyond))


def _codes_of_bytes(members: Iterable[int]) -> Language:
    """The two digits of any of these bytes; what several begin with is written once, so that there is less to walk."""
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

_LOWER = Characters.between("a", "z")
_DIGIT = Characters.between("0", "9")
_NOT_ZERO = Characters.between("1", "9")
_ALNUM = _LOWER | _DIGIT | Characters.between("A", "Z")
_HEX = _DIGIT | Characters.between("a", "f")
_IPV6_GROUP = sequence(_HEX - Characters.of("0"), repeat(_HEX, 0, 3))

# No escape makes this, so no value that is written as it is looks like one that is hashed.
_HASH_MARK = "%~"
# 256 bits are 42 characters of 6 bits, and one whose last two bits are zero.
_LAST_OF_DIGEST = "AEIMQUYcgkosw048"
_DIGEST = rf"[A-Za-z0-9_-]{{42}}[{_LAST_OF_DIGEST}]"
_DIGESTS = sequence(repeat(_ALNUM | Characters.of("_-"), 42, 42), Characters.of(_LAST_OF_DIGEST))

_PLAIN = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_QUICK_INT = 10**18  # beyond it, the digits are counted: Python refuses to write out an int of very many


def _verified(render: Callable[[T], str], parse: Callable[[str], T], alphabet: Characters) -> Callable[[T], str]:
    """The user's render, which is believed only after its text was parsed back."""

    def verified(value: T) -> str:
        try:
            text: object = render(value)
        except Exception as error:
            raise Unfit(f"its render raised {type(error).__name__}") from error
        if not isinstance(text, str):
            raise Unfit(f"its render returned {type(text).__name__}, not str")
        outside = _outside(alphabet, text)
        if outside:
            raise Unfit(f"its render returned a text with {outside}")
        try:
            same = parse(text) == value
        except Exception as error:
            raise Unfit(f"its parse raised {type(error).__name__} for what its render returned") from error
        if not same:
            raise Unfit("its parse does not give back the value that its render was given")
        return str.__str__(text)

    return verified


def _identity(thing: object) -> object:
    """What is the same for a thing and for what replaces it when its module is reloaded unchanged."""
    if isinstance(thing, type):
        return thing.__module__, thing.__qualname__
    if isinstance(thing, FunctionType):
        code, cells = thing.__code__, tuple(cell.cell_contents for cell in thing.__closure__ or ())
        return thing.__module__, thing.__qualname__, code.co_code, code.co_consts, code.co_names, cells
    return thing


def _bad_type(name: str, what: str, advice: str) -> BadDeclaration:
    return BadDeclaration(f"placeholder({shown(name)!r}): {shown(name)!r} {what}; {advice}", finding="bad-placeholder")


def _outside(alphabet: Characters, text: str) -> str:
    """The class of the first character that is not in the alphabet; empty if all are."""
    return next((_character_class(character) for character in text if character not in alphabet), "")


def _character_class(character: str) -> str:
    """What kind of character it is, which says enough to find it and nothing of a secret that it is in."""
    if "\ud800" <= character <= "\udfff":
        return "a lone surrogate, which has no UTF-8"
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
    """A type whose values are texts of an alphabet, of which the first character may be of a smaller one."""
    language = repeat(alphabet, 1, None) if first is None else sequence(first, repeat(alphabet, 0, None))
    fits = re.compile(regex(language)).fullmatch

    def render(value: str) -> str:
        if not fits(value):
            outside = _outside(alphabet, value)
            raise Unfit(f"the str given has {outside}" if outside else "the str given begins with another character")
        return str.__str__(value)  # an Enum's own text, too, is its value and not its name

    return PlaceholderType(name, (str,), render, render, language, doc, example, unescaped, is_text=True)


def _render_int(value: int) -> str:
    if isinstance(value, bool):
        raise Unfit("a bool was given; pass int() of it if that is meant")
    try:
        return int.__repr__(value)
    except ValueError as error:
        raise Unfit("the int given has more digits than Python writes out") from error


_UUID_GROUPS = (8, 4, 4, 4, 12)
_UUID_TEXT = re.compile("-".join(f"[0-9A-Fa-f]{{{size}}}" for size in _UUID_GROUPS))


def _render_uuid(value: UUID | str) -> str:
    if isinstance(value, UUID):
        return UUID.__str__(value)
    if not _UUID_TEXT.fullmatch(value):
        raise Unfit("the str given is not 32 hex digits in five groups with '-' between them")
    return value.lower()


def _uuid_language() -> Language:
    first, *others = (repeat(_HEX, size, size) for size in _UUID_GROUPS)
    return sequence(first, *(part for group in others for part in ("-", group)))


def _render_date(value: date) -> str:
    if isinstance(value, datetime):
        raise Unfit("a datetime was given; pass its .date(), in the time zone that you mean")
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
    """Every day that there is, the 29th of February only in leap years."""
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
        # Its own words show the text, which may be a secret that was passed by mistake.
        raise Unfit("the str given is no address of IPv4 or IPv6") from None
    return str(address) if isinstance(address, IPv4Address) else _ipv6_text(address)


def _ipv6_text(address: IPv6Address) -> str:
    """Lower-case and compressed. Not str(): from Python 3.13 on that writes some addresses in another way."""
    packed = int(address)
    groups = [f"{packed >> shift & 0xFFFF:x}" for shift in range(112, -16, -16)]
    scope = f"%{address.scope_id}" if address.scope_id else ""
    return _compressed(groups) + scope


def _compressed(groups: Sequence[str]) -> str:
    """The groups with ':' between them, and '::' for the longest run of two or more zeros, of equals the first."""
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
        sequence(_ipv6_language(frozenset(map(_compressed, groups))), choice("", scope)),
    )


@lru_cache
def _ipv6_language(shapes: frozenset[str]) -> Language:
    """Any of these shapes, where `x` is a group that is not zero; what several begin with is written once."""
    options = [
        sequence(
            _IPV6_GROUP if head == "x" else head, _ipv6_language(frozenset(s[1:] for s in shapes if s[:1] == head))
        )
        for head in "x0:"
        if any(shape[:1] == head for shape in shapes)
    ]
    return choice(*options, *([""] if "" in shapes else []))


# As encodeURIComponent of JavaScript leaves them.
_UNRESERVED = _ALNUM | Characters.of("-_.!~*'()")

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
    _text_type("token", _ALNUM | Characters.of("_-"), "a str of A-Z, a-z, 0-9, '_' and '-'", "Zk3-x_Q"),
    _text_type("alnum", _ALNUM, "a str of A-Z, a-z and 0-9", "Zk3xQ"),
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

# All types by the name that a pattern gives them. `placeholder` adds to them.
TYPES: dict[str, PlaceholderType] = {type_.name: type_ for type_ in _BUILT_IN}
_declared: dict[str, tuple[object, ...]] = {}

# What people write for them at first.
_OTHER_NAMES = {"str": "text", "string": "text", "integer": "int", "number": "int", "url": "uri", "guid": "uuid"}
# The type to write when a value of this Python type is passed for a text.
_TYPE_OF: dict[type, str] = {int: "int", UUID: "uuid", date: "date", IPv4Address: "ip", IPv6Address: "ip"}
