"""`@cache`, `@rate_limit`, `@once` and `lock`: one declaration and one line of use, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from keystead import Keyspace, Store, Value, after, connect, wait
from keystead.errors import BadDeclaration, BadValue
from keystead.parts.cache import Cache, LoadFailed
from keystead.parts.decorators import (
    AlreadyRunning,
    Cached,
    Limited,
    Locked,
    Once,
    cache,
    lock,
    once,
    rate_limit,
)
from keystead.parts.limit import LimitReached, TokenBucket
from keystead.parts.lock import Lock, LockHeld, LockLost
from keystead.schema import SortedSet, sliding
from keystead.schema.check import check
from keystead.schema.docs.document import document
from keystead.stores import Guarantees
from tests.every_store import on


class Report(BaseModel):
    id: int
    title: str


class Keys(Keyspace):
    """Keys of an application with decorators."""

    report = Cached("report:{id:int}", Report, lifetime=after("5m"), stale="1d", retry="1ms", doc="reports")
    plain = Cached("plain:{id:int}", Report, lifetime=after("5m"), nothing="1m", doc="reports without stale copies")
    logins = Limited("limit:login:{user}", "2/minute")
    bucket = SortedSet("limit:bucket:{user}", str, lifetime=sliding("10m", touch_every="1s"), doc="token buckets")
    receipt = Once("payment:{id}", int, lifetime=after("7d"), doc="receipts")
    nothing = Once("event:{id}", type(None), lifetime=after("7d"), doc="handled events")
    site = Locked("lock:site:{site:int}", lease="2m")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with connect("memory://") as opened:
        yield opened


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store)


@pytest.fixture
def sync_keys() -> Iterator[Keys]:
    with connect("memory://") as opened:
        yield Keys(opened)


# --- one declaration -----------------------------------------------------------------------------------------


def test_a_declaration_brings_its_families_along_and_check_and_the_document_know_them() -> None:
    assert {name for name in Keys.families if name.startswith(("report", "site", "receipt"))} == {
        *("report", "report_mark", "report_stale", "site", "site_fence"),
        *("receipt", "receipt_lease", "receipt_lease_fence"),
    }
    assert check([Keys], cluster=True) == []
    assert "report_mark" in {entry.name for entry in document(Keys).families}
    assert Keys.families["report_stale"].keyspace is Keys


def test_a_family_of_the_name_of_a_companion_is_refused() -> None:
    with pytest.raises(BadDeclaration, match="brings a family of this name along"):

        class _Twice(Keyspace):
            report = Cached("report:{id}", str, lifetime=after("5m"))
            report_mark = Value("mark:{id}", str, lifetime=after("5m"))

    with pytest.raises(BadDeclaration, match="optional end"):
        Cached("report:{id}[_{page}]", str, lifetime=after("5m"))


async def test_a_keyspace_inherits_the_companions(store: Store) -> None:
    class More(Keys):
        """More keys."""

    assert Cache(More(store).report) is not None
    assert More.families.keys() == Keys.families.keys()


def test_a_lock_needs_a_placeholder_in_a_cluster() -> None:
    class Single(Keyspace):
        site = Locked("lock:site")

    [finding] = check([Single], {"default": ("cluster", Guarantees(atomic="one slot"))})
    assert finding.code == "role-unfit"
    assert "give it a placeholder" in finding.sentence


# --- @cache --------------------------------------------------------------------------------------------------


async def test_concurrent_calls_run_the_function_once(keys: Keys) -> None:
    calls = []

    @cache(keys.report)
    async def load(id: int) -> Report:
        calls.append(id)
        await asyncio.sleep(0)
        return Report(id=id, title="May")

    assert await asyncio.gather(*[load(7) for _ in range(20)]) == [Report(id=7, title="May")] * 20
    assert calls == [7]
    assert await load.invalidate(7)
    assert not await load.invalidate(id=7)
    assert (await load(7)).title == "May"
    assert calls == [7, 7]
    assert (await load.refresh(7)).title == "May"
    assert calls == [7, 7, 7]


async def test_an_expired_result_is_returned_at_once_while_it_is_loaded_anew(keys: Keys) -> None:
    titles, go_on, is_written = iter(["old", "new"]), asyncio.Event(), asyncio.Event()

    @cache(keys.report)
    async def load(id: int) -> Report:
        title = next(titles)
        if title == "new":
            await go_on.wait()
            is_written.set()
        return Report(id=id, title=title)

    assert (await load(7)).title == "old"
    await keys.report(7).delete()  # as if it had expired
    assert [(await load(7)).title for _ in range(3)] == ["old"] * 3  # nobody waits for the load
    go_on.set()
    await is_written.wait()
    while (await load(7)).title == "old":
        pass


async def test_what_the_function_raises_is_raised_and_then_it_has_a_pause(keys: Keys) -> None:
    @cache(keys.plain)
    async def load(id: int) -> Report | None:
        if id == 0:
            raise ZeroDivisionError("no report 0")
        return None

    with pytest.raises(ZeroDivisionError):
        await load(0)
    with pytest.raises(LoadFailed):
        await load(0)
    assert await load(1) is None


async def test_a_shorter_ttl_is_possible_and_a_longer_one_is_refused(keys: Keys) -> None:
    @cache(keys.report, ttl="1m")
    async def load(id: int) -> Report:
        return Report(id=id, title="")

    await load(7)
    assert 50_000 < await keys.report(7).left_ms() <= 60_000
    with pytest.raises(BadDeclaration, match="declare a longer lifetime"):
        cache(keys.report, ttl="6m")


async def test_a_function_whose_parameters_are_not_the_key_is_refused(keys: Keys) -> None:
    def locale_matters(id: int, locale: str) -> Report:
        raise NotImplementedError

    def other(number: int) -> Report:
        raise NotImplementedError

    def many(id: int) -> Iterator[Report]:
        yield Report(id=id, title="")

    for function, why in ((locale_matters, "has the parameter locale"), (other, "no parameter id"), (many, "generat")):
        with pytest.raises(BadDeclaration, match=why):
            cache(keys.report)(function)
    with pytest.raises(BadDeclaration, match="no parameter"):
        cache(keys.report, key=lambda nr: nr)(other)
    with pytest.raises(BadDeclaration, match="names the parameters"):
        cache(keys.report, key=lambda *all: all)(other)
    assert callable(cache(keys.report, key=lambda number: number)(other))
    for key in (lambda number: {"nr": number}, lambda number: (number, number)):
        with pytest.raises(BadDeclaration, match="key= must return id"):
            cache(keys.report, key=key)(other)(1)


def test_a_synchronous_function_runs_once_in_the_thread_of_a_caller(sync_keys: Keys) -> None:
    ran_in, barrier = [], threading.Barrier(8)

    @cache(sync_keys.report)
    def load(id: int) -> Report:
        ran_in.append(threading.current_thread().name)
        assert sync_keys.plain(1).get().wait() is None  # the event loop is free
        return Report(id=id, title="May")

    def call(_: int) -> Report:
        barrier.wait()
        return load(7)

    with ThreadPoolExecutor(8, thread_name_prefix="caller") as pool:
        assert list(pool.map(call, range(8))) == [Report(id=7, title="May")] * 8
    assert len(ran_in) == 1
    assert ran_in[0].startswith("caller")
    assert load.invalidate(7)
    assert load.refresh(7).title == "May"


def test_a_synchronous_function_is_loaded_anew_in_the_background(sync_keys: Keys) -> None:
    titles, is_loaded = iter(["old", "new"]), threading.Event()

    @cache(sync_keys.report)
    def load(id: int) -> Report:
        title = next(titles)
        if title == "new":
            is_loaded.set()
        return Report(id=id, title=title)

    load(7)
    sync_keys.report(7).delete().wait()  # as if it had expired
    assert load(7).title == "old"
    assert is_loaded.wait(60)
    while load(7).title == "old":
        pass


def test_errors_of_a_synchronous_function_reach_the_caller(sync_keys: Keys) -> None:
    @cache(sync_keys.plain)
    def load(id: int) -> Report:
        raise {1: ValueError, 2: StopIteration, 3: KeyboardInterrupt}[id]("no")

    for id, error in ((1, ValueError), (2, RuntimeError), (3, KeyboardInterrupt)):
        with pytest.raises(error):
            load(id)
    with pytest.raises(LoadFailed):
        load(1)


# --- @rate_limit ---------------------------------------------------------------------------------------------


async def test_calls_beyond_the_rate_are_refused_with_the_time_to_retry(keys: Keys) -> None:
    @rate_limit(keys.logins)
    async def log_in(user: str, password: str) -> str:
        return f"{user} {password}"

    assert await log_in("ann", "x") == "ann x"
    assert await log_in("ann", password="y") == "ann y"
    with pytest.raises(LimitReached) as refused:
        await log_in("ann", "z")
    assert 1 <= refused.value.retry_after_s <= 60
    assert await log_in("bob", "x") == "bob x"


async def test_a_refused_call_may_have_a_result_of_its_own(keys: Keys) -> None:
    limit = TokenBucket(keys.bucket, "1/minute")

    @rate_limit(limit, key=lambda request: request["user"], refused=lambda error: f"429 {error.retry_after_s}")
    async def view(request: dict[str, str]) -> str:
        return "200"

    assert [await view({"user": "ann"}) for _ in range(2)] == ["200", "429 60"]


def test_a_synchronous_function_is_limited(sync_keys: Keys) -> None:
    @rate_limit(sync_keys.logins, key=lambda: "everybody")
    def view() -> str:
        return "200"

    assert [view(), view()] == ["200", "200"]
    with pytest.raises(LimitReached):
        view()


async def test_fastapi_sees_the_parameters_of_the_view(keys: Keys) -> None:
    app = FastAPI()

    def too_many(error: LimitReached) -> JSONResponse:
        return JSONResponse({"error": error.code}, 429, {"retry-after": str(error.retry_after_s)})

    @app.get("/{name}")
    @rate_limit(keys.logins, key=lambda name: name, refused=too_many)
    async def view(name: str, size: int = 1) -> dict[str, int]:
        return {name: size}

    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.get("/a?size=3")).json() == {"a": 3}
        assert (await client.get("/a?size=x")).status_code == 422
        await client.get("/a")
        refused = await client.get("/a")
    assert refused.status_code == 429
    assert refused.headers["retry-after"]


# --- @once ---------------------------------------------------------------------------------------------------


async def test_the_same_key_gives_the_stored_result(keys: Keys) -> None:
    charged = []

    @once(keys.receipt)
    async def charge(id: str, amount: int) -> int:
        charged.append(amount)
        await asyncio.sleep(0)
        return amount

    assert await asyncio.gather(*[charge("a", 5 + number) for number in range(5)]) == [charged[0]] * 5
    assert len(charged) == 1

    @once(keys.nothing, key=lambda event: event["id"])
    async def handle(event: dict[str, str]) -> None:
        charged.append(0)

    await handle({"id": "e1"})
    await handle({"id": "e1"})
    assert charged[1:] == [0]


async def test_a_result_of_another_type_is_an_error_that_does_not_show_it(keys: Keys) -> None:
    @once(keys.receipt)
    async def charge(id: str) -> str:
        return "secret"

    with pytest.raises(BadValue, match="returned a str") as error:
        await charge("a")
    assert "secret" not in str(error.value)
    assert await keys.receipt("a").get() is None


async def test_a_second_caller_gets_an_error_if_it_does_not_wait(keys: Keys) -> None:
    is_running, go_on = asyncio.Event(), asyncio.Event()

    @once(keys.receipt, wait=None)
    async def charge(id: str) -> int:
        is_running.set()
        await go_on.wait()
        return 1

    first = asyncio.create_task(charge("a"))
    await is_running.wait()
    with pytest.raises(AlreadyRunning, match="is running this call"):
        await charge("a")
    go_on.set()
    assert await first == await charge("a") == 1


async def test_a_call_that_failed_runs_again_and_one_that_died_when_its_lease_is_over(keys: Keys) -> None:
    results: list[int] = []

    @once(keys.receipt)
    async def charge(id: str) -> int:
        results.append(1)
        if len(results) == 1:
            raise ConnectionError("the bank is away")
        return len(results)

    with pytest.raises(ConnectionError):
        await charge("a")
    assert await charge("a") == 2
    lease = Keys(keys.stores[0]).bound(Keys.families["receipt_lease"])("b")
    died = await Lock(lease).acquire("a process that died")
    assert died
    waiting = asyncio.create_task(charge("b"))
    await asyncio.sleep(0)
    await lease.delete()  # as if the lease were over
    assert await waiting == 3
    assert not await died.release()


def test_a_synchronous_function_runs_once(sync_keys: Keys) -> None:
    charged, barrier = [], threading.Barrier(4)

    @once(sync_keys.receipt)
    def charge(id: str) -> int:
        charged.append(id)
        return len(charged)

    def call(_: int) -> int:
        barrier.wait()
        return charge("a")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == [1] * 4


async def test_a_result_is_not_stored_when_the_lease_was_lost(keys: Keys) -> None:
    lease = keys.bound(Keys.families["receipt_lease"])

    @once(keys.receipt)
    async def charge(id: str) -> int:
        await lease(id).delete()
        return 1

    with pytest.raises(LockLost):
        await charge("a")
    assert await keys.receipt("a").get() is None


# --- lock ----------------------------------------------------------------------------------------------------


async def test_a_block_holds_the_lock(keys: Keys) -> None:
    async with lock(keys.site(7), by="ann", comment="import") as hold:
        assert hold.by == "ann"
        with pytest.raises(LockHeld):
            async with lock(keys.site(7)):
                pass
        waiting = asyncio.create_task(_enter(keys))
        await asyncio.sleep(0)
    assert await waiting > hold.fence


async def _enter(keys: Keys) -> int:
    async with lock(keys.site(7), wait="1m") as hold:
        return hold.fence


def test_a_synchronous_block_holds_the_lock(sync_keys: Keys) -> None:
    block = lock(sync_keys.site(7))
    with block as hold:
        assert wait(Lock(sync_keys.site(7)).holder()) is not None
        with pytest.raises(BadDeclaration), block:
            pass
        with pytest.raises(LockHeld), lock(sync_keys.site(7)):
            pass
    with pytest.raises(ZeroDivisionError), lock(sync_keys.site(7)) as second:
        _ = 1 // (hold.fence // second.fence)  # the fence has grown
    assert wait(Lock(sync_keys.site(7)).holder()) is None


# --- types ---------------------------------------------------------------------------------------------------

TYPED = """
from typing import reveal_type
from keystead import Keyspace, after, connect
from keystead.parts.decorators import Cached, Limited, Locked, Once, cache, lock, once, rate_limit

