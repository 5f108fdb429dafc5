"""Provider settings, PKCE, and what is refused before anything is sent."""

import time
from urllib.parse import urlsplit

import httpx2
import pytest
from pydantic import SecretStr

from keystead.parts.oauth import (
    DISCORD,
    GITHUB,
    GOOGLE,
    PRESETS,
    BadProvider,
    Client,
    Provider,
    challenge_of,
    error_word,
    new_verifier,
    oidc,
)
from tests.parts.oauth.logging_in import REDIRECT_URI, parameters


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_the_challenge_is_that_of_rfc_7636_appendix_b() -> None:
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_a_verifier_is_32_random_bytes_in_43_characters() -> None:
    verifiers = {new_verifier() for _ in range(1000)}
    assert len(verifiers) == 1000
    assert {len(one) for one in verifiers} == {43}
    assert all(one.replace("-", "a").replace("_", "a").isalnum() for one in verifiers)


async def test_discord_requests_follow_its_documentation(http: httpx2.AsyncClient) -> None:
    client = Client(DISCORD.configured(client_id="1", client_secret="s"), http, now_ms)
    url = await client.authorize_url(REDIRECT_URI, "the state", "the-challenge", "unused")
    asked = parameters(url)
    assert url.startswith("https://discord.com/oauth2/authorize?")
    assert asked == {
        "response_type": "code",
        "client_id": "1",
        "redirect_uri": REDIRECT_URI,
        "scope": "identify guilds",
        "state": "the state",
        "code_challenge": "the-challenge",
        "code_challenge_method": "S256",
        "prompt": "consent",
    }
    app = client.app_authorize_url(REDIRECT_URI, "the state", "the-challenge", "unused")
    assert app is not None
    assert app.startswith("discord://-/oauth2/authorize?")
    assert parameters(app) == asked


async def test_google_requests_have_a_nonce_and_no_app_link(http: httpx2.AsyncClient) -> None:
    client = Client(GOOGLE.configured(client_id="1", client_secret="s"), http, now_ms)
    asked = parameters(await client.authorize_url(REDIRECT_URI, "s", "c", "the-nonce"))
    assert asked["nonce"] == "the-nonce"
    assert asked["scope"].split()[0] == "openid"
    assert client.app_authorize_url(REDIRECT_URI, "s", "c", "the-nonce") is None


async def test_extra_parameters_cannot_replace_security_parameters(http: httpx2.AsyncClient) -> None:
    odd = GITHUB.configured(
        client_id="1",
        client_secret="s",
        authorize_parameters={"state": "fixed", "code_challenge_method": "plain", "allow_signup": "false"},
        authorize_url="https://github.example.com/authorize?tenant=a&state=fixed",
    )
    asked = parameters(await Client(odd, http, now_ms).authorize_url(REDIRECT_URI, "s", "c", "n"))
    assert (asked["state"], asked["code_challenge_method"]) == ("s", "S256")
    assert (asked["tenant"], asked["allow_signup"]) == ("a", "false")


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
async def test_a_preset_needs_only_id_and_secret_and_fetches_by_https(
    preset: Provider, http: httpx2.AsyncClient
) -> None:
    assert preset.missing == ["client_id", "client_secret"]
    with pytest.raises(BadProvider, match="it needs client_id, client_secret"):
        Client(preset, http, now_ms)
    with pytest.raises(BadProvider, match="it needs client_secret"):
        Client(preset.configured(client_id="1", client_secret=""), http, now_ms)
    Client(preset.configured(client_id="1", client_secret="s"), http, now_ms)
    urls = [preset.authorize_url, preset.token_url, preset.userinfo_url, preset.jwks_uri, preset.revoke_url]
    assert {urlsplit(url).scheme for url in urls if url} == {"https"}


def test_every_setting_of_a_preset_can_be_replaced_and_the_preset_stays() -> None:
    settings = {name: f"https://example.com/{name}" for name in ("authorize_url", "token_url", "userinfo_url")}
    changed = DISCORD.configured(client_id="1", client_secret="s", scope="identify", identity={"id": "sub"}, **settings)
    assert {name: getattr(changed, name) for name in settings} == settings
    assert changed.identity.id == "sub"
    assert changed.client_secret == SecretStr("s")
    assert changed.configured(scope="x").client_secret == SecretStr("s")
    assert (DISCORD.client_id, DISCORD.identity.id) == ("", "id")


