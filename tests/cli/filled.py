"""Stores with keys of all kinds, for commands that move them."""

import asyncio
import json
import os
from typing import Any, Protocol

from keystead import Store, connect
from tests.cli.program import Program
from tests.stores.backup.contents import DAY_MS, contents, now_ms, some_of_everything

MANY = 4_000


class Process(Protocol):
    """A running command."""

    def poll(self) -> int | None: ...

    def communicate(self) -> tuple[str, str]: ...


def contents_of(url: str) -> dict[bytes, Any]:
    async def look() -> dict[bytes, Any]:
        async with connect(url) as store:
            return await contents(store)

    return asyncio.run(look())


def fill(url: str, keys: int = 0, size: int = 1_500) -> dict[bytes, Any]:
    """Write keys of all kinds, and this many incompressible sessions of this size. Returns all contents."""

    async def write() -> dict[bytes, Any]:
        async with connect(url) as store:
            ends_ms = await now_ms(store) + DAY_MS
            await store.run(some_of_everything(ends_ms))
            for start in range(0, keys, 1000):
                await store.run(
                    [
                        ("SET", f"sess:{number}", os.urandom(size), "PXAT", ends_ms + number)
                        for number in range(start, start + 1000)
                    ]
                )
            return await contents(store)

    return asyncio.run(write())


def other(program: Program) -> str:
    """A database that does not exist yet."""
    return f"sqlite:///{program.folder}/other.db"


def wait_for_keys(url: str, process: Process, *, noted: bool = False) -> None:
    """Wait until some keys are in the store; with `noted`, until the restore has recorded some."""

    async def is_on_its_way(store: Store) -> bool:
        [count] = await store.run([("DBSIZE",)])
        if count < MANY // 4 or not noted:
            return bool(count >= MANY // 4)
        journals = [key async for page in store.scan("keystead:restore:*") for key in page]
        said = await store.run([("GET", key) for key in journals])
        return any(json.loads(text)["keys"] for text in said if text)

    async def wait() -> None:
        async with connect(url) as store:
            while not await is_on_its_way(store):
                assert process.poll() is None
                await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(wait(), 60))
    assert process.poll() is None, process.communicate()
