"""Refresh token rotation with reuse detection: single use, safe to retry; a stolen token ends its chain."""

from typing import TYPE_CHECKING

from keystead.deprecation import forward_old_names
from keystead.parts.refresh.refresh_record import (
    Misuse,
    NewChain,
    Reason,
    RefreshEvent,
    RefreshRecord,
    Retried,
    Rotated,
    RotationRefused,
)
from keystead.parts.refresh.refresh_tokens import RefreshTokens

__all__ = [
    "Misuse",
    "NewChain",
    "Reason",
    "RefreshEvent",
    "RefreshRecord",
    "RefreshTokens",
    "Retried",
    "Rotated",
    "RotationRefused",
]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = forward_old_names(__name__, {"Begun": "NewChain", "Refused": "RotationRefused"})
