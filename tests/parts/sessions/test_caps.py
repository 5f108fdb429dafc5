"""The cap: after any number of concurrent logins exactly `cap` sessions are alive."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from keystead import Store
from keystead.errors import CapReached
from keystead.parts.sessions import Gone, New, Policy, Sessions
from tests import forking
from tests.parts.sessions.conftest import RING, AppKeys, AppSession, Clock, everywhere, sessions_of
from tests.serving import environment

ROOT = Path(__file__).parents[3]


class Ticking(Clock):
    """Each look at it is a millisecond later."""

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


@everywhere
async def test_of_fifty_concurrent_logins_the_three_latest_are_alive(store: Store) -> None:
    sessions = sessions_of(store, Ticking(), Policy(cap=3))
    made = await asyncio.gather(*(sessions.create(AppSession(uid="ann")) for _ in range(50)))
    alive = [one for one in made if await sessions.read(one.token)]
    latest = sorted(made, key=lambda one: one.session.created_at)[-3:]
    assert {one.id for one in alive} == {one.id for one in latest}
    assert {live.id for live in await sessions.list_for("ann")} == {one.id for one in latest}
    evicted = [id for one in made for id in one.evicted]
    assert len(evicted) == len(set(evicted)) == 47
    for one in made:
        if one.id in evicted:
            assert await sessions.read(one.token) == Gone("evicted")


@everywhere
async def test_of_fifty_concurrent_logins_three_succeed_and_the_others_get_the_reason(store: Store) -> None:
    sessions = sessions_of(store, Ticking(), Policy(cap=3, at_cap="refuse"))
    made = await asyncio.gather(*(sessions.create(AppSession(uid="ann")) for _ in range(50)), return_exceptions=True)
    let_in = [one for one in made if isinstance(one, New)]
    refused = [one for one in made if isinstance(one, CapReached)]
    assert (len(let_in), len(refused)) == (3, 47)
    assert "the maximum is 3; end one of them first" in str(refused[0])
    for one in let_in:
        assert await sessions.read(one.token)
    assert await sessions.revoke(let_in[0].token)
    assert (await sessions.create(AppSession(uid="ann"))).evicted == ()


@everywhere
async def test_a_cap_of_one_is_a_single_device(store: Store) -> None:
    sessions = sessions_of(store, Ticking(), Policy(cap=1))
    made = await asyncio.gather(*(sessions.create(AppSession(uid="ann")) for _ in range(20)))
    assert sum([bool(await sessions.read(one.token)) for one in made]) == 1


@everywhere
async def test_the_cap_of_one_user_is_not_anothers(store: Store) -> None:
    sessions = sessions_of(store, Ticking(), Policy(cap=1))
    one, other = await sessions.create(AppSession(uid="ann")), await sessions.create(AppSession(uid="ann:sessions"))
    assert (one.evicted, other.evicted) == ((), ())
    assert await sessions.read(one.token)
    assert await sessions.read(other.token)


@everywhere
async def test_without_a_cap_there_may_be_as_many_as_a_user_likes(store: Store) -> None:
    sessions = sessions_of(store, Ticking(), Policy(cap=None))
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(40)]
    assert len(await sessions.list_for("ann")) == 40
    assert await sessions.read(made[0].token)


@everywhere
async def test_expired_sessions_do_not_count_toward_the_cap(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock, Policy(idle="1h", absolute="24h", cap=2))
    old = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    clock.pass_ms(3_600_000)
    new = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    assert [one.evicted for one in new] == [(), ()]
    for one in new:
        assert await sessions.read(one.token)
    for one in old:
        assert await sessions.read(one.token) == Gone("unknown")


@everywhere
async def test_an_evicted_session_reports_the_reason_for_a_day(store: Store, clock: Clock, keys: AppKeys) -> None:
    sessions = sessions_of(store, clock, Policy(cap=1))
    old = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(1)
    await sessions.create(AppSession(uid="ann"))
    assert await sessions.read(old.token) == Gone("evicted")
    assert await sessions.read(old.token) == Gone("evicted")
    [left] = await store.run([("PTTL", keys.end(old.id).key)])
    assert 86_400_000 - 20_000 < left <= 86_400_000


@everywhere
async def test_an_unreadable_session_does_not_lock_its_user_out(store: Store, clock: Clock, keys: AppKeys) -> None:
    for at_cap in ("evict", "refuse"):
        sessions = sessions_of(store, clock, Policy(cap=1, at_cap=at_cap))
        broken = await sessions.create(AppSession(uid=at_cap))
        await store.run([("SET", keys.session(broken.id).key, b"not JSON", "KEEPTTL")])
        made = await sessions.create(AppSession(uid=at_cap))
        assert await sessions.read(made.token)
        assert [live.id for live in await sessions.list_for(at_cap)] == [made.id]


@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize("at_cap", ["evict", "refuse"])
async def test_the_cap_holds_for_several_processes(store: Store, store_url: str, at_cap: str) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                forking.talking("tests.parts.sessions.logging_in", (store_url, at_cap, "20"), ROOT, environment())
            )
            for _ in range(3)
        ]
        for process in processes:  # all of them are up before the first one begins
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        tokens = " ".join([process.stdout.read() for process in processes]).split()
        assert [process.command.wait(300) for process in processes] == [0, 0, 0]
    assert len(tokens) == (60 if at_cap == "evict" else 3)
    keys = AppKeys(store, seal=RING)
    sessions = Sessions(keys.session, Policy(cap=3))
    assert sum([bool(await sessions.read(token)) for token in tokens]) == 3
    assert len(await sessions.list_for("ann")) == 3
