"""Revocation: a logout, one session, the others, all of a user or of everyone; and the list of live sessions."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from keystead import Keyspace, Set, Store, Value, connect, link, sliding
from keystead.errors import StoreUnavailable
from keystead.parts.sessions import Gone, New, Policy, SessionRecord, Sessions
from tests.parts.sessions.conftest import (
    RING,
    AppKeys,
    AppSession,
    Clock,
    everywhere,
    in_every_order,
    in_one_step,
    sessions_of,
    switches_on,
)
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order


async def alive(sessions: Sessions[AppSession], made: Sequence[New[AppSession]]) -> list[bool]:
    return [bool(await sessions.read(one.token)) for one in made]


async def keys_of(store: Store) -> set[str]:
    return {key.decode() async for page in store.scan() for key in page}


@everywhere
async def test_a_logout_ends_its_session_in_every_process_and_leaves_nothing(store: Store, clock: Clock) -> None:
    here, there = sessions_of(store, clock), sessions_of(store, clock)
    made = await here.create(AppSession(uid="ann"))
    await AppKeys(store, now_ms=clock, needs_seal=False).lock(made.id).set("the holder")
    assert await there.read(made.token)
    assert await here.revoke(made.token) is True
    assert await there.read(made.token) == Gone("unknown")
    assert await there.revoke(made.token) is False
    assert await keys_of(store) == set()


@everywhere
async def test_a_logout_leaves_the_other_sessions_of_the_user_alone(sessions: Sessions[AppSession]) -> None:
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(3)]
    await sessions.revoke(made[1].token)
    assert await alive(sessions, made) == [True, False, True]
    assert {live.id for live in await sessions.list_for("ann")} == {made[0].id, made[2].id}


@everywhere
async def test_a_session_ended_by_its_id_reports_the_reason(sessions: Sessions[AppSession]) -> None:
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    assert await sessions.revoke_id("ann", made[0].id) is True
    assert await sessions.revoke_id("ann", made[0].id) is False
    assert await sessions.read(made[0].token) == Gone("revoked")
    assert await sessions.read(made[1].token)


@everywhere
async def test_the_id_of_another_users_session_ends_nothing(store: Store, sessions: Sessions[AppSession]) -> None:
    hers = await sessions.create(AppSession(uid="ann"))
    await sessions.create(AppSession(uid="bob"))
    before = await keys_of(store)
    for id in (hers.id, "", "*", "sess:*", "ann"):
        assert await sessions.revoke_id("bob", id) is False
    assert await keys_of(store) == before
    assert await sessions.read(hers.token)


@everywhere
async def test_revoke_others_keeps_exactly_the_caller(sessions: Sessions[AppSession]) -> None:
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(4)]
    bobs = await sessions.create(AppSession(uid="bob"))
    assert await sessions.revoke_others(made[2].token) == 3
    assert await alive(sessions, made) == [False, False, True, False]
    assert await sessions.read(made[0].token) == Gone("revoked")
    assert [live.id for live in await sessions.list_for("ann")] == [made[2].id]
    assert await sessions.read(bobs.token)


@everywhere
async def test_a_session_that_has_ended_cannot_end_the_others(sessions: Sessions[AppSession]) -> None:
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    await sessions.revoke(made[0].token)
    assert await sessions.revoke_others(made[0].token) == 0
    assert await sessions.read(made[1].token)


@everywhere
async def test_revoke_all_ends_all_sessions_of_one_user_only(store: Store, sessions: Sessions[AppSession]) -> None:
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(4)]
    bobs = await sessions.create(AppSession(uid="bob"))
    assert await sessions.revoke_all("ann") == 4
    assert await alive(sessions, made) == [False] * 4
    assert await sessions.read(made[0].token) == Gone("revoked")
    assert await sessions.read(bobs.token)
    left = {key for key in await keys_of(store) if not key.startswith("end:")}
    assert len(left) == 2  # the session of bob, and his list
    assert await sessions.revoke_all("ann") == await sessions.revoke_all("nobody") == 0


@everywhere
async def test_a_lost_list_ends_all_sessions(store: Store, sessions: Sessions[AppSession], keys: AppKeys) -> None:
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(3)]
    await store.run([("DEL", keys.user_sessions("ann").key)])
    assert await sessions.revoke_all("ann") == 0
    assert await alive(sessions, made) == [False] * 3
    for one in made:
        assert await sessions.touch(one.token) is False
        assert await sessions.rotate(one.token) == Gone("unknown")
        assert await sessions.update(one.token, theme="dark") == Gone("unknown")
    again = await sessions.create(AppSession(uid="ann"))
    assert await alive(sessions, [*made, again]) == [False, False, False, True]


@everywhere
async def test_revoke_all_is_one_atomic_step_followed_by_clean_up(store: Store, clock: Clock) -> None:
    relay = Relay(store)
    sessions = sessions_of(relay, clock)
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(3)]
    relay.log.clear()
    await sessions.revoke_all("ann")
    assert [step[0] for step in relay.log[0]] == ["SMEMBERS", "DEL"]
    assert await alive(sessions, made) == [False] * 3


@in_every_order
async def test_in_every_order_a_login_beside_revoke_all_is_ended_or_alive_and_listed(ordered: Store) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        clock, gated = Clock(), Gated(ordered)
        sessions, others = sessions_of(gated, clock), sessions_of(gated, clock)
        before = await sessions.create(AppSession(uid="ann"))
        order, results = await in_order(
            gated, {"a": lambda: sessions.create(AppSession(uid="ann")), "b": lambda: others.revoke_all("ann")}, first
        )
        new = results["a"]
        is_alive = bool(await sessions.read(new.token))
        is_listed = new.id in [live.id for live in await sessions.list_for("ann")]
        assert is_alive == is_listed == (results["b"] == 1), order
        assert await sessions.read(before.token) == Gone("revoked"), order
        await sessions.revoke_all("ann")
        return order

    assert await every_order(one, switches=switches_on(ordered)) >= 3


@everywhere
async def test_an_operator_ends_the_sessions_of_everybody(store: Store, sessions: Sessions[AppSession]) -> None:
    users = {"ann": 2, "bob:*": 1, "{}": 3, "ünï\n": 1}
    made = [await sessions.create(AppSession(uid=user)) for user, count in users.items() for _ in range(count)]
    assert {user: count async for user, count in sessions.revoke_everyone() if count} == users
    assert not any(await alive(sessions, made))
    assert all(key.startswith("end:") for key in await keys_of(store))


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_an_operator_ends_the_sessions_of_a_user_whose_id_is_stored_as_a_digest(store: Store) -> None:
    class BoundedKeys(Keyspace):
        session = Value(
            "sess:{sid:token}",
            AppSession,
            lifetime=sliding("30d", touch_every="1m"),
            listed_in=link("user_sessions", admits=True),
        )
        user_sessions = Set("user:{uid:text<=50}:sessions", str, lifetime=sliding("30d", touch_every="1m"))

    sessions = Sessions(BoundedKeys(store, seal=RING).session)
    made = await sessions.create(AppSession(uid="long" * 20))
    assert [count async for _, count in sessions.revoke_everyone()] == [1]
    assert not await sessions.read(made.token)


# --- the list ------------------------------------------------------------------------------------------------


@everywhere
async def test_a_listing_shows_the_latest_login_first(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock)
    for number in range(3):
        clock.pass_ms(1)
        await sessions.create(AppSession(uid="ann", seen=number))
    found = await sessions.list_for("ann")
    assert [live.session.seen for live in found] == [2, 1, 0]
    assert {live.user for live in found} == {"ann"}
    assert await sessions.list_for("nobody") == []


@everywhere
async def test_a_listing_hides_and_removes_ended_sessions(store: Store, clock: Clock, keys: AppKeys) -> None:
    sessions = sessions_of(store, clock, Policy(idle="1h", absolute="24h"))
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    await store.run([("DEL", keys.session(made[0].id).key)])  # as its TTL does
    clock.pass_ms(1_800_000)
    late = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(1_800_000)
    assert [live.id for live in await sessions.list_for("ann")] == [late.id]
    assert (await store.run([("SMEMBERS", keys.user_sessions("ann").key)]))[0] == {late.id.encode()}
    assert (await store.run([("EXISTS", keys.session(made[1].id).key)]))[0] == 0


@everywhere
async def test_the_list_of_a_user_without_a_cap_does_not_grow_for_ever(
    store: Store, clock: Clock, keys: AppKeys
) -> None:
    sessions = sessions_of(store, clock, Policy(idle="1h", absolute="24h", cap=None))
    sizes = []
    for _ in range(200):
        clock.pass_ms(600_000)  # six of them are alive at each time
        await sessions.create(AppSession(uid="ann"))
        sizes.append((await store.run([("SCARD", keys.user_sessions("ann").key)]))[0])
    assert max(sizes) <= 16


class Brief(Keyspace):
    """Sessions that end while a test looks on."""

    session = Value(
        "sess:{sid:token}",
        SessionRecord,
        lifetime=sliding("2s", touch_every="100ms"),
        listed_in=link("user_sessions", admits=True),
    )
    user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("2s", touch_every="100ms"))


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_ten_thousand_expired_sessions_are_swept_without_readers(store: Store, store_url: str) -> None:
    sessions = Sessions(Brief(store).session, Policy(idle="2s", absolute="1h", cap=None))
    [before] = await store.run([("DBSIZE",)])
    for wave in range(100):  # so few at once that none waits for long, on a busy machine
        await asyncio.gather(*(sessions.create(SessionRecord(uid=f"user {wave % 10}")) for _ in range(100)))
    until = time.monotonic() + 60
    async with connect(store_url) as other:  # which has seen nothing of them
        while (left := (await other.run([("DBSIZE",)]))[0]) > before:
            assert time.monotonic() < until, f"{left} keys are left"
            await asyncio.sleep(0.05)
        assert await keys_of(other) == set()


@in_one_step
async def test_a_logout_is_final_even_if_the_clean_up_fails(store: Store, clock: Clock) -> None:
    class Failing(Relay):
        async def before(self) -> None:
            if len(self.log) >= self.good:
                raise StoreUnavailable("it went away")

        good = 1_000

    failing = Failing(store)
    sessions = sessions_of(failing, clock)
    made = await sessions.create(AppSession(uid="ann"))
    failing.good = len(failing.log) + 1
    assert await sessions.revoke(made.token) is True
    failing.good = 1_000
    assert await sessions.read(made.token) == Gone("unknown")
