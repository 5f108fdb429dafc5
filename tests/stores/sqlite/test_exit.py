"""With and without closing, a program always ends, and acknowledged writes survive."""

import asyncio
import gc
import os
import signal
import warnings
import weakref
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from keystead import connect
from keystead.errors import StoreClosed
from keystead.stores.sqlite import SqliteStore
from tests.stores.sqlite.left import descriptors, threads
from tests.stores.sqlite.processes import finished, line_of, started, until

PROMPTLY_S = 30.0  # half of the longest time limit that a program here could wait for


async def _keys(path: str) -> set[str]:
    async with SqliteStore(path) as store:
        return {key.decode() async for page in store.scan() for key in page}


# --- programs that end -------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_program_that_forgets_to_close_ends_and_has_lost_nothing(path: str) -> None:
    result = finished("forget_to_close", path, seconds=PROMPTLY_S)
    assert (result.returncode, result.stdout) == (0, "written\n")
    assert "Traceback" not in result.stderr
    assert await _keys(path) == {"a", "h"}


@pytest.mark.anyio
async def test_a_program_whose_error_escapes_ends_with_that_error(path: str) -> None:
    result = finished("fail_while_open", path, seconds=PROMPTLY_S)
    assert (result.returncode, result.stdout) == (1, "written\n")
    assert "ValueError: escaped" in result.stderr
    assert "k0" in await _keys(path)


@pytest.mark.anyio
async def test_a_program_that_is_interrupted_while_it_writes_ends_and_has_lost_nothing(path: str) -> None:
    with started("write_until_interrupted", path) as process:
        acknowledged = [line_of(process) for _ in range(300)]
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        acknowledged += process.stdout.read().split()
        assert process.wait(PROMPTLY_S) == -signal.SIGINT
    assert set(acknowledged) <= await _keys(path)


@pytest.mark.anyio
async def test_a_program_whose_loop_is_stopped_while_writes_wait_ends(path: str) -> None:
    result = finished("stop_the_loop", path, seconds=PROMPTLY_S)
    assert (result.returncode, result.stdout) == (1, "written\n")
    assert "Event loop stopped before Future completed" in result.stderr
    keys = await _keys(path)
    assert {"a", *(f"k{number}" for number in range(500))} <= keys


def test_a_program_ends_while_a_write_still_waits_for_a_lock(path: str) -> None:
    result = finished("leave_a_lock_waiting", path, seconds=PROMPTLY_S)
    assert (result.returncode, result.stdout) == (0, "ends\n")


# --- closing -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_closing_ends_writes_that_wait_with_an_error_and_loses_none_that_was_acknowledged(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    acknowledged: list[int] = []
    failed: list[int] = []

    async def write(number: int) -> None:
        try:
            await store.run([("SET", f"k{number}", "x" * 200)] * 50)
        except StoreClosed:
            failed.append(number)
        else:
            acknowledged.append(number)

    tasks = [asyncio.ensure_future(write(number)) for number in range(200)]
    await until(lambda: bool(acknowledged), "the first group is written")
    await store.close()
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks)
    assert acknowledged
    assert failed
    assert sorted(acknowledged + failed) == list(range(200))
    # A write that was refused with StoreClosed was not done either.
    assert await _keys(path) == {f"k{number}" for number in acknowledged}


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["sqlite:///{path}", "memory://"])
async def test_every_verb_of_a_closed_store_raises_store_closed(path: str, url: str) -> None:
    store = connect(url.format(path=path))

    async def refused() -> None:
        verbs: list[Awaitable[Any]] = [
            store.run([("GET", "a")]),
            store.run([("DBSIZE",)]),
            store.run([("SET", "a", "1")]),
            store.run([("GET", f"{number}") for number in range(500)]),
            store.atomically([("SET", "a", "1")]),
            store.atomically([("GET", "a")]),
            anext(store.scan()),
            store.subscribe("channel").__aenter__(),
        ]
        for verb in verbs:
            with pytest.raises(StoreClosed):
                await verb

    await refused()
    await store.open()
    assert await store.run([("SET", "a", "1")]) == [b"OK"]
    await store.close()
    await refused()
    await store.close()


@pytest.mark.anyio
async def test_opening_twice_opens_once_and_a_closed_store_can_be_opened_again(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    before = threads()
    await store.open()
    assert threads() <= before
    await store.run([("SET", "a", "1")])
    await store.close()
    async with store:
        assert await store.run([("GET", "a")]) == [b"1"]


@pytest.mark.anyio
async def test_fifty_times_opened_and_closed_leaves_no_thread_and_no_file_open(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.CHECKPOINT_ROWS", 0)  # so that every helper is started
    before = threads()
    for _ in range(50):
        async with SqliteStore(path) as store:
            await store.run([("INCRBY", "n", 1)])
            await store.run([("DBSIZE",)])
            async with store.subscribe("channel"):
                await store.run([("PUBLISH", "channel", "x")])
            assert len(threads() - before) >= 3
    assert descriptors(path) == 0
    await until(lambda: threads() <= before, "the threads have ended")
    assert await _keys(path) == {"n"}


@pytest.mark.anyio
async def test_when_closing_is_done_the_log_is_in_the_file_and_gone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.CHECKPOINT_ROWS", 0)
    async with SqliteStore(path) as store:
        await store.run([("SET", f"{number}", "x" * 1000) for number in range(2_000)])
        await store.run([("DBSIZE",)])
        assert Path(path + "-wal").stat().st_size > 0  # noqa: ASYNC240
    assert os.listdir(Path(path).parent) == ["store.db"]


@pytest.mark.anyio
async def test_a_read_under_way_while_the_store_is_closed_ends(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.run([("RPUSH", "list", *map(str, range(5_000)))])
    reads = [asyncio.ensure_future(store.run([("LRANGE", "list", 0, -1)])) for _ in range(5)]
    await until(lambda: store._wide is not None, "the reads have begun")
    await store.close()
    async with asyncio.timeout(30):
        for outcome in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(outcome, StoreClosed) or outcome == [[b"%d" % number for number in range(5_000)]]


def test_a_store_that_was_not_closed_warns_and_its_threads_end(path: str) -> None:
    before = threads()

    async def forget() -> weakref.ref[SqliteStore]:
        store = SqliteStore(path)
        await store.open()
        await store.run([("SET", "a", "1"), ("DBSIZE",)])
        return weakref.ref(store)

    def is_gone(store: weakref.ref[SqliteStore]) -> bool:
        gc.collect()  # a thread that has just finished a job may hold on to it for a moment
        return store() is None

    async def wait() -> None:
        await until(lambda: threads() <= before and descriptors(path) == 0, "its threads have ended")

    # Newer Pythons also warn of each connection that nobody closed, so all warnings are taken down.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        store = asyncio.run(forget())
        asyncio.run(until(lambda: is_gone(store) or bool(warned), "it is forgotten"))
        asyncio.run(until(lambda: any("store.db was not closed" in str(w.message) for w in warned), "it warns"))
        warned.clear()  # the warning itself holds the store
        gc.collect()
    asyncio.run(wait())
