"""Whether a store holds what a backup says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from keystead.errors import shown
from keystead.stores.backup.file import BackupFile
from keystead.stores.backup.reading import Reading
from keystead.stores.backup.records import Record
from keystead.stores.backup.restoring import RestoreProgress
from keystead.stores.backup.writing import AT_ONCE, clock_ms, is_over
from keystead.stores.store_contract import Store

_EXAMPLES: Final = 10


@dataclass(slots=True)
class Compared:
    """How many keys of a backup are in the store as it says, and in which way others are not.

    A key whose deadline is over, and which is gone, is as it should be: `expired`. What a program changed since cannot
    be told from what was restored wrongly; `examples` name the first keys of each difference.
    """

    keys: int = 0
    equal: int = 0
    expired: int = 0
    missing: int = 0
    other_kind: int = 0
    other_value: int = 0
    other_expiry: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return self.missing + self.other_kind + self.other_value + self.other_expiry

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "differences": self.differences}

    def add(self, record: Record, held: Record | None, now_ms: int) -> None:
        self.keys += 1
        what = _difference(record, held, now_ms)
        setattr(self, what, getattr(self, what) + 1)
        if what not in ("equal", "expired"):
            named = self.examples.setdefault(what, [])
            if len(named) < _EXAMPLES:
                named.append(shown(record.key))


def _difference(record: Record, held: Record | None, now_ms: int) -> str:
    """The field that counts this key. A key of another value has often another deadline, too: the value is said."""
    if held is None:
        return "expired" if is_over(record, now_ms) else "missing"
    if held.kind != record.kind:
        return "other_kind"
    if held.content != record.content:
        return "other_value"
    return "equal" if held.expires_at_ms == record.expires_at_ms else "other_expiry"


async def compare(
    store: Store, file: BackupFile, *, on_progress: Callable[[RestoreProgress], None] | None = None
) -> Compared:
    """Read every key of a backup from the store, and compare. Keys of the store that the backup has not are not looked
    at. Writes nothing. Raises BackupDamaged where the file is not as it was written.
    """
    reading = Reading(store)
    compared = Compared()
    for records in file.blocks():
        for at in range(0, len(records), AT_ONCE):
            batch = records[at : at + AT_ONCE]
            held = {one.key: one for one in await reading.records([record.key for record in batch])}
            now_ms = await clock_ms(store)  # after the look, so that what has expired by then counts as that
            for record in batch:
                compared.add(record, held.get(record.key), now_ms)
        if on_progress is not None:
            on_progress(RestoreProgress("comparing", compared.keys, None))
    return compared
