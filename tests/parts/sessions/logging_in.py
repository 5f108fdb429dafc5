"""A process that logs a user in many times at once: `python -m … URL evict|refuse COUNT`."""

import asyncio
import sys

from keystead import connect
from keystead.errors import CapReached
from keystead.parts.sessions import Policy, Sessions
from tests.parts.sessions.conftest import RING, AppKeys, AppSession


async def main(url: str, at_cap: str, count: int) -> None:
    async with connect(url) as store:
        keys = AppKeys(store, seal=RING)
        policy = Policy(cap=3, at_cap=at_cap)  # type: ignore[arg-type]
        sessions = Sessions(keys.session, policy, successors=keys.successor, ends=keys.end)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def log_in() -> str:
            try:
                return (await sessions.create(AppSession(uid="ann"))).token
            except CapReached:
                return ""

        print(*filter(None, await asyncio.gather(*(log_in() for _ in range(count)))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
