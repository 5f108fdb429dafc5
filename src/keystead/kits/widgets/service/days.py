"""Days in the configured time zone, and ISO times."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from keystead.schema.lifetime import EndOfDay
from keystead.schema.times import moment

_MARKER_MIN_MS = 60_000


@dataclass(frozen=True)
class Day:
    """A day in a time zone: its date, and when it ends in ms since 1970."""

    date: dt.date
    ends_ms: int

    def marker_ends_ms(self, now_ms: int) -> int:
        """When a marker of this day expires: at midnight, but at least a minute from now.

        The store's clock may be ahead, and a marker that expires immediately would count a visitor twice. Markers of
        two days have different keys, so a longer life blocks no visit.
        """
        return max(self.ends_ms, now_ms + _MARKER_MIN_MS)


class Calendar:
    """The days of one time zone."""

    def __init__(self, zone: str) -> None:
        self._zone = ZoneInfo(zone)
        self._end = EndOfDay(zone)
        self._today: tuple[int, Day] = (0, Day(dt.date.min, 0))  # cached, with the first time it was read

    def day(self, now_ms: int) -> Day:
        since_ms, today = self._today
        if not since_ms <= now_ms < today.ends_ms:
            today = Day(moment(now_ms).astimezone(self._zone).date(), self._end.at_ms(now_ms))
            self._today = (now_ms, today)
        return today


@lru_cache(maxsize=4096)
def _format_second(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def iso(at: datetime | None) -> str | None:
    """`2026-11-16T09:00:00.000Z`, as JavaScript formats it."""
    return None if at is None else f"{_format_second(at.replace(microsecond=0))}.{at.microsecond // 1000:03d}Z"
