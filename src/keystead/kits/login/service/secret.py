"""Secrets that browsers carry through a login, and what the store knows of them."""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from hashlib import sha256


def claim_digest(secret: str) -> str:
    """As `digest`, in standard base64, as the document has it for claim tokens."""
    return b64encode(sha256(secret.encode()).digest()).decode()


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_-]{43}", text) is not None
