"""A key of the copy's own at the store that is written to.

Where it is gone, that store was emptied or restarted without its data, and what is missing there was not deleted by
anybody. Where it shows at the source, too, both are the same store.
"""

from __future__ import annotations

from typing import Final

from keystead.stores.base import Store
from keystead.stores.copy.errors import CopyLost, SameStore

PREFIX: Final = b"keystead:copy:"
_KEPT_MS: Final = 30 * 86_400_000


class Marker:
    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._key = PREFIX + name.encode()

    async def put(self) -> None:
        await self._store.run([("SET", self._key, "a copy into this store is under way", "PX", _KEPT_MS)])

    async def remove(self) -> None:
        await self._store.run([("DEL", self._key)])

    async def check(self) -> None:
        """Raises CopyLost where it is gone. A store that evicts keys may lose it at any time, and is not asked."""
        if self._store.guarantees.evicts:
            return
        [there] = await self._store.run([("EXISTS", self._key)])
        if not there:
            raise CopyLost(
                f"{self._store.url} has forgotten this copy: it was emptied, or restarted without its data, or the "
                "copy is more than 30 days old. Nothing more was written; remove the progress file to begin anew"
            )

    async def refuse_at(self, source: Store) -> None:
        """Raises SameStore where it shows there."""
        [there] = await source.run([("EXISTS", self._key)])
        if there:
            await self.remove()
            raise SameStore(f"{source.url} and {self._store.url} are the same store; nothing was copied")
