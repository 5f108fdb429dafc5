"""A process that visits, likes, scores and posts beside another.

    python worker.py STORE-URL NUMBER COUNTER LIKE RANKING BOARD

Its number is 0 or 1. It ends with 0 where everything went well.
"""

import asyncio
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from keystead import connect
from tests.kits.widgets.opened import service_on, somebody


async def work(url: str, number: int, counter: str, like: str, ranking: str, board: str) -> None:
    async with connect(url) as store:
        widgets = service_on(store)
        await asyncio.gather(*(widgets.counters.increment(counter, somebody(one % 50)) for one in range(100)))
        await asyncio.gather(*(widgets.likes.toggle(like, somebody(one)) for one in range(50)))
        own = range(number, 60, 2)
        await asyncio.gather(*(widgets.rankings.submit(ranking, somebody(one), f"n{one}", one) for one in own))
        who = [somebody(1000 * (number + 1) + one) for one in range(40)]
        await asyncio.gather(*(widgets.boards.post(board, one, f"{number}: {at:02}") for at, one in enumerate(who)))


if __name__ == "__main__":
    url, number, *ids = sys.argv[1:]
    asyncio.run(work(url, int(number), *ids))
