"""Programs that the tests run as separate processes: `python -m tests.stores.database.programs NAME ARGUMENTS`."""

import asyncio
import os
import sys

from keystead import connect
from tests.stores.database.others import next_version


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def increments(url: str, count: str) -> None:
    """Opens when all have started, and increments repeatedly, in several tasks."""
    tell("ready")
    sys.stdin.readline()
    async with connect(url) as store:

        async def add() -> None:
            for turn in range(int(count)):
                await store.run([("INCRBY", "total", 1), ("HINCRBY", "totals", "all", 1)])
                await store.atomically([("INCRBY", f"shared:{turn % 3}", 1), ("INCRBY", f"shared:{turn % 2}", 1)])

        await asyncio.gather(*(add() for _ in range(6)))


async def upgrades(url: str) -> None:
    """Upgrades the tables when all have started, and reads the old data."""
    store = next_version(url)
    tell("ready")
    sys.stdin.readline()
    plan = await store.upgrade()
    async with store:
        held = await store.run([("GET", "a"), ("HGET", "h", "f")])
    tell(f"{[change.version for change in plan.changes]} since {plan.found}, has {' '.join(v.decode() for v in held)}")


async def publishes(url: str, count: str) -> None:
    async with connect(url) as store:
        for number in range(int(count)):
            [heard] = await store.run([("PUBLISH", "news", f"{number}:" + "x" * (number * 1_000))])
            tell(str(heard))


async def forgets(url: str) -> None:
    """Opens, writes, and ends without closing."""
    store = connect(url)
    await store.open()
    await asyncio.gather(*(store.run([("SET", f"k{n}", n)]) for n in range(20)))
    await store.subscribe("news").__aenter__()
    tell("ends")


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
