"""Replies have the values and the types that a RESP3 connection gives: redis-py's raw replies are the measure."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ResponseError

from keystead import Store, connect
from keystead.errors import StoreError
from keystead.stores.commands import TABLE
from keystead.testing.oracle import error_for
from keystead.testing.reply_comparison import shown
from tests.servers import Server

# Every command of the table, in every form whose reply has a shape of its own. They run in this order.
SESSION: list[tuple[str | bytes | int | float, ...]] = [
    ("SET", "s", "1"),
    ("SET", "s", "2", "NX"),
    ("SET", "s", "3", "XX", "GET"),
    ("SET", "new", "3", "GET"),
    ("SET", "s", "4", "KEEPTTL"),
    ("GET", "s"),
    ("GET", "none"),
    ("GETEX", "s", "PERSIST"),
    ("GETEX", "none"),
    ("MGET", "s", "none", "s"),
    ("INCRBY", "n", 5),
    ("DECRBY", "n", 7),
    ("INCRBY", "n", 2**62),
    ("GETDEL", "n"),
    ("GETDEL", "none"),
    ("EXISTS", "s", "s", "none"),
    ("EXPIRE", "s", 100),
    ("EXPIRE", "none", 100),
    ("PEXPIRE", "s", 100_000, "XX"),
    ("PEXPIREAT", "s", 4_102_444_800_000),
    ("PERSIST", "s"),
    ("PERSIST", "s"),
    ("PTTL", "s"),
    ("PTTL", "none"),
    ("PEXPIRETIME", "s"),
    ("PEXPIRETIME", "none"),
    ("TYPE", "s"),
    ("TYPE", "none"),
    ("HSET", "h", "f", "1", "g", ""),
    ("HSETNX", "h", "f", "2"),
    ("HGET", "h", "f"),
    ("HGET", "h", "none"),
    ("HMGET", "h", "f", "none"),
    ("HGETALL", "h"),
    ("HGETALL", "none"),
    ("HLEN", "h"),
    ("HEXISTS", "h", "f"),
    ("HINCRBY", "h", "f", 2),
    ("HDEL", "h", "g", "none"),
    ("SADD", "m", "a", "b", "c"),
    ("SREM", "m", "c", "d"),
    ("SMEMBERS", "m"),
    ("SMEMBERS", "none"),
    ("SISMEMBER", "m", "a"),
    ("SCARD", "m"),
    ("ZADD", "z", 1, "a", 2.5, "b", "inf", "c", "-inf", "d", 1e308, "e", 0.1, "f", 1e21, "g"),
    ("ZADD", "z", "CH", 2, "a"),
    ("ZADD", "z", "INCR", 1.5, "a"),
    ("ZADD", "z", "NX", "INCR", 1, "a"),
    ("ZSCORE", "z", "a"),
    ("ZSCORE", "z", "c"),
    ("ZSCORE", "z", "none"),
    ("ZMSCORE", "z", "d", "none", "e", "f", "g"),
    ("ZMSCORE", "none", "a"),
    ("ZCARD", "z"),
    ("ZCOUNT", "z", "(1", "inf"),
    ("ZRANK", "z", "a"),
    ("ZRANK", "z", "none"),
    ("ZREVRANK", "z", "a"),
    ("ZRANGE", "z", 0, -1),
    ("ZRANGE", "z", 0, -1, "WITHSCORES"),
    ("ZRANGE", "z", "-inf", "inf", "BYSCORE", "LIMIT", 1, 2, "WITHSCORES"),
    ("ZRANGE", "z", 1, 0, "WITHSCORES"),
    ("ZPOPMIN", "z"),
    ("ZPOPMIN", "z", 2),
    ("ZPOPMIN", "z", 0),
    ("ZPOPMIN", "none"),
    ("ZPOPMIN", "none", 2),
    ("ZREM", "z", "a", "none"),
    ("ZREMRANGEBYSCORE", "z", "inf", "inf"),
    ("ZREMRANGEBYRANK", "z", 0, -1),
    ("RPUSH", "l", "b", "c"),
    ("LPUSH", "l", "a", "a"),
    ("LRANGE", "l", 0, -1),
    ("LRANGE", "none", 0, -1),
    ("LLEN", "l"),
    ("LINDEX", "l", 0),
    ("LINDEX", "l", 9),
    ("LSET", "l", 0, "A"),
    ("LREM", "l", 0, "a"),
    ("LTRIM", "l", 0, 5),
    ("LPOP", "l"),
    ("LPOP", "l", 0),
    ("RPOP", "l", 1),
    ("RPOP", "l"),
    ("LPOP", "none"),
    ("LPOP", "none", 1),
    ("XADD", "x", "1-1", "f", "v", "f", "v"),
    ("XADD", "x", "MAXLEN", 5, "2-*", "f", "v"),
    ("XRANGE", "x", "-", "+"),
    ("XRANGE", "x", "-", "+", "COUNT", 0),
    ("XRANGE", "none", "-", "+"),
    ("XREVRANGE", "x", "+", "-", "COUNT", 1),
    ("XLEN", "x"),
    ("XDEL", "x", "1-1", "9-9"),
    ("XTRIM", "x", "MAXLEN", 0),
    ("XLEN", "x"),
    ("DBSIZE",),
    ("PUBLISH", "nobody", "listens"),
    ("DEL", "s", "none"),
    ("SCAN", 0, "COUNT", 1000, "MATCH", "h", "TYPE", "hash"),
    # errors
    ("INCRBY", "h", 1),
    ("HGET", "x", "f"),
    ("SADD", "h", "a"),
    ("HINCRBY", "h", "f", 2**63 - 1),
    ("LSET", "none", 0, "a"),
    ("XADD", "x", "1-1", "f", "v"),
    ("SET", "h", "x", "GET"),
]
# Their replies are of the moment; their shape is looked at below.
OF_THE_MOMENT = {"TIME"}

URLS = [
    *("redis", "valkey", "sqlite", "memory"),
    "postgres",
    "mariadb",
]


class Raw(redis.asyncio.Redis):
    """redis-py without what it makes of the replies."""

    async def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        return await connection.read_response()


@pytest.fixture
async def raw(redis_server: Server) -> AsyncIterator[Raw]:
    redis_server.ask("FLUSHALL")
    client = Raw(port=redis_server.port, protocol=3)
    try:
        yield client
    finally:
        await client.aclose()


def test_the_session_has_every_command() -> None:
    assert {str(command[0]) for command in SESSION} | OF_THE_MOMENT == set(TABLE)


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path}/keystead.db"
        case "memory":
            yield "memory://"
        case "redis":
            # The measure has database 0 of the same server.
            server: Server = request.getfixturevalue("redis")
            yield f"redis://127.0.0.1:{server.port}/1"
        case name:
            server = request.getfixturevalue(name)
            yield server.url


async def test_every_reply_has_the_shape_of_resp3(raw: Raw, url: str) -> None:
    async with connect(url) as store:
        for command in SESSION:
            assert (command, shown(await ours(store, command))) == (command, shown(await theirs(raw, command)))


async def test_one_batch_has_the_shapes_of_its_parts(raw: Raw, url: str) -> None:
    async with connect(url) as store:
        with pytest.raises(StoreError) as caught:
            await store.run(SESSION)
        assert caught.value.replies is not None
        for command, reply in zip(SESSION, caught.value.replies, strict=True):
            assert (command, shown(reply)) == (command, shown(await theirs(raw, command)))


async def test_an_atomic_step_has_the_shapes_of_its_parts(raw: Raw, url: str) -> None:
    steps = [command for command in SESSION if command[0] not in ("SCAN", "DBSIZE")]
    async with connect(url) as store:
        for command in steps:
            expected = shown(await theirs(raw, command))
            try:
                [reply] = (await store.atomically([command])).replies
            except StoreError as error:
                reply = error
            assert (command, shown(reply)) == (command, expected)


async def test_the_clock_has_the_shape_of_resp3(raw: Raw, url: str) -> None:
    async with connect(url) as store:
        [clock] = await store.run([("TIME",)])
    assert [type(part) for part in clock] == [type(part) for part in await theirs(raw, ("TIME",))]


async def ours(store: Store, command: tuple[Any, ...]) -> Any:
    try:
        return (await store.run([command]))[0]
    except StoreError as error:
        return error


async def theirs(raw: Raw, command: tuple[Any, ...]) -> Any:
    try:
        reply = await raw.execute_command(*command)  # type: ignore[no-untyped-call]
        # redis-py reads a set of RESP3 into a list, for members that cannot be hashed.
        return set(reply) if command[0] == "SMEMBERS" else reply
    except ResponseError as error:
        return error_for(str(error))
