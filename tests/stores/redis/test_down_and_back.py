"""A server that is down, hangs, restarts or loads: StoreUnavailable in time, and automatic recovery."""

import asyncio
import random
import resource
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import keystead
from keystead.errors import StoreClosed, StoreUnavailable
from keystead.stores import Command, Store, required
from tests import servers
from tests.servers import Server
from tests.stopwatch import Stopwatch
from tests.stores.redis.proxy import Proxy
from tests.stores.redis.waits import takes_at_most, until, works_again

TIMEOUT_S, CONNECT_S = 1.0, 1.0
FAST = "?timeout=1s&connect_timeout=1s"
SLACK_S = 0.5  # for a machine with other work to do
Call = Callable[[Store], Coroutine[Any, Any, Any]]

GREETING = b"+PONG\r\n:0\r\n:0\r\n"  # what the server says to a new connection before the first call

READ: Call = lambda store: store.run([("GET", "k")])  # noqa: E731
WRITE: Call = lambda store: store.run([("SET", "k", "v")])  # noqa: E731
ATOMIC: Call = lambda store: store.atomically([required(("SET", "k", "v"))])  # noqa: E731


async def scanned(store: Store) -> list[bytes]:
    return [key async for page in store.scan() for key in page]


SCAN: Call = scanned
PREPARED: Call = lambda store: store.prepared(lambda key: [("GET", key)], 1)(b"k")  # noqa: E731
EACH_VERB = pytest.mark.parametrize(
    "call", [READ, WRITE, ATOMIC, SCAN, PREPARED], ids=["read", "write", "atomically", "scan", "prepared"]
)


async def test_a_server_that_is_down_on_open_is_a_one_line_error(server: Server) -> None:
    server.kill()
    with takes_at_most(CONNECT_S + SLACK_S), pytest.raises(StoreUnavailable, match="is the server running there") as no:
        await keystead.connect(server.url + FAST).open()
    assert f"127.0.0.1:{server.port}" in str(no.value)
    assert no.value.outcome == "not-sent"


async def test_a_server_that_hangs_on_open_fails_within_the_connect_timeout(server: Server) -> None:
    server.pause()
    with takes_at_most(CONNECT_S + SLACK_S), pytest.raises(StoreUnavailable, match=r"did not answer within 1 s"):
        await keystead.connect(server.url + FAST).open()


async def test_a_server_that_stops_during_open_is_reported(server: Server, proxy: Proxy) -> None:
    """Whatever was answered already: each byte of the greeting may be the last."""
    for count in (0, 3, 7, 8, 11, 12, 15, 16, 40, 400, 2000):
        proxy.cut_replies_after(count)
        with takes_at_most(CONNECT_S + TIMEOUT_S + SLACK_S), pytest.raises(StoreUnavailable):
            await keystead.connect(proxy.url + FAST).open()
    assert proxy.connections == 11


@EACH_VERB
async def test_calls_to_a_killed_server_fail_in_time_and_later_ones_fast(server: Server, call: Call) -> None:
    async with keystead.connect(server.url + FAST) as store:
        await call(store)
        server.kill()
        with takes_at_most(TIMEOUT_S + SLACK_S), pytest.raises(StoreUnavailable) as first:
            await call(store)
        assert first.value.outcome == "not-sent" or call is not READ
        await until_down_is_known(store)
        for _ in range(5):
            with takes_at_most(0.05), pytest.raises(StoreUnavailable, match=str(server.port)) as error:
                await call(store)
            assert error.value.outcome == "not-sent"


async def until_down_is_known(store: Store) -> None:
    """Wait until calls fail fast, which is after the connect timeout at the latest."""
    watch = Stopwatch()
    while True:
        call = Stopwatch()
        with pytest.raises(StoreUnavailable):
            await store.run([("GET", "k")])
        if call.seconds < 0.02:
            break
    assert watch.seconds < CONNECT_S + TIMEOUT_S + SLACK_S


@EACH_VERB
async def test_a_restarted_server_works_again(server: Server, call: Call) -> None:
    async with keystead.connect(server.url + FAST) as store:
        await call(store)
        server.kill()
        await until_down_is_known(store)
        server.start()
        assert await works_again(lambda: call(store)) < 1.0
        await call(store)


@EACH_VERB
async def test_a_call_during_a_short_restart_waits_for_it(server: Server, call: Call) -> None:
    async with keystead.connect(server.url + "?timeout=5s&connect_timeout=5s") as store:
        await call(store)
        server.kill()
        await asyncio.to_thread(lambda: None)  # a turn of the event loop, in which it learns that the server is gone
        waiting = asyncio.create_task(works_again(lambda: call(store)))
        await asyncio.to_thread(server.start)
        assert await waiting < 3.0


@EACH_VERB
async def test_a_server_that_hangs_fails_every_call_in_time_and_works_again_after(server: Server, call: Call) -> None:
    async with keystead.connect(server.url + FAST) as store:
        await call(store)
        server.pause()
        for _ in range(4):
            with takes_at_most(TIMEOUT_S + SLACK_S), pytest.raises(StoreUnavailable):
                await call(store)
        server.resume()
        assert await works_again(lambda: call(store)) < 1.5


