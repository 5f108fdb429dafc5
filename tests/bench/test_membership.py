"""The benchmark of the membership kit runs: both sides tell the same membership, or it raises. The round trips that it
finds are no matter of speed, so they are held here."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_compares_with_the_same_by_hand_and_finds_one_round_trip(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "membership")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    trips = {row["name"]: row["value"] for row in rows if row["unit"] == "round trips"}
    assert trips == {"validate of a session": 1, "validate of a session that another device has ended": 1}
    compared = [(row["subject"], row["name"], row["against"]) for row in rows if row["against"]]
    assert compared == [
        *(
            ("membership, redis", f"validate, {tasks}", by_hand)
            for tasks in ("32 tasks", "1 task")
            for by_hand in ("redis-py, three GETs", "redis-py, GET and MGET")
        ),
        ("membership, sqlite", "validate, 32 tasks", "sqlite3, three SELECTs"),
        ("membership, sqlite", "validate, 1 task", "sqlite3, three SELECTs"),
    ]
    assert list(tmp_path.iterdir()) == [result]
