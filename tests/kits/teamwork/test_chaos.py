"""Kills and outages: each notice is in the table once, on the stream once and in order, and in Slack."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.chaos import check, endure, fake_slack, follow_through_kills
from tests import servers
from tests.servers import Server

EVENTS, READERS, KILLS = 600, 6, 5


@pytest.fixture
def bus() -> Iterator[Server]:
    """A Redis that loses nothing when it is killed."""
    with servers.redis("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.mark.matrix
async def test_five_kills_and_an_outage_lose_duplicate_and_reorder_no_notice(bus: Server, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/office.tables.db"
    async with fake_slack() as slack:
        await endure(bus, database, slack, events=EVENTS, readers=READERS, kills=KILLS)
    failed = await check(bus, database, slack, events=EVENTS, readers=READERS)
    assert min(slack.said[429], slack.said[500]) > 5
    assert failed > 10


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["redis", "sqlite"])
async def test_reconnecting_readers_get_each_notice_once_in_order_through_five_kills_of_two_servers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue("bus").url if kind == "redis" else f"sqlite:///{tmp_path}/office.db"
    followers = await follow_through_kills(tmp_path, url, events=EVENTS, readers=READERS, kills=KILLS)
    assert sum(one.connections for one in followers) > EVENTS // 40
