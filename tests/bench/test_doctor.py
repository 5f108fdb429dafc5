"""The benchmark of the doctor runs: every defect it plants is found and repaired, or it raises."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_saves_memory_speed_and_what_reads_pay(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "doctor")
    assert done.returncode == 0, done.stderr
    rows = {(row["subject"], row["name"]): row for row in json.loads(result.read_text())["rows"]}
    for store in ("doctor, sqlite", "doctor, redis"):
        targets = {name: row["target"] for (subject, name), row in rows.items() if subject == store and row["target"]}
        speed = [40_000] if store == "doctor, redis" else []
        assert sorted(target["limit"] for target in targets.values()) == [2, 2, 2, 200, *speed]
    assert rows["doctor, redis", "time to examine a key"]["against"].startswith("redis-py")
    assert list(tmp_path.iterdir()) == [result]
