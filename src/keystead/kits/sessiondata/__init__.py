"""Session data: what an application remembers of a session, once or until it ends, and of a user for good."""

from keystead.kits.sessiondata.keys import SessionDataKeys
from keystead.kits.sessiondata.models import SessionField, UserField
from keystead.kits.sessiondata.service import SessionArea, SessionData, SessionDataSettings, TooLong, UserArea

__all__ = [
    "SessionArea",
    "SessionData",
    "SessionDataKeys",
    "SessionDataSettings",
    "SessionField",
    "TooLong",
    "UserArea",
    "UserField",
]
