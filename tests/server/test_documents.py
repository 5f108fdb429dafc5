"""docs/server.md matches the code."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from keystead.server import Settings
from keystead.server.settings_errors import SECRETS_FILE
from tests.server.test_serve import run_keystead

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_every_config_example_is_valid(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = SECRETS_FILE if "seal_keys" in text else "keystead.toml"
    (tmp_path / name).write_text(text)
    settings = Settings()
    for setting, value in tomllib.loads(text).items():
        held = settings.tables.get(setting) or getattr(settings, setting)
        assert held
        assert value


def test_every_flag_in_the_docs_exists(tmp_path: Path) -> None:
    help_text = run_keystead(tmp_path, "serve", "--help").stdout
    shown = [
        word
        for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if "keystead serve" in line
        for word in shlex.split(line, comments=True)
        if word.startswith("--")
    ]
    assert shown
    assert [flag for flag in shown if flag not in help_text] == []
