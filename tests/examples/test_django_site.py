"""The Django example keeps its promises with real requests, and its commands work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers
from tests.real_servers import redis_server

__all__ = ["redis_server"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "django_site"


def manage(folder: Path, *arguments: str, store: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHOP_DATA": str(folder), **({"SHOP_STORE": store} if store else {})}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-W", "error::ResourceWarning", str(EXAMPLE / "manage.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=EXAMPLE)


def test_real_requests_hold_the_promises_of_sessions_cache_and_decorators(tmp_path: Path) -> None:
    done = manage(tmp_path, "test")
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stderr


@pytest.mark.matrix
def test_they_do_so_on_redis(tmp_path: Path, redis_server: servers.Server) -> None:
    done = manage(tmp_path, "test", store=redis_server.url)
    assert done.returncode == 0, done.stderr


@pytest.mark.matrix
def test_the_commands_know_the_keyspaces_and_stores_of_the_project(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.keystead.db"
    setting = "from django.core.cache import cache; cache.set('greeting', 'hello')"
    assert manage(tmp_path, "shell", "-c", setting, store=store).returncode == 0
    for name in ("check", "doctor"):
        done = manage(tmp_path, "keystead", name, store=store)
        assert done.returncode == 0, done.stdout + done.stderr
    shown = manage(tmp_path, "keystead", "show", "entry", "--json", store=store).stdout
    assert "greeting" in shown
    document = manage(tmp_path, "keystead", "docs").stdout
    for pattern in ("shop:stock:{sku}", "django:sess:{sid:token}", "django:cache:v{version}:"):
        assert pattern in document


def test_wrong_settings_stop_the_start_with_one_line(tmp_path: Path) -> None:
    done = manage(tmp_path, "check", store="rediss//typo")
    assert done.returncode == 1
    assert "keystead.E002" in done.stderr
    assert "keystead.E003" in done.stderr
