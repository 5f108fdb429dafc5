"""File sharing: links that expire, uploads and downloads, and the clean-up of expired files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import EdgeMeta, Link, Retry, Ticket

if TYPE_CHECKING:
    from keystead.kits.sharing.routes import KIT
    from keystead.kits.sharing.service import Sharing, SharingRefused, SharingSettings, Wanted

__all__ = [
    "KIT",
    "EdgeMeta",
    "Link",
    "Retry",
    "Sharing",
    "SharingKeys",
    "SharingRefused",
    "SharingSettings",
    "Ticket",
    "Wanted",
]

_LATER = {"KIT": "routes", **dict.fromkeys(("Sharing", "SharingRefused", "SharingSettings", "Wanted"), "service")}


def __getattr__(name: str) -> Any:
    """Import modules that need a web framework on first use: `keystead check` does not need them."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
