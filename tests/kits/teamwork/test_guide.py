"""The guide matches the code, and its examples run."""

import ast
import inspect
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from keystead.http import bearer
from keystead.kits.kit import Kit
from keystead.kits.teamwork import KIT, TeamworkKeys, page, routes, team_routes, who
from keystead.kits.teamwork.service import TYPES, events, streams, tables, teamwork
from keystead.kits.teamwork.service.notice_types import PREFERENCE_OF
from keystead.server import Settings, create_app
from tests.serving import environment, keystead_serving, program

GUIDE = (Path(__file__).parents[3] / "docs" / "teamwork.md").read_text()
RING = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"


def rows(heading: str) -> list[list[str]]:
    """The rows of the table with this first heading, cell by cell."""
    table = GUIDE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def plain(cell: str) -> str:
    return cell.strip("` |")


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_the_guide_names_each_error_with_its_status() -> None:
    raised = {
        (constants[1], constants[0])
        for module, names in (
            *((one, ("Refusal",)) for one in (routes, team_routes, page, who)),
            (bearer, ("_challenge", "_later")),
        )
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names
        for constants in [_status_and_code(node)]
    }
    told = {(plain(code), int(status)) for code, status, _ in rows("Code")}
    assert told == raised | set(team_routes.STATUS.items()) | {("CSRF", 403), ("RATE_LIMITED", 429)}


def _status_and_code(call: ast.Call) -> tuple[Any, Any]:
    """The first two arguments; 503 for a call without a status."""
    found = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    if len(found) < 2 and not (found and isinstance(found[0], str)):
        return 400, "BAD_REQUEST"  # the other codes come from STATUS
    return (found[0], found[1]) if isinstance(found[0], int) else (503, found[0])


def test_the_guide_names_each_event_with_its_type_and_preference() -> None:
    table = rows("Event (`kind`)")
    kinds = set(re.findall(r'"([a-z-]+)"', " ".join(_kinds())))
    assert {kind for cell, *_ in table for kind in re.findall(r"`([a-z]+-?[a-z]*)`", cell)} - {"text"} == kinds
    assert {one for _, _, cell, _ in table for one in re.findall(r"`([가-힣]+)`", cell)} == set(TYPES)
    for _, _, types, preference in table:
        if "," not in preference:
            [kind] = re.findall(r"`([가-힣]+)`", types)
            assert plain(preference).startswith(PREFERENCE_OF.get(kind, "none")), kind


def _kinds() -> list[str]:
    return re.findall(r"kind: Literal\[([^\]]+)\]", inspect.getsource(events))


def test_the_guide_names_each_table() -> None:
    assert [plain(name) for name, _ in rows("Table")] == [table.name for table in tables.ALL]


def test_the_numbers_of_the_guide_are_those_of_the_code() -> None:
    assert f"the newest {TeamworkKeys.families['notice_log'].keep:,}" in GUIDE  # type: ignore[attr-defined]
    assert f"within {streams._CHECK_EVERY_MS // 1000 + streams.PAUSE_S:.0f} seconds" in GUIDE
    assert teamwork.SLACK_POLICY.give_up_after == "30d"


def test_the_example_settings_start_the_kit() -> None:
    [example] = examples("toml")
    settings = Settings(store="memory://", seal_keys=RING, metrics=False, tables=tomllib.loads(example))
    own = create_app(settings, [KIT]).state.settings.of(KIT)
    assert (own.zone, own.deadline_days, own.language) == ("Asia/Seoul", (7, 3, 1), "ko")
    assert not KIT.missing(own)


async def test_the_example_application_notifies_its_users() -> None:
    [example] = examples("python")
    names: dict[str, Any] = {}
    exec(compile(example, "teamwork.md", "exec"), names)
    kit: Kit = names["KIT"]
    app = create_app(Settings(store="memory://", seal_keys=RING, metrics=False), [kit])
    async with app.router.lifespan_context(app):
        service = app.state.kits["teamwork"]
        for _ in range(2):
            await names["assign"](service, 101, 42, 7)
        found = await service.notices.page(42)
        assert [one.title for one in found.notices] == ["Mei assigned WR-001 to you"]
        assert (await service.dashboard.summary(42, 3)).my_work_requests == 12
        token = service.tokens.issue("42").token
        assert (await service.admission.admitted(token)).user.name == "Mei"
        await service.users.invalidate(service.keys.user_session(42))


def test_the_shell_examples_print_what_the_guide_shows(tmp_path: Path) -> None:
    program("curl")
    first, second = examples("bash")
    assert first == "keystead serve --kits teamwork\n"
    said = re.findall(r"# (.*)", second)
    with keystead_serving(tmp_path, None, "--kits", "teamwork") as server:
        script = "set -eu\n" + second.replace("http://127.0.0.1:8700", server.url).replace("   #", "; echo   #")
        ended = subprocess.run(
            [program("bash"), "-c", script],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert ended.returncode == 0, ended.stderr
    for line, expected in zip(ended.stdout.splitlines(), said, strict=True):
        begins, _, ends = expected.partition("…")
        assert line.startswith(begins), line
        assert "…" in expected or line == expected
        assert line.endswith(ends), line
