"""Feeds: a message log for each reader, which can be followed live and resumed from any position."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from keystead.errors import BadArgument, BadDeclaration, BadValue, KeysteadError, StoreUnavailable, Unreadable
from keystead.schema import Bound, Log, Operation
from keystead.schema.kinds import ChannelKey, LogEntry, LogKey
from keystead.schema.unreadable import log_unreadable

T = TypeVar("T")

_log = logging.getLogger("keystead.feed")

PAGE: Final = 100
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class FeedItem(NamedTuple, Generic[T]):
    """A message and its place (sequence number): starts at 1, without gaps."""

    place: int
    item: T


class Missed(NamedTuple):
    """Messages before this place were trimmed from the log before they were read."""

    first: int


class Pause(NamedTuple):
    """No message for a while: time to send a heartbeat."""


WasLost: TypeAlias = Callable[[int, int], Awaitable[bool]]
Followed: TypeAlias = "list[FeedItem[T]] | Missed | Pause"


class Feed(Generic[T]):
    """Streams messages to readers, with resume after a disconnect.

        class AppKeys(Keyspace):
            log = Log("notices:{user}:log", Notice, keep=1000, lifetime=sliding("7d", touch_every="1h"), tag="user", …)
            notices = Channel("notices:{user}", Notice, …)
            wakes = Channel("notices-wakes", str, …)

        async with Feed(keys.log, keys.wakes()) as feed:
            await feed.put(keys.log("ann"), {17: notice}, keys.notices("ann").publish(notice))
            async for messages in feed.follow(keys.log("ann"), after=12): …

    logs    a log for each reader, with `keep`: how far back a reader can resume
    wakes   one pub/sub channel for all of them; its messages are names of logs. So each process has one subscription,
            however many readers it serves

    Readers read from the log, in order; a message on the channel is only a wake-up. So a slow reader neither blocks
    others nor fills memory; one that falls behind the log gets `Missed`. `Pause` comes after each `pause_s` without a
    message. During a store outage readers stay and wait.

    Raises BadDeclaration if the log has no `keep`.
    """

    def __init__(self, logs: Bound[LogKey[T]], wakes: ChannelKey[str], *, pause_s: float = 15.0) -> None:
        family: Log[T] = logs.family
        if family.keep is None:
            raise BadDeclaration(f"{family.place}: a feed needs keep=1000 or the like: how far back readers can resume")
        self._logs = logs
        self._wakes = wakes
        self._pause_s = pause_s
        self._readers: dict[str, set[asyncio.Event]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        """Listen from now on."""
        self._closing = False
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def stop(self) -> None:
        """Stop all readers: current and future iterators end."""
        self._closing = True
        self._wake_all()

    async def close(self) -> None:
        """Stop all readers, and unsubscribe."""
        self.stop()
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None

    @property
    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    @property
    def readers(self) -> int:
        """The number of readers in this process."""
        return sum(map(len, self._readers.values()))

    def readers_of(self, log: LogKey[T]) -> int:
        """The number of readers of this log in this process."""
        return len(self._readers.get(log.key, ()))

    # --- putting ---------------------------------------------------------------------------------------------

    async def put(self, log: LogKey[T], messages: Mapping[int, T], *more: Operation[Any]) -> bool:
        """Add messages at their places, lowest first, and run `more`, all in one atomic step.

        False: the log already has the first of these places, and nothing was done. Places grow by one from 1. So this
        is idempotent: a message put again, after a crash or by another process, is in the log once, and `more` takes
        effect once.
        """
        appended = _append(log, messages)
        try:
            await self._logs.keyspace.atomically(appended, *more, self._wakes.publish(log.key))
        except BadArgument:
            if min(messages) <= await self.last_place(log):
                return False
            raise
        return True

    async def begin_anew(self, log: LogKey[T], messages: Mapping[int, T], *more: Operation[Any]) -> bool:
        """Replace a log whose source was lost, and put messages as its first. Otherwise as `put`.

        Its readers get `Missed`. False: another process has just done so, or the log has new messages.
        """
        latest = await log.latest(1)
        if not latest:
            return await self.put(log, messages, *more)
        done = await self._logs.keyspace.atomically(
            log.remove(latest[0].id).required(),  # of two processes that read the same log, one drops it
            log.delete(),
            _append(log, messages),
            *more,
            self._wakes.publish(log.key),
        )
        return bool(done)

    async def messages(self, log: LogKey[T], first: int, count: int) -> dict[int, T]:
        """The messages from a place on, by place, without unreadable ones."""
        found = await log.entries(after=f"{first - 1}-0", limit=count).if_readable()
        return {_place(one): one.item for one in found}

    async def last_place(self, log: LogKey[T]) -> int:
        """The place of the newest message; 0 if there is none."""
        latest = await log.latest(1)
        return _place(latest[0]) if latest else 0

    # --- following -------------------------------------------------------------------------------------------

    async def follow(
        self, log: LogKey[T], *, after: int | None = None, last: int = 0, was_lost: WasLost | None = None
    ) -> AsyncIterator[Followed[T]]:
        """Messages after a place, or from now on, in batches as they arrive, until the feed is closed.

        last      a place up to which messages were put, from another source than the log; it may lag behind. With it,
                  a reader gets `Missed` even if the whole log has expired
        was_lost  called with the first and the last of places that are not in the log: whether there was a message.
                  Messages that were withdrawn before they were put leave gaps that do not matter

        A log that was replaced (see `begin_anew`) or truncated is `Missed`, too. So is an unreadable entry, once a
        later one arrives.
        """
        with self._register_reader(log.key) as wake:
            at = max(0, after) if after is not None else await self.last_place(log)
            looked = False
            while not self._closing:
                # Clear it before reading: a later message sets it again.
                wake.clear()
                try:
                    entries = await log.entries(after=f"{at}-0", limit=PAGE).if_readable()
                except StoreUnavailable:
                    # The listener wakes all readers when the store is back. Staying avoids a reconnect storm.
                    await self._wait_for_wake(wake)
                    yield Pause()
                    continue
                first = _place(entries[0]) if entries else last + 1
                if first > at + 1:
                    if was_lost is None or await was_lost(at + 1, first - 1):
                        yield Missed(first)
                    at = first - 1
                last = 0
                if entries:
                    yield [FeedItem(_place(one), one.item) for one in entries]
                    at = _place(entries[-1])
                elif looked and (newest := await self._end_before(log, at)):
                    yield Missed(newest + 1)
                    at = newest
                looked = True
                if len(entries) < PAGE and not await self._wait_for_wake(wake):
                    yield Pause()

    async def _end_before(self, log: LogKey[T], at: int) -> int:
        """The end of a log that is behind its reader; 0: it is not, or this is unknown."""
        try:
            newest = await self.last_place(log)
        except StoreUnavailable:
            return 0
        return newest if newest < at else 0

    async def _wait_for_wake(self, wake: asyncio.Event) -> bool:
        try:
            async with asyncio.timeout(self._pause_s):
                await wake.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def _register_reader(self, key: str) -> Iterator[asyncio.Event]:
        wake = asyncio.Event()
        self._readers.setdefault(key, set()).add(wake)
        try:
            yield wake
        finally:
            readers = self._readers[key]
            readers.discard(wake)
            if not readers:
                del self._readers[key]

    # --- waking ----------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Wake readers, forever. During a store outage they poll after each pause."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async with self._wakes.subscribe() as keys:
                    self._wake_all()  # messages may have arrived before
                    pause_s = _FIRST_PAUSE_S
                    async for key in keys:
                        for wake in self._readers.get(key, ()):
                            wake.set()
            except StoreUnavailable as error:
                _log.info("feed: %s", error)
            except Unreadable as error:
                log_unreadable(self._wakes.bound.store, error)
            except KeysteadError as error:
                _log.warning("feed: %s", error)
            self._wake_all()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _wake_all(self) -> None:
        for readers in self._readers.values():
            for wake in readers:
                wake.set()


def _append(log: LogKey[T], messages: Mapping[int, T]) -> Operation[int]:
    places = sorted(messages)
    if places and places[0] < 1:
        raise BadValue(f"{log.key}: places start at 1, not {places[0]}")
    return log.append_all({f"{place}-0": messages[place] for place in places})


def _place(entry: LogEntry[Any]) -> int:
    return int(entry.id.partition("-")[0])
