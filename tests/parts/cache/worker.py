"""A process with a cache, for the tests: `python -m tests.parts.cache.worker URL FILE REQUESTS LOADING`.

It sends this many concurrent requests, and writes a line to the file for each event. The provider responds when there
is a file of the same name with the suffix `.go`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

from keystead import Keyspace, Value, after, connect
from keystead.parts.cache import Cache, LoadMarkers


def wait_for(file: Path) -> None:
    while not file.exists():
        threading.Event().wait(0.01)


async def main(url: str, file: str, requests: str, loading: str) -> None:
    class WorkerKeys(Keyspace):
        """What the processes share."""

        plan = Value("plan:{id:int}", str, lifetime=after("1h"), role="cache", tag="id", doc="a plan")
        mark = LoadMarkers("plan:{id:int}:mark", loading=loading, tag="id")

    def note(*words: object) -> None:
        line = " ".join(map(str, (*words, os.getpid()))) + "\n"
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode())
        os.close(handle)

    async def load() -> str:
        note("asked")
        await asyncio.to_thread(wait_for, Path(f"{file}.go"))
        return f"Pro of {os.getpid()}"

    async with connect(url) as store:
        keys = WorkerKeys(store)
        async with Cache(keys.plan, keys.mark, store_down="raise") as cache:
            asking = [asyncio.create_task(cache.get(keys.plan(7), load)) for _ in range(int(requests))]
            await asyncio.sleep(0)
            note("began")
            answers = await asyncio.gather(*asking)
    note("ended", len(answers), len(set(answers)), str(answers[0]).split()[-1])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
