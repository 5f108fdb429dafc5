"""A process of the teamwork kit that publishes events, and may be killed at any moment.

    python -m bench.office STORE DATABASE SLACK EVENTS READERS

It publishes the events 0 to EVENTS, each for one of READERS, and prints its progress. It waits until all of them are on
the stream and in Slack, then prints `done`. A restart publishes all of them again; duplicates are ignored.
"""

from __future__ import annotations

import asyncio
import sys

from keystead import KeyRing, connect
from keystead.errors import StoreError
from keystead.kits.kit import Site
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.service import (
    TEAMWORK_TABLES,
    Assigned,
    Teamwork,
    TeamworkSettings,
    WorkItem,
    open_teamwork,
)
from keystead.kits.teamwork.service.relay import SLACK
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxPolicy
from keystead.parts.tables import open_tables

RING = KeyRing({"test": b"k" * 32})
AT_ONCE = 16
HURRY = OutboxPolicy(
    first_retry="50ms",
    longest_retry="500ms",
    give_up_after="30d",
    most_waiting=100_000,
    lease="2s",
    send_within="1s",
    look_every="200ms",
)


def event(number: int, readers: int) -> Assigned:
    user = number % readers + 1
    item = WorkItem(ref_type="WORK_REQUEST", ref_id=number, title=f"event {number}", assignee_id=user)
    return Assigned(id=f"event-{number}", item=item)


async def tell_all(teamwork: Teamwork, events: int, readers: int) -> None:
    told = 0
    numbers = iter(range(events))

    async def teller() -> None:
        nonlocal told
        for number in numbers:
            await teamwork.tell(event(number, readers))
            told += 1
            if told % 50 == 0:
                print(told, flush=True)

    await asyncio.gather(*(teller() for _ in range(AT_ONCE)))


async def wait_for_all(teamwork: Teamwork, outbox: Outbox, readers: int) -> None:
    while True:
        try:
            if not await teamwork.notices.behind():
                states = [await outbox.state(SLACK, str(user)) for user in range(1, readers + 1)]
                if not any(state.waiting for state in states):
                    return
        except StoreError:
            pass
        await asyncio.sleep(0.05)


async def work(store_url: str, database: str, slack: str, events: int, readers: int) -> None:
    settings = TeamworkSettings(slack_token="xoxb", slack_channel="C1", slack_post_url=slack)
    async with connect(store_url) as store, open_tables(database, TEAMWORK_TABLES) as tables:
        keys = TeamworkKeys(store, seal=RING)
        site = Site("http://x", "http://x", True, keys.now_ms, lambda *_, **__: "", tables=tables)
        async with open_teamwork(keys, settings, site, slack_policy=HURRY) as teamwork:
            await tell_all(teamwork, events, readers)
            await wait_for_all(teamwork, Outbox(OutboxKeys(store), _never), readers)
    print("done", flush=True)


async def _never(_: object) -> None:
    raise AssertionError


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
