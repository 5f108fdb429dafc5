"""Modules in the working directory are imported only if they are named."""

from pathlib import Path

import httpx2
import pytest

from tests.server.test_serve import run_installed_keystead
from tests.serving import installed_keystead_serving

TRAP = "import os\nos.write(2, b'the trap has run')\nos._exit(70)\n"
KIT = '''
from contextlib import asynccontextmanager
from fastapi import APIRouter
from pydantic import BaseModel
from keystead import Keyspace, Value, after
from keystead.kits.kit import Kit


class MyKeys(Keyspace):
    """Mine."""

    thing = Value("my:thing:{id}", str, lifetime=after("1h"), doc="a thing")


class MySettings(BaseModel):
    pass


@asynccontextmanager
async def service(keys, settings, site):
    yield None


KIT = Kit(name="mine", doc="Mine.", keyspace=MyKeys, settings=MySettings, router=APIRouter, service=service)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules that shadow imports of Keystead and its libraries."""
    for name in ("prometheus_client", "joserfc", "queue", "idna", "mimetypes"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "mine.py").write_text(KIT)
    return tmp_path


def test_the_server_does_not_import_local_modules_over_the_standard_library(folder: Path) -> None:
    with installed_keystead_serving(folder) as server:
        assert httpx2.get(f"{server.url}/metrics", timeout=300).status_code == 200
        assert server.stop() == 0
    assert "trap" not in server.said


def test_a_kit_in_the_working_directory_is_found_and_replaces_nothing_installed(folder: Path) -> None:
    with installed_keystead_serving(folder, "--kits", "mine:KIT,login") as server:
        assert httpx2.get(f"{server.url}/readyz", timeout=300).json()["kits"] == ["mine", "login"]
        assert httpx2.get(f"{server.url}/metrics", timeout=300).status_code == 200
        assert server.stop() == 0
    assert "trap" not in server.said


@pytest.mark.parametrize("target", ["login", "mine:MyKeys"])
def test_a_command_does_not_import_local_modules_over_the_standard_library(folder: Path, target: str) -> None:
    result = run_installed_keystead(folder, "check", target)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.matrix
def test_doctor_does_not_import_local_modules_over_the_standard_library(folder: Path) -> None:
    with installed_keystead_serving(folder) as server:
        assert server.stop() == 0
    result = run_installed_keystead(folder, "doctor")
    assert (result.returncode, result.stderr) == (0, "")
