"""Whatever is killed or away: each notice is in the table once, on the stream once and in order, and in Slack."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from keystead.kits.teamwork.service.tables import NOTICES, SLACK_LOG, TEAMWORK_TABLES
from keystead.parts.tables import open_tables
from keystead.testing import servers
from keystead.testing.servers import Server
from tests.kits.teamwork.chaos import FakeSlack, endure
from tests.parts.oauth.stand_in import stand_in

EVENTS, READERS, KILLS = 600, 6, 5


@pytest.fixture
def bus() -> Iterator[Server]:
    """A Redis that forgets nothing when it is killed."""
    with servers.redis("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.mark.xdist_group("redis")
async def test_through_five_kills_and_an_outage_each_notice_comes_once_and_in_order(
    bus: Server, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path}/office.tables.db"
    async with stand_in() as server:
        slack = FakeSlack(server)
        await endure(bus, database, slack, events=EVENTS, readers=READERS, kills=KILLS)
    async with open_tables(database, TEAMWORK_TABLES) as tables:
        rows = await tables.read(
            lambda connection: connection.execute(
                select(NOTICES.c.id, NOTICES.c.user_id, NOTICES.c.place, NOTICES.c.event_id, NOTICES.c.slack_sent)
            ).all()
        )
        logged = await tables.read(
            lambda connection: connection.execute(
                select(func.count()).select_from(SLACK_LOG).where(SLACK_LOG.c.status == "FAILED")
            ).scalar_one()
        )
    assert sorted(row.event_id for row in rows) == sorted(f"event-{number}" for number in range(EVENTS))
    for user in range(1, READERS + 1):
        entries = bus.ask("XRANGE", f"notifications:user:{user}:log", "-", "+")
        shown = [(entry_id, json.loads(fields[1])["notificationId"]) for entry_id, fields in entries]
        own = sorted((row.place, row.id) for row in rows if row.user_id == user)
        assert shown == [(b"%d-0" % place, number) for place, number in own]
        assert [place for place, _ in own] == list(range(1, EVENTS // READERS + 1))
    assert set(slack.posted) == {f"notice-{row.id}" for row in rows}
    assert all(row.slack_sent for row in rows)
    assert min(slack.said[429], slack.said[500]) > 5
    assert logged > 10
