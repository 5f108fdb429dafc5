"""A job: what is run, when, and how it is caught up with; and what it is given when it runs."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final, Literal, TypeAlias, get_args

from keystead.errors import BadDeclaration, BadValue
from keystead.parts.sanitize import visible
from keystead.parts.schedule.cron import Cron
from keystead.schema.lifetime import duration_ms, in_words

Missed: TypeAlias = Literal["once", "each", "skip"]

LONGEST_LEASE: Final = "1d"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")
_LONGEST_NAME: Final = 100
_LEASES_MS: Final = (1_000, duration_ms(LONGEST_LEASE))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Run:
    """One run of a job, as the job sees it.

    name     the name of the job
    due_ms   the moment that it is run for, which may be long past
    number   counts the runs of this job, as its history does
    fence    grows with every run of this job. A store that refuses a lower one than it has seen is safe from a run
             that was stopped, lost its lease, and goes on for a moment when it wakes up. It is at least the time in ms
             at which the run began, so that it also grows where the schedule's own store has forgotten the last runs
    """

    def __init__(
        self, name: str, due_ms: int, number: int, *, fence: int = 0, now_ms: Callable[[], int] = _now_ms
    ) -> None:
        self.name = name
        self.due_ms = due_ms
        self.number = number
        self.fence = fence
        self.again_ms: int | None = None
        self._now_ms = now_ms

    def again_after(self, duration: str) -> None:
        """Ask for one more run so long from now, `"5m"`; if the cron text comes sooner, that run is it.

        Of several calls the last one counts. A run that fails is tried again in any case.
        """
        self.again_ms = self._now_ms() + duration_ms(duration, "the time until the next run")

    def __repr__(self) -> str:
        return f"<run {self.number} of {self.name}>"


@dataclass(frozen=True)
class Job:
    """Something that runs by itself.

    name     such as "sharing.clean-up": words in lower case, with dots and hyphens between them
    cron     when, as cron text: "0 15 * * *"
    run      what: `async def clean_up(run)`; what it returns, counts and short texts, is kept in the history
    zone     the time zone of the cron text, such as "Europe/Berlin"
    missed   what is done with the moments at which no process was there, or the last run still went on: `once`, one
             run for all of them; `each`, one run for each of them, in order; `skip`, none: only a moment that is at
             most a minute past is run
    lease    for how long a run is nobody else's without a sign of life. It is renewed while the job runs; when its
             process dies, another one takes over after so long
    doc      one sentence for people

    Raises BadDeclaration where one of these is wrong. A job may be run a second time for one moment: when its process
    died or was stopped in the middle. So it is written to be repeated.
    """

    name: str
    cron: str
    run: Callable[[Run], Awaitable[Mapping[str, int | str] | None]]
    zone: str = "UTC"
    missed: Missed = "once"
    lease: str = "1m"
    doc: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(str(self.name)) or len(self.name) > _LONGEST_NAME:
            raise BadDeclaration(
                f"a job is called by words in lower case with dots and hyphens between them, such as sharing.clean-up, "
                f"not {self.name!r:.120}"
            )
        try:
            _ = self.moments, self.lease_ms
        except BadDeclaration as error:
            raise BadDeclaration(f"{self.name}: {error}") from None
        if not callable(self.run):
            raise BadDeclaration(f"{self.name}: run is an async function that takes a Run, not {self.run!r:.80}")
        if self.missed not in get_args(Missed):
            raise BadDeclaration(f"{self.name}: missed is once, each or skip, not {self.missed!r:.80}")
        shortest, longest = _LEASES_MS
        if not shortest <= self.lease_ms <= longest:
            raise BadDeclaration(
                f"{self.name}: a lease is between {in_words(shortest)} and {in_words(longest)} long, not {self.lease}"
            )

    @cached_property
    def moments(self) -> Cron:
        return Cron(self.cron, self.zone)

    @cached_property
    def lease_ms(self) -> int:
        return duration_ms(self.lease, "a lease")


_LONGEST_TEXT: Final = 500
_LONGEST_RESULT_NAME: Final = 100
_MOST_RESULTS: Final = 50
_LARGEST_COUNT: Final = 2**63 - 1


def checked_result(name: str, returned: object) -> dict[str, int | str]:
    """What a job returned, for its history, which can hold all of it: texts and names are cut, and so are many entries.

    Raises BadValue where it is no mapping of counts and texts, or where a count has more than 64 bits.
    """
    if returned is None:
        return {}
    if not isinstance(returned, Mapping) or not all(
        isinstance(key, str) and isinstance(value, int | str) for key, value in returned.items()
    ):
        raise BadValue(f"{name} ran, and returned what is no mapping of names to counts or texts; return such, or None")
    kept = {
        visible(key, _LONGEST_RESULT_NAME): _checked_value(name, value)
        for key, value in islice(returned.items(), _MOST_RESULTS)
    }
    beyond = len(returned) - _MOST_RESULTS
    return kept if beyond <= 0 else {**kept, "…": f"{beyond:,} more, which are not kept"}


def _checked_value(name: str, value: int | str) -> int | str:
    if isinstance(value, str):
        return shortened(value)
    if not -_LARGEST_COUNT <= value <= _LARGEST_COUNT:
        raise BadValue(f"{name} ran, and returned a count of more than 64 bits; return it as a text")
    return int(value)


def shortened(text: str) -> str:
    """A text for the history, on one line, not too long, and nothing in it that a terminal obeys."""
    return visible(" ".join(text.split()), _LONGEST_TEXT)
