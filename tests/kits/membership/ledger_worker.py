"""A process that records usage concurrently with another.

    python -m tests.kits.membership.ledger_worker URL FIRST LAST

It records the events FIRST to LAST, 10 tokens each, all at once, and prints what each was paid with.
"""

import asyncio
import json
import sys
from dataclasses import asdict

from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.parts.tables import open_tables

NOW_MS = 1_790_000_025_000  # 2026-09-21 in UTC
LIMITS: dict[Plan, int] = {"Free": 0, "Pro": 100, "Premium": 200, "Ultimate": 500}


async def work(url: str, first: int, last: int) -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with open_tables(url, MEMBERSHIP_TABLES) as tables:
        ledger = Ledger(tables, LIMITS)
        recorded = await asyncio.gather(
            *(ledger.record_usage("42", "Pro", f"event-{at}", 10, NOW_MS) for at in range(first, last))
        )
    print(json.dumps([asdict(one) for one in recorded]))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
