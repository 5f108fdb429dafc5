"""Ended sessions stay ended: no concurrent request resurrects one that was logged out, revoked or expired."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from keystead import Store
from keystead.parts.sessions import Gone, New, Policy, Sessions
from tests.parts.sessions.conftest import (
    AppKeys,
    AppSession,
    Clock,
    everywhere,
    in_every_order,
    sessions_of,
    switches_on,
)
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order

MINUTE_MS = 60_000
POLICY = Policy(idle="1h", absolute="24h")

Verb = Callable[[Sessions[AppSession], str, Clock], Awaitable[Any]]


async def save(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    return await sessions.update(token, theme="dark")


async def touch(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    return await sessions.touch(token)


async def rotate(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    return await sessions.rotate(token)


async def refresh(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    def renewed(session: AppSession) -> AppSession:
        return session.model_copy(update={"provider_token": "a new token", "seen": session.seen + 1})

    return await sessions.change(token, renewed)


async def read(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    return await sessions.read(token)  # which notes that it was used, too: the last note is a while ago


async def revoke(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    return await sessions.revoke(token)


async def revoke_all(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    return await sessions.revoke_all("ann")


async def expire(sessions: Sessions[AppSession], token: str, clock: Clock) -> Any:
    await sessions.list_for("nobody")  # a step of its own, so that the others may come before the time is over
    clock.pass_ms(POLICY.idle_ms)
    return await sessions.read(token)


WORK: tuple[Verb, ...] = (save, touch, rotate, refresh, read)
ENDS: tuple[Verb, ...] = (revoke, revoke_all, expire)


@in_every_order
@pytest.mark.parametrize("end", ENDS, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize("work", WORK, ids=lambda verb: verb.__name__)
async def test_in_every_order_of_their_steps_an_end_is_final_whatever_is_under_way(
    ordered: Store, work: Verb, end: Verb
) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        clock = Clock()
        gated = Gated(ordered)
        worker, ender = sessions_of(gated, clock, POLICY), sessions_of(gated, clock, POLICY)
        made = await worker.create(AppSession(uid="ann"))
        clock.pass_ms(5 * MINUTE_MS)
        order, results = await in_order(
            gated,
            {"a": lambda: work(worker, made.token, clock), "b": lambda: end(ender, made.token, clock)},
            first,
        )
        tokens = [made.token] + ([results["a"].token] if isinstance(results["a"], New) else [])
        for token in tokens:
            assert not await worker.read(token), order
            assert not await worker.touch(token), order
        assert await worker.list_for("ann") == [], order
        if ordered.guarantees.atomic == "any keys":
            held = {key.decode() async for page in ordered.scan() for key in page}
            assert {key for key in held if not key.startswith(("end:", "next:"))} == set(), order
        return order

    assert await every_order(one, switches=switches_on(ordered)) >= 3


class Interrupted(Relay):
    """Removes a session from its list just before the second call: it has ended, without clean-up."""

    entry: tuple[str, str] | None = None

    async def before(self) -> None:
        if self.entry is not None and len(self.log) == 1:
            await self._inner.run([("SREM", *self.entry)])


@everywhere
@pytest.mark.parametrize("work", [save, touch, rotate, refresh], ids=lambda verb: verb.__name__)
async def test_requests_in_progress_when_a_session_ends_write_nothing(
    store: Store, clock: Clock, keys: AppKeys, work: Verb
) -> None:
    interrupted = Interrupted(store)
    sessions = sessions_of(interrupted, clock, POLICY)
    made = await sessions.create(AppSession(uid="ann"))
    key = keys.session(made.id).key
    [before] = await store.run([("GET", key)])
    clock.pass_ms(5 * MINUTE_MS)
    interrupted.log.clear()
    interrupted.entry = (keys.user_sessions("ann").key, made.id)
    assert await work(sessions, made.token, clock) in (False, Gone("unknown"))
    assert await store.run([("GET", key)]) == [before]
    assert await sessions.list_for("ann") == []


class JustOver(Clock):
    """A clock that passes the deadline between its first and second read."""

    over_ms: int | None = None

    def __call__(self) -> int:
        now_ms = self.now_ms
        if self.over_ms is not None:
            self.now_ms = self.over_ms
        return now_ms


@everywhere
@pytest.mark.parametrize("work", [touch, rotate, read], ids=lambda verb: verb.__name__)
async def test_a_late_touch_does_not_resurrect_a_session(store: Store, work: Verb) -> None:
    clock = JustOver()
    sessions = sessions_of(store, clock, POLICY)
    made = await sessions.create(AppSession(uid="ann"))
    clock.over_ms = clock.now_ms + POLICY.idle_ms
    clock.pass_ms(POLICY.idle_ms - 1)
    assert not await work(sessions, made.token, clock)
    assert not await sessions.read(made.token)
    assert await sessions.list_for("ann") == []
