"""The guide of the kit matches the code, and its examples run."""

import ast
import inspect
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from keystead.http import csrf, rate_limits
from keystead.kits import visit
from keystead.kits.sharing import KIT
from keystead.kits.sharing.routes import issuing, owner_pages, receiving, request
from keystead.kits.sharing.routes.request import STATUS
from keystead.kits.sharing.service import LIMITS, clean_up, link_access, tickets, uploads
from keystead.kits.sharing.service import issuing as link_issuing
from keystead.kits.sharing.service import settings as settings_module
from keystead.parts import passwords
from keystead.server import Settings, create_app
from tests.kits.sharing.visiting import CLEANUP_SECRET, RING_TEXT
from tests.serving import environment, keystead_serving, program

GUIDE = (Path(__file__).parents[3] / "docs" / "sharing.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The rows of the table with this heading, cell by cell."""
    table = GUIDE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def plain(cell: str) -> str:
    return cell.strip("` |")


def written(default: Any) -> str:
    match default:
        case None:
            return "none"
        case bool():
            return str(default).lower()
        case tuple():
            return ", ".join(default)
    return str(default)


def calls(module: ModuleType, name: str) -> list[ast.Call]:
    """The calls of a function or class in a module whose first argument is a constant."""
    return [
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == name
        and isinstance(node.args[0], ast.Constant)
    ]


def constant(node: ast.expr) -> Any:
    assert isinstance(node, ast.Constant)
    return node.value


def test_the_guide_names_each_limit() -> None:
    assert {plain(name): int(plain(limit)) for name, limit in rows("Limit")} == LIMITS


def test_the_guide_names_each_error_with_its_status() -> None:
    raised = {
        constant(call.args[1]): constant(call.args[0])
        for module in (issuing, owner_pages, receiving, request, visit, csrf, rate_limits)
        for call in calls(module, "Refusal")
    }
    told = [(plain(code), int(plain(status))) for code, status, _ in rows("Code")]
    assert len(told) == len(dict(told))
    assert dict(told) == dict(STATUS) | raised


def test_each_reason_of_the_service_has_a_status_and_each_status_a_reason() -> None:
    folder = Path(inspect.getfile(settings_module)).parent
    used = {
        constant(node.args[0])
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "SharingRefused"
    }
    assert used | {"NOT_FOUND", "KEY_REQUIRED"} == STATUS.keys()


def test_the_guide_has_the_numbers_of_the_code() -> None:
    assert f"guessed {link_access._PASSWORD_TRIES} times" in GUIDE
    assert f"and {link_access._PASSWORD_TRIES_TOTAL} times by all" in GUIDE
    assert f"takes {uploads._MAX_UPLOADS} concurrent uploads, {uploads._MAX_PER_CLIENT} per client" in GUIDE
    assert f"hashes {passwords._WAITING_MAX} passwords at once" in GUIDE
    assert f"silent for {uploads._STALLED_S} seconds" in GUIDE
    assert f"renews the lease of an upload every {uploads._RENEW_EVERY_MS // 1000} seconds" in GUIDE
    assert ("not renewed for three minutes" in GUIDE, uploads.LEASE_MS) == (True, 180_000)
    assert f"{tickets._LOST_MAX_BYTES // 2**20} MiB are sent again" in GUIDE
    assert f"`receiverName` must have 1 to {link_issuing.RECEIVER_MAX} characters" in GUIDE
    assert f"from 1 to {link_issuing._MAX_DOWNLOADS:,}" in GUIDE
    assert f"at most {link_issuing.MESSAGE_MAX} characters" in GUIDE
    first, longest = clean_up._RETRY_MS // 60_000, clean_up._RETRY_MAX_MS // 3_600_000
    assert f"after {first} minutes, {first * 2}, {first * 4}, up to {longest} hours" in GUIDE


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL))
def test_the_settings_examples_start(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIVE_ISSUE_KEY", "a key of some length")
    tables = tomllib.loads(example)
    own = {"tables": {"sharing": tables.pop("sharing")}, **tables}
    settings = Settings(store="memory://", seal_keys=RING_TEXT, metrics=False, **own)
    assert not KIT.missing(create_app(settings, [KIT]).state.settings.of(KIT))


def test_the_shell_examples_work(tmp_path: Path) -> None:
    program("curl")
    first, second, third = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    assert first == "keystead serve --kits sharing\n"
    with keystead_serving(tmp_path, None, *("--kits", "sharing"), RECEIVE_CLEANUP_SECRET=CLEANUP_SECRET) as server:

        def run(example: str) -> list[str]:
            script = "set -eu\n" + example.replace("http://127.0.0.1:8700", server.url)
            ended = subprocess.run(
                [program("bash"), "-c", script],
                cwd=tmp_path,
                env=environment({"RECEIVE_CLEANUP_SECRET": CLEANUP_SECRET}),
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert ended.returncode == 0, ended.stderr
            return ended.stdout.splitlines()

        told = "".join(run(second)).partition("It works.")
        assert told[0].startswith('{"ok":true,"token":"v1.')
        assert f'"shareUrl":"{server.url}/receive?t=' in told[0]
        assert told[2].startswith('{"ok":true}{"ok":false,')
        assert told[2].endswith('"code":"TOKEN_NOT_FOUND"}')
        [counts] = run(third)
        assert '"scanned":0,"deleted":0' in counts
