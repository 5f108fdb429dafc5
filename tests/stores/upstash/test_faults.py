"""A server that fails in any way is reported clearly, and nothing is retried that may already have run."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from keystead import Store, connect
from keystead.errors import (
    BadArgument,
    KeysteadError,
    StoreError,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from keystead.stores import required
from keystead.stores.upstash.upstash_store import UpstashStore
from tests import servers
from tests.listening import listening, port_of
from tests.real_servers import upstash_gateway
from tests.servers.server_process import make_certificate
from tests.stopwatch import Stopwatch
from tests.stores.redis.proxy import Proxy
from tests.stores.upstash.rest_server import Request, Respond, RestServer, Writer, answer, rest_server, run

__all__ = ["upstash_gateway"]

pytestmark = pytest.mark.anyio


def always(status: int, content: object, *headers: str) -> Respond:
    async def respond(request: Request, writer: Writer) -> bool:
        return answer(writer, status, content, *headers)

    return respond


def raw(response: bytes) -> Respond:
    """Send these bytes and close the connection."""

    async def respond(request: Request, writer: Writer) -> bool:
        writer.write(response)
        await writer.drain()
        return False

    return respond


async def fail(store: Store, *command: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await store.run([command])
    return caught.value


LOST: dict[str, Respond] = {
    "500": always(500, {"error": "ERR internal"}),
    "502 with a page": always(502, b"<html>Bad gateway</html>"),
    "the connection is closed": raw(b""),
    "the body is cut": raw(b'HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n[{"result":'),
    "a chunk is cut": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n400\r\n[{"),
    "the head is cut": raw(b"HTTP/1.1 200 OK\r\ncontent-"),
    "malformed JSON": always(200, b'[{"result": 1'),
    "JSON of another form": always(200, {"result": "OK"}),
    "too few replies": always(200, []),
    "not HTTP": raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    "a length that is no number": raw(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n"),
}


@pytest.mark.parametrize("respond", LOST.values(), ids=LOST)
async def test_a_write_whose_reply_was_lost_is_not_sent_again(respond: Respond) -> None:
    async with rest_server(respond) as server, connect(server.url()) as store:
        error = await fail(store, "SET", "a", "1")
        assert isinstance(error, StoreUnavailable)
        assert error.outcome == "unknown"
        assert "may or may not" in str(error)
        assert server.seen == [["SET", "a", "1"]]


@pytest.mark.parametrize("respond", LOST.values(), ids=LOST)
async def test_atomic_steps_whose_reply_was_lost_are_not_sent_again(respond: Respond) -> None:
    async with rest_server(respond) as server, connect(server.url()) as store:
        with pytest.raises(StoreUnavailable) as caught:
            await store.atomically([required(("SET", "a", "1"))])
        assert caught.value.outcome == "unknown"
        assert len(server.seen) == 1


async def test_a_reply_that_is_not_base64_is_reported_and_the_write_is_not_repeated() -> None:
    async with rest_server(always(200, [{"result": "not base64!"}])) as server, connect(server.url()) as store:
        error = await fail(store, "SET", "a", "1")
        assert isinstance(error, StoreUnavailable)
        assert error.outcome == "unknown"
        with pytest.raises(StoreUnavailable, match="cannot be read") as caught:
            await store.atomically([required(("SET", "a", "1"))])
        assert caught.value.outcome == "unknown"
        assert len(server.seen) == 2


@pytest.mark.parametrize("respond", LOST.values(), ids=LOST)
async def test_a_read_is_retried_a_few_times_and_then_fails(respond: Respond) -> None:
    async with rest_server(respond) as server, connect(server.url()) as store:
        error = await fail(store, "GET", "a")
        assert isinstance(error, StoreUnavailable)
        assert error.outcome == "not-sent"
        assert server.seen == [["GET", "a"]] * 3


@pytest.mark.parametrize("respond", LOST.values(), ids=LOST)
async def test_a_read_survives_one_lost_reply(respond: Respond) -> None:
    async with rest_server() as server, connect(server.url()) as store:

        async def once(request: Request, writer: Writer) -> bool:
            server.respond = None
            return await respond(request, writer)

        server.respond = once
        assert await store.run([("GET", "a")]) == [None]


async def test_a_server_that_hangs_fails_within_the_timeout() -> None:
    async def hang(request: Request, writer: Writer) -> bool:
        await asyncio.Event().wait()
        return False

    async with rest_server(hang) as server, connect(server.url("?timeout=300ms")) as store:
        watch = Stopwatch()
        reading, writing = await asyncio.gather(fail(store, "GET", "a"), fail(store, "SET", "a", "1"))
        assert watch.seconds < 3
        assert isinstance(reading, StoreUnavailable)
        assert isinstance(writing, StoreUnavailable)
        assert writing.outcome == "unknown"
        server.respond = None
        assert await store.run([("GET", "a")]) == [None]


async def test_a_server_that_is_down_is_reported_soon_and_nothing_was_sent() -> None:
    async with rest_server() as server:
        store = connect(server.url("?connect_timeout=300ms"))
        await store.open()
    try:
        for _ in range(2):
            watch = Stopwatch()
            error = await fail(store, "SET", "a", "1")
            assert isinstance(error, StoreUnavailable)
            assert error.outcome == "not-sent"
            assert watch.seconds < 3
        watch = Stopwatch()
        await fail(store, "GET", "a")
        assert watch.seconds < 0.3, "once it is known to be down, nobody waits for it"
    finally:
        await store.close()


async def test_a_write_waits_for_a_server_that_restarts() -> None:
    async with rest_server() as server:
        store = connect(server.url())
        await store.open()
    try:
        writing = asyncio.create_task(store.run([("SET", "a", "1")]))
        await asyncio.sleep(0)
        again = RestServer(port=server.port)
        again.requests.extend(server.requests[:1])
        async with listening(again.serve, port=server.port) as running:
            assert port_of(running) == server.port
            assert await writing == [b"OK"]
            assert again.seen == [["SET", "a", "1"]]
            await store.close()
    finally:
        await store.close()


OPENING: dict[str, tuple[Respond, type[KeysteadError], str]] = {
    "a wrong token": (
        always(401, {"error": "WRONGPASS invalid or missing auth token"}),
        StoreRefused,
        "check that the token",
    ),
    "another site": (always(404, b"<html>"), StoreRefused, "check that the URL"),
    "a redirect": (always(308, b"", "location: https://elsewhere/"), StoreRefused, "check that the URL"),
    "a page": (always(200, b"<html>Welcome</html>"), StoreUnavailable, "is it an Upstash REST API"),
    "500": (always(500, b""), StoreUnavailable, "answered 500"),
    "a read-only token": (
        always(
            200,
            [
                {"result": "a2V5c3RlYWQ="},
                {"error": "NOPERM this user has no permissions to run the 'del' command or its subcommand"},
            ],
        ),
        StoreReadOnly,
        "read_only=yes",
    ),
}


@pytest.mark.parametrize(("respond", "kind", "text"), OPENING.values(), ids=OPENING)
async def test_an_unusable_server_is_reported_when_the_store_opens(
    respond: Respond, kind: type[KeysteadError], text: str
) -> None:
    async with rest_server(respond) as server:
        server.requests.append(Request("/", {}, b"[]", 0))  # so that the first is answered in this way, too
        with pytest.raises(kind, match=text) as caught:
            await connect(server.url()).open()
        assert "the-token" not in str(caught.value)


async def test_a_rate_limit_is_waited_for() -> None:
    async with rest_server() as server, connect(server.url()) as store:

        async def throttle(request: Request, writer: Writer) -> bool:
            server.respond = None
            return answer(writer, 429, {"error": "ERR too many requests"}, "retry-after: 0")

        server.respond = throttle
        assert await store.run([("SET", "a", "1")]) == [b"OK"]
        assert server.seen == [["SET", "a", "1"]] * 2


async def test_a_rate_limit_beyond_the_timeout_is_an_error() -> None:
    limit = always(429, {"error": "ERR too many requests"}, "retry-after: 60")
    async with rest_server(limit) as server, connect(server.url()) as store:
        watch = Stopwatch()
        error = await fail(store, "SET", "a", "1")
        assert isinstance(error, StoreUnavailable)
        assert error.outcome == "not-sent"
        assert watch.seconds < 3
        assert len(server.seen) == 1


async def test_a_used_up_plan_is_an_outage_and_not_the_fault_of_a_command() -> None:
    text = "ERR max daily request limit exceeded. Limit: 10000, Usage: 10000."
    async with rest_server(always(200, [{"error": text}])) as server, connect(server.url()) as store:
        error = await fail(store, "SET", "a", "1")
        assert isinstance(error, StoreUnavailable)
        assert "max daily request limit" in str(error)
        with pytest.raises(StoreUnavailable, match="max daily request limit"):
            await store.atomically([("SET", "a", "1")])


async def test_a_request_that_is_refused_as_a_whole_does_not_harm_the_others_in_it() -> None:
    async def respond(request: Request, writer: Writer) -> bool:
        if ["SET", "a", "large"] in request.commands:
            return answer(writer, 413, {"error": "ERR max request size exceeded"})
        return await run(request, writer)

    async with rest_server(respond) as server, connect(server.url()) as store:
        refused, kept = await asyncio.gather(fail(store, "SET", "a", "large"), store.run([("SET", "b", "1")]))
        assert kept == [b"OK"]
        assert isinstance(refused, BadArgument)
        assert [request.commands for request in server.requests[1:]] == [
            [["SET", "a", "large"], ["SET", "b", "1"]],
            [["SET", "a", "large"]],
            [["SET", "b", "1"]],
        ]


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "chunks": lambda body: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in body)
        + b"0\r\nTrailer: x\r\n\r\n"
    ),
    "until the end": lambda body: b"HTTP/1.0 200 OK\r\n\r\n" + body,
    "after a hint": lambda body: (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_responses_of_every_form_are_read(form: Callable[[bytes], bytes]) -> None:
    async with rest_server(raw(form(b'[{"result":"MQ=="}]'))) as server, connect(server.url()) as store:
        for _ in range(2):
            assert await store.run([("GET", "a")]) == [b"1"]


@pytest.mark.parametrize(
    ("header", "connections"), [("x: y", 1), ("connection: close", 4), ("keep-alive: timeout=1", 4)]
)
async def test_a_connection_is_used_again_unless_the_server_is_about_to_close_it(header: str, connections: int) -> None:
    async with rest_server(always(200, [{"result": 1}], header)) as server, connect(server.url()) as store:
        for _ in range(4):
            await store.run([("EXISTS", "a")])
        assert server.connections == connections


async def test_tls_is_verified(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, tmp_path / "server.key")
    async with rest_server(tls=context) as server:
        url = server.url().replace("upstash+http:", "upstash+https:")
        with pytest.raises(StoreRefused, match=r"no TLS connection to 127\.0\.0\.1"):
            await connect(url).open()
        assert server.requests == []
        async with connect(f"{url}?ca={certificate}") as store:
            assert await store.run([("SET", "a", "1")]) == [b"OK"]


async def test_an_idle_connection_that_the_server_has_just_closed_is_not_used_for_a_write() -> None:
    closed = threading.Event()
    bodies: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for answers in (b'[{"result":"a2V5c3RlYWQ="},{"result":0}]', b'[{"result":"OK"}]'):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                while (line := stream.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else 0
                bodies.append(stream.read(length))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answers), answers))
            closed.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        async with connect(f"upstash+http://:token@127.0.0.1:{listener.getsockname()[1]}") as store:
            # Blocks the event loop, as a long computation does: it has not seen the end yet, but the kernel has.
            closed.wait()
            assert isinstance(store, UpstashStore)
            assert store._queue is not None
            [idle] = store._queue.pool._idle
            select.select([idle._writer.get_extra_info("socket").fileno()], [], [])
            assert await store.run([("SET", "a", "1")]) == [b"OK"]
        serving.join()
    assert bodies[1:] == [b'[["SET","a","1"]]']


async def test_of_counted_writes_none_is_lost_and_none_is_made_twice_while_connections_break(
    upstash_gateway: servers.GatewayServer,
) -> None:
    upstash_gateway.empty()
    done = unknown = unsent = 0
    async with Proxy(upstash_gateway.port) as proxy:
        url = upstash_gateway.upstash_url.replace(f":{upstash_gateway.port}", f":{proxy.port}")
        async with connect(url) as store:

            async def count(number: int) -> None:
                nonlocal done, unknown, unsent
                for turn in range(20):
                    if number == 0 and turn % 3 == 0:
                        proxy.cut_replies_after(turn * 7)
                    if number == 1 and turn % 5 == 0:
                        proxy.reset()
                    try:
                        await store.run([("INCRBY", "n", 1)])
                        done += 1
                    except StoreUnavailable as error:
                        unknown += error.outcome == "unknown"
                        unsent += error.outcome == "not-sent"

            await asyncio.gather(*map(count, range(8)))
            await proxy.resume()
            [value] = await store.run([("GET", "n")])
    assert unknown > 0, "nothing was broken"
    assert done <= int(value) <= done + unknown
    assert done + unknown + unsent == 160
