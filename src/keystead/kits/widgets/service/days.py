"""Days: when one ends in the zone of the settings, and how it is told."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from keystead.schema.lifetime import EndOfDay
from keystead.schema.times import moment

_LEAST_MS = 60_000


@dataclass(frozen=True)
class Day:
    """A day in a zone: its date, and the moment in ms since 1970 at which it ends."""

    date: dt.date
    ends_ms: int

    def mark_ends_ms(self, now_ms: int) -> int:
        """When a mark of this day goes. One that is made just before midnight lives a while longer: the clock of the
        store may be ahead, and a mark that is dead at birth would let everybody count twice. Marks of two days have
        other names, so a longer life keeps nobody out.
        """
        return max(self.ends_ms, now_ms + _LEAST_MS)

    def back(self, days: int) -> dt.date:
        return self.date - timedelta(days=days)


class Calendar:
    """The days of one zone."""

    def __init__(self, zone: str) -> None:
        self._zone = ZoneInfo(zone)
        self._end = EndOfDay(zone)
        self._today: tuple[int, Day] = (0, Day(dt.date.min, 0))  # from when on, and until when it is this day

    def day(self, now_ms: int) -> Day:
        """The day of this moment. In its last millisecond there is one millisecond left."""
        since_ms, today = self._today
        if not since_ms <= now_ms < today.ends_ms:
            today = Day(moment(now_ms).astimezone(self._zone).date(), self._end.at_ms(now_ms))
            self._today = (now_ms, today)
        return today


@lru_cache(maxsize=4096)
def _second(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def iso(at: datetime | None) -> str | None:
    """`2026-11-16T09:00:00.000Z`, as JavaScript writes it."""
    return None if at is None else f"{_second(at.replace(microsecond=0))}.{at.microsecond // 1000:03d}Z"
