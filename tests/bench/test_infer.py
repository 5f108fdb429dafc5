"""The benchmark of `infer` runs: many keys, large ones and noise, alone and beside reads; it names its targets."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_measures_memory_speed_and_what_reads_pay(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "infer")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert all(row["value"] > 0 for row in rows)
    memory = [row for row in rows if row["name"].startswith("memory")]
    assert [row["target"]["limit"] for row in memory] == [200] * 5
    assert [row["name"] for row in memory if not row["passed"]] == []
    [beside] = [row for row in rows if row["name"].startswith("reads beside it")]
    assert beside["against"] == "the same reads without it"
