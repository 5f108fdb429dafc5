"""The cache: hits, single flight, and immediate invalidation."""

import asyncio
import json
from typing import Any

import pytest

from keystead.errors import BadKey
from keystead.parts.cache import Cache, CacheResult
from tests.parts.cache.conftest import (
    HOUR,
    CacheKeys,
    Membership,
    Provider,
    StaleKeys,
    Summary,
    cache_of,
    everywhere,
    here,
    in_every_store,
    let_it_run_out,
)
from tests.parts.sessions.relays import Relay

PRO, FREE = Membership(plan="Pro"), Membership(plan="Free")


@in_every_store
async def test_a_thousand_requests_for_one_expired_entry_load_once(keys: CacheKeys, provider: Provider) -> None:
    caches = [cache_of(keys) for _ in range(4)]  # as in four processes
    await caches[0].get(keys.membership("7"), Provider(FREE))
    await let_it_run_out(keys.membership("7"))
    provider.may_answer.clear()
    asking = [asyncio.create_task(caches[n % 4].get(keys.membership("7"), provider)) for n in range(1000)]
    await provider.was_asked.wait()
    provider.may_answer.set()
    assert await asyncio.gather(*asking) == [PRO] * 1000
    assert provider.calls == 1
    assert sum(cache.counts.loads for cache in caches[1:]) + caches[0].counts.loads == 2
    assert sum(cache.counts.misses for cache in caches) == 1001


@in_every_store
async def test_a_loaded_value_is_returned_from_the_cache(cache: Cache[Membership], keys: CacheKeys) -> None:
    provider = Provider()
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(PRO, "loaded")
    for _ in range(3):
        assert await cache.answer(keys.membership("7"), provider) == CacheResult(PRO, "hit")
        assert await cache.get(keys.membership("7"), provider) == PRO
    assert await cache.get(keys.membership("8"), provider) == PRO
    assert provider.calls == 2
    assert (cache.counts.hits, cache.counts.misses, cache.counts.loads) == (6, 2, 2)


@in_every_store
async def test_an_entry_is_stored_as_declared(cache: Cache[Membership], keys: CacheKeys) -> None:
    await cache.get(keys.membership("7"), Provider())
    key = keys.membership("7")
    [stored, left_ms] = await key.bound.store.run([("GET", key.key), ("PTTL", key.key)])
    assert json.loads(stored) == {"plan": "Pro", "cachedAt": 0}
    assert 0.9 * HOUR - 20_000 < left_ms <= HOUR
    assert await keys.mark("7").exists() is False
    if isinstance(keys, StaleKeys):
        left = await keys.stale("7").remaining()
        assert left is not None
        assert 23 * 3600 < left.total_seconds() <= 24 * 3600


@everywhere
async def test_a_hash_is_cached_field_by_field(keys: StaleKeys) -> None:
    cache = Cache(keys.summary, keys.summary_mark, stale=keys.summary_stale)
    provider = Provider(Summary(open=3, done=4))
    assert await cache.get(keys.summary("7"), provider) == Summary(open=3, done=4)
    assert await cache.get(keys.summary("7"), provider) == Summary(open=3, done=4)
    assert provider.calls == 1
    key = keys.summary("7")
    [fields, left_ms] = await key.bound.store.run([("HGETALL", key.key), ("PTTL", key.key)])
    assert fields == {b"open": b"3", b"done": b"4"}
    assert 290_000 < left_ms <= 300_000
    await cache.invalidate(key)
    provider.raises = OSError("away")
    with pytest.raises(Exception, match="could not be loaded"):
        await cache.get(keys.summary("7"), provider)


@everywhere
async def test_one_or_many_hits_take_one_round_trip(keys: StaleKeys) -> None:
    relay = Relay(keys.membership("7").bound.store)
    watched = StaleKeys(relay)
    cache = cache_of(watched)
    for name in "789":
        await cache.put(watched.membership(name), Membership(plan=name))
    relay.log.clear()
    await cache.get(watched.membership("7"), Provider())
    assert len(relay.log) == 1
    relay.log.clear()
    found = await cache.get_many([watched.membership(name) for name in "987"], lambda key: Provider()())
    assert [one and one.plan for one in found] == ["9", "8", "7"]
    assert len(relay.log) == 1


