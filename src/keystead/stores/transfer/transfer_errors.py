"""Errors of backups, restores and copies."""

from keystead.errors import KeysteadError


class BackupError(KeysteadError):
    """The base class of backup errors."""

    code = "backup"


class NoBackup(BackupError):
    """The file cannot be opened, is not a backup, or has a format that this version does not know."""

    code = "no-backup"


class BackupDamaged(BackupError):
    """The file was cut short or altered, or was replaced by another one while it was restored."""

    code = "backup-damaged"


class BackupInTheWay(BackupError):
    """A file of this name already exists, finished or unfinished, and was not overwritten."""

    code = "backup-in-the-way"


class KeyTooLarge(BackupError):
    """A key is larger than a backup can hold."""

    code = "key-too-large"


class KeysThere(BackupError):
    """`count` keys of the backup already exist in the store, and no policy for them was given. They are unchanged."""

    code = "keys-there"

    def __init__(self, sentence: str, count: int) -> None:
        super().__init__(sentence)
        self.count = count


class RestoreLost(BackupError):
    """The store lost the checkpoint of a restore: it was restarted without its data, or two restores collided.

    Keys of the backup that it still holds stay, and `resume` continues from its last checkpoint.
    """

    code = "restore-lost"


class CopyError(KeysteadError):
    """The base class of copy errors."""

    code = "copy"


class SameStore(CopyError):
    """Source and target are the same store. Nothing was written but a marker, which was removed."""

    code = "same-store"


class NoProgress(CopyError):
    """The progress file cannot be used: it belongs to another copy or process, is damaged, or does not record what
    earlier runs copied into this store.
    """

    code = "no-progress"


class CopyLost(CopyError):
    """The target lost much of what was copied: it was emptied, restarted without its data, or restored from an older
    backup. Lost and deleted keys cannot be distinguished, so nothing more is written.
    """

    code = "copy-lost"


class SourceEmptied(CopyError):
    """The source lost many of the keys that were copied, at once and before they expired.

    Lost and deleted keys cannot be distinguished, so nothing is deleted at the target.
    """

    code = "source-emptied"
