"""JWT access tokens: issue and verify, with strict checks of header, signature and claims."""

from __future__ import annotations

import json
import re
import secrets
from binascii import Error, a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from keystead.errors import BadDeclaration, BadValue, KeysteadError
from keystead.parts.digest import base64url
from keystead.parts.jwt.signing_keys import SigningKey, SigningKeys
from keystead.schema import Operation
from keystead.schema.lifetime import duration_ms
from keystead.schema.operation_batch import run
from keystead.schema.times import now_ms

if TYPE_CHECKING:
    from keystead.parts.jwt.revoked_tokens import RevokedTokens

R = TypeVar("R")

TYPE: Final = "at+jwt"  # RFC 9068: no other kind of JWT passes for an access token
LONGEST: Final = 8_192  # characters; servers accept this in a header

_RESERVED: Final = frozenset({"iss", "aud", "sub", "jti", "iat", "exp", "nbf"})
_HEADER: Final = frozenset({"alg", "kid", "typ"})
_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_FROM_URL = bytes.maketrans(b"-_", b"+/")
_LONGEST_SUBJECT: Final = 255  # characters of a `sub` or `jti`
_LATEST_S: Final = 253_402_300_800  # the year 10000

DeniedReason: TypeAlias = Literal[
    "malformed",
    "header",
    "key",
    "algorithm",
    "type",
    "signature",
    "issuer",
    "audience",
    "claims",
    "early",
    "expired",
    "revoked",
    "user",
    "unavailable",
    "unreadable",
]


@dataclass(frozen=True)
class NewAccess:
    """A new token. `expires_in_s` is the `expires_in` of an OAuth response."""

    token: str = field(repr=False)
    jti: str
    expires_at_ms: int
    expires_in_s: int


@dataclass(frozen=True)
class Access:
    """A valid token. It is truthy; `Denied` is falsy.

    sub, jti         its subject (the user), and its own id
    issued_at_ms     when it was issued, to the millisecond
    expires_at_ms    when it expires; it is accepted for `leeway` longer
    claims           all claims, including those of the application
    """

    sub: str
    jti: str
    issued_at_ms: int
    expires_at_ms: int
    claims: Mapping[str, Any]

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True)
class Denied:
    """A refused token. The reason is for logs: do not send it to the client.

    reason   `malformed`, `header`, `claims`: it is not one of our tokens
             `key`, `algorithm`, `type`, `signature`: it is not an access token signed by one of our keys
             `issuer`, `audience`: it was issued by or for others
             `early`, `expired`: it is not valid yet, or no longer
             `revoked`; `unavailable`: revocation cannot be checked because of a store outage
             `user`: the user does not exist any more (see `keystead.parts.admission`)
    """

    reason: DeniedReason

    def __bool__(self) -> Literal[False]:
        return False


