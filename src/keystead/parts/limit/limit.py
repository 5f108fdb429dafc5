"""What all limits have in common: one call, one round trip, one verdict."""

from __future__ import annotations

import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, NoReturn, TypeAlias

from keystead.errors import BadDeclaration, BadValue, CommandError, StoreError, Unreadable
from keystead.parts.limit.outage import Outage, WhenDown
from keystead.parts.limit.rate import MOST, Rate
from keystead.parts.limit.verdict import LimitReached, Verdict
from keystead.schema import Bound, Operation
from keystead.schema.operation import Compound
from keystead.schema.unreadable import log_unreadable
from keystead.stores import AtMost, Outcome, Reply, Step, Store, TimedCommand

_POLICIES: Final = ("deny", "allow", "raise")


@dataclass(frozen=True, slots=True)
class Asked:
    """A hit in steps, for one key: what is read, what must hold, what is written if it does, and what it all means.

    judge   the verdict by the replies of the reads, and whether the hit is counted where they allow it
    """

    reads: Sequence[TimedCommand]
    guard: AtMost
    writes: Sequence[TimedCommand]
    judge: Callable[[Sequence[Reply], bool], Verdict]


# How the usual hit is sent, how many of its replies are looked at, and what they mean.
_Usual: TypeAlias = tuple[Callable[..., Awaitable[Outcome]], int, Callable[[list[Reply]], Verdict]]


class Limits(ABC):
    """One limit, or several that count as one."""

    store: Store
    family: Bound[Any]  # the first one
    _usual: _Usual | None = None

    async def hit(self, *client: Any, by: int = 1) -> Verdict:
        """Count a request of a client, or one that counts as several, and learn whether it is let through.

        One atomic step and one round trip. What is refused is not counted, and nothing is granted in part. `client`:
        the values of the placeholders of the family, in their order. While the store is down, what `when_down` says.
        Raises Unreadable where the counter cannot be read, whatever `when_down` says: damage is no way past a limit.
        Raises BadValue for a request that counts as less than one.
        """
        if type(by) is not int or by != 1:
            _check(by)
        try:
            verdict = await self._hit(client, by)
        except CommandError as error:
            if isinstance(error, Unreadable):
                log_unreadable(self.store, error)
            raise
        except StoreError as error:
            return self._when_down(error, client, by)
        self._answered()
        return verdict

    async def require(self, *client: Any, by: int = 1) -> Verdict:
        """As `hit`, but raises LimitReached where the request is refused."""
        verdict = await self.hit(*client, by=by)
        if not verdict:
            raise LimitReached.of(verdict)
        return verdict

    async def peek(self, *client: Any, by: int = 1) -> Verdict:
        """Whether a hit would be let through now, and what is left without it. Nothing is counted. One round trip.

        While the store is down, the error of the store is raised.
        """
        _check(by)
        looks, _, judge = self._steps(self._asked_by(client, by), counted=False)
        return judge((await self.store.atomically(looks)).replies)

    def in_steps(self, *client: Any, by: int = 1) -> tuple[Operation[Verdict], Operation[bool]]:
        """A hit as two operations, for whoever shares one `atomically` with it:

            look, count = limit.in_steps(client)
            done = await keys.atomically(look, count, keys.order(7).add(order))
            verdict = done.values[0] if done else done.before[0]

        `look` gives the verdict; `count` stops the whole where that is no. Put both first. Nothing is sent before they
        are awaited, and `when_down` does not apply: the error of the store is raised.
        """
        _check(by)
        looks, counts, judge = self._steps(self._asked_by(client, by))
        return (
            Compound(self.family, "in_steps", looks, judge, atomic=True),
            Compound(self.family, "in_steps", counts, _true, atomic=True, stopped=False),
        )

    async def reset(self, *client: Any) -> None:
        """Forget what a client has used up. One round trip."""
        await self.store.run([("DEL", key) for key in self._keys(client)])

    async def _hit(self, client: tuple[Any, ...], by: int) -> Verdict:
        keys = self._keys(client)
        if by == 1:
            ask, looked, judge = self._usual or self._prepared(len(keys))
            outcome = await ask(_hits.new(), *[key.encode() for key in keys])
        else:
            looks, counts, judge = self._steps(self._asked([key.encode() for key in keys], by, _hits.new()))
            looked = len(looks)
            outcome = await self.store.atomically([*looks, *counts])
        verdict = judge(outcome.replies[:looked])
        is_done = outcome.stopped_at is None
        # What the store did is what counts.
        return verdict if verdict.allowed is is_done else replace(verdict, allowed=is_done)

    def _prepared(self, keys: int) -> _Usual:
        """The usual hit, of which all but the keys is the same each time."""

        def make(hit: bytes, *keys: bytes) -> list[Step]:
            looks, counts, _ = self._steps(self._asked(keys, 1, hit))
            return [*looks, *counts]

        looks, _, judge = self._steps(self._asked([b"key"] * keys, 1, b"hit"))
        self._usual = self.store.prepared_steps(make, 1 + keys), len(looks), judge
        return self._usual

    def _asked_by(self, client: tuple[Any, ...], by: int) -> Sequence[Asked]:
        return self._asked([key.encode() for key in self._keys(client)], by, _hits.new())

    def _steps(
        self, asked: Sequence[Asked], *, counted: bool = True
    ) -> tuple[list[Step], list[Step], Callable[[list[Reply]], Verdict]]:
        """Everything is read before the first guard, so that a refusal tells all, too."""
        looks: list[Step] = [command for one in asked for command in one.reads]
        counts: list[Step] = [one.guard for one in asked]
        for one in asked:
            counts += one.writes
        if len(asked) == 1:
            judge_one = asked[0].judge
            return looks, counts, lambda replies: judge_one(replies, counted)

        def judge(replies: list[Reply]) -> Verdict:
            found, at = [], 0
            for one in asked:
                found.append(replies[at : at + len(one.reads)])
                at += len(one.reads)
            verdicts = [one.judge(own, counted) for one, own in zip(asked, found, strict=True)]
            if (
                counted and not all(verdicts) and any(verdicts)
            ):  # where one refuses, the others have not counted it either
                verdicts = [one.judge(own, False) for one, own in zip(asked, found, strict=True)]
            return self._judged(verdicts)

        return looks, counts, judge

    @abstractmethod
    def _asked(self, keys: Sequence[bytes], by: int, hit: bytes) -> Sequence[Asked]:
        """What is to be done for a hit; `hit` is a name that no other has."""

    @abstractmethod
    def _judged(self, verdicts: list[Verdict]) -> Verdict: ...

    @abstractmethod
    def _keys(self, client: tuple[Any, ...]) -> list[str]: ...

    @abstractmethod
    def _when_down(self, error: StoreError, client: Hashable, by: int) -> Verdict: ...

    @abstractmethod
    def _answered(self) -> None: ...


