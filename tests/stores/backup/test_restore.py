"""Restore: existing keys, expired keys, and interruptions."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.errors import DoesNotFit, StoreUnavailable
from keystead.stores import Guarantees
from keystead.stores.backup import (
    BackupDamaged,
    BackupError,
    BackupFile,
    BackupInTheWay,
    IfThere,
    KeysThere,
    NoBackup,
    Restored,
    RestoreLost,
    TransferProgress,
    backup,
    check,
    compare,
    part_of,
    restore,
)
from keystead.stores.backup import file as file_module
from keystead.stores.commands import read
from keystead.stores.sqlite.sqlite_store import SqliteStore
from keystead.stores.transfer import reader
from tests.servers import Cluster, Server
from tests.stores.backup.conftest import UrlOf
from tests.stores.backup.contents import DAY_MS, contents, emptied, now_ms, some_of_everything

NAMES = ("sqlite", "valkey", "cluster")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(clock: Clock) -> AsyncIterator[Store]:
    async with SqliteStore(":memory:", clock=clock) as opened:
        yield opened


@pytest.fixture
async def target(clock: Clock) -> AsyncIterator[Store]:
    async with SqliteStore(":memory:", clock=clock) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.backup"


def data_of(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def restored(store: Store, path: Path, **options: Any) -> Restored:
    with BackupFile(path) as file:
        return await restore(store, file, **options)


# --- existing keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
async def test_one_key_that_is_there_and_nothing_is_restored(name: str, url_of: UrlOf, path: Path) -> None:
    async with connect("memory://") as source, connect(url_of(name)) as target:
        await source.run(some_of_everything(await now_ms(source) + DAY_MS))
        await backup(source, path)
        await target.run([("SET", "hash", "mine")])
        with pytest.raises(KeysThere, match=r"1 of the 16 keys .* --if-there skip .* --if-there replace") as caught:
            await restored(target, path)
        assert caught.value.count == 1
        assert {key: value for key, (_, _, value) in (await contents(target)).items()} == {b"hash": b"mine"}


@pytest.mark.parametrize("name", NAMES)
async def test_skip_keeps_existing_keys_and_replace_overwrites_them(name: str, url_of: UrlOf, path: Path) -> None:
    async with connect("memory://") as source, connect(url_of(name)) as target:
        await source.run(some_of_everything(await now_ms(source) + DAY_MS))
        saved = await contents(source)
        await backup(source, path)
        mine: list[tuple[Any, ...]] = [
            ("SET", "string", "mine"),
            ("HSET", "hash", "mine", "1"),
            ("SET", "set", "mine"),
            ("PEXPIRE", "set", DAY_MS),
            ("RPUSH", "string with a deadline", "mine"),
            ("SADD", "not in the backup", "mine"),
        ]
        await target.run(mine)
        before = await contents(target)
        skipped = await restored(target, path, if_there=IfThere.SKIP)
        assert (skipped.restored, skipped.skipped) == (12, 4)
        assert await contents(target) == saved | before
        replaced = await restored(target, path, if_there=IfThere.REPLACE)
        assert (replaced.restored, replaced.skipped) == (16, 0)
        assert await contents(target) == before | saved


async def test_a_key_that_comes_after_the_check_is_left_as_it_is(store: Store, target: Store, path: Path) -> None:
    await store.run([("SET", f"key:{number}", number) for number in range(10)])
    await backup(store, path)
    with BackupFile(path) as file:
        checked = await check(target, file)
        await target.run([("SET", "key:5", "new")])
        with pytest.raises(KeysThere, match="key:5 was created after the backup was verified"):
            await restore(target, file, checked=checked)
        done = await restore(target, file, resume=True, if_there=IfThere.SKIP)
    assert done.skipped == 1
    assert (await contents(target))[b"key:5"][2] == b"new"
    assert len(await contents(target)) == 10


# --- time ---------------------------------------------------------------------------------------------------


async def test_an_expired_key_is_not_restored_but_counted(
    store: Store, target: Store, clock: Clock, path: Path
) -> None:
    ends_ms = clock.now_ms + 1000
    await store.run([("SET", "first", "x", "PXAT", ends_ms), ("SADD", "second", "x"), ("SET", "third", "x")])
    await store.run([("PEXPIREAT", "second", ends_ms + 1)])
    await backup(store, path)
    clock.now_ms = ends_ms
    done = await restored(target, path)
    assert (done.keys, done.restored, done.expired) == (3, 2, 1)
    assert await target.run([("PEXPIRETIME", "second")]) == [ends_ms + 1]
    assert set(await contents(target)) == {b"second", b"third"}
    clock.now_ms += 1
    with BackupFile(path) as file:
        compared = await compare(target, file)
    assert (compared.equal, compared.expired, compared.differences) == (1, 2, 0)


async def test_a_key_that_is_there_survives_a_dead_one_of_the_backup(
    store: Store, target: Store, clock: Clock, path: Path
) -> None:
    await store.run([("SET", "key", "old", "PX", 1000)])
    await backup(store, path)
    clock.now_ms += 1000
    await target.run([("SET", "key", "new")])
    for how in IfThere:
        assert (await restored(target, path, if_there=how)).expired == 1
        assert await target.run([("GET", "key")]) == [b"new"]


async def test_no_reader_sees_a_key_without_its_deadline_or_in_part(url_of: UrlOf, path: Path) -> None:
    async with connect("memory://") as source, connect(url_of("valkey")) as target, connect(target.url) as reader:
        ends_ms = await now_ms(source) + DAY_MS
        keys = [f"set:{number}" for number in range(100)]
        for key in keys:
            await source.run([("SADD", key, *range(100)), ("PEXPIREAT", key, ends_ms)])
        await backup(source, path)
        seen: set[tuple[int, int]] = set()
        done = asyncio.Event()

        async def watch() -> None:
            while not done.is_set():
                for key in keys:
                    looked = await reader.atomically([("SCARD", key), ("PEXPIRETIME", key)])
                    seen.add((looked.replies[0], looked.replies[1]))

        watching = asyncio.create_task(watch())
        for _ in range(5):
            await restored(target, path, if_there=IfThere.REPLACE)
            await emptied(target)
        done.set()
        await watching
        assert seen == {(0, -2), (100, ends_ms)}


# --- store limits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promised", "said"),
    [
        (Guarantees(kinds=frozenset({"string"})), "is a .*, which"),
        (Guarantees(value_max_bytes=255), "at most 255"),
        (Guarantees(key_max_bytes=20), "at most 20"),
        (Guarantees(shortest_lifetime_ms=60_000), "would round"),
        (Guarantees(atomic="nothing"), "needs an atomic step"),
    ],
)
async def test_keys_that_do_not_fit_are_refused_before_anything_is_written(
    store: Store, target: Store, clock: Clock, path: Path, promised: Guarantees, said: str
) -> None:
    await store.run(some_of_everything(clock.now_ms + DAY_MS + 1))
    await backup(store, path)
    target.guarantees = promised
    with pytest.raises(DoesNotFit, match=said):
        await restored(target, path)
    assert await contents(target) == {}


async def test_a_store_without_atomic_steps_is_not_saved(store: Store, path: Path) -> None:
    store.guarantees = replace(store.guarantees, atomic="nothing")
    with pytest.raises(DoesNotFit, match="no atomic step"):
        await backup(store, path)
    with pytest.raises(NoBackup):
        BackupFile(path)


# --- interruptions ------------------------------------------------------------------------------------------


class Failing:
    """A store that goes down after this many calls that write, or that read whole keys."""

    def __init__(self, store: Store, after: int, patch: pytest.MonkeyPatch) -> None:
        self._run, self._atomically = store.run, store.atomically
        self._whole_keys, self._add_whole_keys = store.whole_keys, store.add_whole_keys
        self.left = after
        for verb in ("run", "atomically", "whole_keys", "add_whole_keys"):
            patch.setattr(store, verb, getattr(self, verb))

    async def run(self, commands: Any) -> Any:
        self._count(any(read(command).spec.writes for command in commands))
        return await self._run(commands)

    async def atomically(self, steps: Any) -> Any:
        self._count(True)
        return await self._atomically(steps)

    async def whole_keys(self, keys: Any) -> Any:
        self._count(True)
        return await self._whole_keys(keys)

    async def add_whole_keys(self, keys: Any) -> Any:
        if self.left == 0:
            await self._add_whole_keys(keys[: len(keys) // 2])  # the restore as a whole is not atomic
        self._count(True)
        return await self._add_whole_keys(keys)

    def _count(self, writes: bool) -> None:
        self.left -= writes
        if self.left < 0:
            raise StoreUnavailable("it went away")


@pytest.mark.parametrize("mode", IfThere)
async def test_wherever_a_restore_is_interrupted_resume_ends_as_if_it_was_not(
    store: Store, clock: Clock, path: Path, mode: IfThere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "BLOCK_BYTES", 512)
    await store.run(some_of_everything(clock.now_ms + DAY_MS))
    await store.run([("SET", f"key:{number}", "x" * 100) for number in range(30)])
    mine = [("SET", "key:7", "mine"), ("SET", "set", "mine"), ("SET", "other", "mine")]
    expected = await contents(store)
    if mode is not IfThere.REFUSE:
        async with SqliteStore(":memory:", clock=clock) as before:
            await before.run(mine)
            theirs = await contents(before)
        expected = expected | theirs if mode is IfThere.SKIP else theirs | expected
    await backup(store, path)
    interrupted = 0
    for after in range(200):
        async with SqliteStore(":memory:", clock=clock) as target:
            if mode is not IfThere.REFUSE:
                await target.run(mine)
            with monkeypatch.context() as patch:
                failing = Failing(target, after, patch)
                try:
                    await restored(target, path, if_there=mode)
                except StoreUnavailable:
                    interrupted += 1
            done = await restored(target, path, resume=True, if_there=mode) if failing.left < 0 else None
            assert await contents(target) == expected, after
            if done is None:
                break
            assert done.restored + done.skipped == done.keys
    assert interrupted > 20


async def test_keys_deleted_after_their_restore_stay_deleted(
    store: Store, target: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "BLOCK_BYTES", 512)
    await store.run([("SET", f"key:{number:02d}", "x" * 100) for number in range(40)])
    await backup(store, path)
    with monkeypatch.context() as patch:
        Failing(target, 8, patch)
        with pytest.raises(StoreUnavailable):
            await restored(target, path)
    await target.run([("DEL", "key:00"), ("SET", "key:01", "changed since")])
    with pytest.raises(KeysThere, match="--resume"):
        await restored(target, path)
    done = await restored(target, path, resume=True)
    assert 0 < done.resumed_at < 40
    assert done.missing == 1
    held = await contents(target)
    assert b"key:00" not in held
    assert held[b"key:01"][2] == b"changed since"
    assert len(held) == 39


async def test_resume_without_an_interruption_is_a_restore(store: Store, target: Store, path: Path) -> None:
    await store.run([("SET", "key", "x")])
    await backup(store, path)
    assert (await restored(target, path, resume=True)).restored == 1
    with pytest.raises(KeysThere):
        await restored(target, path, resume=True)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["memory", "valkey"])
async def test_wherever_a_backup_is_interrupted_resume_saves_each_key_once(
    name: str, url_of: UrlOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "BLOCK_BYTES", 512)
    async with connect(url_of(name)) as store, connect("memory://") as target:
        await store.run(some_of_everything(await now_ms(store) + DAY_MS))
        await store.run([("SET", f"key:{number}", "x" * 100) for number in range(2000)])
        expected = await contents(store)
        for after in (0, 8):
            with monkeypatch.context() as patch:
                Failing(store, after, patch)
                with pytest.raises(StoreUnavailable):
                    await backup(store, path := tmp_path / f"{after}.backup")
            with pytest.raises(NoBackup, match="started but not finished"):
                BackupFile(path)
            with pytest.raises(BackupInTheWay, match="--resume"):
                await backup(store, path)
            saved = await backup(store, path, resume=True)
            assert saved.keys == len(expected)
            await emptied(target)
            await restored(target, path)
            assert await contents(target) == expected
        assert saved.kept > 0


async def test_keys_that_were_saved_are_not_read_again(store: Store, path: Path) -> None:
    """Later changes and deletions of saved keys are not in the backup, as documented."""
    await store.run([("SET", f"key:{number:04d}", "old") for number in range(3000)])
    seen: list[int] = []

    class Enough(Exception):
        pass

    def enough(now: Any) -> None:
        seen.append(now.done)
        if len(seen) == 3:
            raise Enough

    with pytest.raises(Enough):
        await backup(store, path, on_progress=enough)
    await store.run([("SET", f"key:{number:04d}", "new") for number in range(3000)])
    await store.run([("DEL", "key:0000")])
    saved = await backup(store, path, resume=True)
    assert (saved.keys, saved.kept) == (3000, seen[-1])
    with BackupFile(path) as file:
        values = {record.key: record.parts[0] for block in file.blocks() for record in block}
    assert values[b"key:0000"] == b"old"
    assert [*values.values()].count(b"old") == seen[-1]


async def test_a_part_file_truncated_at_any_byte_can_be_resumed(
    store: Store, target: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kill -9 or the loss of power may leave it."""
    monkeypatch.setattr(file_module, "BLOCK_BYTES", 256)
    await store.run([("SET", f"key:{number}", "x" * 100) for number in range(10)])
    await store.run([("SET", "long", bytes(range(256)) * 5)])
    expected = await contents(store)
    await backup(store, path)
    whole = data_of(path)
    kept: list[int] = []
    too_short = 0
    for length in (*range(0, len(whole), 7), len(whole)):
        cut = path.with_name(f"{length}.backup")
        write(part_of(cut), whole[:length])
        try:
            saved = await backup(store, cut, resume=True)
        except NoBackup:  # not even the header
            too_short += 1
            assert not kept
            continue
        kept.append(saved.kept)
        await emptied(target)
        await restored(target, cut)
        assert await contents(target) == expected
    assert 15 < too_short < 40
    assert kept == sorted(kept)
    assert kept[-1] == 11


