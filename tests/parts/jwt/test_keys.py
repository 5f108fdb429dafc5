"""Signing keys: format, rotation, retirement; and that they appear in no output."""

from __future__ import annotations

import base64
import copy
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from keystead import KeyRing
from keystead.errors import BadDeclaration
from keystead.parts.digest import base64url
from keystead.parts.jwt import Algorithm, Denied, SigningKeys
from tests.parts.jwt.conftest import Clock, access_of, each_algorithm, key_text, keys_of


def keys(*ids: str, algorithm: Algorithm = "EdDSA") -> SigningKeys:
    return SigningKeys.from_text(", ".join(f"{one}:{key_text(algorithm, ord(one[-1]))}" for one in ids))


@each_algorithm
def test_key_rotation_refuses_no_token_and_a_removed_key_refuses_all(algorithm: Algorithm, clock: Clock) -> None:
    def process(*ids: str) -> tuple[SigningKeys, str]:
        found = keys(*ids, algorithm=algorithm)
        return found, access_of(found, clock).issue("42").token

    before, old = process("a")
    announced, still_old = process("b", "a")  # known to all, and not used yet
    rotated, new = process("a", "b")
    retired, newest = process("b")
    assert (announced.current.id, rotated.current.id) == ("a", "b")
    steps = [before, announced, rotated, retired]
    accepted = [[bool(access_of(one, clock).check(token)) for token in (old, still_old, new, newest)] for one in steps]
    assert accepted == [
        [True, True, False, False],
        [True, True, True, True],
        [True, True, True, True],
        [False, False, True, True],
    ]
    assert access_of(retired, clock).check(old) == Denied("key")
    if algorithm != "HS256":
        assert [one["kid"] for one in announced.jwks()["keys"]] == ["b", "a"]


def test_a_signer_can_go_over_to_another_algorithm(clock: Clock) -> None:
    token = access_of(keys_of("HS256"), clock).issue("42").token
    both = access_of(keys_of("HS256", "EdDSA"), clock)
    assert both.check(token)
    assert both.check(both.issue("42").token)


def test_the_keys_that_seal_can_sign_with_nothing_more_to_configure(clock: Clock) -> None:
    ring = KeyRing({"a": b"a" * 32})
    token = access_of(SigningKeys.from_ring(ring), clock).issue("42").token
    rotated = SigningKeys.from_ring(KeyRing({"a": b"a" * 32, "b": b"b" * 32}))
    assert access_of(rotated, clock).check(token)
    new = access_of(rotated, clock).issue("42").token
    assert access_of(SigningKeys.from_ring(ring), clock).check(new) == Denied("key")
    assert access_of(SigningKeys.from_ring(KeyRing({"b": b"b" * 32})), clock).check(new)
    assert rotated.jwks() == {"keys": []}
    assert rotated.current.id not in base64url(b"b" * 32)


def test_no_output_contains_a_key(clock: Clock) -> None:
    text = key_text("HS256")
    secret = text.partition(":")[2]
    made = SigningKeys.from_text(f"k1:{text}")
    shown = repr(made) + repr(made.current) + repr(vars(access_of(made, clock)))
    assert secret not in shown
    assert repr(base64.urlsafe_b64decode(secret + "=")) not in shown
    for writes in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            writes(made)


def _rsa(bits: int) -> str:
    made = generate_private_key(public_exponent=65537, key_size=bits)
    return base64url(made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "as in 2026a:EdDSA"),
        ("a", "as in 2026a:EdDSA"),
        (f"a:{'x' * 43}", "as in 2026a:EdDSA"),
        (f"a:none:{'x' * 43}", "must be one of .*, not 'none'"),
        (f"a:HS512:{'x' * 43}", "must be one of .*, not 'HS512'"),
        (f"a b:EdDSA:{'x' * 43}", "1 to 32 letters"),
        ("a:HS256:c2hvcnQ", "32 bytes"),
        ("a:EdDSA:c2hvcnQ", "32 bytes"),
        ("a:EdDSA:not base64!", "not base64url"),
        (f"a:RS256:{'x' * 43}", "an RSA key of 2048 bits"),
        (f"a:RS256:{_rsa(1024)}", "an RSA key of 2048 bits"),
        (f"a:HS256:{'x' * 42}A,a:EdDSA:{'y' * 42}A", "duplicate key id"),
        (f"a:HS256:{'x' * 42}A,b:EdDSA:{'x' * 42}A", "the same key"),
    ],
)
def test_keys_that_are_written_wrongly_are_refused_and_not_repeated(text: str, said: str) -> None:
    with pytest.raises(BadDeclaration, match=said) as caught:
        SigningKeys.from_text(text)
    assert "x" * 20 not in str(caught.value)


def test_a_signer_without_keys_and_a_key_without_algorithm_are_refused() -> None:
    with pytest.raises(BadDeclaration, match="no signing key"):
        SigningKeys({})
    with pytest.raises(BadDeclaration, match=r"must be one of .*, not 'PS256'"):
        SigningKeys.new_key("PS256")  # type: ignore[arg-type]


def test_a_secret_that_others_have_signs_as_they_check() -> None:
    secret = "a secret of 32 bytes or many more"
    made, again = SigningKeys.from_secret(secret), SigningKeys.from_secret(secret)
    token = made.current.sign({"alg": "HS256", "kid": made.current.id, "typ": "at+jwt"}, b"{}")
    assert again.current.id == made.current.id
    assert SigningKeys({"other": ("HS256", secret.encode())}).current.verify(token) == b"{}"
    assert SigningKeys.from_secret(secret[:-1]).current.id != made.current.id
    assert made.jwks() == {"keys": []}


def test_a_secret_that_could_be_guessed_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadDeclaration, match="at least 32 bytes, not 31") as refused:
        SigningKeys.from_secret("x" * 31)
    assert "xxx" not in str(refused.value)
