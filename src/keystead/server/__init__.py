"""The HTTP server: settings, and a FastAPI application built from kits."""

from typing import TYPE_CHECKING, Any

from keystead.extras import from_extra

with from_extra("cli", "keystead.server"):
    from keystead.server.settings import Settings
    from keystead.server.settings_errors import MissingSettings, WrongSettings

if TYPE_CHECKING:
    from keystead.server.app import create_app

__all__ = ["MissingSettings", "Settings", "WrongSettings", "create_app"]


def __getattr__(name: str) -> Any:
    """Import the application on demand: commands that only read settings need no web framework."""
    if name == "create_app":
        with from_extra("server", "keystead.server"):
            from keystead.server.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
