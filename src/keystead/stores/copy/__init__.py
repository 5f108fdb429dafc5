"""Copies: live data from one store into another, resumable and verified, and followed for a move.

copied = await copy(source, target)
copied = await follow(source, target, stop)
"""

from keystead.stores.copy.copying import CopyProgress, Passed, count_keys
from keystead.stores.copy.errors import CopyError, CopyLost, NoProgress, SameStore, SourceEmptied
from keystead.stores.copy.notes import progress_path
from keystead.stores.copy.surveying import Surveyed, survey
from keystead.stores.copy.verifying import Verified
from keystead.stores.copy.whole import Copied, copy, follow

__all__ = [
    "Copied",
    "CopyError",
    "CopyLost",
    "CopyProgress",
    "NoProgress",
    "Passed",
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
