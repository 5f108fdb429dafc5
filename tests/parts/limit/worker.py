"""A process whose clock is wrong, for the tests: `python -m tests.parts.limit.worker URL AHEAD_MS`.

When ready it prints a line, and waits for one. Then it sends 100 concurrent hits to each limit, and prints how many
were allowed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time


def set_clock(ahead_ms: int) -> None:
    """The clock of this process."""
    real_ns, real = time.time_ns, time.time
    time.time_ns = lambda: real_ns() + ahead_ms * 1_000_000
    time.time = lambda: real() + ahead_ms / 1000


async def main(url: str, names: list[str]) -> None:
    from keystead import connect
    from tests.parts.limit.conftest import LimitKeys, limit_of

    async with connect(url) as store:
        keys = LimitKeys(store)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        passed = {}
        for name in names:
            limit = limit_of(keys, name)
            passed[name] = sum(map(bool, await asyncio.gather(*(limit.hit("ann") for _ in range(100)))))
        print(json.dumps(passed), flush=True)


if __name__ == "__main__":
    set_clock(int(sys.argv[2]))
    asyncio.run(main(sys.argv[1], sys.argv[3:]))
