"""The guide of the kit says what the code does, and its examples run."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from keystead.kits.sessiondata import KIT
from keystead.kits.sessiondata.routes import _USER, STATUS, SessionsSetRequest
from keystead.kits.sessiondata.service import KEY_MAX, LIMITS
from keystead.server import Settings, create_app
from tests import forking
from tests.kits.sharing.visiting import RING_TEXT
from tests.serving import environment, keystead_serving, program

GUIDE = (Path(__file__).parents[3] / "docs" / "sessiondata.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The rows of the table that begins so, cell by cell."""
    table = GUIDE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def plain(cell: str) -> str:
    return cell.strip("` |")


def written(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_the_guide_names_each_limit() -> None:
    assert {plain(name): int(plain(limit)) for name, limit in rows("Limit")} == LIMITS


def test_the_guide_names_each_field_of_a_request_and_each_status() -> None:
    assert [plain(name) for name, _ in rows("Field")] == list(SessionsSetRequest.model_fields)
    assert {int(status) for status, _, _ in rows("Status")} == {200, *STATUS.values()}


def test_the_numbers_of_the_guide_are_those_of_the_code() -> None:
    assert f"A key and a page have at most {KEY_MAX} characters each." in GUIDE
    assert f"of at most {KEY_MAX - len(_USER)} characters" in GUIDE


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL))
def test_the_example_settings_are_valid(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "App_Data" / "Parameters"
    folder.mkdir(parents=True)
    (folder / "Session.json").write_text('{"RetentionPeriod": 1440, "UseKeyValueStore": true}')
    (folder / "Kvs.json").write_text('{"ConnectionStringForSession": "localhost:6379"}')
    own = tomllib.loads(example)
    tables = {"sessiondata": own.pop("sessiondata", {})}
    settings = Settings(seal_keys=RING_TEXT, metrics=False, tables=tables, **own)
    create_app(settings, [KIT])  # which opens nothing yet
    assert settings.store_urls == {
        "default": "redis://localhost:6379/0",
        "durable": "postgresql://app@localhost/app",
    }


def test_the_shell_examples_print_what_the_guide_shows(tmp_path: Path) -> None:
    program("curl")
    first, second = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    assert first == "keystead serve --kits sessiondata\n"
    [command] = forking.command()
    with keystead_serving(tmp_path, None, "--kits", "sessiondata") as server:
        script = second.replace("http://127.0.0.1:8700", server.url).replace("$(keystead ", f"$({command} ")
        ended = subprocess.run(
            [program("bash"), "-c", "set -eu\n" + script],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == re.findall(r"^# (\{.*)$", second, re.MULTILINE)
