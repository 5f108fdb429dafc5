"""docs/server.md matches the code."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from keystead.http.refusals import CODES
from keystead.server import Settings
from keystead.server.metrics import METRICS
from keystead.server.settings_errors import SECRETS_FILE
from tests.server.test_serve import run_keystead

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading, by the code span in their first cell."""
    _, _, rest = PAGE.partition(f"## {heading}\n")
    table = re.search(r"((?:^\|.*\n)+)", rest, re.MULTILINE)
    assert table, heading
    lines = table[1].splitlines()[2:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {cell[0].strip("`"): cell[1:] for cell in cells}


def test_the_table_of_codes_matches_the_code() -> None:
    assert {code: (int(cells[0]), cells[1]) for code, cells in rows("Errors").items()} == {
        code: (status, sentence) for code, (status, sentence, _) in CODES.items()
    }


def test_the_table_of_metrics_matches_the_code() -> None:
    found = {name: (cells[0], cells[1], cells[2]) for name, cells in rows("Metrics").items()}
    assert found == {
        name: (kind, ", ".join(f"`{label}`" for label in labels), doc) for name, (kind, labels, doc) in METRICS.items()
    }


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
