"""A new user logs in on a fresh server without an account, in development only."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from keystead.server import Settings, create_app
from tests.serving import keystead_serving

SEAL_KEYS = "2026:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"


def test_a_newcomer_logs_in_on_a_fresh_server(tmp_path: Path) -> None:
    with keystead_serving(tmp_path) as server, httpx2.Client(base_url=server.url) as browser:
        start = browser.get("/api/auth/demo/start?returnTo=/login", headers={"accept": "text/html"})
        asked = urlsplit(start.headers["location"])
        form = {**dict(parse_qsl(asked.query)), "name": "Ada"}
        agreed = browser.post(asked.path, data=form, headers={"origin": server.url})
        back = urlsplit(agreed.headers["location"])
        done = browser.get(f"{back.path}?{back.query}", headers={"accept": "text/html"})
        assert (done.status_code, "url=/login" in done.text) == (200, True)
        assert browser.get("/api/auth/me").json()["user"]["name"] == "Ada"
        assert 'keystead_kit_events_total{event="login",kit="login",outcome="succeeded"} 1.0' in (
            browser.get("/metrics").text
        )


@pytest.mark.matrix
def test_a_login_that_begins_on_localhost_continues_on_the_site_origin(tmp_path: Path) -> None:
    with keystead_serving(tmp_path) as server:
        moved = httpx2.get(f"http://localhost:{server.port}/login?x=1")
        assert (moved.status_code, moved.headers["location"]) == (303, f"{server.url}/login?x=1")
        stays = httpx2.get(f"{server.url}/login", headers={"host": "evil.example"})
        assert stays.status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "production", "public_url": "https://example.com"},
        {"host": "0.0.0.0"},
        {"public_url": "https://shop.example.com"},
        {"public_url": "http://127.0.0.1.example.com"},
    ],
    ids=["production", "open to other machines", "behind a proxy", "behind a proxy of a confusing name"],
)
async def test_the_demo_provider_is_off_where_others_can_reach_it(settings: dict[str, str]) -> None:
    app = create_app(
        Settings.model_validate({"kits": ["login"], "store": "memory://", "seal_keys": SEAL_KEYS, **settings})
    )
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        assert (await client.get("/demo/authorize")).status_code == 404
        assert (await client.get("/api/auth/demo/start?format=json")).json()["code"] == "UNKNOWN_PROVIDER"
        assert (await client.get("/api/auth/providers")).json()["providers"] == []


def test_production_does_not_import_the_demo() -> None:
    program = """
import sys
from keystead.server import Settings
from keystead.server.app import create_app

def imported(**settings):
    create_app(Settings(kits=["login"], store="memory://", seal_keys=sys.argv[1], **settings))
    return "keystead.demo" in sys.modules

print(imported(mode="production", public_url="https://example.com"), imported())
"""
    done = subprocess.run([sys.executable, "-c", program, SEAL_KEYS], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False True\n", "")


@pytest.mark.parametrize("public_url", ["http://localhost:8700", "https://app.localhost", "http://[::1]:8700"])
async def test_a_public_url_of_this_machine_keeps_the_demo_provider(public_url: str) -> None:
    app = create_app(Settings(kits=["login"], store="memory://", seal_keys=SEAL_KEYS, public_url=public_url))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=public_url) as client,
    ):
        assert (await client.get("/api/auth/providers")).json()["providers"] == ["demo"]