async def test_a_paused_server_fails_calls_in_time_and_works_again_after(server: Server) -> None:
    async with keystead.connect(server.url + FAST) as store:
        await WRITE(store)
        server.ask("CLIENT", "PAUSE", int(TIMEOUT_S * 1000) + 2_000, "ALL")  # it takes no UNPAUSE meanwhile
        with takes_at_most(TIMEOUT_S + SLACK_S), pytest.raises(StoreUnavailable) as error:
            await WRITE(store)
        assert error.value.outcome == "unknown"
        await works_again(lambda: WRITE(store))


@EACH_VERB
async def test_a_black_hole_network_fails_calls_in_time(proxy: Proxy, call: Call) -> None:
    async with keystead.connect(proxy.url + FAST) as store:
        await call(store)
        proxy.black_hole()
        for _ in range(4):
            with takes_at_most(TIMEOUT_S + SLACK_S), pytest.raises(StoreUnavailable):
                await call(store)
        await proxy.resume()
        assert await works_again(lambda: call(store)) < 1.5


@EACH_VERB
async def test_a_call_that_waited_for_a_connection_still_keeps_its_timeout(proxy: Proxy, call: Call) -> None:
    """Connecting counts toward the timeout of a call."""
    async with keystead.connect(proxy.url + "?timeout=1s&connect_timeout=1s") as store:
        await call(store)
        await proxy.refuse()
        lost = time.monotonic()
        await until(lambda: time.monotonic() - lost > 0.02, "the store has seen that the connection is gone")
        began, watch = time.monotonic(), Stopwatch()
        calling = asyncio.create_task(asyncio.wait_for(call(store), 5))
        await until(lambda: time.monotonic() - began > 0.5, "the call has waited for half of its time")
        proxy.hold_replies_after(len(GREETING))
        await proxy.accept()
        with pytest.raises(StoreUnavailable):
            await calling
        assert watch.seconds < 1.0 + SLACK_S


async def test_a_restarted_server_gets_the_script_again(server: Server) -> None:
    async with keystead.connect(server.url + FAST) as store:
        assert await store.atomically([required(("SET", "k", "v", "NX"))])
        assert server.ask("SCRIPT", "EXISTS", script_digest()) == [1]
        server.restart()
        await works_again(lambda: store.atomically([("INCRBY", "n", 1)]))
        assert (await store.atomically([("INCRBY", "n", 1)])).replies == [2]
        server.ask("SCRIPT", "FLUSH")
        outcomes = await asyncio.gather(*(store.atomically([("INCRBY", "n", 1)]) for _ in range(20)))
        assert sorted(outcome.replies[0] for outcome in outcomes) == list(range(3, 23))


def script_digest() -> bytes:
    from keystead.stores.redis.atomic_script import DIGEST

    return DIGEST


async def test_a_call_that_meets_a_loading_server_waits_for_it() -> None:
    with loading_slowly() as server:
        async with keystead.connect(server.url + "?timeout=5s&connect_timeout=5s") as store:
            reload = asyncio.create_task(asyncio.to_thread(server.ask, "DEBUG", "RELOAD"))
            refused = asyncio.to_thread(until_loading, server)
            await refused
            assert await store.run([("SET", "k", "v"), ("GET", "key:000000000001")]) == [b"OK", b"x"]
            assert await store.atomically([required(("SET", "k2", "v"))])
            await reload


async def test_a_loading_server_is_unavailable_until_it_has_loaded() -> None:
    with loading_slowly() as server:
        async with keystead.connect(server.url + "?timeout=300ms&connect_timeout=1s") as store:
            server.ask("SAVE")
            server.kill()
            starting = asyncio.create_task(asyncio.to_thread(server.start))
            sentences, outcomes = set(), set()
            while not starting.done():
                try:
                    await store.run([("GET", "k")])
                except StoreUnavailable as error:
                    outcomes.add(error.outcome)
                    sentences.add(str(error))
                await asyncio.sleep(0.005)
            await starting
            assert outcomes == {"not-sent"}
            assert any("LOADING" in sentence for sentence in sentences), sentences
            await works_again(lambda: store.run([("GET", "k")]))
            assert await store.run([("GET", "key:000000000001")]) == [b"x"]


def loading_slowly() -> Any:
    """A server with 400 keys, of which each takes 2 ms to load."""
    return _Loading()


class _Loading:
    def __enter__(self) -> Server:
        self._entered = servers.valkey(
            *("--enable-debug-command", "yes", "--key-load-delay", "2000"),
            *("--loading-process-events-interval-bytes", "1024"),
        )
        server = self._entered.__enter__()
        with server.wire() as wire:
            for i in range(400):
                wire.call("SET", f"key:{i:012}", "x")
        return server

    def __exit__(self, *details: Any) -> None:
        self._entered.__exit__(*details)


