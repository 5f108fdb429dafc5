"""A process that sends one token many times at once: `python -m … URL TOKEN COUNT`."""

import asyncio
import sys
import time

from keystead import connect
from keystead.parts.refresh import RotationRefused
from tests.parts.refresh.conftest import App


async def main(url: str, token: str, count: int) -> None:
    async with connect(url) as store:
        app = App(store, lambda: time.time_ns() // 1_000_000)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for found in await asyncio.gather(*(app.tokens.rotate(token) for _ in range(count))):
            print(type(found).__name__, "" if isinstance(found, RotationRefused) else found.token, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
