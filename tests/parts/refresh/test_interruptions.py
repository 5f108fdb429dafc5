"""Two programs in every interleaving, killed programs, and store outages: ended chains stay ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from keystead import Store
from keystead.errors import StoreUnavailable
from keystead.parts.refresh import NewChain, Retried, Rotated, RotationRefused
from keystead.stores import Command, Outcome, Reply, Step
from tests.parts.refresh.conftest import (
    GRACE_MS,
    App,
    Clock,
    RefreshToken,
    everywhere,
    here,
    in_every_order,
    rotated,
)
from tests.parts.sessions.relays import Actor, Gated, Killed, Mortal, Relay, every_order, in_order

Setting = Callable[[App, App, NewChain[RefreshToken]], Awaitable[dict[Actor, Callable[[], Awaitable[Any]]]]]
Look = Callable[[App, NewChain[RefreshToken], dict[Actor, Any]], Awaitable[None]]


async def in_all_orders(store: Store, clock: Clock, setting: Setting, look: Look) -> int:
    """Two processes on one store: `setting` defines their actions, and `look` checks what must hold in any order."""

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        gated = Gated(store)
        a, b, outside = App(gated, clock), App(gated, clock), App(store, clock)
        await outside.log_in()
        begun = await outside.begin()
        order, found = await in_order(gated, await setting(a, b, begun), first)
        await look(outside, begun, found)
        return order

    return await every_order(one)


@in_every_order
async def test_two_rotations_of_one_token_mint_one_successor(ordered: Store, clock: Clock) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        return {"a": lambda: a.tokens.rotate(begun.token), "b": lambda: b.tokens.rotate(begun.token)}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        assert sorted(type(one).__name__ for one in found.values()) == ["Retried", "Rotated"]
        assert found["a"].token == found["b"].token
        assert await app.works(found["a"].token)

    assert await in_all_orders(ordered, clock, setting, look) > 4


@in_every_order
async def test_a_chain_that_is_revoked_while_it_is_rotated_is_dead(ordered: Store, clock: Clock) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        return {"a": lambda: a.tokens.rotate(begun.token), "b": lambda: b.tokens.revoke(begun.token)}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        assert found["b"] is True
        assert found["a"] == RotationRefused("unknown") or isinstance(found["a"], Rotated)
        assert await app.keys.refresh(begun.id).get() is None
        for token in (begun.token, getattr(found["a"], "token", begun.token)):
            assert await app.tokens.rotate(token) == RotationRefused("unknown")

    assert await in_all_orders(ordered, clock, setting, look) > 2


@in_every_order
async def test_a_session_that_ends_while_its_token_is_rotated_leaves_no_token_that_works(
    ordered: Store, clock: Clock
) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        return {"a": lambda: a.tokens.rotate(begun.token), "b": b.log_out}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        assert found["a"] == RotationRefused("session") or isinstance(found["a"], Rotated)
        token = found["a"].token if found["a"] else begun.token
        assert await app.tokens.rotate(token) in (RotationRefused("session"), RotationRefused("unknown"))
        assert await app.keys.refresh(begun.id).get() is None

    assert await in_all_orders(ordered, clock, setting, look) > 2


@in_every_order
async def test_a_session_that_ends_during_a_retry_leaves_no_token_that_works(ordered: Store, clock: Clock) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        await rotated(App(ordered, clock).tokens.rotate(begun.token))
        return {"a": lambda: a.tokens.rotate(begun.token), "b": b.log_out}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        assert found["a"] == RotationRefused("session") or isinstance(found["a"], Retried)
        assert not await app.works(found["a"].token if found["a"] else begun.token)

    assert await in_all_orders(ordered, clock, setting, look) > 2


@in_every_order
async def test_a_reuse_at_the_same_moment_as_a_rotation_leaves_no_fresh_token_alive(
    ordered: Store, clock: Clock
) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        first = await rotated(App(ordered, clock).tokens.rotate(begun.token))
        clock.pass_ms(GRACE_MS)
        return {"a": lambda: a.tokens.rotate(first.token), "b": lambda: b.tokens.rotate(begun.token)}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        # Which of the two it is called depends on whether the rotation came first. Either way it ends the chain.
        assert found["b"] in (RotationRefused("reused", "late"), RotationRefused("reused", "stale"))
        assert found["a"] == RotationRefused("reused", "ended") or isinstance(found["a"], Rotated)
        if found["a"]:
            assert await app.tokens.rotate(found["a"].token) == RotationRefused("reused", "ended")
        kept = await app.keys.refresh(begun.id).get()
        assert kept is not None
        assert kept.is_used

    assert await in_all_orders(ordered, clock, setting, look) > 4


@in_every_order
async def test_a_retry_concurrent_with_a_reuse_yields_no_valid_token(ordered: Store, clock: Clock) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        outside = App(ordered, clock)
        first = await rotated(outside.tokens.rotate(begun.token))
        await rotated(outside.tokens.rotate(first.token))
        return {"a": lambda: a.tokens.rotate(first.token), "b": lambda: b.tokens.rotate(begun.token)}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        assert found["b"] == RotationRefused("reused", "stale")
        assert found["a"] == RotationRefused("reused", "ended") or isinstance(found["a"], Retried)
        if found["a"]:
            assert await app.tokens.rotate(found["a"].token) == RotationRefused("reused", "ended")

    assert await in_all_orders(ordered, clock, setting, look) > 4


@in_every_order
async def test_a_reuse_does_not_bring_a_revoked_chain_back(ordered: Store, clock: Clock) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        await rotated(App(ordered, clock).tokens.rotate(begun.token))
        clock.pass_ms(GRACE_MS)
        return {"a": lambda: a.tokens.rotate(begun.token), "b": lambda: b.tokens.revoke(begun.token)}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        assert found["b"] is True
        assert not found["a"]
        assert await app.keys.refresh(begun.id).get() is None

    assert await in_all_orders(ordered, clock, setting, look) > 2


@in_every_order
async def test_erasing_a_user_during_a_rotation_leaves_no_token(ordered: Store, clock: Clock) -> None:
    async def setting(a: App, b: App, begun: NewChain[RefreshToken]) -> dict[Actor, Callable[[], Awaitable[Any]]]:
        async def erase() -> None:
            async for key in b.keys.refresh.scan():
                await key.delete()

        return {"a": lambda: a.tokens.rotate(begun.token), "b": erase}

    async def look(app: App, begun: NewChain[RefreshToken], found: dict[Actor, Any]) -> None:
        assert await app.keys.refresh(begun.id).get() is None

    assert await in_all_orders(ordered, clock, setting, look) > 1


@everywhere
async def test_a_process_that_is_killed_after_any_command_leaves_a_client_that_works(
    store: Store, clock: Clock
) -> None:
    app = App(store, clock)
    await app.log_in()
    lives = 0
    while True:
        begun = await app.begin()
        mortal = App(Mortal(store, lives), clock)
        try:
            done = await mortal.tokens.rotate(begun.token)
        except Killed:
            again = await app.tokens.rotate(begun.token)  # what a client does that was not answered
            assert again
            assert await rotated(app.tokens.rotate(again.token))
            lives += 1
        else:
            assert isinstance(done, Rotated)
            break
    assert lives >= 2


@everywhere
async def test_killing_a_process_during_revocation_admits_no_token(store: Store, clock: Clock) -> None:
    app = App(store, clock)
    await app.log_in()
    lives = 0
    while True:
        begun = await app.begin()
        first = await rotated(app.tokens.rotate(begun.token))
        clock.pass_ms(GRACE_MS)
        try:
            await App(Mortal(store, lives), clock).tokens.rotate(begun.token)
        except Killed:
            assert await app.tokens.rotate(begun.token) == RotationRefused("reused", "late")  # the next one ends it
            lives += 1
        else:
            assert await app.tokens.rotate(first.token) == RotationRefused("reused", "ended")
            break
    assert lives == 2


class Deaf(Relay):
    """Forwards everything, but loses the reply of the n-th call."""

    def __init__(self, inner: Store, lost: int) -> None:
        super().__init__(inner)
        self._left = lost

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        found = await super().run(commands)
        self._lose()
        return found

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        found = await super().atomically(steps)
        self._lose()
        return found

    def _lose(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise StoreUnavailable("the answer was lost")


@everywhere
@pytest.mark.parametrize("lost", [1, 2])
async def test_an_answer_of_the_store_that_is_lost_is_an_error_and_the_client_can_come_again(
    store: Store, clock: Clock, lost: int
) -> None:
    app = App(store, clock)
    await app.log_in()
    begun = await app.begin()
    with pytest.raises(StoreUnavailable):
        await App(Deaf(store, lost), clock).tokens.rotate(begun.token)
    again = await app.tokens.rotate(begun.token)
    assert again
    assert await rotated(app.tokens.rotate(again.token))


@everywhere
async def test_a_rotation_is_two_round_trips_also_for_losers(store: Store, clock: Clock) -> None:
    app = App(store, clock)
    await app.log_in()
    begun = await app.begin()
    gated = Gated(store)
    first, second = App(gated, clock), App(gated, clock)
    programs: dict[Actor, Callable[[], Awaitable[Any]]] = {
        "a": lambda: first.tokens.rotate(begun.token),
        "b": lambda: second.tokens.rotate(begun.token),
    }
    _, found = await in_order(gated, programs, ["a", "b", "a", "a", "b", "b"])  # both read before either writes
    assert sorted(type(one).__name__ for one in found.values()) == ["Retried", "Rotated"]
    # In a cluster the session is asked beside the step, in the same round trip.
    calls = 3 if store.guarantees.atomic == "one slot" else 2
    assert len(gated.log) == 2 * calls
    watched = Relay(store)
    assert await App(watched, clock).tokens.rotate(begun.token)
    assert len(watched.log) == 2


@here
async def test_forged_tokens_cost_no_round_trip(store: Store, clock: Clock) -> None:
    watched = Relay(store)
    app = App(watched, clock)
    for token in ("", "a.b.c", "x" * 43 + ".0." + "y" * 43, "\ud800", "é" * 43, "x" * 100_000):
        assert await app.tokens.rotate(token) == RotationRefused("unknown")
        assert await app.tokens.revoke(token) is False
    assert watched.log == []
