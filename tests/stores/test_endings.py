"""A program that does not close its store ends, with nothing but its own error on stderr, on every store."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers
from tests.real_servers import (
    Running,
    cloudflare_server,
    mariadb_server,
    memcached_server,
    postgres_server,
    redis_server,
    valkey_cluster,
)

__all__ = [
    "cloudflare_server",
    "mariadb_server",
    "memcached_server",
    "postgres_server",
    "redis_server",
    "valkey_cluster",
]

ROOT = Path(__file__).parents[2]
SERVERS = {
    "redis": "redis_server",
    "cluster": "valkey_cluster",
    "postgres": "postgres_server",
    "mysql": "mariadb_server",
    "memcached": "memcached_server",
    "cloudflare": "cloudflare_server",
}
ENDS = {"leave": 3, "fail": 1, "be_interrupted": -signal.SIGINT}
OWN = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n)*(?P<error>ValueError: escaped|KeyboardInterrupt)\n")
WARNING = re.compile(r".*: ResourceWarning: \S+ was not closed; use `async with`\n  .*\nResourceWarning: Enable .*\n")


@pytest.fixture
def url(request: pytest.FixtureRequest, running_servers: Running, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/left.db"
        case "sentinel":
            return running_servers.once(servers.sentinel).url
        case name:
            return str(request.getfixturevalue(SERVERS[name]).url)


EVERYDAY = ("sqlite", "redis", "postgres")
FURTHER = ("memory", "cluster", "mysql", "memcached", "cloudflare", "sentinel")


@pytest.mark.everyday("redis")
@pytest.mark.parametrize(
    "url", [*EVERYDAY, *(pytest.param(one, marks=pytest.mark.matrix) for one in FURTHER)], indirect=True
)
def test_an_unclosed_store_blocks_no_exit_and_prints_no_traceback(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-m", "tests.stores.endings", url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    told = {line["program"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert {name: one["ended"] for name, one in told.items()} == {name: ENDS.get(name, 0) for name in told}
    left = {name: _not_its_own(one["errors"]) for name, one in told.items()}
    assert left == dict.fromkeys(told, "")
    assert [name for name, one in told.items() if "was not closed" not in one["errors"]] == []
    ended, running = told["run_twice"]["out"].splitlines(), told["use_in_a_thread"]["out"].splitlines()
    assert len(ended) == 3
    assert all(line.startswith("wrong-event-loop: ") and "an event loop that has ended" in line for line in ended)
    assert len(running) == 1
    assert "run_coroutine_threadsafe" in running[0]


def _not_its_own(errors: str) -> str:
    """What is on stderr beside the error that the program ended with, and one warning."""
    if "KeyboardInterrupt" in errors:  # comes with the CancelledError that it was
        errors = errors.partition("During handling of the above exception, another exception occurred:\n\n")[2]
    return WARNING.sub("", OWN.sub("", errors, count=1), count=1)
