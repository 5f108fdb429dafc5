"""What a login does, from the first click to the last logout. It knows no HTTP."""

from keystead.kits.login.service.login import Login, open_login
from keystead.kits.login.service.outcomes import Finished, LoginRefused, Started, Unconfirmed, not_logged_in
from keystead.kits.login.service.settings import LIMITS, LoginSettings, ProviderSettings, is_return_path, missing

__all__ = [
    "LIMITS",
    "Finished",
    "Login",
    "LoginRefused",
    "LoginSettings",
    "ProviderSettings",
    "Started",
    "Unconfirmed",
    "is_return_path",
    "missing",
    "not_logged_in",
    "open_login",
]
