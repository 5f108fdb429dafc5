"""Access tokens are accepted only if every part of them is valid."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

from keystead.errors import BadDeclaration, BadValue
from keystead.parts.digest import base64url
from keystead.parts.jwt import Access, AccessTokens, Algorithm, Denied, SigningKeys
from tests.parts.jwt.conftest import (
    AUDIENCE,
    ISSUER,
    Clock,
    access_of,
    by_hand,
    claims_at,
    each_algorithm,
    keys_of,
    parts,
)

LEEWAY_MS = 5_000


def good(found: Access | Denied) -> Access:
    assert isinstance(found, Access), found
    return found


@each_algorithm
def test_a_token_has_subject_claims_and_expiry(algorithm: Algorithm, clock: Clock) -> None:
    access = access_of(keys_of(algorithm), clock)
    clock.pass_ms(789)
    new = access.issue("42", plan="Pro", hasBonusTokens=False, ver=1)
    assert (new.expires_in_s, new.expires_at_ms) == (3600, clock() // 1000 * 1000 + 3_600_000)
    found = good(access.check(new.token))
    assert (found.sub, found.jti, found.expires_at_ms) == ("42", new.jti, new.expires_at_ms)
    assert found.issued_at_ms == clock()
    assert found.claims == {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "42",
        "jti": new.jti,
        "iat": clock() // 1000,
        "exp": clock() // 1000 + 3600,
        "plan": "Pro",
        "hasBonusTokens": False,
        "ver": 1,
    }
    assert UUID(new.jti).version == 7
    assert new.token not in repr(new)


@each_algorithm
def test_tokens_can_be_verified_with_the_published_keys(algorithm: Algorithm, clock: Clock) -> None:
    keys = keys_of(algorithm)
    token = access_of(keys, clock).issue("42", plan="Pro").token
    published = keys.jwks()
    if algorithm == "HS256":
        assert published == {"keys": []}
        return
    [one] = published["keys"]
    assert (one["kid"], one["alg"], one["use"]) == ("k1", algorithm, "sig")
    with pytest.warns() if algorithm == "EdDSA" else _nothing():
        decoded = jwt.decode(token, KeySet.import_key_set(published), algorithms=[algorithm])  # type: ignore[arg-type]
    assert decoded.header == {"alg": algorithm, "kid": "k1", "typ": "at+jwt"}
    assert decoded.claims["plan"] == "Pro"


class _nothing:  # noqa: N801 - stands beside pytest.warns
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_published_keys_have_no_private_part() -> None:
    keys = keys_of("HS256", "RS256", "EdDSA")
    published = keys.jwks()["keys"]
    assert [one["kid"] for one in published] == ["k2", "k3"]
    private = {"d", "p", "q", "dp", "dq", "qi", "oth", "k"}
    assert [one.keys() & private for one in published] == [set(), set()]
    assert set(published[0]) == {"kty", "n", "e", "kid", "alg", "use"}
    assert set(published[1]) == {"kty", "crv", "x", "kid", "alg", "use"}
    json.dumps(published)


def test_two_tokens_of_one_moment_have_ids_of_their_own(clock: Clock) -> None:
    access = access_of(keys_of("HS256"), clock)
    assert len({access.issue("42").jti for _ in range(1_000)}) == 1_000


# --- time ----------------------------------------------------------------------------------------------------


@each_algorithm
def test_a_token_is_valid_until_its_expiry_plus_leeway(algorithm: Algorithm, clock: Clock) -> None:
    access = access_of(keys_of(algorithm), clock)
    new = access.issue("42")
    clock.now_ms = new.expires_at_ms + LEEWAY_MS - 1
    assert access.check(new.token)
    clock.pass_ms(1)
    assert access.check(new.token) == Denied("expired")


@pytest.mark.parametrize("name", ["nbf", "iat"])
def test_a_token_is_not_valid_before_nbf(clock: Clock, name: str) -> None:
    keys = keys_of("EdDSA")
    access = access_of(keys, clock)
    begins_s = clock() // 1000 + 60
    token = by_hand(keys, claims_at(clock, **{name: begins_s}))
    clock.now_ms = begins_s * 1000 - LEEWAY_MS - 1
    assert access.check(token) == Denied("early")
    clock.pass_ms(1)
    assert access.check(token)


def test_the_leeway_ends_exactly_as_declared(clock: Clock) -> None:
    access = access_of(keys_of("HS256"), clock, lifetime="10m", leeway="1s")
    new = access.issue("42")
    assert new.expires_in_s == 600
    clock.now_ms = new.expires_at_ms + 999
    assert access.check(new.token)
    clock.pass_ms(1)
    assert access.check(new.token) == Denied("expired")


def test_without_a_clock_it_is_the_time_of_the_machine() -> None:
    access = AccessTokens(keys_of("HS256"), issuer=ISSUER, audience=AUDIENCE)
    assert abs(good(access.check(access.issue("42").token)).issued_at_ms - time.time() * 1000) < 60_000


# --- who signed it -------------------------------------------------------------------------------------------


@each_algorithm
@pytest.mark.parametrize("name", ["none", "None", "NONE", "", None, 0, ["HS256"]])
def test_an_unsigned_token_is_refused(algorithm: Algorithm, name: Any, clock: Clock) -> None:
    access = access_of(keys_of(algorithm), clock)
    header = {"alg": name, "kid": "k1", "typ": "at+jwt"}
    unsigned = parts(header, claims_at(clock))
    assert access.check(unsigned) == Denied("malformed")  # its last part is missing
    assert access.check(f"{unsigned}AA") == Denied("algorithm")


def test_a_public_key_is_never_taken_for_a_secret(clock: Clock) -> None:
    """HS256 with the text of the RSA key that everybody can read."""
    keys = keys_of("RS256")
    access = access_of(keys, clock)
    [published] = keys.jwks()["keys"]
    public = RSAKey.import_key(published)
    for secret in (public.as_pem(private=False), public.as_der(private=False), json.dumps(published).encode()):
        text = parts({"alg": "HS256", "kid": "k1", "typ": "at+jwt"}, claims_at(clock)).rstrip(".")
        forged = f"{text}.{base64url(hmac.digest(secret, text.encode(), hashlib.sha256))}"
        assert access.check(forged) == Denied("algorithm")


def test_each_key_signs_with_its_own_algorithm_only(clock: Clock) -> None:
    access = access_of(keys_of("HS256", "RS256", "EdDSA"), clock)
    token = access.issue("42").token
    _, claims, signature = token.split(".")
    for kid, algorithm in (("k1", "EdDSA"), ("k2", "EdDSA"), ("k3", "RS256"), ("k3", "Ed25519"), ("k3", "ES256")):
        header = base64url(json.dumps({"alg": algorithm, "kid": kid, "typ": "at+jwt"}).encode())
        assert access.check(f"{header}.{claims}.{signature}") == Denied("algorithm")


@each_algorithm
def test_a_token_of_another_key_is_refused(algorithm: Algorithm, clock: Clock) -> None:
    access = access_of(keys_of(algorithm), clock)
    other = SigningKeys.from_text(f"k1:{SigningKeys.new_key(algorithm)}")
    assert access.check(by_hand(other, claims_at(clock))) == Denied("signature")
    assert access.check(by_hand(other, claims_at(clock), kid="k2")) == Denied("key")


@pytest.mark.parametrize("kid", ["k9", "", "../../etc/passwd", 1, None, ["k1"], {"k1": 1}])
def test_a_key_that_is_not_known_is_refused(kid: Any, clock: Clock) -> None:
    access = access_of(keys_of("EdDSA"), clock)
    assert access.check(parts({"alg": "EdDSA", "kid": kid, "typ": "at+jwt"}, claims_at(clock), b"x")) == Denied("key")


@pytest.mark.parametrize(
    "more",
    [
        {"crit": ["exp"], "exp": 1},
        {"crit": []},
        {"crit": ["b64"], "b64": False},
        {"b64": True},
        {"jku": "https://evil.example/keys"},
        {"jwk": OctKey.generate_key().as_dict()},
        {"x5u": "https://evil.example/"},
        {"x5c": []},
        {"zip": "DEF"},
        {"cty": "JWT"},
        {"unknown": 1},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_header_with_anything_more_in_it_is_refused(more: dict[str, Any], clock: Clock) -> None:
    """No key comes from a token, and unknown header fields are refused."""
    header = {"alg": "EdDSA", "kid": "k1", "typ": "at+jwt", **more}
    assert access_of(keys_of("EdDSA"), clock).check(parts(header, claims_at(clock), b"x")) == Denied("header")


@pytest.mark.parametrize("missing", ["alg", "kid", "typ"])
def test_a_header_with_anything_missing_is_refused(missing: str, clock: Clock) -> None:
    header = {"alg": "EdDSA", "kid": "k1", "typ": "at+jwt"}
    del header[missing]
    assert access_of(keys_of("EdDSA"), clock).check(parts(header, claims_at(clock), b"x")) == Denied("header")


@pytest.mark.parametrize("typ", ["JWT", "AT+JWT", "application/at+jwt", "logout+jwt", ""])
def test_a_token_of_another_type_is_refused(typ: str, clock: Clock) -> None:
    keys = keys_of("EdDSA")
    assert access_of(keys, clock).check(by_hand(keys, claims_at(clock), typ=typ)) == Denied("type")


# --- what it says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"iss": "https://relay.example/"}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "another"}, "audience"),
        ({"aud": [AUDIENCE]}, "audience"),
        ({"aud": [AUDIENCE, "another"]}, "audience"),
        ({"aud": None}, "audience"),
        ({"sub": None}, "claims"),
        ({"sub": ""}, "claims"),
        ({"sub": 42}, "claims"),
        ({"sub": "x" * 256}, "claims"),
        ({"sub": "a\0b"}, "claims"),
        ({"sub": "\ud800"}, "claims"),
        ({"jti": "x" * 256}, "claims"),
        ({"jti": "\ud800"}, "claims"),
        ({"jti": None}, "claims"),
        ({"jti": 1}, "claims"),
        ({"exp": None}, "claims"),
        ({"exp": "4000003600"}, "claims"),
        ({"exp": True}, "claims"),
        ({"exp": 4e9}, "claims"),
        ({"exp": -1}, "claims"),
        ({"exp": 10**400}, "claims"),
        ({"iat": None}, "claims"),
        ({"iat": "now"}, "claims"),
        ({"nbf": "now"}, "claims"),
        ({"nbf": False}, "claims"),
    ],
    ids=str,
)
def test_a_signed_token_with_other_claims_is_refused(changed: dict[str, Any], reason: Any, clock: Clock) -> None:
    keys = keys_of("EdDSA")
    access = access_of(keys, clock)
    assert access.check(by_hand(keys, claims_at(clock)))
    assert access.check(by_hand(keys, claims_at(clock, **changed))) == Denied(reason)


def test_a_duplicate_claim_is_refused(clock: Clock) -> None:
    keys = keys_of("EdDSA")
    access = access_of(keys, clock)
    once = json.dumps(claims_at(clock)).encode()
    for twice in (once.replace(b"{", b'{"sub":"1",'), once.replace(b"{", b'{"x":{"y":1,"y":2},')):
        assert access.check(by_hand(keys, twice)) == Denied("claims")
    header = b'{"alg":"EdDSA","kid":"k1","kid":"k1","typ":"at+jwt"}'
    assert access.check(parts(header, once, b"x")) == Denied("malformed")


@pytest.mark.parametrize("payload", [b"[]", b"null", b"", b"\xff", b'{"exp":NaN}', b"[" * 4_000, b"{}"])
def test_a_payload_that_is_not_a_claims_object_is_refused(payload: bytes, clock: Clock) -> None:
    keys = keys_of("EdDSA")
    assert not access_of(keys, clock).check(by_hand(keys, payload))


def test_a_huge_token_is_refused_before_it_is_looked_at(clock: Clock) -> None:
    keys = keys_of("EdDSA")
    access = access_of(keys, clock)
    large = by_hand(keys, claims_at(clock, text="x" * 6_500))
    assert len(large) > 8_192
    assert access.check(large) == Denied("malformed")
    assert access.check("x" * 10_000_000) == Denied("malformed")
    for text in ("x" * 6_500, "x" * 9_000):
        with pytest.raises(BadValue, match="remove some claims"):
            access.issue("42", text=text)
    assert access.check(access.issue("42", text="x" * 5_500).token)


@each_algorithm
def test_no_two_texts_are_one_token(algorithm: Algorithm, clock: Clock) -> None:
    access = access_of(keys_of(algorithm), clock)
    token = access.issue("42").token
    assert access.check(token)
    for other in (f"{token}=", f" {token}", f"{token}\n", token.replace(".", "..", 1), f"{token}."):
        assert access.check(other) == Denied("malformed")
    last = token[-1]
    if len(token.rpartition(".")[2]) % 4:  # the last letter holds bits that mean nothing
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        assert access.check(token[:-1] + alphabet[alphabet.index(last) ^ 1]) == Denied("malformed")


@given(st.text(max_size=60) | st.from_regex(r"[A-Za-z0-9_-]{1,30}\.[A-Za-z0-9_-]{1,30}\.[A-Za-z0-9_-]{0,30}"))
def test_forged_tokens_are_refused_without_errors(text: str) -> None:
    assert not access_of(keys_of("EdDSA"), Clock()).check(text)


@given(st.data())
def test_a_token_that_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    clock = Clock()
    access = access_of(keys_of("EdDSA"), clock)
    token = access.issue("42", plan="Free").token
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABab01-_."))  # drawn independently of the token
    assert not access.check(token[:at] + ("C" if letter == token[at] else letter) + token[at + 1 :])


# --- issuing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["iss", "aud", "jti", "iat", "exp", "nbf", "sub"])
def test_a_reserved_claim_cannot_be_passed(name: str, clock: Clock) -> None:
    with pytest.raises(BadValue, match=f"{name!r} is reserved"):
        access_of(keys_of("HS256"), clock).issue("42", **{name: 1})


def test_claims_that_are_not_json_and_empty_subjects_are_refused(clock: Clock) -> None:
    access = access_of(keys_of("HS256"), clock)
    for odd in (object(), float("nan"), {1, 2}):
        with pytest.raises(BadValue, match="must be JSON"):
            access.issue("42", odd=odd)
    for sub in ("", "x" * 256, "a\0b", "\ud800"):
        with pytest.raises(BadValue, match="sub must be 1 to"):
            access.issue(sub)


def test_an_issuer_an_audience_and_whole_seconds_are_needed(clock: Clock) -> None:
    for options in ({"issuer": ""}, {"audience": ""}):
        with pytest.raises(BadDeclaration, match="need an issuer"):
            access_of(keys_of("HS256"), clock, **options)
    with pytest.raises(BadDeclaration, match="whole seconds"):
        access_of(keys_of("HS256"), clock, lifetime="1500ms")
    with pytest.raises(BadDeclaration, match="unit"):
        access_of(keys_of("HS256"), clock, lifetime=3600)
