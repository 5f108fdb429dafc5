"""Patterns: how keys of a family are rendered and parsed.

`user:{uid}:sessions` renders keys and parses them. It is injective and reversible: `parse(render(x)) == x` for every
value, and two different values never produce the same key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import pairwise
from keyword import iskeyword
from types import MappingProxyType
from typing import Any, NamedTuple

from keystead.errors import BadCall, BadDeclaration, BadKey, printable
from keystead.schema.overlap import Automaton, Language, choice, common_text, longest, sequence
from keystead.schema.placeholder import SHORTEST_BOUND, PlaceholderPosition
from keystead.schema.placeholder_types import TYPES, PlaceholderType, unknown_type
from keystead.stores.globs import escape


class Pattern:
    """Literal text with placeholders: `{name}`, `{name:type}`, `{name<=N}` or `{name:type<=N}`.

    The type of a placeholder (by default `text`) turns its value into text. These characters of the text are
    percent-escaped as UTF-8: `%`, `:`, `{`, `}`, and, if another placeholder follows before the next `:`, the first
    character of the literal between the two. So `{service}s:index` writes `bbs` as `bbss:index`.

    A value whose escaped text is longer than N bytes is hashed, not cut: `%~` and its SHA-256. It is parsed as
    `Hashed`, which renders the same key again.

    There may be one tail at the end, in brackets: `{key}[_{page}]` without a page is `{key}`.

    `{{` and `}}` are literal braces: `{{user:{id}}}:cart` renders `{user:7}:cart`.

    `tag` names the placeholder that is the hash tag of a cluster. With `tagged=True` its value is in braces:
    `counter:{example-a1b2c3d4}:total`.

    Raises BadDeclaration for a malformed pattern (`bad-pattern`), or one whose keys could not be parsed
    back (`ambiguous-pattern`).
    """

    text: str  # as declared
    names: tuple[str, ...]  # the placeholders in order
    types: Mapping[str, PlaceholderType]
    tag: str | None

    def __init__(self, text: str, *, tag: str | None = None) -> None:
        parts, layout = _read(text)
        self.text = text
        self.names = tuple(part.name for part in parts)
        self.types = MappingProxyType({part.name: part.type for part in parts})
        self.tag = tag
        self._layout = layout
        self._places = tuple(
            PlaceholderPosition(text, part.name, part.type, part.bound, layout.separator_behind(at))
            for at, part in enumerate(parts)
        )
        self._tagged_layout = layout if tag is None else layout.tagged(self._tag_place(tag))
        self._expressions: dict[bool, re.Pattern[str]] = {}
        self._renderers: dict[bool, Callable[..., str]] = {}

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})" if self.tag is None else f"Pattern({self.text!r}, tag={self.tag!r})"

    def render(self, values: Mapping[str, object], *, tagged: bool = False) -> str:
        """The key with these values. The tail is omitted if its value is None or missing.

        Raises BadKey if a placeholder is missing or unknown, or if a value does not fit its type.
        """
        return self.renderer(tagged=tagged)(**values)

    def renderer(self, *, tagged: bool = False) -> Callable[..., str]:
        """The same as a function, for callers that render often. Positional arguments are in the order of `names`."""
        if tagged not in self._renderers:
            self._renderers[tagged] = self._make_renderer(self._layout_of(tagged))
        return self._renderers[tagged]

    def single(self, *, tagged: bool = False) -> tuple[str, Callable[[object], str], str] | None:
        """The text before its only placeholder, its writer, and the text after it; None: there is not exactly one."""
        layout = self._layout_of(tagged)
        if len(self.names) != 1 or layout.has_tail:
            return None
        return layout.literals[0], self._places[0].write, layout.end

    @property
    def placeholders(self) -> Sequence[PlaceholderPosition]:
        """The placeholders, each at its position."""
        return self._places

    @property
    def literals(self) -> tuple[Sequence[str], str]:
        """The text before each placeholder, and the text after the last one, or before the tail if it has one."""
        return self._layout.literals, self._layout.end

    @property
    def prefix(self) -> str:
        """What all keys begin with."""
        return self._layout.literals[0] if self._layout.body else self._layout.end

    @property
    def has_tail(self) -> bool:
        """Whether the last placeholder may be left out."""
        return self._layout.has_tail

    def render_one(self, name: str, value: object) -> str:
        """The text of one placeholder value in a key. Raises BadKey as `render` does."""
        if name not in self.names:
            raise self._unknown_error(name)
        return self._places[self.names.index(name)].write(value)

    def bound_of(self, name: str) -> int | None:
        """The bytes beyond which a value of this placeholder is hashed; None: it never is."""
        return self._places[self.names.index(name)].bound

    def parse(self, key: str | bytes, *, tagged: bool = False) -> dict[str, Any] | None:
        """The values of a key, or None if `render` never produces it. The value of an omitted tail is None.

        Each key has one spelling: a key with a needless or lower-case escape does not match.
        """
        if isinstance(key, bytes):
            try:
                key = key.decode()
            except UnicodeDecodeError:
                return None
        match = self._expression(tagged).fullmatch(key)
        if match is None:
            return None
        try:
            return {
                place.name: None if written is None else place.read(written)
                for place, written in zip(self._places, match.groups(), strict=True)
            }
        except Exception:  # a type may raise anything for an unknown text
            return None

    def expression(self, *, tagged: bool = False) -> str:
        """The regular expression of its keys, with one group per placeholder; `parts` reads them."""
        return self._expression(tagged).pattern

    @cached_property
    def parts(self) -> tuple[tuple[str, Callable[[str], Any]], ...]:
        """The name and the reader of each placeholder. A reader may raise anything for an unknown text."""
        return tuple((place.name, place.read) for place in self._places)

    def glob(self, values: Mapping[str, object] | None = None, *, tagged: bool = False) -> str:
        """A Redis glob that matches every key with these values, for SCAN. Values that are not given match anything.

        It matches too much, because `*` also matches `:`; parse the matches. A tail that is given as None must be
        missing. Raises BadKey as `render` does.
        """
        given = {} if values is None else values
        self._refuse_unknown(given)
        layout, places = self._layout_of(tagged), self._places
        any_tail = layout.has_tail and self.names[-1] not in given
        if layout.has_tail and given.get(self.names[-1]) is None:
            places = places[:-1]
        pieces = [escape(place.write(given[place.name])) if place.name in given else "*" for place in places]
        ends_with_anything = not layout.end and pieces[-1:] == ["*"]
        return layout.join(pieces, escape) + ("*" if any_tail and not ends_with_anything else "")

    def overlap(self, other: Pattern) -> str | None:
        """A shortest key that both can produce, or None if there is none.

        Exact for built-in types. A custom type is assumed to produce any text of its characters.
        Whether tags are written makes no difference.
        """
        return common_text(self._automaton, other._automaton)

    def example(self) -> str:
        """An example key. With custom types `parse` may refuse it."""
        return self._layout.join([place.example() for place in self._places])

    @cached_property
    def max_bytes(self) -> int | None:
        """The UTF-8 length of the longest key, including the braces of a tag; None if there is no longest."""
        length = longest(self._language)
        return length if length is None or self.tag is None else length + len("{}")

    @cached_property
    def display(self) -> str:
        """The pattern as documents show it: without types and bounds."""
        names = [f"{{{name}}}" for name in self.names]
        if not self._layout.has_tail:
            return self._layout.join(names, _double_braces)
        body = self._layout.join(names[:-1], _double_braces)
        return f"{body}[{_double_braces(self._layout.literals[-1])}{names[-1]}]"

    @cached_property
    def _language(self) -> Language:
        pieces = [
            sequence(literal, place.language)
            for literal, place in zip(self._layout.literals, self._places, strict=True)
        ]
        body = self._layout.body
        return sequence(*pieces[:body], self._layout.end, *(choice("", tail) for tail in pieces[body:]))

    @cached_property
    def _automaton(self) -> Automaton:
        return Automaton(self._language)

    def _layout_of(self, tagged: bool) -> _Layout:
        return self._tagged_layout if tagged else self._layout

    def _expression(self, tagged: bool) -> re.Pattern[str]:
        """Finds the text of each placeholder in a key. Matches are unambiguous."""
        if tagged not in self._expressions:
            layout = self._layout_of(tagged)
            groups = [f"({place.expression})" for place in self._places]
            body = layout.join(groups[: layout.body], re.escape)
            tail = f"(?:{re.escape(layout.literals[-1])}{groups[-1]})?" if layout.has_tail else ""
            self._expressions[tagged] = re.compile(body + tail)
        return self._expressions[tagged]

    def _make_renderer(self, layout: _Layout) -> Callable[..., str]:
        """A function as short as the pattern allows: it is called for every access to a key."""
        quick = len(self.names) == 1 and not layout.has_tail
        return self._short_renderer(layout) if quick else self._long_renderer(layout)

    def _short_renderer(self, layout: _Layout) -> Callable[..., str]:
        [name], [before], [place] = self.names, layout.literals, self._places
        arranged, end, write = self.arrange, layout.end, place.write

        def render(*args: object, **kwargs: object) -> str:
            if len(args) == 1 and not kwargs:
                return before + write(args[0]) + end
            if len(kwargs) == 1 and not args and name in kwargs:
                return before + write(kwargs[name]) + end
            return before + write(*arranged(args, kwargs)) + end

        return render

    def _long_renderer(self, layout: _Layout) -> Callable[..., str]:
        arranged, names, end = self.arrange, self.names, layout.end
        count, name_set = len(names), frozenset(names)
        pieces = [(before, place.write) for before, place in zip(layout.literals, self._places, strict=True)]
        body, tail = pieces[: layout.body], pieces[layout.body :]

        def render(*args: object, **kwargs: object) -> str:
            if kwargs.keys() == name_set and not args:
                values: Sequence[object] = list(map(kwargs.__getitem__, names))
            else:
                values = args if len(args) == count and not kwargs else arranged(args, kwargs)
            key = ""
            for (before, write), value in zip(body, values):  # noqa: B905 - faster; the tail's value is left over
                key += before + write(value)
            key += end
            for before, write in tail:
                if values[-1] is not None:
                    key += before + write(values[-1])
            return key

        return render

    def arrange(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Sequence[object]:
        """The values in the order of the placeholders; None for a tail that is not given. Raises BadKey."""
        names = self.names
        if len(args) > len(names):
            raise self._call_error(f"it takes at most {len(names)}, not {len(args)}")
        self._refuse_unknown(kwargs)
        values = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name in values:
                raise self._call_error(f"{name} was given twice")
        values |= kwargs
        if self._layout.has_tail:
            values.setdefault(names[-1], None)
        for name in names:
            if name not in values:
                raise self._call_error(f"{name} is missing")
        return [values[name] for name in names]

    def _refuse_unknown(self, given: Mapping[str, object]) -> None:
        for name in given:
            if name not in self.names:
                raise self._unknown_error(name)

    def _unknown_error(self, name: str) -> BadKey:
        near = get_close_matches(name, self.names, 1)
        return self._call_error(f"there is no {printable(name)}{f' (did you mean {near[0]}?)' if near else ''}")

    def _call_error(self, what: str) -> BadKey:
        call = ", ".join(f"{name}=..." for name in self.names)
        return BadCall(f"{printable(self.text)}: {what}; write ({call})")

    def _tag_place(self, tag: str) -> int:
        if tag not in self.names:
            advice = f"write {' or '.join(self.names)}" if self.names else "leave it out"
            raise _bad(self.text, f"the tag {printable(tag)!r} is not one of its placeholders; {advice}")
        if set("".join((*self._layout.literals, self._layout.end))) & set("{}"):
            raise _bad(self.text, f"the tag {tag!r} would be a second hash tag beside the literal braces; leave it out")
        if self._layout.has_tail and tag == self.names[-1]:
            raise _bad(self.text, f"the tag {tag!r} is in the tail, which may be missing; name one before it")
        return self.names.index(tag)


class _Layout(NamedTuple):
    """The literals of a pattern: one before each placeholder, and one after the last required one.

    With a tail, the last of `literals` is the one in the brackets.
    """

    literals: tuple[str, ...]
    end: str
    has_tail: bool

    @property
    def body(self) -> int:
        """The number of required placeholders."""
        return len(self.literals) - self.has_tail

    def join(self, pieces: Sequence[str], literal: Callable[[str], str] = str) -> str:
        """Join the pieces with the literals; the tail is omitted if there is no piece for it."""
        join = [literal(before) + piece for before, piece in zip(self.literals, pieces, strict=False)]
        join.insert(self.body, literal(self.end))
        return "".join(join)

    def behind(self, place: int) -> str:
        """The literal between a placeholder and the next, or the end."""
        if place + 1 < self.body:
            return self.literals[place + 1]
        if self.has_tail and place + 1 == self.body:
            return self.end + self.literals[-1]
        return self.end if place < self.body else ""

    def separator_behind(self, place: int) -> str:
        """The first character of the literal between a placeholder and the next one in the same segment, or none."""
        behind = self.behind(place)
        return "" if place + 1 == len(self.literals) or ":" in behind else behind[0]

    def tagged(self, place: int) -> _Layout:
        """The same with braces around a placeholder."""
        literals = list(self.literals)
        literals[place] += "{"
        if place + 1 == self.body:
            return self._replace(literals=tuple(literals), end="}" + self.end)
        literals[place + 1] = "}" + literals[place + 1]
        return self._replace(literals=tuple(literals))


_BRACE = re.compile("[{}]")


def _double_braces(literal: str) -> str:
    return literal.replace("{", "{{").replace("}", "}}")


class _Part(NamedTuple):
    """A declared placeholder, the literal before it, and the position of its brace."""

    literal: str
    name: str
    type: PlaceholderType
    bound: int | None
    at: int


def _read(text: str) -> tuple[list[_Part], _Layout]:
    """Parse a declaration. Raises BadDeclaration with what to write instead."""
    if not isinstance(text, str):
        raise BadDeclaration(
            f"a pattern must be a str, such as 'user:{{uid}}', not {type(text).__name__}", "bad-pattern"
        )
    if not text:
        raise BadDeclaration("a pattern is empty; write at least one character, such as 'user:{uid}'", "bad-pattern")
    for at, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise _bad(text, f"the lone surrogate {_where(at)} has no UTF-8 encoding; leave it out")
    body = _body_length(text)
    parts, end = _read_parts(text, 0, body)
    has_tail = body < len(text)
    if has_tail:
        parts.append(_read_tail(text, body))
        if body == 0:
            raise _bad(text, f"there is nothing before the tail; write {text[1:-1]}")
    layout = _Layout(tuple(part.literal for part in parts), end, has_tail)
    _refuse_repeated_names(text, parts)
    _refuse_ambiguous(text, parts, layout)
    return parts, layout


def _body_length(text: str) -> int:
    """The start of the tail, or the length of the text if there is none."""
    opening, closing = text.find("["), text.find("]")
    if closing >= 0 and not 0 <= opening < closing:
        raise _bad(text, f"the ] {_where(closing)} closes nothing; leave it out")
    if opening < 0:
        return len(text)
    if closing < 0:
        raise _bad(text, f"the [ {_where(opening)} is not closed; write ] at the end of the tail")
    if closing != len(text) - 1:
        raise _bad(text, f"the tail that ends {_where(closing)} is not at the end; move the rest before the [")
    second = text.find("[", opening + 1)
    if second >= 0:
        raise _bad(text, f"the [ {_where(second)} is in the tail; leave it out, a pattern has at most one tail")
    return opening


def _read_tail(text: str, opening: int) -> _Part:
    parts, end = _read_parts(text, opening + 1, len(text) - 1)
    if len(parts) != 1 or end:
        raise _bad(text, f"the tail {_where(opening)} must be a literal and one placeholder, as in [_{{page}}]")
    if not parts[0].literal and text[opening - 1 : opening] != "}":
        raise _bad(text, f"the tail {_where(opening)} must start with a literal, as in [_{{page}}]")
    return parts[0]


def _read_parts(text: str, start: int, stop: int) -> tuple[list[_Part], str]:
    """Parse the placeholders in a part of a text, and the literal after the last."""
    parts: list[_Part] = []
    while True:
        literal, opening = _read_literal(text, start, stop)
        if opening < 0:
            return parts, literal
        closing = text.find("}", opening, stop)
        if closing < 0 or "{" in text[opening + 1 : closing]:
            name = re.match(r"\w*", text[opening + 1 :])
            raise _bad(text, f"the {{ {_where(opening)} is not closed; write {{{name[0] if name else ''}}}")
        parts.append(_read_placeholder(text, literal, opening, closing))
        start = closing + 1


def _read_literal(text: str, start: int, stop: int) -> tuple[str, int]:
    """The literal from here to the next placeholder, and where this begins; -1: there is none."""
    literal = ""
    while (brace := _BRACE.search(text, start, stop)) is not None:
        at = brace.start()
        literal += text[start:at]
        if text[at : at + 2] not in ("{{", "}}"):
            if brace[0] == "}":
                raise _bad(text, f"the }} {_where(at)} closes nothing; write {{ before the name")
            return literal, at
        literal, start = literal + brace[0], at + 2
    return literal + text[start:stop], -1


def _read_placeholder(text: str, literal: str, opening: int, closing: int) -> _Part:
    inside = text[opening + 1 : closing]
    head, bounded, bound = inside.partition("<")
    name, typed, type_name = head.partition(":")
    what = f"{{{printable(inside)}}} {_where(opening)}"
    if not name.isidentifier() or iskeyword(name):
        raise _bad(text, f"{what} has no valid argument name; write {{{_suggest_name(name)}}}")
    if not typed:
        type_name = "text"
    if type_name not in TYPES:
        raise _bad(text, f"{what}: {unknown_type(type_name)}")
    if not bounded:
        return _Part(literal, name, TYPES[type_name], None, opening)
    if not re.fullmatch(r"=[1-9][0-9]{0,8}", bound):
        raise _bad(text, f"{what} has no valid bound in bytes; write {{{head}<=64}}")
    if int(bound[1:]) < SHORTEST_BOUND:
        raise _bad(
            text,
            f"{what} has a bound shorter than the {SHORTEST_BOUND} bytes of a hashed value; "
            f"write {{{head}<={SHORTEST_BOUND}}} or more",
        )
    return _Part(literal, name, TYPES[type_name], int(bound[1:]), opening)


def _suggest_name(name: str) -> str:
    """A valid argument name like this one."""
    words = re.sub(r"\W+", "_", name).strip("_")
    if not words:
        return "name"
    return words if words.isidentifier() and not iskeyword(words) else f"{words}_" if iskeyword(words) else f"n{words}"


def _refuse_repeated_names(text: str, parts: Sequence[_Part]) -> None:
    seen: set[str] = set()
    for part in parts:
        if part.name in seen:
            raise _bad(text, f"{{{part.name}}} {_where(part.at)} is a duplicate; write {{{part.name}2}} or similar")
        seen.add(part.name)


def _refuse_ambiguous(text: str, parts: Sequence[_Part], layout: _Layout) -> None:
    """Two placeholders need a literal between them, which ends the first."""
    for at, (part, following) in enumerate(pairwise(parts)):
        between = layout.behind(at)
        pair = f"{{{part.name}}} and {{{following.name}}} {_where(following.at)}"
        write = f"write {{{part.name}}}:{{{following.name}}} or similar"
        if not between:
            raise _bad(text, f"there is nothing between {pair}, so keys are ambiguous; {write}", "ambiguous-pattern")
        if between[0] == "%" and ":" not in between:
            raise _bad(text, f"the % between {pair} looks like an escape; {write}", "ambiguous-pattern")


def _where(at: int) -> str:
    return f"at character {at + 1}"


def _bad(text: str, sentence: str, finding: str = "bad-pattern") -> BadDeclaration:
    return BadDeclaration(f'pattern "{printable(text)}": {sentence}', finding)
