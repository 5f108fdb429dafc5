"""Changed keys on Redis and Valkey: the server reports them unasked, without any configuration.

A connection of its own asks for invalidations of all keys with a prefix (`CLIENT TRACKING ON BCAST PREFIX`, which needs
RESP3), as a client-side cache would. Unlike keyspace notifications this needs no CONFIG, and unlike MONITOR it shows no
values and costs the server no more than the key names. A key that changes twice in one turn of the server is reported
once. The server does not tell databases apart: a key of the same name in another one is reported, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from keystead.errors import StoreUnavailable
from keystead.stores.changed_keys import KeyReports
from keystead.stores.redis.redis_connection import RedisConnection, call
from keystead.stores.redis.redis_link import Greet, dial
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.reply_errors import ReplyError, refusal


@asynccontextmanager
async def tracked_keys(
    settings: RedisSettings,
    addresses: Sequence[RedisAddress],
    greet: Greet,
    prefixes: Sequence[bytes],
    listeners: set[KeyListener],
    is_current: Callable[[], bool],
) -> AsyncIterator[KeyReports]:
    """Reports of the servers at these addresses. They fail if a connection is lost, or `is_current` no longer holds.

    The listeners are in `listeners` meanwhile, so that their store can stop them.
    """
    reports = KeyReports()
    async with AsyncExitStack() as stack:
        for address in addresses:
            listener = KeyListener(reports, settings.timeout, is_current)
            await listener.connect(settings, address, greet, prefixes)
            listeners.add(listener)
            stack.callback(listeners.discard, listener)
            stack.callback(listener.stop, "the watch ended")
        yield reports


class KeyListener:
    """One connection that carries invalidations, and replies to pings, which show that it is alive."""

    def __init__(self, reports: KeyReports, timeout: float, is_current: Callable[[], bool]) -> None:
        self._reports = reports
        self._timeout = timeout
        self._is_current = is_current
        self._connection: RedisConnection | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def connect(
        self, settings: RedisSettings, address: RedisAddress, greet: Greet, prefixes: Sequence[bytes]
    ) -> None:
        """Raises StoreRefused for a server that does not report changes, or does not let this user ask."""
        tracking: list[str | bytes] = ["CLIENT", "TRACKING", "ON", "BCAST"]
        for prefix in _without_overlaps(prefixes):
            tracking += ["PREFIX", prefix]

        async def greet_and_track(connection: RedisConnection) -> None:
            await greet(connection)
            connection.on_push = self._hear
            for reply in await call(connection, ("HELLO", "3"), tuple(tracking)):
                if isinstance(reply, ReplyError):
                    raise refusal(connection.address, reply)

        self._connection = connection = await dial(settings, address, greet_and_track)
        connection.on_end = self._lose
        if connection.lost is not None:
            self._lose(connection.lost)
        self._ping()

    def stop(self, reason: str) -> None:
        """The reader gets an error with this reason."""
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close(reason)

    def _hear(self, pushed: list[Any]) -> None:
        if pushed and pushed[0] == b"invalidate":
            if pushed[1] is None:  # by FLUSHALL
                self._reports.put_flush()
            else:
                self._reports.put(pushed[1])

    def _ping(self) -> None:
        connection = self._connection
        if connection is None or connection.lost is not None:
            return
        if not self._is_current():
            connection.close("other servers hold these keys now")
            return
        loop = asyncio.get_running_loop()
        asyncio.ensure_future(call(connection, ("PING",))).add_done_callback(_ignore_error)
        self._timer = loop.call_later(self._timeout / 2, self._ping)

    def _lose(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reports.fail(StoreUnavailable(f"changes may have been missed: {reason}; watch again"))


def _without_overlaps(prefixes: Sequence[bytes]) -> list[bytes]:
    """The server refuses a prefix that another one begins with. Without any, it reports all keys."""
    found: list[bytes] = []
    for prefix in sorted(set(prefixes)):
        if not found or not prefix.startswith(found[-1]):
            found.append(prefix)
    return [] if found == [b""] else found


def _ignore_error(pinged: asyncio.Future[list[Any]]) -> None:
    """The end of the connection is reported by `on_end`."""
    if not pinged.cancelled():
        pinged.exception()
