"""The client against a provider that hangs, lies or breaks the protocol."""

import asyncio
import gzip
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from joserfc import jws, jwt
from joserfc.jwk import OctKey, RSAKey

from keystead.parts.oauth import (
    BadAnswer,
    BadIdToken,
    BadProvider,
    Client,
    Identity,
    ProviderRefused,
    ProviderUnavailable,
    Tokens,
    oidc,
)
from keystead.parts.oauth.fetch import MAX_ANSWER_BYTES
from tests.parts.oauth.logging_in import REDIRECT_URI, Clock
from tests.parts.oauth.stand_in import StandIn, answer, stand_in

CODE = "code-0123456789-ABC"
VERIFIER = "v" * 43
GOOD = {"access_token": "at", "token_type": "bearer", "expires_in": 100}


@pytest.fixture
async def server() -> AsyncIterator[StandIn]:
    async with stand_in() as running:
        yield running


@pytest.fixture
def client(server: StandIn, http: httpx2.AsyncClient, clock: Clock) -> Client:
    return Client(server.provider(), http, clock, development=True)


async def exchanged(client: Client) -> Tokens:
    return await client.exchange(CODE, VERIFIER, REDIRECT_URI)


async def test_a_provider_without_a_response_times_out(server: StandIn, http: httpx2.AsyncClient, clock: Clock) -> None:
    client = Client(server.provider(), http, clock, development=True, timeout="100ms")
    with pytest.raises(ProviderUnavailable, match=r"did not respond within 0\.1 seconds"):
        await exchanged(client)
    assert server.count("/token") == 1


async def test_logins_that_begin_while_the_issuer_hangs_share_one_wait(
    server: StandIn, http: httpx2.AsyncClient, clock: Clock
) -> None:
    issuer = oidc(server.url, name="acme", client_id="id", client_secret="secret")
    client = Client(issuer, http, clock, development=True, timeout="100ms")
    starts = (client.authorize_url(REDIRECT_URI, f"state{n}", VERIFIER, "nonce") for n in range(6))
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert [type(one) for one in outcomes] == [ProviderUnavailable] * 6
    assert server.count("/.well-known/openid-configuration") == 1


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", id="half an answer"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"not http at all\r\n\r\n", id="no HTTP"),
    ],
)
async def test_a_connection_that_breaks_is_unavailable(server: StandIn, client: Client, said: bytes) -> None:
    server.answers["/token"] = said
    with pytest.raises(ProviderUnavailable, match="is unreachable"):
        await exchanged(client)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(answer(b"<html>"), id="no JSON"),
        pytest.param(answer(b""), id="nothing"),
        pytest.param(answer(["access_token"]), id="no object"),
        pytest.param(answer(b"[" * 100_000), id="deep"),
        pytest.param(answer(b"\xff\xfe\x00"), id="no UTF-8"),
        pytest.param(answer(b" " * (MAX_ANSWER_BYTES + 1)), id="too large"),
        pytest.param(answer(gzip.compress(b"{}"), headers="content-encoding: gzip\r\n"), id="compressed"),
        pytest.param(answer({}, 302, "location: /elsewhere\r\n"), id="redirect"),
        pytest.param(answer({}), id="no token"),
        pytest.param(answer({**GOOD, "access_token": ""}), id="empty token"),
        pytest.param(answer({**GOOD, "access_token": 7}), id="number as token"),
        pytest.param(answer({**GOOD, "access_token": "a\r\nx: y"}), id="token with a line end"),
        pytest.param(answer({**GOOD, "refresh_token": {"a": 1}}), id="object as refresh token"),
        pytest.param(answer({"access_token": "at"}), id="no type"),
        pytest.param(answer({**GOOD, "token_type": "mac"}), id="another type"),
    ],
)
async def test_invalid_token_responses_are_refused(server: StandIn, client: Client, said: bytes) -> None:
    server.answers["/token"] = said
    with pytest.raises(BadAnswer) as refused:
        await exchanged(client)
    assert refused.value.provider == "stand-in"
    assert [path for path, _ in server.asked] == ["/token"]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_retry_later_response_means_unavailable(server: StandIn, client: Client, status: int) -> None:
    server.answers["/token"] = answer({"error": "server_error"}, status)
    with pytest.raises(ProviderUnavailable, match=str(status)):
        await exchanged(client)


