"""Shared by the outbox tests: an empty store of each kind, a frozen clock, and a receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from keystead import Counter, Keyspace, Store, never
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxMessage, OutboxPolicy
from tests.parts.schedule.conftest import Time, until
from tests.schema.conftest import redis_server, store, store_url, valkey_cluster, valkey_server

__all__ = ["everywhere", "redis_server", "store", "store_url", "until", "valkey_cluster", "valkey_server"]

everywhere = pytest.mark.parametrize("store_url", ["memory", "sqlite", "redis", "cluster"], indirect=True)
each_way = pytest.mark.parametrize("store_url", ["memory", "cluster"], indirect=True)  # with one step, and with slots
here = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
in_a_cluster = pytest.mark.parametrize("store_url", ["cluster"], indirect=True)

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
LINGERS = 4 * MINUTE  # longer than an empty queue keeps its mark in a cluster


class AppKeys(Keyspace):
    """The records that messages report."""

    total = Counter("app:total:{id}", lifetime=never("deleted by hand"), tag="id", doc="counts")


class Receiver:
    """Receives messages, or misbehaves on request."""

    def __init__(self) -> None:
        self.got: list[OutboxMessage] = []
        self.tried: list[OutboxMessage] = []
        self.raises: Callable[[OutboxMessage], BaseException | None] = lambda message: None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.at_once = 0
        self.most_at_once = 0

    async def __call__(self, message: OutboxMessage) -> None:
        self.tried.append(message)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.may_answer.wait()
        finally:
            self.at_once -= 1
        error = self.raises(message)
        if error is not None:
            raise error
        self.got.append(message)

    def fails(self) -> None:
        self.raises = lambda message: ConnectionError("https://example.com/secret")

    def works(self) -> None:
        self.raises = lambda message: None

    def numbers(self, name: str = "a") -> list[int]:
        return [message.payload["n"] for message in self.got if message.name == name]


def outbox_of(store: Store, time: Time, receiver: Any, **policy: Any) -> Outbox:
    """An outbox as in a separate process."""
    return Outbox(OutboxKeys(store, now_ms=time), receiver, policy=OutboxPolicy(**policy), wait=time.wait)


async def add(outbox: Outbox, store: Store, *numbers: int, topic: str = "counter", name: str = "a") -> None:
    """Add messages, each in one step with its change."""
    keys = AppKeys(store)
    for number in numbers:
        await outbox.announce(topic, name)
        assert await keys.atomically(keys.total(name).increment(), *outbox.add(topic, name, {"n": number}))


async def let_the_lease_run_out(store: Store, topic: str = "counter", name: str = "a") -> None:
    """Simulate the expiry of a lease."""
    await store.run([("DEL", OutboxKeys(store).lease(topic, name).key)])


async def keys_in(store: Store) -> set[str]:
    return {key.decode() async for page in store.scan("outbox:*") for key in page}


async def waiting_in(store: Store, topic: str = "counter", name: str = "a") -> list[Any]:
    return [message.payload["n"] for message in await OutboxKeys(store).queue(topic, name).items()]


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()
