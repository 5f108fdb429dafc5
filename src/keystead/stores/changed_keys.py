"""Changed keys: what a store reports about writes, deletions and expiry, waiting for one reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from keystead.errors import StoreError

MOST_WAITING: Final = 10_000  # keys; changes of further ones are counted only


class ChangedKeys(NamedTuple):
    """Keys that changed since the last report, each once, in the order of their first change.

    missed       how many changes were not recorded, because the reader was too far behind
    is_flushed   whether all keys of the store were deleted at once
    """

    keys: list[bytes]
    missed: int = 0
    is_flushed: bool = False


class KeyReports:
    """An iterator of ChangedKeys, bounded in memory, that ends with the error that ended the reports."""

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}
        self._missed = 0
        self._is_flushed = False
        self._error: StoreError | None = None
        self._arrived = asyncio.Event()

    def put(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if len(self._keys) < MOST_WAITING or key in self._keys:
                self._keys[key] = None
            else:
                self._missed += 1
        self._arrived.set()

    def put_flush(self) -> None:
        self._is_flushed = True
        self._arrived.set()

    def fail(self, error: StoreError) -> None:
        """End the reports: the reader gets those that wait, then this error."""
        self._error = self._error or error
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChangedKeys:
        while not (self._keys or self._missed or self._is_flushed):
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        found = ChangedKeys(list(self._keys), self._missed, self._is_flushed)
        self._keys, self._missed, self._is_flushed = {}, 0, False
        return found
