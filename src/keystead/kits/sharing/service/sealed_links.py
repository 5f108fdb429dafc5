"""Sealed links: `v1.{iv}.{ciphertext and tag}`, encrypted with AES-256-GCM, in base64url without padding."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr, ValidationError

from keystead.kits.sharing.service.outcomes import SharingRefused
from keystead.parts.digest import base64url

KEY_BYTES = 32
_IV_BYTES = 12
_PACKED_MIN_BYTES = 17  # a tag and at least one byte
_TOKEN_MAX = 8192
_LAST_MS = 253_402_300_799_999  # the end of the year 9999, the last that datetime supports


class Payload(BaseModel):
    """The content of a sealed link. `u` is an external URL, or `b` the path of an uploaded file.

    Links sealed by another system with the same key have no `id` and `s`; they open until they expire.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    v: StrictInt
    u: StrictStr | None = None
    b: StrictStr | None = None
    n: StrictStr
    p: StrictStr
    exp: StrictInt
    iat: StrictInt
    id: StrictStr | None = None
    s: StrictStr | None = None
    """the digest of its short token, so that sealed links cannot be swapped in the store"""


class SealedLinks:
    """Encrypts with the last key, and decrypts with any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._ciphers = [AESGCM(key) for key in keys]

    def seal(self, payload: Payload) -> str:
        iv = secrets.token_bytes(_IV_BYTES)
        packed = self._ciphers[-1].encrypt(iv, payload.model_dump_json(exclude_none=True).encode(), None)
        return f"v1.{base64url(iv)}.{base64url(packed)}"

    def open(self, token: str) -> Payload:
        """Raises SharingRefused: INVALID_FORMAT, INVALID_BYTES or INVALID_PAYLOAD."""
        parts = token.split(".") if len(token) <= _TOKEN_MAX else []
        if len(parts) != 3 or parts[0] != "v1":
            raise SharingRefused("INVALID_FORMAT", "this is not a link; ask the sender for the complete link")
        iv, packed = _decode(parts[1]), _decode(parts[2])
        if iv is None or packed is None or len(iv) != _IV_BYTES or len(packed) < _PACKED_MIN_BYTES:
            raise SharingRefused("INVALID_BYTES", "this link is incomplete; ask the sender for the complete link")
        for cipher in reversed(self._ciphers):
            with suppress(InvalidTag):
                return _parse(cipher.decrypt(iv, packed, None))
        raise _altered()


def _parse(plain: bytes) -> Payload:
    with suppress(ValidationError):
        payload = Payload.model_validate_json(plain)
        has_one_target = (payload.u is None) != (payload.b is None)
        has_record = payload.b is None or payload.id is not None  # uploaded files always have one
        if payload.v == 1 and has_one_target and has_record and payload.exp <= _LAST_MS:
            return payload
    raise _altered()


def _altered() -> SharingRefused:
    return SharingRefused("INVALID_PAYLOAD", "this link was altered or issued by another system; ask for a new one")


def _decode(text: str) -> bytes | None:
    """Decode canonical base64url without padding, so that no two texts decode alike; None if it is not canonical."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64url(data) == text else None


def key_bytes(text: str) -> bytes | None:
    """A 32-byte key in base64url, base64, hex, or as raw text; None if it is none of these."""
    if re.fullmatch(r"[0-9A-Fa-f]{64}", text):
        return bytes.fromhex(text)
    for altchars in (b"-_", b"+/"):
        with suppress(binascii.Error, ValueError):
            bare = text.rstrip("=")
            data = base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=altchars, validate=True)
            if len(data) == KEY_BYTES:
                return data
    raw = text.encode()
    return raw if len(raw) == KEY_BYTES else None
