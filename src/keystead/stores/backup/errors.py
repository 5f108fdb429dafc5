"""What can go wrong with a backup."""

from keystead.errors import KeysteadError


class BackupError(KeysteadError):
    """The root of what can go wrong with a backup file."""

    code = "backup"


class NoBackup(BackupError):
    """The file cannot be opened, is no backup, or is one of a format that this version does not know."""

    code = "no-backup"


class BackupDamaged(BackupError):
    """The file was cut short or altered; or it was replaced by another while it was restored, which is said then."""

    code = "backup-damaged"


class BackupInTheWay(BackupError):
    """A file of this name is there already, finished or begun, and was not written over."""

    code = "backup-in-the-way"


class KeyTooLarge(BackupError):
    """A key holds more than one key of a backup may."""

    code = "key-too-large"


class KeysThere(BackupError):
    """Keys of the backup are in the store already, and it was not said what to do with them. Nothing of theirs changed.

    `count` says how many.
    """

    code = "keys-there"

    def __init__(self, sentence: str, count: int) -> None:
        super().__init__(sentence)
        self.count = count


class RestoreLost(BackupError):
    """A store forgot how far a restore was: it was restarted without what it was given, or two restores met.

    What it still holds of the backup stays, and `resume` goes on from what it remembers.
    """

    code = "restore-lost"
