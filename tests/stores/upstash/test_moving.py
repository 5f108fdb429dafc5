"""Moving to and from Upstash: sessions go on, with their deadlines, and a file can be in between."""

import re
from pathlib import Path

import pytest

from keystead import connect
from keystead.parts.sessions import Live, Sessions
from keystead.stores.backup import BackupFile, backup, restore
from keystead.stores.copy import copy
from tests import servers
from tests.parts.sessions.conftest import RING, AppKeys, AppSession
from tests.real_servers import upstash_gateway, valkey_server

__all__ = ["upstash_gateway", "valkey_server"]

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("direction", ["from Upstash to Valkey", "from Valkey to Upstash"])
async def test_nobody_is_signed_out_by_a_move(
    direction: str,
    upstash_gateway: servers.GatewayServer,
    valkey_server: servers.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    upstash_gateway.empty()
    valkey_server.ask("FLUSHALL")
    urls = [upstash_gateway.upstash_url, valkey_server.url]
    old_url, new_url = urls if direction.startswith("from Upstash") else reversed(urls)
    async with connect(old_url) as old, connect(new_url) as new:
        before = Sessions(AppKeys(old, seal=RING).session)
        tokens = [(await before.create(AppSession(uid=f"user{n}"))).token for n in range(60)]
        await before.revoke(tokens[0])
        copied = await copy(old, new)
        assert copied.is_whole
        after = Sessions(AppKeys(new, seal=RING).session)
        assert [isinstance(await after.read(token), Live) for token in tokens] == [False] + [True] * 59
        keys = sorted([key async for page in old.scan() for key in page])
        deadlines = [await store.run([("PEXPIRETIME", key) for key in keys]) for store in (old, new)]
        assert deadlines[0] == deadlines[1]


async def test_values_beyond_the_limit_of_the_plan_are_named_and_the_rest_is_copied(
    upstash_gateway: servers.GatewayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    upstash_gateway.empty()
    async with connect("memory://") as source, connect(upstash_gateway.upstash_url) as target:
        await source.run([("SET", "large", "x" * 3_000_000), *(("SET", f"k{n}", "x" * 50_000) for n in range(200))])
        copied = await copy(source, target)
        assert (copied.written, copied.is_whole, copied.left_out.count) == (200, False, 1)
        assert copied.left_out.examples[0].startswith("large ")
    async with connect("memory://") as source, connect(f"{upstash_gateway.upstash_url}?max_request=8mb") as target:
        await source.run([("SET", "large", b"\xff" * 3_000_000)])
        assert (await copy(source, target, start_over=True)).is_whole


async def test_a_collection_larger_than_a_request_is_named_and_is_read_in_parts(
    upstash_gateway: servers.GatewayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    upstash_gateway.empty()
    url = f"{upstash_gateway.upstash_url}?timeout=60s"
    numbers = range(30_000)
    async with connect("memory://") as source, connect(url) as target, connect(f"{url}&max_request=9mb") as large:
        await source.run([("SADD", "set", *numbers), ("RPUSH", "list", *(f"{n}" * 20 for n in numbers))])
        copied = await copy(source, target)
        assert (copied.written, copied.left_out.count) == (1, 1)
        assert re.match(r"list holds 3,.* bytes; one step on .* may write at most", copied.left_out.examples[0])
        await target.run([("DEL", "set")])
        file = tmp_path / "keys.backup"
        await backup(source, file)
        with BackupFile(file) as saved:
            await restore(large, saved)
        # Reading needs no such limit.
        async with connect("memory://") as back:
            assert (await copy(target, back)).is_whole
            assert await back.run([("SCARD", "set"), ("LLEN", "list")]) == [30_000, 30_000]
