"""The benchmark of the cache runs. How often the provider is asked is no matter of speed, so that is held here."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_compares_with_a_peer_and_asks_the_provider_once(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "cache")
    assert done.returncode == 0, done.stderr
    saved = json.loads(result.read_text())
    assert saved["machine"]["packages"]["cashews"]
    judged = [row for row in saved["rows"] if row["target"] == {"bound": "at least", "limit": 2}]
    assert {(row["name"], row["against"].partition(",")[0]) for row in judged} == {
        ("32 tasks, get of what is cached", "cashews")
    }
    [calls] = [row for row in saved["rows"] if row["unit"] == "calls" and row["target"]]
    assert calls["value"] == 1
    assert list(tmp_path.iterdir()) == [result]
