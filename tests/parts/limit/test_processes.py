"""Several processes share one limit: with a clock skew of two seconds, and after a fork."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from keystead import Store
from tests.every_store import on
from tests.parts.limit.forked import HITS

ROOT = Path(__file__).parents[3]
NAMES = ("fixed", "record", "aligned", "sliding", "bucket")


async def worker(url: str, ahead_ms: int) -> Process:
    """One that is ready."""
    command = ("-m", "tests.parts.limit.worker", url, str(ahead_ms), *NAMES)
    started = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    assert started.stdout is not None
    assert await started.stdout.readline() == b"ready\n"
    return started


@pytest.mark.matrix
@on("redis", "postgres", "sqlite")
async def test_ten_of_200_hits_pass_in_two_processes_with_clocks_two_seconds_apart(
    store: Store, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kind = store.url.partition(":")[0]
    servers = {"redis": "redis_server", "postgresql": "postgres_server"}
    url = request.getfixturevalue(servers[kind]).url if kind in servers else f"sqlite:///{tmp_path}/kept.db"
    workers = await asyncio.gather(worker(url, -1_000), worker(url, 1_000))
    async with asyncio.timeout(60):
        told = await asyncio.gather(*(one.communicate(b"go\n") for one in workers))
    one, other = (json.loads(said) for said, _ in told)
    assert {name: one[name] + other[name] for name in NAMES} == dict.fromkeys(NAMES, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not divide here")
@on("redis")
async def test_hits_of_both_processes_after_a_fork_are_counted(store: Store, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("redis_server").url
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.parts.limit.forked", url, cwd=ROOT, stdout=PIPE
    )
    async with asyncio.timeout(60):
        told, _ = await started.communicate()
    assert int(told) == 100 - 3 * HITS
