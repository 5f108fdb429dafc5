"""Login: sessions of people who log in at an OAuth provider, and what a login needs while it is under way."""

from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import AuthState, LoginContext, PwaSession, PwaSessionMetadata, Session

__all__ = ["AuthState", "LoginContext", "LoginKeys", "PwaSession", "PwaSessionMetadata", "Session"]
