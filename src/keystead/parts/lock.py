"""Lock, as a part: one holder at a time, a number that only grows, and an end where the holder is gone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from keystead.errors import BadDeclaration, BadValue, DoesNotFit, KeysteadError
from keystead.parts.sanitize import visible
from keystead.schema import OmittedIfNone, Operation, Steps, procedure
from keystead.schema.kinds import CounterKey, Seen, ValueKey
from keystead.schema.lifetime import Never, Sliding
from keystead.schema.slots import spans_keys

__all__ = ["HeldBy", "Hold", "Holder", "Lock", "LockHeld", "LockLost"]

_LONGEST_BY: Final = 200
_LONGEST_COMMENT: Final = 500


class Holder(BaseModel):
    """Who holds a lock, as it is stored."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    id: str
    """made anew for each hold, so that nobody refreshes or releases the hold of another, or one that is over"""
    by: str
    """who: `user:42`, `import/7`"""
    since_ms: int
    """since when, by the clock of the holder"""
    comment: OmittedIfNone[str] = None
    """what for, for people"""


@dataclass(frozen=True)
class HeldBy:
    """The lock is held already. It is false where a hold is true.

    by         who holds it
    since_ms   since when, by the clock of the holder
    comment    what for, where the holder says so
    """

    by: str
    since_ms: int
    comment: str | None = None

    def __bool__(self) -> Literal[False]:
        return False


class LockHeld(KeysteadError):
    """Somebody else holds the lock. `held` says who, since when and what for."""

    code = "lock-held"

    def __init__(self, held: HeldBy) -> None:
        what = f" ({held.comment})" if held.comment else ""
        super().__init__(f"this is locked by {held.by}{what}; wait until it is released")
        self.held = held


class LockLost(KeysteadError):
    """The lock was not refreshed in time, or was taken away: somebody else may hold it by now."""

    code = "lock-lost"

    def __init__(self, by: str) -> None:
        super().__init__(f"{by} lost the lock before the work was done; somebody else may have begun meanwhile")


