"""Migration without logouts: an application writes to the source, and later to the target."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.errors import StoreUnavailable
from keystead.stores import Command
from keystead.stores.copy import Copied, Passed, follow
from tests import servers
from tests.stores.backup.contents import DAY_MS, contents, now_ms
from tests.stores.copy.conftest import UrlOf, files, own

ONE = Path("one.progress")


class Following:
    """A copy that follows, in the background."""

    def __init__(self, source: Store, target: Store, **options: Any) -> None:
        self._stop = asyncio.Event()
        self._passes: asyncio.Queue[Passed] = asyncio.Queue()
        self.troubles: asyncio.Queue[StoreUnavailable] = asyncio.Queue()
        self.task = asyncio.create_task(
            follow(
                source,
                target,
                self._stop,
                progress=ONE,
                on_pass=lambda passed, _: self._passes.put_nowait(passed),
                on_trouble=self.troubles.put_nowait,
                **options,
            )
        )

    async def in_step(self) -> Passed:
        """Wait for the current pass, and for the one after it."""
        while not self._passes.empty():
            self._passes.get_nowait()
        changed = [await self._next(), await self._next()]
        return Passed(
            written=sum(one.written for one in changed),
            deleted=sum(one.deleted for one in changed),
            keys=changed[-1].keys,
        )

    async def _next(self) -> Passed:
        waiting = asyncio.ensure_future(self._passes.get())
        await asyncio.wait({waiting, self.task}, timeout=300, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            self.task.result()
        return waiting.result()

    async def ended(self) -> Copied:
        self._stop.set()
        return await asyncio.wait_for(self.task, 300)


@asynccontextmanager
async def following(source: Store, target: Store, **options: Any) -> AsyncIterator[Following]:
    one = Following(source, target, **options)
    try:
        yield one
    finally:
        one.task.cancel()
        await asyncio.gather(one.task, return_exceptions=True)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("one", "other"),
    [("memory", "sqlite"), ("valkey", "memory"), ("sqlite", "valkey"), ("upstash", "sqlite"), ("valkey", "upstash")],
)
async def test_writes_deletes_and_new_deadlines_arrive_while_it_follows(one: str, other: str, url_of: UrlOf) -> None:
    async with connect(url_of(one)) as source, connect(url_of(other)) as target:
        ends_ms = await now_ms(source) + DAY_MS
        await source.run([("SET", f"sess:{n}", n, "PXAT", ends_ms) for n in range(600)])
        await source.run([("SADD", "user", "0", "1"), ("HSET", "cart", "a", "1")])
        async with following(source, target) as moving:
            await moving.in_step()
            assert await own(target) == await contents(source)
            for changes in (
                [("SET", "sess:1", "changed", "KEEPTTL"), ("PEXPIREAT", "sess:2", ends_ms + 7), ("PERSIST", "sess:3")],
                [("DEL", "sess:4"), ("SADD", "user", "2"), ("HSET", "cart", "a", "2"), ("SET", "sess:new", "1")],
                [("DEL", "cart"), ("RPUSH", "cart", "of another kind"), ("SET", "sess:4", "again")],
            ):
                await source.run(changes)
                done = await moving.in_step()
                assert done.changes >= len(changes) - 1
                assert await own(target) == await contents(source)
            quiet = await moving.in_step()
            assert quiet.changes == 0
            await source.run([("SET", "sess:last", "1")])  # acknowledged before it is told to stop
            copied = await moving.ended()
        assert copied.is_whole
        assert copied.verified is not None
        assert copied.verified.compared.differences == 0
        assert await own(target) == await contents(source)
        assert files() == [str(ONE)]


KV_PAIRS = (
    *(("sqlite", "cloudflare"), ("redis", "cloudflare"), ("upstash", "cloudflare")),
    *(("cloudflare", "sqlite"), ("cloudflare", "postgres"), ("cloudflare", "upstash")),
)


@pytest.mark.matrix
@pytest.mark.parametrize(("one", "other"), KV_PAIRS, ids=[f"{one} to {other}" for one, other in KV_PAIRS])
async def test_strings_follow_from_and_to_cloudflare_kv_with_their_deadlines(
    one: str, other: str, url_of: UrlOf
) -> None:
    async with connect(url_of(one)) as source, connect(url_of(other)) as target:
        ends_ms = await now_ms(source) + DAY_MS
        await source.run([("SET", f"membership:{n}", n, "PXAT", ends_ms + n) for n in range(150)])
        await source.run([("SET", "forever", b"\x00\xff")])
        async with following(source, target) as moving:
            await moving.in_step()
            assert await own(target) == await contents(source)
            rounds: tuple[list[Command], ...] = (
                [("SET", "membership:1", "changed", "PXAT", ends_ms + 1), ("SET", "membership:2", 2, "PXAT", ends_ms)],
                [
                    ("DEL", "membership:4"),
                    ("SET", "membership:new", "1"),
                    ("SET", "forever", "for a day", "EX", 86_400),
                ],
                [("SET", "membership:4", "again"), ("DEL", "membership:new")],
            )
            for changes in rounds:
                await source.run(changes)  # several requests: a step may see a part of them
                await moving.in_step()
                assert await own(target) == await contents(source)
            assert (await moving.in_step()).changes == 0
            await source.run([("SET", "last", "1")])  # acknowledged before it is told to stop
            copied = await moving.ended()
        assert copied.is_whole
        assert copied.verified is not None
        assert copied.verified.compared.differences == 0
        assert await own(target) == await contents(source)


@pytest.mark.matrix
async def test_a_live_copy_to_cloudflare_kv_names_what_it_cannot_hold_and_follows_the_rest(url_of: UrlOf) -> None:
    async with connect(url_of("redis")) as source, connect(url_of("cloudflare")) as target:
        await source.run([("SET", "plan", "pro"), ("SADD", "user", "0", "1")])
        async with following(source, target) as moving:
            await moving.in_step()
            await source.run([("SADD", "user", "2"), ("HSET", "cart", "a", "1"), ("SET", "plan", "free")])
            await moving.in_step()
            copied = await moving.ended()
        assert (copied.is_whole, copied.left_out.count) == (False, 2)
        named = sorted(copied.left_out.examples)
        assert [one.partition(", which cloudflare-kv://")[0] for one in named] == ["cart is a hash", "user is a set"]
        assert {**await own(target)} == {b"plan": (b"string", -1, b"free")}


async def test_the_migrated_application_wins() -> None:
    async with connect("memory://") as source, connect("memory://") as target:
        ends_ms = await now_ms(source) + DAY_MS
        await source.run([("SET", f"sess:{n}", n, "PXAT", ends_ms) for n in range(10)])
        async with following(source, target) as moving:
            await moving.in_step()
            # Some instances have moved: a login, a visit that prolongs a session, a change of one, and a logout.
            await target.run([("SET", "sess:login", "theirs"), ("PEXPIREAT", "sess:1", ends_ms + DAY_MS)])
            await target.run([("SET", "sess:2", "theirs"), ("DEL", "sess:3")])
            theirs = await own(target)
            # And some have not: they prolong and change the same sessions, and end one.
            await source.run([("PEXPIREAT", f"sess:{n}", ends_ms + 7) for n in (1, 2, 3)])
            await source.run([("SET", "sess:3", "alive?", "KEEPTTL"), ("SET", "sess:4", "new"), ("DEL", "sess:5")])
            await moving.in_step()
            await source.run([("DEL", "sess:1"), ("DEL", "sess:2"), ("SET", "sess:3", "still?", "KEEPTTL")])
            await moving.in_step()
            copied = await moving.ended()
        del theirs[b"sess:5"]
        assert await own(target) == {**theirs, b"sess:4": (b"string", -1, b"new")}
        assert (copied.deleted_there, copied.is_whole) == (1, True)
        assert copied.examples == {"deleted_there": ["sess:3"]}


async def test_a_logout_at_the_target_is_not_undone_by_an_unchanged_session() -> None:
    async with connect("memory://") as source, connect("memory://") as target:
        await source.run([("SET", "sess:1", "1"), ("SET", "sess:2", "1")])
        async with following(source, target) as moving:
            await moving.in_step()
            await target.run([("DEL", "sess:1")])
            await moving.in_step()
            copied = await moving.ended()
        assert await own(target) == {b"sess:2": (b"string", -1, b"1")}
        assert copied.verified is not None
        assert (copied.verified.changed_there, copied.verified.compared.differences) == (1, 0)


async def test_overwrite_replaces_in_the_first_pass_only() -> None:
    async with connect("memory://") as source, connect("memory://") as target:
        await source.run([("SET", "before", "1")])
        await target.run([("SET", "before", "theirs")])
        async with following(source, target, overwrite=True) as moving:
            await moving.in_step()
            assert await target.run([("GET", "before")]) == [b"1"]
            await target.run([("SET", "later", "theirs")])
            await source.run([("SET", "later", "1")])
            await moving.in_step()
            copied = await moving.ended()
        assert await target.run([("GET", "later")]) == [b"theirs"]
        assert (copied.written, copied.in_the_way) == (1, 1)


async def test_a_restarted_target_is_retried(tmp_path: Path) -> None:
    with servers.valkey("--appendonly", "yes") as server:
        async with connect("memory://") as source, connect(f"{server.url}?timeout=1s&connect_timeout=1s") as target:
            await source.run([("SET", f"sess:{n}", n) for n in range(300)])
            async with following(source, target) as moving:
                await moving.in_step()
                server.stop()
                await source.run([("SET", "sess:1", "meanwhile")])
                trouble = await asyncio.wait_for(moving.troubles.get(), 30)
                assert "127.0.0.1" in str(trouble)
                server.start()
                await moving.in_step()
                copied = await moving.ended()
            assert copied.is_whole
            assert await own(target) == await contents(source)


async def test_an_outage_in_the_first_pass_ends_the_copy_which_resumes_later() -> None:
    async with connect("memory://") as source, connect("memory://") as target:
        await source.run([("SET", f"sess:{n}", n) for n in range(900)])
        run = target.run
        left = 10

        async def away(commands: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreUnavailable("the server is away")
            return await run(commands)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, "run", away)
            async with following(source, target) as moving:
                with pytest.raises(StoreUnavailable):
                    await moving.task
        arrived = len(await own(target))
        assert arrived < 900
        async with following(source, target) as moving:
            await moving.in_step()
            copied = await moving.ended()
        assert (copied.resumed, copied.written) == (True, 900 - arrived)
        assert await own(target) == await contents(source)
