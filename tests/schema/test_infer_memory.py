"""`infer` on large values: what it holds does not grow with them."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.schema.infer import Inferred, infer
from tests.real_servers import redis_server

__all__ = ["redis_server"]

_MB = 1_000_000
_KEYS = 60


def commands(large: int) -> list[tuple[Any, ...]]:
    """Values of each kind with this many bytes: JSON, bytes, and entries of hashes, lists, sets and streams."""
    text = "x" * large
    found: list[tuple[Any, ...]] = []
    for at in range(_KEYS):
        article = {"title": f"Title {at}", "words": at, "body": text}
        found += [
            ("SET", f"article:{at}", json.dumps(article)),
            ("SET", f"picture:{at}", b"\xff\xd8" + bytes(large)),
            ("HSET", f"page:{at}", "title", f"Title {at}", "body", text),
            ("RPUSH", f"queue:{at}", text),
            ("SADD", f"tags:{at}", text),
        ]
    return found


async def measured(store: Store, large: int) -> tuple[Inferred, int]:
    """The draft of a store with these values, and the most memory that it took."""
    for one in commands(large):
        await store.run([one])
    await infer(store)  # imports and caches
    tracemalloc.start()
    try:
        found = await infer(store, every_key=True)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def types_of(found: Inferred) -> dict[str, tuple[str, str]]:
    return {one.name: (one.kind, one.value) for one in found.draft.families}


EXPECTED = {
    "article": ("Value", "Article"),
    "picture": ("Value", "bytes"),
    "page": ("Hash", "Page"),
    "queue": ("List", "str"),
    "tags": ("Set", "str"),
}


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("redis", marks=pytest.mark.matrix)])
def test_memory_does_not_grow_with_the_size_of_values(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    if engine == "redis":
        server = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        url = server.url

    async def look() -> None:
        async with connect(url) as store:
            small, small_most = await measured(store, 1_000)
            assert types_of(small) == EXPECTED
            large, large_most = await measured(store, 400_000)
            # 120 MB of values; a round trip may hold four, and a few copies of the largest.
            assert large_most < small_most + 20 * _MB, (small_most, large_most)
            assert {name: kind for name, (kind, _) in types_of(large).items()} == {
                name: kind for name, (kind, _) in EXPECTED.items()
            }

    asyncio.run(look())
