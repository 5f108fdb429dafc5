"""Scheduled jobs: what to run, when, and how to catch up on missed runs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final, Literal, TypeAlias, get_args

from keystead.errors import BadDeclaration, BadValue
from keystead.parts.sanitize import one_line, visible
from keystead.parts.schedule.cron import Cron
from keystead.schema.lifetime import duration_ms, in_words
from keystead.schema.times import now_ms

Missed: TypeAlias = Literal["once", "each", "skip"]

LONGEST_LEASE: Final = "1d"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")
_LONGEST_NAME: Final = 100
_LEASES_MS: Final = (1_000, duration_ms(LONGEST_LEASE))


class Run:
    """One run of a job, as the job sees it.

    name     the name of the job
    due_ms   the scheduled time of this run, which may be long past
    number   the number of this run of the job, as in its history
    fence    fencing token: grows with every run of this job. A store that refuses tokens lower than it has seen is safe
             from a paused run that lost its lease and briefly continues when it wakes up. It is at least the start time
             in ms, so it grows even if the schedule's own store has lost the last runs
    """

    def __init__(
        self, name: str, due_ms: int, number: int, *, fence: int = 0, now_ms: Callable[[], int] = now_ms
    ) -> None:
        self.name = name
        self.due_ms = due_ms
        self.number = number
        self.fence = fence
        self.again_ms: int | None = None
        self._now_ms = now_ms

    def again_after(self, duration: str) -> None:
        """Ask for one more run after this time, such as `"5m"`, unless the cron expression is due sooner.

        The last call wins. A failed run is retried in any case.
        """
        self.again_ms = self._now_ms() + duration_ms(duration, "the time until the next run")

    def __repr__(self) -> str:
        return f"<run {self.number} of {self.name}>"


@dataclass(frozen=True)
class Job:
    """A scheduled job.

    name     such as "sharing.clean-up": lower-case words joined by dots and hyphens
    cron     the cron expression: "0 15 * * *"
    run      `async def clean_up(run)`; the counts and short texts it returns are stored in the history
    zone     the time zone of the cron expression, such as "Europe/Berlin"
    missed   how to catch up on times when no process was running, or the last run was still in progress: `once`, one
             run for all of them; `each`, one run for each, in order; `skip`, none, unless it is at most a minute late
    lease    lease length. The lease is renewed while the job runs; if its process dies, another one takes over after
             this time
    doc      one sentence for people

    Raises BadDeclaration if one of these is invalid. Delivery is at least once: a job may run a second time for the
    same scheduled time if its process died or was stopped half-way. So write jobs to be idempotent.
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
                f"the name of a job must be lower-case words joined by dots and hyphens, such as sharing.clean-up, "
                f"not {self.name!r:.120}"
            )
        try:
            _ = self.moments, self.lease_ms
        except BadDeclaration as error:
            raise BadDeclaration(f"{self.name}: {error}") from None
        if not callable(self.run):
            raise BadDeclaration(f"{self.name}: run must be an async function that takes a Run, not {self.run!r:.80}")
        if self.missed not in get_args(Missed):
            raise BadDeclaration(f"{self.name}: missed must be once, each or skip, not {self.missed!r:.80}")
        shortest, longest = _LEASES_MS
        if not shortest <= self.lease_ms <= longest:
            raise BadDeclaration(
                f"{self.name}: a lease must be {in_words(shortest)} to {in_words(longest)}, not {self.lease}"
            )

    @cached_property
    def moments(self) -> Cron:
        return Cron(self.cron, self.zone)

    @cached_property
    def lease_ms(self) -> int:
        return duration_ms(self.lease, "a lease")


MAX_TEXT: Final = 500
_LONGEST_RESULT_NAME: Final = 100
_MOST_RESULTS: Final = 50
_LARGEST_COUNT: Final = 2**63 - 1


def check_result(name: str, returned: object) -> dict[str, int | str]:
    """What a job returned, cut to fit the history: long texts, long names, and entries beyond 50.

    Raises BadValue if it is not a mapping to counts and texts, or if a count has more than 64 bits.
    """
    if returned is None:
        return {}
    if not isinstance(returned, Mapping) or not all(
        isinstance(key, str) and isinstance(value, int | str) for key, value in returned.items()
    ):
        raise BadValue(f"{name} did not return a mapping of names to counts or texts; return one, or None")
    result = {
        visible(key, _LONGEST_RESULT_NAME): _check_value(name, value)
        for key, value in islice(returned.items(), _MOST_RESULTS)
    }
    beyond = len(returned) - _MOST_RESULTS
    return result if beyond <= 0 else {**result, "…": f"{beyond:,} more, not stored"}


def _check_value(name: str, value: int | str) -> int | str:
    if isinstance(value, str):
        return one_line(value, MAX_TEXT)
    if not -_LARGEST_COUNT <= value <= _LARGEST_COUNT:
        raise BadValue(f"{name} returned a count of more than 64 bits; return it as text")
    return int(value)
