"""Copy live data from one store to another, resumable and verified; follow the source during a migration.

copied = await copy(source, target)
copied = await follow(source, target, stop)
"""

from keystead.stores.copy.dry_run import Surveyed, survey
from keystead.stores.copy.full_copy import Copied, CopyOptions, copy, follow
from keystead.stores.copy.journal import progress_path
from keystead.stores.copy.passes import Passed
from keystead.stores.copy.verification import Verified
from keystead.stores.transfer.reader import count_keys
from keystead.stores.transfer.transfer_errors import CopyError, CopyLost, NoProgress, SameStore, SourceEmptied
from keystead.stores.transfer.transfer_progress import TransferProgress

__all__ = [
    "Copied",
    "CopyError",
    "CopyLost",
    "CopyOptions",
    "NoProgress",
    "Passed",
    "SameStore",
    "SourceEmptied",
    "Surveyed",
    "TransferProgress",
    "Verified",
    "copy",
    "count_keys",
    "follow",
    "progress_path",
    "survey",
]