async def test_an_error_with_status_200_is_a_refusal(server: StandIn, client: Client) -> None:
    server.answers["/token"] = answer({"error": "bad_verification_code", "error_description": "expired"})
    with pytest.raises(ProviderRefused) as refused:
        await exchanged(client)
    assert refused.value.error == "bad_verification_code"


@pytest.mark.parametrize("error", [CODE, VERIFIER, "a b", "x" * 65, {"a": 1}, None, "invalid_grant\n"])
async def test_a_refusal_repeats_only_a_plain_word(server: StandIn, client: Client, error: object) -> None:
    server.answers["/token"] = answer({"error": error, "error_description": CODE}, 400)
    with pytest.raises(ProviderRefused) as refused:
        await exchanged(client)
    assert refused.value.error is None
    assert str(refused.value) == "stand-in: its token endpoint refused the request (status 400)"


@pytest.mark.parametrize(
    ("expires_in", "seconds"),
    [(100, 100), ("100", 100), (99.9, 99), (None, 3600), (0, 3600), (-5, 3600), ("soon", 3600), ([], 3600)],
)
async def test_a_token_lives_for_expires_in_or_an_hour(
    server: StandIn, client: Client, clock: Clock, expires_in: object, seconds: int
) -> None:
    server.answers["/token"] = answer({**GOOD, "expires_in": expires_in})
    assert (await exchanged(client)).expires_at_ms == clock() + seconds * 1000


async def test_a_lifetime_without_bound_is_bounded(server: StandIn, client: Client, clock: Clock) -> None:
    server.answers["/token"] = answer(b'{"access_token": "at", "token_type": "Bearer", "expires_in": 1e400}')
    assert (await exchanged(client)).expires_at_ms == clock() + 3_600_000
    server.answers["/token"] = answer({**GOOD, "expires_in": 10**18})
    assert (await exchanged(client)).expires_at_ms == clock() + 10 * 365 * 86_400_000


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("identify email", "identify email"),
        ("repo,user", "repo,user"),
        ("x" * 4096, "x" * 4096),
        ("x" * 4097, "identify"),
        ("\ud800", "identify"),
        ("a\nb", "identify"),
        ("", "identify"),
        (None, "identify"),
        (["identify"], "identify"),
    ],
)
async def test_an_invalid_scope_counts_as_the_requested_one(
    server: StandIn, client: Client, given: object, kept: str
) -> None:
    """The tokens are valid, and a discarded refresh token could not be obtained again."""
    server.answers["/token"] = answer({**GOOD, "refresh_token": "new", "scope": given})
    tokens = await client.refresh("old")
    assert (tokens.scope, tokens.refresh_token) == (kept, "new")


async def test_a_refresh_that_brings_no_new_refresh_token_keeps_the_old_one(server: StandIn, client: Client) -> None:
    server.answers["/token"] = answer(GOOD)
    assert (await client.refresh("old")).refresh_token == "old"
    assert (await exchanged(client)).refresh_token is None


async def test_nothing_secret_is_in_a_url(server: StandIn, http: httpx2.AsyncClient, clock: Clock) -> None:
    provider = server.provider(client_secret="s3cret", revoke_url=f"{server.url}/revoke")
    client = Client(provider, http, clock, development=True)
    server.answers |= {"/token": answer(GOOD), "/me": answer({"id": "1", "username": "ada"}), "/revoke": answer(b"")}
    tokens = await exchanged(client)
    await client.identity(tokens, "")
    await client.refresh("rt")
    assert await client.revoke("rt")
    assert [path for path, _ in server.asked] == ["/token", "/me", "/token", "/revoke"]


async def test_a_provider_without_revocation_endpoint_is_not_called(server: StandIn, client: Client) -> None:
    assert not await client.revoke("rt")
    assert server.asked == []


async def test_a_client_without_secret_gives_its_name(server: StandIn, client: Client) -> None:
    server.answers["/token"] = answer(GOOD)
    await exchanged(client)
    [(_, sent)] = server.asked
    assert "client_id=keystead" in sent
    assert "authorization:" not in sent.lower()