@in_every_store
async def test_of_many_only_those_that_are_missing_are_loaded(cache: Cache[Membership], keys: CacheKeys) -> None:
    await cache.put(keys.membership("b"), FREE)
    asked = []

    async def load(key: Any) -> Membership | None:
        asked.append(key.values["id"])
        return None if key.values["id"] == "c" else PRO

    wanted = [keys.membership(name) for name in "abca"]
    assert await cache.get_many(wanted, load) == [PRO, FREE, None, PRO]
    assert sorted(asked) == ["a", "c"]
    assert await cache.get_many([], load) == []


@here
async def test_of_many_all_are_tried_before_the_first_error_is_raised(
    cache: Cache[Membership], keys: CacheKeys
) -> None:
    async def load(key: Any) -> Membership:
        if key.values["id"] == "a":
            raise OSError("away")
        return PRO

    with pytest.raises(Exception, match="OSError"):
        await cache.get_many([keys.membership(name) for name in "ab"], load)
    assert await keys.membership("b").get() == PRO


@in_every_store
async def test_negative_results_have_their_own_lifetime(cache: Cache[Membership], keys: CacheKeys) -> None:
    provider = Provider()
    provider.says = None
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(None, "loaded")
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(None, "nothing")
    assert await cache_of(keys).get(keys.membership("7"), provider) is None
    assert provider.calls == 1
    where = keys.membership("7") if keys.membership("7").bound.store.guarantees.atomic == "one key" else keys.mark("7")
    left = await where.remaining()
    assert left is not None
    assert 100 < left.total_seconds() <= 120
    await let_it_run_out(where)
    provider.says = PRO
    assert await cache.get(keys.membership("7"), provider) == PRO
    assert (cache.counts.nothings, cache.counts.misses) == (1, 2)


@in_every_store
async def test_a_load_that_finds_nothing_drops_the_entry(
    cache: Cache[Membership], keys: CacheKeys, provider: Provider
) -> None:
    await cache.get(keys.membership("7"), provider)
    provider.says = None
    assert await cache.refresh(keys.membership("7"), provider) is None
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(None, "nothing")
    if isinstance(keys, StaleKeys):
        assert await keys.stale("7").get() is None
    provider.says = PRO
    assert await cache.refresh(keys.membership("7"), provider) == PRO
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(PRO, "hit")


@everywhere
async def test_without_negative_caching_each_request_loads(keys: StaleKeys) -> None:
    cache = Cache(keys.summary, keys.summary_mark)
    provider = Provider()
    provider.says = None
    for _ in range(2):
        assert await cache.answer(keys.summary("7"), provider) == CacheResult(None, "loaded")
    assert provider.calls == 2


@in_every_store
async def test_an_invalidation_is_visible_to_every_process(keys: CacheKeys, provider: Provider) -> None:
    one, other = cache_of(keys), cache_of(keys)
    await one.get(keys.membership("7"), provider)
    provider.says = FREE
    assert await other.get(keys.membership("7"), provider) == PRO
    assert await other.invalidate(keys.membership("7")) is True
    assert await one.get(keys.membership("7"), provider) == FREE
    assert await one.invalidate(keys.membership("8")) is False


@everywhere
async def test_an_entry_is_invalidated_in_one_step_with_the_change(keys: CacheKeys, cache: Cache[Membership]) -> None:
    await cache.get(keys.membership("7"), Provider())
    refused = await keys.atomically(keys.truth("7").exists().required(), cache.invalidate(keys.membership("7")))
    assert not refused
    assert await keys.membership("7").get() == PRO
    done = await keys.atomically(keys.truth("7").add(FREE).required(), cache.invalidate(keys.membership("7")))
    assert done.values == (True, True)
    assert await keys.membership("7").get() is None
    assert await keys.atomically(keys.truth("7").set(PRO), cache.put(keys.membership("7"), FREE))
    assert await keys.membership("7").get() == FREE


