"""A process that opens tables, and adds 1 to a thing this many times.

    python worker.py URL TIMES

It prints `ready` before it opens them, and waits for a line.
"""

import asyncio
import sys

from sqlalchemy import Connection, select, update

from keystead.parts.tables import insert_new, open_tables
from tests.parts.tables.things import TEST_TABLES, THINGS


def add_one(connection: Connection) -> None:
    """Read, then write: concurrent increments would be lost without the lock."""
    insert_new(connection, THINGS, {"name": "a", "number": 0})
    at = THINGS.c.name == "a"
    number = connection.execute(select(THINGS.c.number).where(at).with_for_update()).scalar_one()
    connection.execute(update(THINGS).where(at).values(number=number + 1))


async def work(url: str, times: int) -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with open_tables(url, TEST_TABLES) as tables:
        await asyncio.gather(*(tables.write(add_one) for _ in range(times)))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))
