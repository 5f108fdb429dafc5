"""Data sessions: keys of their own, lifetimes, tokens, and the sessions of a user."""

import asyncio
from typing import Any

import pytest

from keystead import Store, connect, wait
from keystead.errors import BadValue
from keystead.parts.datasessions import DataSessions, Gone, data_session_keys
from tests import servers
from tests.every_store import on
from tests.parts.datasessions.conftest import HOUR_MS, MINUTE_MS, everywhere, keys_of, live, sessions_on
from tests.parts.sessions.conftest import Clock
from tests.parts.sessions.relays import Relay

DATA: dict[str, Any] = {"cart": ["apple", {"n": 2}], "name": "Ann", "none": None, "ß \n{}": 1.5, "": True}


@everywhere
async def test_what_is_created_is_loaded_in_one_round_trip(store: Store, clock: Clock) -> None:
    made = await sessions_on(store, clock).create(DATA, user="ann")
    relay = Relay(store)
    found = live(await sessions_on(relay, clock).load(made.token))
    assert (found.data, found.user, found.id, found.aged) == (DATA, "ann", made.id, False)
    assert len(relay.log) == 1


@everywhere
async def test_two_requests_that_change_different_keys_both_succeed(sessions: DataSessions) -> None:
    made = await sessions.create({"kept": 1, "gone": 2}, client="192.0.2.1")
    one, two = live(await sessions.load(made.token)), live(await sessions.load(made.token))
    one.data["theme"] = "dark"
    del two.data["gone"]
    two.data["list"] = [1]
    assert await sessions.save(one)
    saved = live(await sessions.save(two))
    saved.data["list"].append(2)
    assert await sessions.save(saved)
    assert live(await sessions.load(made.token)).data == {"kept": 1, "theme": "dark", "list": [1, 2]}


async def test_only_changed_keys_are_written_and_nothing_if_none_has_changed() -> None:
    async with connect("memory://") as store:
        relay, clock = Relay(store), Clock()
        sessions = sessions_on(relay, clock)
        made = await sessions.create({"large": "x" * 1000, "n": 1}, client="")
        relay.log.clear()
        assert await sessions.save(made)
        assert relay.log == []
        made.data["n"] = 2
        assert await sessions.save(made)
        assert len(relay.log) == 1
        assert "xxx" not in repr(relay.log)


@everywhere
async def test_an_ended_session_leaves_nothing_and_is_not_written_again(store: Store, clock: Clock) -> None:
    here, there = sessions_on(store, clock), sessions_on(store, clock)
    made = await here.create(DATA, user="ann")
    assert await there.end(live(await there.load(made.token))) is True
    made.data["n"] = 1
    assert await here.save(made) == await here.rotate(made) == await here.touch(made) == Gone("unknown")
    assert await here.sign_in(made, "ann") == Gone("unknown")
    assert await here.end(made) is False
    assert await keys_of(store) == set()


@everywhere
async def test_rotation_keeps_the_data_and_the_old_token_ends_after_the_grace(
    sessions: DataSessions, clock: Clock
) -> None:
    made = await sessions.create({"n": 1}, user="ann")
    late = live(await sessions.load(made.token))
    clock.pass_ms(5)
    new = live(await sessions.rotate(made))
    assert (new.id, new.created_at_ms, new.data) == (made.id, made.created_at_ms, {"n": 1})
    assert new.token != made.token
    assert live(await sessions.load(made.token)).aged
    assert await sessions.rotate(made) == Gone("unknown")
    late.data["late"] = True
    assert await sessions.save(late)
    assert live(await sessions.load(new.token)).data == {"n": 1, "late": True}
    clock.pass_ms(10_000)
    assert await sessions.load(made.token) == Gone("unknown")
    late.data["late"] = "too late"
    assert live(await sessions.load(new.token)).data == {"n": 1, "late": True}


@everywhere
async def test_a_token_needs_its_secret_and_its_owner(store: Store, sessions: DataSessions) -> None:
    made = await sessions.create({"n": 1}, user="ann")
    other = await sessions.create({"n": 2}, user="bob")
    before = await keys_of(store)
    id, secret, owner = made.token.split(".")
    wrong = [
        f"{id}.{other.token.split('.')[1]}.{owner}",
        f"{id}.{secret}.{other.token.split('.')[2]}",
        f"{other.id}.{secret}.{owner}",
        made.record.token,
        id,
        "attackerchosenid",
        "",
        "ß" * 43,
        f"{id}.{secret}.{owner}x" * 50,
    ]
    assert [await sessions.load(token) for token in wrong] == [Gone("unknown")] * len(wrong)
    assert await keys_of(store) == before
    stored = "".join([repr(await store.run([("GET", key)])) for key in before if ":sess:" in key])
    assert secret not in stored
    assert secret not in repr(made)


