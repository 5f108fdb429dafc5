"""Copies: live data from one store into another, resumable and verified, and followed for a move.

copied = await copy(source, target)
copied = await follow(source, target, stop)
"""

from keystead.stores.copy.dry_run import Surveyed, survey
from keystead.stores.copy.full_copy import Copied, Options, copy, follow
from keystead.stores.copy.journal import progress_path
from keystead.stores.copy.passes import Passed
from keystead.stores.copy.verification import Verified
from keystead.stores.transfer.errors import CopyError, CopyLost, NoProgress, SameStore, SourceEmptied
from keystead.stores.transfer.progress import Progress
from keystead.stores.transfer.reader import count_keys

__all__ = [
    "Copied",
    "CopyError",
    "CopyLost",
    "NoProgress",
    "Options",
    "Passed",
    "Progress",
    "SameStore",
    "SourceEmptied",
    "Surveyed",
    "Verified",
    "copy",
    "count_keys",
    "follow",
    "progress_path",
    "survey",
]
