"""Sharing without HTTP."""

from keystead.kits.sharing.service.clean_up import CleanUp, Counts
from keystead.kits.sharing.service.outcomes import Download, Issued, Resolved, SharingRefused, Shown, Status, Wanted
from keystead.kits.sharing.service.sealed_links import Payload, SealedLinks
from keystead.kits.sharing.service.settings import LIMITS, SharingSettings, missing
from keystead.kits.sharing.service.sharing import MESSAGE_MAX, UPLOAD_S, Sharing, open_sharing, told

__all__ = [
    "LIMITS",
    "MESSAGE_MAX",
    "UPLOAD_S",
    "CleanUp",
    "Counts",
    "Download",
    "Issued",
    "Payload",
    "Resolved",
    "SealedLinks",
    "Sharing",
    "SharingRefused",
    "SharingSettings",
    "Shown",
    "Status",
    "Wanted",
    "missing",
    "open_sharing",
    "told",
]