@everywhere
async def test_idle_and_absolute_timeouts_are_enforced_to_the_millisecond(sessions: DataSessions, clock: Clock) -> None:
    made = await sessions.create({"n": 1}, user="ann")
    clock.pass_ms(HOUR_MS - 1)
    assert live(await sessions.load(made.token)).ends_at_ms == clock.now_ms + HOUR_MS
    clock.pass_ms(HOUR_MS)
    made.data["n"] = 2
    assert await sessions.load(made.token) == Gone("expired")
    again = await sessions.create({"n": 1}, user="ann")
    for _ in range(47):
        clock.pass_ms(HOUR_MS // 2)
        assert live(await sessions.load(again.token)).data == {"n": 1}
    clock.pass_ms(HOUR_MS // 2 - 1)
    assert await sessions.load(again.token)
    clock.pass_ms(1)
    assert not await sessions.load(again.token)  # a server may have removed it already, after that millisecond


@everywhere
async def test_a_session_may_have_a_shorter_lifetime_than_the_policy(
    store: Store, sessions: DataSessions, clock: Clock
) -> None:
    made = await sessions.create({"n": 1}, user="ann", idle="5m")
    assert made.ends_at_ms == clock.now_ms + 5 * MINUTE_MS
    longer = live(await sessions.set_lifetime(made, idle="30m", ends_at=clock.now_ms + 8 * HOUR_MS))
    clock.pass_ms(29 * MINUTE_MS)
    assert live(await sessions.load(longer.token)).data == {"n": 1}
    clock.pass_ms(30 * MINUTE_MS)
    assert await sessions.load(longer.token) == Gone("expired")
    fixed = await sessions.create(user="ann", ends_at=clock.now_ms + 5 * MINUTE_MS)
    clock.pass_ms(5 * MINUTE_MS)
    assert await sessions.load(fixed.token) == Gone("expired")
    past = await sessions.create({"n": 1}, user="ann")
    assert await sessions.set_lifetime(past, ends_at=clock.now_ms - 1) == Gone("expired")
    assert await keys_of(store) <= {key for key in await keys_of(store) if ":end:" in key}


@everywhere
async def test_the_sessions_of_a_user_are_listed_capped_and_ended(sessions: DataSessions, clock: Clock) -> None:
    made = []
    for n in range(4):
        clock.pass_ms(1)
        made.append(await sessions.create({"n": n}, user="@ann"))
    assert made[3].evicted == (made[0].id,)
    assert await sessions.load(made[0].token) == Gone("evicted")
    assert [one.id for one in await sessions.list_for("@ann")] == [one.id for one in reversed(made[1:])]
    assert await sessions.end_id("bob", made[1].id) is await sessions.end_id("@ann", "*") is False
    assert await sessions.end_id("@ann", made[1].id) is True
    assert await sessions.load(made[1].token) == Gone("revoked")
    assert await sessions.end_others(made[3]) == 1
    assert await sessions.load(made[3].token)
    assert await sessions.end_all("@ann") == 1
    assert [bool(await sessions.load(one.token)) for one in made] == [False] * 4


@everywhere
async def test_the_cap_of_anonymous_sessions_is_per_client_address(sessions: DataSessions, clock: Clock) -> None:
    made = await asyncio.gather(*(sessions.create({"n": n}, client="2001:db8::1") for n in range(6)))
    other = await sessions.create({"n": 7}, client="2001:db8:1::1")
    assert sum([bool(await sessions.load(one.token)) for one in made]) == 2
    assert live(await sessions.load(other.token)).user is None


async def test_data_that_is_not_json_or_too_large_is_refused_and_nothing_is_written() -> None:
    async with connect("memory://") as store:
        keys = data_session_keys()(store)
        sessions = DataSessions(keys, fields_max=2, value_max_bytes=20)
        for bad in ({"a": object()}, {"a": float("nan")}, {"a": "x" * 19}, {"a": 1, "b": 2, "c": 3}, {"\ud800": 1}):
            with pytest.raises(BadValue):
                await sessions.create(bad)
        assert await keys_of(store) == set()
        made = await sessions.create({"a": 1})
        both = live(await sessions.load(made.token)), live(await sessions.load(made.token))
        both[0].data["b"] = both[1].data["c"] = 2
        assert await sessions.save(both[0])
        with pytest.raises(BadValue, match="at most 2 keys"):
            await sessions.save(both[1])
        full = live(await sessions.load(made.token))
        full.data |= {"a": 3, "b": 4}
        assert await sessions.save(full), "keys that are there need no room"
        with pytest.raises(BadValue):
            await sessions.save(full, {"a": "\ud800"})
        assert live(await sessions.load(made.token)).data == {"a": 3, "b": 4}


@on("redis")
async def test_on_redis_a_save_keeps_nothing_for_undoing(sessions: DataSessions, redis_server: servers.Server) -> None:
    """No step after its first write can stop it. To copy the key takes the server longer than the save."""
    made = await sessions.create({"n": 0, "list": [1]}, user="ann")
    redis_server.ask("CONFIG", "RESETSTAT")
    for n in range(1, 5):
        made.data["n"] = n
        assert await sessions.save(made)
    assert "cmdstat_dump" not in str(redis_server.ask("INFO", "commandstats"))
    assert live(await sessions.load(made.token)).data == {"n": 4, "list": [1]}


async def test_unreadable_data_signs_out_and_stays() -> None:
    async with connect("memory://") as store:
        sessions = sessions_on(store, Clock())
        made = await sessions.create({"n": 1}, user="ann")
        [key] = [key for key in await keys_of(store) if ":data:" in key]
        await store.run([("HSET", key, "n", "{no")])
        assert await sessions.load(made.token) == Gone("unreadable")
        assert key in await keys_of(store)


def test_synchronous_code_uses_the_same_sessions() -> None:
    sessions = DataSessions(data_session_keys()(connect("memory://")))
    made = wait(sessions.create({"n": 1}, client="192.0.2.1"))
    made.data["n"] = 2
    assert wait(sessions.save(made))
    signed_in = live(wait(sessions.sign_in(made, "ann")))
    assert live(wait(sessions.load(signed_in.token))).data == {"n": 2}
