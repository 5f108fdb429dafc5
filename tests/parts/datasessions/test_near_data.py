"""Data sessions from a copy in the process: writes of it are seen at once, ends elsewhere within the bound."""

import asyncio
from dataclasses import replace

from keystead import Store, connect
from keystead.parts.datasessions import DataSessions, data_session_keys
from tests.parts.datasessions.conftest import ANONYMOUS, POLICY, live
from tests.parts.sessions.conftest import everywhere, redis_server, store, store_url, valkey_cluster, valkey_server

__all__ = ["redis_server", "store", "store_url", "valkey_cluster", "valkey_server"]


def near_sessions(store: Store) -> DataSessions:
    policy, anonymous = replace(POLICY, near="1s"), replace(ANONYMOUS, near="1s")
    return DataSessions(data_session_keys(policy, anonymous)(store), policy, anonymous)


async def load_until_near(sessions: DataSessions, token: str) -> None:
    """Load until a copy answers, on stores that have copies."""
    near = sessions._keys.session.store.near
    async with asyncio.timeout(60):
        while near is not None:
            before = near.hits
            live(await sessions.load(token))
            if near.hits > before:
                return
            await asyncio.sleep(0.001)


@everywhere
async def test_what_this_process_wrote_and_ended_is_seen_at_once(store: Store) -> None:
    sessions = near_sessions(store)
    made = await sessions.create({"n": 0}, client="192.0.2.1")
    for n in range(1, 10):
        await load_until_near(sessions, made.token)
        loaded = live(await sessions.load(made.token))
        assert loaded.data == {"n": n - 1}
        loaded.data["n"] = n
        assert await sessions.save(loaded)
        assert live(await sessions.load(made.token)).data == {"n": n}
    await load_until_near(sessions, made.token)
    signed_in = live(await sessions.sign_in(live(await sessions.load(made.token)), "ann"))
    assert not await sessions.load(made.token)
    await load_until_near(sessions, signed_in.token)
    assert await sessions.end(signed_in)
    assert not await sessions.load(signed_in.token)


@everywhere
async def test_no_two_requests_share_their_data(store: Store) -> None:
    sessions = near_sessions(store)
    made = await sessions.create({"cart": ["apple"]}, client="192.0.2.1")
    await load_until_near(sessions, made.token)
    for _ in range(3):
        loaded = live(await sessions.load(made.token))
        assert loaded.data == {"cart": ["apple"]}
        loaded.data["cart"].append("changed")


@everywhere
async def test_a_session_that_ends_elsewhere_is_gone_within_the_bound(store: Store, store_url: str) -> None:
    sessions, loop = near_sessions(store), asyncio.get_running_loop()
    async with connect(store_url) as other_store:
        elsewhere = sessions if store.url == "memory://" else near_sessions(other_store)
        for n in range(5):
            made = await elsewhere.create({"n": n}, user="ann")
            await load_until_near(sessions, made.token)
            assert await elsewhere.end(made)
            began = ended = loop.time()
            while await sessions.load(made.token):
                assert began - ended <= 1.0
                await asyncio.sleep(0)
                began = loop.time()
