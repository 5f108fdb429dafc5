"""The plain script imports each order once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_script"


def test_running_the_script_again_imports_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("number,cents\n1,500\n2,250\n")
    command = [sys.executable, str(EXAMPLE / "import_orders.py"), "orders.csv", "orders.csv"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == "imported so far: 750 cents\n"
        assert done.stderr == ""
