"""A provider to sign in at with no account anywhere: for development only, and refused in production."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.server.demo_provider.keys import DemoCode, DemoGrant, DemoKeys, DemoPledge

if TYPE_CHECKING:
    from keystead.server.demo_provider.patreon import demo_patreon, demo_patreon_router
    from keystead.server.demo_provider.responses import DemoInProduction
    from keystead.server.demo_provider.routes import demo_provider, demo_router

__all__ = [
    "DemoCode",
    "DemoGrant",
    "DemoInProduction",
    "DemoKeys",
    "DemoPledge",
    "demo_patreon",
    "demo_patreon_router",
    "demo_provider",
    "demo_router",
]

_LATER = {
    "DemoInProduction": "responses",
    "demo_patreon": "patreon",
    "demo_patreon_router": "patreon",
    "demo_provider": "routes",
    "demo_router": "routes",
}


def __getattr__(name: str) -> Any:
    """What needs a web framework is imported when it is asked for: `keystead check` and its like never do."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
