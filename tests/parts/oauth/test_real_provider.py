"""The client against a strict provider in a separate process."""

import logging
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Literal

import httpx2
import pytest

from keystead.parts.oauth import (
    BadIdToken,
    Client,
    Identity,
    ProviderRefused,
    ProviderUnavailable,
    WrongIssuer,
    new_verifier,
    oidc,
)
from tests.oidc import OidcProvider, cancel_login, log_in, oidc_provider
from tests.parts.oauth.conftest import PICTURE
from tests.parts.oauth.logging_in import REDIRECT_URI, Clock, Login, parameters, registered


async def test_a_login_returns_the_identity(client: Client, clock: Clock, provider: OidcProvider) -> None:
    login = Login(client)
    back = await login.callback("ada")
    assert back["state"] == login.state
    assert back["iss"] == provider.issuer
    await client.check_issuer(back["iss"])
    tokens = await client.exchange(back["code"], login.verifier, REDIRECT_URI)
    assert tokens.token_type == "Bearer"
    assert tokens.scope == "openid profile"
    assert tokens.refresh_token
    assert tokens.expires_at_ms == clock() + 3_600_000
    assert await client.identity(tokens, login.nonce) == Identity("ada", "Ada Lovelace", PICTURE)


async def test_a_user_may_have_no_picture(client: Client) -> None:
    login = Login(client)
    assert await client.identity(await login.tokens("grace"), login.nonce) == Identity("grace", "grace", None)


