"""Languages: the sets of texts that patterns can produce, and whether two of them have a text in common.

A language is built from character sets with `sequence`, `choice` and `repeat`, like a regular expression. It is data,
because a compiled expression cannot provide its longest text, the language with some characters escaped, or a text
that it shares with another language.
"""

from __future__ import annotations

import string
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TypeAlias

# Readable characters for examples come first.
_PREFERRED = (
    string.ascii_lowercase + string.digits + string.ascii_uppercase + "-_." + string.punctuation.replace("%", "") + "%"
)


@dataclass(frozen=True, slots=True)
class Characters:
    """A set of characters, as sorted ranges of code points that do not touch. It never holds a surrogate."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, members: Iterable[str]) -> Characters:
        """These characters; surrogates among them are left out."""
        return cls(_merge_ranges((ord(member), ord(member)) for member in members)) & ANY

    @classmethod
    def between(cls, first: str, last: str) -> Characters:
        return cls(((ord(first), ord(last)),))

    def __contains__(self, character: str) -> bool:
        return any(low <= ord(character) <= high for low, high in self.ranges)

    def __iter__(self) -> Iterator[str]:
        return (chr(point) for low, high in self.ranges for point in range(low, high + 1))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: Characters) -> Characters:
        return Characters(_merge_ranges((*self.ranges, *other.ranges)))

    def __and__(self, other: Characters) -> Characters:
        return Characters(
            _merge_ranges(
                (max(low, other_low), min(high, other_high))
                for low, high in self.ranges
                for other_low, other_high in other.ranges
                if max(low, other_low) <= min(high, other_high)
            )
        )

    def __sub__(self, other: Characters) -> Characters:
        return self & Characters(_gaps(other.ranges))

    def pick(self) -> str:
        """One of them: readable if possible, and among the shortest in UTF-8."""
        return next((character for character in _PREFERRED if character in self), chr(self.ranges[0][0]))

    def regex(self) -> str:
        """The set as a regular expression, positive or negated, whichever does not list half of Unicode."""
        if not self.ranges:
            return "(?!)"
        return f"[^{_class(_gaps(self.ranges))}]" if self._is_open else f"[{_class(self.ranges)}]"

    def regex_of_others(self) -> str:
        """The complement of the set, including surrogates."""
        return f"[{_class(_gaps(self.ranges))}]" if self._is_open else f"[^{_class(self.ranges)}]"

    @property
    def _is_open(self) -> bool:
        return bool(self.ranges) and self.ranges[-1][1] == LAST


@dataclass(frozen=True, slots=True)
class Series:
    """A concatenation."""

    parts: tuple[Language, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """An alternative."""

    options: tuple[Language, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times; None: unlimited."""

    part: Language
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Bounded:
    """The texts of a language with at most this many bytes in UTF-8."""

    part: Language
    most_bytes: int


Language: TypeAlias = Characters | Series | Choice | Repeat | Bounded

LAST = 0x10FFFF
ANY = Characters(((0, 0xD7FF), (0xE000, LAST)))
NOTHING = Characters(())
ASCII = Characters.between("\0", "\x7f")


def sequence(*parts: Language | str) -> Series:
    """The concatenation of these; a str is a literal."""
    spelled: list[Language] = []
    for part in parts:
        spelled.extend((Characters.of(character) for character in part) if isinstance(part, str) else [part])
    return Series(tuple(spelled))


def choice(*options: Language | str) -> Choice:
    """Any one of these; a str is a literal."""
    return Choice(tuple(sequence(option) if isinstance(option, str) else option for option in options))


def repeat(part: Language, least: int, most: int | None) -> Repeat:
    return Repeat(part, least, most)


def regex(language: Language, without: Characters = NOTHING) -> str:
    """The regular expression of the texts in which no character of `without` occurs. Not for a bounded language."""
    match language:
        case Characters():
            return (language - without).regex()
        case Series(parts):
            return "".join(regex(part, without) for part in parts)
        case Choice(options):
            return "(?:" + "|".join(regex(option, without) for option in options) + ")"
        case Repeat(Characters() as part, least, most):
            return f"{regex(part, without)}{{{least},{'' if most is None else most}}}"
        case Repeat(part, least, most):
            return f"(?:{regex(part, without)}){{{least},{'' if most is None else most}}}"
        case Bounded():
            raise TypeError("a regular expression cannot count bytes")


def longest(language: Language) -> int | None:
    """The UTF-8 length of its longest text in bytes; None if there is no longest."""
    match language:
        case Characters(ranges):
            return len(chr(ranges[-1][1]).encode()) if ranges else 0
        case Series(parts):
            return _unless_endless(sum, parts)
        case Choice(options):
            return _unless_endless(max, options)
        case Repeat(part, _, most):
            length = longest(part)
            return None if most is None or length is None else most * length
        case Bounded(part, most_bytes):
            length = longest(part)
            return most_bytes if length is None else min(length, most_bytes)


def _unless_endless(total: Callable[[list[int]], int], languages: Iterable[Language]) -> int | None:
    lengths = [longest(one) for one in languages]
    known = [length for length in lengths if length is not None]
    return total(known) if len(known) == len(lengths) else None


