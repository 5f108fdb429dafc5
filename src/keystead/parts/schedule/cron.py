"""Cron expressions: the times they name, in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from keystead.errors import BadDeclaration
from keystead.schema.times import deadline_ms, moment

_FIELDS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
_SHORTEST_MS: Final = 60_000  # between two times of a cron expression
# Daylight saving shifts clocks by less than this. Around a shift, iterating backwards does not mirror iterating
# forwards, so the search for the latest time starts before it.
_DAYLIGHT_SAVING_MS: Final = 3 * 3_600_000


class Cron:
    """The times of a cron expression, in milliseconds. Raises BadDeclaration for an invalid expression or time zone.

    Daylight saving works as in cron: a job at a fixed hour runs once that day, at the next minute that exists or at the
    first of two; a job every few minutes or every hour keeps running in real time.
    """

    def __init__(self, text: str, zone: str) -> None:
        self.text = text
        self._zone = _zone(zone)
        count = len(str(text).split())
        if count != len(_FIELDS):
            fields = ", ".join(_FIELDS)
            raise BadDeclaration(f'cron needs five fields ({fields}), as in "0 15 * * *"; {text!r} has {count}')
        try:
            self.words: str = CronSim(text, moment(0)).explain()
            next(CronSim(text, moment(0)))
        except StopIteration:
            raise BadDeclaration(f"the cron expression {text!r} has no time within 50 years") from None
        except (CronSimError, ValueError, AssertionError, TypeError, IndexError, KeyError) as error:
            wrong = str(error).removeprefix("Bad ") if isinstance(error, CronSimError) else "text"
            raise BadDeclaration(f'the cron expression {text!r} has an invalid {wrong}; write "0 15 * * *"') from None

    def after(self, ms: int) -> int:
        """The first time after `ms`."""
        moments = CronSim(self.text, moment(ms).astimezone(self._zone))
        while True:
            # When clocks go back, an hour comes twice; for a time in the second one CronSim returns the first.
            found = deadline_ms(next(moments))
            if found > ms:
                return found

    def latest(self, ms: int, earliest_ms: int) -> int:
        """The last time up to and including `ms`; `earliest_ms` is known to be one."""
        found = earliest_ms
        safe_ms = ms - _DAYLIGHT_SAVING_MS
        if earliest_ms < safe_ms:
            before = deadline_ms(next(CronSim(self.text, moment(safe_ms).astimezone(self._zone), reverse=True)))
            found = max(found, before)
        while (later := self.after(found)) <= ms:
            found = later
        return found

    def earliest_of(self, count: int, ms: int, earliest_ms: int) -> int:
        """The first of the last `count` times up to `ms`, but not before `earliest_ms`."""
        if ms - earliest_ms <= count * _SHORTEST_MS:
            return earliest_ms
        found_ms = earliest_ms
        for before in islice(CronSim(self.text, moment(ms).astimezone(self._zone), reverse=True), count):
            found_ms = deadline_ms(before)
            if found_ms <= earliest_ms:
                return earliest_ms
        return self.after(found_ms - 1)

    def local(self, ms: int) -> datetime:
        """The local time in the time zone."""
        return moment(ms).astimezone(self._zone)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # faster arithmetic
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise BadDeclaration(f'there is no time zone {name!r}; write one such as "UTC" or "Europe/Berlin"') from None
