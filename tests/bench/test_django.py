"""The benchmark of Django's sessions runs: all sides read what was written, or it raises."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_a_quick_run_compares_with_django_redis_and_with_djangos_own_sessions(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "django")
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert {row["against"] for row in rows} == {"django-redis, cache", "django-redis, cached_db", "Django's db"}
    assert {row["name"] for row in rows} == {
        f"{act}, {threads}" for act in ("read", "read and save") for threads in ("1 thread", "16 threads")
    }