def test_an_invalid_setting_is_a_one_line_error_without_its_value() -> None:
    with pytest.raises(BadProvider) as refused:
        DISCORD.configured(client_secret=["s3cret"], colour="red")
    assert str(refused.value).startswith("discord: invalid settings: ")
    assert "colour" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_an_algorithm_without_the_issuers_key_cannot_be_configured(algorithm: str) -> None:
    with pytest.raises(BadProvider, match="algorithms"):
        GOOGLE.configured(algorithms=[algorithm])


def test_the_text_form_of_a_provider_hides_its_secret() -> None:
    provider = DISCORD.configured(client_id="1", client_secret="s3cret")
    assert "s3cret" not in f"{provider!r} {provider} {provider.model_dump_json()}"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/token",
        "http://127.0.0.1.example.com/token",
        "http://localhost.example.com/token",
        "http://10.0.0.1/token",
        "ftp://127.0.0.1/token",
        "file:///token",
        "//example.com/token",
        "token",
        "https://",
        "https://user:pass@example.com/token",
        "https://example.com/token#part",
        "https://example.com/a b",
        "https://example.com:notaport/",
        "https://[::1/",
    ],
)
@pytest.mark.parametrize("development", [False, True], ids=["production", "development"])
async def test_an_endpoint_in_the_clear_is_refused(url: str, development: bool, http: httpx2.AsyncClient) -> None:
    with pytest.raises(BadProvider, match="token_url"):
        Client(
            DISCORD.configured(client_id="1", client_secret="s", token_url=url), http, now_ms, development=development
        )


@pytest.mark.parametrize("host", ["127.0.0.1:8700", "127.9.9.9", "localhost:1", "[::1]:8700"])
async def test_http_to_this_machine_is_for_development_only(host: str, http: httpx2.AsyncClient) -> None:
    local = DISCORD.configured(client_id="1", client_secret="s", token_url=f"http://{host}/token")
    Client(local, http, now_ms, development=True)
    with pytest.raises(BadProvider, match=r"must be an https URL$"):
        Client(local, http, now_ms)


@pytest.mark.parametrize(
    ("url", "development"),
    [
        ("http://192.168.1.7:8700/authorize", False),
        ("javascript://example.com/%0aalert(1)", True),
        ("discord://-/authorize", True),
        ("http://[::1/authorize", True),
    ],
)
async def test_a_browser_is_not_sent_to_just_any_url(url: str, development: bool, http: httpx2.AsyncClient) -> None:
    odd = DISCORD.configured(client_id="1", client_secret="s", authorize_url=url)
    with pytest.raises(BadProvider, match="authorize_url"):
        Client(odd, http, now_ms, development=development)


async def test_in_development_a_browser_may_come_from_the_next_desk(http: httpx2.AsyncClient) -> None:
    near = DISCORD.configured(client_id="1", client_secret="s", authorize_url="http://192.168.1.7:8700/authorize")
    Client(near, http, now_ms, development=True)


async def test_an_issuer_in_the_clear_is_refused_before_anything_is_sent(http: httpx2.AsyncClient) -> None:
    for issuer in ("http://accounts.example.com", "https://accounts.example.com/?tenant=1"):
        with pytest.raises(BadProvider, match="issuer must be"):
            await Client(oidc(issuer, client_id="1"), http, now_ms).authorize_url(REDIRECT_URI, "s", "c", "n")


async def test_a_plain_provider_reports_its_missing_endpoints(http: httpx2.AsyncClient) -> None:
    with pytest.raises(BadProvider, match="it needs authorize_url, token_url, userinfo_url"):
        Client(Provider(name="mine", client_id="1"), http, now_ms)


@pytest.mark.parametrize("name", ["", "Discord", "a/b", "-a", "a b", "a" * 33, "a\n"])
def test_the_name_of_a_provider_can_stand_in_a_path(name: str) -> None:
    with pytest.raises(BadProvider, match="name"):
        oidc("https://accounts.example.com", name="mine").configured(name=name)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("access_denied", "access_denied"),
        ("server_error", "server_error"),
        ("", None),
        ("Access denied", None),
        ("a1", None),
        ("<script>", None),
        (None, None),
        ("_", None),
        ("x" * 31, None),
    ],
)
def test_an_error_word_is_a_plain_word(text: str | None, word: str | None) -> None:
    assert error_word(text) == word
