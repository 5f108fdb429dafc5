"""Commands are billed and round trips are slow: what is sent, and in how many requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from keystead import Keyspace, Value, connect, never
from keystead.errors import BadArgument, StoreReadOnly, StoreRefused
from keystead.parts.sessions import Live, Policy, Sessions
from keystead.stores import Command, holds, required
from keystead.stores.upstash import UpstashStore
from keystead.stores.upstash.upstash_subscription import events
from tests import servers
from tests.parts.sessions.conftest import RING, AppKeys, AppSession
from tests.real_servers import upstash_gateway
from tests.stores.upstash.rest_server import Request, Writer, answer, rest_server, run

__all__ = ["upstash_gateway"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def behind(upstash_gateway: servers.GatewayServer) -> servers.Server:
    """The server behind the gateway."""
    assert upstash_gateway.behind is not None
    return upstash_gateway.behind


@pytest.fixture
def url(upstash_gateway: servers.GatewayServer) -> str:
    upstash_gateway.empty()
    return upstash_gateway.upstash_url


@pytest.fixture
async def store(url: str) -> AsyncIterator[UpstashStore]:
    async with connect(url) as opened:
        assert isinstance(opened, UpstashStore)
        yield opened


def calls_of(server: servers.Server) -> dict[str, int]:
    """How often the server has run each command."""
    lines = server.ask("INFO", "commandstats").decode().splitlines()
    found = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_"))
    own = ("info", "hello")
    return {name: int(rest.partition(",")[0]) for name, rest in found if name not in own}


async def test_32_concurrent_readers_share_one_request(store: UpstashStore) -> None:
    await store.run([("SET", f"k{n}", n) for n in range(32)])
    before = store.requests

    async def read(number: int) -> None:
        for _ in range(10):
            assert await store.run([("GET", f"k{number}")]) == [b"%d" % number]

    await asyncio.gather(*map(read, range(32)))
    assert store.requests - before <= 320 / 8


async def test_a_session_read_is_one_call_of_two_commands(store: UpstashStore, behind: servers.Server) -> None:
    sessions = Sessions(AppKeys(store, seal=RING).session)
    token = (await sessions.create(AppSession(uid="ann"))).token
    before = store.requests, calls_of(behind)
    assert isinstance(await sessions.read(token), Live)
    after = calls_of(behind)
    assert store.requests - before[0] == 1
    more = {name: count - before[1].get(name, 0) for name, count in after.items() if count != before[1].get(name)}
    assert more == {"get": 1, "sismember": 1}


async def test_a_session_that_may_be_read_near_takes_no_command_within_the_bound(
    store: UpstashStore, url: str, behind: servers.Server
) -> None:
    keys = AppKeys(store, seal=RING)
    sessions = Sessions(keys.session, Policy(idle="1h", absolute="1d", near="1h"))
    token = (await sessions.create(AppSession(uid="ann"))).token
    assert isinstance(await sessions.read(token), Live)
    before = store.requests, calls_of(behind)
    for _ in range(100):
        assert isinstance(await sessions.read(token), Live)
    assert (store.requests, calls_of(behind)) == before
    await sessions.revoke(token)  # a process reads its own writes
    assert not await sessions.read(token)


async def test_a_read_that_began_before_a_write_of_this_process_is_not_kept(store: UpstashStore) -> None:
    class Keys(Keyspace):
        name = Value("name:{id}", str, lifetime=never("test"), near="1h")

    name = Keys(store).name("ann")
    await name.set("0")
    for number in range(1, 20):
        await asyncio.gather(name.get(), name.get(), name.set(str(number)), name.get())
        assert await name.get() == str(number)


async def test_opening_a_store_takes_one_request() -> None:
    async with rest_server() as server, connect(server.url()):
        assert len(server.requests) == 1
        assert [command[0] for command in server.requests[0].commands] == ["ECHO", "DEL"]


async def test_the_token_is_in_a_header_and_nowhere_else() -> None:
    async with rest_server() as server, connect(server.url()) as store:
        await store.run([("GET", "a")])
        for request in server.requests:
            assert request.headers["authorization"] == "Bearer the-token"
            assert request.path == "/pipeline"
        assert "the-token" not in f"{store.url} {store!r} {store.__dict__['_settings']!r}"


async def test_a_batch_is_split_at_the_size_that_the_plan_allows_and_keeps_its_order() -> None:
    async with rest_server() as server, connect(server.url()) as store:
        commands: list[Command] = [("SET", f"k{n}", "x" * 100_000) for n in range(25)]
        assert await store.run(commands) == [b"OK"] * 25
        assert len(server.requests) == 1 + 3
        assert max(len(request.body) for request in server.requests) <= 1 << 20
        assert [command[1] for command in server.seen] == [f"k{n}" for n in range(25)]


async def test_callers_of_one_turn_are_split_at_that_size_too() -> None:
    async with rest_server() as server, connect(server.url("?max_request=2mb")) as store:
        await asyncio.gather(*(store.run([("SET", f"k{n}", "x" * 400_000)]) for n in range(12)))
        assert sorted(len(request.commands) for request in server.requests[1:]) == [2, 5, 5]


async def test_a_value_beyond_the_limit_is_refused_before_it_is_sent() -> None:
    async with rest_server() as server, connect(server.url()) as store:
        with pytest.raises(BadArgument, match=r"larger than 1,048,576.*max_request=10mb") as caught:
            await store.run([("SET", "a", "x" * (1 << 20)), ("SET", "b", "1")])
        assert caught.value.replies is not None
        assert caught.value.replies[1] == b"OK"
        assert server.seen == [["SET", "b", "1"]]


@pytest.mark.parametrize("byte", [b"\x00", b'"', b"\x7f", b"\xff", "ü".encode()[:1]])
async def test_the_largest_value_fits_whatever_its_bytes(store: UpstashStore, byte: bytes) -> None:
    assert store.guarantees.value_max_bytes is not None
    value = byte * store.guarantees.value_max_bytes
    assert await store.run([("SET", "a", value), ("GET", "a")]) == [b"OK", value]


async def test_a_script_is_sent_once_and_then_by_its_digest(store: UpstashStore, behind: servers.Server) -> None:
    sizes = []
    for number in range(4):
        before = store.commands
        assert await store.atomically([holds(f"k{number}", None), ("SET", f"k{number}", "1")])
        sizes.append(store.commands - before)
    assert sizes == [1, 1, 1, 1]


async def test_a_server_that_lost_its_scripts_gets_them_again(store: UpstashStore, behind: servers.Server) -> None:
    async def write(key: str) -> bool:
        return bool(await store.atomically([required(("SET", key, "1", "NX"))]))

    assert [await write(f"k{n}") for n in range(3)] == [True] * 3
    behind.ask("SCRIPT", "FLUSH")
    assert await asyncio.gather(*(write(f"m{n}") for n in range(5))) == [True] * 5
    assert await write("m1") is False


async def test_the_sync_token_of_the_latest_write_is_sent_with_the_next_request() -> None:
    tokens = iter(["t1", "t2", "t3"])

    async def respond(request: Request, writer: Writer) -> bool:
        return answer(writer, 200, [{"result": 1}], f"upstash-sync-token: {next(tokens)}")

    async with rest_server(respond) as server, connect(server.url()) as store:
        for _ in range(3):
            await store.run([("INCRBY", "a", 1)])
        sent = [request.headers.get("upstash-sync-token") for request in server.requests]
        assert sent == [None, None, "t1", "t2"]


async def test_the_token_of_a_slow_read_does_not_replace_that_of_a_later_write() -> None:
    asked, written = asyncio.Event(), asyncio.Event()

    async def respond(request: Request, writer: Writer) -> bool:
        if request.commands[0][0] == "GET":
            asked.set()
            await written.wait()
            return answer(writer, 200, [{"result": None}], "upstash-sync-token: old")
        return answer(writer, 200, [{"result": "OK"}], "upstash-sync-token: new")

    async with rest_server(respond) as server, connect(server.url()) as store:
        reading = asyncio.create_task(store.run([("GET", "a")]))
        await asked.wait()
        await store.run([("SET", "a", "1")])
        written.set()
        await reading
        await store.run([("SET", "a", "2")])
        assert server.requests[-1].headers["upstash-sync-token"] == "new"


async def test_a_cancelled_caller_does_not_harm_the_others_of_its_request() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def respond(request: Request, writer: Writer) -> bool:
        asked.set()
        await cancelled.wait()
        return await run(request, writer)

    async with rest_server(respond) as server, connect(server.url()) as store:
        first = asyncio.create_task(store.run([("SET", "a", "1")]))
        second = asyncio.create_task(store.run([("SET", "b", "1")]))
        await asked.wait()
        first.cancel()
        cancelled.set()
        assert await second == [b"OK"]


async def test_a_read_only_token_reads_and_its_writes_are_refused_here(
    upstash_gateway: servers.GatewayServer, store: UpstashStore
) -> None:
    await store.run([("SET", "a", "1")])
    url = upstash_gateway.url.replace("http://", f"upstash+http://:{upstash_gateway.tokens['read']}@")
    with pytest.raises(StoreReadOnly, match="read_only=yes"):
        await connect(url).open()
    async with connect(f"{url}?read_only=yes") as reader:
        assert isinstance(reader, UpstashStore)
        assert await reader.run([("GET", "a")]) == [b"1"]
        before = reader.commands
        with pytest.raises(StoreReadOnly, match="takes no writes"):
            await reader.run([("GET", "a"), ("SET", "a", "2")])
        with pytest.raises(StoreReadOnly):
            await reader.atomically([("SET", "a", "2")])
        assert reader.commands == before
        with pytest.raises(StoreRefused, match="does not permit"):
            [_ async for _ in reader.scan()]
    assert await store.run([("GET", "a")]) == [b"1"]


async def test_a_server_that_returns_text_only_takes_no_other_bytes() -> None:
    async def respond(request: Request, writer: Writer) -> bool:
        if request.commands[0][0] == "GET":
            return answer(writer, 200, [{"result": "plain"}])
        return answer(writer, 200, [{"result": "keystead"}, {"result": 0}])

    async with rest_server(respond) as server:
        server.requests.append(Request("/", {}, b"[]", 0))
        async with connect(server.url()) as store:
            assert await store.run([("GET", "a")]) == [b"plain"]
            with pytest.raises(BadArgument, match="text only"):
                await store.run([("SET", "a", b"\xff")])


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_events_are_read_however_they_are_cut(end: bytes, size: int) -> None:
    lines = [b"data: subscribe,a,1", b"", b": ping", b"", b"data: message,a,one", b"data:two", b"", b"event: error"]
    stream = end.join([*lines, b"data: gone", b"", b""])

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(stream), size):
            yield stream[at : at + size]

    assert [event async for event in events(parts())] == [
        (b"", b"subscribe,a,1"),
        (b"", b"message,a,one\ntwo"),
        (b"error", b"gone"),
    ]


async def test_events_without_empty_lines_are_one_for_each_line() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"data: subscribe,a,1\n"
        yield b"data: message,a,one\ndata: message,a,two\n"

    assert [data async for _, data in events(parts())] == [b"subscribe,a,1", b"message,a,one", b"message,a,two"]


async def test_a_subscription_whose_server_goes_away_ends_with_an_error(behind: servers.Server) -> None:
    with servers.gateway(behind.url) as own:
        async with connect(own.upstash_url) as store, store.subscribe("news", "more,news") as messages:
            await store.run([("PUBLISH", "more,news", "a,b")])
            message = await anext(messages)
            assert (message.channel, message.data) == ("more,news", b"a,b")
            own.kill()
            with pytest.raises(Exception, match="subscribe again"):
                await anext(messages)


async def test_channels_that_could_be_confused_are_refused(store: UpstashStore) -> None:
    with pytest.raises(BadArgument, match="comma"):
        async with store.subscribe("a", "a,b"):
            pass
