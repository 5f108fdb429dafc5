"""Passwords of links: kept as a slow hash, and compared in constant time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets

_SALT_BYTES = 16
_MAX = 256


def is_password(text: str) -> bool:
    return 0 < len(text) <= _MAX


async def hashed(password: str) -> str:
    """`scrypt.{salt}.{hash}`, in hex. It takes a thread of its own for some tens of milliseconds."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return f"scrypt.{salt.hex()}.{(await _scrypt(password, salt)).hex()}"


async def matches(password: str, kept: str) -> bool:
    _, salt, digest = kept.split(".")
    return hmac.compare_digest(await _scrypt(password, bytes.fromhex(salt)), bytes.fromhex(digest))


async def _scrypt(password: str, salt: bytes) -> bytes:
    data = password.encode("utf-8", "surrogatepass")
    return await asyncio.to_thread(hashlib.scrypt, data, salt=salt, n=2**14, r=8, p=1, dklen=32)