# --- identity -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "who"),
    [
        ({"id": "1", "username": "ada", "avatar": "a1"}, Identity("1", "ada", "a1")),
        ({"id": "1", "username": "ada", "global_name": "Ada"}, Identity("1", "Ada", None)),
        ({"id": "1", "username": "ada", "global_name": None, "avatar": None}, Identity("1", "ada", None)),
        ({"id": 42, "username": ""}, Identity("42", "42", None)),
        ({"id": "1", "username": " A\r\nd\x00a\u202e "}, Identity("1", "A d a", None)),
        ({"id": "1", "username": "x" * 1000, "avatar": "y" * 5000}, Identity("1", "x" * 256, None)),
        ({"id": "1", "username": ["ada"], "avatar": 7}, Identity("1", "1", None)),
    ],
)
async def test_the_identity_comes_from_the_fields_of_the_provider(
    server: StandIn, client: Client, told: dict[str, Any], who: Identity
) -> None:
    server.answers |= {"/token": answer(GOOD), "/me": answer(told)}
    assert await client.identity(await exchanged(client), "") == who


@pytest.mark.parametrize("id_", [None, "", True, 1.5, {"a": 1}, "x" * 256, "a\nb"])
async def test_a_user_without_id_is_refused(server: StandIn, client: Client, id_: object) -> None:
    server.answers |= {"/token": answer(GOOD), "/me": answer({"id": id_, "username": "ada"})}
    with pytest.raises(BadAnswer, match="has no usable"):
        await client.identity(await exchanged(client), "")


async def test_an_expired_access_token_is_refused(server: StandIn, client: Client) -> None:
    server.answers |= {"/token": answer(GOOD), "/me": answer({"message": "401: Unauthorized"}, 401)}
    with pytest.raises(ProviderRefused, match="userinfo endpoint"):
        await client.identity(await exchanged(client), "")


# --- ID tokens that no honest issuer makes ----------------------------------------------------------------------


class Verifying:
    """A client of the stand-in as issuer, and good claims to spoil."""

    def __init__(self, server: StandIn, http: httpx2.AsyncClient, clock: Clock) -> None:
        self.server = server
        self.client = Client(server.with_issuer(), http, clock, development=True)
        now_s = clock() // 1000
        self.claims: dict[str, Any] = {
            "iss": server.url,
            "aud": "keystead",
            "sub": "ada",
            "exp": now_s + 600,
            "iat": now_s,
            "nonce": "n",
        }

    async def identity(self, id_token: str) -> Identity:
        return await self.client.identity(Tokens("at", None, id_token, "openid", "Bearer", 0), "n")


@pytest.fixture
def verifying(server: StandIn, http: httpx2.AsyncClient, clock: Clock) -> Verifying:
    return Verifying(server, http, clock)


@pytest.mark.parametrize(
    "spoilt", [{}, {"aud": ["keystead"]}, {"aud": ["keystead", "b"], "azp": "keystead"}, {"nbf": 0}]
)
async def test_valid_claims_are_accepted(verifying: Verifying, server: StandIn, spoilt: dict[str, Any]) -> None:
    who = await verifying.identity(server.signed({**verifying.claims, **spoilt}))
    assert who == Identity("ada", "ada", None)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"iss": None},
        {"iss": "https://accounts.example.com"},
        {"aud": None},
        {"aud": "keystead2"},
        {"aud": []},
        {"aud": {"keystead": 1}},
        {"aud": ["keystead", "b"]},
        {"aud": ["keystead", "b"], "azp": "b"},
        {"azp": "b"},
        {"azp": None},
        {"exp": None},
        {"exp": True},
        {"exp": "9999999999"},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": 10**400},
        {"iat": -(10**400)},
        {"nbf": 10**400},
        {"exp": 1},
        {"iat": None},
        {"iat": 9_999_999_999},
        {"nbf": 9_999_999_999},
        {"nbf": "0"},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
        {"nonce": None},
        {"nonce": ""},
        {"nonce": "m"},
        {"nonce": ["n"]},
    ],
    ids=str,
)
async def test_a_claim_that_is_wrong_is_refused_although_the_signature_is_right(
    verifying: Verifying, server: StandIn, spoilt: dict[str, Any]
) -> None:
    with pytest.raises(BadIdToken):
        await verifying.identity(server.signed({**verifying.claims, **spoilt}))


async def test_a_lone_surrogate_is_not_a_nonce(verifying: Verifying, server: StandIn) -> None:
    claims = json.dumps({**verifying.claims, "nonce": "\ud800"}).encode()  # which joserfc itself would not write
    token = jws.serialize_compact({"alg": "RS256", "kid": "first"}, claims, server.key)
    with pytest.raises(BadIdToken, match="belongs to another login"):
        await verifying.identity(token)


@pytest.mark.parametrize("name", ["iss", "aud", "exp", "iat", "sub", "nonce"])
async def test_a_claim_that_is_missing_is_refused(verifying: Verifying, server: StandIn, name: str) -> None:
    del verifying.claims[name]
    with pytest.raises(BadIdToken):
        await verifying.identity(server.signed(verifying.claims))


