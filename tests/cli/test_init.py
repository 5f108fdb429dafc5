"""`keystead init`: what it writes runs, passes its own test, `keystead check` and ruff; it overwrites nothing."""

import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from keystead.cli.project_files import project_files
from keystead.stores.store_urls import SCHEMES
from tests import forking
from tests.cli.program import Program, assert_one_sentence
from tests.cli.test_asking import Terminal
from tests.serving import environment, free_port, wait_until

FILES = {"keys.py", "app.py", "test_app.py", "keystead.toml", "README.md", ".gitignore"}


def run_init(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forking.run(("init", *arguments), folder, environment({}))


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment({"PYTHONDONTWRITEBYTECODE": "1"}), capture_output=True, text=True
    )


@pytest.mark.parametrize("kind", ["script", pytest.param("fastapi", marks=pytest.mark.matrix)])
def test_a_new_project_passes_the_check_its_own_test_and_ruff(tmp_path: Path, kind: str) -> None:
    made = run_init(tmp_path, "my_shop", "--app", kind)
    assert (made.returncode, made.stderr) == (0, "")
    folder = tmp_path / "my_shop"
    assert {path.name for path in folder.iterdir()} == FILES
    assert "# My shop" in (folder / "README.md").read_text()
    checked = forking.run(("check", "keys"), folder, environment({}))
    assert (checked.returncode, checked.stdout) == (0, "1 keyspace, 2 families: no findings\n")
    tested = run_in(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
    ruff = str(Path(sys.executable).with_name("ruff"))
    for arguments in (("check",), ("format", "--check")):
        linted = run_in(folder, ruff, *arguments, "--isolated", "--no-cache", ".")
        assert linted.returncode == 0, linted.stdout


@pytest.mark.matrix
def test_the_two_commands_that_it_prints_work(tmp_path: Path) -> None:
    made = run_init(tmp_path, "notes", "--app", "script")
    run, look = (line.strip() for line in made.stdout.splitlines()[-2:])
    said = run_in(tmp_path, "sh", "-c", run)
    assert said.stdout.startswith("wrote note "), said.stderr
    shown = run_in(tmp_path, "sh", "-c", look)
    assert "AppKeys.note" in shown.stdout
    assert "2 keys in 2 of 2 families" in shown.stdout


@pytest.mark.matrix
def test_the_web_application_answers(tmp_path: Path) -> None:
    import httpx2

    made = run_init(tmp_path, "web", "--app", "fastapi")
    run = made.stdout.splitlines()[-2].strip().partition(" && ")[2]
    port = free_port()
    with subprocess.Popen(
        [*shlex.split(run), "--port", str(port)], cwd=tmp_path / "web", env=environment({}), stderr=subprocess.DEVNULL
    ) as process:
        try:

            def post() -> httpx2.Response | None:
                try:
                    note = {"author": "Ada", "text": "Hello"}
                    return httpx2.post(f"http://127.0.0.1:{port}/notes", json=note, timeout=30)
                except httpx2.TransportError:
                    return None

            wait_until(lambda: post() is not None, "it listens")
            posted = post()
            assert posted is not None
            read = httpx2.get(f"http://127.0.0.1:{port}/notes/{posted.json()['id']}")
            assert read.json() == {"author": "Ada", "text": "Hello", "reads": 1}
            assert httpx2.get(f"http://127.0.0.1:{port}/notes/unknown").status_code == 404
        finally:
            process.terminate()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "keys.py").write_text("mine")
    assert_one_sentence(run_init(tmp_path), 2, "keys.py exists already, and nothing was written")
    assert [path.name for path in tmp_path.iterdir()] == ["keys.py"]
    assert (tmp_path / "keys.py").read_text() == "mine"
    assert_one_sentence(run_init(tmp_path, "keys.py"), 2, "keys.py is not a folder")


def test_it_writes_no_password_and_no_unknown_store(tmp_path: Path) -> None:
    secret = run_init(tmp_path, "--store", "redis://user:s3cret@localhost:6379/0")
    assert_one_sentence(secret, 2, "KEYSTEAD_STORE")
    assert "s3cret" not in secret.stderr
    assert_one_sentence(run_init(tmp_path, "--store", "nothing://x"), 2, "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_hold_the_keys_is_refused_in_one_sentence(tmp_path: Path) -> None:
    assert_one_sentence(run_init(tmp_path, "--store", "memcached://localhost:11211"), 2, "does not fit memcached://")
    assert list(tmp_path.iterdir()) == []


def test_the_read_me_installs_the_driver_of_every_store() -> None:
    for scheme, make in SCHEMES.items():
        needed = re.search(r'from_extra\("(\w+)"', inspect.getsource(make))
        extras = f"keystead[cli,{needed[1]}]" if needed else "keystead[cli]"
        assert extras in project_files("App", False, f"{scheme}://somewhere")["README.md"], scheme


def test_json_names_the_files_and_the_commands(tmp_path: Path) -> None:
    made = json.loads(run_init(tmp_path, "--app", "script", "--store", "redis://localhost:6379/0", "--json").stdout)
    assert set(made["files"]) == FILES
    assert len(made["next"]) == 2
    assert '"redis://localhost:6379/0"' in (tmp_path / "app.py").read_text()
    assert "keystead[cli,redis]" in (tmp_path / "README.md").read_text()


def test_at_a_terminal_it_asks_three_questions(program: Program) -> None:
    terminal = Terminal(program, "init")
    terminal.until("Folder")
    terminal.type("mine\n")
    terminal.until("Application")
    terminal.type("what\n")
    terminal.until("Answer fastapi or script")
    terminal.type("s\n")
    terminal.until("Store")
    terminal.type("\n")
    assert terminal.wait() == 0
    assert "show --keyspace keys" in terminal.said
    assert {path.name for path in (program.folder / "mine").iterdir()} == FILES
    assert "sqlite:///app.db" in (program.folder / "mine" / "keystead.toml").read_text()
