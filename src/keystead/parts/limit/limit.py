"""What all limits have in common: one call, one round trip, one verdict."""

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
from keystead.parts.limit.outage import Outage, WhenDown
from keystead.parts.limit.rate import MOST, Rate
from keystead.parts.limit.verdict import LimitReached, Verdict, least_of
from keystead.schema import Bound, Operation
from keystead.schema.operation import combine
from keystead.schema.prepared_steps import Prepared
from keystead.schema.unreadable import log_unreadable

_POLICIES: Final = ("deny", "allow", "raise")

# What the looks of a hit found, as how many it counts, and whether it is counted where they allow it.
Judge: TypeAlias = Callable[[Sequence[Any], int, bool], Verdict]


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """A hit on one key: what is read, what must hold, what is written if it does, and what it all means."""

    looks: Sequence[Operation[Any]]
    guard: Operation[bool]
    writes: Sequence[Operation[Any]]
    judge: Judge


class Limits:
    """One limit, or several that count as one."""

    family: Bound[Any]  # the first one

    def __init__(self, *limits: Limit) -> None:
        self.limits = limits
        self.family = limits[0].family
        self.store = self.family.store
        self._usual: tuple[Prepared, Judge] | None = None
        self._keeps_hits = any(limit.keeps_hits for limit in limits)

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
        asked = self._asked(self._keys(client), by)
        for one in _counts(asked):
            one.close()
        return await _look("peek", asked, by, counted=False)

    def in_steps(self, *client: Any, by: int = 1) -> tuple[Operation[Verdict], Operation[bool]]:
        """A hit as two operations, for whoever shares one `atomically` with it:

            look, count = limit.in_steps(client)
            done = await keys.atomically(look, count, keys.order(7).add(order))
            verdict = done.values[0] if done else done.before[0]

        `look` gives the verdict; `count` stops the whole where that is no. Put both first. Nothing is sent before they
        are awaited, and `when_down` does not apply: the error of the store is raised.
        """
        _check(by)
        asked = self._asked(self._keys(client), by)
        return _look("in_steps", asked, by, counted=True), combine("in_steps", _counts(asked), _true, stopped=False)

    async def reset(self, *client: Any) -> None:
        """Forget what a client has used up. One round trip."""
        await self.family.keyspace.run(*[key.delete() for key in self._keys(client)])

    async def _hit(self, client: tuple[Any, ...], by: int) -> Verdict:
        if by == 1:  # with every request: so it is prepared
            usual, judge = self._usual or self._prepare()
            names = [limit.family.render(*client).encode() for limit in self.limits]
            if self._keeps_hits:
                names.append(_hits.new())
            outcome = await usual.ask(*names)
            return as_counted(judge(usual.found(outcome, names), 1, True), outcome.stopped_at is None)
        done = await self.family.keyspace.atomically(*self.in_steps(*client, by=by))
        return as_counted(done.values[0] if done else done.before[0], bool(done))

    def _prepare(self) -> tuple[Prepared, Judge]:
        """The usual hit, of which all but the names is the same each time."""
        judges: list[Judge] = []

        def make(*given: Any) -> tuple[list[Operation[Any]], list[Operation[Any]]]:
            asked = self._asked(given[: len(self.limits)], 1, given[-1] if self._keeps_hits else "")
            judges[:] = [_judge_for(asked)]
            return _looks(asked), _counts(asked)

        count = Prepared([limit.family for limit in self.limits], make, texts=int(self._keeps_hits))
        self._usual = count, judges[0]
        return self._usual

    def _asked(self, keys: Sequence[Any], by: int, hit: str = "") -> list[LimitCheck]:
        """What is to be done for a hit; `hit` is a name that no other has."""
        hit = hit or _hits.new().decode()
        return [limit._asked_of(key, by, hit) for limit, key in zip(self.limits, keys, strict=True)]

    def _keys(self, client: tuple[Any, ...]) -> list[Any]:
        return [limit._key(client) for limit in self.limits]

    def _when_down(self, error: StoreError, client: Hashable, by: int) -> Verdict:
        return least_of([limit._outage.verdict(error, client, by) for limit in self.limits])


class Limit(Limits, ABC):
    """One limit on one family of keys.

    rate        how many are let through in which time: `"10/minute"`, `"100 per 60s"`
    when_down   what is said while the store does not answer: `deny` (the default), `allow` (each process counts by
                itself, in its memory) or `raise`
    name        what `RateLimit-Policy` calls it; the name of the family if none is given

    Raises BadDeclaration for a family of another shape, and DoesNotFit for a store that cannot do it in one step.
    """

    keeps_hits: ClassVar[bool] = False  # whether each hit has an entry of its own, by its name

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
    def _asked_of(self, key: Any, by: int, hit: str) -> LimitCheck: ...

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


def _look(verb: str, asked: Sequence[LimitCheck], by: int, *, counted: bool) -> Operation[Verdict]:
    judge = _judge_for(asked)
    return combine(verb, _looks(asked), lambda *found: judge(found, by, counted))


def as_counted(verdict: Verdict, is_counted: bool) -> Verdict:
    """What the store did is what counts."""
    return verdict if verdict.allowed is is_counted else replace(verdict, allowed=is_counted)


def _looks(asked: Sequence[LimitCheck]) -> list[Operation[Any]]:
    # Everything is read before the first guard, so that a refusal tells all, too.
    return [look for one in asked for look in one.looks]


def _counts(asked: Sequence[LimitCheck]) -> list[Operation[Any]]:
    return [*(one.guard for one in asked), *(write for one in asked for write in one.writes)]


def _judge_for(asked: Sequence[LimitCheck]) -> Judge:
    """What is said of a hit on several limits: what the one says that lets the least through."""
    if len(asked) == 1:
        return asked[0].judge
    judges = [(one.judge, len(one.looks)) for one in asked]

    def judge(found: Sequence[Any], by: int, counted: bool) -> Verdict:
        verdicts, at = [], 0
        for one, looks in judges:
            verdicts.append(one(found[at : at + looks], by, counted))
            at += looks
        if counted and not all(verdicts) and any(verdicts):  # where one refuses, the others have not counted it either
            return judge(found, by, False)
        return least_of(verdicts)

    return judge


def _true(*results: Any) -> bool:
    return True
