"""Rotation: a new token for the same session, in one step; the old one stops working."""

import asyncio
from collections.abc import Sequence

import pytest

from keystead import Store
from keystead.errors import BadDeclaration
from keystead.parts.sessions import Gone, Live, New, Policy, Sessions
from keystead.parts.sessions.session_token import new_token
from tests.parts.sessions.conftest import (
    RING,
    AppKeys,
    AppSession,
    Clock,
    everywhere,
    in_every_order,
    is_new,
    sessions_of,
    switches_on,
)
from tests.parts.sessions.relays import Actor, Gated, Killed, Mortal, every_order, in_order

GRACE_MS = Policy().grace_ms


@everywhere
async def test_in_the_grace_requests_under_way_read_with_the_old_token_and_then_it_is_dead(
    sessions: Sessions[AppSession], clock: Clock
) -> None:
    made = await sessions.create(AppSession(uid="ann", theme="dark"))
    rotated = is_new(await sessions.rotate(made.token))
    clock.pass_ms(GRACE_MS - 1)
    for found in await asyncio.gather(*(sessions.read(made.token) for _ in range(3))):
        assert isinstance(found, Live)
        assert (found.id, found.session.theme, found.aged) == (rotated.id, "dark", True)
    clock.pass_ms(1)
    assert await sessions.read(made.token) == Gone("unknown")
    found = await sessions.read(rotated.token)
    assert isinstance(found, Live)
    assert found.aged is False


@everywhere
async def test_without_successors_the_old_token_is_invalid_immediately(store: Store, clock: Clock) -> None:
    sessions = Sessions(AppKeys(store, seal=RING, now_ms=clock).session)
    made = await sessions.create(AppSession(uid="ann"))
    rotated = is_new(await sessions.rotate(made.token))
    assert await sessions.read(made.token) == Gone("unknown")
    assert await sessions.read(rotated.token)


@everywhere
async def test_an_old_token_cannot_be_rotated_again(sessions: Sessions[AppSession]) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    rotated = is_new(await sessions.rotate(made.token))
    assert await sessions.rotate(made.token) == Gone("unknown")
    assert [live.id for live in await sessions.list_for("ann")] == [rotated.id]


