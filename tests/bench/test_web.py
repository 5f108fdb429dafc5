"""The benchmark of all that serves requests runs: it has a figure for each target, and says how long it took."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600)]


def test_a_quick_run_has_a_figure_for_each_part(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "web")
    assert done.returncode == 0, done.stderr
    saved = json.loads(result.read_text())
    rows = saved["rows"]
    assert {row["subject"].partition(" ")[0] if "redis " in row["subject"] else row["subject"] for row in rows} == {
        *("widgets, http", "sessions", "near reads, redis", "near reads, sqlite", "web, near reads", "redis"),
        *("membership, redis", "membership, sqlite", "session data, mariadb", "notices", "web, overload"),
        *("web, event loops", "web, where the time goes", "web, memory"),
    }
    gets = {row["name"]: row["target"] for row in rows if row["against"] == "redis-py"}
    assert gets.keys() == {f"{tasks}, GET" for tasks in ("1 task", "8 tasks", "32 tasks", "128 tasks")}
    assert gets["32 tasks, GET"] == {"bound": "at least", "limit": 6}
    validate = [row["target"]["limit"] for row in rows if row["subject"] == "membership, sqlite"]
    assert validate == [0.6, 0.6]
    bounds = {row["name"].rpartition(", ")[2] for row in rows if row["subject"] == "web, overload" and row["target"]}
    assert bounds == {"requests_at_once = 4", "requests_at_once by default"}
    assert saved["seconds"].keys() == {"web"}
    assert f"took web {saved['seconds']['web']:,.0f} s" in done.stdout
    assert "where the time goes: GET /healthz" in done.stdout  # each note names its row
