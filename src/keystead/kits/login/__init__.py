"""Login: sessions of people who log in at an OAuth provider, and what a login needs while it is under way."""

from typing import Final

from keystead.kits.kit import Example, Kit
from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import AuthState, LoginContext, PendingLogin, PwaSession, PwaSessionMetadata, Session
from keystead.kits.login.routes import router
from keystead.kits.login.service import Login, LoginRefused, LoginSettings, ProviderSettings, missing, open_login

_PRESETS = ("discord", "github", "google")

KIT: Final = Kit(
    name="login",
    doc="Log in with Discord, GitHub, Google or any OpenID Connect provider; sessions that end when they should.",
    keyspace=LoginKeys,
    settings=LoginSettings,
    router=router,
    service=open_login,
    environment={
        f"{name.upper()}_{setting.upper()}": f"providers.{name}.{setting}"
        for name in _PRESETS
        for setting in ("client_id", "client_secret", "redirect_uri")
    },
    missing=missing,
    examples=(
        Example("Log in", "/login", "Log in, see your sessions, end them."),
        Example("Who am I?", "/api/auth/me?soft=1", "Who is logged in, as JSON."),
        Example("My sessions", "/api/auth/sessions", "Where you are logged in, as JSON."),
    ),
)

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
