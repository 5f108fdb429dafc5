"""The page of the kit, and the demo team (development only)."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from keystead.kits.kit import Kit
from keystead.kits.language import language_of
from keystead.kits.teamwork import KIT, UserSession, teamwork_kit
from keystead.server import Settings, create_app
from keystead.server.kit_loading import require_settings
from keystead.server.settings_errors import MissingSettings
from tests.parts.sessions.conftest import Clock

BASE = "http://127.0.0.1:8714"
RING = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
ADA, GRACE = 900_000_001, 900_000_002
DEMO = "/api/teamwork/demo"
STATIC = Path(__file__).parents[3] / "src/keystead/kits/teamwork/assets"


async def nobody(user: int) -> UserSession | None:
    return None


@asynccontextmanager
async def visiting(kit: Kit = KIT, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    told = {"store": "memory://", "public_url": BASE, "seal_keys": RING, "database": "memory://", **settings}
    app = create_app(Settings(**told), [kit], now_ms=Clock(4_000_017_600_000))  # 2096-10-02 at noon
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url=settings.get("public_url", BASE)) as client:
            yield client


async def signed_in(client: httpx2.AsyncClient, person: int) -> dict[str, str]:
    answer = await client.post(f"{DEMO}/sign-in", json={"person": person})
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return {"authorization": f"Bearer {answer.json()['token']}"}


async def test_the_page_runs_no_script_but_its_own_and_loads_nothing_from_elsewhere() -> None:
    async with visiting() as client:
        page = await client.get("/teamwork")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert re.findall(r"<script(?! type=\"module\" src=\"/assets/)|\son\w+=|\sstyle=", page.text) == []
        for path in re.findall(r"(?:src|href)=\"(/(?:static|assets)/[^\"]+)\"", page.text):
            assert (await client.get(path)).status_code == 200, path
    for script in STATIC.glob("teamwork*"):
        assert "://" not in script.read_text(), script


@pytest.mark.parametrize(
    ("accept", "language"),
    [
        ("ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        ("ja", "ja"),
        ("de-DE, ja;q=0.4, en;q=0.7", "en"),
        ("de, KO;q=0.1", "ko"),
        ("ko;q=0, ja;q=nonsense", "en"),
        ("fr", "en"),
        ("", "en"),
    ],
)
async def test_the_page_is_in_the_language_of_the_browser(accept: str, language: str) -> None:
    assert language_of(accept) == language
    if accept.startswith("ko-KR"):
        async with visiting() as client:
            page = (await client.get("/teamwork", headers={"accept-language": accept})).text
            assert '<html lang="ko">' in page
            assert "<title>팀워크 · Keystead</title>" in page


async def test_in_development_a_demo_person_signs_in_and_is_notified() -> None:
    async with visiting() as client:
        assert "Ada Lovelace" in unescape((await client.get("/teamwork")).text)
        ada, grace = await signed_in(client, ADA), await signed_in(client, GRACE)
        assert (await client.get("/api/me", headers=ada)).json()["role"] == "PM"
        for what in ("assigned", "status-changed", "mentioned", "deployment-failed"):
            told = await client.post(f"{DEMO}/events", json={"what": what, "language": "ko"}, headers=ada)
            assert told.json() == {"ok": True, "notices": 1}
        await client.post(f"{DEMO}/events", json={"what": "mentioned", "to": GRACE}, headers=ada)
        listed = (await client.get("/api/notifications?language=ko", headers=ada)).json()["items"]
        assert [one["type"] for one in listed] == ["배포실패", "멘션", "상태변경", "담당자배정"]
        assert listed[0]["message"] == "이달의 릴리스: 진행중 → 실패"
        assert listed[3]["title"].startswith("Grace Hopper님이 회원님을 WR-")
        assert (await client.get("/api/notifications", headers=grace)).json()["total"] == 1
        filled = await client.post(f"{DEMO}/deadlines", json={}, headers=ada)
        assert filled.json()["notices"] == 4  # overdue, due today, and two due in three days
        due = (await client.get("/api/deadlines", headers=grace)).json()["items"]
        assert [one["days"] for one in due] == sorted(one["days"] for one in due)
        assert len(due) == 8


async def test_there_is_no_demo_team_where_others_reach_the_server(tmp_path: Path) -> None:
    """In production, behind a public address, and with an application's own users."""
    elsewhere: list[dict[str, Any]] = [
        {"mode": "production", "public_url": "https://office.example.com"},
        {"public_url": "https://office.example.com"},
        {"kit": teamwork_kit(load=nobody)},
    ]
    for settings in elsewhere:
        async with visiting(store=f"sqlite:///{tmp_path}/office.db", **settings) as client:
            page = unescape((await client.get("/teamwork")).text)
            assert 'data-people="[]"' in page
            assert 'id="token"' in page
            assert "Ada Lovelace" not in page
            for name, body in (("sign-in", {"person": ADA}), ("events", {"what": "assigned"}), ("deadlines", {})):
                answer = await client.post(f"{DEMO}/{name}", json=body)
                assert answer.status_code in (401, 404), (settings, name)
            there = await client.post(f"{DEMO}/sign-in", json={"person": ADA})
            nowhere = await client.post(f"{DEMO}/sign-out", json={"person": ADA})
            assert (there.status_code, there.json()) == (nowhere.status_code, nowhere.json())


def test_production_requires_seal_keys_to_derive_signing_keys() -> None:
    settings = Settings(mode="production", store="sqlite:///office.db", public_url="https://office.example.com")
    with pytest.raises(MissingSettings, match=r"seal_keys: .*keystead secrets new"):
        require_settings(settings, [KIT])
    require_settings(settings.model_copy(update={"seal_keys": SecretStr(RING)}), [KIT])


async def test_a_cross_site_page_cannot_sign_in() -> None:
    async with visiting() as client:
        foreign = {"origin": "https://evil.example"}
        answer = await client.post(f"{DEMO}/sign-in", json={"person": ADA}, headers=foreign)
        assert answer.status_code == 403
        assert (await client.post(f"{DEMO}/sign-in", json={"person": 1})).status_code == 404


async def test_a_visitor_by_another_host_name_is_redirected_to_the_public_one() -> None:
    async with visiting() as client:
        answer = await client.get("http://localhost:8714/teamwork")
        assert (answer.status_code, answer.headers["location"]) == (303, f"{BASE}/teamwork")
