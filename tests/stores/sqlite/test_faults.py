"""A full disk, and a read-only, locked or invalid file: reported, and nothing is lost."""

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from keystead import connect
from keystead.errors import BadUrl, StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable
from keystead.stores.sqlite import SqliteStore
from keystead.stores.sqlite.group_commit import GroupCommit
from tests.stopwatch import Stopwatch
from tests.stores.sqlite.left import descriptors, threads
from tests.stores.sqlite.processes import OWN_MOUNTS, finished, line_of, say, started, succeeded, until

pytestmark = pytest.mark.anyio


async def _refusal(path: str) -> Exception:
    """The error that opening ends with."""
    store = SqliteStore(path, timeout=0.2)
    try:
        await store.open()
    except Exception as error:
        return error
    await store.close()
    pytest.fail(f"{path} was opened")


def _content(path: str) -> bytes:
    return Path(path).read_bytes()


def _overwrite(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)


async def _make(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "kept", "1")])


# --- a full disk -------------------------------------------------------------------------------------------


def test_a_full_disk_is_reported_loses_nothing_and_ends_when_there_is_room(tmp_path: Path) -> None:
    [line] = succeeded("fill_the_disk", tmp_path, under=OWN_MOUNTS)
    assert json.loads(line) == {
        # Of a group, only the batches that do not fit fail.
        "one large batch among small ones": ["ok"] * 5 + ["store-full"] * 2 + ["ok"] * 5,
        "when nothing fits": "store-full",
        "atomically when nothing fits": "store-full",
        "missing while full": [],
        "halves": 0,
        "after room was made": "ok",
        "missing after reopening": [],
        "integrity": "ok",
    }


async def test_an_atomic_step_that_fills_the_disk_has_no_effect_and_is_store_full(path: str) -> None:
    async with SqliteStore(path) as store:
        [pages] = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(StoreFull):
            await store.atomically([("SET", "first", "x"), ("SET", "second", b"x" * 100_000), ("SET", "third", "x")])
        assert await store.run([("EXISTS", "first", "second", "third")]) == [0]
        assert await store.run([("SET", "first", "x")]) == [b"OK"]


async def test_a_batch_that_does_not_fit_fails_alone_and_the_rest_of_its_group_is_written(path: str) -> None:
    async with SqliteStore(path) as store:
        [pages] = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages + 8}")
        outcomes = await asyncio.gather(
            *(store.run([("SET", f"small:{number}", "x")]) for number in range(10)),
            store.run([("SET", "big", b"x" * 200_000), ("SET", "with the big one", "x")]),
            *(store.run([("SET", f"small:{number}", "x")]) for number in range(10, 20)),
            return_exceptions=True,
        )
        assert isinstance(outcomes.pop(10), StoreFull)
        assert outcomes == [[b"OK"]] * 20
        assert await store.run([("DBSIZE",)]) == [20]


# --- a file that cannot be written -------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach: pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="keystead-"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


async def test_a_read_only_file_is_refused_on_open(open_folder: Path) -> None:
    file = open_folder / "store.db"
    await _make(str(file))
    file.chmod(0o444)
    code, sentence = succeeded("open_without_rights", file)
    assert code == "store-read-only"
    assert str(file) in sentence


async def test_a_file_in_a_read_only_folder_is_refused_on_open(open_folder: Path) -> None:
    file = open_folder / "store.db"
    await _make(str(file))
    file.chmod(0o666)
    os.chmod(open_folder, 0o555)
    code, sentence = succeeded("open_without_rights", file)
    assert code == "store-read-only"
    assert "folder" in sentence


async def test_creating_a_file_in_a_read_only_folder_is_refused(open_folder: Path) -> None:
    os.chmod(open_folder, 0o555)
    code, _ = succeeded("open_without_rights", open_folder / "new.db")
    assert code == "store-read-only"
    assert os.listdir(open_folder) == []


def test_a_file_on_a_read_only_mount_is_refused_on_open(tmp_path: Path) -> None:
    assert succeeded("open_on_a_read_only_mount", tmp_path, under=OWN_MOUNTS) == ["store-read-only"] * 2


