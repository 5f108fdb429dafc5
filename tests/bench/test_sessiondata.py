"""The benchmark of session data runs: what it counts as read is there, and every write takes effect, or it raises. The
round trips that it finds are no matter of speed, so they are held here."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_saves_session_data_beside_django_and_an_upsert_by_hand(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "sessiondata")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    trips = {(row["subject"], row["name"]): row["value"] for row in rows if row["unit"] == "round trips"}
    for store in ("session data, postgresql", "session data, mariadb"):
        assert trips[store, "round trips: read"] == 1
        assert trips[store, "round trips: write"] == 2
    for store, by_hand in (("postgresql", "psycopg"), ("mariadb", "PyMySQL"), ("sqlite", "sqlite3")):
        for tasks in ("1 task", "16 tasks"):
            for act, more in (("read", set()), ("write", {"Django, db, save alone"})):
                found = {
                    row["against"]: row
                    for row in rows
                    if (row["subject"], row["name"]) == (f"session data, {store}", f"{tasks}, {act}, 100 B")
                }
                assert found.keys() == {"Django, db", f"{by_hand}, by hand"} | more
                assert found["Django, db"]["target"]["limit"] == 1
                assert all(row["value"] > 0 for row in found.values())
    assert list(tmp_path.iterdir()) == [result]
