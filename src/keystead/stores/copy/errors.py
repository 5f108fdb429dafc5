"""What can go wrong with a copy."""

from keystead.errors import KeysteadError


class CopyError(KeysteadError):
    """The root of what can go wrong with a copy from one store into another."""

    code = "copy"


class SameStore(CopyError):
    """The two stores are one. Nothing was written but a mark, which is gone again."""

    code = "same-store"


class NoProgress(CopyError):
    """The progress file cannot be made or used: it belongs to another copy, to another process, or is damaged.

    Or it is not the one that knows what earlier runs have copied into this store.
    """

    code = "no-progress"


class CopyLost(CopyError):
    """The store that is written to forgot what it was given, or much of it: it was emptied, restarted without its data,
    or restored from an older backup.

    What was deleted there cannot be told from what was lost, so nothing more is written.
    """

    code = "copy-lost"


class SourceEmptied(CopyError):
    """The store that is read has lost many of the keys that were copied from it: all at once, and before they expired.

    What was deleted there cannot be told from what was lost, so nothing is deleted at the other one.
    """

    code = "source-emptied"
