"""Siblings: words at one place of a key whose keys are alike are values of a placeholder, not literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

from keystead.schema.infer.evidence import Evidence
from keystead.schema.key_forms import NUMBERED, VARIABLE, narrowest
from keystead.schema.key_shapes import Node

_FEW: Final = 2  # siblings with the same fields
_SEVERAL: Final = 5  # siblings at the end of a key that only have the same kind and lifetime
_SOME: Final = 3  # languages such as `en` and `pt-BR`
_LANGUAGE: Final = re.compile("[a-z]{2}(?:[-_][A-Za-z]{2,4})?")
_MANY: Final = 12  # the same, in the middle of a key, where words name entities
_LOOSE: Final = 4  # parts of a signature without the fields
_TELLING: Final = 3  # fields that make a record recognizable


def join_siblings(node: Node[Evidence], is_root: bool = True) -> None:
    """Below this node, join words that lead to keys of the same kind, lifetime and fields."""
    for child in list(node.children.values()):
        join_siblings(child, is_root=False)
    _join_numbered(node, is_root)
    _join_into_ids(node, is_root)
    # The first segment names the program or the entity: only ids are joined there.
    words = [
        edge
        for edge in node.words
        if not _is_numbered(node.children[edge], is_root) and (not is_root or VARIABLE in edge)
    ]
    _join_groups(node, words, _signature, lambda signature: _FEW if _is_telling(signature) else _MANY)
    languages = [edge for edge in words if edge in node.children and _LANGUAGE.fullmatch(edge)]
    _join_groups(node, languages, _loose_signature, lambda _: _SOME)
    left = [edge for edge in words if edge in node.children]
    _join_groups(node, left, _loose_signature, lambda signature: _SEVERAL if _is_last(signature) else _MANY)


def _is_numbered(node: Node[Evidence], is_root: bool) -> bool:
    """Whether it has a word and several ids: what differs is the id, not the word. `user42` may be a name."""
    has_word = re.search("[A-Za-z]{3}" if is_root else "[A-Za-z]{3,}[^A-Za-z0-9]", node.form) is not None
    return has_word and any(len(variable.examples) >= _SEVERAL for variable in node.variables)


def _join_numbered(node: Node[Evidence], is_root: bool) -> None:
    """`user1`, `user2` and so on: one word with a number. `cart:user1` beside `cart:ada` is a name."""
    stems: dict[str, list[str]] = {}
    for word in node.words:
        if (numbered := NUMBERED.fullmatch(word)) is not None:
            stems.setdefault(numbered[1], []).append(word)
    for stem, words in stems.items():
        others = set(node.words) - {*words, stem + VARIABLE}
        if (is_root or not others) and (len(words) >= _SEVERAL or stem + VARIABLE in node.children):
            node.number(words, stem)


def _join_into_ids(node: Node[Evidence], is_root: bool) -> None:
    """Words beside ids with the same keys below them: `user:ada` beside `user:42`, if that widens no type."""
    for edge, child in list(node.children.items()):
        if child.form != VARIABLE or child.has_tag:
            continue
        if is_root and narrowest(child.variables[0].types) in ("uri", "text", None):
            continue  # any word would fit
        known, wanted = child.variables[0].types, _loose_signature(child)
        alike = [
            word
            for word in node.words
            if not _is_numbered(node.children[word], is_root)
            and _loose_signature(node.children[word]) <= wanted
            and narrowest(known & node.children[word].whole.types) == narrowest(known)
        ]
        node.join(alike, into=edge)


def _join_groups(
    node: Node[Evidence],
    words: Iterable[str],
    signature: Callable[[Node[Evidence]], Hashable],
    fewest: Callable[[Any], int],
) -> None:
    groups: dict[Hashable, list[str]] = {}
    for edge in words:
        groups.setdefault(signature(node.children[edge]), []).append(edge)
    for alike, edges in groups.items():
        if len(edges) >= fewest(alike):
            node.join(edges)


def _signature(node: Node[Evidence]) -> frozenset[Any]:
    return frozenset((path, leaf.signature) for path, leaf in _leaves(node, ()))


def _loose_signature(node: Node[Evidence]) -> frozenset[Any]:
    return frozenset((path, leaf.signature[:_LOOSE]) for path, leaf in _leaves(node, ()))


def _leaves(node: Node[Evidence], path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Evidence]]:
    if node.leaf is not None:
        yield path, node.leaf
    for edge, child in node.children.items():
        yield from _leaves(child, (*path, VARIABLE if child.form == VARIABLE else edge))


def _is_telling(signature: frozenset[Any]) -> bool:
    return any(len(one[-1]) >= _TELLING for _, one in signature)


def _is_last(signature: frozenset[Any]) -> bool:
    return all(not path for path, _ in signature)
