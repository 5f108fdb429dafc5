"""What can go wrong with a backup, a restore or a copy."""

from keystead.errors import KeysteadError


class BackupError(KeysteadError):
    """The root of what can go wrong with a backup file."""

    code = "backup"


class NoBackup(BackupError):
    """The file cannot be opened, is not a backup, or has a format that this version does not know."""

    code = "no-backup"


class BackupDamaged(BackupError):
    """The file was cut short or altered, or was replaced by another one while it was restored."""

    code = "backup-damaged"


class BackupInTheWay(BackupError):
    """A file of this name exists already, finished or begun, and was not overwritten."""

    code = "backup-in-the-way"


class KeyTooLarge(BackupError):
    """A key is larger than a backup can hold."""

    code = "key-too-large"


class KeysThere(BackupError):
    """`count` keys of the backup are in the store already, and no policy for them was given. They are unchanged."""

    code = "keys-there"

    def __init__(self, sentence: str, count: int) -> None:
        super().__init__(sentence)
        self.count = count


class RestoreLost(BackupError):
    """The store lost the checkpoint of a restore: it was restarted without its data, or two restores met.

    What it still holds of the backup stays, and `resume` goes on from its last checkpoint.
    """

    code = "restore-lost"


class CopyError(KeysteadError):
    """The root of what can go wrong with a copy from one store into another."""

    code = "copy"


class SameStore(CopyError):
    """Source and target are the same store. Nothing was written but a marker, which was removed."""

    code = "same-store"


class NoProgress(CopyError):
    """The progress file cannot be used: it belongs to another copy or process, is damaged, or is not the one that knows
    what earlier runs copied into this store.
    """

    code = "no-progress"


class CopyLost(CopyError):
    """The target lost much of what was copied: it was emptied, restarted without its data, or restored from an older
    backup. Lost keys cannot be told from deleted ones, so nothing more is written.
    """

    code = "copy-lost"


class SourceEmptied(CopyError):
    """The source lost many of the keys that were copied, at once and before they expired.

    Lost keys cannot be told from deleted ones, so nothing is deleted at the target.
    """

    code = "source-emptied"
