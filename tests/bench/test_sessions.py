"""The benchmark of sessions runs: every answer it counts has the name that the session holds, or it raises."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix

OURS = {f"Starlette, keystead on {store}{near}" for store in ("Redis", "SQLite") for near in ("", ", near reads")}


def test_a_quick_run_saves_what_sessions_cost_and_what_many_of_them_cost(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "sessions")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    kept = {row["name"].partition(", ")[2]: row for row in rows if row["subject"] == "sessions"}
    others = {f"{one}, keystead on Redis{near}" for one in ("FastAPI", "Litestar") for near in ("", ", near reads")}
    beside = {
        "Starlette, request.session on Redis",
        "Starlette, ten lines by hand on Redis",
        "Starlette, starsessions",
        "Litestar, its own",
    }
    assert kept.keys() == {*OURS, *others, *beside}
    assert {name for name, row in kept.items() if row["target"]} == OURS - {"Starlette, keystead on SQLite"}
    assert all(row["value"] > 0 for row in rows)
    for store in ("sessions, redis", "sessions, sqlite"):
        compared = [row for row in rows if row["subject"] == store and row["target"]]
        assert [row["target"]["limit"] for row in compared] == [1.5, 1.5, 1.5]
    assert list(tmp_path.iterdir()) == [result]
