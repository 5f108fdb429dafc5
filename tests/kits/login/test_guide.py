"""The guide of the kit matches the code."""

import ast
import inspect
import re
import tomllib
from pathlib import Path

from keystead.http import csrf, rate_limits
from keystead.kits import visit
from keystead.kits.login import KIT
from keystead.kits.login.routes import request, sessions, signing_in
from keystead.kits.login.routes.request import STATUS
from keystead.kits.login.service import LIMITS, refresh
from keystead.parts.oauth import PRESETS
from keystead.server import Settings, create_app
from tests.kits.login.browsing import RING

GUIDE = (Path(__file__).parents[3] / "docs" / "login.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The rows of the table with this heading, cell by cell."""
    table = GUIDE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def plain(cell: str) -> str:
    return cell.strip("` |")


def test_the_guide_names_each_limit() -> None:
    assert {plain(name): int(plain(limit)) for name, limit in rows("Limit")} == LIMITS


def test_the_guide_names_each_error_with_its_status() -> None:
    trees = [
        ast.parse(inspect.getsource(module)) for module in (request, sessions, signing_in, visit, csrf, rate_limits)
    ]
    raised: dict[object, object] = {
        node.args[1].value: node.args[0].value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "Refusal"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[1], ast.Constant)
    }
    assert {plain(code): int(plain(status)) for code, status, _ in rows("Code")} == dict(STATUS) | raised


def test_each_reason_of_the_service_has_a_status_and_each_status_a_reason() -> None:
    folder = Path(refresh.__file__).parent
    used = {
        node.args[0].value
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "LoginRefused"
        if isinstance(node.args[0], ast.Constant)
    }
    assert used == STATUS.keys()


def test_the_settings_example_starts() -> None:
    example = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert example is not None
    tables = tomllib.loads(example[1])
    app = create_app(Settings(store="memory://", seal_keys=RING, metrics=False, tables=tables), [KIT])
    settings = app.state.settings.of(KIT)
    assert (settings.return_to, settings.cap, list(settings.providers)) == ("/welcome", 3, ["github", "acme", "old"])
    assert not any(settings.providers[name].provider(name).missing for name in settings.providers)


def test_the_guide_names_the_environment_variables() -> None:
    for name in PRESETS:
        for setting in ("CLIENT_ID", "CLIENT_SECRET", "REDIRECT_URI"):
            assert f"{name.upper()}_{setting}" in KIT.environment


def test_the_guide_has_the_refresh_timings_of_the_code() -> None:
    assert f"last {refresh.REFRESH_BEFORE_MS // 1000} seconds" in GUIDE
    assert f"up to {refresh.WAIT_S:g} seconds" in GUIDE
