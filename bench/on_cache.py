"""The cache beside cashews, on one real Redis: hits, and misses after an expiry.

Both sides cache the same membership. Keystead stores JSON and validates a model on read; cashews pickles, by default.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from cashews import Cache as Cashews
from pydantic import BaseModel

from bench.measure import (
    TASKS,
    Contender,
    Effort,
    Match,
    Peer,
    Play,
    Progress,
    Row,
    Target,
    alone,
    compare,
    random_keys,
    together,
)
from keystead import Keyspace, Value, after, connect
from keystead.parts.cache import Cache, LoadMarkers
from tests import servers

KEYS: Final = 2_000
REQUESTS: Final = 1_000
CLIENTS: Final = 4  # with separate connections, like separate processes
PROVIDER_S: Final = 0.005

TWICE: Final = Target("at least", 2)
ONCE: Final = Target("at most", 1)


class Membership(BaseModel):
    userId: str  # noqa: N815 - fields are named as they are stored
    email: str
    fullName: str  # noqa: N815
    plan: str
    isActive: bool  # noqa: N815
    pledgeAmountCents: int  # noqa: N815
    cachedAt: int  # noqa: N815


class BenchKeys(Keyspace):
    """Memberships from the provider."""

    membership = Value("membership:{id}", Membership, lifetime=after("1h", jitter="10%"), role="cache", tag="id")
    mark = LoadMarkers("membership:{id}:mark", nothing="1m", tag="id")
    stale = Value("membership:{id}:stale", Membership, lifetime=after("1d"), role="cache", tag="id")


def membership(id: str) -> Membership:
    return Membership(
        userId=id,
        email=f"{id}@example.org",
        fullName="Ann Example",
        plan="Premium",
        isActive=True,
        pledgeAmountCents=500,
        cachedAt=1_700_000_000_000,
    )


class Ours:
    """One client of Keystead."""

    def __init__(self, keys: BenchKeys) -> None:
        self._keys = keys
        self._cache = Cache(keys.membership, keys.mark, stale=keys.stale)

    async def get(self, id: str, load: Callable[[], Awaitable[Membership]]) -> Membership | None:
        return await self._cache.get(self._keys.membership(id), load)

    async def drop(self, id: str) -> None:
        await self._cache.invalidate(self._keys.membership(id))


class Theirs:
    """One client of cashews, with and without its lock, which is needed for one load across processes."""

    def __init__(self, cache: Cashews) -> None:
        self._cache = cache
        self._load: Callable[[], Awaitable[Membership]] | None = None

        async def load(id: str) -> Membership:
            if self._load is None:
                raise RuntimeError("a cached entry is missing")
            return await self._load()

        self.cached = cache(ttl="1h", key="cashews:{id}")(load)
        self.locked = cache(ttl="1h", key="cashews:{id}", lock=True)(load)

    async def get(self, id: str, load: Callable[[], Awaitable[Membership]]) -> Any:
        self._load = load
        return await self.locked(id)

    async def plain(self, id: str) -> None:
        if await self._cache.get(f"cashews:{id}") is None:
            raise RuntimeError("a cached entry is missing")

    async def fill(self, id: str) -> None:
        await self._cache.set(f"cashews:{id}", membership(id), expire="1h")

    async def drop(self, id: str) -> None:
        await self._cache.delete(f"cashews:{id}")


async def run(effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    with servers.redis() as server:
        async with connect(server.url) as store, connect(server.url) as second:
            ours = [Ours(BenchKeys(store if n % 2 else second)) for n in range(CLIENTS)]
            peers = [Cashews() for _ in range(CLIENTS)]
            for peer in peers:
                peer.setup(server.url)
            theirs = [Theirs(peer) for peer in peers]
            try:
                await _fill(ours[0], theirs[0])
                rows: list[Row] = []
                for match in _matches(ours, theirs):
                    rows += await compare("cache on redis", match, effort, progress)
                requests = REQUESTS // 10 if quick else REQUESTS
                return [
                    *rows,
                    await _calls("keystead", ours, requests, ONCE),
                    await _calls("cashews with its lock", theirs, requests, None),
                ]
            finally:
                for peer in peers:
                    await peer.close()


async def _fill(ours: Ours, theirs: Theirs) -> None:
    for number in range(KEYS):
        id = _id(number)

        async def load(id: str = id) -> Membership:
            return membership(id)

        await ours.get(id, load)
        await theirs.fill(id)
    # Both sides must hit: reads of missing entries are fast, but meaningless.
    wanted = membership(_id(7))
    if await ours.get(_id(7), _unloaded) != wanted or await theirs.cached(_id(7)) != wanted:
        raise RuntimeError("the membership that was loaded is not the one that is read")


def _id(number: int) -> str:
    return f"{number:07d}"


def _ids() -> Iterator[str]:
    return (key.rpartition(":")[2] for key in random_keys(KEYS))


async def _unloaded() -> Membership:
    raise RuntimeError("a cached entry is missing")


def _matches(ours: list[Ours], theirs: list[Theirs]) -> list[Match]:
    def get(id: str) -> Awaitable[object]:
        return ours[0].get(id, _unloaded)

    return [
        Match(
            "32 tasks, get of what is cached",
            Contender("keystead", together(get, _ids())),
            [
                Peer(Contender("cashews, @cache(ttl=…, key=…)", together(theirs[0].cached, _ids())), target=TWICE),
                Peer(Contender("cashews, cache.get(key)", together(theirs[0].plain, _ids())), target=TWICE),
            ],
        ),
        Match(
            "1 task, get of what is cached",
            Contender("keystead", alone(get, _ids())),
            [Peer(Contender("cashews, @cache(ttl=…, key=…)", alone(theirs[0].cached, _ids())))],
        ),
        Match(
            f"{TASKS} requests from 2 clients for what was dropped, a provider that takes {PROVIDER_S * 1000:g} ms",
            Contender("keystead", _stampede(ours[:2])),
            [Peer(Contender("cashews, lock=True", _stampede(theirs[:2])))],
        ),
    ]


async def _slow() -> Membership:
    await asyncio.sleep(PROVIDER_S)
    return membership("7")


def _stampede(clients: list[Any]) -> Play:
    """A turn of requests, in groups of `TASKS` for one missing entry."""
    numbers = itertools.count()

    async def play(operations: int) -> None:
        for _ in range(operations // TASKS):
            id = f"dropped{next(numbers) % 100}"
            await clients[0].drop(id)
            await asyncio.gather(*(clients[n % len(clients)].get(id, _slow) for n in range(TASKS)))

    return play


async def _calls(name: str, clients: list[Any], requests: int, target: Target | None) -> Row:
    """The number of provider calls when this many requests ask for one expired entry."""
    calls = 0

    async def load() -> Membership:
        nonlocal calls
        calls += 1
        return await _slow()

    await clients[0].drop("expired")
    await asyncio.gather(*(clients[n % len(clients)].get("expired", load) for n in range(requests)))
    what = f"calls of the provider, {requests:,} requests from {len(clients)} clients, {name}"
    return Row("cache on redis", what, calls, "calls", target)
