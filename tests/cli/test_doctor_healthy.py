"""A store that only the server has written is healthy, whichever kit is named: `doctor --fix` changes nothing in it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.kits import KITS
from keystead.server.keyspaces import OWN
from keystead.testing.servers import Server
from tests import forking
from tests.cli.program import output
from tests.cli.used_server import SETTINGS, used_server
from tests.serving import environment

NAMES = ("kits", *KITS, *OWN)
_READS = {"string": ("GET",), "hash": ("HGETALL",), "set": ("SMEMBERS",), "list": ("LRANGE", 0, -1),
          "zset": ("ZRANGE", 0, -1, "WITHSCORES"), "stream": ("XRANGE", "-", "+")}  # fmt: skip


async def _contents(store: Store) -> dict[bytes, Any]:
    found = {}
    async for page in store.scan():
        for key in page:
            kind, lives_until = await store.run([("TYPE", key), ("PEXPIRETIME", key)])
            name, *arguments = _READS[kind.decode()]
            found[key] = lives_until, (await store.run([(name, key, *arguments)]))[0]
    return found


def contents(url: str) -> dict[bytes, Any]:
    async def read() -> dict[bytes, Any]:
        async with connect(url) as store:
            return await _contents(store)

    return asyncio.run(read())


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
def test_the_doctor_finds_nothing_in_what_the_server_wrote_and_changes_nothing(
    kind: str, tmp_path: Path, server: Server
) -> None:
    url = f"sqlite:///{tmp_path}/keystead.db" if kind == "sqlite" else server.url

    def keystead(*arguments: str) -> Any:
        return forking.run(arguments, tmp_path, environment({"KEYSTEAD_STORE": url, **SETTINGS}))

    with used_server(tmp_path, url) as running:
        running.stop()
    before = contents(url)
    assert {key.split(b":")[0] for key in before} >= {b"outbox", b"schedule", b"demo", b"sess", b"receive", b"bbs"}
    reports = {name: output(keystead("doctor", name, "--json")) for name in NAMES}
    assert {name: report["codes"] for name, report in reports.items() if report["codes"]} == {}
    for name in NAMES:
        result = keystead("doctor", name, "--fix", "--set-aside-unknown", "--yes")
        assert (name, result.returncode, result.stderr) == (name, 0, ""), result.stdout
    after = contents(url)
    # Some of it expires meanwhile; what is there is as it was.
    assert {key: value for key, value in before.items() if after.get(key, value) != value} == {}
    assert after.keys() <= before.keys()
    assert all(before[key][0] > 0 for key in before.keys() - after.keys())
