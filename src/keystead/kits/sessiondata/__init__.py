"""Session data: key-value storage per session (kept or read once) and per user (durable)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.kits.sessiondata.keys import SessionDataKeys
from keystead.kits.sessiondata.models import SessionField, UserField
from keystead.kits.sessiondata.service import (
    SessionArea,
    SessionData,
    SessionDataSettings,
    TooLong,
    TooMany,
    UserArea,
)

if TYPE_CHECKING:
    from keystead.kits.sessiondata.routes import KIT, session_data_kit

__all__ = [
    "KIT",
    "SessionArea",
    "SessionData",
    "SessionDataKeys",
    "SessionDataSettings",
    "SessionField",
    "TooLong",
    "TooMany",
    "UserArea",
    "UserField",
    "session_data_kit",
]


def __getattr__(name: str) -> Any:
    """Lazy imports: commands such as `keystead check` never load the web framework."""
    if name not in ("KIT", "session_data_kit"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.routes"), name)
