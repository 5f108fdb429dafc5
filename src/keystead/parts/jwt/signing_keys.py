"""JWT signing keys, key rotation, and the JWKS of their public halves."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import JWSAlgModel
from joserfc.jwk import Key, OctKey, OKPKey, RSAKey

from keystead.errors import BadDeclaration
from keystead.parts.digest import base64url
from keystead.schema import KeyRing

Algorithm: TypeAlias = Literal["HS256", "RS256", "EdDSA"]

ALGORITHMS: Final[tuple[str, ...]] = get_args(Algorithm)

_SECRET_BYTES: Final = 32
_RSA_BITS: Final = 2048  # the least that RFC 7518 allows
_NEW_RSA_BITS: Final = 3072
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SECRET_IDS: Final = b"keystead: id of a secret that signs\0"  # the id must not be a plain digest of the secret
_DERIVED, _DERIVED_IDS = "access tokens", "ids of access token keys"


class _Registry(jws.JWSRegistry):
    """Allows only the algorithm of the key. joserfc warns about the name `EdDSA`, which is still in wide use."""

    def get_alg(self, name: str) -> JWSAlgModel:
        if name not in (self.allowed or ()):
            raise JoseError(f"{name} is not the algorithm of this key")
        return self.algorithms[name]


@dataclass(frozen=True)
class SigningKey:
    """One key with its id and its algorithm, which no token header can change."""

    id: str
    algorithm: Algorithm
    _key: Key

    @property
    def is_published(self) -> bool:
        """Whether the key may be published: never a symmetric key."""
        return self.algorithm != "HS256"

    def public_jwk(self) -> dict[str, Any]:
        """The public half as a JWK."""
        shown = self._key.as_dict(private=False)
        return {**cast("dict[str, Any]", shown), "kid": self.id, "alg": self.algorithm, "use": "sig"}

    def sign(self, header: dict[str, Any], payload: bytes) -> str:
        return jws.serialize_compact(header, payload, self._key, registry=self._registry)

    def verify(self, token: str) -> bytes | None:
        """The payload of a token; None: this key did not sign it."""
        try:
            return jws.deserialize_compact(token, self._key, registry=self._registry).payload
        except (JoseError, ValueError, TypeError):
            return None

    @property
    def _registry(self) -> jws.JWSRegistry:
        return _Registry(algorithms=[self.algorithm])

    def __repr__(self) -> str:
        return f"<{self.algorithm} key {self.id}>"


class SigningKeys:
    """The keys of an issuer: the last one signs, all of them verify.

        KEYSTEAD_JWT_KEYS="2026a:EdDSA:{key},2026b:EdDSA:{key}"

    Rotate without refusing a valid token: first add the new key *before* the current one, so that every process and
    every reader of the JWKS knows it. Then move it to the end, so that it signs. Remove the old key when the last token
    it signed has expired. Tokens of a removed key are refused.
    """

    def __init__(self, keys: Mapping[str, tuple[Algorithm, bytes]]) -> None:
        """Keys by their ids: 32 bytes for EdDSA, 32 or more for HS256, PKCS #8 in DER for RS256. The last one signs."""
        if not keys:
            raise BadDeclaration('no signing key; write SigningKeys({"2026a": ("EdDSA", key)})')
        if len({key for _, key in keys.values()}) < len(keys):
            raise BadDeclaration("two ids have the same key; create another one with SigningKeys.new_key()")
        self._keys = {key_id: _make_key(key_id, algorithm, key) for key_id, (algorithm, key) in keys.items()}
        self.current: Final = next(reversed(self._keys.values()))

    @classmethod
    def from_text(cls, text: str) -> SigningKeys:
        """Parse the keys of a setting: `2026a:EdDSA:{base64url},2026b:RS256:{base64url}`; the last one signs."""
        keys: dict[str, tuple[Algorithm, bytes]] = {}
        for number, entry in enumerate(text.split(","), 1):
            key_id, _, rest = entry.strip().partition(":")
            algorithm, colon, encoded = rest.partition(":")
            if not colon:
                raise BadDeclaration(f"key {number} must be {{id}}:{{algorithm}}:{{key}}, as in 2026a:EdDSA:{{key}}")
            if key_id in keys:
                raise BadDeclaration(f"duplicate key id {key_id!r}; each key needs its own id")
            keys[key_id] = (cast("Algorithm", algorithm), _decode_key(key_id, encoded))
        return cls(keys)

    @classmethod
    def from_ring(cls, ring: KeyRing) -> SigningKeys:
        """HS256 keys derived from the key ring, one for each of its keys: no further settings, and rotated with it."""
        ids = [base64url(key[:9]) for key in ring.derived(_DERIVED_IDS)]
        return cls({key_id: ("HS256", key) for key_id, key in zip(ids, ring.derived(_DERIVED), strict=True)})

    @classmethod
    def from_secret(cls, secret: str) -> SigningKeys:
        """One HS256 key: the bytes of this text. Other programs with the same text can verify its tokens.

        Raises BadDeclaration for fewer than 32 bytes, which RFC 7518 does not allow.
        """
        data = secret.encode()
        if len(data) < _SECRET_BYTES:
            raise BadDeclaration(
                f"a signing secret needs at least {_SECRET_BYTES} bytes, not {len(data)}; create one with "
                "`openssl rand -base64 32`"
            )
        return cls({base64url(sha256(_SECRET_IDS + data).digest()[:9]): ("HS256", data)})

    @staticmethod
    def new_key(algorithm: Algorithm = "EdDSA") -> str:
        """A new key, as the text that `from_text` reads after the id and the colon."""
        if algorithm == "RS256":
            made = generate_private_key(public_exponent=65537, key_size=_NEW_RSA_BITS)
            data = made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        else:
            _check_algorithm("the new key", algorithm)
            data = secrets.token_bytes(_SECRET_BYTES)
        return f"{algorithm}:{base64url(data)}"

    def jwks(self) -> dict[str, Any]:
        """The key set to publish (RFC 7517): the public halves. Keys for HS256 have none, and are left out."""
        return {"keys": [key.public_jwk() for key in self._keys.values() if key.is_published]}

    def find(self, key_id: object) -> SigningKey | None:
        return self._keys.get(key_id) if isinstance(key_id, str) else None

    def __repr__(self) -> str:
        return f"SigningKeys({', '.join(self._keys)}; current: {self.current.id})"

    def __reduce__(self) -> str:
        raise TypeError("signing keys cannot be copied or pickled")


