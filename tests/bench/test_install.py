"""The benchmark of an installation: what the core brings is counted in a virtual environment of its own."""

import json
from pathlib import Path

import pytest

from tests.bench.test_bench import bench

pytestmark = pytest.mark.matrix


def test_the_core_is_at_most_ten_packages_and_45_megabytes(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench("--quick", "--json", str(result), "--folder", str(tmp_path), "install")
    assert done.returncode == 0, done.stderr
    rows = {(row["subject"], row["name"]): row for row in json.loads(result.read_text())["rows"]}
    assert rows["install, core", "packages"]["value"] <= 10
    assert rows["install, core", "size"]["value"] <= 45
    assert rows["install, core", "import keystead"]["value"] > 0
    assert rows["install, with asgi", "packages"]["value"] <= 15
    assert list(tmp_path.iterdir()) == [result]
