"""The sharing service, independent of HTTP."""

from keystead.kits.sharing.service.clean_up import CleanUp, Counts
from keystead.kits.sharing.service.issuing import MESSAGE_MAX, RECEIVER_MAX
from keystead.kits.sharing.service.outcomes import (
    Download,
    Issued,
    OwnLink,
    Resolved,
    SharingRefused,
    Shown,
    Status,
    Wanted,
)
from keystead.kits.sharing.service.own_links import User
from keystead.kits.sharing.service.place import FilesElsewhere
from keystead.kits.sharing.service.sealed_links import Payload, SealedLinks
from keystead.kits.sharing.service.settings import LIMITS, SharingSettings, missing
from keystead.kits.sharing.service.sharing import UPLOAD_S, Sharing, open_sharing
from keystead.kits.sharing.service.tickets import Range

__all__ = [
    "LIMITS",
    "MESSAGE_MAX",
    "RECEIVER_MAX",
    "UPLOAD_S",
    "CleanUp",
    "Counts",
    "Download",
    "FilesElsewhere",
    "Issued",
    "OwnLink",
    "Payload",
    "Range",
    "Resolved",
    "SealedLinks",
    "Sharing",
    "SharingRefused",
    "SharingSettings",
    "Shown",
    "Status",
    "User",
    "Wanted",
    "missing",
    "open_sharing",
]
