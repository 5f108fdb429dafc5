"""Reads and writes of concurrent callers, shared in bulk requests.

Reads of one turn of the event loop share a request for every 100 keys. Writes share one, too, and a key is written at
most once in each `write_interval`, as Cloudflare requires: a further write waits, and if several wait for the same key,
only the last is sent. To readers it looks as if the others had been overwritten at once; each caller is answered when
its own value, or a later one, was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.stores.cloudflare_kv.entry_format import deadline_of, needs_bytes, pair_of
from keystead.stores.cloudflare_kv.rest_api import AnswerTooLarge, CloudflareApi
from keystead.stores.sql.string_slot import Item

READ_KEYS = 100  # of one request
WRITE_PAIRS = 10_000
WRITE_BYTES = 50_000_000  # of values; a request may have 100 MB, and JSON may double a text
_REMEMBERED = 10_000  # keys, before the times of old writes are dropped

T = TypeVar("T")


class SharedReads:
    def __init__(self, api: CloudflareApi) -> None:
        self._api = api
        self._waiting: dict[str, asyncio.Future[Item | None]] = {}
        self._deadline = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, names: Sequence[str], deadline: float) -> list[Item | None]:
        """The entry of each name, expired or not; None: there is none. Raises StoreUnavailable or StoreRefused."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._deadline = deadline
            loop.call_soon(self._flush)
        self._deadline = max(self._deadline, deadline)
        futures = []
        for name in names:
            future = self._waiting.get(name)
            if future is None:
                future = self._waiting[name] = loop.create_future()
            futures.append(asyncio.shield(future))  # others may wait for it, too
        return list(await asyncio.gather(*futures))

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        names = list(waiting)
        for start in range(0, len(names), READ_KEYS):
            some = {name: waiting[name] for name in names[start : start + READ_KEYS]}
            task = asyncio.create_task(self._read(some, self._deadline))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read(self, waiting: dict[str, asyncio.Future[Item | None]], deadline: float) -> None:
        try:
            found = await self._fetch(list(waiting), deadline)
        except KeysteadError as error:
            for future in waiting.values():
                fail(future, error)
            return
        for name, future in waiting.items():
            end(future, found[name])

    async def _fetch(self, names: list[str], deadline: float) -> dict[str, Item | None]:
        body = {"keys": names, "type": "text", "withMetadata": True}
        try:
            answer = await self._api.ask("POST", "/bulk/get", deadline, body=body)
        except AnswerTooLarge:
            if len(names) == 1:
                return {names[0]: await self._fetch_alone(names[0], deadline)}
            middle = len(names) // 2
            halves = (self._fetch(names[:middle], deadline), self._fetch(names[middle:], deadline))
            first, second = await asyncio.gather(*halves)
            return first | second
        values = _field(answer, "result", "values")
        found: dict[str, Item | None] = {}
        again = []
        for name in names:
            entry = values.get(name)
            if not isinstance(entry, dict) or not isinstance(entry.get("value"), str):
                found[name] = None
            elif needs_bytes(entry["value"], entry.get("metadata")):
                again.append(self._fetch_bytes(name, entry, deadline))
            else:
                deadline_ms = deadline_of(entry.get("metadata"), entry.get("expiration"))
                found[name] = Item(entry["value"].encode("utf-8", "surrogatepass"), deadline_ms)
        return found | dict(await asyncio.gather(*again))

    async def _fetch_bytes(self, name: str, entry: dict[str, Any], deadline: float) -> tuple[str, Item | None]:
        """The value of an entry that is not text. If it was replaced meanwhile, it may have the earlier deadline."""
        value = await self._api.read_bytes(f"/values/{quote(name, safe='')}", deadline)
        at_ms = deadline_of(entry.get("metadata"), entry.get("expiration"))
        return name, None if value is None else Item(value[0], at_ms)

    async def _fetch_alone(self, name: str, deadline: float) -> Item | None:
        """An entry that is too large for a bulk request."""
        value = await self._api.read_bytes(f"/values/{quote(name, safe='')}", deadline)
        if value is None:
            return None
        answer = await self._api.ask("GET", f"/metadata/{quote(name, safe='')}", deadline)
        expires_s = int(value[1]) if value[1] and value[1].isdigit() else None
        return Item(value[0], deadline_of(answer.get("result"), expires_s))


@dataclass(eq=False, slots=True)
class Write:
    """One caller's write of one key: an item, or None to delete it."""

    name: str
    item: Item | None
    future: asyncio.Future[None]
    deadline: float
    sent: bool = False


@dataclass(slots=True)
class _Batch:
    """The writes of one request, by name: the last one of each is sent, the others are overwritten by it."""

    writes: dict[str, list[Write]] = field(default_factory=dict)
    size: int = 0

    def has_room(self, size: int) -> bool:
        return not self.writes or (len(self.writes) < WRITE_PAIRS and self.size + size <= WRITE_BYTES)


