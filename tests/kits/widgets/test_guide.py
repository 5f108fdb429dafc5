"""The guide matches the code, and its examples run."""

import ast
import inspect
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from keystead.kits import widgets as kit
from keystead.kits.widgets import KIT, WidgetSettings
from keystead.kits.widgets.routes import request_parsing, responses
from keystead.kits.widgets.routes.responses import STATUS
from keystead.kits.widgets.service import LIMITS, boards, checks, hooks, rankings
from keystead.kits.widgets.themes import THEMES
from keystead.server import Settings, create_app
from tests import forking
from tests.kits.sharing.visiting import RING_TEXT
from tests.serving import environment, keystead_serving, program

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "widgets.md").read_text()
COMPONENTS = Path(inspect.getfile(kit)).parent / "components"


def rows(heading: str) -> list[list[str]]:
    """The rows of the table that begins so, cell by cell."""
    table = GUIDE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def plain(cell: str) -> str:
    return cell.strip("` |")


def written(default: Any) -> str:
    match default:
        case bool():
            return str(default).lower()
        case tuple():
            return ", ".join(default) or "none"
    return str(default)


def test_the_guide_documents_every_limit() -> None:
    assert {plain(name): int(plain(limit)) for name, limit in rows("Limit")} == LIMITS


def test_the_guide_documents_every_error() -> None:
    raised = {
        node.args[1].value: node.args[0].value
        for module in (responses, request_parsing)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "make_refusal" and len(node.args) > 1
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[1], ast.Constant)
    }
    assert {"NO_PREFETCH", "METHOD_NOT_ALLOWED", "RATE_LIMITED"} <= raised.keys()
    assert {plain(code): int(plain(status)) for code, status, _ in rows("Code")} == dict(STATUS) | raised


def test_each_reason_of_the_service_has_a_status() -> None:
    folder = Path(inspect.getfile(boards)).parent
    used = {
        node.args[0].value
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "WidgetRefused"
        if isinstance(node.args[0], ast.Constant)
    }
    assert used == STATUS.keys()


def test_the_guide_documents_every_event() -> None:
    assert [plain(event) for event, _ in rows("Event")] == list(hooks._SENTENCES)


def test_the_guide_shows_a_real_event_body() -> None:
    [shown] = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL))
    assert shown | hooks._write_sentences(shown) == shown
    assert list(shown)[-len(hooks._write_sentences(shown)) :] == list(hooks._write_sentences(shown))


def test_the_guide_documents_every_element() -> None:
    files = {"counter": "counter", "like": "like", "ranking": "ranking", "bbs": "board", "yokoso": "welcome"}
    shared = _attributes("element")
    for element, also, attributes in rows("Element"):
        name = plain(element).removeprefix("keystead-")
        assert plain(also) == f"nostalgic-{name}"
        assert {plain(one) for one in attributes.split(",")} == shared | _attributes(f"{files[name]}-element")
    assert len(rows("Element")) == len(files)


def _attributes(file: str) -> set[str]:
    listed = re.search(r"observedAttributes = \[(.*?)\]", (COMPONENTS / f"{file}.js").read_text(), re.DOTALL)
    if file == "welcome-element":  # it has none but those of all
        assert listed is None
        return set()
    assert listed, file
    return set(re.findall(r'"([a-z-]+)"', listed[1]))


def test_the_numbers_in_the_guide_match_the_code() -> None:
    said = " ".join(GUIDE.split())
    assert f"at most {checks.LARGEST:,}" in said
    assert f"has {checks.TOKEN_MIN} to {checks.TOKEN_MAX} characters" in said
    assert f"submits once every {rankings.COOLDOWN_S} seconds" in said
    assert f"posts once every {boards.COOLDOWN_S} seconds" in said
    assert WidgetSettings().max_repeats + 1 == 5
    assert "a character five times in a row" in said
    for theme in THEMES:
        assert f"`{theme}`" in said


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL))
def test_the_settings_examples_start(example: str) -> None:
    tables = tomllib.loads(example)
    own = {"tables": {"widgets": tables.pop("widgets")}, **tables}
    settings = Settings(store="memory://", seal_keys=RING_TEXT, metrics=False, **own)
    assert not KIT.missing(create_app(settings, [KIT]).state.settings.of(KIT))


def test_the_shell_examples_run(tmp_path: Path) -> None:
    program("curl")
    start, first, commands = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    assert start == "keystead serve --kits widgets\n"
    with keystead_serving(tmp_path, None, "--kits", "widgets") as server:

        def run(example: str) -> str:
            script = "set -eu\n" + example.replace("http://127.0.0.1:8700", server.url)
            ended = subprocess.run(
                [program("bash"), "-c", script],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        created, after = first.partition("}}\n")[0] + "}}", first
        assert created.endswith('{"success":true,"data":{"id":"example-0f115db0","url":"https://example.com/"}}')
        said = run(after)
        assert said.startswith('{"success":true,"data":{"id":"example-0f115db0","url":"https://example.com/"}}')
        assert '"total":1,"today":1,' in said
        assert '"total":1000,' in said
        assert '"message":"' in said
        assert (tmp_path / "counter.svg").read_text().startswith("<svg ")
        run("".join(line for line in after.splitlines(keepends=True) if "delete" not in line))
        shown = run(commands.replace("keystead ", f"{forking.command()[0]} "))
        assert "WidgetKeys.counter" in shown
        assert "deleted counter:example-0f115db0" in shown
