"""Secrets that browsers carry through a sign-in, and their digests in the store."""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from hashlib import sha256


def claim_digest(secret: str) -> str:
    """Like `digest`, but in standard base64, as the document specifies for claim tokens."""
    return b64encode(sha256(secret.encode()).digest()).decode()


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_-]{43}", text) is not None


def new_codes(count: int) -> list[str]:
    """Distinct four-digit codes for people to compare. They are not secrets."""
    return [f"{number:04}" for number in secrets.SystemRandom().sample(range(10_000), count)]


def add_decoys(code: str, count: int) -> list[str]:
    """The code and `count - 1` others, shuffled."""
    decoys = [one for one in new_codes(count) if one != code][: count - 1]
    return secrets.SystemRandom().sample([code, *decoys], len(decoys) + 1)
