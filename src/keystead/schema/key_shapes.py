"""Shapes of keys that no family declares: `user:42:cart` and `user:7:cart` are both `user:{number}:cart`."""

from __future__ import annotations

import re
from typing import Final

from keystead.errors import printable

MOST_SHAPES: Final = 200  # further ones are counted together
OTHER: Final = "…"

_PARTS: Final = re.compile(r"([:/|.])")
_KINDS: Final = (
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE), "{uuid}"),
    (re.compile(r"\d{4}-\d\d(?:-\d\d)?"), "{date}"),
    (re.compile(r"-?\d+"), "{number}"),
    (re.compile(r"[^@\s]+@[^@\s]+"), "{address}"),
    # Long, with a digit or mixed case: an id or a secret, not a word.
    (re.compile(r"(?=.*\d|.*[a-z].*[A-Z]|.*[A-Z].*[a-z])[\w~+=-]{16,}"), "{id}"),
)


def key_shape(key: bytes) -> str:
    """The shape of a key: its segments, with ids, numbers and dates replaced by what they are.

    It never contains a long random text, which may be a credential.
    """
    return "".join(_segment_shape(part) for part in _PARTS.split(printable(key)))


def _segment_shape(part: str) -> str:
    return next((name for expression, name in _KINDS if expression.fullmatch(part)), part)
