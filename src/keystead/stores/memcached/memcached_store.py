"""The store on Memcached: `run`, and `atomically` on one key."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Self, cast

from keystead.errors import CrossSlot, StoreClosed, StoreError, StoreUnavailable, UnknownCommand
from keystead.stores.commands import Call, Reply
from keystead.stores.memcached.compare_and_set import HANDLERS, CompareAndSetQueue, Part, Replies
from keystead.stores.memcached.item_format import HEADER_BYTES, name_of
from keystead.stores.memcached.memcached_link import ITEM_OVERHEAD_BYTES, MemcachedLink
from keystead.stores.memcached.memcached_settings import MemcachedAddress, MemcachedSettings
from keystead.stores.split_by_key import join_replies, split_by_key
from keystead.stores.sql.string_slot import Slot
from keystead.stores.store_contract import Guarantees, Message, Outcome, Planned, Store

USUAL_ITEM_BYTES = 1 << 20


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class MemcachedStore(Store):
    """Strings on one or more Memcached servers, which may evict any of them at any time.

    Each key lives on one server only, chosen by its name (rendezvous hashing). While that server is down, its keys are
    StoreUnavailable: a copy on another server would be stale when it is back. Time is the clock of this process,
    because a server only knows seconds. `clock`: for tests.
    """

    def __init__(self, settings: MemcachedSettings, *, clock: Callable[[], int] = wall_ms) -> None:
        self.settings = settings
        self.url = settings.url
        self.guarantees = _guarantees(USUAL_ITEM_BYTES - ITEM_OVERHEAD_BYTES - HEADER_BYTES)
        self._clock = clock
        self._servers: dict[MemcachedAddress, tuple[MemcachedLink, CompareAndSetQueue]] = {}

    @classmethod
    def of(cls, url: str) -> Self:
        return cls(MemcachedSettings.of(url))

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        """`Store.open`: all servers must be reachable. Opening an open store does nothing."""
        if self._servers:
            return
        self._loop = asyncio.get_running_loop()
        links = [MemcachedLink(self.settings, address) for address in self.settings.addresses]
        opened = await asyncio.gather(*(link.open() for link in links), return_exceptions=True)
        for problem in opened:
            if problem is not None:
                for link in links:
                    await link.close()
                raise problem
        self._servers = {link.address: (link, CompareAndSetQueue(link, self._clock)) for link in links}
        self.guarantees = _guarantees(min(link.value_max_bytes for link in links))

    async def close(self) -> None:
        servers, self._servers = self._servers, {}
        for link, _ in servers.values():
            await link.close()
        for _, queue in servers.values():
            await queue.close()

    # --- supported verbs -----------------------------------------------------------------------------------

    def _replies(self, calls: list[Call]) -> Awaitable[list[Reply]]:
        if len(calls) == 1 and not calls[0].spec.writes and len(calls[0].keys) == 1 and calls[0].spec.name in HANDLERS:
            # The fast path: a single read of one key.
            deadline, name = self._deadline(), name_of(self.settings.prefix, calls[0].keys[0])
            return self._queue_of(name).read_one(name, calls, deadline)
        return self._run(calls)

    async def _run(self, calls: list[Call]) -> list[Reply]:
        """Split the commands by key: each key has one part, in the order of the calls.

        So the order of a batch holds for each key, but not between keys, which may be on different servers.
        """
        deadline = self._deadline()
        pieces, wanted = split_by_key(calls, HANDLERS, self._run_keyless, _unsupported)
        parts = [self._part(key, [call for _, _, call in each], deadline) for key, each in wanted.items()]
        for each, replies in zip(wanted.values(), await self._serve(parts, deadline), strict=True):
            for (place, at, call), reply in zip(each, _spread(replies, len(each)), strict=True):
                pieces[place][at] = call.blame(reply) if isinstance(reply, UnknownCommand) else reply
        return [join_replies(call, some) for call, some in zip(calls, pieces, strict=True)]

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        for step in steps:
            if step.call.spec.name not in HANDLERS:
                raise _unsupported(step.call)
        keys = {key for step in steps for key in step.call.keys}
        if len(keys) > 1:
            raise steps[-1].call.blame(
                CrossSlot("an atomic step on Memcached takes one key; put related data into one value")
            )
        deadline = self._deadline()
        # A step that only reads the time has no key, and runs on any server.
        [outcome] = await self._serve([self._part(next(iter(keys), b""), steps, deadline)], deadline)
        if isinstance(outcome, StoreError):
            raise outcome
        return cast("Outcome", outcome)

    # --- unsupported verbs --------------------------------------------------------------------------------

    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        raise UnknownCommand("Memcached cannot list its keys; use a store that can, or maintain a list of them", "SCAN")

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        raise UnknownCommand("Memcached has no pub/sub; subscribe on a store that has", "SUBSCRIBE")

    # --- parts ---------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        if not self._servers:
            raise self._closed_error()
        return self._loop.time() + self.settings.timeout

    def _part(self, key: bytes, work: list[Call] | list[Planned], deadline: float) -> Part:
        return Part(name_of(self.settings.prefix, key), work, deadline, self._loop.create_future())

    def _queue_of(self, name: bytes) -> CompareAndSetQueue:
        if len(self._servers) == 1:
            return next(iter(self._servers.values()))[1]
        best = max(
            self._servers, key=lambda address: hashlib.blake2b(b"%b %b" % (str(address).encode(), name)).digest()
        )
        return self._servers[best][1]

    async def _serve(self, parts: list[Part], deadline: float) -> list[Replies | StoreError]:
        """The result or the error of each part."""
        reading: dict[CompareAndSetQueue, list[Part]] = {}
        for part in parts:
            queue = self._queue_of(part.name)
            if part.reads_only:
                reading.setdefault(queue, []).append(part)
            else:
                queue.submit(part)
        try:
            await asyncio.gather(*(_read(queue, some, deadline) for queue, some in reading.items()))
            waiting = [part.future for part in parts if not part.future.done()]
            if waiting:
                await asyncio.wait(waiting, timeout=max(deadline - self._loop.time(), 0))
            return [self._result(part) for part in parts]
        finally:
            for part in parts:  # a round that has not started skips cancelled parts
                part.future.cancel()

    def _result(self, part: Part) -> Replies | StoreError:
        future = part.future
        if not future.done():
            outcome = "unknown" if part.sent else "not-sent"
            return StoreUnavailable(f"{self.url} did not answer within {self.settings.timeout:g} s", outcome)  # type: ignore[arg-type]
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, StoreError):
            return error
        raise error

    def _run_keyless(self, call: Call) -> Reply:
        slot = Slot(None, 0)
        slot.now_ms = self._clock()
        return HANDLERS[call.spec.name](slot, call)


def _guarantees(value_max_bytes: int) -> Guarantees:
    return Guarantees(
        kinds=frozenset({"string"}),
        atomic="one key",
        durability="memory",
        # Even with -M: a full server drops the old value together with the new one.
        evicts=True,
        scans=False,
        value_max_bytes=value_max_bytes,
    )


def _unsupported(call: Call) -> UnknownCommand:
    error = UnknownCommand("Memcached has only strings, no key listing and no pub/sub; use another store for this")
    call.blame(error)
    return error


async def _read(queue: CompareAndSetQueue, parts: list[Part], deadline: float) -> None:
    try:
        await queue.read(parts, deadline)
    except (StoreUnavailable, StoreClosed) as error:
        for part in parts:
            part.fail(error)


def _spread(replies: Replies | StoreError, count: int) -> list[Reply]:
    return replies if isinstance(replies, list) else [replies] * count