class Limit(Limits):
    """One limit on one family of keys.

    rate        how many are let through in which time: `"10/minute"`, `"100 per 60s"`
    when_down   what is said while the store does not answer: `deny` (the default), `allow` (each process counts by
                itself, in its memory) or `raise`
    name        what `RateLimit-Policy` calls it; the name of the family if none is given

    Raises BadDeclaration for a family of another shape, and DoesNotFit for a store that cannot do it in one step.
    """

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
        self.store = family.store
        self._checked()
        self._window_ms = self._described().window_ms
        self._outage = Outage(when_down, self.name, self._described(), family.now_ms)

    def _described(self) -> Rate:
        """How many in which time a process lets through by itself."""
        return self.rate

    @abstractmethod
    def _checked(self) -> None:
        """Raise BadDeclaration or DoesNotFit where this limit cannot be made of this family."""

    def _refuse(self, why: str) -> NoReturn:
        raise BadDeclaration(f"{self.family.family.place}: {why}")

    @abstractmethod
    def _asked_of(self, key: bytes, by: int, hit: bytes) -> Asked: ...

    def _asked(self, keys: Sequence[bytes], by: int, hit: bytes) -> Sequence[Asked]:
        return (self._asked_of(keys[0], by, hit),)

    def _judged(self, verdicts: list[Verdict]) -> Verdict:
        return verdicts[0]

    def _key(self, client: tuple[Any, ...]) -> str:
        key: str = self.family(*client).key
        return key

    def _keys(self, client: tuple[Any, ...]) -> list[str]:
        return [self._key(client)]

    def _when_down(self, error: StoreError, client: Hashable, by: int) -> Verdict:
        return self._outage.verdict(error, client, by)

    def _answered(self) -> None:
        self._outage.is_over()

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


class _Hits:
    """Names for hits that no other has: 72 bits by chance for each process, and a number."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._process, self._numbers = secrets.token_urlsafe(9).encode(), count()

    def new(self) -> bytes:
        return b"%b%x" % (self._process, next(self._numbers))


_hits = _Hits()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hits.begin)  # or both would go on with the same names


def _true(replies: list[Reply]) -> bool:
    return True
