"""Compared keys: the changes of a store that does not report them, found by reading its keys again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from keystead.errors import StoreRefused
from keystead.schema.doctor.key_state import ms_of
from keystead.schema.first_contents import FirstContents
from keystead.schema.pace import Pace
from keystead.schema.paced_scan import paced_scan
from keystead.stores import Command, Store
from keystead.stores.changed_keys import ChangedKeys

MOST_COMPARED: Final = 20_000  # keys; more would load the store and this process
_PAGE: Final = 500


class ComparedKeys:
    """What the keys that match some glob patterns hold, as digests. `start` reads them; then iterate.

    A change that is undone between two looks is not seen. Of a large key, its size, its deadline and its first entries
    are compared. A store that knows its `version` is read only when that differs, or a key has expired.
    """

    def __init__(self, store: Store, globs: Sequence[str], every_s: float) -> None:
        self._store = store
        self._globs = globs
        self._every_s = every_s
        self._pace = Pace(_PAGE)
        self._contents = FirstContents(store, self._pace)
        self._known: dict[bytes, int] = {}
        self._version: object = None
        self._next_deadline_ms: int | None = None

    async def start(self) -> None:
        """Raises StoreRefused if there are too many keys."""
        self._version = self._store.version()
        self._known = await self._look()

    async def __aiter__(self) -> AsyncIterator[ChangedKeys]:
        while True:
            await asyncio.sleep(self._every_s)
            if not await self._is_due():
                continue
            self._version = self._store.version()  # first: a commit during the look is compared by the next one
            now = await self._look()
            changed = [key for key, digest in now.items() if self._known.get(key) != digest]
            changed += [key for key in self._known if key not in now]
            self._known = now
            if changed:
                yield ChangedKeys(changed)

    async def _is_due(self) -> bool:
        if self._version is None or self._store.version() != self._version:
            return True
        if self._next_deadline_ms is None:
            return False
        [time] = await self._store.run([("TIME",)])
        return ms_of(time) >= self._next_deadline_ms

    async def _look(self) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        deadlines: list[int] = []
        for glob in self._globs:
            async for keys in paced_scan(self._store, glob, self._pace, page=_PAGE):
                await self._digest(keys or (), found, deadlines)
                if len(found) > MOST_COMPARED:
                    raise StoreRefused(
                        f"{self._store.url} does not report changes, and comparing more than {MOST_COMPARED:,} keys "
                        "again and again would load it; watch one family, or use Redis or Valkey"
                    )
        self._next_deadline_ms = min(deadlines, default=None)
        return found

    async def _digest(self, keys: Sequence[bytes], found: dict[bytes, int], deadlines: list[int]) -> None:
        commands: list[Command] = [(name, key) for key in keys for name in ("TYPE", "PEXPIRETIME")]
        replies = await self._pace.run(self._store, commands, len(keys))
        there = [
            (key, kind.decode(), deadline_ms)
            for key, kind, deadline_ms in zip(keys, replies[::2], replies[1::2], strict=True)
            if kind != b"none"
        ]
        async for number, size, content in self._contents.read([(key, kind) for key, kind, _ in there]):
            key, kind, deadline_ms = there[number]
            if kind in ("set", "hash") and content is not None:
                content = sorted(content)
            found[key] = hash((kind, deadline_ms, size, repr(content)))
            if deadline_ms >= 0:
                deadlines.append(deadline_ms)
