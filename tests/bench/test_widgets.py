"""The benchmark of widgets runs: every answer that it counts is a success, and every board and ranking stays full, or
it raises. The round trips that it finds are no matter of speed, so they are held here."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_saves_round_trips_throughput_and_what_many_widgets_cost(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "widgets")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert all(row["value"] > 0 for row in rows)

    trips = {row["name"]: row for row in rows if row["unit"] == "round trips"}
    assert {name for name, row in trips.items() if row["target"]} == {
        "round trips: GET /api/visit?action=increment, a known counter",
        "round trips: increment, a new visitor",
        "round trips: increment, a known visitor",
    }
    assert all(row["value"] == 1 for row in trips.values() if row["target"])

    served = {row["name"].partition(", ")[2] for row in rows if row["against"].startswith("FastAPI")}
    by_hand = {f"ASGI and hiredis by hand, {what}" for what in ("new", "known", "text")}
    assert served == {"increment, new visitors", "increment, known visitors", "display as text", *by_hand}
    for store in ("widgets, redis", "widgets, sqlite"):
        compared = [
            row["target"]["limit"] for row in rows if row["subject"] == store and row["spread"] if row["target"]
        ]
        assert compared == [1.5] * 15
    assert list(tmp_path.iterdir()) == [result]
