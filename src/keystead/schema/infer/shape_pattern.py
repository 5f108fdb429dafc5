"""The pattern of a shape: literals, placeholders with names and types, hash tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import takewhile
from operator import and_
from typing import Any, Final, NamedTuple, TypeAlias

from keystead.schema.infer.draft import identifier
from keystead.schema.key_forms import VARIABLE, allows, is_email, is_word, narrowest, types_of
from keystead.schema.key_shapes import Node, Shape, Variable
from keystead.schema.pattern import Pattern

_FEW: Final = 20  # ids that prove what all of them have in common
_LONG: Final = 16
_TYPED: Final = ("int", "uuid", "date", "month", "ip", "hex")


class NotDrafted(Exception):
    """Why no family is drafted for a shape."""


class _Place(NamedTuple):
    """A placeholder."""

    variable: Variable
    shown: int  # characters of its texts that are in the literal before it
    is_tag: bool


_Piece: TypeAlias = "str | _Place"


def pattern_of(shape: Shape[Any], has_slots: bool) -> tuple[Pattern, list[Variable]]:
    """The pattern of the keys of a shape, and what was seen at each of its placeholders.

    Raises BadDeclaration or NotDrafted if there is none.
    """
    pieces = list(_pieces(shape))
    tag = _hash_tag(pieces) if has_slots else None
    names: dict[str, None] = {}
    tag_name, text, before = None, "", ""
    for piece in pieces:
        if isinstance(piece, str):
            text += _literal(piece)
            before = piece if re.search("[A-Za-z]", piece) else before
            continue
        declared = _declared(piece, before, names)
        if piece is tag:
            tag_name = list(names)[-1]
        text += f"{{{{{declared}}}}}" if piece.is_tag and piece is not tag else declared
    return Pattern(text, tag=tag_name), [piece.variable for piece in pieces if isinstance(piece, _Place)]


def literal_words(pattern: str) -> list[str]:
    """The words of the literals of a pattern."""
    return re.findall(r"[A-Za-z0-9]*[A-Za-z][A-Za-z0-9]*", re.sub(r"\{[^{}]+\}", " ", pattern.replace("{{", " ")))


def _hash_tag(pieces: Sequence[_Piece]) -> _Place | None:
    """The only placeholder in braces. A key with several pairs of braces gets literal ones instead."""
    tags = [one for one in pieces if isinstance(one, _Place) and one.is_tag]
    has_braces = any(set(one) & set("{}") for one in pieces if isinstance(one, str))
    return tags[0] if len(tags) == 1 and not has_braces else None


def _literal(text: str) -> str:
    if set(text) & set("[]"):
        raise NotDrafted("a pattern cannot contain brackets")
    return text.replace("{", "{{").replace("}", "}}")


def _pieces(shape: Shape[Any]) -> Iterator[_Piece]:
    """The literals and placeholders of a shape. What all ids at one place begin with is a literal."""
    for at, node in enumerate(shape.path):
        if at:
            yield shape.delimiter
        first, *texts = node.form.split(VARIABLE)
        yield first
        may_be_constant = any(not one.form for one in shape.path[max(at - 1, 0) : at + 2])
        for variable, text in zip(node.variables, texts, strict=True):
            yield from _pieces_of(node, variable, may_be_constant)
            yield text


def _pieces_of(node: Node[Any], variable: Variable, may_be_constant: bool) -> Iterator[_Piece]:
    """A constant is likely of letters, in braces, and beside an empty segment (the version in `:1:…`)."""
    begin = variable.prefix
    is_constant = variable.count >= _FEW and variable.shortest == variable.longest == len(begin)
    if is_constant and (may_be_constant or node.has_tag or begin.isalpha()):
        yield f"{{{begin}}}" if node.has_tag else begin
        return
    shown = 0 if node.has_tag else _shared(variable)
    yield begin[:shown]
    yield _Place(variable, shown, node.has_tag)


def _shared(variable: Variable) -> int:
    """How many characters of the ids at one place are a literal: the words that all of many begin with."""
    if len(variable.examples) < _FEW or narrowest(variable.types) in _TYPED:
        return 0
    *words, last = re.split(r"(?<=[-_./#|@+=~])", variable.prefix)
    known = "".join(takewhile(lambda word: is_word(word) and not set(word) & set("[]%"), words))
    # `person1@…` begins with a part of an address.
    is_word_of_all = known == "".join(words) and re.fullmatch("[A-Za-z]{5,}", last)
    if is_word_of_all and not all(is_email(one[len(known) :]) for one in variable.examples):
        known += last
    return len(known) if re.search("[A-Za-z]{2}", known) else 0


def _declared(place: _Place, before: str, names: dict[str, None]) -> str:
    """`{user_id:int}`. Adds its name to `names`."""
    type_ = _type_of(place)
    name = _name_of(place.variable, type_, before)
    number, free = 2, name
    while free in names:
        free, number = f"{name}{number}", number + 1
    names[free] = None
    return f"{{{free}}}" if type_ == "text" else f"{{{free}:{type_}}}"


def _type_of(place: _Place) -> str:
    """The narrowest type that fits all ids, or a wider one where few ids prove little."""
    variable = place.variable
    type_ = narrowest(variable.types)
    if place.shown:
        rest = reduce(and_, (types_of(one[place.shown :]) for one in variable.examples))
        type_ = next((one for one in ("int", "uuid") if allows(rest, one)), type_)
    if type_ is None:
        raise NotDrafted("their ids contain characters that Keystead escapes")
    if type_ == "hex" and variable.shortest < 6:
        type_ = "alnum" if allows(variable.types, "alnum") else "token"
    if type_ == "uri" and not any("%" in one for one in variable.examples):
        return "text"
    if type_ in ("alnum", "slug") and variable.shortest >= _LONG and len(variable.examples) < _FEW:
        return "token"
    return type_


def _name_of(variable: Variable, type_: str, before: str) -> str:
    if type_ in ("date", "month", "ip"):
        return type_
    if variable.examples and all(map(is_email, variable.examples)):
        return "email"
    if type_ == "uri" or all(one.startswith("//") for one in variable.examples):
        return "url"
    words = re.split(r"[^A-Za-z0-9]+", before.strip("-_./"))
    if len(words) > 1 and words[-1] == "id":  # `by-user-id`
        words.pop()
    word = identifier(words[-1] or "id", frozenset())
    word = word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word
    return "id" if word in ("keys", "id") else f"{word}_id"
