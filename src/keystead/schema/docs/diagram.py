"""The relation diagram: boxes in layers from left to right, sources before targets."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias
from unicodedata import east_asian_width

from keystead.schema.docs.document import FamilyEntry, KeyDocument
from keystead.schema.docs.relation_rows import Edge

_CHARACTER: Final = 7.3  # px of one character of a key, in a monospaced font of 12 px
_LONGEST_LINE: Final = 34
_LINE: Final = 17.0
_PADDING: Final = 11.0
_BETWEEN_LAYERS: Final = 84.0
_BETWEEN_BOXES: Final = 14.0
_BETWEEN_GROUPS: Final = 30.0
_MARGIN: Final = 6.0
_SWEEPS: Final = 8

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A family at its position. `lines` are its key, `note` is below."""

    name: str
    lines: tuple[str, ...]
    note: str
    x: float
    y: float
    width: float
    height: float

    @property
    def text_x(self) -> float:
        return self.x + _PADDING

    def line_y(self, number: int) -> float:
        """The base line of one line of its text, counted from 0."""
        return self.y + _PADDING + 10 + number * _LINE


@dataclass(frozen=True)
class Arrow:
    """A relation. `path` is the `d` of an SVG path, `says` a word of `relations`."""

    start: str
    says: str
    end: str
    path: str


@dataclass(frozen=True)
class Diagram:
    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def diagram(document: KeyDocument) -> Diagram | None:
    """The diagram of a document; None if no family has a relation to another."""
    entries = {entry.name: entry for entry in document.families}
    edges = [edge for edge in document.edges if edge.start != edge.end]
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    top = _MARGIN
    for names in _groups(list(entries), edges):
        group = _Group({name: entries[name] for name in names}, [edge for edge in edges if edge.start in names])
        boxes += group.boxes(top).values()
        arrows += group.arrows(top)
        top += group.height + _BETWEEN_GROUPS
    if not boxes:
        return None
    width = max(box.x + box.width for box in boxes) + _MARGIN
    return Diagram(width, top - _BETWEEN_GROUPS + _MARGIN, tuple(boxes), tuple(arrows))


def _groups(names: Sequence[str], edges: Sequence[Edge]) -> Iterator[list[str]]:
    """The connected families, in the order of declaration. Families without relations are in no group."""
    near: dict[str, set[str]] = {name: set() for name in names}
    for edge in edges:
        near[edge.start].add(edge.end)
        near[edge.end].add(edge.start)
    seen: set[str] = set()
    for name in names:
        if name in seen or not near[name]:
            continue
        group, waiting = {name}, [name]
        while waiting:
            more = near[waiting.pop()] - group
            group |= more
            waiting += more
        seen |= group
        yield [one for one in names if one in group]


class _Text(NamedTuple):
    """The text of a box, and its size."""

    lines: tuple[str, ...]
    note: str

    @property
    def width(self) -> float:
        return round(max(map(_length, (*self.lines, self.note))) * _CHARACTER + 2 * _PADDING)

    @property
    def height(self) -> float:
        return (len(self.lines) + 1) * _LINE + 2 * _PADDING - 4


class _Route(NamedTuple):
    """A relation from the left to the right: the boxes at its ends, and the gaps in the layers that it passes."""

    stops: tuple[str, ...]
    backwards: bool  # the arrow points to the left, because the relation closes a cycle


class _Group:
    """Connected families, in layers."""

    def __init__(self, entries: Mapping[str, FamilyEntry], edges: Sequence[Edge]) -> None:
        self._edges = edges
        self._texts = {name: _Text(_break_lines(entry.key), _note(entry)) for name, entry in entries.items()}
        backwards = _cycle_edges(list(entries), edges)
        layers = _layers(list(entries), [_reverse(edge) if edge in backwards else edge for edge in edges])
        self._routes = [_route(number, edge, edge in backwards, layers) for number, edge in enumerate(edges)]
        self._columns = _arrange_columns(layers, self._routes)
        self.height = max(map(self._height_of, self._columns))

    def boxes(self, top: float) -> dict[str, Box]:
        """The boxes by their names, with the upper edge of the group at `top`."""
        return {
            name: Box(name, text.lines, text.note, x, y, width, text.height)
            for name, x, y, width in self._places(top)
            if (text := self._texts.get(name))
        }

    def arrows(self, top: float) -> Iterator[Arrow]:
        boxes = self.boxes(top)
        gaps = {name: [(x, y + _LINE / 2), (x + width, y + _LINE / 2)] for name, x, y, width in self._places(top)}
        heights = {name: y for name, _, y, _ in self._places(top)}
        leaving = self._ports(boxes, lambda stops: (stops[0], heights[stops[1]]))
        arriving = self._ports(boxes, lambda stops: (stops[-1], heights[stops[-2]]))
        for number, (edge, route) in enumerate(zip(self._edges, self._routes, strict=True)):
            left, right = boxes[route.stops[0]], boxes[route.stops[-1]]
            points: list[Point] = [(left.x + left.width, leaving[number])]
            for stop in route.stops[1:-1]:
                points += gaps[stop]
            points.append((right.x, arriving[number]))
            yield Arrow(edge.start, edge.says, edge.end, _path(points[::-1] if route.backwards else points))

    def _places(self, top: float) -> Iterator[tuple[str, float, float, float]]:
        """Each box and each gap: its name, its left upper corner and its width."""
        x = _MARGIN
        for column in self._columns:
            width = max(self._texts[name].width for name in column if name in self._texts)
            y = top + (self.height - self._height_of(column)) / 2
            for name in column:
                yield name, x, y, width
                y += self._height(name) + _BETWEEN_BOXES
            x += width + _BETWEEN_LAYERS

    def _height_of(self, column: Sequence[str]) -> float:
        return sum(map(self._height, column)) + _BETWEEN_BOXES * (len(column) - 1)

    def _height(self, name: str) -> float:
        return self._texts[name].height if name in self._texts else _LINE

    def _ports(self, boxes: Mapping[str, Box], end: Callable[[tuple[str, ...]], tuple[str, float]]) -> dict[int, float]:
        """The point where each relation meets the side of a box, spread so that no two overlap."""
        at: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        for number, route in enumerate(self._routes):
            name, towards = end(route.stops)
            at[name].append((towards, number))
        return {
            number: boxes[name].y + boxes[name].height * (place + 1) / (len(meeting) + 1)
            for name, meeting in at.items()
            for place, (_, number) in enumerate(sorted(meeting))
        }


