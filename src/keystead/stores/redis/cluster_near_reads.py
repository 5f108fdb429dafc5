"""Near reads in a cluster: each node reports the changes of its own keys. Copies are dropped when a slot moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import NamedTuple

from keystead.stores.commands import Call, Reply
from keystead.stores.near_reads import NearRead, NearReads, ReadNow
from keystead.stores.redis.cluster_nodes import ClusterNodes, slot_of
from keystead.stores.redis.redis_near_reads import RedisNearReads
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings


class _Part(NamedTuple):
    """The reads of a batch that one node answers, and their places in it."""

    near: RedisNearReads
    read: NearRead
    places: list[int]


class ClusterNearReads(NearReads):
    def __init__(self, settings: RedisSettings, nodes: ClusterNodes, run: ReadNow) -> None:
        super().__init__()
        self._settings = settings
        self._nodes = nodes
        self._run = run
        self._by_node: dict[RedisAddress, RedisNearReads] = {}
        self._slots = object()  # another one when slots have moved
        nodes.on_change = self._follow_slots

    def read(self, read: NearRead, bound_s: float) -> list[Reply] | Awaitable[list[Reply]]:
        slots, parts = read.parts or (None, [])
        if slots is not self._slots:
            parts = self._split(read)
            read.parts = self._slots, parts
        answers = [part.near.read(part.read, bound_s) for part in parts]
        if all(type(answer) is list for answer in answers):
            self.hits += 1
            return _merge(read, parts, answers)
        self.misses += 1
        return self._wait(read, parts, answers)

    async def _wait(
        self, read: NearRead, parts: list[_Part], answers: list[list[Reply] | Awaitable[list[Reply]]]
    ) -> list[Reply]:
        waiting = [place for place, answer in enumerate(answers) if not isinstance(answer, list)]
        found = await asyncio.gather(*(answers[place] for place in waiting))  # type: ignore[arg-type]
        for place, answer in zip(waiting, found, strict=True):
            answers[place] = answer
        return _merge(read, parts, answers)  # type: ignore[arg-type]

    def drop(self, keys: Iterable[bytes]) -> None:
        keys = list(keys)
        for near in self._by_node.values():
            near.drop(keys)

    async def close(self) -> None:
        self._nodes.on_change = None
        nears, self._by_node = list(self._by_node.values()), {}
        for near in nears:
            await near.close()

    def _split(self, read: NearRead) -> list[_Part]:
        calls: dict[RedisAddress, list[Call]] = {}
        places: dict[RedisAddress, list[int]] = {}
        for place, call in enumerate(read.calls):
            owner = self._nodes.owners[slot_of(call.args[0])]
            calls.setdefault(owner, []).append(call)
            places.setdefault(owner, []).append(place)
        return [_Part(self._near_to(owner), NearRead(some), places[owner]) for owner, some in calls.items()]

    def _near_to(self, address: RedisAddress) -> RedisNearReads:
        near = self._by_node.get(address)
        if near is None:

            async def locate() -> RedisAddress:
                return address

            # When a slot moves, its keys are deleted here, which is reported. A key that is created at its new owner
            # is not: so that a key does not exist is never kept.
            near = self._by_node[address] = RedisNearReads(
                self._settings, locate, self._nodes.greet, self._run, keeps_missing=False
            )
        return near

    def _follow_slots(self) -> None:
        """Slots have moved: what a node said of them no longer counts, and one without slots is left."""
        self._slots = object()
        owners = set(self._nodes.owners)
        for address, near in list(self._by_node.items()):
            near.drop_all()
            if address not in owners:
                near.leave(f"{address} owns no slots")
                del self._by_node[address]


def _merge(read: NearRead, parts: list[_Part], answers: list[list[Reply]]) -> list[Reply]:
    if len(parts) == 1:
        return answers[0]
    replies: list[Reply] = [None] * len(read.calls)
    for part, answer in zip(parts, answers, strict=True):
        for place, reply in zip(part.places, answer, strict=True):
            replies[place] = reply
    return replies