class Automaton:
    """A language as a graph to walk: edges that read one character, and silent edges.

    A bounded part is a region of nodes. A walk counts bytes there, starting from 0 where it enters the region.
    """

    def __init__(self, language: Language) -> None:
        self._edges: list[list[tuple[Characters, int]]] = []
        self._silent: list[list[int]] = []
        self._region: list[int] = []
        self._limits = [0]
        self._accepts: dict[int, bool] = {}
        self._moves: dict[int, list[tuple[Characters, int, bool, int]]] = {}
        self.start = self._node(0)
        self._end = self._build(language, self.start)

    def accepts(self, node: int) -> bool:
        """Whether the text may end here."""
        if node not in self._accepts:
            self._accepts[node] = self._end in self._reachable(node)
        return self._accepts[node]

    def moves(self, node: int) -> list[tuple[Characters, int, bool, int]]:
        """The next possible reads: (characters, the node after them, whether the count continues, its limit or 0)."""
        if node not in self._moves:
            self._moves[node] = [
                (characters, target, self._region[source] == self._region[node], self._limits[self._region[source]])
                for source in self._reachable(node)
                for characters, target in self._edges[source]
            ]
        return self._moves[node]

    def _reachable(self, node: int) -> list[int]:
        """The nodes that are reachable without reading anything, including itself."""
        found = {node: None}  # a dict keeps their order, so that the same two languages always give the same text
        waiting = [node]
        while waiting:
            new = [target for target in self._silent[waiting.pop()] if target not in found]
            found.update(dict.fromkeys(new))
            waiting.extend(new)
        return list(found)

    def _node(self, region: int) -> int:
        self._edges.append([])
        self._silent.append([])
        self._region.append(region)
        return len(self._edges) - 1

    def _build(self, language: Language, at: int) -> int:
        """Add a language after a node; return the node where it ends."""
        region = self._region[at]
        match language:
            case Characters():
                end = self._node(region)
                self._edges[at].append((language, end))
                return end
            case Series(parts):
                return reduce(lambda node, part: self._build(part, node), parts, at)
            case Choice(options):
                end = self._node(region)
                for option in options:
                    self._silent[self._build(option, at)].append(end)
                return end
            case Repeat(part, least, most):
                return self._build_repeat(part, least, most, at)
            case Bounded(part, most_bytes):
                self._limits.append(most_bytes)
                inside, outside = self._node(len(self._limits) - 1), self._node(region)
                self._silent[at].append(inside)
                self._silent[self._build(part, inside)].append(outside)
                return outside

    def _build_repeat(self, part: Language, least: int, most: int | None, at: int) -> int:
        for _ in range(least):
            at = self._build(part, at)
        end = self._node(self._region[at])
        self._silent[at].append(end)
        if most is None:
            self._silent[self._build(part, end)].append(end)
            return end
        for _ in range(most - least):
            at = self._build(part, at)
            self._silent[at].append(end)
        return end


# The state of two walks: a node and the bytes counted there, in each automaton.
_Stand: TypeAlias = tuple[int, int, int, int]


def common_text(one: Automaton, other: Automaton) -> str | None:
    """A shortest text that both languages have, or None if they have none in common. Exact.

    The two automata are walked in parallel, breadth first. A state is skipped if the same two nodes were reached with
    no more bytes counted: whatever can follow it can also follow there.
    """
    start: _Stand = (one.start, 0, other.start, 0)
    came_from: dict[_Stand, tuple[_Stand, str]] = {}
    counted: dict[tuple[int, int], list[tuple[int, int]]] = {(one.start, other.start): [(0, 0)]}
    queue = deque([start])
    while queue:
        stand = queue.popleft()
        if one.accepts(stand[0]) and other.accepts(stand[2]):
            return _spell(stand, came_from)
        for following, character in _steps(one, other, stand):
            node, count, other_node, other_count = following
            known = counted.setdefault((node, other_node), [])
            if not any(fewer <= count and other_fewer <= other_count for fewer, other_fewer in known):
                known.append((count, other_count))
                came_from[following] = (stand, character)
                queue.append(following)
    return None


def _steps(one: Automaton, other: Automaton, stand: _Stand) -> Iterator[tuple[_Stand, str]]:
    """The next states of both walks for one character; of several possible characters, one of the shortest."""
    node, count, other_node, other_count = stand
    for characters, target, goes_on, limit in one.moves(node):
        for other_characters, other_target, other_goes_on, other_limit in other.moves(other_node):
            character = _common_character(characters, other_characters)
            if character is None:
                continue
            size = len(character.encode())
            new = size + (count if goes_on else 0) if limit else 0
            other_new = size + (other_count if other_goes_on else 0) if other_limit else 0
            if new <= limit and other_new <= other_limit:
                yield (target, new, other_target, other_new), character


@lru_cache(maxsize=4096)
def _common_character(one: Characters, other: Characters) -> str | None:
    both = one & other
    return both.pick() if both else None


def _spell(stand: _Stand, came_from: dict[_Stand, tuple[_Stand, str]]) -> str:
    characters = []
    while stand in came_from:
        stand, character = came_from[stand]
        characters.append(character)
    return "".join(reversed(characters))


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sort the ranges and merge adjacent ones."""
    tidy: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if tidy and low <= tidy[-1][1] + 1:
            tidy[-1] = (tidy[-1][0], max(tidy[-1][1], high))
        else:
            tidy.append((low, high))
    return tuple(tidy)


def _gaps(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """All code points between the ranges, before the first and after the last, including surrogates."""
    starts = (0, *(high + 1 for _, high in ranges))
    ends = (*(low - 1 for low, _ in ranges), LAST)
    return tuple((low, high) for low, high in zip(starts, ends, strict=True) if low <= high)


def _class(ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
