"""ID tokens: who logged in, signed by the issuer (OpenID Connect Core 1.0, 3.1.3.7)."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeGuard

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwa import JWSAlgModel
from joserfc.jwk import JWKRegistry, Key

from keystead.parts.oauth.fetch import Endpoints
from keystead.parts.oauth.oauth_errors import BadAnswer, BadIdToken
from keystead.parts.oauth.provider import Provider
from keystead.parts.oauth.shared_fetch import SharedCall

LEEWAY_S: Final = 60  # tolerated clock skew
KEEP_MS: Final = 600_000  # a withdrawn key is not trusted for longer than this
REFETCH_EVERY_MS: Final = 30_000

_KEY_TYPES = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP", "Ed25519": "OKP"}
_LONGEST_SUBJECT = 255
_LARGEST_NUMBER = 2**53


class _Registry(jws.JWSRegistry):
    """The allowed algorithms. joserfc warns about the name `EdDSA`, which providers still use for Ed25519."""

    def get_alg(self, name: str) -> JWSAlgModel:
        if name not in (self.allowed or ()):
            raise JoseError(f"{name} is not allowed")
        return self.algorithms[name]


class IssuerKeys:
    """The public keys of an issuer, cached for ten minutes.

    An unknown key id triggers a new fetch, because issuers rotate their keys; but at most every 30 seconds, so that
    forged tokens cannot cause endless requests. Logins whose key is known do not wait for it.
    """

    def __init__(self, provider: str, endpoints: Endpoints, now_ms: Callable[[], int]) -> None:
        self._provider = provider
        self._endpoints = endpoints
        self._now_ms = now_ms
        self._keys: list[Key] | None = None
        self._fetched_at_ms = 0
        self._missed_at_ms: int | None = None
        self._fetching: SharedCall[None] = SharedCall()

    async def matching(self, jwks_uri: str, kid: object, algorithm: str) -> Key:
        """The key that may have signed this. Raises BadIdToken if there is none."""
        fetch = partial(self._fetch, jwks_uri)
        if self._keys is None or self._now_ms() - self._fetched_at_ms >= KEEP_MS:
            await self._fetching.join(fetch)
        key = self._choose(kid, algorithm)
        if key is None and self._may_look_again():
            await self._fetching.join(fetch)
            key = self._choose(kid, algorithm)
        if key is None:
            raise BadIdToken(self._provider, "its ID token is signed with a key that the issuer does not publish")
        return key

    def _may_look_again(self) -> bool:
        """Whether to fetch the key set again for an unknown key; joining a fetch in progress costs nothing."""
        if self._fetching.is_running:
            return True
        now_ms = self._now_ms()
        if self._missed_at_ms is not None and now_ms - self._missed_at_ms < REFETCH_EVERY_MS:
            return False
        self._missed_at_ms = now_ms
        return True

    async def _fetch(self, jwks_uri: str) -> None:
        published = (await self._endpoints.get("key set", jwks_uri)).get("keys")
        if not isinstance(published, list):
            raise BadAnswer(self._provider, "its key set contains no keys")
        self._keys = [key for one in published if (key := _import_key(one)) is not None]
        self._fetched_at_ms = self._now_ms()

    def _choose(self, kid: object, algorithm: str) -> Key | None:
        """Find a key by its id; without an id, only if exactly one key could have signed the token."""
        fitting = [
            key
            for key in self._keys or ()
            if key.key_type == _KEY_TYPES[algorithm]
            and key.get("use") in (None, "sig")
            and key.get("alg") in (None, algorithm)
            and kid in (None, key.get("kid"))
        ]
        return fitting[0] if fitting and (kid is not None or len(fitting) == 1) else None


def _import_key(published: object) -> Key | None:
    """Parse a public key. None: a kind that we do not support."""
    if not isinstance(published, dict) or published.get("kty") not in _KEY_TYPES.values():
        return None
    try:
        return JWKRegistry.import_key(published)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


async def verified_claims(
    id_token: str, nonce: str, provider: Provider, keys: IssuerKeys, jwks_uri: str, now_ms: int
) -> dict[str, Any]:
    """Verify an ID token: signed by the issuer, for us, for this login, and not expired. Returns its claims.

    Raises BadIdToken with the failed check. The key never comes from the token.
    """
    registry = _Registry(algorithms=provider.algorithms, strict_check_header=False)
    try:
        header = jws.extract_compact(id_token.encode("ascii"), registry=registry).headers()
    except (JoseError, ValueError, TypeError):
        raise BadIdToken(provider.name, "its ID token is malformed") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in provider.algorithms:
        raise BadIdToken(provider.name, f"its ID token is not signed with one of {', '.join(provider.algorithms)}")
    key = await keys.matching(jwks_uri, header.get("kid"), algorithm)
    try:
        claims = jwt.decode(id_token, key, registry=registry).claims
    except (JoseError, ValueError, TypeError):
        raise BadIdToken(provider.name, "the signature of its ID token is wrong") from None
    problem = _problem_of(claims, provider, nonce, now_ms / 1000)
    if problem is not None:
        raise BadIdToken(provider.name, problem)
    return claims


def _problem_of(claims: dict[str, Any], provider: Provider, nonce: str, now_s: float) -> str | None:
    """The first invalid claim of a token with a valid signature; None: all are valid."""
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    subject, expires, issued = claims.get("sub"), claims.get("exp"), claims.get("iat")
    not_before = claims.get("nbf", 0)
    if claims.get("iss") != provider.issuer:
        return f"its ID token was not issued by {provider.issuer}"
    if not isinstance(audiences, list) or provider.client_id not in audiences:
        return "its ID token was issued to another client"
    if claims.get("azp", provider.client_id) != provider.client_id or (len(audiences) > 1 and "azp" not in claims):
        return "its ID token is authorized for another client"
    if not _is_number(expires) or now_s >= expires + LEEWAY_S:
        return "its ID token has expired"
    if (
        not _is_number(issued)
        or issued > now_s + LEEWAY_S
        or not _is_number(not_before)
        or not_before > now_s + LEEWAY_S
    ):
        return "its ID token was issued in the future; one of the two clocks is wrong"
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT:
        return "its ID token has no usable subject"
    if not _is_same(claims.get("nonce"), nonce):
        return "its ID token belongs to another login"
    return None


def _is_number(value: object) -> TypeGuard[float]:
    """A finite number: not infinite, not NaN, and not an integer too large for a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST_NUMBER


def _is_same(given: object, expected: str) -> bool:
    # JSON can contain lone surrogates, which UTF-8 cannot encode.
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
