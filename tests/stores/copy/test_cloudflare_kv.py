"""Copies and backups from and to Cloudflare KV."""

from pathlib import Path

import pytest

from keystead import connect
from keystead.errors import DoesNotFit, StoreUnavailable
from keystead.stores.backup import BackupFile, backup, restore
from keystead.stores.copy import copy
from tests.servers import CloudflareServer
from tests.stores.backup.contents import DAY_MS, contents, now_ms
from tests.stores.copy.conftest import UrlOf, own

pytestmark = pytest.mark.anyio


async def test_strings_are_copied_with_their_deadlines_and_other_kinds_are_named(url_of: UrlOf) -> None:
    async with connect(url_of("sqlite")) as store, connect(url_of("cloudflare")) as other:
        ends_ms = await now_ms(store) + DAY_MS + 7
        await store.run([("SET", "a", "1", "PXAT", ends_ms), ("SET", b"b\xff", b"\x00\xff"), ("HSET", "h", "f", "1")])
        copied = await copy(store, other)
        assert (copied.written, copied.is_whole, copied.left_out.count) == (2, False, 1)
        [said] = copied.left_out.examples
        assert said.startswith("h is a hash, which cloudflare-kv://")
        looks = await other.run([("GET", "a"), ("PEXPIRETIME", "a"), ("GET", b"b\xff")])
        assert looks == [b"1", ends_ms, b"\x00\xff"]
        await store.run([("DEL", "h", b"b\xff"), ("SET", "a", "2", "PXAT", ends_ms + 1)])
        copied = await copy(store, other)
        assert (copied.written, copied.deleted, copied.is_whole) == (1, 1, True)
        assert await own(other) == await contents(store)


async def test_a_namespace_is_copied_to_another_store_with_its_deadlines(
    url_of: UrlOf, cloudflare_server: CloudflareServer
) -> None:
    async with connect(url_of("cloudflare")) as store, connect("memory://") as other:
        ends_ms = await now_ms(store) + DAY_MS + 123
        await store.run([(("SET", f"k{n}", n, "PXAT", ends_ms + n)) for n in range(120)])
        cloudflare_server.put("theirs", b"by a Worker")
        copied = await copy(store, other)
        assert (copied.written, copied.is_whole) == (121, True)
        assert await own(other) == await contents(store)


async def test_a_change_arrives_even_while_reads_lag_behind_what_the_copy_wrote(
    url_of: UrlOf, cloudflare_server: CloudflareServer
) -> None:
    """A stale read of the target must not pass for a change there, which a copy would leave alone."""
    async with connect(url_of("sqlite")) as store, connect(url_of("cloudflare")) as other:
        await store.run([("SET", "a", "1"), ("SET", "b", "1"), ("HSET", "h", "f", "1")])  # so that the notes are kept
        await copy(store, other)
        await store.run([("SET", "a", "2"), ("DEL", "b")])
        await copy(store, other)
        cloudflare_server.control(lagging=True)
        for value in ("3", "4"):
            await store.run([("SET", "a", value), ("SET", "b", value)])
            await copy(store, other)
        cloudflare_server.control(lagging=False)
        assert await other.run([("MGET", "a", "b")]) == [[b"4", b"4"]]


async def test_a_backup_of_a_namespace_restores_into_an_empty_one(
    url_of: UrlOf, cloudflare_server: CloudflareServer, here: Path
) -> None:
    async with connect(url_of("cloudflare")) as store:
        ends_ms = await now_ms(store) + DAY_MS + 123
        await store.run([("SET", "a", "1", "PXAT", ends_ms), ("SET", "b", b"\x00\xff"), ("SET", "c", "")])
        before = await contents(store)
        await backup(store, here / "keys.backup")
        cloudflare_server.empty()
        with BackupFile(here / "keys.backup") as file:
            await restore(store, file)
        assert {key: held for key, held in (await contents(store)).items() if key in before} == before


@pytest.mark.parametrize("applies", [False, True])
async def test_a_copy_whose_answer_was_lost_is_resumed(
    url_of: UrlOf, cloudflare_server: CloudflareServer, applies: bool
) -> None:
    async with connect(url_of("sqlite")) as store, connect(url_of("cloudflare")) as other:
        await store.run([("SET", f"k{n}", n, "PX", DAY_MS) for n in range(40)])
        # The first write is the marker of the copy.
        fault = {"kind": "PUT /bulk", "after": 1, "times": 1, "status": 502, "applies": applies}
        cloudflare_server.control(faults=[fault])
        with pytest.raises(StoreUnavailable, match="502"):
            await copy(store, other)
        copied = await copy(store, other)
        assert copied.is_whole
        assert await own(other) == await contents(store)


async def test_a_backup_with_other_kinds_is_refused_before_anything_is_written(url_of: UrlOf, here: Path) -> None:
    async with connect(url_of("sqlite")) as store, connect(url_of("cloudflare")) as other:
        await store.run([("SET", "a", "1"), ("SADD", "s", "1")])
        await backup(store, here / "keys.backup")
        with (
            BackupFile(here / "keys.backup") as file,
            pytest.raises(DoesNotFit, match="is a set, which cloudflare-kv://"),
        ):
            await restore(other, file)
        assert await contents(other) == {}