def _make_key(key_id: object, algorithm: str, data: object) -> SigningKey:
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise BadDeclaration("the id of a signing key must be 1 to 32 letters, digits, - or _, such as 2026a")
    _check_algorithm(f"signing key {key_id!r}", algorithm)
    if not isinstance(data, bytes) or not _has_length(algorithm, len(data)):
        raise BadDeclaration(f"signing key {key_id!r} must be {_SECRET_BYTES} bytes; use SigningKeys.new_key()")
    return SigningKey(key_id, cast("Algorithm", algorithm), _import_key(key_id, algorithm, data))


def _has_length(algorithm: str, length: int) -> bool:
    """RSA keys are checked on import. HS256 takes a longer secret (RFC 7518, 3.2), Ed25519 has one length."""
    match algorithm:
        case "HS256":
            return length >= _SECRET_BYTES
        case "EdDSA":
            return length == _SECRET_BYTES
        case _:
            return True


def _import_key(key_id: str, algorithm: str, data: bytes) -> Key:
    if algorithm == "HS256":
        return OctKey.import_key(data)
    if algorithm == "EdDSA":
        return OKPKey.import_key(Ed25519PrivateKey.from_private_bytes(data))
    try:
        rsa = load_der_private_key(data, password=None)
    except (ValueError, TypeError):
        rsa = None
    if not isinstance(rsa, RSAPrivateKey) or rsa.key_size < _RSA_BITS:
        raise BadDeclaration(
            f"signing key {key_id!r} must be an RSA key of {_RSA_BITS} bits or more, as PKCS #8 in DER; create one "
            'with SigningKeys.new_key("RS256")'
        )
    return RSAKey.import_key(rsa)


def _check_algorithm(what: str, algorithm: str) -> None:
    if algorithm not in ALGORITHMS:
        raise BadDeclaration(f"the algorithm of {what} must be one of {', '.join(ALGORITHMS)}, not {algorithm!r:.40}")


def _decode_key(key_id: str, encoded: str) -> bytes:
    text = encoded.strip().rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadDeclaration(f"the key of {key_id!r} is not base64url; create one with SigningKeys.new_key()") from None
