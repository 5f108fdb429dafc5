"""Backups: every key of a store, with its value and its deadline, in one file; and back, into any store.

saved = await backup(store, Path("keys.backup"))
with BackupFile(Path("keys.backup")) as file:
    restored = await restore(other_store, file)
    compared = await compare(other_store, file)
"""

from keystead.stores.backup.comparing import Compared, compare
from keystead.stores.backup.errors import (
    BackupDamaged,
    BackupError,
    BackupInTheWay,
    KeysThere,
    KeyTooLarge,
    NoBackup,
    RestoreLost,
)
from keystead.stores.backup.file import BackupFile, Counts, Header, part_of
from keystead.stores.backup.restoring import Checked, IfThere, Restored, RestoreProgress, check, restore
from keystead.stores.backup.saving import Saved, SaveProgress, backup

__all__ = [
    "BackupDamaged",
    "BackupError",
    "BackupFile",
    "BackupInTheWay",
    "Checked",
    "Compared",
    "Counts",
    "Header",
    "IfThere",
    "KeyTooLarge",
    "KeysThere",
    "NoBackup",
    "RestoreLost",
    "RestoreProgress",
    "Restored",
    "SaveProgress",
    "Saved",
    "backup",
    "check",
    "compare",
    "part_of",
    "restore",
]
