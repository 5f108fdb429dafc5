"""Distributed lock with a lease and fencing tokens: one holder at a time; the lock expires if its holder dies."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict

from keystead.errors import BadDeclaration, BadValue, DoesNotFit, KeysteadError
from keystead.parts.companions import beside, tag_of
from keystead.parts.sanitize import visible
from keystead.schema import Counter, OmittedIfNone, Operation, Steps, Value, procedure, sliding
from keystead.schema.kinds import CounterKey, Seen, ValueKey
from keystead.schema.lifetime import Never, Sliding, duration_ms
from keystead.schema.slots import spans_keys
from keystead.schema.store_fit import misfits_beside
from keystead.stores import Guarantees

__all__ = ["HeldBy", "Hold", "Holder", "Lock", "LockHeld", "LockLost", "Locked"]

_MAX_BY: Final = 200
_MAX_COMMENT: Final = 500
_FIRST_PAUSE_S: Final = 0.01  # between two attempts to get a lock that is held
_LONGEST_PAUSE_S: Final = 0.25
_SHORTEST_LEASE_MS: Final = 1_000
_FENCE_DOC: Final = "The fencing token of the last holder: it only grows."


class Holder(BaseModel):
    """Who holds a lock, as it is stored."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    id: str
    """unique for each hold: only this hold can be refreshed or released with it"""
    by: str
    """who: `user:42`, `import/7`"""
    since_ms: int
    """since when, by the clock of the holder"""
    comment: OmittedIfNone[str] = None
    """the purpose, for people"""


@dataclass(frozen=True)
class HeldBy:
    """The lock is already held. It is falsy; a `Hold` is truthy.

    by         the holder
    since_ms   since when, by the clock of the holder
    comment    the purpose, if the holder gave one
    """

    by: str
    since_ms: int
    comment: str | None = None

    def __bool__(self) -> Literal[False]:
        return False


class LockHeld(KeysteadError):
    """The lock is held by another holder. `held` has the holder, the time and the purpose."""

    code = "lock-held"

    def __init__(self, held: HeldBy) -> None:
        what = f" ({held.comment})" if held.comment else ""
        super().__init__(f"the lock is held by {held.by}{what}; wait until it is released")
        self.held = held


class LockLost(KeysteadError):
    """The lock expired or was taken away: another holder may have it now."""

    code = "lock-lost"

    def __init__(self, by: str) -> None:
        super().__init__(f"{by} lost the lock before the work was done; another holder may have acquired it")


