"""Staleness: the declared bound, measured."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystead import Store, after
from keystead.errors import BadDeclaration
from keystead.parts.cache import Cache, CacheResult, LoadFailed
from keystead.schema.lifetime import duration_ms
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from tests.parts.cache.conftest import (
    HOUR,
    MINUTE,
    CacheKeys,
    Membership,
    Provider,
    StaleKeys,
    Summary,
    Time,
    cache_of,
    everywhere,
)

DAY = 24 * HOUR


async def test_the_longest_staleness_is_the_lifetime_of_the_entry_or_of_its_stale_copy(timed: StaleKeys) -> None:
    assert cache_of(timed).longest_staleness == timedelta(days=1)
    assert cache_of(timed).longest_freshness == timedelta(hours=1)
    without = Cache(timed.membership, timed.mark)
    assert without.longest_staleness == without.longest_freshness == timedelta(hours=1)
    assert Cache(timed.summary, timed.summary_mark).longest_staleness == timedelta(seconds=300)


STEP = st.tuples(
    st.one_of(st.integers(0, 20_000), st.integers(0, 2 * HOUR), st.sampled_from([54 * MINUTE, HOUR, DAY - 1, DAY])),
    st.booleans(),  # whether the provider answers
    st.sampled_from([0, 1, 900, 8_000, 9_999, 10_000, 30_000]),  # how long it takes
    st.sampled_from(["get", "get", "get", "refresh"]),
)


@pytest.mark.matrix
@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=25))
def test_no_answer_is_ever_older_than_is_declared(steps: list[tuple[int, bool, int, str]]) -> None:
    """Time advances randomly, also during loads; each value contains the time of its load."""

    async def play() -> None:
        time = Time()
        async with SqliteStore(MEMORY, clock=time) as store:
            keys = StaleKeys(store, now_ms=time)
            cache = cache_of(keys)
            stalest = cache.longest_staleness // timedelta(milliseconds=1)
            freshest = cache.longest_freshness // timedelta(milliseconds=1)
            for pause_ms, answers, takes_ms, verb in steps:
                time.ms += pause_ms
                begun_ms = time.ms

                async def load(answers: bool = answers, takes_ms: int = takes_ms) -> Membership:
                    asked_ms = time.ms
                    time.ms += takes_ms
                    if not answers:
                        raise OSError("away")
                    return Membership(plan="Pro", cachedAt=asked_ms)

                try:
                    if verb == "refresh":
                        found = await cache.refresh(keys.membership("7"), load)
                        how = "stale" if found is not None and found.cachedAt < begun_ms else "loaded"
                    else:
                        answer = await cache.answer(keys.membership("7"), load)
                        found, how = answer.value, answer.how
                except LoadFailed:
                    continue
                assert found is not None
                # A value that was just loaded is as old as its load.
                age_ms = time.ms - found.cachedAt - (takes_ms if how == "loaded" else 0)
                assert age_ms <= (stalest if how == "stale" else freshest)

    asyncio.run(play())


async def test_a_change_is_never_hidden_for_longer_than_the_lifetime(timed: StaleKeys, time: Time) -> None:
    """Without invalidation a counter page is wrong for at most 300 s, however long the load took."""
    cache = Cache(timed.summary, timed.summary_mark)
    truth, changed_ms = Summary(open=1, done=0), time.ms

    async def count() -> Summary:
        counted = truth
        time.ms += 4_000
        return counted

    async def shown_at(ms: int) -> Summary | None:
        time.ms = ms
        return await cache.get(timed.summary("7"), count)

    before = await shown_at(changed_ms)  # it was counted just before the change
    truth = Summary(open=0, done=1)
    assert await shown_at(changed_ms + 299_999) == before
    assert await shown_at(changed_ms + 300_000) == truth


@everywhere
async def test_a_slow_load_expires_as_if_written_at_its_start(store: Store) -> None:
    time = Time()
    keys = StaleKeys(store, now_ms=time)

    async def load() -> Membership:
        time.ms += 9_000
        return Membership(plan="Pro")

    await cache_of(keys).get(keys.membership("7"), load)
    key, copy = keys.membership("7"), keys.stale("7")
    left_ms, stale_ms = await store.run([("PTTL", key.key), ("PTTL", copy.key)])
    assert 0.9 * HOUR - 20_000 < left_ms <= HOUR - 9_000
    assert DAY - 29_000 < stale_ms <= DAY - 9_000


async def test_a_stale_copy_is_served_until_its_expiry(timed: StaleKeys, time: Time) -> None:
    cache = cache_of(timed)
    provider = Provider()
    await cache.get(timed.membership("7"), provider)
    provider.raises = OSError("away")
    time.ms += DAY - 1
    assert await cache.answer(timed.membership("7"), provider) == CacheResult(Membership(plan="Pro"), "stale")
    time.ms += 1
    with pytest.raises(LoadFailed):
        await cache.get(timed.membership("7"), provider)


# --- jitter --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**12), st.integers(1, 99))
def test_jitter_only_shortens_within_its_bound(ms: int, percent: int) -> None:
    lifetime = after(timedelta(milliseconds=ms), jitter=f"{percent}%")
    for _ in range(5):
        px, drawn_ms = lifetime.on_create(0, None)
        [(_, _, grown_ms, _)] = lifetime.on_write("key", 0, None)
        assert px == "PX"
        for one in (drawn_ms, grown_ms):
            assert isinstance(one, int)
            assert 1 <= one <= ms
            assert one * 100 >= ms * (100 - percent)
    assert lifetime.longest_ms == ms


def test_keys_that_are_made_together_do_not_end_together() -> None:
    lifetime = after("1h", jitter="10%")
    assert len({lifetime.on_create(0, None) for _ in range(100)}) > 50
    assert lifetime.describe() == "1 hour, or up to 6 minutes less"


@pytest.mark.parametrize("jitter", ["10", "0%", "100%", "-5%", "1.5%", "ten", " 10%"])
def test_jitter_is_a_part_in_whole_percent(jitter: str) -> None:
    with pytest.raises(BadDeclaration, match="whole percent"):
        after("1h", jitter=jitter)


@everywhere
async def test_the_real_lifetime_of_an_entry_is_within_its_declared_bounds(store: Store) -> None:
    keys = CacheKeys(store)
    cache = cache_of(keys)
    for number in range(30):
        await cache.get(keys.membership(str(number)), Provider())
    left = await store.run([("PTTL", keys.membership(str(number)).key) for number in range(30)])
    shortest = duration_ms("54m") - 20_000
    assert all(shortest < one <= HOUR for one in left)
    assert len(set(left)) > 10
