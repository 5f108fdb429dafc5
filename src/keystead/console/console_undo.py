"""Undo of edits and renewals. What was before is stored encrypted for the session, so that only it can undo."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from keystead.console.console_keys import ConsoleKeys, ConsoleUndo
from keystead.console.hash_editor import restore_hash
from keystead.console.key_references import KeyReferences
from keystead.console.value_editor import restore_value
from keystead.schema.family import Bound
from keystead.schema.kinds import Hash
from keystead.schema.restart import Restart, undo_restart
from keystead.schema.seal import SealError

_LARGEST: Final = 1 << 20


class Before(NamedTuple):
    """What an act changed.

    value    what was stored before an edit; "": it changed no value
    after    the digest of what it stored: only that is replaced
    restart  the deadlines before and after a renewal: only the second is replaced; None: it changed none
    """

    keyspace: str
    family: str
    key: str
    value: str = ""
    after: str = ""
    restart: Sequence[int] | None = None


class ConsoleUndos:
    def __init__(self, keys: ConsoleKeys) -> None:
        self._keys = keys

    async def remember(self, references: KeyReferences, before: Before) -> str:
        """The id by which this session can undo it within an hour; "" if it is too large."""
        data = json.dumps(before).encode()
        if len(data) > _LARGEST:
            return ""
        made = secrets.token_urlsafe(16)
        await self._keys.undo(made).add(ConsoleUndo(sealed=references.seal(data, made)))
        return made

    async def take(self, references: KeyReferences, undo: str) -> Before | None:
        """What to undo. It is consumed, so that it happens once. None: expired, used, or of another session."""
        found = await self._keys.undo(undo).consume()
        if found is None:
            return None
        try:
            return Before(*json.loads(references.open(found.sealed, undo)))
        except (SealError, ValueError):
            return None


async def put_back(bound: Bound[Any], before: Before) -> bool:
    """Undo it, unless the key was changed since. False: nothing was done."""
    if before.restart is not None:
        return await undo_restart(bound, before.key, Restart(*before.restart))
    restore = restore_hash if isinstance(bound.family, Hash) else restore_value
    return await restore(bound, before.key, before.value, before.after)
