"""The base of all rate limits: one call, one round trip, one verdict."""

from __future__ import annotations

import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

from keystead.errors import BadDeclaration, BadValue, CommandError, StoreError, Unreadable
from keystead.parts.limit.limited_families import remember_limited
from keystead.parts.limit.outage import Outage, WhenDown
from keystead.parts.limit.rate import MOST, Rate
from keystead.parts.limit.verdict import LimitReached, Verdict, least_of
from keystead.schema import Bound, Operation, Steps
from keystead.schema.operation import combine
from keystead.schema.prepared_steps import Prepared
from keystead.schema.unreadable import log_unreadable

_POLICIES: Final = ("deny", "allow", "raise")

# Takes the results of the reads, the cost of the hit, and whether an allowed hit is counted.
Judge: TypeAlias = Callable[[Sequence[Any], int, bool], Verdict]


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """A hit on one key: the reads, the guard, the writes if the guard holds, and how to judge the reads."""

    looks: Sequence[Operation[Any]]
    guard: Operation[bool]
    writes: Sequence[Operation[Any]]
    judge: Judge


class Limits:
    """One rate limit, or several combined."""

    family: Bound[Any]  # of the first limit

    def __init__(self, *limits: Limit) -> None:
        self.limits = limits
        self.family = limits[0].family
        self.store = self.family.store
        self._prepared_hit: tuple[Prepared[tuple[Any, ...]], Judge] | None = None
        self._keeps_hits = any(limit.keeps_hits for limit in limits)

    async def hit(self, *client: Any, by: int = 1) -> Verdict:
        """Count a request of a client at cost `by`, and return whether it is allowed.

        One atomic step and one round trip. Refused requests are not counted, and nothing is granted in part. `client`:
        the values of the family's placeholders, in order. During a store outage `when_down` applies. Raises Unreadable
        if the counter cannot be read, whatever `when_down` says: damage must not bypass a limit. Raises BadValue for a
        cost below one.
        """
        if type(by) is not int or by != 1:
            _check(by)
        try:
            verdict = await self._hit(client, by)
        except Unreadable as error:
            log_unreadable(self.store, error)
            raise
        except CommandError:
            raise
        except StoreError as error:
            return self._when_down(error, client, by)
        for limit in self.limits:
            limit._outage.is_over()
        return verdict

    async def require(self, *client: Any, by: int = 1) -> Verdict:
        """As `hit`, but raises LimitReached if the request is refused."""
        verdict = await self.hit(*client, by=by)
        if not verdict:
            raise LimitReached.of(verdict)
        return verdict

    async def peek(self, *client: Any, by: int = 1) -> Verdict:
        """Whether a hit would be allowed now, and what is left. Nothing is counted. One round trip.

        Raises the store's error during an outage.
        """
        _check(by)
        checks = self._checks(self._keys(client), by)
        for one in _counts(checks):
            one.close()
        return await _look("peek", checks, by, counted=False)

    def in_steps(self, *client: Any, by: int = 1) -> tuple[Operation[Verdict], Operation[bool]]:
        """A hit as two operations, to combine with others in one `atomically`:

            look, count = limit.in_steps(client)
            done = await keys.atomically(look, count, keys.order(7).add(order))
            verdict = done.values[0] if done else done.before[0]

        `look` gives the verdict; `count` stops the whole step if the verdict is a refusal. Put both first. Nothing is
        sent until they are awaited, and `when_down` does not apply: the store's error is raised.
        """
        _check(by)
        checks = self._checks(self._keys(client), by)
        return _look("in_steps", checks, by, counted=True), combine(
            "in_steps", _counts(checks), _always_true, stopped=False
        )

    async def reset(self, *client: Any) -> None:
        """Reset the limit of a client. One round trip."""
        await self.family.keyspace.run(*[key.delete() for key in self._keys(client)])

    async def _hit(self, client: tuple[Any, ...], by: int) -> Verdict:
        if by == 1:  # the hot path: prepared once
            prepared, judge = self._prepared_hit or self._prepare()
            names = [limit.family.render(*client).encode() for limit in self.limits]
            if self._keeps_hits:
                names.append(_hit_names.new())
            done = await prepared(*names)
            return with_outcome(judge(done.values if done else done.before, 1, True), bool(done))
        done = await self.family.keyspace.atomically(*self.in_steps(*client, by=by))
        return with_outcome(done.values[0] if done else done.before[0], bool(done))

    def _prepare(self) -> tuple[Prepared[tuple[Any, ...]], Judge]:
        """Prepare the usual hit: only the key names differ from call to call."""
        judges: list[Judge] = []

        def make(*given: Any) -> Steps[tuple[Any, ...]]:
            checks = self._checks(given[: len(self.limits)], 1, given[-1] if self._keeps_hits else "")
            judges[:] = [_judge_for(checks)]
            looks = _looks(checks)
            return Steps(*looks, *_counts(checks)).giving_each(looks)

        count = Prepared([limit.family for limit in self.limits], make, texts=int(self._keeps_hits))
        self._prepared_hit = count, judges[0]
        return self._prepared_hit

    def _checks(self, keys: Sequence[Any], by: int, hit: str = "") -> list[LimitCheck]:
        """The checks for a hit; `hit` is its unique name."""
        hit = hit or _hit_names.new().decode()
        return [limit._check_for(key, by, hit) for limit, key in zip(self.limits, keys, strict=True)]

    def _keys(self, client: tuple[Any, ...]) -> list[Any]:
        return [limit._key(client) for limit in self.limits]

    def _when_down(self, error: StoreError, client: Hashable, by: int) -> Verdict:
        return least_of([limit._outage.verdict(error, client, by) for limit in self.limits])


