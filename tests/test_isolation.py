"""No test sees the checkout's own settings and databases, the environment or the home folder of who runs it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from keystead.server import Settings
from tests.conftest import FIXED, PASSED_ON
from tests.test_distribution import clean_copy

ROOT = Path(__file__).parents[1]
SETTING = {"KEYSTEAD_STORE": "redis://nowhere.invalid", "DISCORD_CLIENT_ID": "1", "HTTPS_PROXY": "http://127.0.0.1:9"}
LEFT_BY_SERVE = ("keystead.toml", "keystead.secrets.toml", "keystead.db", "keystead.tables.db")
IN_THE_CHECKOUT = re.compile(r"(cwd=|chdir\()\(?(ROOT|CHECKOUT|REQUESTS|Path\(__file__)")
READ_SETTINGS = (
    "tests/kits/teamwork/test_page.py::test_production_requires_seal_keys_to_derive_signing_keys",
    "tests/server/test_settings.py::test_defaults_without_any_settings",
    "tests/test_project.py::test_the_reference_pages_are_what_the_code_says",
    "tests/test_project.py::test_the_kits_have_no_findings",
    "tests/integrations/test_applications.py::test_the_doctor_finds_nothing_wrong_with_the_keys_of_a_live_application",
)
INTERRUPTS = (
    "tests/stores/sqlite/test_exit.py::test_a_program_that_is_interrupted_while_it_writes_ends_and_has_lost_nothing"
)
CARELESS = """
import subprocess, sys
from pathlib import Path
from keystead.server import Settings

ROOT = Path(__file__).parents[1]


def test_careless_command():
    program = Path(sys.executable).with_name("keystead")
    assert subprocess.run([program, "doctor"], cwd=ROOT, capture_output=True).returncode == 0


def test_careless_settings(monkeypatch):
    monkeypatch.chdir(ROOT)
    Settings()
"""


def test_the_working_directory_is_empty_and_outside_the_checkout() -> None:
    assert list(Path.cwd().iterdir()) == []
    assert not Path.cwd().is_relative_to(ROOT)


def test_the_home_folder_is_not_that_of_the_person_who_runs_the_tests() -> None:
    assert Path.home().name.startswith("home")
    assert not ROOT.is_relative_to(Path.home())
    assert not Path(sys.prefix).is_relative_to(Path.home())


def test_the_environment_is_bare() -> None:
    allowed = {*FIXED, "HOME"}
    assert [name for name in os.environ if not PASSED_ON.fullmatch(name) and name not in allowed] == []
    assert Settings().store == "sqlite:///keystead.db"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with files of `make serve`, each of them broken: what reads one of them fails."""
    folder = clean_copy(tmp_path_factory.mktemp("planted") / "clone")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    for name in LEFT_BY_SERVE:
        (folder / name).write_text("not what it should be")
    return folder


def run_tests(folder: Path, *options: str, before: Callable[[], None] | None = None) -> str:
    """Run tests of this copy, in it, as a person with settings of their own. Returns what was printed."""
    environment = {"HOME": str(folder), "PYTHONPATH": str(folder / "src"), **SETTING}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, **environment},
        preexec_fn=before,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "passed" in done.stdout, done.stdout + done.stderr
    return done.stdout


def ignored(signum: signal.Signals) -> None:
    signal.signal(signum, signal.SIG_IGN)


def failed(output: str) -> list[str]:
    return re.findall(r"^(?:FAILED|ERROR) \S+?::(\w+)", output, re.MULTILINE)


def test_what_make_serve_left_behind_and_the_persons_own_settings_change_no_result(planted: Path) -> None:
    """The tests that read settings pass, and tests that read them from the checkout are noticed.

    They run as under `nohup`, with SIGINT ignored; one of them sends it to a program.
    """
    (planted / "tests" / "test_careless.py").write_text(CARELESS)
    itself = [f"tests/test_isolation.py::{name}" for name in globals() if name.startswith("test_the_")]
    chosen = [*itself, *READ_SETTINGS, INTERRUPTS]
    output = run_tests(planted, "tests/test_careless.py", *chosen, before=lambda: ignored(signal.SIGINT))
    assert failed(output) == ["test_careless_command", "test_careless_settings"], output
    assert f"{len(chosen)} passed" in output


@pytest.mark.matrix
def test_no_test_that_starts_a_program_in_the_checkout_reads_what_lies_there(planted: Path) -> None:
    starting = [path for path in (ROOT / "tests").rglob("*.py") if IN_THE_CHECKOUT.search(path.read_text())]
    chosen = {path.relative_to(ROOT) for path in starting if path.name.startswith("test_")}
    assert len(chosen) > 10
    assert failed(run_tests(planted, "-m", "not matrix", *map(str, sorted(chosen)))) == []
