"""The paced scan: how `doctor`, `show`, `infer` and `watch` walk through all keys of a store without holding it up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any

from keystead.schema.pace import Pace
from keystead.stores import Store


async def paced_scan(
    store: Store, glob: str, pace: Pace, *, page: int, limit_s: float | None = None
) -> AsyncGenerator[Sequence[bytes] | None, None]:
    """The keys that match, in pieces that are small enough to be worked on at once. Others have a turn after each.

    After about `limit_s`, None and no more. As in any scan, a key that is created or deleted meanwhile may or may not
    be in it, and one may come twice on stores that move keys during a scan.
    """
    async with aclosing(pages_within(store.scan(glob, page=page), limit_s)) as pages:
        async for keys in pages:
            if keys is None:
                yield None
                return
            for some in pace.pieces(keys):
                yield some
                await pace.turn()


async def pages_within(
    pages: AsyncIterator[list[bytes]], limit_s: float | None
) -> AsyncGenerator[list[bytes] | None, None]:
    """The pages of a scan; after `limit_s`, None and no more. The scan is closed."""
    ends_at = None if limit_s is None else monotonic() + limit_s
    scan: Any = pages  # every store returns a generator
    async with aclosing(scan):
        async for keys in scan:
            yield keys
            if ends_at is not None and monotonic() > ends_at:
                yield None
                return
