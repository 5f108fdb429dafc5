"""The marker of a copy: a key at the target that names the progress file.

It stays after the copy. If it is gone although there is a journal, the target was emptied or restarted without its
data, and missing keys were not deleted on purpose. If it names another journal, an earlier copy wrote keys that only
that journal knows. If it also appears at the source, both are the same store.
"""

from __future__ import annotations

import json
import platform
import secrets
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from keystead.errors import StoreError
from keystead.stores.copy.journal import Journal
from keystead.stores.store_contract import Store, holds
from keystead.stores.transfer.guarded_writes import run_guarded
from keystead.stores.transfer.transfer_errors import CopyLost, NoProgress, SameStore

MARKER_PREFIX: Final = b"keystead:copy:"


class Marker:
    """The marker of the copies from one store into another; there is one for each source."""

    def __init__(self, source: Store, target: Store, journal: Journal | None) -> None:
        """`journal` is None for a dry run without a progress file."""
        self._source = source
        self._target = target
        self._journal = journal
        self._key = MARKER_PREFIX + blake2b(source.url.encode(), digest_size=8).hexdigest().encode()
        self._run = secrets.token_hex(8)  # unique: a marker at the source may come from a restored backup

    async def check(self) -> bytes | None:
        """Returns the marker. Raises CopyLost if it is gone, and NoProgress if it names another journal.

        A store that evicts keys may lose it at any time; there, a missing marker is not an error.
        """
        [held] = await self._target.run([("GET", self._key)])
        if held is None:
            if self._journal is None or self._journal.is_empty or self._target.guarantees.evicts:
                return None
            raise CopyLost(
                f"{self._target.url} has lost the marker of this copy: it was emptied, or restarted without its data. "
                "Nothing more was written; add --start-over to start over"
            )
        content = _parse(held)
        if self._journal is None or content.get("id") != self._journal.id:
            raise NoProgress(
                f"{self._source.url} was copied into {self._target.url} before, and only {content.get('file')} on "
                f"{content.get('host')} records which keys. Name it with --progress, so that later deletions at the "
                "source are also made at the target; or add --start-over, and such keys stay there"
            )
        return bytes(held)

    async def put(self, journal: Journal, *, start_over: bool) -> None:
        """Write it unless it exists. Raises as `check`, unless `start_over`, and SameStore."""
        held = (await self._target.run([("GET", self._key)]))[0] if start_over else await self.check()
        content = {
            "id": journal.id,
            "run": self._run,
            "from": self._source.url,
            "file": str(journal.path.absolute()),
            "host": platform.node(),
        }
        # Who may interleave: a copy of the same two stores with another progress file. Only one of them continues.
        if not await run_guarded(self._target, [holds(self._key, held), ("SET", self._key, json.dumps(content))]):
            raise NoProgress(f"another process is copying {self._source.url} into {self._target.url}; wait for it")
        try:
            [shows] = await self._source.run([("GET", self._key)])
        except BaseException:
            if journal.is_empty:
                with suppress(StoreError):
                    await self.remove()
            raise
        if shows is not None and _parse(shows).get("run") == self._run:
            await self.remove()
            raise SameStore(f"{self._source.url} and {self._target.url} are the same store; nothing was copied")

    async def remove(self) -> None:
        await self._target.run([("DEL", self._key)])


def _parse(held: bytes) -> dict[str, Any]:
    try:
        content = json.loads(held)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