class SharedWrites:
    def __init__(self, api: CloudflareApi, clock: Callable[[], int], interval_s: float) -> None:
        self._api = api
        self._clock = clock
        self._interval_s = interval_s
        self._waiting: dict[str, list[Write]] = {}
        self._in_flight: set[str] = set()
        self._free_at: dict[str, float] = {}  # when a key may be written again, on the clock of the event loop
        self._timer: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, name: str, item: Item | None, deadline: float) -> Write:
        """Write it soon; the future of the result is done when it was written."""
        write = Write(name, item, asyncio.get_running_loop().create_future(), deadline)
        self._waiting.setdefault(name, []).append(write)
        self._schedule(None)
        return write

    async def close(self) -> None:
        for write in (write for writes in self._waiting.values() for write in writes):
            fail(write.future, StoreUnavailable("the store was closed before this was written"))
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _schedule(self, at: float | None) -> None:
        """Flush at this time, or in the next turn."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_soon(self._flush) if at is None else loop.call_at(at, self._flush)

    def _flush(self) -> None:
        now = asyncio.get_running_loop().time()
        later: list[float] = []
        puts: dict[str, list[Write]] = {}
        deletes: dict[str, list[Write]] = {}
        for name, writes in list(self._waiting.items()):
            # A caller that timed out was told "not sent", which has to stay true.
            wanted = [write for write in writes if not write.future.done()]
            free_at = self._free_at.get(name, 0.0)
            if wanted and name not in self._in_flight and free_at > now:
                later.append(free_at)
            if wanted and (name in self._in_flight or free_at > now):
                self._waiting[name] = wanted
                continue
            del self._waiting[name]
            if wanted:
                (deletes if wanted[-1].item is None else puts)[name] = wanted
        for batch in _batches(puts):
            self._start(batch.writes, self._put)
        for batch in _batches(deletes):
            self._start(batch.writes, self._delete)
        if len(self._free_at) > _REMEMBERED:
            self._free_at = {name: at for name, at in self._free_at.items() if at > now}
        if later:
            self._schedule(min(later))

    def _start(self, writes: dict[str, list[Write]], send: Callable[..., Any]) -> None:
        for some in writes.values():
            for write in some:
                write.sent = True
        self._in_flight |= writes.keys()
        task = asyncio.create_task(self._run(writes, send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, writes: dict[str, list[Write]], send: Callable[..., Any]) -> None:
        deadline = max(write.deadline for some in writes.values() for write in some)
        error: KeysteadError | None = None
        failed: set[str] = set()
        try:
            answer = await send(writes, deadline)
            failed = set(_field(answer, "result", default={}).get("unsuccessful_keys") or ())
        except KeysteadError as problem:
            error = problem
        finally:
            self._in_flight -= writes.keys()
        free_at = asyncio.get_running_loop().time() + self._interval_s
        for name, some in writes.items():
            self._free_at[name] = free_at
            why = error or (StoreUnavailable(_UNWRITTEN, "unknown") if name in failed else None)
            for write in some:
                if why is None:
                    end(write.future, None)
                else:
                    fail(write.future, why)
        if self._waiting:
            self._schedule(None)

    async def _put(self, writes: dict[str, list[Write]], deadline: float) -> dict[str, Any]:
        now_ms = self._clock()
        pairs = [pair_of(name, some[-1].item, now_ms) for name, some in writes.items() if some[-1].item is not None]
        return await self._api.ask("PUT", "/bulk", deadline, body=pairs, writes=True)

    async def _delete(self, writes: dict[str, list[Write]], deadline: float) -> dict[str, Any]:
        return await self._api.ask("POST", "/bulk/delete", deadline, body=list(writes), writes=True)


_UNWRITTEN = "Cloudflare reports that this key was not written completely; write it again"


def _batches(writes: dict[str, list[Write]]) -> Iterator[_Batch]:
    batch = _Batch()
    for name, some in writes.items():
        item = some[-1].item
        size = 0 if item is None else len(item.value)
        if not batch.has_room(size):
            yield batch
            batch = _Batch()
        batch.writes[name] = some
        batch.size += size
    if batch.writes:
        yield batch


def _field(answer: Any, *names: str, default: Any = None) -> dict[str, Any]:
    """A nested object of an answer. Raises StoreUnavailable if it is something else."""
    for name in names:
        answer = answer.get(name) if isinstance(answer, dict) else None
    if answer is None and default is not None:
        answer = default
    if not isinstance(answer, dict):
        raise StoreUnavailable(f"Cloudflare's answer has no {'.'.join(names)}; check the option api")
    return answer


def end(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def fail(future: asyncio.Future[Any], error: KeysteadError) -> None:
    """End with a copy of the error, since `run` attaches the replies of its caller to it."""
    if not future.done():
        future.set_exception(copy(error).with_traceback(None))
        with suppress(BaseException):
            future.exception()  # retrieved: a caller that gave up does not want asyncio's warning
