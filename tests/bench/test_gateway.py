"""The benchmark of the gateway runs: every command of every pipeline succeeds, with the write guard and without."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_saves_the_throughput_and_the_cost_of_the_guard(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "gateway")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert [(row["subject"], row["unit"], row["target"]["bound"]) for row in rows] == [
        (f"gateway, {store}", unit, bound)
        for store in ("sqlite", "redis")
        for unit, bound in (("a second", "at least"), ("times the time", "at most"), ("times the time", "at most"))
    ]
    assert all(row["value"] > 0 for row in rows)
