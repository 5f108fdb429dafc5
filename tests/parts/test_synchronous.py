"""Synchronous callers: the same operations, promises and errors, from many threads."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import (
    Counter,
    Keyspace,
    Lock,
    RateLimit,
    Steps,
    Value,
    after,
    connect,
    never,
    procedure,
    sliding,
    wait,
)
from keystead.errors import BadValue, StoreClosed, StoreUnavailable, WrongEventLoop
from keystead.parts.lock import Holder, LockHeld, LockLost
from keystead.stores.synchronous import enter, iterate
from tests import servers
from tests.every_store import EVERY, mariadb_server, on_urls, postgres_server, redis_server, urls, valkey_cluster
from tests.gunicorn_server import gunicorn
from tests.listening import listening, port_of
from tests.parts.synchronous_programs import Counts as WsgiCounts
from tests.serving import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0

__all__ = ["mariadb_server", "postgres_server", "redis_server", "urls", "valkey_cluster"]


class Shop(Keyspace):
    stock = Counter("sync:{sku}:stock", lifetime=never("inventory"), tag="sku")
    order = Value("sync:{sku}:order:{id}", str, lifetime=after("1h"), tag="sku")
    price = Value("sync:{sku}:price", int, lifetime=after("1h"), near="5s", tag="sku")
    hits = Counter("sync:{sku}:hits", lifetime=after("1m"), tag="sku")
    lock = Value("sync:{sku}:lock", Holder, lifetime=sliding("2s", touch_every="100ms"), tag="sku")
    fence = Counter("sync:{sku}:fence", lifetime=sliding("400d", touch_every="1d"), tag="sku")

    @procedure
    def reserve(self, sku: str, id: str) -> Steps[int]:
        """Take a piece for an order."""
        left = self.stock(sku).decrement()
        return Steps(
            self.stock(sku).at_least(1).otherwise("sold out"), self.order(sku, id).add("ann").required(), left
        ).giving(left)


@pytest.fixture
def shop(urls: dict[str, str]) -> Iterator[Shop]:
    """Bound to a store that nobody has opened."""
    store = connect(urls["default"])
    yield Shop(store)
    wait(store.close())


everywhere = on_urls(*EVERY, "cluster")
lasting = on_urls("sqlite", "redis", "postgres", "mariadb", "cluster")
here = on_urls("memory")


# --- every operation, procedure and part ---------------------------------------------------------------------


@everywhere
def test_operations_procedures_and_batches_give_their_results(shop: Shop) -> None:
    shop.stock("apple").set(1).wait()
    assert shop.stock("apple").get().wait() == 1
    assert wait(shop.reserve("apple", "1")).value == 0
    assert wait(shop.reserve("apple", "2")).stopped == "sold out"
    assert wait(shop.run(shop.order("apple", "1").get(), shop.order("apple", "2").get())) == ("ann", None)
    assert wait(shop.order("apple", "1").change(str.upper)) == "ANN"
    assert {key.values["id"] for key in iterate(shop.order.scan())} == {"1"}


@everywhere
def test_parts_work_as_they_do_with_await(shop: Shop) -> None:
    limit = RateLimit(shop.hits, "2/minute")
    assert [bool(wait(limit.hit("apple"))) for _ in range(3)] == [True, True, False]
    lock = Lock(shop.lock("apple"), shop.fence("apple"))
    with enter(lock.holding("first")) as hold:
        assert hold.by == "first"
        with pytest.raises(LockHeld), enter(lock.holding("second")):
            raise AssertionError("both hold it")
    assert wait(lock.holder()) is None


@here
def test_errors_are_those_of_the_operation(shop: Shop) -> None:
    with pytest.raises(BadValue):
        shop.order("apple", "1").set(7).wait()  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError, match="of the caller"), enter(_managed([])):
        raise ZeroDivisionError("of the caller")


@here
def test_a_context_manager_is_left_in_the_task_that_entered_it(shop: Shop) -> None:
    tasks: list[Any] = []
    with enter(_managed(tasks)) as value:
        assert value == "entered"
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


@asynccontextmanager
async def _managed(tasks: list[Any]) -> AsyncIterator[str]:
    tasks.append(asyncio.current_task())
    try:
        yield "entered"
    finally:
        tasks.append(asyncio.current_task())


# --- threads -------------------------------------------------------------------------------------------------


@everywhere
def test_threads_lose_no_update(shop: Shop) -> None:
    shop.stock("apple").set(40).wait()

    def reserve(number: int) -> bool:
        shop.hits("apple").increment().wait()
        return bool(wait(shop.reserve("apple", str(number))))

    with ThreadPoolExecutor(16) as threads:
        reserved = list(threads.map(reserve, range(100)))
    assert sum(reserved) == 40
    assert (shop.stock("apple").get().wait(), shop.hits("apple").get().wait()) == (0, 100)


@everywhere
def test_threads_that_are_first_to_use_a_store_all_wait_until_it_is_open(shop: Shop) -> None:
    limit, barrier = RateLimit(shop.hits, "5/minute"), threading.Barrier(16)

    def hit_or_read(number: int) -> bool:
        barrier.wait(PATIENCE_S)
        return bool(wait(limit.hit("apple"))) if number % 2 else shop.price("apple").get().wait() is not None

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(hit_or_read, range(16))) == 5


@on_urls("redis")
def test_concurrent_threads_share_round_trips(shop: Shop, redis_server: servers.Server) -> None:
    shop.stock("apple").set(0).wait()
    barrier, rounds, threads = threading.Barrier(16), 20, 16

    def read(_: int) -> None:
        for _ in range(rounds):
            barrier.wait(PATIENCE_S)
            shop.stock("apple").get().wait()

    before = _reads(redis_server)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))
    assert _reads(redis_server) - before < rounds * threads / 2


def test_concurrent_threads_share_commits(tmp_path: Path) -> None:
    store: Any = connect(f"sqlite:///{tmp_path}/shared.db")
    keys, barrier, rounds, threads = Shop(store), threading.Barrier(16), 20, 16
    keys.hits("apple").increment().wait()
    before = store._own_commits

    def write(_: int) -> None:
        for _ in range(rounds):
            barrier.wait(PATIENCE_S)
            keys.hits("apple").increment().wait()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, range(threads)))
    assert keys.hits("apple").get().wait() == rounds * threads + 1
    assert 0 < store._own_commits - before < rounds * threads / 2


def _reads(server: servers.Server) -> int:
    info = server.ask("INFO", "stats")
    text = info.decode() if isinstance(info, bytes) else str(info)
    return int(text.split("total_reads_processed:")[1].split()[0])


@on_urls("redis")
def test_a_caller_who_waits_long_holds_up_no_other(shop: Shop, redis_server: servers.Server) -> None:
    release = threading.Event()

    async def wait_for_release() -> str:
        while not release.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
        return "released"

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(wait, wait_for_release())
        for _ in range(50):
            shop.stock("apple").increment().wait()
        assert not slow.done()
        release.set()
        assert slow.result(PATIENCE_S) == "released"
    assert shop.stock("apple").get().wait() == 50


@on_urls("memory")
def test_a_lease_is_refreshed_while_nobody_waits(shop: Shop) -> None:
    lock = Lock(shop.lock("apple"), shop.fence("apple"))
    with enter(lock.holding("import")) as hold:
        until_ms = hold.good_until_ms
        wait_until(lambda: hold.good_until_ms > until_ms + 300, "three refreshes without a synchronous call")
    assert wait(lock.holder()) is None


@on_urls("memory")
def test_a_lock_that_was_lost_is_reported_at_the_end_of_the_block(shop: Shop) -> None:
    lock = Lock(shop.lock("apple"), shop.fence("apple"))
    with pytest.raises(LockLost), enter(lock.holding("import")):
        shop.lock("apple").delete().wait()


# --- where it is refused -------------------------------------------------------------------------------------


@here
async def test_in_a_running_event_loop_it_says_so_instead_of_blocking(urls: dict[str, str]) -> None:
    async with connect(urls["default"]) as store:
        keys = Shop(store)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for forgotten in (keys.stock("apple").get(), keys.reserve("apple", "1")):
                with pytest.raises(WrongEventLoop, match="use `await`"):
                    wait(forgotten)


@here
async def test_a_store_that_a_running_loop_opened_is_not_used_from_another_thread(urls: dict[str, str]) -> None:
    async with connect(urls["default"]) as store:
        keys = Shop(store)
        with pytest.raises(WrongEventLoop, match="another event loop"):
            await asyncio.to_thread(lambda: keys.stock("apple").get().wait())


def test_a_store_that_was_closed_stays_closed() -> None:
    with connect("memory://") as store:
        assert Shop(store).stock("apple").increment().wait() == 1
    with pytest.raises(StoreClosed):
        Shop(store).stock("apple").get().wait()


async def test_an_asynchronous_program_still_has_to_open_its_store() -> None:
    with pytest.raises(StoreClosed):
        await Shop(connect("memory://")).stock("apple").get()


# --- outages and interruptions -------------------------------------------------------------------------------


def test_a_store_that_is_down_is_an_error_and_works_once_it_is_up(tmp_path: Path) -> None:
    """The first use opens it: one that failed is tried again by the next."""
    folder = tmp_path / "later"
    keys = Shop(connect(f"sqlite:///{folder}/kept.db"))
    with pytest.raises(StoreUnavailable):
        keys.stock("apple").get().wait()
    folder.mkdir()
    assert keys.stock("apple").increment().wait() == 1
    wait(keys.stock.store.close())


def test_a_server_that_does_not_answer_is_an_error_within_the_time_limit() -> None:
    with servers.redis() as server, connect(f"{server.url}?timeout=300ms&connect_timeout=60s") as store:
        keys = Shop(store)
        keys.stock("apple").increment().wait()
        server.pause()
        with pytest.raises(StoreUnavailable):
            keys.stock("apple").get().wait()
        server.resume()
        wait_until(lambda: _works(keys), "the server works again")


def _works(keys: Shop) -> bool:
    try:
        return keys.stock("apple").get().wait() == 1
    except StoreUnavailable:
        return False


# --- programs ------------------------------------------------------------------------------------------------


def run(name: str, *arguments: str) -> tuple[int, str, str]:
    """A program of its own, in which every warning is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.parts.synchronous_programs", name, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@lasting
