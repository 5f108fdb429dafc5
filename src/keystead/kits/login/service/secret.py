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


def new_codes(count: int) -> list[str]:
    """Codes of four digits, each another one, for people to compare. They guard nothing by themselves."""
    return [f"{number:04}" for number in secrets.SystemRandom().sample(range(10_000), count)]


def shuffled_among_others(code: str, count: int) -> list[str]:
    """The code among others, in an order that does not tell which it is."""
    others = [one for one in new_codes(count) if one != code][: count - 1]
    return secrets.SystemRandom().sample([code, *others], len(others) + 1)
