"""Scan a store without blocking it: group all keys by shape, and read some or all of each shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from keystead.schema.chunked_reading import SIZES
from keystead.schema.doctor.examination import NOTES_PREFIXES
from keystead.schema.doctor.key_state import ms_of
from keystead.schema.first_contents import FirstContents
from keystead.schema.infer.evidence import Evidence
from keystead.schema.infer.value_profile import LARGEST
from keystead.schema.key_shapes import KeyShapes
from keystead.schema.pace import Pace
from keystead.schema.paced_scan import paced_scan
from keystead.stores import Command, Store

_PAGE: Final = 1_000
_LONGEST_KEY: Final = 1_000  # bytes


class ScanProgress(NamedTuple):
    examined: int
    total: int


@dataclass(slots=True)
class Scanned:
    """The keys of a store by shape."""

    shapes: KeyShapes[Evidence] = field(default_factory=lambda: KeyShapes(Evidence))
    examined: int = 0
    without_shape: int = 0
    """Keys that no pattern can have: not text, too long, or too many segments."""


class _Sampled(NamedTuple):
    key: str
    evidence: Evidence


async def scan_store(
    store: Store,
    *,
    every_key: bool = False,
    skip: Callable[[bytes], bool] | None = None,
    between: Callable[[], Awaitable[None]] | None = None,
    on_progress: Callable[[ScanProgress], None] | None = None,
) -> Scanned:
    """Group all keys of a store by shape. Of each shape the first keys are read, and ever fewer of the rest.

    `every_key` reads all of them. `between` runs before the second pass, which reads some deadlines again: one that
    moved belongs to a sliding lifetime. Keys for which `skip` is true are left out. Read-only.
    """
    found = Scanned()
    [total] = await store.run([("DBSIZE",)])
    pace = Pace(_PAGE)
    contents = FirstContents(store, pace, LARGEST)
    async for some in paced_scan(store, "*", pace, page=_PAGE):
        await _read(store, _grouped(found, some or (), every_key, skip), pace, contents)
        if on_progress is not None:
            on_progress(ScanProgress(found.examined, total))
    shapes = [shape.leaf for shape in found.shapes.shapes()]
    if between is not None:
        await between()
    for evidence in shapes:
        watched = [one for one in evidence.watched if one.left_ms >= 0]
        if watched:
            commands: list[Command] = [("TIME",), *(("PTTL", one.key) for one in watched)]
            [time, *left] = await pace.run(store, commands, len(commands))
            for one, left_ms in zip(watched, left, strict=True):
                evidence.see_again(one, left_ms, ms_of(time))
            await pace.turn()
    return found


def _grouped(
    found: Scanned, keys: Sequence[bytes], every_key: bool, skip: Callable[[bytes], bool] | None
) -> list[_Sampled]:
    """Count these keys. Returns those to be read."""
    names: list[str] = []
    for raw in keys:
        if raw.startswith(NOTES_PREFIXES) or (skip is not None and skip(raw)):
            continue
        found.examined += 1
        key = _text_of(raw)
        evidence = None if key is None else found.shapes.add(key)
        if key is None or evidence is None:
            found.without_shape += 1
            continue
        evidence.count += 1
        if every_key or evidence.wants_more:
            names.append(key)
    # The shapes may have been joined meanwhile, so where a key belongs is asked when all are counted.
    return [_Sampled(key, evidence) for key in names if (evidence := found.shapes.add(key)) is not None]


def _text_of(raw: bytes) -> str | None:
    """None: the key is not text, or too long to be kept as an example."""
    try:
        return raw.decode() if len(raw) <= _LONGEST_KEY else None
    except UnicodeDecodeError:
        return None


async def _read(store: Store, sampled: list[_Sampled], pace: Pace, contents: FirstContents) -> None:
    if not sampled:
        return
    commands: list[Command] = [("TIME",)]
    for one in sampled:
        commands += [("TYPE", one.key), ("PTTL", one.key)]
    [time, *replies] = await pace.run(store, commands, len(sampled))
    at_ms = ms_of(time)
    there = [
        (one, kind.decode(), left_ms)
        for one, kind, left_ms in zip(sampled, replies[::2], replies[1::2], strict=True)
        if kind.decode() in SIZES
    ]
    async for number, _, content in contents.read([(one.key, kind) for one, kind, _ in there]):
        one, kind, left_ms = there[number]
        one.evidence.add(one.key, kind, left_ms, at_ms, content)
        if pace.is_due_at(number):
            await pace.turn()
