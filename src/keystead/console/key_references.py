"""References to keys in the addresses of pages. A key with a credential is encrypted for the session it is shown in."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from keystead.console.key_visibility import hides_keys
from keystead.schema import KeyRing
from keystead.schema.family import Bound
from keystead.schema.seal import SealError


class KeyReferences:
    """The references of one session: `key=user:42`, or `ref=sealed.…` for a key whose name is a credential.

    Such a reference means nothing to anyone else, so it may be in the history of a browser.
    """

    def __init__(self, session_token: str) -> None:
        self._ring = KeyRing({"console": sha256(b"keystead console key reference " + session_token.encode()).digest()})

    def query(self, bound: Bound[Any], key: str) -> dict[str, str]:
        if not hides_keys(bound.family):
            return {"key": key}
        return {"ref": self._ring.seal(key.encode(), _about(bound))}

    def seal(self, data: bytes, about: str) -> str:
        """Data that only this session can open."""
        return self._ring.seal(data, about.encode())

    def open(self, sealed: str, about: str) -> bytes:
        """Raises SealError for data of another session."""
        return self._ring.open(sealed, about.encode())

    def url(self, bound: Bound[Any], key: str, act: str = "") -> str:
        """The address of the page of a key, or of an act on it."""
        return f"{key_path(bound)}{f'/{act}' if act else ''}?{urlencode(self.query(bound, key))}"

    def key_of(self, bound: Bound[Any], key: str | None, ref: str | None) -> str | None:
        """The key of a reference; None: it is of another session or family, or not a key of this family."""
        if ref is not None:
            try:
                key = self._ring.open(ref, _about(bound)).decode()
            except (SealError, ValueError):
                return None
        return key if key is not None and bound.parse(key) is not None else None


def family_path(bound: Bound[Any]) -> str:
    return f"/console/family/{_names(bound)}"


def key_path(bound: Bound[Any]) -> str:
    return f"/console/key/{_names(bound)}"


def _names(bound: Bound[Any]) -> str:
    return f"{quote(type(bound.keyspace).__name__)}/{quote(bound.family.name)}"


def _about(bound: Bound[Any]) -> bytes:
    return f"{type(bound.keyspace).__name__}.{bound.family.name}".encode()
