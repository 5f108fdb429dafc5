"""A server that stops answering during a command, after a number of bytes counted by a proxy."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import Server
from tests.stores.redis.proxy import Proxy

PATIENT = "?timeout=300s"  # a command behind it waits until it is killed
IMPATIENT = "?timeout=1s&connect_timeout=500ms"  # one behind it gives up


class HeldBack:
    """A server behind a proxy, which runs in a thread."""

    def __init__(self, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop

    @property
    def url(self) -> str:
        return self._proxy.url

    def after_replies(self, count: int) -> None:
        """When this many bytes of replies have passed, nothing more does."""
        self._loop.call_soon_threadsafe(self._proxy.hold_replies_after, count)

    def after_requests(self, count: int) -> None:
        """When this many bytes of requests have passed, nothing more does."""
        self._loop.call_soon_threadsafe(self._proxy.hold_requests_after, count)

    def slowly(self) -> None:
        """Everything passes in its time: whoever waits for something in this process is never too late for it."""
        self._loop.call_soon_threadsafe(setattr, self._proxy, "delay", lambda: 0.02)

    def resume(self) -> None:
        """Let everything pass again."""
        asyncio.run_coroutine_threadsafe(self._resume(), self._loop).result(60)

    async def _resume(self) -> None:
        self._proxy.reset()  # whoever hangs there was killed, and what it sent must not arrive now
        await self._proxy.resume()


@contextmanager
def held_back(server: Server) -> Iterator[HeldBack]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        proxy = asyncio.run_coroutine_threadsafe(Proxy(server.port).__aenter__(), loop).result(60)
        try:
            yield HeldBack(proxy, loop)
        finally:
            asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
