"""The benchmark of a copy runs: each of three copies is killed and resumed, and every key is compared, or it raises."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_saves_speed_and_memory_of_each_copy(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "copy")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(result.read_text())["rows"]}
    legs = ("Redis to PostgreSQL", "PostgreSQL to SQLite", "SQLite to Redis again")
    direct = ("Redis to SQLite, without a kill", "Redis to Redis, without a kill")
    speeds = [f"{leg}: keys copied" for leg in (*direct, *legs)]
    assert [name for name in rows if name.endswith(": keys copied")] == speeds
    assert rows["Redis to Redis, beside pipelines"]["against"].startswith("redis-py")
    assert all(rows[f"{leg}: memory"]["target"] == {"bound": "under", "limit": 200} for leg in legs)
    assert len([name for name in rows if "killed when" in name]) == len(legs)
    assert list(tmp_path.iterdir()) == [result]