def _cycle_edges(names: Sequence[str], edges: Sequence[Edge]) -> set[Edge]:
    """The relations that close a cycle, following them from the first family."""
    found: set[Edge] = set()
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        for edge in edges:
            if edge.start == name and edge.end in (*path, name):
                found.add(edge)
            elif edge.start == name and edge.end not in done:
                walk(edge.end, (*path, name))
        done.add(name)

    for name in names:
        if name not in done:
            walk(name, ())
    return found


def _reverse(edge: Edge) -> Edge:
    return edge._replace(start=edge.end, end=edge.start)


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The layer of each family: after all its sources. One without sources is just before its targets."""
    layer = dict.fromkeys(names, 0)
    for _ in names:
        for edge in edges:
            layer[edge.end] = max(layer[edge.end], layer[edge.start] + 1)
    named = {edge.end for edge in edges}
    for name in names:
        if name not in named:
            layer[name] = min(layer[edge.end] for edge in edges if edge.start == name) - 1
    return layer


def _route(number: int, edge: Edge, backwards: bool, layers: Mapping[str, int]) -> _Route:
    left, right = (edge.end, edge.start) if backwards else (edge.start, edge.end)
    gaps = (f"{number}:{layer}" for layer in range(layers[left] + 1, layers[right]))
    return _Route((left, *gaps, right), backwards)


def _arrange_columns(layers: Mapping[str, int], routes: Sequence[_Route]) -> list[list[str]]:
    """The columns from left to right. Connected families are at about the same height."""
    columns: list[list[str]] = [[] for _ in range(max(layers.values()) + 1)]
    for name, layer in layers.items():
        columns[layer].append(name)
    before: defaultdict[str, list[str]] = defaultdict(list)
    behind: defaultdict[str, list[str]] = defaultdict(list)
    for route in routes:
        for gap in route.stops[1:-1]:
            columns[int(gap.partition(":")[2])].append(gap)
        for left, right in pairwise(route.stops):
            before[right].append(left)
            behind[left].append(right)
    for _ in range(_SWEEPS // 2):
        _sweep(columns, before)
        _sweep(columns[::-1], behind)
    return columns


def _sweep(columns: Sequence[list[str]], near: Mapping[str, Sequence[str]]) -> None:
    """Sort each column by the mean height of its neighbours in the columns that were sorted before."""
    place = {name: number / len(column) for column in columns for number, name in enumerate(column)}
    for column in columns:
        middle = {name: _mean([place[one] for one in near.get(name, ())], place[name]) for name in column}
        column.sort(key=middle.__getitem__)
        place |= {name: number / len(column) for number, name in enumerate(column)}


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _path(points: Sequence[Point]) -> str:
    """A curve through the points that is horizontal at each of them."""
    path = [f"M{px(points[0][0])} {px(points[0][1])}"]
    for (x, y), (next_x, next_y) in pairwise(points):
        middle = px((x + next_x) / 2)
        path.append(f"C{middle} {px(y)} {middle} {px(next_y)} {px(next_x)} {px(next_y)}")
    return "".join(path)


def px(number: float) -> str:
    """A length as an SVG attribute, the same on every machine."""
    return f"{number:.1f}".removesuffix(".0")


def _note(entry: FamilyEntry) -> str:
    role = "" if entry.role == "default" else f" in {entry.role}"
    return f"{entry.kind}{role}" + (f", of a {entry.belongs_to}" if entry.belongs_to else "")


def _break_lines(key: str) -> tuple[str, ...]:
    """Break a key into short lines, after colons."""
    lines = [""]
    for part in re.findall(r"[^:]*:|[^:]+", "".join(one if one.isprintable() else "?" for one in key)):
        if lines[-1] and _length(lines[-1] + part) > _LONGEST_LINE:
            lines.append("")
        lines[-1] += part
    return tuple(lines)


def _length(text: str) -> int:
    """The width of a text in columns of a monospaced font."""
    return sum(2 if east_asian_width(one) in "WF" else 1 for one in text)
