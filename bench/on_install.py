"""Packages, size and import time of `pip install keystead`: the core, `asgi` and `server`.

Each is installed into a new virtual environment. pip and its packages are not counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import venv
from pathlib import Path
from typing import Final

from bench.measure import Progress, Row, Target

ROOT: Final = Path(__file__).parents[1]
_NOT_OURS: Final = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
_TIMES, _TIMES_QUICK = 15, 3
_IMPORT: Final = "import time; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"


async def run(folder: Path, progress: Progress, *, quick: bool) -> list[Row]:
    installs = (
        {"core": "", "with asgi": "[asgi]"} if quick else {"core": "", "with asgi": "[asgi]", "with server": "[server]"}
    )
    rows: list[Row] = []
    with progress.activity("install", len(installs)) as advance:
        for name, extra in installs.items():
            python = _install(folder / name.replace(" ", "-"), extra)
            rows += _rows(name, python, is_core=not extra, times=_TIMES_QUICK if quick else _TIMES)
            advance()
    return rows


def _install(folder: Path, extra: str) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", f"{ROOT}{extra}"],
        check=True,
        capture_output=True,
    )
    return python


def _rows(name: str, python: Path, *, is_core: bool, times: int) -> list[Row]:
    listed = subprocess.run(
        [str(python), "-m", "pip", "--disable-pip-version-check", "list", "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    packages = [one["name"] for one in json.loads(listed.stdout) if one["name"] not in _NOT_OURS]
    [site] = python.parents[1].glob("lib/python*/site-packages")
    size = sum(
        file.stat().st_size
        for file in site.rglob("*")
        if file.is_file() and not file.relative_to(site).parts[0].startswith(_NOT_OURS)
    )
    module = "keystead" if is_core else "keystead.integrations.asgi" if name == "with asgi" else "keystead.server.app"
    seconds = [_import_s(python, module) for _ in range(times)]
    return [
        Row(f"install, {name}", "packages", len(packages), "packages", Target("at most", 10) if is_core else None),
        Row(f"install, {name}", "size", size / 1e6, "MB", Target("at most", 45) if is_core else None),
        Row(
            f"install, {name}",
            f"import {module}",
            statistics.median(seconds),
            "s",
            Target("at most", 0.15) if is_core else None,
        ),
    ]


def _import_s(python: Path, module: str) -> float:
    code = _IMPORT.format(module=module)
    done = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True, cwd="/")
    return float(done.stdout)
