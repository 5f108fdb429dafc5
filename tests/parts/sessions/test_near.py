"""Sessions from a copy in the process: a session that ends stays ended, here at once and elsewhere within the bound."""

import asyncio

import pytest

from keystead import Store, connect
from keystead.parts.sessions import Gone, Live, Policy, Sessions
from tests.parts.sessions.conftest import AppKeys, AppSession, Clock, everywhere, sessions_of

pytestmark = everywhere

NEAR = Policy(idle="1h", absolute="24h", near="1s")


def near_sessions(store: Store) -> Sessions[AppSession]:
    return sessions_of(store, Clock(), NEAR)


async def read_until_near(sessions: Sessions[AppSession], token: str) -> None:
    """Read until a copy answers, on stores that have copies."""
    near = sessions._family.store.near
    for _ in range(2000 if near is not None else 3):
        before = 0 if near is None else near.hits
        assert isinstance(await sessions.read(token), Live)
        if near is not None and near.hits > before:
            return
        await asyncio.sleep(0.001)
    assert near is None


async def test_reads_of_one_session_make_no_round_trip_and_give_the_same(store: Store) -> None:
    sessions = near_sessions(store)
    new = await sessions.create(AppSession(uid="ann", theme="dark"))
    await read_until_near(sessions, new.token)
    first, second = await sessions.read(new.token), await sessions.read(new.token)
    assert isinstance(first, Live)
    assert first == second
    assert first.session.theme == "dark"
    assert first.session is not second.session  # whoever changes theirs changes nobody else's


@pytest.mark.parametrize("end", ["revoke", "revoke_id", "revoke_all"])
async def test_a_session_that_ends_here_is_gone_at_once(store: Store, end: str) -> None:
    sessions = near_sessions(store)
    for _ in range(20):
        new = await sessions.create(AppSession(uid="ann"))
        await read_until_near(sessions, new.token)
        if end == "revoke":
            assert await sessions.revoke(new.token)
        elif end == "revoke_id":
            assert await sessions.revoke_id("ann", new.id)
        else:
            assert await sessions.revoke_all("ann") == 1
        assert isinstance(await sessions.read(new.token), Gone)


async def test_a_session_that_ends_elsewhere_is_gone_within_the_bound(store: Store, store_url: str) -> None:
    sessions = near_sessions(store)
    async with connect(store_url) as other_store:
        elsewhere = sessions if store.url == "memory://" else near_sessions(other_store)
        loop = asyncio.get_running_loop()
        for _ in range(10):
            new = await elsewhere.create(AppSession(uid="ann"))
            await read_until_near(sessions, new.token)
            assert await elsewhere.revoke(new.token)
            began = ended = loop.time()
            while isinstance(await sessions.read(new.token), Live):
                assert began - ended <= 1.0
                await asyncio.sleep(0)
                began = loop.time()


async def test_changes_are_read_back_and_two_at_once_both_count(store: Store) -> None:
    sessions = near_sessions(store)
    new = await sessions.create(AppSession(uid="ann"))
    await read_until_near(sessions, new.token)
    for n in range(1, 30):
        await asyncio.gather(
            sessions.update(new.token, seen=n), sessions.update(new.token, theme=f"theme {n}"), sessions.read(new.token)
        )
        found = await sessions.read(new.token)
        assert isinstance(found, Live)
        assert (found.session.seen, found.session.theme) == (n, f"theme {n}")


async def test_a_rotated_token_and_its_successor_are_read(store: Store) -> None:
    sessions = near_sessions(store)
    new = await sessions.create(AppSession(uid="ann"))
    await read_until_near(sessions, new.token)
    rotated = await sessions.rotate(new.token)
    assert not isinstance(rotated, Gone)
    assert isinstance(await sessions.read(rotated.token), Live)
    await read_until_near(sessions, rotated.token)
    assert isinstance(await sessions.read(new.token), Live)  # within the grace
    await sessions.revoke(rotated.token)
    assert isinstance(await sessions.read(rotated.token), Gone)
    assert isinstance(await sessions.read(new.token), Gone)


async def test_what_is_no_token_is_unknown(store: Store) -> None:
    sessions = near_sessions(store)
    assert await sessions.read("no token") == Gone("unknown")
    new = await sessions.create(AppSession(uid="ann"))
    await sessions.revoke(new.token)
    assert isinstance(await sessions.read(new.token), Gone)
    assert AppKeys.session.near_ms == 0
