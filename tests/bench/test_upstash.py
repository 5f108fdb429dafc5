"""The benchmark of the Upstash store counts the HTTP calls of concurrent readers."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench


@pytest.mark.matrix
def test_concurrent_readers_share_http_calls(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "upstash")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(result.read_text())["rows"]}
    assert rows["32 tasks, GET: commands for each HTTP call"]["value"] >= 8
