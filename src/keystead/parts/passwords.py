"""Password hashing: salted scrypt, with constant-time comparison."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor

from keystead.errors import KeysteadError

_SALT_BYTES = 16
_MAX = 256
_WAITING_MAX = 32

# A separate pool: waiting for a hash must not block file access. Each hash takes 16 MB of memory.
_threads = ThreadPoolExecutor(2, "keystead-passwords")
_waiting = 0


class PasswordsBusy(KeysteadError):
    """Too many passwords wait to be hashed in this process."""

    code = "passwords-busy"

    def __init__(self) -> None:
        super().__init__("too many concurrent password checks; try again in a moment")


def is_password(text: str) -> bool:
    return 0 < len(text) <= _MAX


async def hash_password(password: str) -> str:
    """Hash a password: `scrypt.{salt}.{hash}`, in hex. It takes some tens of milliseconds in a thread."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return f"scrypt.{salt.hex()}.{(await _scrypt(password, salt)).hex()}"


async def matches(password: str, stored: str) -> bool:
    _, salt, digest = stored.split(".")
    return hmac.compare_digest(await _scrypt(password, bytes.fromhex(salt)), bytes.fromhex(digest))


async def _scrypt(password: str, salt: bytes) -> bytes:
    """Raise PasswordsBusy if too many are waiting."""
    global _waiting
    if _waiting >= _WAITING_MAX:
        raise PasswordsBusy
    _waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads, _hash, password, salt)
    finally:
        _waiting -= 1


def _hash(password: str, salt: bytes) -> bytes:
    data = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(data, salt=salt, n=2**14, r=8, p=1, dklen=32)
