"""The geometry of charts. Pages draw them as inline SVG, beside the same numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_MOST_POINTS: Final = 60


class TrendLine(NamedTuple):
    """A line through points, for `<polyline points="…">`, and the area below it for `<polygon>`."""

    points: str
    area: str
    last_x: float
    last_y: float
    low: int
    high: int


def line(numbers: Sequence[int], width: int, height: int, margin: int = 2) -> TrendLine | None:
    """A line through these numbers from left to right; None: fewer than two."""
    if len(numbers) < 2:
        return None
    step = max(1, len(numbers) // _MOST_POINTS)
    some = [*numbers[::-1][::step]][::-1]
    low, high = min(some), max(some)
    span = high - low
    inner = height - 2 * margin
    places = [
        (
            round(margin + (width - 2 * margin) * at / max(1, len(some) - 1), 1),
            round(margin + inner * (0.5 if not span else 1 - (number - low) / span), 1),
        )
        for at, number in enumerate(some)
    ]
    points = " ".join(f"{x},{y}" for x, y in places)
    return TrendLine(points, f"{margin},{height} {points} {width - margin},{height}", *places[-1], low, high)


class Layer(NamedTuple):
    """One layer of a stacked area, for `<polygon points="…">`."""

    points: str
    step: int


def layers(series: Sequence[Sequence[int]], times_ms: Sequence[int], width: int, height: int) -> list[Layer]:
    """Series of equal length on top of each other, the first at the bottom; none: fewer than two moments.

    The highest total reaches the top. Moments are as far apart as they are in time.
    """
    step = max(1, len(times_ms) // _MOST_POINTS)
    chosen = [*range(len(times_ms))[::-1][::step]][::-1]
    begin, span = times_ms[chosen[0]] if chosen else 0, times_ms[-1] - times_ms[chosen[0]] if chosen else 0
    if len(chosen) < 2 or span <= 0:
        return []
    most = max(sum(one[at] for one in series) for at in chosen) or 1
    across = [round(width * (times_ms[at] - begin) / span, 1) for at in chosen]
    below = [0] * len(chosen)
    found = []
    for number, one in enumerate(series):
        above = [held + one[at] for held, at in zip(below, chosen, strict=True)]
        edges = [
            " ".join(f"{x},{round(height * (1 - held / most), 1)}" for x, held in places)
            for places in (zip(across, above, strict=True), zip(across[::-1], below[::-1], strict=True))
        ]
        found.append(Layer(" ".join(edges), number))
        below = above
    return found


class Piece(NamedTuple):
    """One piece of a stacked bar."""

    at: float
    width: float
    number: int
    step: int


def stack(numbers: Sequence[int], width: int) -> list[Piece]:
    """The pieces of a bar of this width, without empty ones."""
    total = sum(numbers)
    pieces: list[Piece] = []
    at = 0.0
    for step, number in enumerate(numbers):
        size = width * number / total if total else 0
        if number:
            pieces.append(Piece(round(at, 2), round(max(size, 0.5), 2), number, step))
        at += size
    return pieces


def share(part: int, whole: int) -> str:
    """A part in percent; only nothing is `0`, and only all of it is `100`."""
    percent = 100 * part / whole if whole else 0
    return f"{percent:.0f}" if percent in (0, 100) else f"{min(99, max(1, round(percent)))}"


def compact(number: float) -> str:
    """A number for a narrow place: `1.2M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            found = number / size
            return f"{found:.1f}{unit}" if found < 10 else f"{found:.0f}{unit}"
    return f"{number:.0f}"


def size_text(number: float) -> str:
    """Bytes for people: `1.2 MB`."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
