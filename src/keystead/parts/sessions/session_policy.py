"""How long sessions live, and how many a user may have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from keystead.errors import BadDeclaration
from keystead.schema.lifetime import duration_ms

Duration: TypeAlias = str | timedelta
AtCap: TypeAlias = Literal["evict", "refuse"]

_TOUCHES_AN_IDLE_TIME = 20
_LONGEST_TOUCH_MS = 60_000


@dataclass(frozen=True)
class Policy:
    """The rules of a set of sessions. Durations carry units: `"30m"`, or are timedeltas.

    idle      a session ends when it was not used for so long
    absolute  a session ends so long after the login, however much it is used
    cap       how many a user may have at once; 1: one device; None: as many as they like
    at_cap    what a login beyond the cap does: `evict` the session whose login is longest ago, or `refuse` the new one
    grace     for how long after a rotation requests under way may still come with the old token
    """

    idle: Duration = "30d"
    absolute: Duration = "90d"
    cap: int | None = 5
    at_cap: AtCap = "evict"
    grace: Duration = "10s"

    def __post_init__(self) -> None:
        if self.idle_ms > self.absolute_ms:
            raise BadDeclaration(f"a session cannot be idle for longer ({self.idle}) than it lives ({self.absolute})")
        if self.cap is not None and (type(self.cap) is not int or self.cap < 1):
            raise BadDeclaration(f"cap is a number of sessions from 1 on, or None for no cap, not {self.cap!r}")
        if self.at_cap not in ("evict", "refuse"):
            raise BadDeclaration(f"at_cap is evict or refuse, not {self.at_cap!r}")
        _ = self.grace_ms

    @property
    def idle_ms(self) -> int:
        return duration_ms(self.idle, "idle")

    @property
    def absolute_ms(self) -> int:
        return duration_ms(self.absolute, "absolute")

    @property
    def grace_ms(self) -> int:
        return duration_ms(self.grace, "grace")

    @property
    def touch_every_ms(self) -> int:
        """How much younger than the last use `last_seen_at` may be: a minute at most, and little beside `idle`."""
        return min(_LONGEST_TOUCH_MS, self.idle_ms // _TOUCHES_AN_IDLE_TIME)


# The levels of NIST SP 800-63B-4: how often a user must log in again, and after how much idleness.
AAL1: Final = Policy(idle="30d", absolute="30d")
AAL2: Final = Policy(idle="1h", absolute="24h")
AAL3: Final = Policy(idle="15m", absolute="12h")