async def test_a_key_of_the_same_name_that_is_not_the_issuers_signs_nothing(
    verifying: Verifying, server: StandIn
) -> None:
    forged = RSAKey.generate_key(2048, {"kid": "first"}, auto_kid=False)
    with pytest.raises(BadIdToken, match="signature"):
        await verifying.identity(server.signed(verifying.claims, forged))


async def test_a_key_that_the_token_brings_along_signs_nothing(verifying: Verifying, server: StandIn) -> None:
    forged = RSAKey.generate_key(2048, {"kid": "first"}, auto_kid=False)
    brought = forged.as_dict(private=False)
    with pytest.raises(BadIdToken):
        await verifying.identity(server.signed(verifying.claims, forged, jwk=brought))


async def test_the_public_key_as_a_shared_secret_signs_nothing(verifying: Verifying, server: StandIn) -> None:
    secret = OctKey.import_key({"kty": "oct", "k": server.key.as_dict(private=False)["n"], "kid": "first"})
    forged = jwt.encode({"alg": "HS256", "kid": "first"}, verifying.claims, secret)
    with pytest.raises(BadIdToken, match="not signed with one of"):
        await verifying.identity(forged)


async def test_an_extension_that_must_be_understood_and_is_not_is_refused(
    verifying: Verifying, server: StandIn
) -> None:
    head, claims, _ = server.signed(verifying.claims).split(".")
    odd = urlsafe_b64encode(b'{"alg":"RS256","kid":"first","crit":["exp"],"exp":1}').rstrip(b"=").decode()
    unsigned = f"{odd}.{claims}"
    # joserfc would not sign such a header either, so it is signed by the key itself.
    signature = jws.JWSRegistry.algorithms["RS256"].sign(unsigned.encode(), server.key)
    token = f"{unsigned}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert head != odd
    with pytest.raises(BadIdToken, match="signature of its ID token"):
        await verifying.identity(token)


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "..", "é.é.é", "a.b.c.d.e", "." * 100_000])
async def test_malformed_tokens_are_refused(verifying: Verifying, text: str) -> None:
    with pytest.raises(BadIdToken):
        await verifying.identity(text)


@pytest.mark.parametrize("purpose", [{"use": "enc"}, {"alg": "PS256"}, {"kid": "second"}], ids=str)
async def test_a_key_that_is_published_for_something_else_signs_nothing(
    verifying: Verifying, server: StandIn, purpose: dict[str, str]
) -> None:
    server.answers["/jwks"] = answer({"keys": [{**server.key.as_dict(private=False), **purpose}]})
    with pytest.raises(BadIdToken, match="does not publish"):
        await verifying.identity(server.signed(verifying.claims))


async def test_a_token_without_key_id_is_accepted_if_only_one_key_fits(
    verifying: Verifying, server: StandIn, clock: Clock
) -> None:
    nameless = jwt.encode({"alg": "RS256"}, verifying.claims, server.key)
    assert (await verifying.identity(nameless)).id == "ada"
    server.publish(server.key, RSAKey.generate_key(2048, {"kid": "second"}, auto_kid=False))
    clock.move(seconds=600)
    with pytest.raises(BadIdToken):
        await verifying.identity(nameless)


async def test_a_new_key_is_looked_for_once_and_not_without_end(
    verifying: Verifying, server: StandIn, clock: Clock
) -> None:
    assert (await verifying.identity(server.signed(verifying.claims))).id == "ada"
    assert server.count("/jwks") == 1
    strange = [RSAKey.generate_key(2048, {"kid": f"strange-{n}"}, auto_kid=False) for n in range(3)]
    for key in strange:
        with pytest.raises(BadIdToken, match="does not publish"):
            await verifying.identity(server.signed(verifying.claims, key))
    assert server.count("/jwks") == 2
    server.publish(server.key, strange[0])
    clock.move(seconds=30)
    assert (await verifying.identity(server.signed(verifying.claims, strange[0]))).id == "ada"
    assert server.count("/jwks") == 3