def test_a_program_that_closes_nothing_ends_quietly_and_has_lost_nothing(urls: dict[str, str]) -> None:
    assert run("forget_to_close", urls["default"]) == (0, "2\n", "")
    assert run("forget_to_close", urls["default"]) == (0, "4\n", "")


@pytest.mark.matrix
@lasting
def test_forks_under_load_have_connections_of_their_own_and_lose_nothing(urls: dict[str, str]) -> None:
    assert run("fork_under_load", urls["default"]) == (0, f"{1 + 200 + 5 * 100}\n", "")


@on_urls("redis")
def test_no_fork_uses_the_connection_of_another_process(urls: dict[str, str]) -> None:
    code, told, _ = run("ports_of_forks", urls["default"])
    parent, *forks, after = told.split()
    assert (code, after) == (0, parent), "the parent keeps its own"
    assert len({parent, *forks}) == 5


async def test_an_interrupted_caller_leaves_and_the_others_go_on(redis_server: servers.Server) -> None:
    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    redis_server.ask("FLUSHALL")
    async with listening(never_answer) as silent:
        url = f"redis://127.0.0.1:{port_of(silent)}"
        done = await asyncio.to_thread(run, "interrupted", redis_server.url, url)
    assert done == (0, "interrupted\n200\n", "")