async def test_a_file_that_becomes_read_only_refuses_writes_but_serves_reads(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "1")])
        store._writer.execute("PRAGMA query_only = ON")  # what SQLite then says is what it says of such a file
        with pytest.raises(StoreReadOnly):
            await store.run([("SET", "a", "2")])
        assert await store.run([("GET", "a")]) == [b"1"]
        store._writer.execute("PRAGMA query_only = OFF")
        assert await store.run([("SET", "a", "2")]) == [b"OK"]


# --- a file that is no Keystead database -------------------------------------------------------------------


async def test_a_file_that_is_not_a_database_is_refused_and_unchanged(path: str) -> None:
    content = b"the notes of somebody\n" * 1000
    _overwrite(path, content)
    error = await _refusal(path)
    assert isinstance(error, StoreDamaged)
    assert path in str(error)
    assert _content(path) == content
    assert os.listdir(Path(path).parent) == ["store.db"]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: str, mode: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE keys (theirs TEXT)")
        connection.commit()
    content = _content(path)
    error = await _refusal(path)
    assert isinstance(error, StoreDamaged)
    assert "another program" in str(error)
    assert _content(path) == content


async def test_the_log_that_another_program_left_in_a_crash_is_not_touched(path: str) -> None:
    assert finished("crash_with_a_log", path).returncode == -9
    before = [_content(path), _content(path + "-wal")]
    assert isinstance(await _refusal(path), StoreDamaged)
    assert [_content(path), _content(path + "-wal")] == before


