"""Sliding expiration, and hashes that are changed field by field."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Hash, Keyspace, Store, Value, after, never, sliding
from keystead.errors import BadDeclaration, BadKey, StoreUnavailable, Unreadable
from keystead.parts.cache import Cache, CacheLookup, CacheResult, LoadFailed, LoadMarkers
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from tests.parts.cache.conftest import MINUTE, Provider, Time, everywhere, here, on
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order


class User(BaseModel):
    """The user of a request."""

    name: str
    role: str
    team: str | None = None


ANN = User(name="Ann", role="DEVELOPER", team="3")


class UserKeys(Keyspace):
    """Cached users, and their source."""

    user = Hash("session:user:{id:int}", User, lifetime=sliding("30m", touch_every="1m"), tag="id", doc="who")
    mark = LoadMarkers("session:user:{id:int}:mark", role="default", nothing="1m", tag="id")
    truth = Hash("truth:{id:int}", User, lifetime=never("the tests delete it"), tag="id", doc="the database")
    fixed = Hash("fixed:{id:int}", User, lifetime=after("5m"), tag="id", doc="of a fixed lifetime")
    fixed_mark = LoadMarkers("fixed:{id:int}:mark", role="default", tag="id")
    fixed_stale = Hash("fixed:{id:int}:stale", User, lifetime=after("1d"), tag="id", doc="an older copy")
    value = Value("value:{id:int}", User, lifetime=after("5m"), tag="id", doc="no hash")
    value_mark = LoadMarkers("value:{id:int}:mark", role="default", tag="id")


def users_of(keys: UserKeys, **options: Any) -> Cache[User]:
    return Cache(keys.user, keys.mark, **options)


async def nobody_waits(seconds: float) -> None:
    pass


@pytest.fixture
def keys(store: Store) -> UserKeys:
    return UserKeys(store)


@pytest.fixture
async def standing(time: Time) -> AsyncIterator[tuple[UserKeys, Relay]]:
    """Keys in a store with a frozen clock, and the commands sent to it."""
    async with SqliteStore(MEMORY, clock=time) as opened:
        watched = Relay(opened)
        yield UserKeys(watched, now_ms=time), watched


# --- sliding expiration --------------------------------------------------------------------------------------------


async def test_an_entry_lives_on_while_it_is_used_and_ends_half_an_hour_after(
    standing: tuple[UserKeys, Relay], time: Time
) -> None:
    keys, _ = standing
    cache, provider = users_of(keys), Provider(ANN)
    for _ in range(10):
        assert await cache.get(keys.user(42), provider) == ANN
        time.ms += 29 * MINUTE
    assert provider.calls == 1
    time.ms += MINUTE
    assert (await cache.answer(keys.user(42), provider)).how == "loaded"


async def test_a_use_is_written_down_once_a_minute_at_most(standing: tuple[UserKeys, Relay], time: Time) -> None:
    keys, watched = standing
    cache, provider = users_of(keys), Provider(ANN)
    await cache.get(keys.user(42), provider)
    watched.log.clear()
    for _ in range(120):  # a request each second, for two minutes
        time.ms += 1_000
        assert await cache.answer(keys.user(42), provider) == CacheResult(ANN, "hit")
    touches = [commands for commands in watched.log if commands[0][0] == "PEXPIRE"]
    assert len(touches) == 2
    assert len(watched.log) == 122
    assert all([command[0] for command in commands] == ["HGETALL", "PTTL"] for commands in watched.log[:59])


@everywhere
async def test_the_real_lifetime_is_half_an_hour_after_a_use_and_after_a_slow_load(keys: UserKeys) -> None:
    time = Time()
    slow = UserKeys(keys.user.store, now_ms=time)

    async def load() -> User:
        time.ms += 9_000
        return ANN

    key = keys.user(42)
    await users_of(slow).get(slow.user(42), load)
    for _ in range(2):
        [left_ms] = await keys.user.store.run([("PTTL", key.key)])
        assert 30 * MINUTE - 20_000 < left_ms <= 30 * MINUTE
        await keys.user.store.run([("PEXPIRE", key.key, 28 * MINUTE)])  # as if two minutes had gone by
        assert await users_of(keys).get(key, Provider()) == ANN


@here
async def test_a_sliding_entry_has_unbounded_staleness(keys: UserKeys) -> None:
    assert users_of(keys).longest_staleness == users_of(keys).longest_freshness == timedelta.max
    assert Cache(keys.fixed, keys.fixed_mark).longest_staleness == timedelta(minutes=5)


@everywhere
async def test_a_touch_never_resurrects_a_dropped_entry(keys: UserKeys) -> None:
    async def once(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        await users_of(keys).put(keys.user(42), ANN)
        await keys.user.store.run([("PEXPIRE", keys.user(42).key, MINUTE)])  # a touch is due
        gated = Gated(keys.user.store)
        theirs = UserKeys(gated)
        cache = users_of(theirs, wait=nobody_waits)
        order, _ = await in_order(
            gated,
            {
                "a": lambda: cache.answer_to(CacheLookup(theirs.user(42), ANN, left_ms=MINUTE), Provider(ANN)),
                "b": lambda: cache.invalidate(theirs.user(42)),
            },
            first,
        )
        assert await keys.user(42).exists() is False
        return order

    assert await every_order(once) == 2


@here
async def test_a_failed_touch_still_returns_the_value(keys: UserKeys, caplog: pytest.LogCaptureFixture) -> None:
    class Unwritable(Relay):
        async def run(self, commands: Any) -> Any:
            if commands[0][0] == "PEXPIRE":
                raise StoreUnavailable("the store is away")
            return await super().run(commands)

    await users_of(keys).put(keys.user(42), ANN)
    await keys.user.store.run([("PEXPIRE", keys.user(42).key, MINUTE)])
    watched = UserKeys(Unwritable(keys.user.store))
    assert await users_of(watched).get(watched.user(42), Provider()) == ANN
    assert "its TTL could not be extended: store-unavailable" in caplog.text
    assert "42" not in caplog.text


@everywhere
async def test_many_are_one_round_trip_and_each_is_used(keys: UserKeys) -> None:
    watched = Relay(keys.user.store)
    seen = UserKeys(watched)
    cache = users_of(seen)
    for id in (1, 2, 3):
        await cache.put(seen.user(id), User(name=str(id), role="x"))
    await keys.user.store.run([("PEXPIRE", keys.user(2).key, MINUTE)])
    watched.log.clear()
    found = await cache.get_many([seen.user(id) for id in (3, 2, 1)], lambda key: Provider()())
    assert [user and user.name for user in found] == ["3", "2", "1"]
    assert [commands[0][0] for commands in watched.log] == ["HGETALL", "PEXPIRE"]


# --- a look, together with others ------------------------------------------------------------------------------------


@everywhere
async def test_a_lookup_shares_a_round_trip_and_loads_only_missing_entries(keys: UserKeys) -> None:
    watched = Relay(keys.user.store)
    seen = UserKeys(watched)
    cache, provider = users_of(seen), Provider(ANN)
    look, other = await seen.run(cache.look(seen.user(42)), seen.truth(42).exists())
    assert (look, other) == (CacheLookup(seen.user(42), left_ms=-2), False)
    assert len(watched.log) == 1
    assert await cache.answer_to(look, provider) == CacheResult(ANN, "loaded")
    watched.log.clear()
    look, _ = await seen.run(cache.look(seen.user(42)), seen.truth(42).exists())
    assert await cache.answer_to(look, provider) == CacheResult(ANN, "hit")
    assert len(watched.log) == 1
    assert provider.calls == 1
    with pytest.raises(BadKey, match="pass a key of that family"):
        cache.look(keys.user(42))


@everywhere
@pytest.mark.parametrize("stored", ["nonsense", "of another kind"])
async def test_an_unreadable_entry_is_loaded_again(keys: UserKeys, stored: str) -> None:
    key, cache = keys.user(42), users_of(keys)
    command = ("HSET", key.key, "name", "no role") if stored == "nonsense" else ("SADD", key.key, "a")
    await keys.user.store.run([command])
    try:
        [look] = await keys.run(cache.look(key))
        assert isinstance(look.error, Unreadable)
    except Exception as error:
        look = CacheLookup(key, error=error)  # type: ignore[arg-type]
    assert await cache.answer_to(look, Provider(ANN)) == CacheResult(ANN, "loaded")
    assert await cache.get(key, Provider()) == ANN


@here
async def test_a_lookup_during_an_outage_calls_the_loader(keys: UserKeys) -> None:
    error = StoreUnavailable("the store is away")
    assert await users_of(keys).answer_to(CacheLookup(keys.user(42), error=error), Provider(ANN)) == CacheResult(
        ANN, "loaded"
    )
    with pytest.raises(StoreUnavailable):
        await users_of(keys, store_down="raise").answer_to(CacheLookup(keys.user(42), error=error), Provider(ANN))


# --- field by field ------------------------------------------------------------------------------------------------


@everywhere
async def test_fields_are_changed_one_by_one_and_different_ones_both_survive(keys: UserKeys) -> None:
    cache, key = users_of(keys), keys.user(42)
    await cache.put(key, ANN)
    changes = [cache.change(key, {"role": "PM"}), users_of(keys).change(key, {"name": "Anna", "team": None})]
    assert await asyncio.gather(*changes) == [True, True]
    assert await cache.get(key, Provider()) == User(name="Anna", role="PM")


@everywhere
async def test_a_change_creates_and_resurrects_no_entry(keys: UserKeys) -> None:
    cache, key = users_of(keys), keys.user(42)
    assert await cache.change(key, {"role": "PM"}) is False
    await cache.put(key, ANN)
    await cache.invalidate(key)
    assert await cache.change(key, {"role": "PM"}) is False
    assert await key.exists() is False
    assert await keys.mark(42).exists() is False


@everywhere
async def test_a_change_of_an_invalid_entry_drops_it(keys: UserKeys) -> None:
    cache, key = users_of(keys), keys.user(42)
    await keys.user.store.run([("SADD", key.key, "of another kind")])
    assert await cache.change(key, {"role": "PM"}) is False
    assert await cache.answer(key, Provider(ANN)) == CacheResult(ANN, "loaded")


@everywhere
async def test_a_change_keeps_a_fixed_lifetime_and_deletes_the_stale_copy(keys: UserKeys) -> None:
    cache = Cache(keys.fixed, keys.fixed_mark, stale=keys.fixed_stale)
    await cache.put(keys.fixed(1), ANN)
    await keys.fixed.store.run([("PEXPIRE", keys.fixed(1).key, MINUTE)])
    assert await cache.change(keys.fixed(1), {"role": "PM"}) is True
    left = await keys.fixed(1).remaining()
    assert left is not None
    assert left <= timedelta(minutes=1)
    assert await keys.fixed_stale(1).exists() is False


@here
async def test_only_a_hash_has_fields_to_change(keys: UserKeys) -> None:
    with pytest.raises(BadDeclaration, match="use put"):
        await Cache(keys.value, keys.value_mark).change(keys.value(1), {"role": "PM"})
    with pytest.raises(BadKey, match="pass a key of that family"):
        await users_of(keys).change(keys.fixed(1), {"role": "PM"})


async def unless_busy(asked: Any) -> Any:
    try:
        return await asked
    except LoadFailed as failed:
        return "busy" if failed.why == "TimeoutError" else failed


@everywhere
@pytest.mark.parametrize("there", [False, True], ids=["nothing there", "an entry"])
@pytest.mark.parametrize("refreshes", [False, True], ids=["get", "refresh"])
async def test_in_every_order_of_a_load_and_a_change_the_change_is_seen_after_it(
    keys: UserKeys, there: bool, refreshes: bool
) -> None:
    changed = ANN.model_copy(update={"role": "PM"})

    async def once(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        own = users_of(keys)
        await own.invalidate(keys.user(42))
        await keys.truth(42).set(ANN)
        if there:
            await own.put(keys.user(42), ANN)
        gated = Gated(keys.user.store)
        theirs, ours = UserKeys(gated), UserKeys(gated)
        loading, changing = users_of(theirs, wait=nobody_waits), users_of(ours, wait=nobody_waits)

        async def load() -> None:
            asked = loading.refresh if refreshes else loading.get
            assert await unless_busy(asked(theirs.user(42), theirs.truth(42).get)) in (ANN, changed, "busy")

        async def change() -> None:
            await ours.truth(42).update({"role": "PM"})
            await changing.change(ours.user(42), {"role": "PM"})

        order, _ = await in_order(gated, {"a": load, "b": change}, first)
        assert await own.get(keys.user(42), keys.truth(42).get) == changed
        return order

    assert await every_order(once, switches=3) >= 3


@on("memory")
async def test_reads_after_a_change_see_it_despite_a_load_in_progress(keys: UserKeys) -> None:
    provider = Provider(ANN)
    provider.may_answer.clear()
    early = asyncio.create_task(users_of(keys).get(keys.user(42), provider))
    await provider.was_asked.wait()
    provider.says = ANN.model_copy(update={"role": "PM"})
    assert await users_of(keys).change(keys.user(42), {"role": "PM"}) is False
    provider.may_answer.set()
    await early
    found = await users_of(keys).get(keys.user(42), provider)
    assert found is not None
    assert found.role == "PM"
