"""Expiry is exact for every command: a key exists one millisecond before its deadline, and not at it."""

from typing import Any

import pytest

from keystead.stores import Command
from keystead.stores.sqlite import SqliteStore
from tests.stores.sqlite.conftest import Clock

pytestmark = pytest.mark.anyio

LIFETIME_MS = 1_000

MAKE: dict[str, Command] = {
    "string": ("SET", "k", "5"),
    "hash": ("HSET", "k", "f", "5"),
    "set": ("SADD", "k", "m"),
    "zset": ("ZADD", "k", 5, "m"),
    "list": ("RPUSH", "k", "i"),
    "stream": ("XADD", "k", "1-1", "f", "v"),
}

# kind, read, what it answers of a key that is there, what of one that is not
READS: list[tuple[str, Command, Any, Any]] = [
    ("string", ("GET", "k"), b"5", None),
    ("string", ("MGET", "k", "other"), [b"5", None], [None, None]),
    *((kind, ("EXISTS", "k"), 1, 0) for kind in MAKE),
    *((kind, ("TYPE", "k"), kind.encode(), b"none") for kind in MAKE),
    *((kind, ("DBSIZE",), 1, 0) for kind in MAKE),
    *((kind, ("SCAN", 0), [b"0", [b"k"]], [b"0", []]) for kind in MAKE),
    ("hash", ("HGET", "k", "f"), b"5", None),
    ("hash", ("HMGET", "k", "f", "g"), [b"5", None], [None, None]),
    ("hash", ("HGETALL", "k"), {b"f": b"5"}, {}),
    ("hash", ("HLEN", "k"), 1, 0),
    ("hash", ("HEXISTS", "k", "f"), 1, 0),
    ("set", ("SMEMBERS", "k"), {b"m"}, set()),
    ("set", ("SISMEMBER", "k", "m"), 1, 0),
    ("set", ("SCARD", "k"), 1, 0),
    ("zset", ("ZSCORE", "k", "m"), 5.0, None),
    ("zset", ("ZMSCORE", "k", "m"), [5.0], [None]),
    ("zset", ("ZCARD", "k"), 1, 0),
    ("zset", ("ZCOUNT", "k", "-inf", "inf"), 1, 0),
    ("zset", ("ZRANK", "k", "m"), 0, None),
    ("zset", ("ZREVRANK", "k", "m"), 0, None),
    ("zset", ("ZRANGE", "k", 0, -1), [b"m"], []),
    ("zset", ("ZRANGE", "k", "-inf", "inf", "BYSCORE"), [b"m"], []),
    ("list", ("LRANGE", "k", 0, -1), [b"i"], []),
    ("list", ("LLEN", "k"), 1, 0),
    ("list", ("LINDEX", "k", 0), b"i", None),
    ("stream", ("XRANGE", "k", "-", "+"), [[b"1-1", [b"f", b"v"]]], []),
    ("stream", ("XREVRANGE", "k", "+", "-"), [[b"1-1", [b"f", b"v"]]], []),
    ("stream", ("XLEN", "k"), 1, 0),
]

# kind, write, what it answers of a key that has expired, and what a read answers afterwards
WRITES: list[tuple[str, Command, Any, Command, Any]] = [
    ("string", ("GETDEL", "k"), None, ("EXISTS", "k"), 0),
    ("string", ("GETEX", "k", "PERSIST"), None, ("EXISTS", "k"), 0),
    ("string", ("INCRBY", "k", 2), 2, ("PTTL", "k"), -1),
    ("string", ("DECRBY", "k", 2), -2, ("PTTL", "k"), -1),
    ("string", ("SET", "k", "new"), b"OK", ("PTTL", "k"), -1),
    ("string", ("SET", "k", "new", "NX"), b"OK", ("GET", "k"), b"new"),
    ("string", ("SET", "k", "new", "XX"), None, ("EXISTS", "k"), 0),
    ("string", ("SET", "k", "new", "GET"), None, ("GET", "k"), b"new"),
    ("string", ("SET", "k", "new", "KEEPTTL"), b"OK", ("PTTL", "k"), -1),
    *((kind, ("DEL", "k"), 0, ("EXISTS", "k"), 0) for kind in MAKE),
    *((kind, ("EXPIRE", "k", 100), 0, ("EXISTS", "k"), 0) for kind in MAKE),
    *((kind, ("PERSIST", "k"), 0, ("EXISTS", "k"), 0) for kind in MAKE),
    ("hash", ("HSET", "k", "g", "1"), 1, ("HGETALL", "k"), {b"g": b"1"}),
    ("hash", ("HSETNX", "k", "f", "1"), 1, ("HGETALL", "k"), {b"f": b"1"}),
    ("hash", ("HINCRBY", "k", "f", 1), 1, ("PTTL", "k"), -1),
    ("hash", ("HDEL", "k", "f"), 0, ("EXISTS", "k"), 0),
    ("set", ("SADD", "k", "m", "n"), 2, ("SMEMBERS", "k"), {b"m", b"n"}),
    ("set", ("SREM", "k", "m"), 0, ("EXISTS", "k"), 0),
    ("zset", ("ZADD", "k", 1, "n"), 1, ("ZRANGE", "k", 0, -1), [b"n"]),
    ("zset", ("ZADD", "k", "XX", 1, "m"), 0, ("EXISTS", "k"), 0),
    ("zset", ("ZADD", "k", "INCR", 1, "m"), 1.0, ("PTTL", "k"), -1),
    ("zset", ("ZREM", "k", "m"), 0, ("EXISTS", "k"), 0),
    ("zset", ("ZPOPMIN", "k"), [], ("EXISTS", "k"), 0),
    ("zset", ("ZREMRANGEBYSCORE", "k", "-inf", "inf"), 0, ("EXISTS", "k"), 0),
    ("zset", ("ZREMRANGEBYRANK", "k", 0, -1), 0, ("EXISTS", "k"), 0),
    ("list", ("RPUSH", "k", "j"), 1, ("LRANGE", "k", 0, -1), [b"j"]),
    ("list", ("LPUSH", "k", "j"), 1, ("LRANGE", "k", 0, -1), [b"j"]),
    ("list", ("LPOP", "k"), None, ("EXISTS", "k"), 0),
    ("list", ("RPOP", "k", 1), None, ("EXISTS", "k"), 0),
    ("list", ("LTRIM", "k", 0, 0), b"OK", ("EXISTS", "k"), 0),
    ("list", ("LREM", "k", 0, "i"), 0, ("EXISTS", "k"), 0),
    ("stream", ("XADD", "k", "1-1", "f", "w"), b"1-1", ("XRANGE", "k", "-", "+"), [[b"1-1", [b"f", b"w"]]]),
    ("stream", ("XDEL", "k", "1-1"), 0, ("EXISTS", "k"), 0),
    ("stream", ("XTRIM", "k", "MAXLEN", 0), 0, ("EXISTS", "k"), 0),
]


