"""A program that forks after its first hit: both processes hit one sliding window. It prints what is left."""

import asyncio
import os
import sys

from keystead import Keyspace, SortedSet, connect, sliding
from keystead.parts.limit import SlidingWindow

HITS = 20


class Keys(Keyspace):
    log = SortedSet("limit:log:{client}", str, lifetime=sliding("2m", touch_every="1s"))


async def hit(url: str) -> int:
    async with connect(url) as store:
        limit = SlidingWindow(Keys(store).log, "100/minute")
        for _ in range(HITS):
            verdict = await limit.hit("ann")
        return verdict.remaining


if __name__ == "__main__":
    asyncio.run(hit(sys.argv[1]))
    child = os.fork()
    if child == 0:
        asyncio.run(hit(sys.argv[1]))
        os._exit(0)
    os.waitpid(child, 0)
    print(asyncio.run(hit(sys.argv[1])))
