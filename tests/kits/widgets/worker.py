"""A process that visits, likes, scores and posts beside another.

    python worker.py STORE-URL NUMBER COUNTER LIKE RANKING BOARD

Its number is 0 or 1. It ends with 0 where everything went well.
"""

import asyncio
import sys
import time
from typing import Any, cast

from keystead import KeyRing, connect
from keystead.kits.kit import Site
from keystead.kits.widgets import WidgetKeys, Widgets, WidgetSettings
from keystead.kits.widgets.service import LIMITS, Visitor

RING = KeyRing({"test": b"k" * 32})  # the same as in `opened`: visitor hashes depend on it


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def somebody(number: int) -> Visitor:
    return Visitor(f"10.0.{number // 256}.{number % 256}", "a browser")


async def work(url: str, number: int, counter: str, like: str, ranking: str, board: str) -> None:
    async with connect(url) as store:
        site = Site("http://127.0.0.1", "http://127.0.0.1", True, now_ms, lambda *_, **__: "")
        settings = WidgetSettings(limits=dict.fromkeys(LIMITS, 0))
        widgets = Widgets(WidgetKeys(store, seal=RING), settings, site, cast("Any", None))
        await asyncio.gather(*(widgets.counters.increment(counter, somebody(one % 50)) for one in range(100)))
        await asyncio.gather(*(widgets.likes.toggle(like, somebody(one)) for one in range(50)))
        own = range(number, 60, 2)
        await asyncio.gather(*(widgets.rankings.submit(ranking, somebody(one), f"n{one}", one) for one in own))
        who = [somebody(1000 * (number + 1) + one) for one in range(40)]
        await asyncio.gather(*(widgets.boards.post(board, one, f"{number}: {at:02}") for at, one in enumerate(who)))


if __name__ == "__main__":
    url, number, *ids = sys.argv[1:]
    asyncio.run(work(url, int(number), *ids))
