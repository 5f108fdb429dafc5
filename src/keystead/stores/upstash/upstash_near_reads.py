"""Near reads on Upstash: the server does not report changes, so a copy simply holds for the stated bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from keystead.stores.commands import Reply
from keystead.stores.near_reads import Copy, NearRead, NearReads, ReadNow


class UpstashNearReads(NearReads):
    """Within the bound, a read costs no command. Writes of this process drop the copies of their keys."""

    def __init__(self, run: ReadNow) -> None:
        super().__init__()
        self._run = run
        self._time = asyncio.get_running_loop().time
        self._filling: set[_Fill] = set()

    def read(self, read: NearRead, bound_s: float) -> list[Reply] | Awaitable[list[Reply]]:
        copy = self.copies.find(read)
        if copy is not None and self._time() < min(copy.expires_at, copy.began + bound_s):
            self.hits += 1
            return copy.replies
        return self._fill(read)

    async def _fill(self, read: NearRead) -> list[Reply]:
        self.misses += 1
        fill, began = _Fill(read), self._time()
        self._filling.add(fill)
        try:
            replies, expires_in_ms, _ = read.split(await self._run(read.with_lifetimes))
        finally:
            self._filling.discard(fill)
        if fill.is_current:
            self.copies.add(Copy(read, replies, began + expires_in_ms / 1000, began=began))
        return replies

    def drop(self, keys: Iterable[bytes]) -> None:
        """Drop copies of keys that are written here, and reads under way, which may be from before it."""
        keys = set(keys)
        for fill in self._filling:
            if not keys.isdisjoint(fill.keys):
                fill.is_current = False
        self.copies.drop(keys)


class _Fill:
    """A read under way. `is_current`: none of its keys was written here since it began."""

    def __init__(self, read: NearRead) -> None:
        self.keys = read.keys
        self.is_current = True