class Limit(Limits, ABC):
    """One limit on one family of keys.

    rate        the amount and the window: `"10/minute"`, `"100 per 60s"`
    when_down   policy for store outages: `deny` (the default), `allow` (each process counts alone, in memory) or
                `raise`
    name        the name in `RateLimit-Policy`; by default that of the family

    Raises BadDeclaration for a family of another shape, and DoesNotFit for a store that cannot do it in one step.
    """

    keeps_hits: ClassVar[bool] = False  # whether each hit has its own entry

    def __init__(
        self, family: Bound[Any], rate: str | Rate, *, when_down: WhenDown = "deny", name: str | None = None
    ) -> None:
        if not isinstance(family, Bound):
            raise BadDeclaration(f"a limit counts in a family of a keyspace, as in keys.hits, not in {family!r:.60}")
        if when_down not in _POLICIES:
            raise BadDeclaration(f"when_down is one of {', '.join(_POLICIES)}, not {when_down!r:.40}")
        self.rate = Rate.of(rate)
        self.name = _checked_name(family, name)
        self.family = family
        super().__init__(self)
        self._check_family()
        remember_limited(family)
        self._window_ms = self._local_rate().window_ms
        self._outage = Outage(when_down, self.name, self._local_rate(), family.now_ms)

    def _local_rate(self) -> Rate:
        """The rate that a process enforces alone during an outage."""
        return self.rate

    @abstractmethod
    def _check_family(self) -> None:
        """Raise BadDeclaration or DoesNotFit if the family does not fit this limit."""

    def _refuse(self, why: str) -> NoReturn:
        raise BadDeclaration(f"{self.family.family.place}: {why}")

    @abstractmethod
    def _check_for(self, key: Any, by: int, hit: str) -> LimitCheck: ...

    def _key(self, client: tuple[Any, ...]) -> Any:
        return self.family(*client)

    def _verdict(self, allowed: bool, limit: int, remaining: int, retry_after_ms: int | None, reset_ms: int) -> Verdict:
        wait_ms = 0 if allowed else retry_after_ms
        return Verdict(allowed, limit, max(0, remaining), wait_ms, reset_ms, self._window_ms, self.name)


def _check(by: int) -> None:
    if type(by) is not int or not 1 <= by <= MOST:
        raise BadValue(
            f"a request counts as a whole number from 1 to {MOST:,}, not {by!r:.40}; to count none, use peek()"
        )


def _checked_name(family: Bound[Any], given: str | None) -> str:
    if given is None:
        named: str = family.family.name
        return named if named.isascii() else "default"
    if type(given) is not str or not re.fullmatch(r"[ !#-\[\]-~]+", given):
        raise BadDeclaration(f"the name of a limit stands in a header: visible ASCII without quotes, not {given!r:.40}")
    return given


class _HitNames:
    """Unique names for hits: 72 random bits per process, and a counter."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._process, self._numbers = secrets.token_urlsafe(9).encode(), count()

    def new(self) -> bytes:
        return b"%b%x" % (self._process, next(self._numbers))


_hit_names = _HitNames()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hit_names.begin)  # or parent and child would use the same names


def _look(verb: str, checks: Sequence[LimitCheck], by: int, *, counted: bool) -> Operation[Verdict]:
    judge = _judge_for(checks)
    return combine(verb, _looks(checks), lambda *found: judge(found, by, counted))


def with_outcome(verdict: Verdict, is_counted: bool) -> Verdict:
    """The verdict, corrected by what the store actually did."""
    return verdict if verdict.allowed is is_counted else replace(verdict, allowed=is_counted)


def _looks(checks: Sequence[LimitCheck]) -> list[Operation[Any]]:
    # All reads come before the first guard, so that a refusal has their results too.
    return [look for one in checks for look in one.looks]


def _counts(checks: Sequence[LimitCheck]) -> list[Operation[Any]]:
    return [*(one.guard for one in checks), *(write for one in checks for write in one.writes)]


def _judge_for(checks: Sequence[LimitCheck]) -> Judge:
    """The judge for a hit on several limits: the strictest verdict."""
    if len(checks) == 1:
        return checks[0].judge
    judges = [(one.judge, len(one.looks)) for one in checks]

    def judge(found: Sequence[Any], by: int, counted: bool) -> Verdict:
        verdicts, at = [], 0
        for one, looks in judges:
            verdicts.append(one(found[at : at + looks], by, counted))
            at += looks
        if counted and not all(verdicts) and any(verdicts):  # if one refuses, none has counted it
            return judge(found, by, False)
        return least_of(verdicts)

    return judge


def _always_true(*results: Any) -> bool:
    return True
