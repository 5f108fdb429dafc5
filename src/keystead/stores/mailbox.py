"""The buffer of one subscription."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

from keystead.errors import StoreError, StoreUnavailable
from keystead.stores.store_contract import Message

# A reader that is further behind gets an error, before the process runs out of memory.
MAX_WAITING, MAX_WAITING_BYTES = 10_000, 64 << 20


class Mailbox:
    """An iterator over messages that ends with the error that ended the subscription."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._error: StoreError | None = None
        self._arrived = asyncio.Event()

    def put(self, message: Message) -> None:
        if len(self._messages) >= MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
            self.fail(
                StoreUnavailable(
                    f"the reader of channel {message.channel} is {len(self._messages)} messages behind, and further"
                    " ones were dropped; subscribe again, and catch up from stored data"
                )
            )
        elif self._error is None:
            self._messages.append(message)
            self._bytes += len(message.data)
            self._arrived.set()

    def fail(self, error: StoreError) -> None:
        """End the subscription: the reader gets the waiting messages, then this error."""
        self._error = self._error or error
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._bytes -= len(message.data)
        return message
