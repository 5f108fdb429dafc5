"""Key shapes: group any number of keys by their form, in bounded memory.

`show`, `doctor` and `infer` share this. A tree with one level per segment: words are literals, ids are variables. A
node with too many words gets one variable for all of them, so `user:ada` and a million others are `user:{text}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

from keystead.errors import printable
from keystead.schema.key_forms import TYPE_NAMES, VARIABLE, form_of, is_word, narrowest, types_of, types_overlap

DELIMITERS: Final = (":", "/")  # the first of them that a key contains separates its segments
MOST_WORDS: Final = 200  # words at one place; more are ids
_MOST_NODES: Final = 20_000
_MOST_SEGMENTS: Final = 16
_EXAMPLES: Final = 24
_ALL: Final = (1 << len(TYPE_NAMES)) - 1
_WORDS: Final = VARIABLE + "words"
_TAGGED: Final = VARIABLE + "tag"


class Mergeable(Protocol):
    def merge(self, other: Self, /) -> None: ...


L = TypeVar("L", bound=Mergeable)


class Variable:
    """What was seen at one place: the types that fit all texts, how they begin, and some of the texts."""

    __slots__ = ("count", "examples", "longest", "prefix", "shortest", "types")

    def __init__(self) -> None:
        self.types = _ALL
        self.count = 0
        self.examples: set[str] = set()
        self.prefix = ""  # of all texts
        self.shortest, self.longest = 1 << 30, 0

    def add(self, text: str) -> None:
        self.types &= types_of(text)
        self._begin(text)
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.add(text)
        length = len(text)
        self.shortest, self.longest = min(self.shortest, length), max(self.longest, length)

    def _begin(self, text: str) -> None:
        if not self.count:
            self.prefix = text
        while not text.startswith(self.prefix):
            self.prefix = self.prefix[:-1]

    def merge(self, other: Variable) -> None:
        self.types &= other.types
        if other.count:
            self._begin(other.prefix)
        self.count += other.count
        for text in other.examples:
            if len(self.examples) < _EXAMPLES:
                self.examples.add(text)
        self.shortest, self.longest = min(self.shortest, other.shortest), max(self.longest, other.longest)


class Node(Generic[L]):
    """One segment: its form, the variables in it, the segment as a whole, and the segments after it."""

    __slots__ = ("children", "form", "has_tag", "is_crowded", "leaf", "variables", "whole")

    def __init__(self, form: str, has_tag: bool = False) -> None:
        self.form = form
        self.has_tag = has_tag  # the segment is in braces: a hash tag
        self.is_crowded = False  # further words are ids
        self.variables = [Variable() for _ in range(form.count(VARIABLE))]
        self.whole = Variable()
        self.children: dict[str, Node[L]] = {}
        self.leaf: L | None = None

    def see(self, segment: str, ids: tuple[str, ...]) -> None:
        if self.form == VARIABLE:
            self.variables[0].add(segment)
        elif ids or not self.whole.count:
            self.whole.add(segment)
            for variable, text in zip(self.variables, ids, strict=True):
                variable.add(text)

    def merge(self, other: Node[L]) -> None:
        """Take in another node of the same form, or, if this one is a variable, of any form."""
        if self.form == VARIABLE:
            self.variables[0].merge(other.variables[0] if other.form == VARIABLE else other.whole)
        else:
            self.whole.merge(other.whole)
            for mine, theirs in zip(self.variables, other.variables, strict=True):
                mine.merge(theirs)
        self._merge_below(other)

    def _merge_below(self, other: Node[L]) -> None:
        self.is_crowded = self.is_crowded or other.is_crowded
        if self.leaf is None:
            self.leaf = other.leaf
        elif other.leaf is not None:
            self.leaf.merge(other.leaf)
        for edge, child in other.children.items():
            if edge in self.children:
                self.children[edge].merge(child)
            else:
                self.children[edge] = child

    def take_ending(self, other: Node[L]) -> None:
        """Take in a node of another form, whose texts begin with the literal of this one and end with its id."""
        start = len(self.form.partition(VARIABLE)[0])
        for text in other.whole.examples:
            self.see(text, (text[start:],))
        self._merge_below(other)

    def number(self, words: Iterable[str], stem: str) -> None:
        """Replace these words, `user1` and `user2`, by one form with a number."""
        edge = stem + VARIABLE
        if edge not in self.children:
            self.children[edge] = Node(edge)
        for word in words:
            self.children[edge].take_ending(self.children.pop(word))

    def join(self, edges: Iterable[str], into: str = _WORDS) -> None:
        """Replace these children by one variable."""
        joined = self.children.get(into) or Node(VARIABLE)
        for edge in edges:
            if edge != into:
                joined.merge(self.children.pop(edge))
        self.children[into] = joined

    @property
    def words(self) -> list[str]:
        """The children that are not ids as a whole."""
        return [edge for edge, child in self.children.items() if child.form != VARIABLE]


class Shape(NamedTuple, Generic[L]):
    """The nodes from the first segment to the last, what is between them, and what is known of the keys."""

    path: tuple[Node[L], ...]
    delimiter: str
    leaf: L

    @property
    def text(self) -> str:
        """The shape for people: `session:{token}:mark`."""
        return self.delimiter.join(map(_segment_text, self.path))


class KeyShapes(Generic[L]):
    """The shapes of keys. `leaf` makes what is kept of each shape; two are merged with its `merge`."""

    def __init__(self, leaf: Callable[[], L]) -> None:
        self.roots: dict[str, Node[L]] = {delimiter: Node("") for delimiter in DELIMITERS}
        self._leaf = leaf
        self._nodes = 0
        self._most_words = MOST_WORDS
        self._thin_out = False

    def add(self, key: str) -> L | None:
        """Count a key, and return what is kept of its shape. None: it has too many segments, or strange characters.

        The object may be merged into another when further keys are added: use it before that.
        """
        if self._thin_out:
            self._thin_out = False
            self._most_words //= 2
            self._nodes = sum(map(self._join_below, self.roots.values()))
        delimiter = next((one for one in DELIMITERS if one in key), DELIMITERS[0])
        segments = key.split(delimiter)
        if len(segments) > _MOST_SEGMENTS or VARIABLE in key:
            return None
        node = self.roots[delimiter]
        for segment in segments:
            node = self._descend(node, segment)
        if node.leaf is None:
            node.leaf = self._leaf()
        return node.leaf

    def _descend(self, node: Node[L], segment: str) -> Node[L]:
        has_tag = len(segment) > 2 and segment[0] == "{" and segment[-1] == "}"
        if has_tag:
            segment = segment[1:-1]
            form, edge = VARIABLE, _TAGGED + ("word" if is_word(segment) else "")
            ids: tuple[str, ...] = (segment,)
        else:
            form, ids = form_of(segment)
            edge = form
            if form == VARIABLE:
                edge = VARIABLE + (narrowest(types_of(segment)) or "")
            elif node.is_crowded:
                form, edge, ids = VARIABLE, _WORDS, (segment,)
        child = node.children.get(edge)
        if child is None:
            child = node.children[edge] = Node(form, has_tag)
            self._nodes += 1
        child.see(segment, ids)
        if len(node.children) > self._most_words:
            child = self._crowd(node, child)
        if self._nodes > _MOST_NODES and self._most_words > 1:
            self._thin_out = True
        return child

    def _crowd(self, node: Node[L], child: Node[L]) -> Node[L]:
        """Join the words below a node. Returns what became of one of them."""
        was_word = child.form != VARIABLE
        node.join(node.words)
        node.is_crowded = True
        return node.children[_WORDS] if was_word else child

    def _join_below(self, node: Node[L]) -> int:
        """Join crowded nodes. Returns how many nodes there are."""
        if len(node.words) > self._most_words:
            node.join(node.words)
            node.is_crowded = True
        return 1 + sum(map(self._join_below, list(node.children.values())))

    def shapes(self) -> Iterator[Shape[L]]:
        """All shapes. Ids of types that overlap are one variable: `{hex}` and `{token}` at one place are `{token}`."""
        for delimiter, root in self.roots.items():
            _join_ids(root)
            yield from _shapes_below(root, (), delimiter)


_RARE: Final = 50  # of so many keys, one of a wider type is an exception, and does not widen the others
_LONG: Final = 16
_RANDOM: Final = 10  # behind a literal


def _join_ids(node: Node[L]) -> None:
    """Below this node, join variables whose types overlap: no two patterns may have the same key."""
    ids = [edge for edge, child in node.children.items() if child.form == VARIABLE and not child.has_tag]
    ids.sort(key=lambda edge: node.children[edge].variables[0].count, reverse=True)
    for at, edge in enumerate(ids):
        for other in ids[at + 1 :]:
            if edge in node.children and other in node.children and _belong(node.children[edge], node.children[other]):
                node.join([other], into=edge)
        if edge in node.children and node.children[edge].variables[0].shortest >= _LONG:
            # A random token without digits looks like words.
            node.join([word for word in node.words if _is_like(node.children[edge], node.children[word])], into=edge)
    _join_stray_tokens(node)
    _join_tags(node)
    for child in node.children.values():
        _join_ids(child)


def _belong(one: Node[L], other: Node[L]) -> bool:
    first, second = (node.variables[0] for node in (one, other))
    narrow, wide = narrowest(first.types), narrowest(second.types)
    if narrow is None or wide is None or not types_overlap(narrow, wide):
        return False
    return narrowest(first.types & second.types) == narrow or second.count * _RARE >= first.count


def _join_tags(node: Node[L]) -> None:
    """`{ada}:cart` beside `{42}:cart`: both are ids. `{bull}:jobs` beside them is a word."""
    words, ids = (node.children.get(edge) for edge in (_TAGGED + "word", _TAGGED))
    if words is not None and ids is not None and words.children.keys() & ids.children.keys():
        node.join([_TAGGED + "word"], into=_TAGGED)


def _join_stray_tokens(node: Node[L]) -> None:
    """`sess_{token}` takes in `sess_{token}-x`: a token whose end looks like a word."""
    for edge, child in list(node.children.items()):
        before, variable, after = child.form.partition(VARIABLE)
        if edge in node.children and before and variable and not after and _is_random(child.variables[0]):
            for stray in node.words:
                if stray != edge and stray.startswith(before) and _ends_like(child, node.children[stray], len(before)):
                    child.take_ending(node.children.pop(stray))


def _is_random(ids: Variable) -> bool:
    return ids.shortest >= _RANDOM and narrowest(ids.types) in ("token", "alnum")


def _ends_like(known: Node[L], stray: Node[L], start: int) -> bool:
    """Whether the rest of these few texts may be one of the ids of a form."""
    ids, texts = known.variables[0], stray.whole
    return (
        texts.count * _RARE <= ids.count + _RARE
        and ids.shortest + start <= texts.shortest <= texts.longest <= ids.longest + start
        and all(_is_within(types_of(text[start:]), ids.types) for text in texts.examples)
    )


def _is_like(ids: Node[L], word: Node[L]) -> bool:
    """Whether a segment that looks like words may be one of these long ids."""
    known, text = ids.variables[0], word.whole
    return known.shortest <= text.shortest and text.longest <= known.longest and _is_within(text.types, known.types)


def _is_within(types: int, wider: int) -> bool:
    return narrowest(types & wider) == narrowest(wider)


def _shapes_below(node: Node[L], path: tuple[Node[L], ...], delimiter: str) -> Iterator[Shape[L]]:
    if node.leaf is not None:
        yield Shape(path, delimiter, node.leaf)
    for child in node.children.values():
        yield from _shapes_below(child, (*path, child), delimiter)


def _segment_text(node: Node[L]) -> str:
    pieces = node.form.split(VARIABLE)
    text = printable(pieces[0])
    for variable, piece in zip(node.variables, pieces[1:], strict=True):
        text += f"{{{narrowest(variable.types) or 'any'}}}{printable(piece)}"
    return text


class Tally:
    """How many keys a shape has, and one of them."""

    __slots__ = ("count", "example")

    def __init__(self) -> None:
        self.count = 0
        self.example = ""

    def merge(self, other: Tally) -> None:
        self.count += other.count
        self.example = self.example or other.example


class ShapeCounts:
    """Counts of keys by shape, for reports: its size does not depend on the number of keys."""

    def __init__(self) -> None:
        self._shapes: KeyShapes[Tally] = KeyShapes(Tally)
        self._others = Tally()

    def add(self, raw: bytes) -> None:
        try:
            tally = self._shapes.add(raw.decode()) or self._others
        except UnicodeDecodeError:
            tally = self._others
        tally.count += 1
        tally.example = tally.example or printable(raw)

    def as_json(self) -> list[dict[str, str | int]]:
        """The shapes, most keys first."""
        rows = [(shape.text, shape.leaf) for shape in self._shapes.shapes()]
        if self._others.count:
            rows.append(("(other)", self._others))
        rows.sort(key=lambda row: (-row[1].count, row[0]))
        return [{"shape": text, "count": leaf.count, "example": leaf.example} for text, leaf in rows]
