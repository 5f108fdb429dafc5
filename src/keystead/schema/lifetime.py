"""Lifetimes: how long a key of a family lives. Every family states one."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from keystead.errors import BadCall, BadDeclaration, BadValue
from keystead.stores import Command
from keystead.stores.commands import LATEST_MS

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1))
_DAY_MS = 86_400_000


def duration_ms(duration: str | timedelta, what: str = "a lifetime") -> int:
    """`"30d"`, `"90s"`, `"1h 30m"` or a timedelta, in milliseconds. A number without a unit is refused."""
    if isinstance(duration, timedelta):
        ms, rest = divmod(duration, timedelta(milliseconds=1))
        if rest:
            raise _bad(f"{what} must be whole milliseconds, not {duration!r}")
    elif isinstance(duration, str):
        parts = re.findall(r"(\d+)\s*([a-z]+)", duration)
        if not parts or re.sub(r"(\d+)\s*([a-z]+)|\s", "", duration) or any(unit not in _UNITS_MS for _, unit in parts):
            raise _bad(
                f'{what} must be a number with a unit ({", ".join(_UNITS_MS)}), such as "15m" or "30d", '
                f"not {duration!r}"
            )
        ms = sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    else:
        raise _bad(f'{what} needs a unit: write "{duration}s" or a timedelta, not {duration!r}')
    if ms <= 0:
        raise _bad(f"{what} of {duration!r} is not valid; it must be longer than zero")
    if ms >= LATEST_MS:
        raise _bad(f"{what} of {duration!r} is too long")
    return ms


def in_words(ms: int) -> str:
    """`30 days`, `1 hour 30 minutes`."""
    phrases = []
    for word, size_ms in _WORDS:
        count, ms = divmod(ms, size_ms)
        if count:
            phrases.append(f"{count} {word}" if count == 1 else f"{count} {word}s")
    return " ".join(phrases)


def _bad(sentence: str) -> BadDeclaration:
    return BadDeclaration(sentence, "bad-lifetime")


class Lifetime(ABC):
    """How each write sets the deadline of its key. `at_ms` is the deadline given with this write, if any."""

    longest_ms: ClassVar[int | None] = None  # the longest TTL of a key; None: unknown
    ends: ClassVar[bool] = True

    @abstractmethod
    def on_create(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        """The options of a SET that creates or overwrites a record."""

    @abstractmethod
    def on_update(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        """The options of a SET that changes an existing record."""

    @abstractmethod
    def on_write(self, key: str, now_ms: int, at_ms: int | None) -> list[Command]:
        """The commands after a write to a key that grows (a hash, a set, a counter ...), in the same atomic step."""

    @abstractmethod
    def deadline_ms(self, now_ms: int, at_ms: int | None) -> int | None:
        """The deadline of a key created now; None: none, or unknown."""

    @abstractmethod
    def describe(self) -> str:
        """For the key document."""

    def repair(self, key: str, now_ms: int, at_ms: int | None) -> Command:
        """The command that gives a key with a missing or late deadline the one it would have if created now."""
        return self.on_write(key, now_ms, at_ms)[0]


@dataclass(frozen=True)
class After(Lifetime):
    """A fixed TTL from creation. Later changes do not extend it."""

    ms: int

    @property
    def longest_ms(self) -> int:  # type: ignore[override]
        return self.ms

    def on_create(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("PX", self.ms)

    def on_update(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("KEEPTTL",)

    def on_write(self, key: str, now_ms: int, at_ms: int | None) -> list[Command]:
        return [("PEXPIRE", key, self.ms, "NX")]

    def repair(self, key: str, now_ms: int, at_ms: int | None) -> Command:
        return ("PEXPIRE", key, self.ms)

    def deadline_ms(self, now_ms: int, at_ms: int | None) -> int | None:
        return now_ms + self.ms

    def describe(self) -> str:
        return in_words(self.ms)


@dataclass(frozen=True)
class Spread(Lifetime):
    """A TTL from creation with jitter, so that keys created together do not expire together.

    It is random for each key, and never longer than `ms`.
    """

    ms: int
    jitter_ms: int

    @property
    def longest_ms(self) -> int:  # type: ignore[override]
        return self.ms

    @property
    def shortest_ms(self) -> int:
        return self.ms - self.jitter_ms

    def _draw_ms(self) -> int:
        return random.randint(self.shortest_ms, self.ms)  # noqa: S311 - jitter, not security

    def on_create(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("PX", self._draw_ms())

    def on_update(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("KEEPTTL",)

    def on_write(self, key: str, now_ms: int, at_ms: int | None) -> list[Command]:
        return [("PEXPIRE", key, self._draw_ms(), "NX")]

    def repair(self, key: str, now_ms: int, at_ms: int | None) -> Command:
        return ("PEXPIRE", key, self._draw_ms())

    def deadline_ms(self, now_ms: int, at_ms: int | None) -> int | None:
        return now_ms + self.ms

    def describe(self) -> str:
        return f"{in_words(self.ms)}, or up to {in_words(self.jitter_ms)} less"


@dataclass(frozen=True)
class Sliding(Lifetime):
    """A time after the key was last written or touched."""

    ms: int
    touch_every_ms: int

    @property
    def longest_ms(self) -> int:  # type: ignore[override]
        return self.ms

    def on_create(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("PX", self.ms)

    def on_update(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("PX", self.ms)

    def on_write(self, key: str, now_ms: int, at_ms: int | None) -> list[Command]:
        return [("PEXPIRE", key, self.ms)]

    def is_due(self, left_ms: int) -> bool:
        """Whether a key with this TTL is due for a touch."""
        return left_ms <= self.ms - self.touch_every_ms

    def deadline_ms(self, now_ms: int, at_ms: int | None) -> int | None:
        return now_ms + self.ms

    def describe(self) -> str:
        return f"{in_words(self.ms)} after the last use; touched at most once in {in_words(self.touch_every_ms)}"


@dataclass(frozen=True)
class Until(Lifetime):
    """Until a moment given with the value: in a field of it, or as an argument of the verb.

    A key that grows lives until the latest moment of all its writes.
    """

    field: str
    at_most_ms: int | None
    unit: Literal["ms", "s"]

    @property
    def longest_ms(self) -> int | None:  # type: ignore[override]
        return self.at_most_ms

    def on_create(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("PXAT", self._check_moment(now_ms, at_ms))

    def on_update(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("KEEPTTL",) if at_ms is None else ("PXAT", self._check_moment(now_ms, at_ms))

    def on_write(self, key: str, now_ms: int, at_ms: int | None) -> list[Command]:
        at = self._check_moment(now_ms, at_ms)
        return [("PEXPIREAT", key, at, "NX"), ("PEXPIREAT", key, at, "GT")]

    def repair(self, key: str, now_ms: int, at_ms: int | None) -> Command:
        latest = LATEST_MS if self.at_most_ms is None else now_ms + self.at_most_ms
        return ("PEXPIREAT", key, latest if at_ms is None else min(at_ms, latest))

    def _check_moment(self, now_ms: int, at_ms: int | None) -> int:
        if at_ms is None:
            raise BadCall(f"this family needs a deadline: pass {self.field}=...")
        if at_ms <= now_ms:
            raise BadValue(f"{self.field} is in the past: nothing was written")
        if self.at_most_ms is not None and at_ms > now_ms + self.at_most_ms:
            raise BadValue(f"{self.field} is later than the family allows ({in_words(self.at_most_ms)} at most)")
        return at_ms

    def deadline_ms(self, now_ms: int, at_ms: int | None) -> int | None:
        return at_ms

    def describe(self) -> str:
        at_most = "" if self.at_most_ms is None else f", at most {in_words(self.at_most_ms)}"
        return f"until `{self.field}`{at_most}"


@dataclass(frozen=True)
class EndOfDay(Lifetime):
    """Until midnight in a time zone, on the day the key was created."""

    zone: str
    longest_ms: ClassVar[int] = 25 * 3_600_000  # a day on which clocks go back

    def at_ms(self, now_ms: int) -> int:
        """The next midnight. Never now: in the last millisecond of a day there is one millisecond left."""
        zone = ZoneInfo(self.zone)
        today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).date()
        midnight = datetime.combine(today + timedelta(days=1), time(), zone)
        return round(midnight.timestamp() * 1000)

    def on_create(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("PXAT", self.at_ms(now_ms))

    def on_update(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ("KEEPTTL",)

    def on_write(self, key: str, now_ms: int, at_ms: int | None) -> list[Command]:
        return [("PEXPIREAT", key, self.at_ms(now_ms), "NX")]

    def repair(self, key: str, now_ms: int, at_ms: int | None) -> Command:
        return ("PEXPIREAT", key, self.at_ms(now_ms))

    def deadline_ms(self, now_ms: int, at_ms: int | None) -> int | None:
        return self.at_ms(now_ms)

    def describe(self) -> str:
        return f"end of the day ({self.zone})"


@dataclass(frozen=True)
class Never(Lifetime):
    """No deadline: the reason states what removes the key."""

    reason: str
    ends: ClassVar[bool] = False

    def on_create(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ()

    def on_update(self, now_ms: int, at_ms: int | None) -> tuple[str | int, ...]:
        return ()

    def on_write(self, key: str, now_ms: int, at_ms: int | None) -> list[Command]:
        return []

    def repair(self, key: str, now_ms: int, at_ms: int | None) -> Command:
        return ("PERSIST", key)

    def deadline_ms(self, now_ms: int, at_ms: int | None) -> int | None:
        return None

    def describe(self) -> str:
        return f"never expires: {self.reason}"


def after(duration: str | timedelta, *, jitter: str = "") -> Lifetime:
    """`after("30d")`: a fixed time after the key was created. Later changes do not extend it.

    `after("1h", jitter="10%")`: each key lives up to a tenth less than that, never more, so that keys which were
    created together do not expire together.
    """
    ms = duration_ms(duration)
    if jitter == "":
        return After(ms)
    share = re.fullmatch(r"([1-9][0-9]?)%", str(jitter))
    if share is None:
        raise _bad(f'jitter must be a share of the lifetime in whole percent, from "1%" to "99%", not {jitter!r}')
    return Spread(ms, ms * int(share[1]) // 100)


def sliding(duration: str | timedelta, *, touch_every: str | timedelta = "") -> Lifetime:
    """`sliding("30m", touch_every="1m")`: a time after the last write or touch.

    Reads do not write: `use()` reads, and touches only if the last touch was `touch_every` ago.
    """
    if touch_every == "":
        raise _bad(f'sliding({duration!r}) needs touch_every="1m", the shortest time between two touches')
    ms, every_ms = duration_ms(duration), duration_ms(touch_every, "touch_every")
    if every_ms >= ms:
        raise _bad(f"touch_every ({in_words(every_ms)}) must be shorter than the lifetime itself ({in_words(ms)})")
    return Sliding(ms, every_ms)


def until(field: str, *, at_most: str | timedelta | None = None, unit: Literal["ms", "s"] = "ms") -> Lifetime:
    """`until("expires_at", at_most="14d")`: until a moment in this field of the value, or in the argument of this name.

    The moment is an aware datetime, or an integer in `unit` since 1970. A moment in the past, or later than
    `at_most`, is refused.
    """
    if not str(field).isidentifier():
        raise _bad(f'until needs the name of a field or an argument, as in until("expires_at"), not {field!r}')
    if unit not in ("ms", "s"):
        raise _bad(f'the unit of until must be "ms" or "s", not {unit!r}')
    return Until(field, None if at_most is None else duration_ms(at_most, "at_most"), unit)


def end_of_day(zone: str) -> Lifetime:
    """`end_of_day("UTC")`: until the next midnight in a time zone such as `Asia/Tokyo`."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise _bad(f'end_of_day needs a time zone, such as "UTC" or "Asia/Tokyo", not {zone!r}') from None
    return EndOfDay(zone)


def never(reason: str = "") -> Lifetime:
    """`never("removed by the clean-up job")`: no deadline. The reason, which is required, states what removes it."""
    if type(reason) is not str or not reason.strip():
        raise _bad('never needs a reason that states what removes these keys: never("emptied by the clean-up job")')
    return Never(reason)