class Lock:
    """One lock: `Lock(keys.lock(7), keys.lock_fence(7))`.

        class AppKeys(Keyspace):
            lock = Value("lock:{site:int}", Holder, lifetime=sliding("120s", touch_every="30s"), tag="site", …)
            lock_fence = Counter("lock:{site:int}:fence", lifetime=sliding("400d", touch_every="1d"), tag="site", …)

    holder   says who holds it. Its lifetime says that the lock is free 120 s after the last refresh, by the clock of
             the store, and that a refresh is due every 30 s
    fence    the number of the last hold. It only grows, over releases and over holders that vanished; it outlives
             both, and where it was forgotten it begins at the time in ms, which is beyond what it was

    Acquiring, refreshing and releasing are one atomic step and one round trip each. The clock of the keyspace tells
    when a refresh is due; `wait` is for tests. Raises BadDeclaration for families of another shape, and DoesNotFit for
    a store that has no atomic step on two keys. On a cluster both keys need one slot: give both families that `tag`.
    """

    def __init__(
        self,
        holder: ValueKey[Holder],
        fence: CounterKey,
        *,
        wait: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._lifetime = _checked(holder, fence)
        self._holder = holder
        self._fence = fence
        self._now_ms = holder.bound.now_ms
        self._wait = wait

    async def acquire(self, by: str, comment: str = "") -> Hold | HeldBy:
        """Take the lock, or learn who has it. Of several callers one gets a hold. One round trip, atomic.

        Whoever gets it refreshes it, and releases it in the end: `holding` does both. Where the answer of the store is
        lost (StoreUnavailable), the lock may be held by nobody who knows; it is free 120 s later. `by` and `comment`
        are for people: long texts are cut, and what cannot be seen is written out.
        """
        if not by:
            raise BadValue("who takes a lock says who it is, as in acquire('user:42')")
        asked_ms = self._now_ms()
        holder = Holder(
            id=secrets.token_hex(16),
            by=visible(by, _LONGEST_BY),
            since_ms=asked_ms,
            comment=visible(comment, _LONGEST_COMMENT) if comment else None,
        )
        seen = self._holder.as_seen(holder)
        try:
            done = await self._take(holder)
        except asyncio.CancelledError:
            with suppress(KeysteadError):  # it may have taken effect, and nobody would know
                await self._release(seen)
            raise
        return Hold(self, seen, done.value, asked_ms) if done else _held_by(done.before[0])

    async def holder(self) -> HeldBy | None:
        """Who holds it; None: nobody does. It may be another a moment later. One round trip."""
        found = await self._holder.get()
        return None if found is None else _held_by(found)

    @asynccontextmanager
    async def holding(self, by: str, comment: str = "") -> AsyncIterator[Hold]:
        """Hold the lock for a block of work: it is refreshed every 30 s meanwhile, and released at the end.

        Raises LockHeld where somebody else has it. A hold that is lost in the midst cancels the block and raises
        LockLost; a block that ends without an error has held the lock to its end. While the store is away the block
        goes on until the lock would be free.
        """
        hold = await self.acquire(by, comment)
        if isinstance(hold, HeldBy):
            raise LockHeld(hold)
        keeper = _Keeper(hold, self._wait)
        try:
            yield hold
        except BaseException as error:
            lost = await keeper.stop()
            if lost and isinstance(error, asyncio.CancelledError) and not keeper.is_cancelled_by_others:
                raise LockLost(hold.by) from None
            with suppress(KeysteadError):  # what happened in the block is what counts; the lock ends by itself
                await hold.release()
            raise
        if await keeper.stop() or not await hold.release():
            raise LockLost(hold.by)

    @procedure
    def _take(self, holder: Holder) -> Steps[int]:
        up = self._fence.increment()
        return Steps(
            self._holder.get(),  # who has it, where the next step stops the whole
            self._holder.add(holder).otherwise("held"),
            self._fence.start_at(holder.since_ms),
            up,
        ).giving(up)

    # The value says whose hold it is, so nobody refreshes or releases that of another.
    @procedure
    def _refresh(self, seen: Seen[Holder]) -> Steps[None]:
        return Steps(self._holder.holds(seen), self._holder.touch().required())

    @procedure
    def _release(self, seen: Seen[Holder]) -> Steps[None]:
        return Steps(self._holder.holds(seen), self._holder.delete())


class Hold:
    """A lock that is held, until it is released or was not refreshed in time.

    by, comment, since_ms   as others see them
    fence                   higher than that of every hold before: give it to whatever the lock protects, and let that
                            refuse a lower one than it has seen, because a holder that was asleep does not know that it
                            lost the lock
    """

    def __init__(self, lock: Lock, seen: Seen[Holder], fence: int, asked_ms: int) -> None:
        self._lock = lock
        self._seen = seen
        self._refreshed_ms = asked_ms
        self._over = False
        self.fence: Final = fence
        self.by: Final = seen.value.by
        self.comment: Final = seen.value.comment
        self.since_ms: Final = seen.value.since_ms

    @property
    def good_until_ms(self) -> int:
        """Until when it is surely held, by the clock of the keyspace, if nobody takes it away."""
        return self._refreshed_ms + self._lock._lifetime.ms

    @property
    def refresh_due_ms(self) -> int:
        return self._refreshed_ms + self._lock._lifetime.touch_every_ms

    async def refresh(self) -> bool:
        """Hold it for another 120 s. False: it is over, and somebody else may hold it. One round trip, atomic."""
        asked_ms = self._lock._now_ms()
        if self._over or not await self._lock._refresh(self._seen):
            self._over = True
            return False
        self._refreshed_ms = asked_ms
        return True

    async def keep(self) -> bool:
        """Refresh it if the last time is 30 s ago, so that a loop can call this each time round.

        False: it is over. In between it asks nobody, and says what it knows.
        """
        return await self.refresh() if self._lock._now_ms() >= self.refresh_due_ms else not self._over

    async def release(self) -> bool:
        """Give it back. False: it was over already, and whoever holds it now goes on. One round trip, atomic."""
        if self._over or not await self._lock._release(self._seen):
            self._over = True
            return False
        self._over = True
        return True

    def guard(self) -> Operation[bool]:
        """For `atomically`: where the lock is not held by this hold any more, nothing of the whole takes effect.

        So a write to the store of the lock needs no fencing number. On a cluster it must be in the slot of the lock.
        """
        return self._lock._holder.holds(self._seen)


class _Keeper:
    """Refreshes a hold beside the task that made it, and cancels that task when the hold is lost."""

    def __init__(self, hold: Hold, wait: Callable[[float], Awaitable[Any]]) -> None:
        task = asyncio.current_task()
        if task is None:  # pragma: no cover - coroutines run in tasks
            raise RuntimeError("a lock is held by a task")
        self._hold = hold
        self._wait = wait
        self._work = task
        self._cancelled_before = task.cancelling()
        self._lost = False
        self._keeping = asyncio.create_task(self._kept(), name="keystead lock")

    async def _kept(self) -> None:
        while await self._refreshed():
            pass
        self._lost = True
        self._work.cancel()

    async def _refreshed(self) -> bool:
        now_ms, hold = self._hold._lock._now_ms, self._hold
        pause_ms = min(hold.refresh_due_ms - hold._refreshed_ms, max(0, hold.good_until_ms - now_ms()))
        await self._wait(pause_ms / 1000)
        try:
            return await hold.refresh()
        except KeysteadError:  # a store that is away, and one that was closed, too: the block has to learn of it
            return now_ms() < hold.good_until_ms

    async def stop(self) -> bool:
        """Refresh no more; whether the hold was lost, and the task cancelled for that."""
        self._keeping.cancel()
        if self._lost:
            with suppress(asyncio.CancelledError):  # it may not have arrived yet, and must not hit what comes after
                await asyncio.sleep(0)
            self._work.uncancel()
        return self._lost

    @property
    def is_cancelled_by_others(self) -> bool:
        return self._work.cancelling() > self._cancelled_before


def _held_by(holder: Holder) -> HeldBy:
    return HeldBy(holder.by, holder.since_ms, holder.comment)


def _checked(holder: Any, fence: Any) -> Sliding:
    """The lifetime of a hold. Raises BadDeclaration or DoesNotFit where a lock cannot be made of these keys."""
    if not isinstance(holder, ValueKey) or holder.bound.family.codec.type is not Holder:
        raise BadDeclaration("a lock is held in a key of a family Value(…, Holder, …), as in Lock(keys.lock(7), …)")
    if not isinstance(fence, CounterKey):
        raise BadDeclaration("the fencing number of a lock is a key of a family Counter(…), as in keys.lock_fence(7)")
    lifetime = holder.bound.family.lifetime
    if not isinstance(lifetime, Sliding):
        raise BadDeclaration(
            f"{holder.bound.family.place}: the lifetime of a lock says when it is free and how often it is refreshed, "
            'as in sliding("120s", touch_every="30s")'
        )
    if not isinstance(fence.bound.family.lifetime, Never | Sliding):
        raise BadDeclaration(
            f"{fence.bound.family.place}: a fencing number outlives every hold, as in never(…) or "
            'sliding("400d", touch_every="1d")'
        )
    store = holder.bound.store
    if fence.bound.store is not store:
        raise DoesNotFit("a lock and its fencing number live in one store; give their families one role")
    if not spans_keys(store):
        raise DoesNotFit(f"a lock does not fit {store.url}: it is taken in one atomic step on two keys")
    return lifetime
