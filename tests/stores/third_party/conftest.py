"""A third-party package with a store, installed into a folder that is on the path during a test."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "dictionary"


@pytest.fixture(scope="session")
def installed_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip has installed it into, with its metadata."""
    folder = tmp_path_factory.mktemp("installed")
    # From what is here, and from nowhere else.
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), str(PACKAGE)],
        check=True,
        timeout=300,
        capture_output=True,
    )
    return folder


@pytest.fixture
def installed(installed_in: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(installed_in))
    yield installed_in
    sys.modules.pop("keystead_dictionary", None)
    importlib.invalidate_caches()
