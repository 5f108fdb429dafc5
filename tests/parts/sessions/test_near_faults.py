"""Sessions from a copy in the process, when the server or the network fails: the bound of a revocation still holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from keystead import connect
from keystead.errors import StoreUnavailable
from keystead.parts.sessions import Gone, Live, New, Policy, Sessions
from tests import servers
from tests.parts.sessions.conftest import AppSession, Clock, sessions_of
from tests.servers import Server
from tests.stores.redis.proxy import Proxy

BOUND_S = 0.3
NEAR = Policy(idle="1h", absolute="24h", near="300ms")
FAST = "?timeout=1s&connect_timeout=1s"


@pytest.fixture
def server() -> Iterator[Server]:
    with servers.valkey() as running:
        yield running


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as running:
        yield running


@pytest.fixture
async def near(proxy: Proxy) -> AsyncIterator[Sessions[AppSession]]:
    """Sessions of a process whose network the test breaks."""
    async with connect(proxy.url + FAST) as store:
        yield sessions_of(store, Clock(), NEAR)


@pytest.fixture
async def elsewhere(server: Server) -> AsyncIterator[Sessions[AppSession]]:
    """The same sessions in another process, which ends them."""
    async with connect(server.url) as store:
        yield sessions_of(store, Clock(), NEAR)


async def logged_in(near: Sessions[AppSession]) -> New[AppSession]:
    """A session that is read from a copy."""
    new = await near.create(AppSession(uid="ann"))
    copies = near._family.store.near
    assert copies is not None
    async with asyncio.timeout(60):
        before = copies.hits
        while copies.hits == before:
            assert isinstance(await near.read(new.token), Live)
            await asyncio.sleep(0.001)
    return new


async def alive_for_s(sessions: Sessions[AppSession], token: str, since: float) -> float:
    """How long after `since` the last read was begun that found the session alive."""
    loop, last_s = asyncio.get_running_loop(), 0.0
    async with asyncio.timeout(60):
        while True:
            began = loop.time()
            try:
                if isinstance(await sessions.read(token), Gone):
                    return last_s
            except StoreUnavailable:
                return last_s
            last_s = began - since
            await asyncio.sleep(0)


async def ends(sessions: Sessions[AppSession], token: str) -> None:
    """Wait until reads work, and check that the session is gone."""
    async with asyncio.timeout(60):
        while True:
            try:
                assert isinstance(await sessions.read(token), Gone)
            except StoreUnavailable:
                await asyncio.sleep(0.001)
            else:
                return


async def test_a_network_that_swallows_packets_does_not_keep_a_session_alive(
    near: Sessions[AppSession], elsewhere: Sessions[AppSession], proxy: Proxy
) -> None:
    new = await logged_in(near)
    proxy.black_hole()
    assert await elsewhere.revoke(new.token)
    ended = asyncio.get_running_loop().time()
    assert 0 < await alive_for_s(near, new.token, ended) <= BOUND_S
    await proxy.resume()
    await ends(near, new.token)


async def test_a_server_that_is_stopped_vouches_for_no_session(near: Sessions[AppSession], server: Server) -> None:
    new = await logged_in(near)
    server.pause()
    try:
        stopped = asyncio.get_running_loop().time()
        assert await alive_for_s(near, new.token, stopped) <= BOUND_S
    finally:
        server.resume()


@pytest.mark.parametrize("fault", ["the connection is cut", "the client is killed", "the server restarts"])
async def test_a_session_that_ends_while_the_connection_is_lost_is_gone(
    near: Sessions[AppSession], server: Server, proxy: Proxy, fault: str
) -> None:
    new = await logged_in(near)
    if fault == "the connection is cut":
        proxy.reset()
    elif fault == "the client is killed":
        server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    else:  # it has kept nothing
        server.kill()
        server.start()
    server.ask("DEL", near._index("ann").key)  # which lists the live sessions
    ended = asyncio.get_running_loop().time()
    assert await alive_for_s(near, new.token, ended) <= BOUND_S
    await ends(near, new.token)


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB"])
async def test_a_flush_ends_all_sessions_also_in_copies(
    near: Sessions[AppSession], server: Server, command: str
) -> None:
    several = [await logged_in(near) for _ in range(3)]
    server.ask(command)
    flushed = asyncio.get_running_loop().time()
    assert [await alive_for_s(near, one.token, flushed) <= BOUND_S for one in several] == [True] * 3


async def test_on_sqlite_a_session_that_ends_elsewhere_is_gone_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with connect(url) as here, connect(url) as there:
        near, elsewhere = (sessions_of(store, Clock(), NEAR) for store in (here, there))
        for _ in range(20):
            new = await logged_in(near)
            assert await elsewhere.revoke(new.token)
            assert isinstance(await near.read(new.token), Gone)
