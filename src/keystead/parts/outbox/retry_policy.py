"""The retry policy of an outbox: exponential back-off, time limits, leases."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from keystead.errors import BadDeclaration
from keystead.schema.lifetime import duration_ms, in_words

SHORTEST_LEASE: Final = "1s"  # a busy process must be able to renew it in time
LONGEST_LEASE: Final = "1d"
_JITTER: Final = 0.2  # jitter: the fraction of a wait, so that failed queues are not all retried together
_MAX_DOUBLINGS: Final = 40


@dataclass(frozen=True)
class OutboxPolicy:
    """The retry policy of an outbox. Raises BadDeclaration for invalid values.

    first_retry    the wait after the first failure; it doubles with each further one (exponential back-off)
    longest_retry  the longest wait
    give_up_after  a message is given up when it is this old and its receiver has failed for this long
    most_waiting   how many messages a queue holds; beyond it, the oldest tenth is given up
    at_once        how many queues one process delivers concurrently
    send_within    the time limit of one attempt
    lease          lease length: if a process dies, another takes over its queue after this time. It is renewed during a
                   send, so it may be shorter than one attempt
    look_every     the poll interval: the longest time until a process sees a message that another one has added
    stop_within    how long stopping waits for sends in progress; then they are cancelled, which may take half as long
    """

    first_retry: str = "10s"
    longest_retry: str = "1h"
    give_up_after: str = "24h"
    most_waiting: int = 1_000
    at_once: int = 32
    send_within: str = "20s"
    lease: str = "6s"
    look_every: str = "2s"
    stop_within: str = "5s"

    def __post_init__(self) -> None:
        durations = (
            "first_retry",
            "longest_retry",
            "give_up_after",
            "send_within",
            "lease",
            "look_every",
            "stop_within",
        )
        for name in durations:
            duration_ms(getattr(self, name), name)
        for name in ("most_waiting", "at_once"):
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                raise BadDeclaration(f"{name} must be a whole number from 1, not {count!r:.80}")
        if self.longest_retry_ms < self.first_retry_ms:
            raise BadDeclaration(f"longest_retry ({self.longest_retry}) is below first_retry ({self.first_retry})")
        shortest_ms, longest_ms = duration_ms(SHORTEST_LEASE), duration_ms(LONGEST_LEASE)
        if not shortest_ms <= self.lease_ms <= longest_ms:
            raise BadDeclaration(f"a lease must be {in_words(shortest_ms)} to {in_words(longest_ms)}, not {self.lease}")

    @cached_property
    def first_retry_ms(self) -> int:
        return duration_ms(self.first_retry)

    @cached_property
    def longest_retry_ms(self) -> int:
        return duration_ms(self.longest_retry)

    @cached_property
    def give_up_after_ms(self) -> int:
        return duration_ms(self.give_up_after)

    @cached_property
    def send_within_ms(self) -> int:
        return duration_ms(self.send_within)

    @cached_property
    def lease_ms(self) -> int:
        return duration_ms(self.lease)

    @cached_property
    def look_every_ms(self) -> int:
        return duration_ms(self.look_every)

    @cached_property
    def stop_within_ms(self) -> int:
        return duration_ms(self.stop_within)

    def wait_ms(self, failures: int, asked_ms: int | None = None) -> int:
        """The back-off after this many failures in a row; longer if the receiver asks for it, up to `longest_retry`."""
        doubled = self.first_retry_ms << min(failures - 1, _MAX_DOUBLINGS)
        jitter = 1 - _JITTER * random.random()  # noqa: S311 - jitter
        return max(round(min(doubled, self.longest_retry_ms) * jitter), min(asked_ms or 0, self.longest_retry_ms))