async def test_a_file_of_a_later_schema_is_refused_and_left_as_it_is(path: str) -> None:
    await _make(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    content = _content(path)
    error = await _refusal(path)
    assert isinstance(error, StoreDamaged)
    assert "later Keystead" in str(error)
    assert "99" in str(error)
    assert _content(path) == content


async def test_an_empty_file_becomes_a_store(path: str) -> None:
    _overwrite(path, b"")
    await _make(path)
    async with SqliteStore(path) as store:
        assert await store.run([("GET", "kept")]) == [b"1"]


async def _large(path: str) -> bytes:
    async with SqliteStore(path) as store:
        await store.run([("SET", f"key:{number}", b"x" * 500) for number in range(2_000)])
    return _content(path)


async def test_a_truncated_file_is_store_damaged(path: str) -> None:
    content = await _large(path)
    _overwrite(path, content[: len(content) // 2])

    async def read_everything() -> None:
        async with SqliteStore(path) as store:
            for number in range(2_000):
                assert await store.run([("GET", f"key:{number}")]) == [b"x" * 500]

    with pytest.raises(StoreDamaged):
        await read_everything()


async def test_reads_and_writes_detect_a_file_with_overwritten_pages(path: str) -> None:
    content = await _large(path)
    _overwrite(path, content[:8192] + b"\xa5" * (len(content) - 8192))
    async with SqliteStore(path) as store:
        for verb in (
            store.run([("GET", "key:1")]),
            store.run([("SET", "key:1", "x")]),
            store.run([("DBSIZE",)]),
            store.atomically([("SET", "key:1", "x")]),
            anext(store.scan()),
        ):
            with pytest.raises(StoreDamaged):
                await verb


async def test_a_folder_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    error = await _refusal(str(tmp_path))
    assert isinstance(error, StoreUnavailable)
    assert str(tmp_path) in str(error)


async def test_a_missing_folder_is_reported_and_not_created(tmp_path: Path) -> None:
    error = await _refusal(str(tmp_path / "missing" / "store.db"))
    assert isinstance(error, StoreUnavailable)
    assert "create it first" in str(error)
    assert os.listdir(tmp_path) == []


async def test_a_store_that_could_not_be_opened_leaves_nothing_open(path: str) -> None:
    _overwrite(path, b"no database" * 100)
    before = threads()
    for _ in range(5):
        await _refusal(path)
    assert descriptors(path) == 0
    await until(lambda: threads() <= before, "the threads have ended")


async def test_no_error_of_the_driver_escapes_when_no_further_file_can_be_opened(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    async with SqliteStore(path) as store:
        monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.connect", refuse)
        monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.CHECKPOINT_ROWS", 0)
        with pytest.raises(StoreUnavailable):
            await store.run([("DBSIZE",)])  # needs the connection for large reads
        for number in range(3):  # and each commit wants the one that moves the log
            assert await store.run([("SET", "a", number)]) == [b"OK"]
        assert await store.run([("GET", "a")]) == [b"2"]
        monkeypatch.undo()
        assert await store.run([("DBSIZE",)]) == [1]
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.connect", refuse)
    assert isinstance(await _refusal(path), StoreUnavailable)


# --- a locked database -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
async def test_a_locked_file_fails_writes_within_the_timeout_while_reads_go_on(path: str, how: str) -> None:
    await _make(path)
    async with connect(f"sqlite:///{path}?timeout=300ms") as store:
        with started("hold_the_lock", path, how) as holder:
            assert line_of(holder) == "ready"
            began, watch = time.monotonic(), Stopwatch()
            calls = [
                asyncio.ensure_future(store.run([("SET", "kept", "2")])),
                asyncio.ensure_future(store.atomically([("SET", "kept", "3")])),
                asyncio.ensure_future(store.run([("ZREMRANGEBYSCORE", "z", 0, 1)])),
            ]
            assert await store.run([("GET", "kept")]) == [b"1"]
            assert await store.run([("DBSIZE",)]) == [1]
            for call in calls:
                with pytest.raises(StoreUnavailable) as raised:
                    await call
                assert raised.value.outcome == "not-sent"
            assert time.monotonic() - began > 0.25
            assert watch.seconds < 5
            assert await store.run([("GET", "kept")]) == [b"1"]

            say(holder, "let go")
            assert line_of(holder) == "released"
        assert await store.run([("SET", "kept", "4")]) == [b"OK"]
        assert await store.run([("GET", "kept")]) == [b"4"]


async def test_a_lock_released_in_time_only_delays(path: str) -> None:
    async with SqliteStore(path, timeout=20) as store:
        with started("hold_the_lock", path, "IMMEDIATE") as holder:
            assert line_of(holder) == "ready"
            calls = [asyncio.ensure_future(store.run([("INCRBY", "n", 1)])) for _ in range(50)]
            await until(lambda: store._commits.waiting == 50, "all wait")
            say(holder, "let go")
            assert sorted(total for [total] in await asyncio.gather(*calls)) == list(range(1, 51))


async def test_each_caller_of_a_locked_file_has_its_own_timeout(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0
    wait_for_lock = GroupCommit._wait_for_lock

    def counted(lane: GroupCommit) -> None:
        nonlocal waits
        waits += 1
        wait_for_lock(lane)

    monkeypatch.setattr(GroupCommit, "_wait_for_lock", counted)
    async with SqliteStore(path, timeout=0.5) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                await store.run([("SET", "early", "1")])
            late = asyncio.ensure_future(store.run([("SET", "late", "1")]))
            await until(lambda: waits > 1 or late.done(), "the wait of the first caller is over")
            holder.execute("ROLLBACK")
        assert await late == [b"OK"]
        assert await store.run([("EXISTS", "early", "late")]) == [1]


async def test_opening_a_file_that_stays_locked_fails(path: str) -> None:
    await _make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        error = await _refusal(path)
        assert isinstance(error, StoreUnavailable)
        assert "locked" in str(error)
    await _make(path)


async def test_closing_does_not_wait_for_an_unneeded_lock(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        store = SqliteStore(path, timeout=60)
        await store.open()
        holder.execute("BEGIN IMMEDIATE")
        call = asyncio.ensure_future(store.run([("SET", "a", "1")]))
        await until(lambda: store._commits.waiting == 1, "it waits")
        async with asyncio.timeout(30):
            await store.close()
        assert (await asyncio.gather(call, return_exceptions=True))[0].code == "store-closed"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["5", "0s", "-1s", "soon", ""])
def test_a_timeout_without_a_unit_or_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadUrl, match="duration"):
        connect(f"sqlite:///store.db?timeout={text}")


def test_an_option_that_is_not_known_is_refused() -> None:
    with pytest.raises(BadUrl, match="unknown option 'wait'"):
        connect("sqlite:///store.db?wait=1s")
