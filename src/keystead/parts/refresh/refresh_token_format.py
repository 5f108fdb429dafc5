"""The token of a chain: what the client has. Nothing of it is in the store but one digest.

    {secret}.{generation}.{mac}

`secret` is made at random when the chain begins, and is in each of its tokens; the store knows the chain by the
digest of it. `generation` counts the rotations. `mac` proves that this server made the token of this generation: it is
an HMAC with a key that is derived from the key ring. So

- the successor of a token is always the same text, whoever makes it and however often, and nobody has to keep it;
- an old token is known as one that was good once, and told from one that somebody made up;
- who reads the store learns no token, and who has an old token cannot make the next one;
- even with the key ring nobody can make a token without the secret of its chain, which only the client has.
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
PURPOSE: Final = "refresh tokens"  # of the keys that are derived from the key ring

_TOKEN = re.compile(r"([\w-]{43})\.(0|[1-9][0-9]{0,11})\.([\w-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Given:
    """A token that this server made.

    id           the digest of the chain's secret: what the store knows it by. It opens nothing
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
        """The next token of the chain. It is made with the same key, so that it is one text for all servers."""
        return Given(self.id, self.generation + 1, self._secret, self._key)

    def __repr__(self) -> str:
        return f"<a refresh token of generation {self.generation}>"


class Mint:
    """Makes tokens and knows them again. `keys` are those of the key ring, the current one last."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def first(self, secret: bytes) -> Given:
        """The first token of a new chain."""
        if len(secret) < SECRET_BYTES:
            raise BadValue(f"the secret of a refresh token has {SECRET_BYTES} bytes or more, not {len(secret)}")
        text = base64url(secret[:SECRET_BYTES])
        return Given(digest(text), 0, text, self._keys[-1])

    def read(self, token: str) -> Given | None:
        """None: this server never made it, or with a key that is no longer on the ring."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        secret, generation, mac = found[1], int(found[2]), found[3]
        for key in reversed(self._keys):
            if hmac.compare_digest(_mac(key, secret, generation), mac):
                return Given(digest(secret), generation, secret, key)
        return None


def _mac(key: bytes, secret: str, generation: int) -> str:
    # The secret has 43 characters, so no two pairs of secret and generation are written alike.
    return base64url(hmac.digest(key, f"{secret}.{generation}".encode(), sha256))
