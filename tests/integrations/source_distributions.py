"""Other packages: their source distributions, for their own tests, and other versions of them. Each is downloaded once
for a machine."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


def unpacked_source(package: str, version: str) -> Path:
    """The folder of the unpacked source distribution. It is outside the tree."""
    folder = Path(tempfile.gettempdir()) / f"keystead-{package}-{version}"
    if not (folder / "unpacked").is_file():
        folder.mkdir(exist_ok=True)
        options = ["--no-binary", ":all:", "--no-deps", "--dest", str(folder)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", *options, f"{package}=={version}"], check=True
        )
        [file] = folder.glob("*.tar.gz")
        with tarfile.open(file) as archive:
            archive.extractall(folder, filter="data")
        (folder / "unpacked").touch()
    [source] = [one for one in folder.iterdir() if one.is_dir()]
    return source


def installed_package(package: str, version: str) -> Path:
    """A folder for `PYTHONPATH` with this version of a package, instead of the one in the environment."""
    folder = Path(tempfile.gettempdir()) / f"keystead-{package}-{version}-installed"
    if not (folder / "installed").is_file():
        options = ["--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", *options, f"{package}=={version}"], check=True
        )
        (folder / "installed").touch()
    return folder
