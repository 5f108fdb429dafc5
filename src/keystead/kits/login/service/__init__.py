"""What a login does, from the first click to the last logout. It knows no HTTP."""

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
