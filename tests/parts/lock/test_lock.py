"""The lock: one holder at a time, a lease that expires, and a fencing token that only grows."""

import asyncio
import json
from functools import partial

import pytest

from keystead import Counter, Keyspace, Store, Value, after, connect, never, sliding
from keystead.errors import BadDeclaration, BadValue, DoesNotFit, KeysteadError, StoreClosed, StoreUnavailable
from keystead.parts.lock import HeldBy, Hold, Holder, Lock, LockHeld, LockLost
from tests.kits.sharing.visiting import Clock
from tests.parts.lock.conftest import LockKeys, Waits, everywhere, held, here, let_it_run_out, lock_of, until


@everywhere
async def test_of_fifty_callers_one_gets_the_lock_and_the_others_the_holder(keys: LockKeys) -> None:
    found = await asyncio.gather(*(lock_of(keys).acquire(f"user:{n}", "an import") for n in range(50)))
    [hold] = [one for one in found if isinstance(one, Hold)]
    others = [one for one in found if not one]
    assert others == [HeldBy(hold.by, hold.since_ms, "an import")] * 49
    assert await lock_of(keys).holder() == others[0]


@everywhere
async def test_it_is_free_again_when_its_holder_releases_it(keys: LockKeys) -> None:
    hold = await held(lock_of(keys))
    assert await hold.release() is True
    assert await lock_of(keys).holder() is None
    assert (await held(lock_of(keys), "user:2")).by == "user:2"


@everywhere
async def test_it_is_free_120_seconds_after_the_last_refresh(keys: LockKeys, clock: Clock) -> None:
    hold = await held(lock_of(keys))
    key = keys.lock(7)
    for _ in range(2):
        left = await key.remaining()
        assert left is not None
        assert 110 < left.total_seconds() <= 120
        await key.bound.store.run([("PEXPIRE", key.key, 60_000)])  # as if a minute had passed
        assert await hold.refresh() is True
    await let_it_run_out(keys)
    assert (await held(lock_of(keys), "user:2")).by == "user:2"


@everywhere
async def test_after_the_end_the_old_holder_neither_refreshes_nor_releases(keys: LockKeys) -> None:
    old = await held(lock_of(keys), "user:1")
    await let_it_run_out(keys)
    assert await old.refresh() is False
    assert await lock_of(keys).holder() is None  # a refresh revives nothing
    new = await held(lock_of(keys), "user:1")  # the same person in another window
    assert await old.refresh() is False
    assert await old.keep() is False
    assert await old.release() is False
    assert await new.refresh() is True
    assert await new.release() is True


@everywhere
async def test_a_released_lock_can_be_neither_refreshed_nor_released_again(keys: LockKeys) -> None:
    hold = await held(lock_of(keys))
    assert await hold.release() is True
    other = await held(lock_of(keys), "user:2")
    assert (await hold.refresh(), await hold.release()) == (False, False)
    assert await other.refresh() is True


@everywhere
async def test_the_number_grows_over_releases_and_ends(keys: LockKeys) -> None:
    numbers = []
    for turn in range(6):
        hold = await held(lock_of(keys))
        numbers.append(hold.fence)
        assert await lock_of(keys).acquire("user:2") == HeldBy("user:1", hold.since_ms)  # this takes no number
        if turn % 2:
            await hold.release()
        else:
            await let_it_run_out(keys)
    assert numbers == [*range(numbers[0], numbers[0] + 6)]


@everywhere
async def test_the_number_grows_even_where_it_was_forgotten(keys: LockKeys, clock: Clock) -> None:
    first = await held(lock_of(keys))
    await first.release()
    await keys.fence(7).delete()
    clock.move("1s")
    assert (await held(lock_of(keys))).fence > first.fence


@everywhere
async def test_the_number_outlives_the_lock(keys: LockKeys) -> None:
    await held(lock_of(keys))
    left = await keys.fence(7).remaining()
    assert left is not None
    assert 399 < left.days + left.seconds / 86_400 <= 400


