"""Staleness of near reads: how long another process still reads an ended session, as a histogram."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from bisect import bisect_left
from collections import Counter

from bench import serving
from bench.measure import Progress, Row, Target
from keystead.integrations.asgi import session_keys
from keystead.parts.sessions import Live, Policy, SessionRecord, Sessions
from keystead.stores import Store, connect
from tests import servers

BOUND_MS = 1_000
REVOCATIONS, REVOCATIONS_QUICK = 10_000, 50
READERS = 8  # of other sessions, to keep both processes busy
EDGES_MS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 50, 100, BOUND_MS)
_NEAR = Policy(idle="1h", absolute="24h", cap=None, near=f"{BOUND_MS}ms")


def sessions_in(store: Store, policy: Policy = _NEAR) -> Sessions[SessionRecord]:
    keys = session_keys(SessionRecord, policy)(store)
    return Sessions(keys.session, policy)


async def run(progress: Progress, *, quick: bool) -> list[Row]:
    with servers.redis() as redis:
        return await _measure(redis.url, REVOCATIONS_QUICK if quick else REVOCATIONS, progress)


async def _measure(url: str, count: int, progress: Progress) -> list[Row]:
    """This process reads; another ends the sessions, and reports when. Both share a clock."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.staleness", url, cwd=serving.ROOT, stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stale_ms: list[float] = []
    async with connect(url) as store:
        sessions = sessions_in(store)
        others = [(await sessions.create(SessionRecord(uid=f"reader-{n}"))).token for n in range(READERS)]
        reading = [asyncio.create_task(_read_on(sessions, token)) for token in others]
        with progress.activity("web · revocations", count) as advance:
            for n in range(count):
                token = (await sessions.create(SessionRecord(uid=f"user-{n}"))).token
                while not isinstance(await sessions.read(token), Live):
                    raise RuntimeError("a new session is not alive")
                await sessions.read(token)
                process.stdin.write(f"{token}\n".encode())
                answer = asyncio.ensure_future(process.stdout.readline())
                last = 0
                while True:
                    began = time.monotonic_ns()
                    if not isinstance(await sessions.read(token), Live):
                        break
                    last = began
                    await asyncio.sleep(0)
                ended = int(await answer)
                stale_ms.append(max(0, last - ended) / 1e6)
                advance()
        for task in reading:
            task.cancel()
        near = store.near
        assert near is not None
        hit_rate = near.hits / (near.hits + near.misses)
    process.stdin.close()
    await process.wait()
    buckets = Counter(bisect_left(EDGES_MS, one) for one in stale_ms)
    shape = ", ".join(f"≤{edge:g} ms: {buckets[place]:,}" for place, edge in enumerate(EDGES_MS) if buckets[place])
    return [
        Row("web, near reads", f"longest stale read after {count:,} revocations elsewhere", max(stale_ms), "ms",
            Target("at most", BOUND_MS), note=shape),
        Row("web, near reads", "median stale read", statistics.median(stale_ms), "ms", note=f"{hit_rate:.0%} hits"),
    ]  # fmt: skip


async def _read_on(sessions: Sessions[SessionRecord], token: str) -> None:
    while True:
        await sessions.read(token)
        await asyncio.sleep(0.0005)


async def _revoke(url: str) -> None:
    async with connect(url) as store:
        sessions = sessions_in(store, Policy(idle="1h", absolute="24h", cap=None))
        while line := await asyncio.to_thread(sys.stdin.readline):
            await sessions.revoke(line.strip())
            print(time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    asyncio.run(_revoke(sys.argv[1]))
