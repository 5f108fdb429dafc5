"""The benchmark of limits runs: every hit that it counts is let through, or it raises. The round trips that it finds
are no matter of speed, so they are held here."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_compares_and_finds_one_round_trip_a_hit(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "limits")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    trips = {row["name"]: row["value"] for row in rows if row["unit"] == "round trips"}
    assert trips == dict.fromkeys(
        ("fixed window, a hit", "sliding window, a hit", "token bucket, a hit", "all three at once, a hit"), 1
    )
    twice = [(row["name"], row["against"]) for row in rows if row["target"] and row["against"]]
    assert twice == [
        ("fixed window, 32 tasks", "limits"),
        ("fixed window, 32 tasks", "limits on valkey-py"),
        ("sliding window, 32 tasks", "limits"),
        ("sliding window, 32 tasks", "limits on valkey-py"),
        ("sliding window, 32 tasks", "limits on valkey-py, a counter"),
    ]
    assert list(tmp_path.iterdir()) == [result]
