"""The sizes of families over time: a sample of the stores now and then, in the console's own log, for charts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from keystead.console.console_keys import MEASURES_KEPT, ConsoleKeys, FamilyMeasure, Measure
from keystead.schema import Keyspace
from keystead.schema.family import Bound
from keystead.schema.family_lookup import name_of
from keystead.schema.survey import TTLS, Survey, survey
from keystead.schema.times import deadline_ms, moment

SAMPLE_S: Final = 1.0
RECENT_MS: Final = 5 * 60_000
_SHAPES: Final = 50


@dataclass(frozen=True, slots=True)
class FamilySize:
    """A family with its number of keys and bytes, and its numbers of keys in the past, oldest first."""

    bound: Bound[Any]
    count: int
    bytes: int
    left: Sequence[int] = ()
    trend: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The families by size at one time. `totals` and `times_ms`: all keys in the past, oldest first."""

    measure: Measure
    filled: Sequence[FamilySize] = ()
    empty: Sequence[Bound[Any]] = ()
    totals: Sequence[int] = ()
    times_ms: Sequence[int] = field(default=())


class ConsoleMeasures:
    def __init__(self, keys: ConsoleKeys, known: Collection[type[Keyspace]]) -> None:
        self._keys = keys
        self._known = known

    async def latest(self) -> list[Measure]:
        """What was measured in the last week, newest first."""
        found = await self._keys.measures().see_latest(MEASURES_KEPT)
        return [entry.item for entry in found if entry.item is not None]

    def is_recent(self, measures: Sequence[Measure]) -> bool:
        return bool(measures) and self._keys.now_ms() - deadline_ms(measures[0].at) < RECENT_MS

    async def measure(self, keyspaces: Sequence[Keyspace], *, keep: bool = True) -> Measure:
        """Measure now, in about a second for each store, however many keys there are."""
        found = await self._survey(keyspaces)
        is_sample = found.is_cut and found.total is not None and found.examined > 0
        scale = max(1.0, (found.total or 0) / found.examined) if is_sample else 1.0
        shapes = found.unknown_shapes.as_json()[:_SHAPES]
        made = Measure(
            at=moment(self._keys.now_ms()),
            unknown=round(found.unknown * scale),
            shapes={str(one["shape"]): round(int(one["count"]) * scale) for one in shapes},
            is_sample=is_sample,
            families={
                name_of(one.family): FamilyMeasure(
                    count=round(one.count * scale),
                    bytes=round(one.bytes * scale),
                    left=[round(one.ttls[step] * scale) for step in TTLS],
                )
                for one in found.families
                if one.count
            },
        )
        if keep:
            await self._keys.measures().append(made)
        return made

    async def _survey(self, keyspaces: Sequence[Keyspace]) -> Survey:
        listing = [one for one in keyspaces if all(store.guarantees.scans for store in one.stores)]
        if not listing:
            return Survey([])
        return await survey(listing, None, 0, known=self._known, limit_s=SAMPLE_S)


def largest(sizes: Sizes, most: int = 5) -> list[tuple[str, Sequence[int]]]:
    """The past of the largest families, and of all other keys together (named ""), oldest first."""
    named = [(name_of(one.bound.family), one.trend) for one in sizes.filled[:most]]
    others = [total - sum(trend[at] for _, trend in named) for at, total in enumerate(sizes.totals)]
    return [*named, ("", others)] if any(others) else named


def sizes_of(measures: Sequence[Measure], bounds: Sequence[Bound[Any]]) -> Sizes:
    """The families by size, with their past. `measures`: newest first, at least one."""
    newest, past = measures[0], measures[::-1]
    filled, empty = [], []
    for bound in bounds:
        name = name_of(bound.family)
        one = newest.families.get(name)
        if one is None:
            empty.append(bound)
            continue
        trend = [was.count if (was := then.families.get(name)) is not None else 0 for then in past]
        filled.append(FamilySize(bound, one.count, one.bytes, one.left, trend))
    filled.sort(key=lambda one: -one.count)
    count: Callable[[Measure], int] = lambda then: sum(one.count for one in then.families.values()) + then.unknown  # noqa: E731
    return Sizes(newest, filled, empty, [count(then) for then in past], [deadline_ms(then.at) for then in past])