@in_every_store
async def test_a_refresh_loads_despite_an_entry_and_concurrent_ones_share_a_load(
    cache: Cache[Membership], keys: CacheKeys, provider: Provider
) -> None:
    await cache.get(keys.membership("7"), provider)
    provider.says = FREE
    found = await asyncio.gather(*(cache.refresh(keys.membership("7"), provider) for _ in range(100)))
    assert found == [FREE] * 100
    assert provider.calls == 2
    assert await cache.answer(keys.membership("7"), provider) == CacheResult(FREE, "hit")


@in_every_store
async def test_a_refresh_never_answers_with_a_load_that_began_before_it(keys: CacheKeys, provider: Provider) -> None:
    one, other = cache_of(keys), cache_of(keys)
    provider.may_answer.clear()
    first = asyncio.create_task(one.refresh(keys.membership("7"), provider))
    await provider.was_asked.wait()
    provider.says = FREE
    later = [asyncio.create_task(c.refresh(keys.membership("7"), provider)) for c in (one, one, other)]
    await asyncio.sleep(0)
    provider.may_answer.set()
    assert await first == PRO
    assert await asyncio.gather(*later) == [FREE] * 3
    assert provider.calls == 3  # one at a time: the first, and one for each process
    assert await one.get(keys.membership("7"), provider) == FREE


@in_every_store
async def test_an_entry_that_cannot_be_read_is_loaded_again(
    cache: Cache[Membership], keys: CacheKeys, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    key = keys.membership("7")
    for number, stored in enumerate(
        (b"{not json", b'{"plan":7,"secret":"hunter2"}', b"\x00", b"\x00keystead mark\x00x")
    ):
        await key.bound.store.run([("SET", key.key, stored, "PX", 60_000)])
        assert await cache.get(key, provider) == PRO
        assert await cache.answer(key, provider) == CacheResult(PRO, "hit")
        assert provider.calls == number + 1
    assert cache.counts.unreadable >= 3
    assert "hunter2" not in caplog.text


@in_every_store
async def test_an_entry_that_cannot_be_read_is_loaded_by_one_process_for_all(
    keys: CacheKeys, provider: Provider
) -> None:
    key = keys.membership("7")
    await key.bound.store.run([("SET", key.key, b"{not json", "PX", 60_000)])
    caches = [cache_of(keys) for _ in range(4)]
    provider.may_answer.clear()
    asking = [asyncio.create_task(caches[n % 4].get(key, provider)) for n in range(100)]
    await provider.was_asked.wait()
    provider.may_answer.set()
    assert await asyncio.gather(*asking) == [PRO] * 100
    assert provider.calls == 1
    assert sum(cache.counts.unreadable for cache in caches) == 1


@everywhere
async def test_a_key_of_another_kind_is_written_over(cache: Cache[Membership], keys: CacheKeys) -> None:
    key = keys.membership("7")
    await key.bound.store.run([("SADD", key.key, "x")])
    assert await cache.get(key, Provider()) == PRO
    assert await key.get() == PRO


@everywhere
async def test_an_unreadable_marker_is_overwritten(keys: CacheKeys, cache: Cache[Membership]) -> None:
    await keys.mark("7").bound.store.run([("SET", keys.mark("7").key, "no mark", "PX", 60_000)])
    assert await cache.get(keys.membership("7"), Provider()) == PRO


@here
async def test_only_keys_of_its_own_family_are_taken(cache: Cache[Membership], keys: StaleKeys) -> None:
    for stranger in (keys.truth("7"), StaleKeys(keys.truth("7").bound.store).membership("7")):
        with pytest.raises(BadKey, match="pass a key of that family"):
            await cache.get(stranger, Provider())
        with pytest.raises(BadKey):
            await cache.answer(stranger, Provider())
        with pytest.raises(BadKey):
            await cache.refresh(stranger, Provider())
        with pytest.raises(BadKey):
            cache.invalidate(stranger)


@here
async def test_counts_are_a_copy(cache: Cache[Membership], keys: CacheKeys) -> None:
    before = cache.counts
    await cache.get(keys.membership("7"), Provider())
    assert (before.loads, cache.counts.loads) == (0, 1)