class AccessTokens:
    """Issues and checks the access tokens of one issuer for one audience.

        access = AccessTokens(keys, issuer="https://example.com", audience="desktop")
        new = access.issue("42", plan="Pro")
        found = access.check(new.token)          # Access or Denied; no round trip
        found = await access.admitted(new.token)   # also checks revocation

    leeway    tolerated clock skew: a token is accepted this long after its expiry, and this long before its start
    revoked   the denylist; without it a token is valid until it expires
    now_ms    the clock

    A token has the claims `iss`, `aud`, `sub`, `jti`, `iat` and `exp`, and those of the application. Its `jti` is a
    UUID version 7, which contains the time of issue in ms. Its header has `alg`, `kid` and `typ` only: anything else
    (`crit`, `jwk`, `jku`, …) is refused, so no key ever comes from a token.
    """

    def __init__(
        self,
        keys: SigningKeys,
        *,
        issuer: str,
        audience: str,
        lifetime: str | timedelta = "1h",
        leeway: str | timedelta = "5s",
        revoked: RevokedTokens | None = None,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        if not issuer or not audience:
            raise BadDeclaration("access tokens need an issuer and an audience, as in issuer='https://…'")
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self.lifetime_ms: Final = duration_ms(lifetime, "the lifetime of access tokens")
        self.leeway_ms: Final = duration_ms(leeway, "leeway")
        if self.lifetime_ms % 1000:
            raise BadDeclaration(f"the lifetime of access tokens must be whole seconds, not {lifetime}")
        if revoked is not None:
            revoked.check_lifetimes(self.lifetime_ms + self.leeway_ms)
        self._revoked = revoked
        self._now_ms = now_ms

    def issue(self, sub: str, /, **claims: Any) -> NewAccess:
        """Issue a token for a user, with claims of the application: `issue("42", plan="Pro")`.

        Raises BadValue for a reserved claim, for one that is not JSON, or if the token gets too long.
        """
        reserved = claims.keys() & _RESERVED
        if reserved:
            raise BadValue(f"the claim {min(reserved)!r} is reserved; rename yours")
        if not _is_name(sub):
            raise BadValue(f"sub must be 1 to {_LONGEST_SUBJECT} printable characters")
        now_ms = self._now_ms()
        issued_s = now_ms // 1000
        expires_s = issued_s + self.lifetime_ms // 1000
        jti = str(_uuid7(now_ms))
        own = {"iss": self._issuer, "aud": self._audience, "sub": sub, "jti": jti, "iat": issued_s, "exp": expires_s}
        try:
            payload = json.dumps({**own, **claims}, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError):
            raise BadValue("claims must be JSON: text, numbers, true, false, null, lists, objects") from None
        key = self._keys.current
        if len(payload) > LONGEST:
            raise _too_long(len(payload))
        token = key.sign({"alg": key.algorithm, "kid": key.id, "typ": TYPE}, payload)
        if len(token) > LONGEST:
            raise _too_long(len(token))
        return NewAccess(token, jti, expires_s * 1000, self.lifetime_ms // 1000)

    def check(self, token: str) -> Access | Denied:
        """Verify a token: our key, our audience, valid now. No round trip, so revocation is not checked."""
        header = _parse_header(token)
        if header is None:
            return Denied("malformed")
        if header.keys() != _HEADER:
            return Denied("header")
        key = self._keys.find(header["kid"])
        if key is None:
            return Denied("key")
        if header["alg"] != key.algorithm:
            return Denied("algorithm")
        if header["typ"] != TYPE:
            return Denied("type")
        return self._verify_with(token, key)

    async def admitted(self, token: str) -> Access | Denied:
        """As `check`, plus revocation: one round trip, or none for an invalid token."""
        found = self.check(token)
        if self._revoked is None or isinstance(found, Denied):
            return found
        return await self._revoked.admitted(found)

    async def admitted_with(self, token: str, beside: Callable[[Access], Operation[R]]) -> tuple[Access, R] | Denied:
        """As `admitted`, with one more read in the same round trip:

            found = await access.admitted_with(token, lambda who: keys.user(who.sub).get())

        Raises the error of that read if the token is valid.
        """
        found = self.check(token)
        if isinstance(found, Denied):
            return found
        admitted, results = await self.check_revocation(found, beside(found))
        if isinstance(admitted, Denied):
            return admitted
        [read] = results
        if isinstance(read, BaseException):
            raise read
        return admitted, read

    async def check_revocation(self, access: Access, *beside: Operation[Any]) -> tuple[Access | Denied, list[Any]]:
        """Check revocation of a verified token, and run these operations: one round trip for all.

        A failed operation gives its error in place of its result: see RevokedTokens.check_revocation.
        """
        if self._revoked is None:
            return access, await run_each(*beside)
        return await self._revoked.check_revocation(access, *beside)

    def is_revoked(self, access: Access) -> Operation[bool]:
        """Whether this token was revoked, for `run` with other operations: see RevokedTokens.is_revoked."""
        return self._denylist.is_revoked(access)

    def revoke(self, access: Access) -> Operation[bool]:
        """Revoke one token until it expires and `leeway` beyond. One round trip.

        False: it has expired, and nothing is written. Await it, or give it to `run` or `atomically`.
        """
        return self._denylist.revoke(access, access.expires_at_ms + self.leeway_ms)

    async def revoke_all(self, sub: str) -> None:
        """Revoke all tokens of a user issued until now, known or not. Two round trips."""
        await self._denylist.revoke_all(sub)

    @property
    def _denylist(self) -> RevokedTokens:
        if self._revoked is None:
            raise BadDeclaration(
                "these tokens are valid until they expire; to revoke them, pass revoked=RevokedTokens(…)"
            )
        return self._revoked

    def _verify_with(self, token: str, key: SigningKey) -> Access | Denied:
        payload = key.verify(token)
        if payload is None:
            return Denied("signature")
        claims = _parse_object(payload)
        if claims is None:
            return Denied("claims")
        if claims.get("iss") != self._issuer:
            return Denied("issuer")
        if claims.get("aud") != self._audience:
            return Denied("audience")
        sub, jti = claims.get("sub"), claims.get("jti")
        issued, expires, begins = claims.get("iat"), claims.get("exp"), claims.get("nbf", 0)
        if not _is_name(sub) or not _is_name(jti):
            return Denied("claims")
        if not (_is_time(issued) and _is_time(expires) and _is_time(begins)):
            return Denied("claims")
        now_ms = self._now_ms()
        if max(issued, begins) * 1000 > now_ms + self.leeway_ms:
            return Denied("early")
        if now_ms >= expires * 1000 + self.leeway_ms:
            return Denied("expired")
        return Access(sub, jti, _issued_ms(jti, issued), expires * 1000, MappingProxyType(claims))


async def run_each(*operations: Operation[Any]) -> list[Any]:
    """The result of each operation, in one round trip; its Keystead error if it failed."""
    try:
        return list(await run(operations))
    except KeysteadError as error:
        if error.results is None:
            raise
        return error.results


def _uuid7(now_ms: int) -> UUID:
    """A UUID version 7 (RFC 9562): 48 bits of the time in ms, and 74 random bits."""
    random = secrets.randbits(74)
    return UUID(int=now_ms << 80 | 0x7 << 76 | (random >> 62) << 64 | 0b10 << 62 | random & (1 << 62) - 1)


def _issued_ms(jti: str, issued_s: int) -> int:
    """The time in the id, to the millisecond, if it agrees with `iat`."""
    try:
        id_ms = UUID(jti).int >> 80
    except ValueError:
        return issued_s * 1000
    return id_ms if id_ms // 1000 == issued_s else issued_s * 1000


def _parse_header(token: str) -> dict[str, Any] | None:
    if len(token) > LONGEST or not _TOKEN.fullmatch(token):
        return None
    parts = [_decode(part) for part in token.split(".")]
    return None if None in parts or parts[0] is None else _parse_object(parts[0])


def _decode(part: str) -> bytes | None:
    """Decode canonical base64url only: no two texts are the same token."""
    try:
        data = a2b_base64(part.encode().translate(_FROM_URL) + b"=" * (-len(part) % 4))
    except Error:
        return None
    return data if base64url(data) == part else None


def _parse_object(data: bytes) -> dict[str, Any] | None:
    """Parse a JSON object without duplicate names, which parsers read differently. None: it is not one."""
    try:
        found = json.loads(data.decode(), object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate name")
    return found


def _reject_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _is_name(value: object) -> TypeGuard[str]:
    """Whether this can name a user or a token in a key, a row and a log line."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_SUBJECT and value.isprintable()


def _is_time(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _LATEST_S


def _too_long(length: int) -> BadValue:
    return BadValue(f"this token would have at least {length} characters; the limit is {LONGEST}: remove some claims")
