"""Shared by the JWT tests: keys of each algorithm, a frozen clock, and hand-made tokens."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from keystead.parts.digest import base64url
from keystead.parts.jwt import AccessTokens, Algorithm, SigningKeys
from tests.every_store import (
    EVERY,
    mariadb_server,
    on,
    postgres_server,
    redis_server,
    store,
    stores,
    valkey_cluster,
)
from tests.parts.sessions.conftest import Clock

__all__ = ["Clock", "mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

everywhere = on(*EVERY, "cluster")
here = on("memory")
each_algorithm = pytest.mark.parametrize("algorithm", ["HS256", "RS256", "EdDSA"])

ISSUER = "https://relay.example"
AUDIENCE = "app-client"


@cache
def key_text(algorithm: Algorithm, number: int = 1) -> str:
    """A key that is made once: RSA keys take a while."""
    assert number
    return SigningKeys.new_key(algorithm)


def keys_of(*algorithms: Algorithm) -> SigningKeys:
    """Keys with the ids k1, k2, …; the last one signs."""
    entries = [f"k{number}:{key_text(one, number)}" for number, one in enumerate(algorithms, 1)]
    return SigningKeys.from_text(",".join(entries))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def access_of(keys: SigningKeys, clock: Clock, **options: Any) -> AccessTokens:
    return AccessTokens(keys, **{"issuer": ISSUER, "audience": AUDIENCE, "now_ms": clock, **options})


def claims_at(clock: Clock, **changed: Any) -> dict[str, Any]:
    """The claims of a valid token, with the changes of a test. None removes a claim."""
    now_s = clock() // 1000
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "42", "jti": "one", "iat": now_s, "exp": now_s + 3600}
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def by_hand(keys: SigningKeys, claims: dict[str, Any] | bytes, **header: Any) -> str:
    """A token with any content, signed by the current key."""
    key = keys.current
    data = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return key.sign({"alg": key.algorithm, "kid": key.id, "typ": "at+jwt", **header}, data)


def parts(header: dict[str, Any] | bytes, claims: dict[str, Any] | bytes, signature: bytes = b"") -> str:
    """A token of these parts, without a valid signature."""
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in (header, claims)]
    return ".".join([*map(base64url, texts), base64url(signature)])
