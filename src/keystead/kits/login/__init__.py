"""Sign-in with OAuth and OpenID Connect providers, and the sessions that it creates."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import AuthState, LoginContext, PendingLogin, PwaSession, PwaSessionMetadata, Session

if TYPE_CHECKING:
    from keystead.kits.login.routes import KIT
    from keystead.kits.login.service import Login, LoginRefused, LoginSettings, ProviderSettings

__all__ = [
    "KIT",
    "AuthState",
    "Login",
    "LoginContext",
    "LoginKeys",
    "LoginRefused",
    "LoginSettings",
    "PendingLogin",
    "ProviderSettings",
    "PwaSession",
    "PwaSessionMetadata",
    "Session",
]

_LATER = {"KIT": "routes", **dict.fromkeys(("Login", "LoginRefused", "LoginSettings", "ProviderSettings"), "service")}


def __getattr__(name: str) -> Any:
    """Import modules that need a web framework on first use: `keystead check` does not need them."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
