"""Compatibility with the running system: provider routes, `/health`, and names of settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keystead.kits.membership import KIT, MembershipSettings
from keystead.kits.membership.service import missing
from keystead.parts.jwt import AccessTokens, SigningKeys
from keystead.server import Settings
from keystead.server.settings_errors import WrongSettings
from tests.kits.membership.conftest import BASE, REDIRECT, FakePatreon, on_servers, rows
from tests.kits.membership.visiting import Visit, bearer, visiting
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock

SECRET = "a secret of the running system, long enough"


@pytest.fixture
def clock() -> Clock:
    return Clock(int(datetime(2026, 9, 21, tzinfo=UTC).timestamp()) * 1000)


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path) -> AsyncIterator[Visit]:
    settings = {"store": urls["default"], "database": f"sqlite:///{tmp_path}/rows.db"}
    async with visiting(patreon, now_ms=clock, own={"limits": {"sign_in": 0}}, **settings) as opened:
        yield opened


@on_servers
async def test_health_answers_every_method_without_authentication(visit: Visit) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        told = await visit.http.request(method, "/health")
        assert (told.status_code, told.json()) == (
            200,
            {"status": "ok", "timestamp": "2026-09-21T00:00:00.000Z", "environment": "development"},
        )
    assert (await visit.http.head("/health")).status_code == 200


@on_servers
async def test_the_providers_own_tokens_are_returned_without_a_session(visit: Visit) -> None:
    store = visit.app.state.stores["default"]
    sent = {"code": "code-123", "redirect_uri": REDIRECT}
    told = await visit.http.post("/oauth/token", json=sent)
    assert told.json() == {
        "access_token": "access-123-1",
        "refresh_token": "refresh-123",
        "token_type": "Bearer",
        "expires_in": 2_592_000,
    }
    assert told.headers["cache-control"] == "no-store"
    renewed = await visit.http.post("/oauth/refresh", json={"refresh_token": "refresh-123"})
    assert renewed.json()["access_token"] == "access-123-2"
    assert not [key for key in await rows(store) if not key.startswith(("ratelimit:", "schedule:"))]


@on_servers
async def test_refusals_of_the_provider_have_our_own_message(visit: Visit, patreon: FakePatreon) -> None:
    for path, sent in (
        ("/oauth/token", {"code": "spent", "redirect_uri": REDIRECT}),
        ("/oauth/refresh", {"refresh_token": "spent"}),
    ):
        told = await visit.http.post(path, json=sent)
        assert (told.status_code, told.json()["error_code"]) == (401, "TOKEN_EXCHANGE_FAILED")
    other = await visit.http.post("/oauth/token", json={"code": "code-123", "redirect_uri": "https://evil.example"})
    assert (other.status_code, other.json()["error_code"]) == (400, "INVALID_REDIRECT_URI")
    patreon.server.answers["/token"] = answer({}, 500)
    away = await visit.http.post("/oauth/refresh", json={"refresh_token": "refresh-123"})
    assert (away.status_code, away.json()["error_code"], away.headers["retry-after"]) == (
        503,
        "PROVIDER_UNAVAILABLE",
        "5",
    )
    patreon.server.answers["/token"] = answer({"no": "tokens"})
    nonsense = await visit.http.post("/oauth/refresh", json={"refresh_token": "refresh-123"})
    assert nonsense.status_code == 503


@on_servers
async def test_the_membership_of_a_provider_token_is_returned(visit: Visit, patreon: FakePatreon) -> None:
    told = await visit.http.get("/api/membership", headers=bearer("access-123-1"))
    assert told.json() == {
        "user_id": "123",
        "email": "ann@example.com",
        "full_name": "Ann",
        "is_active_patron": True,
        "patron_status": "active_patron",
        "entitled_amount_cents": 300,
        "tier": {"id": "t1"},
    }
    patreon.cents = 0
    assert (await visit.http.get("/api/membership", headers=bearer("access-123-1"))).json()["tier"] is None
    for token in ("unknown", "x" * 4_000, "a\u00e9b", "a b", '"'):
        refused = await visit.http.get(
            "/api/membership", headers={b"authorization": f"Bearer {token}".encode("latin-1")}
        )
        assert (refused.status_code, refused.json()["error_code"]) == (401, "PATREON_TOKEN_EXPIRED"), token
        assert refused.headers["www-authenticate"].startswith("Bearer ")
    assert (await visit.http.get("/api/membership")).json()["error_code"] == "MISSING_AUTH"
    patreon.says(answer({}, 503))
    away = await visit.http.get("/api/membership", headers=bearer("access-123-1"))
    assert (away.status_code, away.json()["error_code"]) == (503, "PROVIDER_UNAVAILABLE")


# --- names of settings -----------------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("empty")
def test_access_tokens_signed_with_jwt_secret_verify_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JWT_SECRET", SECRET)
    found = Settings().of(KIT)
    signing = found.signing_keys
    assert signing is not None
    issued = AccessTokens(signing, issuer=BASE, audience="desktop").issue("42").token
    assert SigningKeys({"any": ("HS256", SECRET.encode())}).current.verify(issued) is not None
    assert signing.jwks() == {"keys": []}
    assert SECRET not in repr(found) + repr(signing)


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "JWT_SECRET",
            "too short, and it is shown nowhere"[:31],
            "JWT_SECRET: a signing secret needs at least 32 bytes",
        ),
        ("SUPABASE_URL", "https://x.supabase.co", "SUPABASE_URL: Supabase is not supported"),
        (
            "SUPABASE_SERVICE_KEY",
            "service key that is shown nowhere",
            "SUPABASE_SERVICE_KEY: Supabase is not supported",
        ),
    ],
)
def test_an_unusable_name_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(WrongSettings) as wrong:
        Settings().of(KIT)
    assert str(wrong.value).startswith(said)
    assert value not in str(wrong.value)


@pytest.mark.usefixtures("empty")
def test_jwt_keys_and_jwt_secret_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JWT_SECRET", SECRET)
    monkeypatch.setenv("KEYSTEAD_MEMBERSHIP__JWT_KEYS", f"2026a:{SigningKeys.new_key()}")
    with pytest.raises(WrongSettings, match="exclude each other"):
        Settings().of(KIT)


@pytest.mark.usefixtures("empty")
def test_gemini_api_key_sets_translate_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "gemini")
    assert Settings().of(KIT).translate_key.get_secret_value() == "gemini"


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://translate.example/v1", False),
        ("http://127.0.0.1:9000/v1", False),
        ("http://translate.example/v1", True),
        (None, False),
    ],
)
def test_production_does_not_send_translate_key_over_plain_http(url: str | None, is_refused: bool) -> None:
    found = missing(MembershipSettings(translate_url=url, translate_key="key"))
    assert ("membership.translate_url" in " ".join(found)) is is_refused
    assert "membership.translate_url" not in " ".join(missing(MembershipSettings(translate_url=url)))


@on_servers
async def test_access_tokens_signed_with_jwt_secret_are_accepted(
    patreon: FakePatreon, clock: Clock, urls: dict[str, str]
) -> None:
    settings = {"store": urls["default"], "database": "memory://"}
    async with visiting(patreon, now_ms=clock, own={"jwt_secret": SECRET}, **settings) as visit:
        pair = await visit.pair(await visit.sign_in())
        assert (await visit.quota(pair["accessToken"])).status_code == 200