class Keys(Keyspace):
    report = Cached("report:{id:int}", int, lifetime=after("5m"))
    hits = Limited("limit:{id:int}", "10/minute")
    receipt = Once("payment:{id:int}", int, lifetime=after("5m"))
    site = Locked("lock:{id:int}")

keys = Keys(connect("memory://"))

@cache(keys.report)
async def load(id: int) -> int: return id
@cache(keys.report)
def load_sync(id: int) -> int: return id
@once(keys.receipt)
@rate_limit(keys.hits)
def pay(id: int, *, note: str = "") -> int: return id

async def main() -> None:
    reveal_type(await load(1))
    reveal_type(await load.invalidate(1))
    reveal_type(load_sync(1))
    reveal_type(pay)
    reveal_type(await keys.report(1).get())
    async with lock(keys.site(1)) as hold:
        reveal_type(hold.fence)
    await load("1")
"""


@pytest.mark.matrix
def test_type_checkers_see_the_signature(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "typed.py"]
    lines = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout.splitlines()
    found = [line.partition(": note: ")[2] or line.partition(": error: ")[2] for line in lines]
    assert [line.removeprefix("Revealed type is ").replace("builtins.", "").strip('"') for line in found] == [
        *("int", "bool", "int", "def (id: int, *, note: str =) -> int", "int | None", "int"),
        'Argument 1 to "__call__" of "AsyncCachedCall" has incompatible type "str"; expected "int"  [arg-type]',
    ]


# --- on other stores -----------------------------------------------------------------------------------------


@on("redis", "cluster", "sqlite", "postgres")
async def test_the_families_of_a_declaration_share_an_atomic_step(stores: dict[str, Store]) -> None:
    keys, calls = Keys(stores["default"]), []

    @cache(keys.report)
    async def load(id: int) -> Report:
        calls.append(id)
        return Report(id=id, title="May")

    @once(keys.receipt)
    async def charge(id: str) -> int:
        calls.append(0)
        return 5

    assert [await load(7), await load(7)] == [Report(id=7, title="May")] * 2
    assert [await charge("a"), await charge("a")] == [5, 5]
    assert calls == [7, 0]
    assert await load.invalidate(7)
    async with lock(keys.site(7)) as hold:
        assert hold.fence > 0
