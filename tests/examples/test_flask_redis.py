"""The Flask and redis-py example: each step of docs/adopt.md on a real Redis."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests import forking, servers
from tests.real_servers import redis_server
from tests.serving import environment

__all__ = ["redis_server"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "flask_redis"
pytestmark = pytest.mark.matrix
VISITS = """
import shop

NAMES, FRUIT = ("ann", "bob", "cem", "dora", "eve"), ("apple", "fig", "kiwi", "lime", "pear")
client = shop.app.test_client()
for number in range(25):
    user = {"user": f"{NAMES[number % 5]}{number}"}
    login = {"Authorization": "Bearer " + client.post("/login", data=user).json["token"]}
    assert client.post("/cart/apple", headers=login).status_code == 200
    assert client.get(f"/product/{FRUIT[number % 5]}{number}").status_code == 200
"""


def test_the_same_requests_work_at_each_step_side_by_side(redis_server: servers.Server) -> None:
    variables = {**os.environ, "SHOP_REDIS": redis_server.url, "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    command = [sys.executable, "-m", "pytest", *options, "tests.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=EXAMPLE)
    assert done.returncode == 0, done.stdout
    assert "14 passed" in done.stdout


def test_the_commands_of_each_step_find_the_defect_and_then_nothing(
    redis_server: servers.Server, tmp_path: Path
) -> None:
    url, folder = redis_server.url, tmp_path / "shop"
    redis_server.ask("FLUSHALL")
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def keystead(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forking.run(arguments, folder, environment({}))

    def visit(step: str) -> None:
        variables = {**os.environ, "SHOP_REDIS": url, "SHOP_STEP": step}
        subprocess.run([sys.executable, "-c", VISITS], check=True, env=variables, cwd=folder)

    visit("before")
    drafted = keystead("infer", url, "--output", "draft.py", "--wait", "0s")
    assert drafted.returncode == 0, drafted.stderr
    draft = (folder / "draft.py").read_text()
    for shape in (
        '"cart:{cart_id:alnum}"',
        '"login:{login_id:hex}"',
        '"views:{view_id:alnum}"',
        'lifetime=after("30m")',
    ):
        assert shape in draft
    checked = keystead("check", "keys")
    assert checked.returncode == 0, checked.stdout
    observed = keystead("doctor", "keys", "--store", url)
    assert observed.returncode == 1
    assert "75 keys: 25 findings" in observed.stdout
    assert {line.split()[1] for line in observed.stdout.splitlines() if line.startswith("error ")} == {"no-deadline"}
    [difference] = keystead("infer", url, "--diff", "keys.py", "--wait", "0s").stdout.splitlines()
    assert difference.startswith("~ ShopKeys.cart:")
    written = keystead("infer", "--document", "keys.md", "--output", "from_document.py")
    assert (written.returncode, written.stderr) == (0, "")
    agreed = keystead("infer", "--document", "keys.md", "--diff", "keys.py")
    assert (agreed.returncode, agreed.stdout) == (0, "")
    [contradiction] = keystead("infer", url, "--diff", "from_document.py", "--wait", "0s").stdout.splitlines()
    assert contradiction.startswith("~ AppKeys.cart: declared as 30 days after the last use")
    visit("typed_writes")
    assert keystead("doctor", "keys", "--store", url).stdout.splitlines()[-1] == "100 keys: no findings"
    client = redis.Redis.from_url(url)
    client.hincrby("cart:long-gone", "apple", 1)
    repaired = keystead("doctor", "keys", "--store", url, "--fix", "--yes")
    assert "1 repaired, 0 left" in repaired.stdout, repaired.stdout + repaired.stderr
    assert client.ttl("cart:long-gone") > 0
    client.close()


def test_watch_shows_who_still_writes_keys_of_no_family(redis_server: servers.Server, tmp_path: Path) -> None:
    url, folder = redis_server.url, tmp_path / "shop"
    redis_server.ask("FLUSHALL")
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with subprocess.Popen(
        forking.command("watch", "keys", "--store", url, "--unknown"),
        cwd=folder,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stdout is not None
            assert process.stderr.readline().startswith("watching ")
            redis_server.ask("SET", "newsletter:ann", "1")
            redis_server.ask("INCR", "views:apple")
            seen = [process.stdout.readline().split()[1:] for _ in range(2)]
        finally:
            process.kill()
    assert seen == [["(no", "family)", "written", "newsletter:ann"], ["ShopKeys.views", "written", "views:apple"]]