@everywhere
async def test_a_request_from_before_two_rotations_is_still_served_in_its_grace(
    sessions: Sessions[AppSession], clock: Clock
) -> None:
    first = await sessions.create(AppSession(uid="ann"))
    second = is_new(await sessions.rotate(first.token))
    clock.pass_ms(GRACE_MS // 2)
    third = is_new(await sessions.rotate(second.token))
    found = await sessions.read(first.token)
    assert isinstance(found, Live)
    assert found.id == third.id
    clock.pass_ms(GRACE_MS // 2)
    assert await sessions.read(first.token) == Gone("unknown")
    assert await sessions.read(second.token)


@everywhere
async def test_a_logout_with_an_old_token_ends_the_session_also_after_two_rotations(
    sessions: Sessions[AppSession],
) -> None:
    first = await sessions.create(AppSession(uid="ann"))
    second = is_new(await sessions.rotate(first.token))
    third = is_new(await sessions.rotate(second.token))
    assert await sessions.revoke(first.token) is True
    for token in (first.token, second.token, third.token):
        assert not await sessions.read(token)
    assert await sessions.list_for("ann") == []


@everywhere
async def test_a_hundred_rotations_keep_the_login_the_deadline_and_the_place_in_the_list(
    store: Store, clock: Clock
) -> None:
    sessions = sessions_of(store, clock, Policy(idle="1h", absolute="24h", cap=2))
    made = await sessions.create(AppSession(uid="ann", theme="dark"))
    began_ms = clock.now_ms
    clock.pass_ms(1000)
    later = await sessions.create(AppSession(uid="ann"))
    token = made.token
    for _ in range(100):
        clock.pass_ms(1000)
        token = is_new(await sessions.rotate(token)).token
    found = await sessions.read(token)
    assert isinstance(found, Live)
    assert round(found.session.created_at.timestamp() * 1000) == began_ms
    assert found.session.theme == "dark"
    assert [live.id for live in await sessions.list_for("ann")] == [later.id, found.id]
    # It is still the one whose login is longest ago: so it is the one that must go.
    newest = await sessions.create(AppSession(uid="ann"))
    assert newest.evicted == (found.id,)


@everywhere
async def test_rotations_do_not_move_the_absolute_deadline(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock, Policy(idle="1h", absolute="2h"))
    token = (await sessions.create(AppSession(uid="ann"))).token
    for _ in range(3):
        clock.pass_ms(30 * 60_000)
        token = is_new(await sessions.rotate(token)).token
    clock.pass_ms(30 * 60_000 - 1)
    assert await sessions.read(token)
    clock.pass_ms(1)
    assert await sessions.read(token) == Gone("expired")


@everywhere
async def test_a_program_that_is_killed_in_a_rotation_leaves_exactly_one_token_that_works(
    store: Store, clock: Clock
) -> None:
    sessions = sessions_of(store, clock)
    finished = False
    lives = 0
    while not finished:
        made = await sessions.create(AppSession(uid="ann", theme="dark"))
        mortal = sessions_of(Mortal(store, lives), clock, new_secret=lambda: bytes(32))
        try:
            await mortal.rotate(made.token)
            finished = True
        except Killed:
            lives += 1
        clock.pass_ms(GRACE_MS)
        tokens = [made.token, new_token(bytes(32), "ann")]
        alive = [found for found in [await sessions.read(token) for token in tokens] if found]
        assert len(alive) == 1, f"killed after {lives} commands"
        assert alive[0].session.theme == "dark"
        assert [live.id for live in await sessions.list_for("ann")] == [alive[0].id]
        await sessions.revoke_all("ann")
        for key in [key async for page in store.scan("sess:*") for key in page]:
            await store.run([("DEL", key)])  # what a killed program left in a cluster, which is listed nowhere
    assert lives >= 3


@in_every_order
async def test_in_every_order_a_change_is_not_lost_by_a_rotation(ordered: Store) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        clock, gated = Clock(), Gated(ordered)
        sessions, others = sessions_of(gated, clock), sessions_of(gated, clock)
        made = await sessions.create(AppSession(uid="ann"))
        order, results = await in_order(
            gated,
            {"a": lambda: sessions.rotate(made.token), "b": lambda: others.update(made.token, theme="dark")},
            first,
        )
        assert isinstance(results["b"], Live), order
        found = await sessions.read(is_new(results["a"]).token)
        assert isinstance(found, Live), order
        assert found.session.theme == "dark", order
        await sessions.revoke_all("ann")
        return order

    assert await every_order(one, switches=switches_on(ordered)) >= 6


@in_every_order
async def test_in_every_order_a_read_succeeds_during_a_rotation(ordered: Store) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        clock, gated = Clock(), Gated(ordered)
        sessions, others = sessions_of(gated, clock), sessions_of(gated, clock)
        made = await sessions.create(AppSession(uid="ann"))
        clock.pass_ms(61_000)  # so that the read notes that it was used
        order, results = await in_order(
            gated, {"a": lambda: sessions.rotate(made.token), "b": lambda: others.read(made.token)}, first
        )
        assert isinstance(results["a"], New), order
        assert isinstance(results["b"], Live), order
        await sessions.revoke_all("ann")
        return order

    assert await every_order(one, switches=switches_on(ordered)) >= 6


@in_every_order
async def test_of_two_concurrent_rotations_one_wins_and_one_session_is_alive(ordered: Store) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        clock, gated = Clock(), Gated(ordered)
        sessions, others = sessions_of(gated, clock), sessions_of(gated, clock)
        made = await sessions.create(AppSession(uid="ann"))
        order, results = await in_order(
            gated, {"a": lambda: sessions.rotate(made.token), "b": lambda: others.rotate(made.token)}, first
        )
        won = [result for result in results.values() if result]
        assert len(won) == 1, order
        clock.pass_ms(GRACE_MS)
        assert await sessions.read(is_new(won[0]).token), order
        assert not await sessions.read(made.token), order
        assert [live.id for live in await sessions.list_for("ann")] == [won[0].id], order
        await sessions.revoke_all("ann")
        return order

    assert await every_order(one, switches=switches_on(ordered, 3)) >= 6


@in_every_order
async def test_in_every_order_revoke_others_keeps_its_caller_through_a_rotation(ordered: Store) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        clock, gated = Clock(), Gated(ordered)
        sessions, others = sessions_of(gated, clock), sessions_of(gated, clock)
        made = await sessions.create(AppSession(uid="ann"))
        other = await sessions.create(AppSession(uid="ann"))
        order, results = await in_order(
            gated, {"a": lambda: sessions.rotate(made.token), "b": lambda: others.revoke_others(made.token)}, first
        )
        assert results["b"] == 1, order
        rotated = is_new(results["a"])
        assert await sessions.read(rotated.token), order
        assert await sessions.read(other.token) == Gone("revoked"), order
        assert [live.id for live in await sessions.list_for("ann")] == [rotated.id], order
        await sessions.revoke_all("ann")
        return order

    assert await every_order(one, switches=switches_on(ordered, 3)) >= 6


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_a_grace_that_its_family_cannot_keep_is_refused(store: Store, clock: Clock) -> None:
    with pytest.raises(BadDeclaration, match=r"after\(\.\.\.\) with 30 seconds or more"):
        sessions_of(store, clock, Policy(grace="30s"))


@everywhere
async def test_a_new_login_has_a_new_token_and_new_deadlines(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock, Policy(idle="1h", absolute="2h"))
    old = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(59 * 60_000)
    assert await sessions.revoke(old.token)
    new = await sessions.create(AppSession(uid="ann"))
    assert new.token != old.token
    assert await sessions.read(old.token) == Gone("unknown")
    for _ in range(2):
        clock.pass_ms(59 * 60_000)
        assert await sessions.read(new.token)
    clock.pass_ms(2 * 60_000)
    assert await sessions.read(new.token) == Gone("expired")
