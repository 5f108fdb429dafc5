"""Every interleaving of a load and a change: a value read before the change is never found after it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import pytest

from keystead import Store
from keystead.parts.cache import Cache, CacheResult, LoadFailed, single_flight
from tests.parts.cache.conftest import (
    CacheKeys,
    Membership,
    Provider,
    StaleKeys,
    cache_of,
    everywhere,
    here,
    in_every_store,
)
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order

PRO, FREE = Membership(plan="Pro"), Membership(plan="Free")


def same_keys(keys: CacheKeys, store: Store) -> Any:
    return type(keys)(store)


async def nobody_waits(seconds: float) -> None:
    pass


# --- state when the load starts --------------------------------------------------------------------------------


async def nothing_there(keys: CacheKeys) -> None:
    pass


async def an_entry(keys: CacheKeys) -> None:
    await cache_of(keys).put(keys.membership("7"), PRO)


async def only_a_stale_copy(keys: CacheKeys) -> None:
    await an_entry(keys)
    await keys.membership("7").delete()


async def nonsense(keys: CacheKeys) -> None:
    key = keys.membership("7")
    await key.bound.store.run([("SET", key.key, "{nonsense", "PX", 60_000)])


async def nothing_known(keys: CacheKeys) -> None:
    nothing = Provider()
    nothing.says = None
    await cache_of(keys).get(keys.membership("7"), nothing)


async def nobody(keys: CacheKeys) -> None:
    """The provider has nothing, until the change."""
    await keys.truth("7").delete()


# --- concurrent changes ------------------------------------------------------------------------------------------


async def drop(keys: CacheKeys, cache: Cache[Membership]) -> None:
    await keys.truth("7").set(FREE)
    await cache.invalidate(keys.membership("7"))


async def drop_in_one_step(keys: CacheKeys, cache: Cache[Membership]) -> None:
    await keys.atomically(keys.truth("7").set(FREE), cache.invalidate(keys.membership("7")))


async def put(keys: CacheKeys, cache: Cache[Membership]) -> None:
    await keys.truth("7").set(FREE)
    await cache.put(keys.membership("7"), FREE)


async def drop_and_ask(keys: CacheKeys, cache: Cache[Membership]) -> None:
    await drop(keys, cache)
    assert await unless_busy(cache.get(keys.membership("7"), keys.truth("7").get)) in (FREE, "busy")


async def refresh(keys: CacheKeys, cache: Cache[Membership]) -> None:
    await keys.truth("7").set(FREE)
    if await unless_busy(cache.refresh(keys.membership("7"), keys.truth("7").get)) != FREE:
        await cache.invalidate(keys.membership("7"))


async def unless_busy(asked: Awaitable[Any]) -> Any:
    """The result. A caller that polled three times while the other one is blocked gives up, as it should."""
    try:
        return await asked
    except LoadFailed as failed:
        return "busy" if failed.why == "TimeoutError" else failed


Change = Callable[[CacheKeys, Cache[Membership]], Awaitable[None]]


async def every_order_of(
    keys: CacheKeys, there: Any, change: Change, *, refreshes: bool, switches: int | None = None
) -> int:
    """Load and change concurrently, in every interleaving of their calls to the store; returns their number."""

    async def once(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        own = cache_of(keys)
        await own.invalidate(keys.membership("7"))
        await keys.truth("7").set(PRO)
        await there(keys)
        gated = Gated(keys.membership("7").bound.store)
        theirs, ours = same_keys(keys, gated), same_keys(keys, gated)
        loading, changing = cache_of(theirs, wait=nobody_waits), cache_of(ours, wait=nobody_waits)

        async def load() -> None:
            asked = loading.refresh if refreshes else loading.get
            found = await unless_busy(asked(theirs.membership("7"), theirs.truth("7").get))
            assert found in (None, PRO, FREE, "busy")

        async def changes() -> None:
            await change(ours, changing)

        order, _ = await in_order(gated, {"a": load, "b": changes}, first)
        if isinstance(keys, StaleKeys):
            assert await keys.stale("7").get() in (None, FREE)
        assert (await own.answer(keys.membership("7"), keys.truth("7").get)).value == FREE
        return order

    return await every_order(once, switches=switches)


@in_every_store
@pytest.mark.parametrize(
    ("there", "change"),
    [(only_a_stale_copy, drop), (only_a_stale_copy, put), (nobody, drop)],
    ids=["drop", "put", "nobody"],
)
async def test_no_load_that_began_before_a_change_is_found_after_it(
    keys: CacheKeys, there: Any, change: Change
) -> None:
    assert await every_order_of(keys, there, change, refreshes=False) >= 10


@in_every_store
async def test_no_refresh_that_began_before_a_drop_is_found_after_it(keys: CacheKeys) -> None:
    assert await every_order_of(keys, an_entry, drop, refreshes=True) >= 6


@everywhere
async def test_invalidation_in_one_step_with_the_change_is_atomic(keys: CacheKeys) -> None:
    assert await every_order_of(keys, nothing_there, drop_in_one_step, refreshes=False) >= 4


@here
@pytest.mark.parametrize("there", [nothing_there, nonsense, nothing_known, nobody], ids=lambda one: one.__name__)
@pytest.mark.parametrize("change", [drop, put, drop_and_ask, refresh], ids=lambda one: one.__name__)
async def test_it_holds_for_every_initial_state(
    keys: CacheKeys, there: Any, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_flight, "_FIRST_PAUSE_MS", 10_000)  # so that waiting callers poll three times
    monkeypatch.setattr(single_flight, "_LONGEST_PAUSE_MS", 10_000)
    refreshes = there is nothing_known
    assert await every_order_of(keys, there, change, refreshes=refreshes, switches=4) >= 6


# --- callers that join after the change ----------------------------------------------------------------------------


class Stops(Relay):
    """Blocks before one of its calls, until it is released."""

    def __init__(self, inner: Store, at: int) -> None:
        super().__init__(inner)
        self._calls = count()
        self._at = at
        self.stopped = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def before(self) -> None:
        if next(self._calls) == self._at:
            self.stopped.set()
            await self.may_go_on.wait()


@in_every_store
@pytest.mark.parametrize("at", range(5))
async def test_reads_after_an_invalidation_never_get_an_older_value(keys: CacheKeys, at: int) -> None:
    await keys.truth("7").set(PRO)
    stops = Stops(keys.membership("7").bound.store, at)
    theirs = same_keys(keys, stops)
    cache = cache_of(theirs)
    early = asyncio.create_task(cache.get(theirs.membership("7"), theirs.truth("7").get))
    stopped = asyncio.create_task(stops.stopped.wait())
    await asyncio.wait((early, stopped), return_when=asyncio.FIRST_COMPLETED)
    await drop(keys, cache_of(keys))
    late = [asyncio.create_task(cache.get(theirs.membership("7"), theirs.truth("7").get)) for _ in range(3)]
    for _ in range(50):
        await asyncio.sleep(0)
    stops.may_go_on.set()
    assert await asyncio.gather(*late) == [FREE] * 3
    assert await early in (PRO, FREE)
    stopped.cancel()
    found = await cache_of(keys).answer(keys.membership("7"), keys.truth("7").get)
    assert found == CacheResult(FREE, "hit")


@in_every_store
async def test_a_load_with_repeated_invalidations_ends(keys: CacheKeys, cache: Cache[Membership]) -> None:
    calls = count(1)

    async def load() -> Membership:
        plan = str(next(calls))
        await cache_of(keys).invalidate(keys.membership("7"))
        return Membership(plan=plan)

    assert await cache.get(keys.membership("7"), load) == Membership(plan="2")
    assert cache.counts.refused == 2
    assert await keys.membership("7").exists() is False


@in_every_store
async def test_a_load_that_outlived_its_marker_writes_nothing(keys: CacheKeys) -> None:
    """As after a process was suspended and resumed: others have loaded since."""
    provider = Provider()
    provider.may_answer.clear()
    slow = asyncio.create_task(cache_of(keys).get(keys.membership("7"), provider))
    await provider.was_asked.wait()
    inside = keys.membership("7").bound.store.guarantees.atomic == "one key"
    mark = keys.membership("7") if inside else keys.mark("7")
    await mark.bound.store.run([("DEL", mark.key)])  # what its end does
    assert await cache_of(keys).get(keys.membership("7"), Provider(FREE)) == FREE
    provider.may_answer.set()
    assert await slow == FREE  # what is there now
    assert await keys.membership("7").get() == FREE
