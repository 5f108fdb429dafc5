"""Session policy: idle timeout, absolute timeout, and how many sessions a user may have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final, Literal, TypeAlias

from keystead.errors import BadDeclaration
from keystead.schema.lifetime import duration_ms

Duration: TypeAlias = str | timedelta
AtCap: TypeAlias = Literal["evict", "refuse"]

_TOUCHES_PER_IDLE_TIMEOUT = 20
_MAX_TOUCH_INTERVAL_MS = 60_000


@dataclass(frozen=True)
class Policy:
    """The rules of a set of sessions. Durations carry units: `"30m"`, or are timedeltas.

    idle      idle timeout: a session ends after this long without use
    absolute  absolute timeout: a session ends this long after the login, even if it is in use
    cap       the maximum number of concurrent sessions of a user; 1: one device; None: no limit
    at_cap    what a login beyond the cap does: `evict` the session with the oldest login, or `refuse` the new one
    grace     how long the old token is still accepted after a rotation, for requests already under way
    near      how long a session that has ended may still be read elsewhere, as in `"1s"`: sessions are then read from a
              copy in the process, where the store can tell when one changes. None: every read asks the store
    """

    idle: Duration = "30d"
    absolute: Duration = "90d"
    cap: int | None = 5
    at_cap: AtCap = "evict"
    grace: Duration = "10s"
    near: Duration | None = None

    def __post_init__(self) -> None:
        if self.idle_ms > self.absolute_ms:
            raise BadDeclaration(f"the idle timeout ({self.idle}) exceeds the absolute timeout ({self.absolute})")
        if self.cap is not None and (type(self.cap) is not int or self.cap < 1):
            raise BadDeclaration(f"cap must be a whole number from 1, or None for no cap, not {self.cap!r}")
        if self.at_cap not in ("evict", "refuse"):
            raise BadDeclaration(f"at_cap must be evict or refuse, not {self.at_cap!r}")
        _ = self.grace_ms, self.near_ms

    @cached_property
    def idle_ms(self) -> int:
        return duration_ms(self.idle, "idle")

    @cached_property
    def absolute_ms(self) -> int:
        return duration_ms(self.absolute, "absolute")

    @cached_property
    def grace_ms(self) -> int:
        return duration_ms(self.grace, "grace")

    @cached_property
    def near_ms(self) -> int:
        """0: there are no near reads."""
        return 0 if self.near is None else duration_ms(self.near, "near")

    @cached_property
    def touch_every_ms(self) -> int:
        """How often a session in use is touched: each minute, or each 1/20 of `idle` if that is shorter."""
        return min(_MAX_TOUCH_INTERVAL_MS, self.idle_ms // _TOUCHES_PER_IDLE_TIMEOUT)


# The levels of NIST SP 800-63B-4: how often a user must log in again, and after how much idleness.
AAL1: Final = Policy(idle="30d", absolute="30d")
AAL2: Final = Policy(idle="1h", absolute="24h")
AAL3: Final = Policy(idle="15m", absolute="12h")
