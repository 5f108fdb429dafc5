"""Nicknames for visitors without a name: the same visitor always gets the same one."""

from __future__ import annotations

from typing import Final

_QUALITIES: Final = (
    *("Amber", "Brave", "Calm", "Clever", "Dapper", "Eager", "Fuzzy", "Gentle"),
    *("Happy", "Jolly", "Lucky", "Mellow", "Nimble", "Quiet", "Swift", "Witty"),
)
_ANIMALS: Final = (
    *("Badger", "Beaver", "Crane", "Dolphin", "Falcon", "Fox", "Heron", "Koala"),
    *("Lynx", "Otter", "Owl", "Panda", "Rabbit", "Tiger", "Turtle", "Wolf"),
)


def nickname(visitor_hash: str) -> str:
    """`SwiftOtter042`, derived from the hash of a visitor."""
    number = int(visitor_hash, 16)
    return f"{_QUALITIES[number % 16]}{_ANIMALS[number // 16 % 16]}{number // 256 % 1000:03d}"