async def test_logins_that_need_a_key_set_that_hangs_share_one_wait(
    verifying: Verifying, server: StandIn, http: httpx2.AsyncClient, clock: Clock
) -> None:
    verifying.client = Client(server.with_issuer(), http, clock, development=True, timeout="100ms")
    published = server.answers.pop("/jwks")
    token = server.signed(verifying.claims)
    outcomes = await asyncio.gather(*(verifying.identity(token) for _ in range(6)), return_exceptions=True)
    assert [type(one) for one in outcomes] == [ProviderUnavailable] * 6
    assert server.count("/jwks") == 1
    server.answers["/jwks"] = published  # a failure is not kept
    assert (await verifying.identity(token)).id == "ada"


async def test_logins_with_a_known_key_do_not_wait_for_a_key_fetch(verifying: Verifying, server: StandIn) -> None:
    known = server.signed(verifying.claims)
    await verifying.identity(known)
    del server.answers["/jwks"]
    strange = RSAKey.generate_key(2048, {"kid": "strange"}, auto_kid=False)
    looking = asyncio.ensure_future(verifying.identity(server.signed(verifying.claims, strange)))
    try:
        await server.until_asked("/jwks", 2)
        assert (await verifying.identity(known)).id == "ada"
        assert not looking.done()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_a_new_key_that_is_being_fetched_already_is_waited_for(verifying: Verifying, server: StandIn) -> None:
    await verifying.identity(server.signed(verifying.claims))
    new = [RSAKey.generate_key(2048, {"kid": f"new-{n}"}, auto_kid=False) for n in range(2)]
    server.publish(*new)
    tokens = [server.signed(verifying.claims, key) for key in new]
    found = await asyncio.gather(*(verifying.identity(token) for token in tokens))
    assert [who.id for who in found] == ["ada", "ada"]
    assert server.count("/jwks") == 2


async def test_a_key_that_is_withdrawn_is_not_trusted_after_ten_minutes(
    verifying: Verifying, server: StandIn, clock: Clock
) -> None:
    token = server.signed({**verifying.claims, "exp": clock() // 1000 + 3600})
    await verifying.identity(token)
    server.publish(RSAKey.generate_key(2048, {"kid": "second"}, auto_kid=False))
    clock.move(seconds=599)
    await verifying.identity(token)
    clock.move(seconds=1)
    with pytest.raises(BadIdToken, match="does not publish"):
        await verifying.identity(token)


async def test_a_key_set_that_holds_rubbish_is_used_as_far_as_it_goes(verifying: Verifying, server: StandIn) -> None:
    good = server.key.as_dict(private=False)
    rubbish: list[object] = [None, 7, {}, {"kty": "AKP"}, {"kty": "RSA", "n": "!"}, {"kty": "oct", "k": "AAAA"}]
    server.answers["/jwks"] = answer({"keys": [*rubbish, good]})
    assert (await verifying.identity(server.signed(verifying.claims))).id == "ada"


# --- discovery ------------------------------------------------------------------------------------------------


async def test_an_issuer_cannot_send_us_to_an_endpoint_in_the_clear(
    server: StandIn, http: httpx2.AsyncClient, clock: Clock
) -> None:
    metadata = {
        "issuer": server.url,
        "authorization_endpoint": f"{server.url}/authorize",
        "token_endpoint": "http://example.com/token",
        "jwks_uri": f"{server.url}/jwks",
    }
    server.answers["/.well-known/openid-configuration"] = answer(metadata)
    found = server.provider(issuer=server.url, token_url=None, authorize_url=None, userinfo_url=None)
    client = Client(found, http, clock, development=True)
    with pytest.raises(BadProvider, match="token_url must be an https URL"):
        await client.authorize_url(REDIRECT_URI, "s", "c", "n")


async def test_discovery_is_cached_for_an_hour(server: StandIn, http: httpx2.AsyncClient, clock: Clock) -> None:
    path = "/.well-known/openid-configuration"
    server.answers[path] = answer(
        {
            "issuer": server.url,
            "authorization_endpoint": f"{server.url}/authorize",
            "token_endpoint": f"{server.url}/token",
            "jwks_uri": f"{server.url}/jwks",
        }
    )
    found = server.provider(issuer=server.url, token_url=None, authorize_url=None, userinfo_url=None)
    client = Client(found, http, clock, development=True)
    await asyncio.gather(*(client.authorize_url(REDIRECT_URI, "s", "c", "n") for _ in range(5)))
    assert server.count(path) == 1
    clock.move(seconds=3599)
    await client.authorize_url(REDIRECT_URI, "s", "c", "n")
    assert server.count(path) == 1
    clock.move(seconds=1)
    await client.authorize_url(REDIRECT_URI, "s", "c", "n")
    assert server.count(path) == 2