class Locked(Value[Holder]):
    """A family of locks, in one declaration: `site_lock = Locked("lock:site:{site:int}", lease="2m")`.

    Its keyspace also gets `site_lock_fence`, the fencing tokens.

    lease   how long after its last refresh a lock expires, if its holder died. A quarter of it is the time between two
            refreshes
    tag     the hash tag in a cluster; by default the first placeholder
    """

    def __init__(
        self,
        pattern: str,
        *,
        lease: str | timedelta = "1m",
        role: str = "default",
        tag: str | None = None,
        member_of: str | None = None,
        doc: str = "The holder of a lock.",
        used_by: Sequence[str] = (),
        naming_exempt: str | None = None,
    ) -> None:
        lease_ms = duration_ms(lease, f"{pattern}: lease")
        if lease_ms < _SHORTEST_LEASE_MS:
            raise BadDeclaration(f"{pattern}: a lease lasts at least a second, or a busy holder would lose it")
        shared: dict[str, Any] = {
            "role": role,
            "tag": tag or tag_of(pattern),
            "member_of": member_of,
            "used_by": used_by,
        }
        if naming_exempt is not None:
            shared["naming_exempt"] = naming_exempt
        lifetime = sliding(timedelta(milliseconds=lease_ms), touch_every=timedelta(milliseconds=lease_ms // 4))
        super().__init__(pattern, Holder, lifetime=lifetime, doc=doc, **shared)
        self.companions["fence"] = Counter(
            beside(pattern, "fence"), lifetime=sliding("400d", touch_every="1d"), doc=_FENCE_DOC, **shared
        )

    def further_misfits(self, guarantees: Guarantees) -> Iterator[str]:
        yield from misfits_beside(self.pattern, guarantees)


class Lock:
    """One lock: `Lock(keys.site_lock(7))` for a family `Locked`, or `Lock(keys.lock(7), keys.lock_fence(7))`.

        class AppKeys(Keyspace):
            lock = Value("lock:{site:int}", Holder, lifetime=sliding("120s", touch_every="30s"), tag="site", …)
            lock_fence = Counter("lock:{site:int}:fence", lifetime=sliding("400d", touch_every="1d"), tag="site", …)

    holder   the key of the holder. Its lifetime is the lease: it expires 120 s after the last refresh, by the clock of
             the store, and a refresh is due every 30 s
    fence    the fencing token of the last hold. It only grows, across releases and holders that died; it outlives
             both, and if the counter is lost it restarts at the time in ms, which is higher than it was

    Acquire, refresh and release are one atomic step and one round trip each. The keyspace's clock tells when a refresh
    is due; `wait` is for tests. Raises BadDeclaration for families of another shape, and DoesNotFit for a store without
    atomic steps on two keys. On a cluster both keys need one slot: give both families the same `tag`.
    """

    def __init__(
        self,
        holder: ValueKey[Holder],
        fence: CounterKey | None = None,
        *,
        wait: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        if fence is None and isinstance(holder, ValueKey):
            fences = holder.bound.companion("fence")
            fence = None if fences is None else fences(**holder.values)
        self._lifetime = _check_lifetime(holder, fence)
        self._holder = holder
        self._fence = cast("CounterKey", fence)
        self._now_ms = holder.bound.now_ms
        self._wait = wait

    async def acquire(self, by: str, comment: str = "") -> Hold | HeldBy:
        """Acquire the lock, or return its holder. Of several callers one gets a hold. One round trip, atomic.

        The caller must refresh and release the hold; `holding` does both. If the store's reply is lost
        (StoreUnavailable), the lock may be held without its holder knowing; it is free 120 s later. `by` and `comment`
        are for people: long texts are cut, invisible characters escaped.
        """
        if not by:
            raise BadValue("a lock needs the name of its holder, as in acquire('user:42')")
        asked_ms = self._now_ms()
        holder = Holder(
            id=secrets.token_hex(16),
            by=visible(by, _MAX_BY),
            since_ms=asked_ms,
            comment=visible(comment, _MAX_COMMENT) if comment else None,
        )
        seen = self._holder.as_seen(holder)
        try:
            done = await self._take(holder)
        except asyncio.CancelledError:
            with suppress(KeysteadError):  # it may have taken effect
                await self._release(seen)
            raise
        return Hold(self, seen, done.value, asked_ms) if done else _held_by(done.before[0])

    async def holder(self) -> HeldBy | None:
        """The current holder, or None. It may change a moment later. One round trip."""
        found = await self._holder.get()
        return None if found is None else _held_by(found)

    @asynccontextmanager
    async def holding(self, by: str, comment: str = "", *, wait: str | timedelta | None = None) -> AsyncIterator[Hold]:
        """Hold the lock for a block of work: refresh it every 30 s, and release it at the end.

        Raises LockHeld if another holder has it, and still has it after `wait`. There is no queue: whoever tries first
        when it is released gets it. If the lock is lost, the block is cancelled and LockLost is raised; a
        block that ends without an error has held the lock to its end. During a store outage the block continues until
        the lock would expire.
        """
        hold = await self._acquire_within(0 if wait is None else duration_ms(wait, "wait") / 1000, by, comment)
        refresher = _Refresher(hold, self._wait)
        try:
            yield hold
        except BaseException as error:
            lost = await refresher.stop()
            if lost and isinstance(error, asyncio.CancelledError) and not refresher.is_cancelled_by_others:
                raise LockLost(hold.by) from None
            with suppress(KeysteadError):  # the error of the block matters more; the lock expires
                await hold.release()
            raise
        if await refresher.stop() or not await hold.release():
            raise LockLost(hold.by)

    async def _acquire_within(self, patience_s: float, by: str, comment: str) -> Hold:
        deadline, pause_s = time.monotonic() + patience_s, _FIRST_PAUSE_S
        while isinstance(hold := await self.acquire(by, comment), HeldBy):
            if time.monotonic() >= deadline:
                raise LockHeld(hold)
            await self._wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return hold

    @procedure
    def _take(self, holder: Holder) -> Steps[int]:
        up = self._fence.increment()
        return Steps(
            self._holder.get(),  # the current holder, if the next step fails
            self._holder.add(holder).otherwise("held"),
            self._fence.start_at(holder.since_ms),
            up,
        ).giving(up)

    # The stored value identifies the hold, so it cannot refresh or release another one.
    @procedure
    def _refresh(self, seen: Seen[Holder]) -> Steps[None]:
        return Steps(self._holder.holds(seen), self._holder.touch().required())

    @procedure
    def _release(self, seen: Seen[Holder]) -> Steps[None]:
        return Steps(self._holder.holds(seen), self._holder.delete())


class Hold:
    """A lock that is held, until it is released or expires.

    by, comment, since_ms   as others see them
    fence                   fencing token, higher than that of every earlier hold: pass it to the protected resource,
                            which refuses tokens lower than it has seen, because a paused holder does not know that it
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
        """Until when it is certainly held, by the clock of the keyspace, unless it is taken away."""
        return self._refreshed_ms + self._lock._lifetime.ms

    @property
    def refresh_due_ms(self) -> int:
        return self._refreshed_ms + self._lock._lifetime.touch_every_ms

    async def refresh(self) -> bool:
        """Extend the lease by 120 s. False: the hold has ended, another may have begun. One round trip, atomic."""
        asked_ms = self._lock._now_ms()
        if self._over or not await self._lock._refresh(self._seen):
            self._over = True
            return False
        self._refreshed_ms = asked_ms
        return True

    async def keep(self) -> bool:
        """Refresh if the last refresh was 30 s ago; call it in each iteration of a loop.

        False: the hold has ended. In between it makes no round trip and returns the last known state.
        """
        return await self.refresh() if self._lock._now_ms() >= self.refresh_due_ms else not self._over

    async def release(self) -> bool:
        """Release the lock. False: the hold had already ended; a later holder keeps it. One round trip, atomic."""
        if self._over or not await self._lock._release(self._seen):
            self._over = True
            return False
        self._over = True
        return True

    def guard(self) -> Operation[bool]:
        """For `atomically`: if this hold has lost the lock, the whole step has no effect.

        So a write to the same store needs no fencing token. On a cluster it must be in the slot of the lock.
        """
        return self._lock._holder.holds(self._seen)


class _Refresher:
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
        self._refreshing = asyncio.create_task(self._refresh_until_lost(), name="keystead lock")

    async def _refresh_until_lost(self) -> None:
        while await self._wait_and_refresh():
            pass
        self._lost = True
        self._work.cancel()

    async def _wait_and_refresh(self) -> bool:
        now_ms, hold = self._hold._lock._now_ms, self._hold
        pause_ms = min(hold.refresh_due_ms - hold._refreshed_ms, max(0, hold.good_until_ms - now_ms()))
        await self._wait(pause_ms / 1000)
        try:
            return await hold.refresh()
        except KeysteadError:  # an outage, or a closed store: the block must be cancelled
            return now_ms() < hold.good_until_ms

    async def stop(self) -> bool:
        """Stop refreshing. True: the hold was lost, and the task cancelled."""
        self._refreshing.cancel()
        if self._lost:
            with suppress(asyncio.CancelledError):  # a late cancellation must not hit later code
                await asyncio.sleep(0)
            self._work.uncancel()
        return self._lost

    @property
    def is_cancelled_by_others(self) -> bool:
        return self._work.cancelling() > self._cancelled_before


def _held_by(holder: Holder) -> HeldBy:
    return HeldBy(holder.by, holder.since_ms, holder.comment)


def _check_lifetime(holder: Any, fence: Any) -> Sliding:
    """The lifetime of a hold. Raises BadDeclaration or DoesNotFit if these keys do not fit a lock."""
    if not isinstance(holder, ValueKey) or holder.bound.family.codec.type is not Holder:
        raise BadDeclaration("a lock needs a key of a family Value(…, Holder, …), as in Lock(keys.lock(7), …)")
    if not isinstance(fence, CounterKey):
        raise BadDeclaration("the fencing token of a lock needs a key of a family Counter(…), as in keys.lock_fence(7)")
    lifetime = holder.bound.family.lifetime
    if not isinstance(lifetime, Sliding):
        raise BadDeclaration(
            f"{holder.bound.family.place}: a lock needs a lease length and a refresh interval, "
            'as in sliding("120s", touch_every="30s")'
        )
    if not isinstance(fence.bound.family.lifetime, Never | Sliding):
        raise BadDeclaration(
            f"{fence.bound.family.place}: a fencing token must outlive every hold, as in never(…) or "
            'sliding("400d", touch_every="1d")'
        )
    store = holder.bound.store
    if fence.bound.store is not store:
        raise DoesNotFit("a lock and its fencing token must be in one store; give their families the same role")
    if not spans_keys(store):
        raise DoesNotFit(f"a lock does not fit {store.url}: a lock needs atomic steps on two keys")
    return lifetime
