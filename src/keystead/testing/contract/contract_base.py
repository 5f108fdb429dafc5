"""The base class of the contract: fixtures, and what a store may refuse."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias

import pytest

from keystead.errors import StoreError
from keystead.stores import Command, Store, connect
from keystead.testing.reply_comparison import replies_of, shown

P = ParamSpec("P")
Test: TypeAlias = Callable[Concatenate[Any, Store, P], Coroutine[Any, Any, None]]

# One command for each kind of value that a store may lack: then it must be an error.
SAMPLES: dict[str, Sequence[str]] = {
    "string": ("SET", "refused", "x"),
    "hash": ("HSET", "refused", "field", "x"),
    "set": ("SADD", "refused", "x"),
    "zset": ("ZADD", "refused", "1", "x"),
    "list": ("RPUSH", "refused", "x"),
    "stream": ("XADD", "refused", "1-1", "field", "x"),
    "channel": ("PUBLISH", "refused", "x"),
}


class Promises:
    """The fixtures of the contract. A store with a URL overrides `url`; any other, `store` and `other`."""

    # The prefix of every key. On a cluster, a hash tag such as `{t}`: an atomic step stays within a slot.
    prefix = b""

    pytestmark = pytest.mark.anyio

    def key(self, name: str | bytes) -> bytes:
        return self.prefix + (name.encode() if isinstance(name, str) else name)

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def url(self) -> str:
        """The URL of a store that is empty at the start of the test."""
        raise NotImplementedError("override the fixture `url`, or `store` and `other`")

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[Store]:
        async with connect(url) as store:
            yield store

    @pytest.fixture
    async def other(self, url: str) -> AsyncIterator[Store | None]:
        """A second connection to the same data; None if a store can have only one."""
        async with connect(url) as store:
            yield store

    async def contents(self, store: Store) -> dict[bytes, Any]:
        """All keys, with kinds, values, and deadlines to the minute."""
        found = {}
        for key in sorted({key async for page in store.scan() for key in page}):
            kind, left, now_ms = await store.run([("TYPE", key), ("PTTL", key), ("TIME",)])
            name, rest = READERS[kind]
            [value] = await store.run([(name, key, *rest)])
            # Tests put all deadlines on the hour: see `hours_ahead`.
            deadline = None if left < 0 else round((int(now_ms[0]) * 1000 + left) / 60_000)
            found[key] = (kind, value, deadline)
        return found


# How to read a whole key of each kind.
READERS: dict[bytes, tuple[str, tuple[str | int, ...]]] = {
    b"string": ("GET", ()),
    b"hash": ("HGETALL", ()),
    b"set": ("SMEMBERS", ()),
    b"zset": ("ZRANGE", (0, -1, "WITHSCORES")),
    b"list": ("LRANGE", (0, -1)),
    b"stream": ("XRANGE", ("-", "+")),
}


def needs(*powers: str) -> Callable[[Test[P]], Test[P]]:
    """The kinds of value and other abilities that a test needs.

    `atomic`: atomic steps over several keys; `atomic key`: over one; `update`: commands that depend on what a key
    holds; `scan`: a list and a count of all keys.

    A store without one of them must refuse it: then the test checks that instead.
    """

    def decorate(test: Test[P]) -> Test[P]:
        @functools.wraps(test)
        async def checked(self: Any, store: Store, *args: P.args, **fixtures: P.kwargs) -> None:
            lacking = [power for power in powers if not _provides(store, power)]
            for power in lacking:
                await _expect_refusal(self, store, power)
            if not lacking:
                await test(self, store, *args, **fixtures)

        return checked  # type: ignore[return-value]  # pytest passes fixtures by name

    return decorate


def _provides(store: Store, power: str) -> bool:
    if power == "atomic":
        return store.guarantees.atomic in ("any keys", "one slot")
    if power == "atomic key":
        return store.guarantees.atomic != "nothing"
    if power == "update":
        return store.guarantees.updates
    if power == "scan":
        return store.guarantees.scans
    return power in store.guarantees.kinds


async def _expect_refusal(promises: Promises, store: Store, power: str) -> None:
    if power == "atomic":
        with pytest.raises(StoreError):
            await store.atomically([("SET", promises.key("refused"), "x"), ("SET", promises.key("too"), "x")])
    elif power == "atomic key":
        with pytest.raises(StoreError):
            await store.atomically([("SET", promises.key("refused"), "x")])
    elif power == "update":
        await _expect_no_updates(promises, store)
    elif power == "scan":
        with pytest.raises(StoreError):
            await anext(store.scan())
        for command in (("SCAN", "0"), ("DBSIZE",)):
            with pytest.raises(StoreError):
                await store.run([command])
    else:
        name, key, *rest = SAMPLES[power]
        with pytest.raises(StoreError):
            await store.run([(name, promises.key(key), *rest)])


async def _expect_no_updates(promises: Promises, store: Store) -> None:
    held, none = promises.key("held"), promises.key("refused")
    await store.run([("SET", held, "1")])
    for key in (held, none):
        refused: list[Command] = [
            *(("SET", key, "2", option) for option in ("NX", "XX", "GET", "KEEPTTL")),
            *(("INCRBY", key, 1), ("DECRBY", key, 1), ("GETDEL", key), ("GETEX", key, "PX", 10), ("PERSIST", key)),
            *((name, key, 10) for name in ("EXPIRE", "PEXPIRE", "PEXPIREAT")),
        ]
        for command in refused:
            with pytest.raises(StoreError):
                await store.run([command])
    assert await store.run([("MGET", held, none), ("PTTL", held)]) == [[b"1", None], -1]


async def expect(store: Store, *exchanges: tuple[Command, Any]) -> None:
    """Send the commands as one batch, and compare each reply by value and type. A class means such an error."""
    replies = await replies_of(store, [command for command, _ in exchanges])
    got = [(command, shown(reply)) for (command, _), reply in zip(exchanges, replies, strict=True)]
    assert got == [(command, _comparable(reply)) for command, reply in exchanges]


def _comparable(reply: Any) -> Any:
    return f"error {reply.code}" if isinstance(reply, type) and issubclass(reply, StoreError) else shown(reply)


async def expect_count(store: Store, keys: int) -> None:
    """Check the number of keys, if the store can count them."""
    if store.guarantees.scans:
        await expect(store, (("DBSIZE",), keys))


async def clock_ms(store: Store) -> int:
    """The clock of the store."""
    [[seconds, micros]] = await store.run([("TIME",)])
    return int(seconds) * 1000 + int(micros) // 1000
