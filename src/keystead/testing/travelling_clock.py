"""A clock for tests of applications: days pass in an instant, in the store and in the program alike."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from keystead.schema.lifetime import duration_ms
from keystead.stores import Store
from keystead.stores.sqlite import SqliteStore


class TravellingClock:
    """Stands still until `travel` moves it. Pass it as `now_ms` to keyspaces and parts; `store` expires keys by it.

    It starts now, or at `start`, an aware datetime.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if start is None else int(start.timestamp() * 1000)

    def __call__(self) -> int:
        """The time in milliseconds since 1970."""
        return self._now_ms

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def travel(self, duration: str | timedelta) -> None:
        """Move forward: `travel("25h")`."""
        self._now_ms += duration_ms(duration, "a journey")

    def store(self) -> Store:
        """A new, empty store in memory whose keys expire by this clock."""
        return SqliteStore(":memory:", clock=self)
