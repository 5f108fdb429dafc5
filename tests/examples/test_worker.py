"""A Worker reads what Python wrote to Cloudflare KV, with the types of the key document."""

from __future__ import annotations

import json
import sys
import urllib.error
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from keystead import connect
from keystead.schema.export import typescript
from tests import servers
from tests.servers import CloudflareServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "worker"


@pytest.fixture
def app_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield import_module("membership_keys")
    del sys.modules["membership_keys"]


@pytest.fixture(scope="module")
def server() -> Iterator[CloudflareServer]:
    with servers.cloudflare(EXAMPLE / "worker.js") as server:
        yield server


def ask(server: CloudflareServer, user: str) -> tuple[int, Any]:
    try:
        return 200, json.loads(server.fetch(f"/worker/plan/{user}"))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.matrix
async def test_the_worker_reads_what_python_wrote_and_no_session_reaches_it(
    server: CloudflareServer, app_keys: Any
) -> None:
    async with connect("memory://") as database, connect(server.url) as edge:
        keys = app_keys.AppKeys(database, cache=edge)
        await keys.membership("ann").set(app_keys.Membership(plan="pro", seats=3))
        await keys.session("s" * 43).set("ann")
        assert ask(server, "ann") == (200, {"plan": "pro", "seats": 3})
        assert ask(server, "bob")[0] == 404
        assert [key async for page in edge.scan() for key in page] == [b"membership:ann"]


async def test_the_worker_does_not_serve_what_has_expired_before_kv_removes_it(
    server: CloudflareServer, app_keys: Any
) -> None:
    """KV keeps a key for a minute at least; its metadata has the deadline."""
    server.put("membership:eve", b'{"plan": "pro", "seats": 1}', metadata={"keystead": {"expires_at_ms": 1}})
    assert ask(server, "eve")[0] == 404


def test_the_types_of_the_example_are_those_of_its_key_document(app_keys: Any) -> None:
    assert (EXAMPLE / "keys.ts").read_text() == typescript([app_keys.AppKeys])
