"""The desktop example signs in against a real server; the test clicks in place of the browser."""

import importlib.util
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from tests.serving import Keystead, keystead_serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "desktop" / "desktop_app.py"
pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("membership"), None, "--kits", "membership") as running:
        yield running


@pytest.fixture
def device(server: Keystead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _device(server, tmp_path / "token", monkeypatch)


def _device(server: Keystead, token_file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, on a device of its own, with a browser that agrees to everything."""
    monkeypatch.setenv("APP_SERVER", server.url)
    monkeypatch.setenv("APP_TOKEN_FILE", str(token_file))
    spec = importlib.util.spec_from_file_location("desktop_app", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    monkeypatch.setattr(program.webbrowser, "open", _agree)
    return program


def _agree(url: str) -> None:
    def click() -> None:
        asked = urlsplit(url)
        with httpx2.Client(trust_env=False, timeout=300) as browser:
            forged = dict(parse_qsl(asked.query))["redirect_uri"] + "?code=stolen&state=guessed"
            assert browser.get(forged).status_code == 400
            form = {**dict(parse_qsl(asked.query)), "person": "demo-ada"}
            agreed = browser.post(f"{asked.scheme}://{asked.netloc}{asked.path}", data=form)
            assert browser.get(agreed.headers["location"]).status_code == 200

    Thread(target=click).start()


def run(program: ModuleType, command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["desktop_app.py", command])
    return int(program.main())


def test_a_patron_signs_in_sees_the_quota_and_signs_out(
    device: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(device, "status", monkeypatch) == 1
    assert "You are not signed in" in capsys.readouterr().err
    assert run(device, "sign-in", monkeypatch) == 0
    assert "tokens this month" in capsys.readouterr().out
    assert stat.S_IMODE(device.TOKEN_FILE.stat().st_mode) == 0o600
    assert run(device, "status", monkeypatch) == 0
    assert run(device, "sign-out", monkeypatch) == 0
    assert not device.TOKEN_FILE.exists()


def test_a_second_device_ends_the_session_of_the_first(
    server: Keystead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (_device(server, tmp_path / name, monkeypatch) for name in ("first", "second"))
    assert run(first, "sign-in", monkeypatch) == 0
    assert run(second, "sign-in", monkeypatch) == 0
    assert run(first, "status", monkeypatch) == 1
    assert run(second, "status", monkeypatch) == 0