def test_green_threads_are_refused_in_a_sentence() -> None:
    code, said, errors = run("green_threads", "memory://")
    assert (code, errors) == (0, "")
    assert "gevent" in said
    assert "gthread" in said


def test_a_call_after_the_end_says_so() -> None:
    code, said, errors = run("too_late", "memory://")
    assert (code, errors) == (0, "")
    assert "the program is ending" in said


# --- gunicorn ------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@on_urls("sqlite", "redis", "postgres")
def test_gunicorn_workers_that_are_killed_under_load_lose_nothing_that_was_answered(
    urls: dict[str, str], tmp_path: Path
) -> None:
    """Four preloaded workers with eight threads each; three times one is killed while 16 clients count."""
    with gunicorn("tests.parts.wsgi_counter:app", tmp_path, COUNTER_STORE=urls["default"]) as port:
        answered: set[int] = set()
        workers: set[int] = set()
        kills = iter((100, 250, 400))
        next_kill, mutex, failed = next(kills), threading.Lock(), 0

        def ask(_: int) -> None:
            nonlocal next_kill, failed
            try:
                reply = httpx2.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S).text.split()
            except httpx2.HTTPError:  # its worker was killed
                with mutex:
                    failed += 1
                return
            worker, number = map(int, reply)
            with mutex:
                assert number not in answered, "two requests got one number"
                answered.add(number)
                workers.add(worker)
                kill = len(answered) == next_kill
                if kill:
                    next_kill = next(kills, 0)
            if kill:
                os.kill(worker, signal.SIGKILL)

        with ThreadPoolExecutor(16) as clients:
            list(clients.map(ask, range(600)))
    with connect(urls["default"]) as store:
        counted = WsgiCounts(store).n("requests").get().wait()
        assert WsgiCounts(store).n("loaded").get().wait() == 1
    assert len(workers) >= 4
    assert len(answered) + failed == 600
    assert max(answered) <= counted <= len(answered) + failed
