"""Session data: key-value storage per session (kept or read once) and per user (durable)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.kits.sessiondata.keys import SessionDataKeys
from keystead.kits.sessiondata.models import SessionField, UserField

if TYPE_CHECKING:
    from keystead.kits.sessiondata.routes import KIT, session_data_kit
    from keystead.kits.sessiondata.service import (
        SessionArea,
        SessionData,
        SessionDataSettings,
        TooLong,
        TooMany,
        UserArea,
    )

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


_LATER = {
    **dict.fromkeys(("KIT", "session_data_kit"), "routes"),
    **dict.fromkeys(("SessionArea", "SessionData", "SessionDataSettings", "TooLong", "TooMany", "UserArea"), "service"),
}


def __getattr__(name: str) -> Any:
    """Lazy imports: commands such as `keystead check` load neither the web framework nor what only a server needs."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