def until_loading(server: Server) -> None:
    from keystead.testing.resp_client import WireError
    from tests.servers import wait_until

    def is_loading() -> bool:
        try:
            server.ask("GET", "k")
        except WireError as error:
            return str(error).startswith("LOADING")
        return False

    wait_until(is_loading, "the server loads")


# --- much at once -------------------------------------------------------------------------------------------


async def test_values_of_20_megabytes_round_trip(server: Server) -> None:
    big = random.Random(1).randbytes(20_000_000)
    async with keystead.connect(server.url + "?timeout=10s") as store:
        assert await store.run([("SET", "big", big), ("GET", "big"), ("EXISTS", "big")]) == [b"OK", big, 1]
        assert (await store.atomically([keystead.stores.holds("big", big), ("GET", "big")])).replies == [1, big]
        few = await asyncio.gather(*(store.run([("GET", "big"), ("GET", f"no:{i}")]) for i in range(3)))
        assert few == [[big, None]] * 3
        many: list[Command] = [("RPUSH", "list", *(b"%d" % i for i in range(10_000)))] * 10
        assert (await store.run(many))[-1] == 100_000
        assert len((await store.run([("LRANGE", "list", 0, -1)]))[0]) == 100_000


async def test_a_server_that_reads_nothing_does_not_fill_the_memory(server: Server) -> None:
    value = b"x" * 1_000_000
    async with keystead.connect(server.url + FAST) as store:
        await WRITE(store)
        server.pause()
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        async def attempt(i: int) -> str:
            try:
                await store.run([("SET", f"k:{i}", value)])
            except StoreUnavailable as error:
                return error.outcome
            return "written"

        for _ in range(6):
            with takes_at_most(TIMEOUT_S + 2.0):  # packing 200 MB takes its time on a busy machine
                outcomes = await asyncio.gather(*(attempt(i) for i in range(200)))
            assert set(outcomes) <= {"unknown", "not-sent"}
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
        assert grown_mb < 300  # each caller's value, packed; what is copied for the transport is a few of them
        server.resume()
        await works_again(lambda: WRITE(store))


async def test_callers_wait_while_the_server_is_congested(server: Server) -> None:
    value = b"x" * 1_000_000
    async with keystead.connect(server.url + "?timeout=10s") as store:
        server.pause()
        calls = [asyncio.create_task(store.run([("SET", f"k:{i}", value)])) for i in range(20)]
        await asyncio.wait(calls, timeout=0.05)
        late = [asyncio.create_task(store.run([("SET", f"late:{i}", value)])) for i in range(20)]
        await asyncio.wait(late, timeout=0.05)
        assert not any(call.done() for call in [*calls, *late])
        server.resume()
        assert await asyncio.gather(*calls, *late) == [[b"OK"]] * 40
        assert await store.run([("DBSIZE",)]) == [40]


async def test_a_caller_that_waits_to_send_keeps_its_timeout(server: Server) -> None:
    value = b"x" * 20_000_000
    async with keystead.connect(server.url + "?timeout=1s&connect_timeout=1s") as store:
        server.pause()
        first = asyncio.create_task(store.run([("SET", "first", value)]))
        await asyncio.wait({first}, timeout=0.2)
        with takes_at_most(1.0 + SLACK_S), pytest.raises(StoreUnavailable):
            await store.run([("SET", "second", "v")])
        with pytest.raises(StoreUnavailable):
            await first
        server.resume()


# --- closing ------------------------------------------------------------------------------------------------


async def test_closing_ends_the_calls_under_way(server: Server) -> None:
    store = keystead.connect(server.url + "?timeout=20s")
    await store.open()
    server.pause()
    calls = [asyncio.create_task(call(store)) for call in (READ, WRITE, ATOMIC, SCAN)]
    await asyncio.wait(calls, timeout=0.05)
    with takes_at_most(1.0):
        await store.close()
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] != []
    assert all(isinstance(answer, StoreClosed | StoreUnavailable) for answer in answers), answers
    await store.close()
    with pytest.raises(StoreClosed):
        await READ(store)
    server.resume()


async def test_closing_while_the_server_is_down_does_not_wait(server: Server) -> None:
    store = keystead.connect(server.url + "?timeout=20s&connect_timeout=20s")
    await store.open()
    server.kill()
    calls = [asyncio.create_task(call(store)) for call in (READ, ATOMIC)]
    await asyncio.wait(calls, timeout=0.05)
    with takes_at_most(1.0):
        await store.close()
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, StoreClosed | StoreUnavailable) for answer in answers), answers


async def test_a_caller_that_retries_in_a_loop_does_not_keep_the_store_from_reconnecting(server: Server) -> None:
    """Once the server has been down for `connect_timeout`, calls fail at once: but the event loop gets its turn."""
    async with keystead.connect(server.url + "?timeout=2s&connect_timeout=2s") as store:
        server.kill()
        asyncio.get_running_loop().call_later(2.3, server.start)
        async with asyncio.timeout(60):
            while True:
                try:
                    await READ(store)
                    break
                except StoreUnavailable:
                    pass