async def test_resume_needs_the_same_store_and_pattern(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoBackup, match="leave --resume out"):
        await backup(store, path, resume=True)
    await store.run([("SET", "key", "x")])
    Failing(store, 0, monkeypatch)
    with pytest.raises(StoreUnavailable):
        await backup(store, path, match="k*")
    with pytest.raises(BackupError, match="started from memory:// with --match 'k\\*'"):
        await backup(store, path, resume=True)


# --- stores that lose data, and replaced files -------------------------------------------------------------


async def many(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, Any]:
    """A backup of several blocks; returns its contents."""
    monkeypatch.setattr(file_module, "BLOCK_BYTES", 10_000)
    async with connect("memory://") as source:
        await source.run([("SET", f"key:{number:03d}", f"{number}" * 50) for number in range(600)])
        await backup(source, path)
        return await contents(source)


async def test_a_store_that_loses_data_during_a_restore_is_detected_and_resume_restores_all(
    url_of: UrlOf, valkey_server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a server without persistence that restarts between two steps, unnoticed by any call."""
    expected = await many(path, monkeypatch)

    def forget(now: TransferProgress) -> None:
        if now.phase == "restoring" and now.done > 200:
            valkey_server.ask("FLUSHALL")

    async with connect(url_of("valkey")) as target:
        with pytest.raises(RestoreLost, match="--resume --if-there skip"):
            await restored(target, path, on_progress=forget)
        assert (await restored(target, path, resume=True, if_there=IfThere.SKIP)).missing == 0
        assert await contents(target) == expected


def of_another_node(cluster: Cluster) -> Server:
    """A node without the checkpoint."""
    return next(node for node in cluster.masters() if not node.ask("KEYS", "keystead:restore:*"))


async def test_keys_that_one_cluster_node_lost_are_counted_as_missing(
    url_of: UrlOf, valkey_cluster: Cluster, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await many(path, monkeypatch)
    forgotten: list[Server] = []

    def forget(now: TransferProgress) -> None:
        if now.phase == "restoring" and now.done > 300 and not forgotten:
            forgotten.append(of_another_node(valkey_cluster))
            forgotten[0].ask("FLUSHALL")

    async with connect(url_of("cluster")) as target:
        done = await restored(target, path, on_progress=forget)
        assert done.missing == len(expected) - len(await contents(target)) > 0
        assert (await restored(target, path, if_there=IfThere.SKIP)).missing == 0
        assert await contents(target) == expected


@pytest.mark.parametrize("mode", [IfThere.REFUSE, IfThere.REPLACE])
async def test_resume_restores_keys_that_one_cluster_node_lost(
    url_of: UrlOf, valkey_cluster: Cluster, path: Path, monkeypatch: pytest.MonkeyPatch, mode: IfThere
) -> None:
    expected = await many(path, monkeypatch)

    def interrupt(now: TransferProgress) -> None:
        if now.phase == "restoring" and now.done > 300:
            raise StoreUnavailable("it went away")

    async with connect(url_of("cluster")) as target:
        with pytest.raises(StoreUnavailable):
            await restored(target, path, if_there=mode, on_progress=interrupt)
        of_another_node(valkey_cluster).ask("FLUSHALL")
        kept = min(key for key in await contents(target) if key.startswith(b"key:"))
        await target.run([("SET", kept, "changed since")])
        done = await restored(target, path, resume=True)
        assert (done.missing, done.skipped, done.restored) == (0, 1, len(expected) - 1)
        assert done.resumed_at > 300
        assert await contents(target) == {**expected, kept: (b"string", -1, b"changed since")}


async def test_a_concurrent_restore_of_the_same_backup_is_detected(
    target: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many(path, monkeypatch)
    ends = await asyncio.gather(
        *(restored(target, path, if_there=IfThere.SKIP) for _ in range(2)), return_exceptions=True
    )
    assert {type(end) for end in ends} == {Restored, RestoreLost}


@pytest.mark.parametrize(
    "said",
    [
        {"blocks": 99, "keys": 10, "restored": 10},
        {"blocks": -1},
        {"blocks": "x"},
        {"blocks": 1, "keys": "a"},
        {"blocks": 1, "keys": 3, "restored": 1},
        {"blocks": 1, "keys": 10**9, "restored": 10**9},
        {"more": 1},
    ],
)
async def test_an_impossible_checkpoint_is_ignored(
    store: Store, target: Store, path: Path, said: dict[str, Any]
) -> None:
    await store.run([("SET", f"key:{number}", "x") for number in range(10)])
    await backup(store, path)
    with BackupFile(path) as file:
        key = f"keystead:restore:{(await check(target, file)).digest[:32]}"
    await target.run([("SET", key, json.dumps({"if_there": "skip", **said}))])
    assert (await restored(target, path, resume=True)).restored == 10
    assert await contents(target) == await contents(store)


async def test_a_checkpoint_of_another_backup_is_refused(store: Store, target: Store, path: Path) -> None:
    await store.run([("SET", f"key:{number}", "x") for number in range(10)])
    await backup(store, path)
    with BackupFile(path) as file:
        key = f"keystead:restore:{(await check(target, file)).digest[:32]}"
    said = {"blocks": 1, "keys": 5, "restored": 5, "if_there": "skip"}
    await target.run([("SET", key, json.dumps(said))])
    with pytest.raises(BackupError, match=r"5 keys done, but the backup has 10 there\. Leave --resume out"):
        await restored(target, path, resume=True)
    assert (await restored(target, path, if_there=IfThere.SKIP)).restored == 10


async def test_a_file_that_is_replaced_after_the_check_is_not_restored(
    store: Store, target: Store, path: Path, tmp_path: Path
) -> None:
    await store.run([("SET", "right", "x")])
    await backup(store, path)
    await store.run([("SET", "wrong", "x")])
    await backup(store, tmp_path / "other")
    with BackupFile(path) as file:
        checked = await check(target, file)
        write(path, data_of(tmp_path / "other"))
        with pytest.raises(BackupDamaged, match=r"was replaced after it was verified\. Nothing was restored"):
            await restore(target, file, checked=checked)
    assert await contents(target) == {}


async def test_replacing_the_file_during_a_restore_is_detected(
    store: Store, target: Store, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "BLOCK_BYTES", 20_000)
    for name in ("other", path.name):
        await store.run([("SET", f"key:{number:04d}", os.urandom(500)) for number in range(1000)])
        await backup(store, tmp_path / name)
    other = data_of(tmp_path / "other")

    def replace_it(now: TransferProgress) -> None:
        if now.phase == "restoring":
            write(path, other)

    with pytest.raises(BackupDamaged):
        await restored(target, path, on_progress=replace_it)


# --- slow keys ----------------------------------------------------------------------------------------------


class Late:
    """A store that executes steps with large keys, but replies too late."""

    def __init__(self, store: Store) -> None:
        self._atomically = store.atomically
        self.late = 0

    async def atomically(self, steps: Any) -> Any:
        outcome = await self._atomically(steps)
        if any(isinstance(step, tuple) and step[0] == "SADD" for step in steps):
            self.late += 1
            raise StoreUnavailable("it did not answer within 5 s", "unknown")
        return outcome


async def test_resume_gets_past_a_key_that_takes_longer_than_the_store_is_waited_for(
    store: Store, target: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_LONG_STEP", 6_000)
    await store.run([("SADD", "large", *range(6_000)), ("SET", "key", "x")])
    await backup(store, path)
    late = Late(target)
    with monkeypatch.context() as patch:
        patch.setattr(target, "atomically", late.atomically)
        with pytest.raises(StoreUnavailable, match=r"5 s, while large with its 6,000 parts .* \?timeout=10m"):
            await restored(target, path, if_there=IfThere.REPLACE)
        done = await restored(target, path, resume=True)
    assert (done.restored, late.late) == (2, 1)
    assert await contents(target) == await contents(store)


# --- comparing ----------------------------------------------------------------------------------------------


async def test_each_kind_of_difference_is_counted(store: Store, target: Store, clock: Clock, path: Path) -> None:
    await store.run([("SET", key, "x") for key in ("same", "gone", "value", "kind", "expiry")])
    await store.run([("SET", "over", "x", "PX", 1000), ("ZADD", "score", 1, "m")])
    await backup(store, path)
    await restored(target, path)
    await target.run(
        [("DEL", "gone"), ("SET", "value", "y"), ("DEL", "kind"), ("SADD", "kind", "x"), ("PEXPIRE", "expiry", 10)]
    )
    await target.run([("ZADD", "score", 1.0000000000000002, "m"), ("SET", "not in the backup", "x")])
    clock.now_ms += 1
    with BackupFile(path) as file:
        compared = await compare(target, file)
    compared.examples["other_value"].sort()  # keys stand in no order
    assert compared.as_json() == {
        "keys": 7, "equal": 2, "expired": 0, "missing": 1, "other_kind": 1, "other_value": 2, "other_expiry": 1,
        "examples": {
            "missing": ["gone"], "other_kind": ["kind"], "other_value": ["score", "value"], "other_expiry": ["expiry"]
        },
        "differences": 5,
    }  # fmt: skip


async def test_a_damaged_file_is_not_compared(store: Store, path: Path) -> None:
    await store.run([("SET", "key", "x")])
    await backup(store, path)
    write(path, data_of(path)[:-1])
    with BackupFile(path) as file, pytest.raises(BackupDamaged):
        await compare(store, file)
