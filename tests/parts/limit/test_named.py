"""Named rate limits: requests per client and minute, alone and in one step with the work of the request."""

import asyncio

import pytest

from keystead import Counter, Keyspace, Store, after
from keystead.parts.limit import LimitReached, NamedLimits
from tests.every_store import on

in_one_step = on("memory", "redis")
everywhere = on("memory", "redis", "cluster")

NOW_MS = 1_790_000_025_000  # 15 seconds of its minute are left


class Keys(Keyspace):
    requests = Counter("app:requests:{name:slug}:{window:int}:{client:hex}", lifetime=after("2m"))
    orders = Counter("app:orders", lifetime=after("2m"))


def window(store: Store, limit: int, now_ms: int = NOW_MS) -> NamedLimits:
    return NamedLimits(Keys(store).requests, {"order": limit, "free": 0}, lambda: now_ms)


@everywhere
async def test_of_many_concurrent_hits_exactly_the_limit_passes(store: Store) -> None:
    limit = window(store, 5)
    answers = await asyncio.gather(*(limit.count("order", "192.0.2.1") for _ in range(50)), return_exceptions=True)
    assert sum(one is None for one in answers) == 5
    assert {type(one) for one in answers} == {type(None), LimitReached}
    await limit.count("order", "192.0.2.2")  # another client
    await window(store, 5, NOW_MS + 60_000).count("order", "192.0.2.1")  # another minute


@everywhere
async def test_failures_that_count_are_refused_beforehand(store: Store) -> None:
    limit = window(store, 2)
    for _ in range(2):
        await limit.refuse_reached("order", "192.0.2.1")
        await limit.refuse_reached("order", "192.0.2.1")  # which counts nothing
        await limit.count("order", "192.0.2.1")
    with pytest.raises(LimitReached) as reached:
        await limit.refuse_reached("order", "192.0.2.1")
    assert reached.value.retry_after_s == 15
    await limit.refuse_reached("order", "192.0.2.2")
    await limit.refuse_reached("free", "192.0.2.1")


@everywhere
async def test_a_refusal_has_the_rest_of_the_minute(store: Store) -> None:
    for left_ms, wait_s in ((15_000, 15), (14_001, 15), (1, 1), (60_000, 60)):
        limit = window(store, 1, NOW_MS + 15_000 - left_ms + 60_000 * left_ms)
        await limit.count("order", "192.0.2.1")
        with pytest.raises(LimitReached) as reached:
            await limit.count("order", "192.0.2.1")
        assert reached.value.retry_after_s == wait_s


@in_one_step
async def test_a_count_and_its_work_share_a_round_trip_and_at_most_the_limit_passes(store: Store) -> None:
    keys, limit = Keys(store), window(store, 5)

    async def order() -> bool:
        counting = limit.counting("order", "192.0.2.1")
        assert counting is not None
        step = keys.atomically(counting.within, keys.orders().increment())
        count, done = await asyncio.gather(counting.count, step)
        assert bool(done) == (count <= counting.limit == 5)
        return bool(done)

    assert sum(await asyncio.gather(*(order() for _ in range(50)))) == 5
    assert await keys.orders().get() == 5


@everywhere
async def test_nothing_is_counted_before_the_await_or_without_a_limit(store: Store) -> None:
    limit = window(store, 1)
    assert limit.counting("free", "192.0.2.1") is None
    await limit.count("free", "192.0.2.1")
    counting = limit.counting("order", "192.0.2.1")
    assert counting is not None
    assert [key async for page in store.scan() for key in page] == []
    assert await counting.within is True
    assert [await counting.count, await counting.count] == [1, 2]
    assert await counting.within is False
    with pytest.raises(LimitReached):
        raise counting.reached
