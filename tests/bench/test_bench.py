"""The benchmark runs and keeps what it found. How fast anything is, is no matter of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str, seconds: int = 600) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        env=environment, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


@pytest.mark.matrix
def test_a_quick_run_prints_the_table_and_saves_each_row(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "sqlite")
    assert done.returncode == 0, done.stderr
    assert "32 tasks, SET durable" in done.stdout

    saved = json.loads(result.read_text())
    assert saved["quick"] is True
    assert saved["machine"]["packages"]["diskcache"]
    rows = {(row["name"], row["against"]): row for row in saved["rows"]}
    for name, against, target in [
        ("1 task, GET", "sqlite3", {"bound": "at most", "limit": 3}),
        ("1 task, GET", "diskcache", {"bound": "at least", "limit": 1}),
        ("32 tasks, SET durable", "sqlite3, one at a time", {"bound": "at least", "limit": 10}),
        ("32 tasks, SET durable", "diskcache in threads", {"bound": "at least", "limit": 1}),
        ("1 task, SET durable", "lmdb, the limit", None),
    ]:
        row = rows[name, against]
        assert row["target"] == target
        assert row["value"] > 0
        assert row["passed"] is None if target is None else isinstance(row["passed"], bool)


@pytest.mark.matrix
def test_the_databases_of_a_run_are_removed(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    assert bench("--quick", "--json", str(result), "--folder", str(tmp_path), "sweep").returncode == 0
    assert list(tmp_path.iterdir()) == [result]


def test_help_says_what_can_be_run() -> None:
    shown = bench("--help").stdout
    assert all(word in shown for word in ("redis", "sqlite", "growth", "sweep", "--quick", "--strict"))
