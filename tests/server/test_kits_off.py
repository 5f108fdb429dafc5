"""Production starts with the configured kits; the others are off, and listed with the settings that turn them on."""

import re
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from keystead.kits.kit import Kit
from keystead.server import Settings, create_app
from keystead.server.kit_loading import load_kits, require_settings, split_kits
from keystead.server.secrets_file import new_seal_key
from keystead.server.settings_errors import MissingSettings, WrongSettings
from tests.every_store import on_urls, redis_server, urls
from tests.server.notes import KIT
from tests.server.test_serve import run_keystead
from tests.serving import keystead_serving

__all__ = ["redis_server", "urls"]

PRODUCTION = ("--production", "--public-url", "http://127.0.0.1:1")
DEMANDING = {"login": "DISCORD_CLIENT_ID", "sharing": "RECEIVE_ISSUE_KEY", "membership": "PATREON_CLIENT_ID"}
NOTES = replace(KIT, turned_on_by="NOTES_API_KEY")  # what a kit of somebody else's writes
OTHER = replace(KIT, name="other", missing=lambda settings: ())


def names(kits: list[Kit]) -> list[str]:
    return [kit.name for kit in kits]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@on_urls("sqlite", "redis")
def test_production_starts_without_kit_settings_and_names_the_kits_that_are_off(
    urls: dict[str, str], tmp_path: Path
) -> None:
    settings = {
        "KEYSTEAD_SEAL_KEYS": new_seal_key(),
        "KEYSTEAD_DATABASE": "sqlite:///tables.db",
        "KEYSTEAD_STORES__DURABLE": "sqlite:///durable.db",  # the Redis of the tests keeps nothing when it stops
    }
    with keystead_serving(tmp_path, urls["default"], *PRODUCTION, **settings) as server:
        ready = httpx2.get(f"{server.url}/readyz", timeout=300)
        page = httpx2.get(server.url, timeout=300, headers={"accept": "text/html"}).text
        login = httpx2.get(f"{server.url}/api/auth/me", timeout=300)
        counter = httpx2.get(f"{server.url}/api/visit?action=display&id=example-a1b2c3d4&format=text", timeout=300)
        assert server.stop() == 0
    off, running = server.said.splitlines()[:2]
    assert running.startswith("Keystead is running")
    assert off.startswith("Off until configured: login (set DISCORD_CLIENT_ID and DISCORD_CLIENT_SECRET, or ")
    assert ready.status_code == 200
    assert ready.json()["kits"] == ["teamwork", "widgets", "sessiondata"]
    assert ready.json()["off"].keys() == DEMANDING.keys()
    for name, setting in DEMANDING.items():
        assert f"{name} (set " in off
        assert setting in off
        assert setting in ready.json()["off"][name]
        assert re.search(
            rf"<strong>{name}</strong>.*{re.escape(ready.json()['off'][name])}", re.sub("</?code>", "", page)
        )
        assert f'id="kit-{name}"' not in page
    assert login.status_code == 404
    assert counter.text == "0"


def test_kits_that_only_lack_a_database_are_off(folder: Path) -> None:
    settings = Settings(mode="production", public_url="https://example.com", store="redis://h", kits="teamwork,widgets")
    running, off = split_kits(settings, load_kits(settings))
    assert (names(running), off) == (["widgets"], {"teamwork": "database"})
    (folder / "keystead.toml").write_text('[teamwork]\nzone = "Asia/Seoul"\n')
    settings = Settings(mode="production", public_url="https://example.com", store="redis://h", kits="teamwork,widgets")
    running, off = split_kits(settings, load_kits(settings))
    assert off == {}
    with pytest.raises(MissingSettings, match="database: for the tables of teamwork"):
        require_settings(settings, running)


def test_a_configured_kit_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(mode="production")
    assert split_kits(settings, [NOTES, OTHER])[1] == {"notes": "NOTES_API_KEY"}
    monkeypatch.setenv("NOTES_API_KEY", "x")
    running, off = split_kits(settings, [NOTES, OTHER])
    assert (names(running), off) == (["notes", "other"], {})


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ('[sharing]\nmax_upload = "5MB"\n', ["sharing.issue_key"]),
        ("[login]\ncap = 1\n", ["login"]),
        (
            '[membership]\nclient_id = "x"\n',
            ["membership.client_secret", "membership.webhook_secret", "membership.redirect_uris"],
        ),
    ],
)
def test_a_partly_configured_kit_stops_startup_with_the_missing_settings(
    folder: Path, text: str, lacking: list[str]
) -> None:
    (folder / "keystead.toml").write_text(text)
    settings = Settings(mode="production", public_url="https://example.com", seal_keys=new_seal_key())
    running, off = split_kits(settings, load_kits(settings))
    assert len(off) == 2
    with pytest.raises(MissingSettings) as raised:
        require_settings(settings, running)
    assert [one.partition(":")[0] for one in raised.value.sentences] == lacking


def test_serve_lists_the_missing_settings_and_exits(tmp_path: Path) -> None:
    settings = {"KEYSTEAD_SEAL_KEYS": new_seal_key(), "PATREON_CLIENT_ID": "x", "KEYSTEAD_KITS": "membership,widgets"}
    result = run_keystead(tmp_path, "serve", *PRODUCTION, **settings)
    assert result.returncode == 2
    first, *rest = result.stderr.splitlines()
    assert first == "keystead: production mode needs these settings:"
    assert len(rest) == 3


def test_a_partly_configured_provider_stops_startup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCORD_CLIENT_SECRET", "x")
    settings = Settings(mode="production")
    with pytest.raises(WrongSettings, match="discord needs client_id"):
        split_kits(settings, load_kits(settings))


def test_if_no_named_kit_is_configured_the_missing_settings_are_listed() -> None:
    settings = Settings(mode="production", public_url="https://example.com", kits="sharing")
    running, off = split_kits(settings, load_kits(settings))
    assert (names(running), off) == (["sharing"], {})
    with pytest.raises(MissingSettings, match=r"sharing\.issue_key"):
        require_settings(settings, running)


def test_a_kit_can_define_when_it_is_configured(folder: Path) -> None:
    (folder / "keystead.toml").write_text("[notes]\nlongest = 5\n")
    settings = Settings(mode="production")
    strict = replace(NOTES, is_configured=lambda own: own.api_key is not None)
    assert names(split_kits(settings, [strict, OTHER])[0]) == ["other"]
    assert names(split_kits(settings, [NOTES, OTHER])[0]) == ["notes", "other"]


def test_a_kit_without_turned_on_by_is_never_off() -> None:
    running, off = split_kits(Settings(mode="production"), [KIT, OTHER])
    assert (names(running), off) == (["notes", "other"], {})


@pytest.mark.anyio
async def test_development_runs_every_kit(folder: Path) -> None:
    app = create_app(Settings(store="memory://", seal_keys=new_seal_key()))
    assert app.state.off == {}
    assert len(app.state.running) == 7  # with the console
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
            ready, page = await client.get("/readyz"), await client.get("/")
    assert "off" not in ready.json()
    assert "Off until configured" not in page.text
