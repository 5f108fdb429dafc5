"""Whatever is killed or away: each notice is in the table once, on the stream once and in order, and in Slack."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.chaos import check, endure, fake_slack
from keystead.testing import servers
from keystead.testing.servers import Server

EVENTS, READERS, KILLS = 600, 6, 5


@pytest.fixture
def bus() -> Iterator[Server]:
    """A Redis that forgets nothing when it is killed."""
    with servers.redis("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.mark.matrix
async def test_through_five_kills_and_an_outage_each_notice_comes_once_and_in_order(
    bus: Server, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path}/office.tables.db"
    async with fake_slack() as slack:
        await endure(bus, database, slack, events=EVENTS, readers=READERS, kills=KILLS)
    failed = await check(bus, database, slack, events=EVENTS, readers=READERS)
    assert min(slack.said[429], slack.said[500]) > 5
    assert failed > 10
