"""Backup and restore round-trip every key, between any two stores."""

import asyncio
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keystead import Store, connect
from keystead.stores import Command
from keystead.stores.backup import BackupFile, Saved, backup, compare, restore
from keystead.stores.transfer import reader
from keystead.testing.contract.sample_texts import HOSTILE
from tests.servers import Server
from tests.stores.backup.conftest import UrlOf
from tests.stores.backup.contents import DAY_MS, contents, emptied, exact, now_ms, some_of_everything

STORES = ("memory", "sqlite", "redis", "valkey", "cluster", "upstash")


async def carried(source: Store, target: Store, path: Path) -> Saved:
    """Back up into a file, and restore it into an empty store."""
    saved = await backup(source, path)
    await emptied(source)
    with BackupFile(path) as file:
        await restore(target, file)
        compared = await compare(target, file)
    assert compared.differences == 0
    assert compared.equal == saved.keys
    return saved


# `make test` has each store once as a source and once as a target.
PAIRS = [
    pytest.param(one, other, marks=[] if (at - place) % len(STORES) == 1 else [pytest.mark.matrix])
    for place, one in enumerate(STORES)
    for at, other in enumerate(STORES)
]


@pytest.mark.matrix
@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_every_kind_is_copied_between_all_stores_with_its_exact_deadline(
    source: str, target: str, url_of: UrlOf, tmp_path: Path
) -> None:
    async with connect(url_of(source)) as store:
        await store.run(some_of_everything(await now_ms(store) + DAY_MS + 123))
        before = await contents(store)
        if source == target:
            await carried(store, store, tmp_path / "backup")
            assert await contents(store) == before
        else:
            async with connect(url_of(target)) as other:
                saved = await carried(store, other, tmp_path / "backup")
                assert await contents(other) == before
                assert saved.keys == len(before)
                assert saved.kinds == {"string": 5, "hash": 2, "set": 2, "zset": 2, "list": 2, "stream": 3}


TEXT = st.binary(max_size=12)
TEXTS = st.lists(TEXT, min_size=1, max_size=5)
SCORES = st.one_of(st.floats(allow_nan=False), st.integers(0, 2**62).map(exact))
IDS = st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1))
VALUES: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("string"), TEXT),
    st.tuples(st.just("hash"), st.dictionaries(TEXT, TEXT, min_size=1, max_size=5)),
    st.tuples(st.just("set"), TEXTS),
    st.tuples(st.just("zset"), st.dictionaries(TEXT, SCORES, min_size=1, max_size=5)),
    st.tuples(st.just("list"), TEXTS),
    st.tuples(st.just("stream"), st.dictionaries(IDS, TEXTS, min_size=1, max_size=4)),
)
STORED = st.dictionaries(
    st.one_of(TEXT, st.sampled_from(sorted(HOSTILE.values()))),
    st.tuples(VALUES, st.one_of(st.none(), st.integers(1, 10**9))),
    max_size=12,
)


def written(stored: dict[bytes, tuple[tuple[str, Any], int | None]], begins_ms: int) -> list[Command]:
    commands: list[Command] = []
    for key, ((kind, value), ends_in_ms) in stored.items():
        match kind:
            case "string":
                commands.append(("SET", key, value))
            case "hash":
                commands.append(("HSET", key, *(part for pair in value.items() for part in pair)))
            case "set":
                commands.append(("SADD", key, *value))
            case "zset":
                commands.append(("ZADD", key, *(part for member, score in value.items() for part in (score, member))))
            case "list":
                commands.append(("RPUSH", key, *value))
            case _:
                for (ms, sequence), fields in sorted(value.items()):
                    parts = [part for field in fields for part in (field, field)]
                    commands.append(("XADD", key, f"{ms}-{sequence}", *parts))
        if ends_in_ms is not None:
            commands.append(("PEXPIREAT", key, begins_ms + DAY_MS + ends_in_ms))
    return commands


