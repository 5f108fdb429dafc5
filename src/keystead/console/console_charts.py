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
