"""The fast path for whole keys equals the commands, key by key."""

from collections.abc import AsyncIterator

import pytest

from keystead import Store, connect
from keystead.errors import StoreError
from keystead.stores.sqlite.sqlite_store import SqliteStore
from keystead.stores.transfer.reader import Reader
from keystead.stores.transfer.records import Record
from tests import servers
from tests.servers import Server
from tests.stores.backup.conftest import UrlOf
from tests.stores.backup.contents import DAY_MS, contents, emptied, now_ms, some_of_everything

STORES = ("memory", "sqlite", "redis", "valkey")


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, url_of: UrlOf) -> AsyncIterator[Store]:
    async with connect(url_of(request.param)) as store:
        yield store


async def by_commands(store: Store, keys: list[bytes]) -> list[Record]:
    """The keys as read without the fast path."""
    found: list[Record] = []
    assert await Reader(store)._read_by_commands(keys, found) == []
    return found


def comparable(records: list[Record]) -> dict[bytes, tuple[object, ...]]:
    return {record.key: (record.kind, record.expires_at_ms, record.content) for record in records}


async def test_whole_keys_are_read_as_by_commands(store: Store) -> None:
    await store.run(some_of_everything(await now_ms(store) + DAY_MS))
    keys = [*(await contents(store)), b"no such key"]
    shortcut = await store.whole_keys(keys)
    assert shortcut is not None
    found, left = shortcut
    assert left == []
    assert comparable([Record._make(one) for one in found]) == comparable(await by_commands(store, keys))
    ordered = {one[0]: list(one[3]) for one in found if one[1] in ("zset", "list", "stream")}
    assert ordered == {one.key: list(one.parts) for one in await by_commands(store, list(ordered))}


async def test_large_keys_are_left_to_commands(store: Store) -> None:
    await store.run([("SADD", f"set:{n}", *range(400)) for n in range(9)])
    await store.run([("SADD", "large", *range(20_000)), ("SET", "long", b"x" * (5 << 20)), ("SET", "short", "x")])
    keys = [*(b"set:%d" % n for n in range(9)), b"large", b"long", b"short"]
    shortcut = await store.whole_keys(keys)
    assert shortcut is not None
    found, left = shortcut
    assert {b"large", b"long"} <= set(left)
    assert sorted([*left, *(one[0] for one in found)]) == sorted(keys)
    assert comparable(await Reader(store).read(keys)) == comparable(await by_commands(store, keys))


async def test_whole_keys_are_added_where_there_are_none_and_work_as_any_other(store: Store) -> None:
    await store.run(some_of_everything(await now_ms(store) + DAY_MS))
    before = await contents(store)
    records = await Reader(store).read(list(before))
    await emptied(store)
    await store.run([("SET", "hash", "theirs"), ("SADD", "string", "theirs")])
    done = await store.add_whole_keys(records)
    assert done is not None
    assert {record.key for record, written in zip(records, done, strict=True) if not written} == {b"hash", b"string"}
    theirs = {b"hash": (b"string", -1, b"theirs"), b"string": (b"set", -1, {b"theirs"})}
    assert await contents(store) == {**before, **theirs}
    # Commands continue with what the fast path wrote.
    changed = await store.run(
        [
            *(("HSET", "hash with a deadline", "new", "1"), ("HLEN", "hash with a deadline"), ("SADD", "set", "new")),
            *(("SCARD", "set"), ("ZADD", "zset", 1, "new"), ("ZCARD", "zset"), ("RPUSH", "list", "new")),
            *(("LPUSH", "list", "new"), ("LRANGE", "list", -1, -1), ("XLEN", "stream with a deadline")),
            *(("XADD", "emptied stream", "0-2", "a", "1"), ("XLEN", "emptied stream"), ("DEL", "zset", "stream")),
        ]
    )
    assert changed == [1, 4, 1, 4, 1, 8, 6, 7, [b"new"], 1, b"0-2", 1, 2]


async def test_an_expired_key_that_was_not_swept_is_overwritten(url_of: UrlOf) -> None:
    now = [1_000_000]
    async with SqliteStore(url_of("sqlite").removeprefix("sqlite:///"), clock=lambda: now[0]) as store:
        await store.run([("SADD", "key", "old"), ("PEXPIRE", "key", 10)])
        now[0] += 20
        assert await store.whole_keys([b"key"]) == ([], [])
        assert await store.add_whole_keys([(b"key", "hash", None, [b"a", b"1"])]) == [True]
        assert await contents(store) == {b"key": (b"hash", -1, {b"a": b"1"})}


async def test_a_key_never_shows_without_its_deadline_where_the_server_refuses_to_set_it() -> None:
    with servers.valkey(password="secret") as server:
        await refuses_deadlines(server)


async def refuses_deadlines(server: Server) -> None:
    server.ask("ACL", "SETUSER", "limited", "on", ">word", "~*", "+@all", "-pexpireat")
    url = server.url.replace(":secret@", "limited:word@")
    assert "limited" in url
    async with connect(url) as store:
        with pytest.raises(StoreError):
            await store.add_whole_keys([(b"a", "set", None, [b"x"]), (b"b", "set", 4_000_000_000_000, [b"x"])])
        assert await store.run([("EXISTS", "a"), ("EXISTS", "b")]) == [1, 0]
