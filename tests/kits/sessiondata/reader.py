"""A process that reads a read-once value concurrently with another one.

    python reader.py STORE-URL SESSION-ID TIMES

It waits for a line on standard input, so that both start together, and prints how often it got the value.
"""

import asyncio
import sys

from keystead import connect
from keystead.kits.sessiondata import SessionData, SessionDataKeys


async def work(url: str, session_id: str, times: int) -> int:
    async with connect(url) as store:
        data = SessionData(SessionDataKeys(store))
        print("ready", flush=True)
        sys.stdin.readline()
        found = await asyncio.gather(*(data.session(session_id).get("Message") for _ in range(times)))
    assert set(found) <= {None, "saved"}
    return found.count("saved")


if __name__ == "__main__":
    url, session_id, times = sys.argv[1:]
    print(asyncio.run(work(url, session_id, int(times))))