@everywhere
async def test_locks_of_different_names_do_not_wait_for_each_other(keys: LockKeys) -> None:
    one, two = await held(lock_of(keys, 7)), await held(lock_of(keys, 8), "user:2")
    assert await one.release() is True
    assert await two.refresh() is True


@everywhere
async def test_it_is_never_held_twice(keys: LockKeys) -> None:
    """Ten tasks repeatedly acquire, work and release; some lose the lock. No two are inside at once."""
    inside: set[str] = set()
    seen: list[int] = []

    async def work(name: str) -> None:
        while len(seen) < 40:
            hold = await lock_of(keys).acquire(name)
            if not isinstance(hold, Hold):
                await asyncio.sleep(0)
                continue
            assert not inside
            inside.add(name)
            seen.append(hold.fence)
            assert await hold.refresh() is True
            inside.remove(name)
            assert await hold.release() is True

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(f"worker/{n}") for n in range(10)))
    assert seen == [*range(seen[0], seen[0] + len(seen))]


@everywhere
async def test_a_write_beside_its_guard_takes_effect_only_while_it_is_held(keys: LockKeys) -> None:
    old = await held(lock_of(keys))
    assert await keys.atomically(old.guard(), keys.change(7).set(old.fence))
    await let_it_run_out(keys)
    new = await held(lock_of(keys), "user:2")
    assert await keys.atomically(new.guard(), keys.change(7).set(new.fence))
    assert not await keys.atomically(old.guard(), keys.change(7).set(old.fence))
    assert await keys.change(7).get() == new.fence


@here
async def test_a_loop_refreshes_once_in_30_seconds(keys: LockKeys, store: Store, clock: Clock) -> None:
    hold = await held(lock_of(keys))
    clock.stand_at(hold.since_ms)
    key = keys.lock(7)
    await store.run([("PEXPIRE", key.key, 60_000)])
    clock.stand_at(hold.since_ms + 29_999)
    assert await hold.keep() is True
    assert (await store.run([("PTTL", key.key)]))[0] <= 60_000  # nobody was asked
    clock.stand_at(hold.since_ms + 30_000)
    assert await hold.keep() is True
    assert (await store.run([("PTTL", key.key)]))[0] > 60_000
    assert hold.good_until_ms == hold.since_ms + 150_000


@here
async def test_the_stored_lock_has_holder_time_and_purpose(keys: LockKeys, store: Store) -> None:
    hold = await held(lock_of(keys), "user:1\x1b[2J", "the import\nof May")
    [raw] = await store.run([("GET", "lock:7")])
    stored = json.loads(raw)
    assert len(stored.pop("id")) == 32
    assert stored == {"by": "user:1\\x1b[2J", "since_ms": hold.since_ms, "comment": "the import\\nof May"}


@here
async def test_acquiring_needs_the_name_of_the_holder(keys: LockKeys) -> None:
    with pytest.raises(BadValue, match="needs the name of its holder"):
        await lock_of(keys).acquire("")


# --- a block -------------------------------------------------------------------------------------------------


@everywhere
async def test_a_block_holds_it_and_releases_it(keys: LockKeys) -> None:
    async with lock_of(keys).holding("user:1", "an import") as hold:
        assert await lock_of(keys).holder() == HeldBy("user:1", hold.since_ms, "an import")
        with pytest.raises(LockHeld, match=r"held by user:1 \(an import\)") as told:
            async with lock_of(keys).holding("user:2"):
                raise AssertionError("nobody comes here")
        assert told.value.held.since_ms == hold.since_ms
    assert await lock_of(keys).holder() is None


@here
async def test_a_block_that_fails_releases_it_and_raises_its_own_error(keys: LockKeys) -> None:
    with pytest.raises(ZeroDivisionError):
        async with lock_of(keys).holding("user:1"):
            raise ZeroDivisionError
    assert await lock_of(keys).holder() is None


