"""Data sessions: server-side sessions with free keys, stored key by key, for `request.session` of web frameworks."""

from keystead.parts.datasessions.data_keys import ANONYMOUS, DataSessionKeys, data_session_keys
from keystead.parts.datasessions.data_record import DataRecord, DataSession
from keystead.parts.datasessions.data_sessions import DataSessions
from keystead.parts.sessions import Gone, Policy

__all__ = [
    "ANONYMOUS",
    "DataRecord",
    "DataSession",
    "DataSessionKeys",
    "DataSessions",
    "Gone",
    "Policy",
    "data_session_keys",
]
