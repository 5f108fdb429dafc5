"""The benchmark of synchronous callers runs: both sides read what was written, or it raises."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_compares_with_redis_py_in_one_thread_and_in_many(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "synchronous")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert [(row["name"], row["against"]) for row in rows] == [
        ("GET, 1 thread", "redis-py"),
        ("GET, 32 threads", "redis-py"),
    ]
