"""Opens the session store of an application at startup, or with the first request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.types import Message, Receive, Scope, Send

from keystead.integrations.asgi.types import App
from keystead.stores import Store

P = TypeVar("P")


class SessionsLifespan(Generic[P]):
    """Opens the sessions, a part `P`.

    `ours` is the store to open and close here; None if the application does. `bind` is called once it is open, because
    only then its guarantees are known.
    """

    def __init__(self, ours: Store | None, bind: Callable[[], P]) -> None:
        self.sessions: P | None = None  # once they are bound
        self._ours = ours
        self._bind = bind
        self._lock = asyncio.Lock()

    async def open(self) -> P:
        """The sessions. Concurrent callers open the store once (single flight); the next one retries a failure."""
        async with self._lock:
            if self.sessions is None:
                if self._ours is not None:
                    await self._ours.open()
                self.sessions = self._bind()
            return self.sessions

    async def close(self) -> None:
        async with self._lock:
            self.sessions = None
            if self._ours is not None:
                await self._ours.close()

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the lifespan of the application, with the store open from before startup until after shutdown.

        Works for applications without lifespan support too. If the store cannot be opened, startup fails.
        """
        if self._ours is None:
            return await app(scope, receive, send)
        startup = await receive()
        try:
            await self.open()
        except Exception as error:
            await self.close()
            return await send({"type": "lifespan.startup.failed", "message": f"sessions: {error}"})
        has_received = False

        async def receive_again() -> Message:
            nonlocal has_received
            if has_received:
                return await receive()
            has_received = True
            return startup

        async def send_and_close(message: Message) -> None:
            if message["type"] != "lifespan.startup.complete":
                await self.close()
            await send(message)

        try:
            await app(scope, receive_again, send_and_close)
        except BaseException as error:
            # An application without lifespan support raises before it receives a message; other errors pass.
            if has_received or not isinstance(error, Exception):
                await self.close()
                raise
        if not has_received:  # the application returned without lifespan support
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send_and_close({"type": "lifespan.shutdown.complete"})
        return None
