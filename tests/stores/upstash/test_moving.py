"""Moving to and from Upstash: sessions go on, with their deadlines, and a file can be in between."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.parts.sessions import Live, Sessions
from keystead.stores.backup import BackupFile, backup, restore
from keystead.stores.copy import copy
from tests import servers
from tests.cli.program import Program
from tests.cli.test_copy import Running
from tests.parts.sessions.conftest import AppSession, Clock, sessions_of
from tests.real_servers import upstash_gateway, valkey_server
from tests.stores.backup.contents import now_ms

__all__ = ["upstash_gateway", "valkey_server"]

pytestmark = pytest.mark.anyio


async def sessions_in(store: Store) -> dict[bytes, Any]:
    """All sessions with their deadlines, and the lists of them; some may go while they are read."""
    keys = sorted({key async for page in store.scan() for key in page if not key.startswith(b"keystead:copy:")})
    reads = [("SMEMBERS" if key.startswith(b"user:") else "GET", key) for key in keys]
    deadlines = await store.run([("PEXPIRETIME", key) for key in keys])
    return dict(zip(keys, zip(await store.run(reads), deadlines, strict=True), strict=True))


async def end_some(sessions: Sessions[AppSession], tokens: list[str]) -> list[str]:
    """An application at work: every third of these signs out, the next is changed, the next is prolonged."""
    for token in tokens[::3]:
        assert await sessions.revoke(token)
    for token in tokens[1::3]:
        assert await sessions.update(token, seen=7)
    for token in tokens[2::3]:
        assert await sessions.touch(token)
    return tokens[::3]


@pytest.mark.parametrize("direction", ["from Upstash to Valkey", "from Valkey to Upstash"])
async def test_nobody_is_signed_out_by_a_move_while_the_application_runs(
    direction: str, upstash_gateway: servers.GatewayServer, valkey_server: servers.Server, tmp_path: Path
) -> None:
    """With the commands of docs/moving_platforms.md. Half of the users move to the new store while the other half
    still use the old one."""
    upstash_gateway.empty()
    valkey_server.ask("FLUSHALL")
    named = {"UPSTASH_REDIS_REST_URL": upstash_gateway.url, "UPSTASH_REDIS_REST_TOKEN": upstash_gateway.token}
    names, urls = ["upstash+env://", valkey_server.url], [upstash_gateway.upstash_url, valkey_server.url]
    if direction == "from Valkey to Upstash":
        names.reverse()
        urls.reverse()
    program = await asyncio.to_thread(Program, tmp_path)
    async with connect(urls[0]) as old, connect(urls[1]) as new:
        clock = Clock()
        clock.now_ms = await now_ms(old)
        before, after = sessions_of(old, clock), sessions_of(new, clock)
        keys: dict[str, str] = {}  # by token

        async def sign_in(sessions: Sessions[AppSession], count: int) -> list[str]:
            made = [await sessions.create(AppSession(uid=f"user{len(keys) + n}")) for n in range(count)]
            keys.update((one.token, f"sess:{one.id}") for one in made)
            return [one.token for one in made]

        tokens = await sign_in(before, 60)
        for arguments in (["backup", "before.backup", "--store", names[0]], ["copy", *names, "--dry-run"]):
            done = await asyncio.to_thread(program.keystead, *arguments, **named)
            assert done.returncode == 0, done.stderr
        moving = Running(program, "copy", *names, "--follow", "--yes", "--json", **named)
        await asyncio.to_thread(moving.says, "in step: ")

        clock.pass_ms(120_000)
        ended = set(await end_some(before, tokens[:30]))
        tokens += await sign_in(before, 30)
        async with asyncio.timeout(120):  # all that the old store acknowledged arrives; a visit would prolong it there
            while await sessions_in(new) != await sessions_in(old):
                assert moving.poll() is None, moving.communicate()

        # Instances of the new setting serve some users now, and instances of the old one the others.
        ended |= {*await end_some(after, tokens[30:60]), *await end_some(before, tokens[60:])}
        on_new = await sign_in(after, 15)
        await sign_in(before, 15)
        finished = await asyncio.to_thread(moving.finish, signal.SIGINT)
        assert finished.returncode == 0, finished

        unmoved = [keys[token] for token in keys.keys() - {*tokens[30:60], *on_new} - ended]
        deadlines = [await store.run([("PEXPIRETIME", key) for key in unmoved]) for store in (old, new)]
        assert deadlines[0] == deadlines[1]
        assert min(deadlines[0]) > clock.now_ms

        found = {token: await after.read(token) for token in keys}
        assert {token for token, session in found.items() if not isinstance(session, Live)} == ended
        changed = [token for group in (tokens[:30], tokens[30:60], tokens[60:]) for token in group[1::3]]
        seen = {token for token, session in found.items() if isinstance(session, Live) and session.session.seen == 7}
        assert seen == set(changed)


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