@pytest.mark.matrix
@pytest.mark.parametrize("algorithm", ["PS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("client_auth", ["post"])
async def test_other_signatures_and_another_place_for_the_secret_work_as_well(
    http: httpx2.AsyncClient,
    clock: Clock,
    algorithm: Literal["PS256", "ES256", "EdDSA"],
    client_auth: Literal["basic", "post"],
) -> None:
    with oidc_provider([REDIRECT_URI], algorithm=algorithm, client_auth=client_auth) as provider:
        client = Client(registered(provider, client_auth=client_auth), http, clock, development=True)
        login = Login(client)
        tokens = await login.tokens("ada")
        assert (await client.identity(tokens, login.nonce)).id == "ada"
        only_rsa = registered(provider, client_auth=client_auth, algorithms=("RS256",))
        with pytest.raises(BadIdToken, match="not signed with one of RS256"):
            await Client(only_rsa, http, clock, development=True).identity(tokens, login.nonce)


async def test_cancelling_at_the_provider_is_not_a_login(client: Client, provider: OidcProvider) -> None:
    back = parameters(await cancel_login(await Login(client).url()))
    assert back["error"] == "access_denied"
    assert back["iss"] == provider.issuer
    assert "code" not in back


async def test_a_browser_that_is_logged_in_at_the_provider_comes_straight_back(client: Client) -> None:
    async with httpx2.AsyncClient(trust_env=False) as browser:
        await log_in(await Login(client).url(), "ada", browser=browser)
        login = Login(client)
        answer = await browser.get(await login.url(), follow_redirects=False)
        assert parameters(answer.headers["location"])["state"] == login.state


async def test_a_wrong_verifier_is_refused(client: Client) -> None:
    login = Login(client)
    back = await login.callback()
    with pytest.raises(ProviderRefused) as refused:
        await client.exchange(back["code"], new_verifier(), REDIRECT_URI)
    assert refused.value.error == "invalid_grant"


async def test_reusing_a_code_revokes_the_tokens_of_its_first_use(client: Client) -> None:
    login = Login(client)
    back = await login.callback()
    tokens = await client.exchange(back["code"], login.verifier, REDIRECT_URI)
    with pytest.raises(ProviderRefused) as refused:
        await client.exchange(back["code"], login.verifier, REDIRECT_URI)
    assert refused.value.error == "invalid_grant"
    with pytest.raises(ProviderRefused):
        await client.identity(tokens, login.nonce)
    with pytest.raises(ProviderRefused):
        await client.refresh(tokens.refresh_token or "")


async def test_a_code_of_another_redirect_uri_is_refused(client: Client) -> None:
    login = Login(client)
    back = await login.callback()
    with pytest.raises(ProviderRefused):
        await client.exchange(back["code"], login.verifier, f"{REDIRECT_URI}/elsewhere")


async def test_a_refresh_gives_new_tokens_for_the_same_person(client: Client, clock: Clock) -> None:
    login = Login(client)
    first = await login.tokens("ada")
    clock.move(seconds=1800)
    second = await client.refresh(first.refresh_token or "")
    assert second.access_token != first.access_token
    assert second.refresh_token not in (None, first.refresh_token)
    assert second.expires_at_ms == clock() + 3_600_000
    asked = replace(first, access_token=second.access_token)
    assert (await client.identity(asked, login.nonce)).id == "ada"


async def test_an_old_refresh_token_ends_the_whole_family(client: Client) -> None:
    first = await Login(client).tokens()
    second = await client.refresh(first.refresh_token or "")
    with pytest.raises(ProviderRefused) as refused:
        await client.refresh(first.refresh_token or "")
    assert refused.value.error == "invalid_grant"
    with pytest.raises(ProviderRefused):
        await client.refresh(second.refresh_token or "")


async def test_revoking_a_token_is_final_and_idempotent(client: Client) -> None:
    login = Login(client)
    tokens = await login.tokens()
    assert await client.revoke(tokens.refresh_token or "")
    with pytest.raises(ProviderRefused):
        await client.refresh(tokens.refresh_token or "")
    assert await client.revoke(tokens.refresh_token or "")


async def test_a_wrong_client_secret_is_refused_and_not_repeated(
    provider: OidcProvider, http: httpx2.AsyncClient, clock: Clock
) -> None:
    wrong = Client(registered(provider).configured(client_secret="wrong: +secret"), http, clock, development=True)
    with pytest.raises(ProviderRefused) as refused:
        await Login(wrong).tokens()
    assert refused.value.error == "invalid_client"
    assert "secret" not in str(refused.value)


# --- ID tokens ------------------------------------------------------------------------------------------------


async def test_the_id_token_of_another_login_is_refused(client: Client) -> None:
    login = Login(client)
    tokens = await login.tokens()
    with pytest.raises(BadIdToken, match="belongs to another login"):
        await client.identity(tokens, Login(client).nonce)


async def test_the_id_token_of_another_client_is_refused(
    client: Client, provider: OidcProvider, http: httpx2.AsyncClient, clock: Clock
) -> None:
    login = Login(Client(registered(provider, client=1), http, clock, development=True))
    tokens = await login.tokens()
    assert (await login.client.identity(tokens, login.nonce)).id == "ada"
    with pytest.raises(BadIdToken, match="issued to another client"):
        await client.identity(tokens, login.nonce)


@pytest.mark.parametrize("part", ["header", "claims", "signature"])
async def test_an_id_token_that_was_changed_is_refused(client: Client, part: str) -> None:
    login = Login(client)
    tokens = await login.tokens()
    parts = (tokens.id_token or "").split(".")
    place = ["header", "claims", "signature"].index(part)
    # In the middle: the last character of base64 may hold bits that mean nothing.
    middle = len(parts[place]) // 2
    changed = "A" if parts[place][middle] != "A" else "B"
    parts[place] = parts[place][:middle] + changed + parts[place][middle + 1 :]
    with pytest.raises(BadIdToken):
        await client.identity(replace(tokens, id_token=".".join(parts)), login.nonce)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
async def test_an_id_token_without_a_signature_of_the_issuer_is_refused(client: Client, algorithm: str) -> None:
    login = Login(client)
    tokens = await login.tokens()
    _, claims, _ = (tokens.id_token or "").split(".")
    header = urlsafe_b64encode(f'{{"alg":"{algorithm}"}}'.encode()).rstrip(b"=").decode()
    with pytest.raises(BadIdToken, match="not signed with one of"):
        await client.identity(replace(tokens, id_token=f"{header}.{claims}."), login.nonce)


async def test_an_id_token_of_another_user_is_refused(client: Client) -> None:
    login = Login(client)
    ada = await login.tokens("ada")
    grace = await Login(client).tokens("grace")
    with pytest.raises(BadIdToken, match="another subject"):
        await client.identity(replace(ada, access_token=grace.access_token), login.nonce)


async def test_an_id_token_is_good_for_its_time_and_a_minute(client: Client, clock: Clock) -> None:
    login = Login(client)
    tokens = await login.tokens()
    issued_ms = clock()
    clock.move(seconds=3600 + 55)
    assert (await client.identity(tokens, login.nonce)).id == "ada"
    clock.ms = issued_ms + (3600 + 65) * 1000
    with pytest.raises(BadIdToken, match="expired"):
        await client.identity(tokens, login.nonce)
    clock.ms = issued_ms - 120_000
    with pytest.raises(BadIdToken, match="future"):
        await client.identity(tokens, login.nonce)


async def test_a_login_without_id_token_is_refused(client: Client) -> None:
    login = Login(client)
    with pytest.raises(BadIdToken, match="sent no ID token"):
        await client.identity(replace(await login.tokens(), id_token=None), login.nonce)


# --- issuers --------------------------------------------------------------------------------------------------


async def test_an_issuer_that_calls_itself_differently_is_refused(
    provider: OidcProvider, http: httpx2.AsyncClient, clock: Clock
) -> None:
    for issuer in (f"http://localhost:{provider.port}", f"{provider.issuer}/"):
        with pytest.raises(WrongIssuer, match="the issuer in its discovery document"):
            await Login(Client(oidc(issuer, client_id="keystead"), http, clock, development=True)).url()


async def test_an_id_token_of_another_issuer_is_refused(
    provider: OidcProvider, http: httpx2.AsyncClient, clock: Clock
) -> None:
    elsewhere = registered(
        provider,
        authorize_url=f"{provider.issuer}/auth",
        token_url=f"{provider.issuer}/token",
        jwks_uri=f"{provider.issuer}/jwks",
    ).configured(issuer="https://accounts.example.com")
    login = Login(Client(elsewhere, http, clock, development=True))
    tokens = await login.tokens()
    with pytest.raises(BadIdToken, match="not issued by"):
        await login.client.identity(tokens, login.nonce)


async def test_the_issuer_of_a_callback_is_compared(client: Client, provider: OidcProvider) -> None:
    await client.check_issuer(provider.issuer)
    for wrong in ("https://accounts.example.com", f"{provider.issuer}/", ""):
        with pytest.raises(WrongIssuer):
            await client.check_issuer(wrong)


async def test_a_callback_without_issuer_is_refused_where_the_provider_promised_one(
    client: Client, provider: OidcProvider, http: httpx2.AsyncClient, clock: Clock
) -> None:
    with pytest.raises(WrongIssuer):
        await client.check_issuer(None)
    no_promise = registered(
        provider,
        authorize_url=f"{provider.issuer}/auth",
        token_url=f"{provider.issuer}/token",
        jwks_uri=f"{provider.issuer}/jwks",
    )
    await Client(no_promise, http, clock, development=True).check_issuer(None)


# --- outages of providers -------------------------------------------------------------------------------------


@pytest.mark.matrix
async def test_a_key_rotation_of_the_provider_is_followed(http: httpx2.AsyncClient, clock: Clock) -> None:
    with oidc_provider([REDIRECT_URI]) as provider:
        client = Client(registered(provider), http, clock, development=True)
        before = Login(client)
        tokens = await before.tokens()
        assert (await client.identity(tokens, before.nonce)).id == "ada"
        provider.restart()
        after = Login(client)
        assert (await client.identity(await after.tokens(), after.nonce)).id == "ada"
        with pytest.raises(BadIdToken, match="key that the issuer does not publish"):
            await client.identity(tokens, before.nonce)


async def test_a_provider_outage_is_reported_and_recovers(http: httpx2.AsyncClient, clock: Clock) -> None:
    with oidc_provider([REDIRECT_URI]) as provider:
        client = Client(registered(provider), http, clock, development=True)
        provider.kill()
        with pytest.raises(ProviderUnavailable, match="is unreachable"):
            await Login(client).url()
        provider.start()
        login = Login(client)
        tokens = await login.tokens()
        provider.kill()
        with pytest.raises(ProviderUnavailable, match="is unreachable"):
            await client.refresh(tokens.refresh_token or "")


async def test_a_hanging_provider_times_out(http: httpx2.AsyncClient, clock: Clock) -> None:
    with oidc_provider([REDIRECT_URI]) as provider:
        provider.pause()
        hasty = Client(registered(provider), http, clock, development=True, timeout="200ms")
        with pytest.raises(ProviderUnavailable, match=r"did not respond within 0\.2 seconds"):
            await Login(hasty).url()
        provider.resume()
        patient = Client(registered(provider), http, clock, development=True)
        assert (await Login(patient).url()).startswith(f"{provider.issuer}/auth?")


async def test_an_access_token_has_the_lifetime_of_the_provider(http: httpx2.AsyncClient, clock: Clock) -> None:
    with oidc_provider([REDIRECT_URI], access_token_lifetime="2m") as provider:
        tokens = await Login(Client(registered(provider), http, clock, development=True)).tokens()
        assert tokens.expires_at_ms == clock() + 120_000


async def test_nothing_secret_is_logged_or_shown(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    login = Login(client)
    back = await login.callback()
    # What the browser of the test does is in the log as well; what counts is what the client does.
    caplog.clear()
    tokens = await client.exchange(back["code"], login.verifier, REDIRECT_URI)
    await client.identity(tokens, login.nonce)
    renewed = await client.refresh(tokens.refresh_token or "")
    await client.revoke(renewed.refresh_token or "")
    with pytest.raises(ProviderRefused) as refused:
        await client.exchange(back["code"], login.verifier, REDIRECT_URI)
    assert "POST" in caplog.text  # the HTTP library does log what it sends
    shown = "\n".join((caplog.text, str(refused.value), repr(tokens), repr(renewed), repr(client.provider)))
    secrets = {
        "code": back["code"],
        "verifier": login.verifier,
        "nonce": login.nonce,
        "access token": tokens.access_token,
        "refresh token": tokens.refresh_token,
        "new access token": renewed.access_token,
        "new refresh token": renewed.refresh_token,
        "ID token": tokens.id_token,
        "client secret": client.provider.client_secret.get_secret_value() if client.provider.client_secret else "",
    }
    assert [name for name, secret in secrets.items() if not secret or secret in shown] == []