@settings(max_examples=30)
@given(stored=STORED)
@example(stored={})
def test_every_kind_of_key_round_trips(
    stored: dict[bytes, tuple[tuple[str, Any], int | None]], valkey_server: Server
) -> None:
    async def play(folder: Path) -> None:
        async with connect("memory://") as embedded, connect(valkey_server.url) as server:
            await emptied(server)
            await embedded.run(written(stored, await now_ms(embedded)))
            before = await contents(embedded)
            assert before.keys() == stored.keys()
            await carried(embedded, server, folder / "there")
            assert await contents(server) == before
            await carried(server, embedded, folder / "and-back")
            assert await contents(embedded) == before

    with TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


@pytest.mark.matrix
@pytest.mark.everyday("cluster")
@pytest.mark.parametrize("name", ["sqlite", "valkey", "cluster"])
async def test_collections_that_are_read_and_written_in_pieces_are_whole(
    name: str, url_of: UrlOf, tmp_path: Path
) -> None:
    """Each has more entries than one step reads, and more arguments than one command may write."""
    count = 6_003
    numbers = range(count)
    commands: list[Command] = [
        ("HSET", "hash", *(part for number in numbers for part in (number, number * 7))),
        ("SADD", "set", *numbers),
        ("ZADD", "zset", *(part for number in numbers for part in (number // 3, number))),
        ("RPUSH", "list", *(number % 5 for number in numbers)),
        *(("XADD", "stream", f"{number + 1}-1", "n", number) for number in numbers),
    ]
    async with connect(url_of(name)) as store:
        await store.run(commands)
        await store.run([("PEXPIREAT", key, await now_ms(store) + DAY_MS) for key in ("zset", "list", "stream")])
        before = await contents(store)
        assert {len(value) for _, _, value in before.values()} == {count}
        await carried(store, store, tmp_path / "backup")
        assert await contents(store) == before


@pytest.mark.parametrize("name", ["sqlite", "redis"])
async def test_values_longer_than_a_block_are_whole(name: str, url_of: UrlOf, tmp_path: Path) -> None:
    mixed = bytes(range(256)) * 4096 * 3  # three blocks, and not a byte more
    async with connect(url_of(name)) as store:
        await store.run([("SET", "long", mixed + b"!"), ("HSET", "hash", "field", mixed), ("SET", "short", "x")])
        before = await contents(store)
        await carried(store, store, tmp_path / "backup")
        assert await contents(store) == before


async def test_new_stream_ids_follow_the_last_id(url_of: UrlOf, tmp_path: Path) -> None:
    async with connect("memory://") as store, connect(url_of("valkey")) as target:
        await store.run([("XADD", "log", "99999999999999-7", "n", "1")])
        await carried(store, target, tmp_path / "backup")
        [entry] = await target.run([("XADD", "log", "*", "n", "2")])
        assert entry == b"99999999999999-8"


async def test_only_keys_that_match_are_saved(tmp_path: Path) -> None:
    async with connect("memory://") as store, connect("memory://") as target:
        await store.run([("SET", key, "x") for key in ("sess:1", "sess:2", "user:1", "session")])
        saved = await backup(store, tmp_path / "backup", match="sess:*")
        with BackupFile(tmp_path / "backup") as file:
            await restore(target, file)
            assert file.header.match == "sess:*"
        assert (saved.keys, set(await contents(target))) == (2, {b"sess:1", b"sess:2"})


def twice(store: Store) -> Any:
    """Like a server that moves keys during a scan."""
    scan = store.scan

    async def pages(*arguments: Any, **options: Any) -> Any:
        async for page in scan(*arguments, **options):
            yield [*page, *page]
        async for page in scan(*arguments, **options):
            yield page

    return pages


async def test_a_key_that_the_store_names_twice_is_saved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect("memory://") as store:
        await store.run(some_of_everything(await now_ms(store) + DAY_MS))
        held = await contents(store)
        monkeypatch.setattr(store, "scan", twice(store))
        saved = await backup(store, tmp_path / "backup")
        assert saved.keys == len(held)


class Interfering:
    """Runs a concurrent command after each atomic step, as long as there are any."""

    def __init__(self, store: Store, commands: Sequence[Command]) -> None:
        self._atomically = store.atomically
        self._store = store
        self.left = list(commands)

    async def atomically(self, steps: Any) -> Any:
        outcome = await self._atomically(steps)
        if self.left:
            await self._store.run([self.left.pop(0)])
        return outcome


@pytest.mark.matrix
@pytest.mark.everyday("2")
@pytest.mark.parametrize("changes", [1, 2, 100])
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (("RPUSH", "key", *range(12_000)), ("LPUSH", "key", "new")),
        (("ZADD", "key", *(part for n in range(12_000) for part in (n, n))), ("ZADD", "key", -1, 11_999)),
        (("ZADD", "key", *(part for n in range(12_000) for part in (n, n))), ("PEXPIRE", "key", DAY_MS)),
    ],
    ids=["pushed to", "reordered", "given a deadline"],
)
async def test_a_collection_that_changes_while_it_is_read_is_saved_as_it_was_at_one_moment(
    make: Command, change: Command, changes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect("memory://") as store, connect("memory://") as target:
        await store.run([make])
        moments = [await contents(store)]
        interfering = Interfering(store, [change] * changes)
        monkeypatch.setattr(store, "atomically", interfering.atomically)
        await backup(store, tmp_path / "backup")
        monkeypatch.undo()
        with BackupFile(tmp_path / "backup") as file:
            await restore(target, file)
        await store.run([("DEL", "key"), make])
        done = changes - len(interfering.left)
        for _ in range(done if change[0] == "LPUSH" else min(done, 1)):
            await store.run([change])
            moments.append(await contents(store))
        [(kind, at_ms, value)] = (await contents(target)).values()
        if change[0] == "PEXPIRE":  # each time it is another millisecond
            assert (kind, value) == moments[0][b"key"][::2]
            assert at_ms == -1 or at_ms > 0
        else:
            assert {b"key": (kind, at_ms, value)} in moments


@pytest.mark.matrix
@pytest.mark.everyday("1")
@pytest.mark.parametrize("quiet", range(6))
@pytest.mark.parametrize("changes", [1, 100])
async def test_points_that_move_between_members_are_never_saved_twice_or_lost(
    quiet: int, changes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step moves an amount between two members: neither order nor size changes."""
    async with connect("memory://") as store:
        await store.run([("ZADD", "key", *(part for n in range(12_000) for part in (n, n)))])
        moves: list[Command] = [
            ("ZADD", "key", 10 + move / 1024, 10, 11_990 - move / 1024, 11_990) for move in range(1, changes + 1)
        ]
        interfering = Interfering(store, [*[("TIME",)] * quiet, *moves])
        monkeypatch.setattr(store, "atomically", interfering.atomically)
        await backup(store, tmp_path / "backup")
    with BackupFile(tmp_path / "backup") as file:
        [[record]] = file.blocks()
    scores = record.content
    assert len(scores) == 12_000
    assert sum(scores.values()) == sum(range(12_000))


@pytest.mark.parametrize("quiet", range(5))
async def test_entries_that_are_deleted_together_are_saved_together_or_not_at_all(
    quiet: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PIECE", 300)
    async with connect("memory://") as store:
        await store.run([("XADD", "key", f"{number}-1", "n", number) for number in range(1, 1_000)])
        interfering = Interfering(store, [*[("TIME",)] * quiet, ("XDEL", "key", "5-1", "995-1")])
        monkeypatch.setattr(store, "atomically", interfering.atomically)
        await backup(store, tmp_path / "backup")
    with BackupFile(tmp_path / "backup") as file:
        [[record]] = file.blocks()
    ids = set(record.parts[::4])
    assert len(ids) in (997, 999)
    assert (b"5-1" in ids) == (b"995-1" in ids)


async def test_large_values_are_held_a_few_at_a_time(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        for number in range(150):
            await store.run([("SET", f"key:{number}", bytes(1 << 20))])
        tracemalloc.start()
        try:
            saved = await backup(store, tmp_path / "backup")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert saved.keys == 150
    assert peak < 60 << 20


async def test_unrestorable_keys_are_left_out_and_named(url_of: UrlOf, valkey_server: Server, tmp_path: Path) -> None:
    async with connect(url_of("valkey")) as store, connect("memory://") as target:
        await store.run([("SET", "good", "x"), ("XADD", "wide", "1-1", *range(8_000)), ("SET", "document", "x")])
        valkey_server.ask("SET", "far", "x", "PXAT", 300_000_000_000_000)
        run, whole_keys = store.run, store.whole_keys

        async def whole_keys_with_a_module(keys: Any) -> Any:
            found, left = await whole_keys(keys)  # type: ignore[misc]
            return [one for one in found if one[0] != b"document"], [*left, b"document"]

        async def run_with_a_module(commands: Any) -> Any:
            """Like a server with a module's own kind."""
            names = [getattr(command, "args", None) for command in commands]
            replies = await run(commands)
            return [
                b"ReJSON-RL" if name == [b"document"] and reply == b"string" else reply
                for name, reply in zip(names, replies, strict=True)
            ]

        store.run = run_with_a_module  # type: ignore[method-assign]
        store.whole_keys = whole_keys_with_a_module  # type: ignore[method-assign]
        saved = await backup(store, tmp_path / "backup")
        assert (saved.keys, saved.left_out.count) == (1, 3)
        said = sorted(saved.left_out.examples)
        assert said[0].startswith("document is of the kind ReJSON-RL")
        assert said[1].startswith("far has a deadline")
        assert said[2].startswith("wide has an entry of 4,000 fields")
        with BackupFile(tmp_path / "backup") as file:
            await restore(target, file)
        assert set(await contents(target)) == {b"good"}


async def test_a_key_that_becomes_another_kind_while_it_is_read_is_saved_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect("memory://") as store, connect("memory://") as target:
        await store.run([("SET", "key", "x"), ("SET", "other", "y")])
        run = store.run

        async def run_then_change(commands: Any) -> Any:
            replies = await run(commands)
            if b"string" in replies:
                await run([("DEL", "key"), ("SADD", "key", "member")])
            return replies

        monkeypatch.setattr(store, "run", run_then_change)
        await backup(store, tmp_path / "backup")
        monkeypatch.undo()
        with BackupFile(tmp_path / "backup") as file:
            await restore(target, file)
        assert await contents(target) == await contents(store)


async def test_a_value_and_its_deadline_are_of_one_moment(url_of: UrlOf, tmp_path: Path) -> None:
    """A program repeatedly writes a value with its deadline; no backup mixes two of them."""
    async with connect(url_of("valkey")) as store:
        begins_ms = await now_ms(store) + DAY_MS
        stopped = asyncio.Event()

        async def write() -> None:
            number = 0
            while not stopped.is_set():
                number += 1
                await store.run([("SET", f"key:{n}", number, "PXAT", begins_ms + number) for n in range(100)])

        writing = asyncio.create_task(write())
        numbers = set()
        try:
            for count in range(20):
                await backup(store, tmp_path / f"{count}.backup")
                with BackupFile(tmp_path / f"{count}.backup") as file:
                    for record in (record for block in file.blocks() for record in block):
                        assert record.expires_at_ms == begins_ms + int(record.parts[0])
                        numbers.add(record.parts[0])
        finally:
            stopped.set()
            await writing
        assert len(numbers) > 5
