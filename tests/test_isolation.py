"""No test sees the checkout's own settings and databases, the environment or the home folder of who runs it."""

import os
import subprocess
import sys
from pathlib import Path

from keystead.server import Settings
from tests.conftest import FIXED, PASSED_ON

ROOT = Path(__file__).parents[1]
SETTING = {"KEYSTEAD_STORE": "redis://nowhere.invalid", "DISCORD_CLIENT_ID": "1", "HTTPS_PROXY": "http://127.0.0.1:9"}
LEFT_BY_SERVE = ("keystead.toml", "keystead.secrets.toml", "keystead.db", "keystead.tables.db")


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


def test_what_make_serve_left_behind_and_the_persons_own_settings_change_no_result(tmp_path: Path) -> None:
    for name in LEFT_BY_SERVE:
        (tmp_path / name).write_text("not what it should be")
    chosen = [__file__, f"{ROOT}/tests/kits/teamwork/test_page.py", f"{ROOT}/tests/server/test_settings.py"]
    options = ["-q", "-p", "no:cacheprovider", "-c", f"{ROOT}/pyproject.toml", "--rootdir", str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", "bare or home or empty or production_needs", *chosen],
        cwd=tmp_path,
        env={**os.environ, **SETTING, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
