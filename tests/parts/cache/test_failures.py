"""A provider that is down, slow or returns nonsense, cancelled callers, and store outages."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from keystead import Keyspace, Store, Value, after
from keystead.errors import StoreUnavailable
from keystead.parts.cache import Cache, CacheCounts, CacheResult, LoadFailed, LoadMarkers, TryLater
from tests.parts.cache.conftest import (
    CacheKeys,
    Membership,
    Provider,
    StaleKeys,
    cache_of,
    everywhere,
    here,
    in_every_store,
    let_it_run_out,
)
from tests.parts.sessions.relays import Relay

PRO, FREE = Membership(plan="Pro"), Membership(plan="Free")


class HastyKeys(Keyspace):
    """A load may take 270 ms."""

    membership = Value("membership:{id}", Membership, lifetime=after("1h"), role="cache", tag="id")
    mark = LoadMarkers("membership:{id}:mark", loading="300ms", retry="1m", tag="id")
    stale = Value("membership:{id}:stale", Membership, lifetime=after("1d"), role="cache", tag="id")


def where_marks_are(keys: CacheKeys) -> Any:
    inside = keys.membership("7").bound.store.guarantees.atomic == "one key"
    return keys.membership("7") if inside else keys.mark("7")


async def with_a_stale_copy(keys: CacheKeys) -> None:
    await cache_of(keys).put(keys.membership("7"), PRO)
    await let_it_run_out(keys.membership("7"))


# --- the provider --------------------------------------------------------------------------------------------------


@everywhere
async def test_a_thousand_requests_during_a_provider_outage_load_once_and_get_the_stale_copy(
    keys: CacheKeys, provider: Provider
) -> None:
    await with_a_stale_copy(keys)
    provider.raises = OSError("connection refused")
    caches = [cache_of(keys), cache_of(keys)]
    for _ in range(2):
        found = await asyncio.gather(*(caches[n % 2].answer(keys.membership("7"), provider) for n in range(500)))
        assert found == [CacheResult(PRO, "stale")] * 500
    assert provider.calls == 1
    assert sum(cache.counts.stale for cache in caches) == 1000
    assert sum(cache.counts.failures for cache in caches) == 1


@in_every_store
async def test_without_a_stale_copy_all_callers_get_load_failed_until_the_pause_ends(
    keys: CacheKeys, provider: Provider
) -> None:
    provider.raises = OSError("connection refused")
    one, other = cache_of(keys), cache_of(keys)
    asked = [one.get(keys.membership("7"), provider) for _ in range(100)]
    failures = await asyncio.gather(*asked, return_exceptions=True)
    for failure in failures:
        assert isinstance(failure, LoadFailed)
        assert (failure.why, failure.retry_after) == ("OSError", timedelta(seconds=5))
        # A caller whose first lookup arrives after the failure reads it from the marker.
        assert failure.__cause__ in (provider.raises, None)
        assert "7" not in str(failure).replace("CacheKeys", "")  # keys may be secrets
    assert any(getattr(failure, "__cause__", None) is provider.raises for failure in failures)
    with pytest.raises(LoadFailed, match="OSError") as elsewhere:
        await other.get(keys.membership("7"), provider)
    assert elsewhere.value.retry_after == timedelta(seconds=5)
    assert provider.calls == 1
    left = await where_marks_are(keys).remaining()
    assert left is not None
    assert 0 < left.total_seconds() <= 5
    await let_it_run_out(where_marks_are(keys))
    provider.raises = None
    assert await other.get(keys.membership("7"), provider) == PRO


@everywhere
async def test_a_recovered_provider_is_called_after_the_pause(keys: StaleKeys, provider: Provider) -> None:
    await with_a_stale_copy(keys)
    cache = cache_of(keys)
    provider.raises, provider.says = OSError("down"), FREE
    assert await cache.get(keys.membership("7"), provider) == PRO
    await let_it_run_out(keys.mark("7"))
    provider.raises = None
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(FREE, "loaded")
    assert await keys.stale("7").get() == FREE


@in_every_store
@pytest.mark.parametrize(("says", "pause_s"), [("30s", 30), ("1s", 5), ("3h", 60)])
async def test_retry_after_of_the_provider_is_respected_within_limits(
    keys: CacheKeys, cache: Cache[Membership], says: str, pause_s: int
) -> None:
    provider = Provider()
    provider.raises = TryLater(says)
    with pytest.raises(LoadFailed, match="TryLater") as failure:
        await cache.get(keys.membership("7"), provider)
    assert failure.value.retry_after == timedelta(seconds=pause_s)
    left = await where_marks_are(keys).remaining()
    assert left is not None
    assert pause_s - 4 < left.total_seconds() <= pause_s
    with pytest.raises(LoadFailed):
        await cache.get(keys.membership("7"), provider)
    assert provider.calls == 1


@in_every_store
@pytest.mark.parametrize("nonsense", ["text", 7, {"plan": "Pro"}, [], b""])
async def test_nonsense_is_a_failure_and_never_stored(
    keys: CacheKeys, cache: Cache[Membership], nonsense: object
) -> None:
    with pytest.raises(LoadFailed, match="BadValue"):
        await cache.get(keys.membership("7"), Provider(nonsense))
    assert cache.counts.failures == 1
    await let_it_run_out(where_marks_are(keys))
    assert await keys.membership("7").get() is None


@everywhere
async def test_nonsense_is_answered_with_the_stale_copy_where_there_is_one(keys: CacheKeys) -> None:
    await with_a_stale_copy(keys)
    cache = cache_of(keys)

    async def validated() -> Membership:
        return Membership.model_validate({"plan": ["what?"]})

    assert await cache.answer(keys.membership("7"), validated) == CacheResult(PRO, "stale")


@everywhere
async def test_a_hanging_load_times_out_within_its_marker(store: Store, provider: Provider) -> None:
    keys = HastyKeys(store)
    cache = Cache(keys.membership, keys.mark, stale=keys.stale)
    provider.may_answer.clear()
    with pytest.raises(LoadFailed, match="TimeoutError"):
        await cache.get(keys.membership("8"), provider)
    await cache.put(keys.membership("7"), PRO)
    await let_it_run_out(keys.membership("7"))
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(cache.answer(keys.membership("7"), provider) for _ in range(100)))
    assert found == [CacheResult(PRO, "stale")] * 100
    assert provider.calls <= 4  # on a busy machine a marker may expire before the failure is recorded


@everywhere
async def test_waiting_for_a_hanging_load_ends_with_the_stale_copy(keys: StaleKeys) -> None:
    await with_a_stale_copy(keys)
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    busy = Provider()
    busy.may_answer.clear()
    other = asyncio.create_task(cache_of(keys).get(keys.membership("7"), busy))
    await busy.was_asked.wait()
    cache = cache_of(keys, wait=noted)
    assert await cache.answer(keys.membership("7"), Provider()) == CacheResult(PRO, "stale")
    assert 20 <= sum(pauses) < 20.2  # twice as long as a load may take
    await keys.stale("7").delete()
    with pytest.raises(LoadFailed, match="TimeoutError"):
        await cache.get(keys.membership("7"), Provider())
    assert cache.counts.loads == 0
    busy.may_answer.set()
    assert await other == PRO


@here
async def test_a_failure_is_logged_without_its_message(
    keys: CacheKeys, cache: Cache[Membership], caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    provider.raises = OSError("https://provider.example/?token=hunter2")
    with caplog.at_level(logging.DEBUG, "keystead"), pytest.raises(LoadFailed):
        await cache.get(keys.membership("secret-7"), provider)
    assert "OSError" in caplog.text
    assert "hunter2" not in caplog.text
    assert "secret-7" not in caplog.text


@everywhere
async def test_a_refresh_that_fails_leaves_the_entry_and_answers_the_stale_copy(
    keys: CacheKeys, provider: Provider
) -> None:
    cache = cache_of(keys)
    await cache.get(keys.membership("7"), provider)
    provider.raises = OSError("down")
    assert await cache.refresh(keys.membership("7"), provider) == PRO
    assert await cache.refresh(keys.membership("7"), provider) == PRO
    assert provider.calls == 2  # not again within the pause
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(PRO, "hit")


@in_every_store
async def test_a_drop_ends_the_pause_after_a_failure(
    keys: CacheKeys, cache: Cache[Membership], provider: Provider
) -> None:
    provider.raises = OSError("down")
    with pytest.raises(LoadFailed):
        await cache.get(keys.membership("7"), provider)
    await cache.invalidate(keys.membership("7"))
    provider.raises = None
    assert await cache.get(keys.membership("7"), provider) == PRO


@everywhere
async def test_after_a_drop_no_stale_copy_is_answered_even_where_the_provider_is_down(
    keys: CacheKeys, provider: Provider
) -> None:
    await with_a_stale_copy(keys)
    cache = cache_of(keys)
    provider.raises = OSError("down")
    assert await cache.get(keys.membership("7"), provider) == PRO
    await cache.invalidate(keys.membership("7"))
    with pytest.raises(LoadFailed):
        await cache.get(keys.membership("7"), provider)


@everywhere
async def test_a_failure_that_began_before_a_drop_is_not_remembered_after_it(
    keys: CacheKeys, provider: Provider
) -> None:
    await with_a_stale_copy(keys)
    cache = cache_of(keys)
    provider.raises = OSError("down")
    provider.may_answer.clear()
    asking = asyncio.create_task(cache.answer(keys.membership("7"), provider))
    await provider.was_asked.wait()
    await cache_of(keys).invalidate(keys.membership("7"))
    provider.raises, provider.says = None, FREE
    provider.may_answer.set()
    assert await asking == CacheResult(FREE, "loaded")


@everywhere
async def test_an_unreadable_stale_copy_is_ignored(keys: StaleKeys, provider: Provider) -> None:
    await with_a_stale_copy(keys)
    key = keys.stale("7")
    await key.bound.store.run([("SET", key.key, "{nonsense", "PX", 60_000)])
    provider.raises = OSError("down")
    with pytest.raises(LoadFailed):
        await cache_of(keys).get(keys.membership("7"), provider)


# --- callers that give up ------------------------------------------------------------------------------------------


@in_every_store
async def test_cancelling_one_caller_does_not_cancel_others(
    keys: CacheKeys, cache: Cache[Membership], provider: Provider
) -> None:
    provider.may_answer.clear()
    asking = [asyncio.create_task(cache.get(keys.membership("7"), provider)) for _ in range(10)]
    await provider.was_asked.wait()
    for one in asking[:5]:
        one.cancel()
    await asyncio.wait(asking[:5])
    provider.may_answer.set()
    assert await asyncio.gather(*asking[5:]) == [PRO] * 5
    assert all(one.cancelled() for one in asking[:5])
    assert provider.calls == 1


@in_every_store
async def test_a_load_whose_callers_were_all_cancelled_is_cached(
    keys: CacheKeys, cache: Cache[Membership], provider: Provider
) -> None:
    provider.may_answer.clear()
    asking = asyncio.create_task(cache.get(keys.membership("7"), provider))
    await provider.was_asked.wait()
    asking.cancel()
    await asyncio.wait([asking])
    provider.may_answer.set()
    assert await cache.get(keys.membership("7"), provider) == PRO
    assert provider.calls == 1


@in_every_store
async def test_a_loader_that_cancels_itself_fails_without_cancelling_callers(
    keys: CacheKeys, cache: Cache[Membership]
) -> None:
    provider = Provider()
    provider.raises = asyncio.CancelledError()
    with pytest.raises(LoadFailed, match="LoadCancelled"):
        await cache.get(keys.membership("7"), provider)


@in_every_store
async def test_closing_a_cache_lets_other_processes_load_immediately(keys: CacheKeys, provider: Provider) -> None:
    provider.may_answer.clear()
    async with cache_of(keys) as cache:
        asking = asyncio.create_task(cache.get(keys.membership("7"), provider))
        await provider.was_asked.wait()
    with pytest.raises(LoadFailed, match="LoadCancelled"):
        await asking
    assert await where_marks_are(keys).exists() is False
    assert await cache_of(keys).get(keys.membership("7"), Provider(FREE)) == FREE


# --- the store -----------------------------------------------------------------------------------------------------


class Away(Relay):
    """A store that is down from one of its calls on."""

    def __init__(self, inner: Store, after_calls: int = 0) -> None:
        super().__init__(inner)
        self.calls_left: int | None = after_calls

    async def before(self) -> None:
        if self.calls_left is None:
            return
        if self.calls_left == 0:
            raise StoreUnavailable("it is away")
        self.calls_left -= 1


@here
async def test_during_an_outage_loads_are_sequential_per_key(store: Store, provider: Provider) -> None:
    away = Away(store)
    keys = StaleKeys(away)
    cache = cache_of(keys)
    provider.may_answer.clear()
    asking = [asyncio.create_task(cache.get(keys.membership("7"), provider)) for _ in range(100)]
    await provider.was_asked.wait()
    provider.may_answer.set()
    assert await asyncio.gather(*asking) == [PRO] * 100
    assert provider.calls == 1
    assert (cache.counts.away, cache.counts.misses, cache.counts.loads) == (100, 0, 1)
    provider.raises = OSError("down, too")
    with pytest.raises(LoadFailed) as failure:
        await cache.get(keys.membership("7"), provider)
    assert failure.value.retry_after == timedelta(0)
    assert await cache.get_many([], lambda key: provider()) == []
    away.calls_left = None  # it is back
    provider.raises = None
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(PRO, "loaded")
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(PRO, "hit")


@here
async def test_during_an_outage_no_caller_joins_an_earlier_load(store: Store) -> None:
    keys = StaleKeys(Away(store))
    cache = cache_of(keys)
    provider = Provider()
    provider.may_answer.clear()
    early = asyncio.create_task(cache.get(keys.membership("7"), provider))
    await provider.was_asked.wait()
    provider.says = FREE
    late = [asyncio.create_task(cache.get(keys.membership("7"), provider)) for _ in range(50)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert provider.calls == 1  # one at a time
    provider.may_answer.set()
    assert await early == PRO
    assert await asyncio.gather(*late) == [FREE] * 50
    assert provider.calls == 2


@here
async def test_with_store_down_raise_the_store_error_is_raised(store: Store, provider: Provider) -> None:
    for calls in (0, 1):
        keys = StaleKeys(Away(store, calls))
        cache = cache_of(keys, store_down="raise")
        for asked in (cache.get, cache.answer, cache.refresh):
            with pytest.raises(StoreUnavailable):
                await asked(keys.membership("7"), provider)
        with pytest.raises(StoreUnavailable):
            await cache.get_many([keys.membership("7")], lambda key: provider())
    assert provider.calls == 0


@here
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_loaded_value_is_returned_despite_an_outage(store: Store, calls: int) -> None:
    keys = StaleKeys(Away(store, calls))
    cache = cache_of(keys)
    assert await cache.answer(keys.membership("7"), Provider()) == CacheResult(PRO, "loaded")
    assert cache.counts.unwritten == (calls == 2)
    keys = StaleKeys(Away(store, calls))
    failing = Provider()
    failing.raises = OSError("down")
    with pytest.raises(LoadFailed):
        await cache_of(keys).get(keys.membership("8"), failing)


@here
async def test_an_invalidation_during_an_outage_raises(store: Store) -> None:
    keys = StaleKeys(Away(store))
    cache = cache_of(keys)
    with pytest.raises(StoreUnavailable):
        await cache.invalidate(keys.membership("7"))
    with pytest.raises(StoreUnavailable):
        await cache.put(keys.membership("7"), PRO)


@here
async def test_each_request_is_counted_once(keys: StaleKeys, provider: Provider) -> None:
    cache = cache_of(keys)
    await cache.get(keys.membership("7"), provider)  # a miss
    await cache.get(keys.membership("7"), provider)  # a hit
    provider.says = None
    await cache.get(keys.membership("8"), provider)  # a miss
    await cache.get(keys.membership("8"), provider)  # nothing
    provider.raises = OSError("down")
    await let_it_run_out(keys.membership("7"))
    await cache.get(keys.membership("7"), provider)  # a miss, answered from the stale copy
    with pytest.raises(LoadFailed):
        await cache.get(keys.membership("9"), provider)  # a miss
    assert cache.counts == CacheCounts(hits=1, nothings=1, misses=4, loads=4, failures=2, stale=1)
