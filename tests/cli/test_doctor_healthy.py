"""A store written only by the server is healthy: `doctor --fix` changes nothing, whichever kit is named."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.kits import KITS
from keystead.server.own_keyspaces import OWN
from tests import forking
from tests.cli.program import Program, output
from tests.cli.used_server import SETTINGS, used_server
from tests.real_servers import redis_server
from tests.servers import Server
from tests.serving import environment

__all__ = ["redis_server"]

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


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=pytest.mark.matrix)])
def test_the_doctor_finds_nothing_in_what_the_server_wrote_and_changes_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/keystead.db"
    if kind == "redis":
        server: Server = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        url = server.url
    with used_server(tmp_path, url) as running:
        running.stop()
    before = contents(url)
    assert {key.split(b":")[0] for key in before} >= {b"outbox", b"schedule", b"demo", b"sess", b"receive", b"bbs"}
    found = {}
    for name in NAMES:
        asked = ("doctor", name, "--fix", "--set-aside-unknown", "--yes", "--json")
        result = forking.run(asked, tmp_path, environment({"KEYSTEAD_STORE": url, **SETTINGS}))
        found[name] = result.returncode, output(result)["codes"]
    assert found == dict.fromkeys(NAMES, (0, {}))
    after = contents(url)
    # Some of it expires meanwhile; what is there is as it was.
    assert {key: value for key, value in before.items() if after.get(key, value) != value} == {}
    assert after.keys() <= before.keys()
    assert all(before[key][0] > 0 for key in before.keys() - after.keys())


KIT = """
from contextlib import asynccontextmanager
from fastapi import APIRouter
from pydantic import BaseModel
from keystead import Keyspace, Value, never
from keystead.kits.kit import Kit
from keystead.parts.outbox import OutboxKeys

class ParcelKeys(Keyspace):
    '''Of a part.'''

    parcel = Value("parcel:{uid}:{id}", str, lifetime=never("kept"), member_of="buyer:{uid}", doc="a parcel")

class OrderKeys(Keyspace):
    part_keyspaces = (OutboxKeys, ParcelKeys)

    order = Value("order:{id}", str, lifetime=never("kept"), doc="an order")

@asynccontextmanager
async def service(keys, settings, site):
    yield keys

KIT = Kit("orders", "Orders.", OrderKeys, BaseModel, APIRouter, service, jobs=lambda service: ())
"""


def test_a_third_party_kit_includes_the_keyspaces_of_its_parts(program: Program) -> None:
    (program.folder / "myapp" / "orders.py").write_text(KIT)
    program.write(
        ("SET", "order:1", "x"),
        ("RPUSH", "outbox:queue:orders:1", "junk"),
        ("SET", "schedule:job:orders.clean-up", "junk", "PX", 1_000_000),
        ("SET", "counter:example-a1b2c3d4:total", 1),
    )
    seen = {
        ("myapp.orders:KIT",): {"OutboxKeys.queue": 1, "ScheduleKeys.job": 1},
        ("myapp.orders:OrderKeys",): {"OutboxKeys.queue": 1},
        ("widgets", "sharing"): {"OutboxKeys.queue": 1, "ScheduleKeys.job": 1},
    }
    for targets, unreadable in seen.items():
        found = json.loads(program.keystead("doctor", *targets, "--json").stdout)
        assert found["codes"]["unreadable"]["families"] == unreadable
    # Whoever names another keyspace sees the orders as unknown, unless the settings name the kit.
    assert "unknown-key" in json.loads(program.keystead("doctor", "myapp.keys", "--json").stdout)["codes"]
    chosen = json.loads(program.keystead("doctor", "myapp.keys", "--json", KEYSTEAD_KITS="myapp.orders:KIT").stdout)
    assert (chosen["codes"], chosen["others"]["OrderKeys"]) == ({}, 1)
    shown = program.keystead("docs", "myapp.orders:OrderKeys").stdout
    assert "## Keys of its parts" in shown
    assert "`outbox:queue:{topic}:{name}`" in shown


def test_show_backup_and_erase_bring_the_keyspaces_of_the_parts_along(program: Program) -> None:
    (program.folder / "myapp" / "orders.py").write_text(KIT)
    held = {"order:1", "outbox:queue:orders:1", "schedule:job:orders.clean-up", "parcel:42:1", "parcel:43:1"}
    program.write(
        ("SET", "order:1", "x"),
        ("RPUSH", "outbox:queue:orders:1", "junk"),
        ("SET", "schedule:job:orders.clean-up", "junk", "PX", 1_000_000),
        ("SET", "parcel:42:1", "x"),
        ("SET", "parcel:43:1", "x"),
    )
    target = ("--keyspace", "myapp.orders:KIT")
    shown = output(program.keystead("show", *target, "--json"))
    counts = {one["family"]: one["count"] for one in shown["families"] if one["count"]}
    assert counts == {"OrderKeys.order": 1, "OutboxKeys.queue": 1, "ScheduleKeys.job": 1, "ParcelKeys.parcel": 2}
    assert "ParcelKeys.parcel" in program.keystead("show", "parcel", *target).stdout

    assert program.keystead("backup", "all.backup").returncode == 0
    erased = program.keystead("erase", "buyer:42", *target, "--yes")
    assert erased.returncode == 0, erased.stderr
    assert program.stored_keys() == held - {"parcel:42:1"}

    other = Program.__new__(Program)
    other.url = f"sqlite:///{program.folder}/restored.db"
    assert program.keystead("restore", "all.backup", "--store", other.url, "--yes").returncode == 0
    assert other.stored_keys() == held
