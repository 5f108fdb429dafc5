"""A provider to sign in at with no account anywhere: for development only, and refused in production."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.server.demo_provider.keys import DemoCode, DemoGrant, DemoKeys

if TYPE_CHECKING:
    from keystead.server.demo_provider.routes import DemoInProduction, demo_provider, demo_router

__all__ = ["DemoCode", "DemoGrant", "DemoInProduction", "DemoKeys", "demo_provider", "demo_router"]

_LATER = ("DemoInProduction", "demo_provider", "demo_router")


def __getattr__(name: str) -> Any:
    """What needs a web framework is imported when it is asked for: `keystead check` and its like never do."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.routes"), name)
