"""Lifetimes: both deadlines hold to the millisecond, most reads write nothing, and TTLs are as declared."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from keystead import Store
from keystead.parts.sessions import AAL1, AAL2, AAL3, Gone, Live, New, Policy, Sessions
from keystead.schema.lifetime import After, Sliding
from tests.parts.sessions.conftest import AppKeys, AppSession, Clock, everywhere, is_new, sessions_of
from tests.parts.sessions.relays import Relay

HOUR_MS = 3_600_000
POLICY = Policy(idle="1h", absolute="3h")


def seen_ms(live: Live[AppSession] | Gone) -> int:
    assert isinstance(live, Live)
    return round(live.session.last_seen_at.timestamp() * 1000)


# --- deadlines -----------------------------------------------------------------------------------------------


@everywhere
async def test_a_session_that_is_not_used_ends_to_the_millisecond(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock, POLICY)
    one = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(HOUR_MS - 1)
    assert await sessions.list_for("ann")
    clock.pass_ms(1)
    assert await sessions.read(one.token) == Gone("expired")
    assert await sessions.read(one.token) == Gone("unknown")  # nothing of it is left


@everywhere
async def test_a_session_used_in_its_last_millisecond_stays_alive(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock, POLICY)
    one = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(HOUR_MS - 1)
    found = await sessions.read(one.token)
    assert isinstance(found, Live)
    assert found.ends_at_ms == clock.now_ms + HOUR_MS
    clock.pass_ms(HOUR_MS - 1)
    assert await sessions.read(one.token)


@everywhere
async def test_use_does_not_move_the_absolute_deadline(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock, POLICY)
    one = await sessions.create(AppSession(uid="ann"))
    began_ms = clock.now_ms
    for _ in range(5):
        clock.pass_ms(HOUR_MS // 2)
        assert await sessions.touch(one.token)
        assert await sessions.update(one.token, seen=1)
    clock.now_ms = began_ms + 3 * HOUR_MS - 1
    found = await sessions.read(one.token)
    assert isinstance(found, Live)
    assert found.ends_at_ms == began_ms + 3 * HOUR_MS
    clock.pass_ms(1)
    assert await sessions.read(one.token) == Gone("expired")
    assert await sessions.list_for("ann") == []


@everywhere
async def test_a_change_does_not_extend_a_session(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock, POLICY)
    one = await sessions.create(AppSession(uid="ann"))
    past = datetime(1980, 1, 1, tzinfo=UTC)
    clock.pass_ms(HOUR_MS - 1)

    def forged(session: AppSession) -> AppSession:
        return session.model_copy(update={"uid": "bob", "created_at": past, "last_seen_at": past, "seen": 7})

    changed = await sessions.change(one.token, forged)
    assert isinstance(changed, Live)
    expected = one.session.model_copy(update={"seen": 7})
    assert changed.session == expected
    clock.pass_ms(1)
    assert await sessions.read(one.token) == Gone("expired")


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_caller_values_for_login_times_are_replaced(sessions: Sessions[AppSession], clock: Clock) -> None:
    late = datetime(9000, 1, 1, tzinfo=UTC)
    made = await sessions.create(AppSession(uid="ann", created_at=late, last_seen_at=late))
    assert {made.session.created_at, made.session.last_seen_at} == {datetime.fromtimestamp(clock.now_ms / 1000, UTC)}


def test_the_presets_are_the_levels_of_nist_sp_800_63b() -> None:
    day_ms = 24 * HOUR_MS
    assert (AAL1.absolute_ms, AAL1.idle_ms) == (30 * day_ms, 30 * day_ms)
    assert (AAL2.absolute_ms, AAL2.idle_ms) == (day_ms, HOUR_MS)
    assert (AAL3.absolute_ms, AAL3.idle_ms) == (12 * HOUR_MS, HOUR_MS // 4)


@pytest.mark.parametrize("preset", [AAL1, AAL2, AAL3], ids=["AAL1", "AAL2", "AAL3"])
@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_each_preset_holds_its_deadlines(store: Store, clock: Clock, preset: Policy) -> None:
    sessions = sessions_of(store, clock, preset)
    made = await sessions.create(AppSession(uid="ann"))
    began_ms = clock.now_ms
    clock.pass_ms(preset.idle_ms - 1)
    while clock.now_ms < began_ms + preset.absolute_ms:
        assert await sessions.read(made.token)
        clock.pass_ms(preset.idle_ms - 1)
    assert await sessions.read(made.token) == Gone("expired")
    idle = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(preset.idle_ms)
    assert await sessions.read(idle.token) == Gone("expired")


# --- what a request costs ------------------------------------------------------------------------------------


@everywhere
async def test_a_read_is_one_round_trip_and_last_seen_is_accurate_to_a_minute(store: Store, clock: Clock) -> None:
    relay = Relay(store)
    sessions = sessions_of(relay, clock)
    made = await sessions.create(AppSession(uid="ann"))
    relay.log.clear()
    requests = writes = 0
    for _ in range(1000):
        clock.pass_ms(1009)
        found = await sessions.read(made.token)
        assert clock.now_ms - seen_ms(found) < 60_000
        requests += 1
        writes += seen_ms(found) == clock.now_ms
    in_cluster = store.guarantees.atomic == "one slot"
    assert writes == 1009 * 1000 // 60_000
    assert len(relay.log) == requests + writes * (2 if in_cluster else 1)


@everywhere
async def test_a_login_takes_two_round_trips(store: Store, clock: Clock) -> None:
    relay = Relay(store)
    await sessions_of(relay, clock).create(AppSession(uid="ann"))
    assert len(relay.log) == (3 if store.guarantees.atomic == "one slot" else 2)


async def test_a_use_is_noted_at_most_once_a_minute_and_more_often_where_sessions_are_short() -> None:
    assert Policy(idle="30d").touch_every_ms == 60_000
    assert Policy(idle="20m").touch_every_ms == 60_000
    assert Policy(idle="5m").touch_every_ms == 15_000


# --- the TTL of every key ------------------------------------------------------------------------------------

Verb = Callable[[Sessions[AppSession], str, Clock], Awaitable[Any]]


async def _noted_read(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    clock.pass_ms(61_000)
    return await sessions.read(token)


VERBS: dict[str, Verb] = {
    "create": lambda sessions, token, clock: sessions.create(AppSession(uid="ann")),
    "read": _noted_read,
    "touch": lambda sessions, token, clock: sessions.touch(token),
    "rotate": lambda sessions, token, clock: sessions.rotate(token),
    "update": lambda sessions, token, clock: sessions.update(token, theme="dark"),
    "revoke others": lambda sessions, token, clock: sessions.revoke_others(token),
    "list": lambda sessions, token, clock: sessions.list_for("ann"),
}


@everywhere
@pytest.mark.parametrize("verb", VERBS)
async def test_after_each_verb_every_key_has_the_lifetime_of_its_family(
    store: Store, clock: Clock, keys: AppKeys, verb: str
) -> None:
    """A key that a verb writes gets its whole lifetime; other keys keep their TTL."""
    sessions = sessions_of(store, clock, Policy(cap=2))
    await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(1)
    await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(1)
    made = await sessions.create(AppSession(uid="ann"))
    short_ms = 1_000_000
    for name in (keys.session(made.id).key, keys.user_sessions("ann").key):
        await store.run([("PEXPIRE", name, short_ms)])
    assert await VERBS[verb](sessions, made.token, clock) is not False
    for bound in keys.bounds():
        lifetime = bound.family.lifetime
        assert isinstance(lifetime, Sliding | After)
        async for key in bound.scan():
            [left] = await store.run([("PTTL", key.key)])
            whole = lifetime.ms - 60_000 if isinstance(lifetime, Sliding) else lifetime.ms - 5_000
            untouched = verb in ("list", "revoke others", "create") and 0 < left <= short_ms
            assert whole < left <= lifetime.ms or untouched, key.key
    [left] = await store.run([("PTTL", keys.user_sessions("ann").key)])
    assert (left > short_ms) == (verb != "list")


@everywhere
async def test_a_list_lives_at_least_as_long_as_each_session_that_it_names(
    store: Store, clock: Clock, keys: AppKeys
) -> None:
    sessions = sessions_of(store, clock)
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(3)]
    await store.run([("PEXPIRE", keys.user_sessions("ann").key, 5_000)])
    assert await sessions.touch(made[0].token)
    left = await store.run([("PTTL", keys.session(one.id).key) for one in made])
    [listed] = await store.run([("PTTL", keys.user_sessions("ann").key)])
    assert listed >= max(left) - 1_000
    rotated = is_new(await sessions.rotate(made[1].token))
    [record] = await store.run([("PTTL", keys.session(rotated.id).key)])
    assert record > Policy().idle_ms - 60_000


@everywhere
async def test_keys_live_as_long_as_the_policy_and_not_as_long_as_their_family_could(
    store: Store, clock: Clock, keys: AppKeys
) -> None:
    """So the data of a session is gone when the session ends, not weeks later."""
    sessions = sessions_of(store, clock, Policy(idle="1h", absolute="90m"))

    async def left_ms(made: New[AppSession]) -> tuple[int, int]:
        record, listed = await store.run([("PTTL", keys.session(made.id).key), ("PTTL", keys.user_sessions("ann").key)])
        return record, listed

    made = await sessions.create(AppSession(uid="ann"))
    for left in await left_ms(made):
        assert HOUR_MS - 60_000 < left <= HOUR_MS
    clock.pass_ms(HOUR_MS // 2)
    assert await sessions.update(made.token, theme="dark")  # which is no use
    assert HOUR_MS // 2 - 60_000 < (await left_ms(made))[0] <= HOUR_MS // 2
    assert await sessions.touch(made.token)
    assert HOUR_MS - 60_000 < (await left_ms(made))[0] <= HOUR_MS
    clock.pass_ms(HOUR_MS // 2)
    rotated = is_new(await sessions.rotate(made.token))  # the absolute deadline is the nearer one by now
    assert HOUR_MS // 2 - 60_000 < (await left_ms(rotated))[0] <= HOUR_MS // 2


@everywhere
async def test_a_session_whose_record_the_store_has_dropped_in_time_has_expired(
    store: Store, clock: Clock, keys: AppKeys
) -> None:
    sessions = sessions_of(store, clock, POLICY)
    made, _other = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    await store.run([("DEL", keys.session(made.id).key)])  # as its TTL does
    assert await sessions.read(made.token) == Gone("expired")
    assert len(await sessions.list_for("ann")) == 1
