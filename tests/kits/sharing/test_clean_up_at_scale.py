"""Ten thousand expired links, failing deletes, crashes, two processes: nothing is lost or counted twice."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from keystead import connect
from keystead.kits.sharing import EdgeMeta, SharingKeys
from keystead.schema.times import moment
from tests import forking
from tests.kits.sharing import cleaning
from tests.schema.conftest import redis_server, store_url
from tests.serving import environment

__all__ = ["redis_server", "store_url"]

ROOT = Path(__file__).parents[3]
LIVE = 100
DAY_MS = 86_400_000
AT_ONCE = 500


@asynccontextmanager
async def expired_and_live(url: str, folder: Path, expired: int) -> AsyncIterator[SharingKeys]:
    """A store with expired and live uploads, each with its file."""
    async with connect(url) as store:
        keys = SharingKeys(store, seal=cleaning.RING)
        now_ms = keys.now_ms()
        for number in range(expired + LIVE):
            (folder / f"file-{number}").write_bytes(b"x")
        for at in range(0, expired + LIVE, AT_ONCE):
            numbers = range(at, min(at + AT_ONCE, expired + LIVE))
            await asyncio.gather(*(upload(keys, number, now_ms, number < expired) for number in numbers))
        yield keys


async def upload(keys: SharingKeys, number: int, now_ms: int, is_expired: bool) -> None:
    # Many expire at one moment, so that pages of the index cannot go by the score alone.
    expires_ms = now_ms - DAY_MS + number // 250 if is_expired else now_ms + DAY_MS
    id, path = f"id{number}", f"file-{number}"
    meta = EdgeMeta(id=id, pathname=path, expires_at=moment(expires_ms))
    assert await keys.atomically(keys.meta(id).add(meta), keys.file(path).add(id).required())


class Process:
    """A clean-up process and its output."""

    def __init__(self, url: str, folder: Path) -> None:
        self.output = TemporaryFile("w+")  # noqa: SIM115 - closed below
        with open(os.devnull, "r+") as nothing:
            streams = nothing, self.output, sys.__stderr__ or nothing
            self.command = forking.start_module(cleaning.__name__, (url, str(folder)), ROOT, environment(), *streams)

    def lines(self) -> list[dict[str, int]]:
        self.output.seek(0)
        return [json.loads(line) for line in self.output if line.endswith("\n")]

    def close(self) -> None:
        self.command.kill()
        self.command.wait()
        self.output.close()


@pytest.mark.parametrize(
    ("store_url", "expired"),
    [pytest.param("redis", 10_000, marks=pytest.mark.matrix, id="redis"), pytest.param("sqlite", 300, id="sqlite")],
    indirect=["store_url"],
)
async def test_at_the_end_nothing_expired_is_left_and_nothing_live_is_touched(
    store_url: str, expired: int, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    async with expired_and_live(store_url, files, expired) as keys:
        processes = [Process(store_url, files), Process(store_url, files)]
        try:
            for dies, left in ((0, expired * 3 // 4), (1, expired // 2)):
                await less_than(keys, left + LIVE)
                processes[dies].command.kill()
                processes.append(Process(store_url, files))
            for one in processes[2:]:
                assert await asyncio.to_thread(one.command.wait, 240) == 0
            assert [one.command.poll() for one in processes] == [-9, -9, 0, 0]
            lines = [line for one in processes for line in one.lines()]
        finally:
            for one in processes:
                one.close()

        live = {f"id{number}" for number in range(expired, expired + LIVE)}
        assert {id for id, _ in await keys.index().lowest(expired + LIVE)} == live
        assert {key.values["id"] async for key in keys.meta.scan()} == live
        assert {str(key.values["path"]) async for key in keys.file.scan()} == {f"file-{id[2:]}" for id in live}
        assert {path.name for path in files.iterdir()} == {f"file-{id[2:]}" for id in live}
        assert [key async for key in keys.retry.scan()] == []

        # Each was deleted once, also by those that died before they could say so.
        deleted = [entry.item.what for entry in await keys.audit().entries() if entry.item.event == "link-deleted"]
        assert len(deleted) == expired
        assert set(deleted) == {f"id{number}" for number in range(expired)}
        # And what was said adds up.
        for line in lines:
            assert line["scanned"] == line["deleted"] + line["missingMeta"] + line["skipped"]
            assert line["missingMeta"] == 0
        assert 0 < sum(line["deleted"] for line in lines) <= expired
        assert any(line["failed"] for line in lines)


async def less_than(keys: SharingKeys, count: int) -> None:
    """Wait until the index has fewer entries."""
    while await keys.index().count() >= count:
        await asyncio.to_thread(threading.Event().wait, 0.02)
