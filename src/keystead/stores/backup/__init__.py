"""Backup and restore: every key of a store, with its value and deadline, in one file; restored into any store.

saved = await backup(store, Path("keys.backup"))
with BackupFile(Path("keys.backup")) as file:
    restored = await restore(other_store, file)
    compared = await compare(other_store, file)
"""

from keystead.stores.backup.file import BackupFile, Header, part_of
from keystead.stores.backup.restoring import Checked, IfThere, Restored, check, compare, restore
from keystead.stores.backup.saving import Saved, backup
from keystead.stores.transfer.comparison import Compared
from keystead.stores.transfer.transfer_errors import (
    BackupDamaged,
    BackupError,
    BackupInTheWay,
    KeysThere,
    KeyTooLarge,
    NoBackup,
    RestoreLost,
)
from keystead.stores.transfer.transfer_progress import TransferProgress

__all__ = [
    "BackupDamaged",
    "BackupError",
    "BackupFile",
    "BackupInTheWay",
    "Checked",
    "Compared",
    "Header",
    "IfThere",
    "KeyTooLarge",
    "KeysThere",
    "NoBackup",
    "RestoreLost",
    "Restored",
    "Saved",
    "TransferProgress",
    "backup",
    "check",
    "compare",
    "part_of",
    "restore",
]
