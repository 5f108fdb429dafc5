"""The format of refresh tokens. The store has only a digest.

    {secret}.{generation}.{mac}

`secret` is random, created with the chain, and part of each of its tokens; its digest is the id of the chain in the
store. `generation` counts the rotations. `mac` proves that this server created the token of this generation: it is an
HMAC with a key derived from the key ring. So

- the successor of a token is always the same text on every server, and does not have to be stored;
- old and forged tokens are distinguished;
- the store reveals no token, and an old token does not reveal the next one;
- even with the key ring, a token cannot be created without the secret of its chain, which only the client has.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from keystead.errors import BadValue
from keystead.parts.digest import base64url, digest

SECRET_BYTES: Final = 32
PURPOSE: Final = "refresh tokens"  # the key derivation context

_TOKEN = re.compile(r"([\w-]{43})\.(0|[1-9][0-9]{0,11})\.([\w-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Given:
    """An authentic token of this server.

    id           the digest of the chain's secret: its id in the store, not a credential
    generation   how many tokens of the chain came before it
    """

    id: str
    generation: int
    _secret: str
    _key: bytes

    @property
    def text(self) -> str:
        return f"{self._secret}.{self.generation}.{_mac(self._key, self._secret, self.generation)}"

    @property
    def successor(self) -> Given:
        """The next token of the chain. It uses the same key, so that all servers create the same text."""
        return Given(self.id, self.generation + 1, self._secret, self._key)

    def __repr__(self) -> str:
        return f"<a refresh token of generation {self.generation}>"


class Mint:
    """Creates and verifies tokens. `keys` are those of the key ring, the current one last."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def first(self, secret: bytes) -> Given:
        """The first token of a new chain."""
        if len(secret) < SECRET_BYTES:
            raise BadValue(f"the secret of a refresh token needs at least {SECRET_BYTES} bytes, not {len(secret)}")
        text = base64url(secret[:SECRET_BYTES])
        return Given(digest(text), 0, text, self._keys[-1])

    def read(self, token: str) -> Given | None:
        """Verify a token. None: it is forged, or its key is no longer on the ring."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        secret, generation, mac = found[1], int(found[2]), found[3]
        for key in reversed(self._keys):
            if hmac.compare_digest(_mac(key, secret, generation), mac):
                return Given(digest(secret), generation, secret, key)
        return None


def _mac(key: bytes, secret: str, generation: int) -> str:
    # The secret has 43 characters, so the encoding of secret and generation is unambiguous.
    return base64url(hmac.digest(key, f"{secret}.{generation}".encode(), sha256))
