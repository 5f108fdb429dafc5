"""Sessions for Django: `SESSION_ENGINE = "keystead.integrations.django.sessions"`."""

from keystead.integrations.django.session_store import SessionStore
from keystead.integrations.django.user_sessions import (
    aend_other_sessions,
    aend_session,
    aend_sessions,
    alist_sessions,
    end_other_sessions,
    end_session,
    end_sessions,
    list_sessions,
)

__all__ = [
    "SessionStore",
    "aend_other_sessions",
    "aend_session",
    "aend_sessions",
    "alist_sessions",
    "end_other_sessions",
    "end_session",
    "end_sessions",
    "list_sessions",
]
