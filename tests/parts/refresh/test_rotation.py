"""Refresh token rotation: single use, safe to retry, and reuse detection."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from keystead import KeyRing, Store
from keystead.parts.refresh import RefreshEvent, Retried, Rotated, RotationRefused
from keystead.schema.times import deadline_ms
from tests.parts.refresh.conftest import DAY_MS, GRACE_MS, App, Clock, everywhere, here, retried, rotated


@everywhere
async def test_each_use_returns_a_new_token(app: App) -> None:
    begun = await app.begin()
    seen = {begun.token}
    token = begun.token
    for generation in range(1, 6):
        found = await rotated(app.tokens.rotate(token))
        assert found.record.generation == generation
        assert found.id == begun.id
        token = found.token
        seen.add(token)
    assert len(seen) == 6


@everywhere
async def test_twenty_concurrent_uses_of_a_token_get_one_successor(app: App) -> None:
    begun = await app.begin()
    found = await asyncio.gather(*(app.tokens.rotate(begun.token) for _ in range(20)))
    assert sum(isinstance(one, Rotated) for one in found) == 1
    assert sum(isinstance(one, Retried) for one in found) == 19
    [successor] = {one.token for one in found if one}
    assert await rotated(app.tokens.rotate(successor))
    assert app.told == []


@everywhere
async def test_a_retry_inside_the_grace_gets_the_same_successor_and_after_it_the_chain_ends(
    app: App, clock: Clock
) -> None:
    begun = await app.begin()
    first = await rotated(app.tokens.rotate(begun.token))
    clock.pass_ms(GRACE_MS - 1)
    assert (await retried(app.tokens.rotate(begun.token))).token == first.token
    clock.pass_ms(1)
    assert await app.tokens.rotate(begun.token) == RotationRefused("reused", "late")
    assert await app.tokens.rotate(first.token) == RotationRefused("reused", "ended")
    assert app.told == [
        RefreshEvent("refresh-reused", "late", "ann", begun.id, None),
        RefreshEvent("refresh-reused", "ended", "ann", begun.id, None),
    ]


@here
async def test_a_retry_does_not_make_the_grace_longer(app: App, clock: Clock) -> None:
    begun = await app.begin()
    await app.tokens.rotate(begun.token)
    for _ in range(3):
        clock.pass_ms(GRACE_MS // 3)
        last = await app.tokens.rotate(begun.token)
    assert last == RotationRefused("reused", "late")


@here
async def test_both_orders_of_a_lost_answer_leave_a_client_that_works(store: Store, clock: Clock) -> None:
    app, other = App(store, clock), App(store, clock)
    await app.log_in()
    # The first answer is lost, the retry goes to another process and arrives.
    begun = await app.begin()
    lost = await rotated(app.tokens.rotate(begun.token))
    arrived = await retried(other.tokens.rotate(begun.token))
    assert (await rotated(other.tokens.rotate(arrived.token))).record.generation == 2
    # The retry overtakes the first request, whose answer is the one that arrives.
    begun = await app.begin()
    lost_2 = await rotated(other.tokens.rotate(begun.token))
    arrived_2 = await retried(app.tokens.rotate(begun.token))
    assert (arrived.token, arrived_2.token) == (lost.token, lost_2.token)
    assert (await rotated(app.tokens.rotate(arrived_2.token))).record.generation == 2


@everywhere
async def test_a_token_from_before_the_last_ends_the_chain_also_inside_the_grace(app: App) -> None:
    begun = await app.begin()
    first = await rotated(app.tokens.rotate(begun.token))
    second = await rotated(app.tokens.rotate(first.token))
    assert await app.tokens.rotate(begun.token) == RotationRefused("reused", "stale")
    assert await app.tokens.rotate(first.token) == RotationRefused("reused", "ended")
    assert await app.tokens.rotate(second.token) == RotationRefused("reused", "ended")
    assert [event.why for event in app.told] == ["stale", "ended", "ended"]


@everywhere
async def test_the_grace_never_yields_two_chains(app: App) -> None:
    """Attacker and owner use one token, both get a successor, and reuse detection ends the chain."""
    begun = await app.begin()
    owner, thief = await asyncio.gather(app.tokens.rotate(begun.token), app.tokens.rotate(begun.token))
    assert owner
    assert thief
    assert owner.token == thief.token
    owner, thief = await asyncio.gather(app.tokens.rotate(owner.token), app.tokens.rotate(thief.token))
    assert owner
    assert thief
    assert owner.token == thief.token


@here
async def test_who_goes_on_alone_ends_the_other_or_both(app: App, clock: Clock) -> None:
    begun = await app.begin()
    thief = await rotated(app.tokens.rotate(begun.token))
    thief = await rotated(app.tokens.rotate(thief.token))
    clock.pass_ms(GRACE_MS)
    assert await app.tokens.rotate(begun.token) == RotationRefused("reused", "stale")  # the owner comes back
    assert not await app.works(thief.token)


@everywhere
async def test_a_hundred_rotations_do_not_move_the_end_of_the_chain(app: App, clock: Clock) -> None:
    begun = await app.begin()
    ends_ms, token = deadline_ms(begun.record.expires_at), begun.token
    assert ends_ms == clock() + 30 * DAY_MS
    for _ in range(100):
        clock.pass_ms(30 * DAY_MS // 101)
        found = await rotated(app.tokens.rotate(token))
        token = found.token
        assert deadline_ms(found.record.expires_at) == ends_ms
    left = await app.keys.refresh(begun.id).remaining()
    assert left is not None
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30)  # the store's own clock hardly moved
    clock.now_ms = ends_ms - 1
    assert await rotated(app.tokens.rotate(token))
    clock.now_ms = ends_ms
    assert await app.tokens.rotate(token) == RotationRefused("expired")


@here
async def test_the_time_to_live_in_the_store_is_not_renewed_by_a_rotation(app: App) -> None:
    begun = await app.begin()
    await app.keys.refresh(begun.id).bound.store.run([("PEXPIRE", app.keys.refresh(begun.id).key, 90_000)])
    await app.tokens.rotate(begun.token)
    left = await app.keys.refresh(begun.id).remaining()
    assert left is not None
    assert left <= timedelta(seconds=90)


@here
async def test_a_reused_chain_keeps_its_ttl(app: App, clock: Clock) -> None:
    begun = await app.begin()
    await app.keys.refresh(begun.id).bound.store.run([("PEXPIRE", app.keys.refresh(begun.id).key, 90_000)])
    await app.tokens.rotate(begun.token)
    clock.pass_ms(GRACE_MS)
    assert not await app.works(begun.token)
    left = await app.keys.refresh(begun.id).remaining()
    assert left is not None
    assert left <= timedelta(seconds=90)


@everywhere
async def test_a_token_is_valid_for_its_client_only(app: App) -> None:
    begun = await app.begin(client="desktop")
    assert await app.tokens.rotate(begun.token) == RotationRefused("client")
    assert await app.tokens.rotate(begun.token, client="phone") == RotationRefused("client")
    assert [(event.event, event.client) for event in app.told] == [
        ("refresh-wrong-client", None),
        ("refresh-wrong-client", "phone"),
    ]
    first = await rotated(app.tokens.rotate(begun.token, client="desktop"))
    assert await app.tokens.rotate(begun.token, client="phone") == RotationRefused(
        "client"
    )  # no retry for others either
    assert await rotated(app.tokens.rotate(first.token, client="desktop"))


@here
async def test_a_token_without_client_is_not_good_for_one(app: App) -> None:
    assert await app.tokens.rotate((await app.begin()).token, client="desktop") == RotationRefused("client")


@here
async def test_an_old_token_in_the_hands_of_another_client_ends_the_chain(app: App, clock: Clock) -> None:
    begun = await app.begin(client="desktop")
    await app.tokens.rotate(begun.token, client="desktop")
    clock.pass_ms(GRACE_MS)
    assert await app.tokens.rotate(begun.token, client="phone") == RotationRefused("reused", "late")


@here
async def test_a_rotation_gives_no_more_than_the_scope_of_the_beginning(app: App) -> None:
    begun = await app.begin(scope="read write")
    assert await app.tokens.rotate(begun.token, scope="read admin") == RotationRefused("scope")
    part = await rotated(app.tokens.rotate(begun.token, scope="read"))
    assert part.scope == "read"
    assert part.record.scope == "read write"  # asking for less once does not make it less for ever
    assert (await rotated(app.tokens.rotate(part.token))).scope == "read write"
    assert (await app.begin()).scope is None
    assert await app.tokens.rotate((await app.begin()).token, scope="read") == RotationRefused("scope")


@here
async def test_a_rotation_is_for_the_audience_of_the_beginning(app: App) -> None:
    begun = await app.begin(audience="app-client")
    assert await app.tokens.rotate(begun.token, audience="another") == RotationRefused("audience")
    assert (await rotated(app.tokens.rotate(begun.token, audience="app-client"))).record.audience == "app-client"
    assert await app.tokens.rotate((await app.begin()).token, audience="another") == RotationRefused("audience")


@everywhere
async def test_a_token_is_dead_when_its_session_is_gone_and_leaves_nothing(app: App) -> None:
    begun = await app.begin()
    await app.log_out()
    assert await app.tokens.rotate(begun.token) == RotationRefused("session")
    assert await app.keys.refresh(begun.id).get() is None
    await app.log_in()  # and the same session, if it ever came back, would not bring it back
    assert await app.tokens.rotate(begun.token) == RotationRefused("unknown")


@everywhere
async def test_a_retry_is_refused_when_the_session_is_gone(app: App) -> None:
    begun = await app.begin()
    await rotated(app.tokens.rotate(begun.token))
    await app.log_out()
    assert await app.tokens.rotate(begun.token) == RotationRefused("session")


@everywhere
async def test_a_revoked_chain_is_dead_whichever_of_its_tokens_was_shown(app: App) -> None:
    begun = await app.begin()
    first = await rotated(app.tokens.rotate(begun.token))
    assert await app.tokens.revoke(begun.token) is True
    assert await app.tokens.revoke(first.token) is False
    assert await app.tokens.rotate(first.token) == RotationRefused("unknown")
    other = await app.begin()
    assert await app.tokens.revoke_chain(other.id) is True
    assert await app.tokens.revoke_chain(other.id) is False
    assert await app.tokens.revoke_chain("no id: at all") is False
    assert await app.tokens.rotate(other.token) == RotationRefused("unknown")


@here
async def test_chains_of_one_session_do_not_touch_each_other(app: App, clock: Clock) -> None:
    one, other = await app.begin(), await app.begin()
    await app.tokens.rotate(one.token)
    clock.pass_ms(GRACE_MS)
    assert not await app.works(one.token)
    assert await app.works(other.token)


@here
async def test_a_store_that_lost_its_last_writes_locks_no_user_out(app: App) -> None:
    """A failover can lose a rotation that was acknowledged: the client has a newer token than the record knows."""
    begun = await app.begin()
    before = await app.keys.refresh(begun.id).get()
    assert before is not None
    first = await rotated(app.tokens.rotate(begun.token))
    second = await rotated(app.tokens.rotate(first.token))
    await app.keys.refresh(begun.id).set(before)
    third = await rotated(app.tokens.rotate(second.token))
    assert third.record.generation == 3
    assert await app.tokens.rotate(first.token) == RotationRefused("reused", "stale")


@here
async def test_a_chain_keeps_its_key_when_the_key_ring_is_rotated(store: Store, clock: Clock) -> None:
    old = App(store, clock, KeyRing({"a": b"a" * 32}))
    both = App(store, clock, KeyRing({"a": b"a" * 32, "b": b"b" * 32}))
    new = App(store, clock, KeyRing({"b": b"b" * 32}))
    await old.log_in()
    begun = await old.begin()
    first = await rotated(both.tokens.rotate(begun.token))
    assert (await retried(old.tokens.rotate(begun.token))).token == first.token  # also in the midst of a deployment
    assert await new.tokens.rotate(first.token) == RotationRefused(
        "unknown"
    )  # the key was retired, and its chains with it
    assert await rotated(new.tokens.rotate((await both.begin()).token))


@here
@pytest.mark.parametrize("seconds", [1, 60])
async def test_the_grace_ends_exactly_as_declared(store: Store, clock: Clock, seconds: int) -> None:
    app = App(store, clock, grace=timedelta(seconds=seconds))
    await app.log_in()
    begun = await app.begin()
    await app.tokens.rotate(begun.token)
    clock.pass_ms(seconds * 1000 - 1)
    assert await retried(app.tokens.rotate(begun.token))
    clock.pass_ms(1)
    assert await app.tokens.rotate(begun.token) == RotationRefused("reused", "late")


@everywhere
async def test_examining_a_token_does_not_use_it_up_but_detects_reuse(app: App, clock: Clock) -> None:
    begun = await app.begin()
    for _ in range(3):
        examined = await app.tokens.examine(begun.token)
        assert not isinstance(examined, RotationRefused)
        assert examined.generation == 0
    first = await rotated(app.tokens.rotate(begun.token))
    assert not isinstance(await app.tokens.examine(begun.token), RotationRefused)  # inside the grace
    second = await rotated(app.tokens.rotate(first.token))
    assert app.told == []
    assert await app.tokens.examine(begun.token) == RotationRefused("reused", "stale")
    assert app.told == [RefreshEvent("refresh-reused", "stale", "ann", begun.id, None)]
    assert await app.tokens.rotate(second.token) == RotationRefused("reused", "ended")
    assert await app.tokens.examine("x") == RotationRefused("unknown")
    assert await app.tokens.revoke_chain(begun.id)
    assert await app.tokens.examine(second.token) == RotationRefused("unknown")
