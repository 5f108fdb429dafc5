"""The secrets file: private, created once, written atomically."""

import os
import stat
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keystead import KeyRing
from keystead.parts.jwt import SigningKeys
from keystead.server.secrets_file import add_seal_key, new_seal_key
from keystead.server.settings_errors import SECRETS_FILE
from tests import forking
from tests.server.test_serve import run_keystead
from tests.serving import environment, free_port, keystead_serving, wait_until

ROOT = Path(__file__).parents[2]
NOTES = ("--kits", "tests.server.notes:KIT")


def test_a_new_key_is_one_that_seals() -> None:
    ring = KeyRing.from_text(f"{new_seal_key()},{new_seal_key()}")
    assert ring.open(ring.seal(b"x", b"about"), b"about") == b"x"


def test_the_secrets_file_is_private_and_created_once(tmp_path: Path) -> None:
    path = tmp_path / SECRETS_FILE
    assert add_seal_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = path.read_text()
    KeyRing.from_text(tomllib.loads(first)["seal_keys"])
    assert not add_seal_key(path)
    assert path.read_text() == first
    assert list(tmp_path.iterdir()) == [path]


def test_other_content_of_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / SECRETS_FILE
    path.write_text('[notes]\napi_key = "x"\n')
    assert add_seal_key(path)
    held = tomllib.loads(path.read_text())
    assert held["notes"] == {"api_key": "x"}
    assert "seal_keys" in held
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_many_concurrent_starts_one_creates_the_key(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / str(number) / SECRETS_FILE
        path.parent.mkdir()
        if number % 2:
            path.write_text('[notes]\napi_key = "x"\n')
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(lambda _, path=path: add_seal_key(path), range(8))) == 1
        assert list(path.parent.iterdir()) == [path]
        tomllib.loads(path.read_text())


def test_development_creates_a_key_once_with_a_message(tmp_path: Path) -> None:
    with keystead_serving(tmp_path, None, *NOTES, PYTHONPATH=str(ROOT)) as server:
        first, second = server.said.splitlines()
        assert server.stop() == 0
    assert first.startswith(f"Created a key that seals secrets, in {SECRETS_FILE}: keep it private")
    assert second.startswith("Keystead is running")
    made = (tmp_path / SECRETS_FILE).read_text()
    with keystead_serving(tmp_path, None, *NOTES, PYTHONPATH=str(ROOT)) as server:
        assert server.said.startswith("Keystead is running")
    assert (tmp_path / SECRETS_FILE).read_text() == made


def test_two_concurrent_starts_share_one_key(tmp_path: Path) -> None:
    processes = []
    try:
        for number in range(2):
            with (tmp_path / f"output{number}.txt").open("w") as stream:
                asked = ("serve", "--port", str(free_port()), *NOTES)
                env = environment({"PYTHONPATH": str(ROOT)})
                processes.append(forking.start(asked, tmp_path, env, stream, stream))
        said = [tmp_path / f"output{number}.txt" for number in range(2)]
        wait_until(lambda: all("is running" in one.read_text() for one in said), "both run", 60)
        assert sum("Created a key" in one.read_text() for one in said) == 1
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def test_production_refuses_to_start_and_lists_the_missing_settings(tmp_path: Path) -> None:
    result = run_keystead(tmp_path, "serve", "--production", *NOTES, PYTHONPATH=str(ROOT))
    assert result.returncode == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == "keystead: production mode needs these settings:"
    assert [line.strip("- ").partition(":")[0] for line in lines[1:]] == ["seal_keys", "public_url", "notes.api_key"]
    assert not (tmp_path / SECRETS_FILE).exists()


def test_production_starts_with_settings_from_the_environment(tmp_path: Path) -> None:
    printed = run_keystead(tmp_path, "secrets", "new").stdout.strip()
    name, _, key = printed.partition("=")
    assert name == "KEYSTEAD_SEAL_KEYS"
    settings = {"KEYSTEAD_SEAL_KEYS": key, "NOTES_API_KEY": "x", "PYTHONPATH": str(ROOT)}
    arguments = ("--production", "--public-url", "https://example.com", *NOTES)
    with keystead_serving(tmp_path, None, *arguments, **settings) as server:
        assert server.said == (
            f"Keystead is running: open https://example.com (listening on {server.url}; Ctrl-C stops it)\n"
        )
    assert not (tmp_path / SECRETS_FILE).exists()


def test_the_printed_toml_line_is_valid(tmp_path: Path) -> None:
    printed = run_keystead(tmp_path, "secrets", "new", "--toml").stdout
    KeyRing.from_text(tomllib.loads(printed)["seal_keys"])
    (tmp_path / SECRETS_FILE).write_text(printed)
    with keystead_serving(tmp_path, None, *NOTES, PYTHONPATH=str(ROOT)) as server:
        assert f"others can read {SECRETS_FILE}; run chmod 600 {SECRETS_FILE}" in server.said
        assert "Created a key" not in server.said


@pytest.mark.parametrize("algorithm", ["EdDSA", "RS256", "HS256"])
def test_the_printed_signing_key_is_valid(tmp_path: Path, algorithm: str) -> None:
    printed = run_keystead(tmp_path, "secrets", "signing", "--algorithm", algorithm).stdout
    assert SigningKeys.from_text(printed).current.algorithm == algorithm


def test_development_creates_a_private_database(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with keystead_serving(tmp_path, None, *NOTES, PYTHONPATH=str(ROOT)) as server:
            assert server.stop() == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keystead.db").stat().st_mode) == 0o600


def test_the_secrets_file_is_not_committed() -> None:
    ignored = subprocess.run(["git", "check-ignore", SECRETS_FILE], cwd=ROOT, capture_output=True, check=False)
    assert ignored.returncode == 0