@here
async def test_a_block_that_is_cancelled_releases_it(keys: LockKeys) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with lock_of(keys).holding("user:1"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await lock_of(keys).holder() is None


@here
async def test_a_block_is_refreshed_every_30_seconds(keys: LockKeys, store: Store) -> None:
    waits = Waits()
    async with lock_of(keys, wait=waits).holding("user:1"):
        for _ in range(10):
            await store.run([("PEXPIRE", "lock:7", 90_000)])  # as if 30 s had passed
            assert 29 < await waits.end_next() <= 30
            await until(lambda: store.run([("PTTL", "lock:7")]), lambda replies: replies[0] > 90_000)


@here
async def test_a_block_that_lost_the_lock_is_cancelled_with_lock_lost(keys: LockKeys) -> None:
    waits = Waits()

    async def work() -> None:
        async with lock_of(keys, wait=waits).holding("user:1"):
            await let_it_run_out(keys)
            await held(lock_of(keys), "user:2")
            await waits.end_next()
            await asyncio.Event().wait()

    with pytest.raises(LockLost, match="user:1 lost the lock"):
        await work()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # no cancellation is left behind
    found = await lock_of(keys).holder()
    assert found is not None
    assert found.by == "user:2"


@here
async def test_a_block_that_ends_after_losing_the_lock_raises_lock_lost(keys: LockKeys) -> None:
    with pytest.raises(LockLost):
        async with lock_of(keys).holding("user:1"):
            await let_it_run_out(keys)


@here
async def test_a_block_that_fails_after_its_store_was_closed_raises_its_own_error(keys: LockKeys, store: Store) -> None:
    async def work() -> None:
        async with lock_of(keys).holding("user:1"):
            await store.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()


@here
@pytest.mark.parametrize("error", [StoreUnavailable, StoreClosed])
async def test_during_an_outage_a_block_runs_until_the_lock_expires(
    keys: LockKeys, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: type[KeysteadError]
) -> None:
    waits, began = Waits(), clock()
    clock.stand_at(began)
    lock, tries = lock_of(keys, wait=waits), 0

    async def away(seen: object) -> bool:
        nonlocal tries
        tries += 1
        raise error("the store does not answer")

    async def work() -> None:
        async with lock.holding("user:1"):
            monkeypatch.setattr(lock, "_refresh", away)
            for passed_ms in (30_000, 60_000, 90_000, 120_000):
                assert await waits.end_next(partial(clock.stand_at, began + passed_ms)) == 30
            await asyncio.Event().wait()

    with pytest.raises(LockLost):
        await work()
    assert tries == 4


# --- declarations --------------------------------------------------------------------------------------------


class OtherKeys(Keyspace):
    """Families that do not fit a lock."""

    lock = Value("lock:{n:int}", Holder, lifetime=sliding("120s", touch_every="30s"), doc="good")
    fence = Counter("fence:{n:int}", lifetime=never("a test"), doc="good")
    text = Value("text:{n:int}", str, lifetime=sliding("120s", touch_every="30s"), doc="no holder")
    fixed = Value("fixed:{n:int}", Holder, lifetime=after("120s"), doc="cannot be refreshed")
    brief = Counter("brief:{n:int}", lifetime=after("1m"), doc="begins anew")
    apart = Counter("apart:{n:int}", lifetime=never("a test"), role="durable", doc="in another store")


@here
async def test_a_lock_of_other_families_is_refused(store: Store) -> None:
    keys = OtherKeys(store)
    assert (await held(Lock(keys.lock(1), keys.fence(1)))).fence > 0
    for holder, fence, why in (
        (keys.text(1), keys.fence(1), "Holder"),
        (keys.lock, keys.fence(1), "Holder"),
        (keys.lock(1), keys.lock(2), "Counter"),
        (keys.fixed(1), keys.fence(1), "touch_every"),
        (keys.lock(1), keys.brief(1), "outlive every hold"),
    ):
        with pytest.raises(BadDeclaration, match=why):
            Lock(holder, fence)  # type: ignore[arg-type]
    async with connect("memory://") as other:
        keys = OtherKeys(store, durable=other)
        with pytest.raises(DoesNotFit, match="one store"):
            Lock(keys.lock(1), keys.apart(1))
