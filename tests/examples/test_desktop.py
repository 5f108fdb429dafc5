"""The desktop example signs in against a real server; the test clicks in place of the browser."""

import importlib.util
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from tests.examples.agreeing_browser import AGREES
from tests.serving import Keystead, environment, keystead_serving, program

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


CLICKS = """
import time
from desktop_window import Window

window = Window()

def until(text):
    while text not in window.said.get():
        window.update()
        time.sleep(0.01)
    window.update()
    print(window.said.get())

def click(name):
    while window.buttons[name].instate(["disabled"]):
        window.update()
    window.buttons[name].invoke()

until("not signed in")
click("Sign in")
until("tokens this month")
click("Sign out")
until("Signed out")
click("Refresh")
until("not signed in")
"""


@contextmanager
def display() -> Iterator[str]:
    """A screen in memory."""
    reads, writes = os.pipe()
    command = [program("Xvfb"), "-displayfd", str(writes), "-nolisten", "tcp", "-screen", "0", "800x600x24"]
    server = subprocess.Popen(command, pass_fds=[writes], stderr=subprocess.DEVNULL)
    os.close(writes)
    try:
        with os.fdopen(reads) as numbers:
            yield f":{int(numbers.readline())}"
    finally:
        server.terminate()
        server.wait()


def test_the_window_signs_in_shows_the_quota_and_signs_out(server: Keystead, tmp_path: Path) -> None:
    (tmp_path / "agrees.py").write_text(AGREES)
    own = {
        "APP_SERVER": server.url,
        "APP_TOKEN_FILE": str(tmp_path / "token"),
        "BROWSER": f"{sys.executable} {tmp_path}/agrees.py %s &",
        "PYTHONPATH": str(EXAMPLE.parent),
    }
    with display() as screen:
        clicked = subprocess.run(
            [sys.executable, "-c", CLICKS],
            env=environment({**own, "DISPLAY": screen}),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    assert clicked.returncode == 0, clicked.stderr
    assert len([line for line in clicked.stdout.splitlines() if "tokens this month" in line]) == 1
    assert clicked.stdout.splitlines()[-2:] == ["Signed out.", "You are not signed in."]


def test_a_second_device_ends_the_session_of_the_first(
    server: Keystead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (_device(server, tmp_path / name, monkeypatch) for name in ("first", "second"))
    assert run(first, "sign-in", monkeypatch) == 0
    assert run(second, "sign-in", monkeypatch) == 0
    assert run(first, "status", monkeypatch) == 1
    assert run(second, "status", monkeypatch) == 0
