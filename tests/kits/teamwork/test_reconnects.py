"""Reconnecting with `Last-Event-ID` during a burst: each notice once and in order, without false gaps."""

import asyncio
import random

import pytest
from sqlalchemy import delete

from bench.streams import Follower
from keystead import KeyRing, connect
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
from keystead.kits.teamwork.service.relay import to_notification
from keystead.kits.teamwork.service.tables import NOTICES
from keystead.kits.teamwork.stream import stream_notices
from keystead.parts.tables import open_tables
from tests.kits.teamwork.test_stream import Office, office, redis_server, server

__all__ = ["office", "redis_server", "server"]

READERS, EACH = 10, 150


async def test_reconnecting_during_a_burst_gives_each_notice_once_in_order_without_false_gaps(
    office: Office,
) -> None:
    users = range(1, READERS + 1)
    await office.hire(*users)
    followers = [Follower([office.server.port], office.token(user), random.Random(user)) for user in users]
    async with asyncio.timeout(90):
        reading = [asyncio.ensure_future(one.follow(EACH)) for one in followers]
        await asyncio.gather(*(office.tell(user, *range(EACH)) for user in users))
        await asyncio.gather(*reading)
    assert [one.others for one in followers] == [[]] * READERS
    assert [one.notices for one in followers] == [[(place, place - 1) for place in range(1, EACH + 1)]] * READERS


async def _nobody(*, most: int = 0) -> dict[int, int]:
    return {}


async def _begins(teamwork: Teamwork, after: int | None, count: int) -> list[str]:
    """The first events of a stream, as `kind id`."""

    async def still() -> bool:
        return True

    found: list[str] = []
    events = await stream_notices(teamwork.streams, 1, after, still)
    async with asyncio.timeout(60):
        async for portion in events:
            for block in portion.decode().split("\n\n"):
                lines = dict(line.split(": ", 1) for line in block.splitlines())
                if "event" in lines:
                    found.append(f"{lines['event']} {lines['id']}")
            if len(found) >= count:
                break
    await events.aclose()
    return found


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_stream_resumes_at_its_place_while_the_table_lags_behind_the_log(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = "memory://"
    if kind == "redis":
        redis = request.getfixturevalue("redis_server")
        redis.ask("FLUSHALL")
        url = redis.url
    async with connect(url) as store, open_tables("memory://", TEAMWORK_TABLES) as tables:
        keys = TeamworkKeys(store, seal=KeyRing({"test": b"k" * 32}))
        site = Site("http://x", "http://x", True, keys.now_ms, lambda *_, **__: "", tables=tables)
        async with open_teamwork(keys, TeamworkSettings(), site) as teamwork:
            # Nothing is published except by this test.
            teamwork.relay = None
            teamwork.notices.behind = _nobody  # type: ignore[method-assign]
            for number in range(5):
                item = WorkItem(ref_type="DEFECT", ref_id=number, title="", assignee_id=1)
                await teamwork.tell(Assigned(id=f"e{number}", item=item))
            behind = (await teamwork.notices.unpublished([1]))[1].notices
            # All but the newest are published, which the table does not record yet.
            await teamwork.feed.put(keys.notice_log(1), {one.place: to_notification(one) for one in behind[:4]})
            assert await _begins(teamwork, 0, 5) == ["hello 0", "notice 1", "notice 2", "notice 3", "notice 4"]
            assert await _begins(teamwork, 3, 2) == ["hello 3", "notice 4"]
            assert await _begins(teamwork, 4, 1) == ["hello 4"]
            assert await _begins(teamwork, None, 1) == ["hello 4"]
            assert await _begins(teamwork, 99, 2) == ["hello 4", "missed 4"]  # a place that never existed
            # Notices that were deleted before they were published are not reported as missed.
            for number in range(5, 8):
                item = WorkItem(ref_type="DEFECT", ref_id=number, title="", assignee_id=1)
                await teamwork.tell(Assigned(id=f"e{number}", item=item))
            [*_, newest] = (await teamwork.notices.unpublished([1]))[1].notices
            await teamwork.feed.put(keys.notice_log(1), {8: to_notification(newest)})
            assert await _begins(teamwork, 4, 3) == ["hello 4", "missed 7", "notice 8"]
            gone = delete(NOTICES).where(NOTICES.c.place.in_([5, 6, 7]))
            await tables.write(lambda connection: connection.execute(gone))
            assert await _begins(teamwork, 4, 2) == ["hello 4", "notice 8"]
