"""Tasks that constantly write and read through a store, and record the acknowledgements."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from keystead.errors import StoreUnavailable
from keystead.stores import Store

WRITERS, COUNTERS = 32, 8
BREATH_S = 0.004  # between two calls of a task: some 5,000 calls a second, so that two cores can also run a cluster


class Load:
    """32 tasks that set keys nobody else sets, 8 that add to a counter of their own.

    StoreUnavailable is noted, and any other error raised.
    `named` makes a key, so that a cluster can be loaded in all its slots or in one.
    """

    def __init__(self, store: Store, named: Callable[[str], str] = str) -> None:
        self.acknowledged: dict[str, tuple[bytes, float]] = {}  # key -> value, when
        self.doubtful: set[str] = set()  # keys whose write had the outcome "unknown"
        self.unsent: set[str] = set()
        self.counted: dict[str, list[float]] = {}  # counter -> when each addition was acknowledged
        self.perhaps_counted: Counter[str] = Counter()
        self.sentences: set[str] = set()
        self._store = store
        self._named = named
        self._over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Loads the store while the block runs; an error of a task, such as a wrong reply, is raised at its end."""
        writers = [self._write(i) for i in range(WRITERS)]
        tasks = [asyncio.create_task(task) for task in (*writers, *(self._count(i) for i in range(COUNTERS)))]
        try:
            yield
        finally:
            self._over = True
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def acknowledged_since(self, moment: float) -> list[str]:
        return [key for key, (_, when) in self.acknowledged.items() if when > moment]

    async def _write(self, task: int) -> None:
        chance = random.Random(task)
        own: list[str] = []
        number = 0
        while not self._over:
            number += 1
            key = self._named(f"w:{task}:{number}")
            value = f"{key} {chance.random()}".encode()
            try:
                assert await self._store.run([("SET", key, value)]) == [b"OK"]
                self.acknowledged[key] = (value, time.monotonic())
                own.append(key)
            except StoreUnavailable as error:
                self._note(key, error)
            if own and number % 3 == 0:
                await self._look(chance.choice(own))
            await asyncio.sleep(BREATH_S)

    async def _look(self, key: str) -> None:
        try:
            [value] = await self._store.run([("GET", key)])
        except StoreUnavailable as error:
            self.sentences.add(str(error))
            return
        # Whether a key that is gone may be gone is judged when all is over.
        assert value in (self.acknowledged[key][0], None), f"{key} holds {value!r}"

    async def _count(self, task: int) -> None:
        key = self._named(f"c:{task}")
        acknowledged = self.counted[key] = []
        while not self._over:
            try:
                [total] = await self._store.run([("INCRBY", key, 1)])
            except StoreUnavailable as error:
                self.sentences.add(str(error))
                if error.outcome == "unknown":
                    self.perhaps_counted[key] += 1
            else:
                acknowledged.append(time.monotonic())
                assert 0 < total <= len(acknowledged) + self.perhaps_counted[key], f"{key} was counted twice"
            await asyncio.sleep(BREATH_S)

    def _note(self, key: str, error: StoreUnavailable) -> None:
        self.sentences.add(str(error))
        (self.doubtful if error.outcome == "unknown" else self.unsent).add(key)

    async def verify(self, store: Store, lost_from: float, lost_until: float, may_lose: Callable[[str], bool]) -> int:
        """Everything that was acknowledged is there, but for what asynchronous replication may lose: what was
        acknowledged between the two moments, under keys that `may_lose`. Returns how many were lost."""
        lost = 0
        stored = await _stored(store, [*self.acknowledged, *self.unsent])
        for key, (value, when) in self.acknowledged.items():
            if stored[key] is None and lost_from <= when <= lost_until and may_lose(key):
                lost += 1
            else:
                assert stored[key] == value, f"{key} was acknowledged {when - lost_from:.3f} s after what may be lost"
        assert [key for key in self.unsent if stored[key] is not None] == [], "these were said not to be sent"
        for key, moments in self.counted.items():
            [total] = await store.run([("GET", key)])
            most = len(moments) + self.perhaps_counted[key]
            least = sum(not (lost_from <= when <= lost_until and may_lose(key)) for when in moments)
            assert least <= int(total or 0) <= most, key
        return lost

    def summary(self, lost: int) -> str:
        counts = {"acknowledged": len(self.acknowledged), "lost": lost, "unknown": len(self.doubtful)}
        return ", ".join(f"{count} {what}" for what, count in {**counts, "not sent": len(self.unsent)}.items())


async def _stored(store: Store, keys: list[str]) -> dict[str, bytes | None]:
    stored: dict[str, bytes | None] = {}
    for start in range(0, len(keys), 500):
        page = keys[start : start + 500]
        stored |= zip(page, await store.run([("GET", key) for key in page]), strict=True)
    return stored
