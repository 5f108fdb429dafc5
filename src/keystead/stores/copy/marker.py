"""A key of the copy's own at the store that is written to: which notes say what was copied there.

It stays when the copy is done. Where it is gone although there are notes, that store was emptied or restarted without
its data, and what is missing there was not deleted by anybody. Where it tells of other notes, an earlier copy brought
keys that only those notes know. Where it shows at the source, too, both are the same store.
"""

from __future__ import annotations

import json
import platform
import secrets
from hashlib import blake2b
from typing import Any, Final

from keystead.stores.copy.errors import CopyLost, NoProgress, SameStore
from keystead.stores.copy.notes import Notes
from keystead.stores.store_contract import Store, holds

PREFIX: Final = b"keystead:copy:"


class Marker:
    """The marker of the copies from one store into another; there is one for each source."""

    def __init__(self, source: Store, target: Store, notes: Notes | None) -> None:
        """`notes` is None where nothing is to be written, and there are none."""
        self._source = source
        self._target = target
        self._notes = notes
        self._key = PREFIX + blake2b(source.url.encode(), digest_size=8).hexdigest().encode()
        self._run = secrets.token_hex(8)  # tells this run from one whose marker came to the source with a backup

    async def check(self) -> bytes | None:
        """What it says now. Raises CopyLost where it is gone, and NoProgress where it tells of other notes.

        A store that evicts keys may lose it at any time, so there it may be gone.
        """
        [held] = await self._target.run([("GET", self._key)])
        if held is None:
            if self._notes is None or self._notes.is_empty or self._target.guarantees.evicts:
                return None
            raise CopyLost(
                f"{self._target.url} has forgotten this copy: it was emptied, or restarted without its data. Nothing "
                "more was written; add --start-over to begin anew"
            )
        said = _read(held)
        if self._notes is None or said.get("id") != self._notes.id:
            raise NoProgress(
                f"{self._source.url} was copied into {self._target.url} before, and only {said.get('file')} on "
                f"{said.get('host')} knows which keys. Name it with --progress, so that what was deleted at the first "
                "store since is deleted at the second, too; or add --start-over, and such keys stay there"
            )
        return bytes(held)

    async def put(self, *, start_over: bool = False) -> None:
        """Write it, or find it there. Raises as `check`; with `start_over`, it takes the place of any other one."""
        if self._notes is None:
            raise AssertionError("whoever writes has notes")
        if start_over:
            [held] = await self._target.run([("GET", self._key)])
        else:
            held = await self.check()
        said = {
            "id": self._notes.id,
            "run": self._run,
            "from": self._source.url,
            "file": str(self._notes.path.absolute()),
            "host": platform.node(),
        }
        # Who may interleave: a copy of the same two stores with another progress file. Only one of them goes on.
        if not await self._target.atomically([holds(self._key, held), ("SET", self._key, json.dumps(said))]):
            raise NoProgress(f"another process is copying {self._source.url} into {self._target.url}; wait for it")

    async def remove(self) -> None:
        await self._target.run([("DEL", self._key)])

    async def refuse_same_store(self) -> None:
        """Raises SameStore where what this run has put into the target shows at the source."""
        [held] = await self._source.run([("GET", self._key)])
        if held is not None and _read(held).get("run") == self._run:
            await self.remove()
            raise SameStore(f"{self._source.url} and {self._target.url} are the same store; nothing was copied")


def _read(held: bytes) -> dict[str, Any]:
    try:
        said = json.loads(held)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
