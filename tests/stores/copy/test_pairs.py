"""From every kind of store into every other: every kind of key, with its deadline to the millisecond."""

from pathlib import Path

import pytest

from keystead import connect
from keystead.errors import DoesNotFit
from keystead.stores import Command
from keystead.stores.backup import backup
from keystead.stores.copy import SameStore, copy, progress_path, survey
from tests.servers import Server
from tests.stores.backup.contents import DAY_MS, contents, now_ms, some_of_everything
from tests.stores.copy.conftest import UrlOf, files, own

PAIRS = (
    ("redis", "postgres"),
    ("postgres", "sqlite"),
    ("sqlite", "redis"),
    ("sqlite", "mariadb"),
    ("mariadb", "cluster"),
    ("cluster", "postgres"),
    ("memory", "valkey"),
    ("upstash", "sqlite"),
    ("valkey", "upstash"),
)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{one} to {other}" for one, other in PAIRS])
async def test_every_kind_arrives_with_its_deadline_to_the_millisecond(
    source: str, target: str, url_of: UrlOf, here: Path
) -> None:
    async with connect(url_of(source)) as store, connect(url_of(target)) as other:
        await store.run(some_of_everything(await now_ms(store) + DAY_MS + 123))
        before = await contents(store)
        copied = await copy(store, other)
        assert (copied.keys, copied.written, copied.is_whole) == (len(before), len(before), True)
        assert copied.verified is not None
        assert (copied.verified.compared.equal, copied.verified.compared.differences) == (len(before), 0)
        assert await own(other) == before
        assert files() == ([] if store.url == "memory://" else [str(progress_path(store.url, other.url))])
        assert await contents(store) == before


@pytest.mark.parametrize(
    ("source", "target"),
    [("sqlite", "redis"), pytest.param("redis", "postgres", marks=pytest.mark.matrix)],
)
async def test_changes_of_large_collections_and_values_follow(source: str, target: str, url_of: UrlOf) -> None:
    """Each has more entries than one step reads, and more arguments than one command may write."""
    numbers = range(6_003)
    commands: list[Command] = [
        ("SET", "long", bytes(range(256)) * 12_000),
        ("HSET", "hash", *(part for number in numbers for part in (number, number * 7))),
        ("SADD", "set", *numbers),
        ("ZADD", "zset", *(part for number in numbers for part in (number / 3, number))),
        ("RPUSH", "list", *(number % 5 for number in numbers)),
        *(("XADD", "stream", f"{number + 1}-1", "n", number) for number in numbers),
    ]
    changes: list[Command] = [
        *(("SET", "long", b"\x00" * 3_000_000), ("HSET", "hash", 7, "x"), ("SADD", "set", "x")),
        *(("ZADD", "zset", 0.1, 6_002), ("RPUSH", "list", "x"), ("XADD", "stream", "9999-1", "n", "x")),
    ]
    async with connect(f"{url_of(source)}?timeout=60s") as store, connect(f"{url_of(target)}?timeout=60s") as other:
        await store.run([*commands, ("SET", "extra", "x")])
        await other.run([("SET", "extra", "theirs")])  # so that the notes are kept
        assert (await copy(store, other)).written == 6
        ends_ms = await now_ms(store) + DAY_MS
        await store.run([*changes, *(("PEXPIREAT", key, ends_ms) for key in ("set", "zset"))])
        assert (await copy(store, other)).written == 6
        assert {**await contents(other), b"extra": 0} == {**await contents(store), b"extra": 0, **await marks(other)}


async def marks(store: object) -> dict[bytes, object]:
    """What an incomplete copy leaves: the marker by which it recognizes the store."""
    held = await contents(store)  # type: ignore[arg-type]
    return {key: value for key, value in held.items() if key.startswith(b"keystead:copy:")}


async def test_only_strings_are_copied_to_memcached_and_the_rest_is_named(url_of: UrlOf) -> None:
    async with connect(url_of("sqlite")) as store, connect(url_of("memcached")) as other:
        ends_ms = await now_ms(store) + DAY_MS + 7
        await store.run([("SET", "a", "1", "PXAT", ends_ms), ("SET", "b", b"\x00\xff"), ("HSET", "h", "f", "1")])
        copied = await copy(store, other)
        assert (copied.written, copied.is_whole, copied.left_out.count) == (2, False, 1)
        [said] = copied.left_out.examples
        assert said.startswith("h is a hash, which memcached://")
        assert await other.run([("GET", "a"), ("PEXPIRETIME", "a"), ("GET", "b")]) == [b"1", ends_ms, b"\x00\xff"]
        await store.run([("DEL", "h"), ("SET", "a", "2", "PXAT", ends_ms + 1), ("DEL", "b")])
        copied = await copy(store, other)
        assert (copied.written, copied.deleted, copied.is_whole) == (1, 1, True)
        looks = await other.run([("GET", "a"), ("PEXPIRETIME", "a"), ("EXISTS", "b"), ("EXISTS", "h")])
        assert looks == [b"2", ends_ms + 1, 0, 0]


async def test_a_store_that_cannot_list_its_keys_is_refused_before_anything_is_begun(url_of: UrlOf, here: Path) -> None:
    async with connect(url_of("memcached")) as store, connect("memory://") as other:
        for work in (copy(store, other), survey(store, other), backup(store, here / "keys.backup")):
            with pytest.raises(DoesNotFit, match=r"memcached://.* cannot list its keys"):
                await work
        assert await contents(other) == {}
        assert files() == []


async def test_a_store_is_not_copied_into_itself_by_whatever_name(url_of: UrlOf, here: Path) -> None:
    url = url_of("valkey")
    other_name = url.replace("127.0.0.1", "localhost")
    assert other_name != url
    async with connect(url) as store, connect(url) as same, connect(other_name) as hidden:
        await store.run([("SET", "key", "1")])
        for work in (copy(store, same), survey(store, same)):
            with pytest.raises(SameStore, match="name another target"):
                await work
        with pytest.raises(SameStore, match="are the same store; nothing was copied"):
            await copy(store, hidden, overwrite=True)
        assert await contents(store) == {b"key": (b"string", -1, b"1")}
        assert files() == []


async def test_unwritable_keys_of_other_programs_are_named(valkey_server: Server, url_of: UrlOf) -> None:
    async with connect(url_of("valkey")) as store, connect("memory://") as other:
        valkey_server.ask("SET", "far", "x", "PXAT", 300_000_000_000_000)
        await store.run([("SET", "good", "x")])
        copied = await copy(store, other)
        assert copied.left_out.examples == ["far has a deadline before 1970 or after the year 9999"]
        assert (copied.written, copied.is_whole) == (1, False)


async def test_a_key_that_became_unfit_is_deleted_with_its_source(valkey_server: Server, url_of: UrlOf) -> None:
    async with connect(url_of("valkey")) as store, connect(url_of("sqlite")) as other:
        await store.run([("SET", "far", "x"), ("SET", "good", "x")])
        assert (await copy(store, other)).written == 2
        valkey_server.ask("SET", "far", "y", "PXAT", 300_000_000_000_000)
        copied = await copy(store, other)
        assert (copied.written, copied.left_out.count, copied.is_whole) == (0, 1, False)
        assert (await own(other))[b"far"] == (b"string", -1, b"x")
        await store.run([("DEL", "far")])
        copied = await copy(store, other)
        assert (copied.deleted, copied.is_whole, await own(other)) == (1, True, await contents(store))
