"""Refresh tokens, as a part: good for one use, rotated in one step, safe to retry; a stolen one ends its chain."""

from keystead.parts.refresh.refresh_record import (
    Begun,
    Misuse,
    Reason,
    RefreshEvent,
    RefreshRecord,
    Refused,
    Retried,
    Rotated,
)
from keystead.parts.refresh.refresh_tokens import RefreshTokens

__all__ = [
    "Begun",
    "Misuse",
    "Reason",
    "RefreshEvent",
    "RefreshRecord",
    "RefreshTokens",
    "Refused",
    "Retried",
    "Rotated",
]
