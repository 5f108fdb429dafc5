"""The benchmark of procedures runs: both sides reserve each time, or it raises."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_compares_with_a_script_and_with_a_transaction_by_hand(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "procedures")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    what = "two commands and a guard"
    assert [(row["subject"], row["name"], row["against"]) for row in rows] == [
        *(
            (f"procedures, {engine}", f"{tasks}, {what}", "redis-py, a script")
            for engine in ("redis", "valkey")
            for tasks in ("32 tasks", "1 task")
        ),
        ("procedures, sqlite", f"1 task, {what}", "sqlite3, one transaction"),
        ("procedures, sqlite", f"32 tasks, {what}", "sqlite3, 32 to a commit by hand"),
    ]
    assert [row["target"]["limit"] for row in rows if row["target"]] == [3, 3, 1.3, 0.8]
    assert list(tmp_path.iterdir()) == [result]
