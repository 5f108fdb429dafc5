"""The benchmark of a backup runs: every key it saves is compared after the restore, or it raises."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_saves_speed_memory_and_size(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "backup")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(result.read_text())["rows"]}
    assert {name: row["target"]["limit"] for name, row in rows.items() if row["target"]} == {
        "Redis into a file": 1,
        "memory of the backup": 200,
        "memory of the restore": 200,
    }
    assert all(row["value"] > 0 for row in rows.values())
    assert list(tmp_path.iterdir()) == [result]
