"""Builds the guide as `make docs` does."""

import subprocess
import sys
from pathlib import Path


def build_guide(root: Path, built: Path, trees: Path) -> None:
    """The documentation of a checkout, as a site. A warning, such as a link that leads nowhere, fails the test."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--builder", "html"),
            *("--doctree-dir", trees, root / "docs", built),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
