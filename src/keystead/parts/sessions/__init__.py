"""Sessions: create, read, touch, rotate, revoke and list logins, with idle and absolute timeouts and a cap per user."""

from keystead.parts.sessions.session_policy import AAL1, AAL2, AAL3, Policy
from keystead.parts.sessions.session_record import Act, Ended, Gone, Live, New, SessionRecord, Successor
from keystead.parts.sessions.session_token import id_of
from keystead.parts.sessions.sessions import Sessions

__all__ = [
    "AAL1",
    "AAL2",
    "AAL3",
    "Act",
    "Ended",
    "Gone",
    "Live",
    "New",
    "Policy",
    "SessionRecord",
    "Sessions",
    "Successor",
    "id_of",
]
