"""The benchmark of the console runs: it signs in, opens pages beside a load, and names its targets."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_times_first_pages_beside_reads(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "console")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    pages = [row for row in rows if row["name"].startswith("first page")]
    assert [row["target"]["limit"] for row in pages] == [300] * 5  # one of them in Chromium
    assert all(row["value"] > 0 for row in rows)