def _named(value: object) -> str | None:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value if isinstance(value, str) else ""


async def _ask(store: SqliteStore, command: Command) -> Any:
    [reply] = await store.run([command])
    return reply


@pytest.mark.parametrize(("kind", "command", "alive", "gone"), READS, ids=_named)
async def test_a_read_sees_a_key_until_its_deadline_and_not_at_it(
    store: SqliteStore, clock: Clock, kind: str, command: Command, alive: Any, gone: Any
) -> None:
    deadline_ms = clock.now_ms + LIFETIME_MS
    await store.run([MAKE[kind], ("PEXPIREAT", "k", deadline_ms)])
    for now_ms, expected in [
        (deadline_ms - LIFETIME_MS, alive),
        (deadline_ms - 1, alive),
        (deadline_ms, gone),
        (deadline_ms + 1, gone),
        (deadline_ms - 1, alive),  # a clock that is set back: it was not removed by having been looked at
    ]:
        clock.now_ms = now_ms
        assert await _ask(store, command) == expected
        if command[0] not in ("SCAN", "DBSIZE"):
            assert (await store.atomically([command])).replies == [expected]
        assert await _ask(store, ("PTTL", "k")) == (deadline_ms - now_ms if expected == alive else -2)
        assert [key async for page in store.scan() for key in page] == ([b"k"] if expected == alive else [])


@pytest.mark.parametrize(("kind", "command", "reply", "read", "after"), WRITES, ids=_named)
async def test_a_write_at_the_deadline_finds_no_key_and_revives_nothing_of_the_old_one(
    store: SqliteStore, clock: Clock, kind: str, command: Command, reply: Any, read: Command, after: Any
) -> None:
    await store.run([MAKE[kind], ("PEXPIRE", "k", LIFETIME_MS)])
    clock.now_ms += LIFETIME_MS
    assert await _ask(store, command) == reply
    assert await _ask(store, read) == after


@pytest.mark.parametrize("new", MAKE)
@pytest.mark.parametrize("old", MAKE)
async def test_an_expired_key_gives_way_to_one_of_any_kind(
    store: SqliteStore, clock: Clock, old: str, new: str
) -> None:
    await store.run([MAKE[old], ("PEXPIRE", "k", LIFETIME_MS)])
    clock.now_ms += LIFETIME_MS
    await store.run([MAKE[new]])
    assert await _ask(store, ("TYPE", "k")) == new.encode()
    assert await _ask(store, ("PTTL", "k")) == -1
    [read, alive] = next([command, alive] for kind, command, alive, _ in READS if kind == new)
    assert await _ask(store, read) == alive
    clock.now_ms -= LIFETIME_MS  # nothing of the old key is left, whatever the clock says
    assert await _ask(store, read) == alive


@pytest.mark.parametrize("path", [":memory:"])
async def test_in_memory_too_a_key_is_gone_at_its_deadline(store: SqliteStore, clock: Clock) -> None:
    for kind, command in MAKE.items():
        await store.run([command, ("PEXPIRE", "k", LIFETIME_MS)])
        clock.now_ms += LIFETIME_MS - 1
        assert await _ask(store, ("TYPE", "k")) == kind.encode()
        clock.now_ms += 1
        assert await _ask(store, ("TYPE", "k")) == b"none"


async def test_a_lifetime_in_the_past_expires_immediately(store: SqliteStore, clock: Clock) -> None:
    await store.run([("SET", "k", "1", "PXAT", clock.now_ms)])
    assert await _ask(store, ("GET", "k")) is None
    await store.run([("SET", "k", "1"), ("PEXPIREAT", "k", clock.now_ms - 1)])
    assert await _ask(store, ("GET", "k")) is None
    await store.run([("SET", "k", "1"), ("GETEX", "k", "PXAT", clock.now_ms)])
    assert await _ask(store, ("GET", "k")) is None
