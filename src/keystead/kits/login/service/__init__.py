"""The login service, independent of HTTP: sign-in, sessions and tokens, sign-out."""

from keystead.kits.login.service.login import Login, open_login
from keystead.kits.login.service.outcomes import (
    Finished,
    Full,
    LoginRefused,
    Started,
    TokenPair,
    Unconfirmed,
    Visitor,
    not_logged_in,
)
from keystead.kits.login.service.settings import LIMITS, LoginSettings, ProviderSettings, is_return_path, missing

__all__ = [
    "LIMITS",
    "Finished",
    "Full",
    "Login",
    "LoginRefused",
    "LoginSettings",
    "ProviderSettings",
    "Started",
    "TokenPair",
    "Unconfirmed",
    "Visitor",
    "is_return_path",
    "missing",
    "not_logged_in",
    "open_login",
]
