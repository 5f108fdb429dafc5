"""Streams of a real server: delivery, replay, concurrency, and ends."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bench.streams import Stream, stream
from keystead import KeyRing, connect
from keystead.kits.kit import Site
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service import (
    TEAMWORK_TABLES,
    Assigned,
    Teamwork,
    TeamworkSettings,
    WorkItem,
    open_teamwork,
)
from keystead.parts.tables import open_tables
from tests.real_servers import redis_server
from tests.servers import Server
from tests.serving import Keystead, keystead_serving

__all__ = ["redis_server"]

SEAL = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
STREAMS, EACH = 300, 10


class Office:
    """A server, and this process of the same application, which reports events."""

    def __init__(self, server: Keystead, teamwork: Teamwork) -> None:
        self.server = server
        self.teamwork = teamwork

    def token(self, user: int) -> str:
        return self.teamwork.tokens.issue(str(user)).token

    async def hire(self, *users: int) -> None:
        for user in users:
            person = UserSession(name="u", email="u@example.com", role="DEVELOPER", team_id=3, team_role="MEMBER")
            await self.teamwork.people.save(user, person)

    async def tell(self, user: int, *numbers: int) -> None:
        for number in numbers:
            item = WorkItem(ref_type="DEFECT", ref_id=number, title=f"n{number}", assignee_id=user)
            await self.teamwork.tell(Assigned(id=f"{user}-{number}", item=item))

    @asynccontextmanager
    async def listening(self, user: int, *, after: int | None = None, small: bool = False) -> AsyncIterator[Stream]:
        async with stream(self.server.port, self.token(user), after=after, small=small) as opened:
            status, headers = await opened.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            assert (await opened.next()).kind == "hello"
            yield opened


async def numbers(opened: Stream, count: int) -> list[int]:
    """The item numbers of the next notices."""
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            one = await opened.next()
            assert one.kind == "notice", one
            found.append(json.loads(one.data)["refId"])
    return found


@pytest.fixture(params=["redis", pytest.param("sqlite", marks=pytest.mark.matrix)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keystead]:
    bus = f"sqlite:///{tmp_path}/office.db"
    if request.param == "redis":
        redis: Server = request.getfixturevalue("redis_server")
        redis.ask("FLUSHALL")
        bus = redis.url
    settings = {
        "KEYSTEAD_KITS": "keystead.kits.teamwork:KIT",
        "KEYSTEAD_SEAL_KEYS": SEAL,
        "KEYSTEAD_DATABASE": f"sqlite:///{tmp_path}/office.tables.db",
        "KEYSTEAD_STOP_TIMEOUT": "2m",
    }
    with keystead_serving(tmp_path, bus, **settings) as running:
        running.store = bus  # type: ignore[attr-defined]
        yield running


@pytest.fixture
async def office(server: Keystead, tmp_path: Path) -> AsyncIterator[Office]:
    url = f"sqlite:///{tmp_path}/office.tables.db"
    async with connect(server.store) as store, open_tables(url, TEAMWORK_TABLES) as tables:  # type: ignore[attr-defined]
        keys = TeamworkKeys(store, seal=KeyRing.from_text(SEAL))
        site = Site(server.url, server.url, True, keys.now_ms, lambda *_, **__: "", tables=tables)
        async with open_teamwork(keys, TeamworkSettings(), site) as teamwork:
            yield Office(server, teamwork)


async def test_notices_of_another_process_arrive_immediately_and_missed_ones_are_replayed(office: Office) -> None:
    await office.hire(1, 2)
    async with office.listening(1) as first, office.listening(1) as second:
        await office.tell(1, 1, 2)
        await office.tell(2, 9)
        assert await numbers(first, 2) == await numbers(second, 2) == [1, 2]
    await office.tell(1, 3, 4)
    async with office.listening(1, after=2) as again:
        assert await numbers(again, 2) == [3, 4]
        await office.tell(1, 5)
        assert await numbers(again, 1) == [5]


@pytest.mark.matrix
async def test_many_streams_get_a_burst_in_order_and_a_slow_reader_blocks_no_other(office: Office) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, _most_files()), _most_files()))
    users = range(1, STREAMS + 1)
    await office.hire(*users)
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(office.listening(1, small=True))
        opened = await asyncio.gather(*(stack.enter_async_context(office.listening(user)) for user in users))
        await asyncio.gather(*(office.tell(user, *range(EACH)) for user in users))
        found = await asyncio.gather(*(numbers(one, EACH) for one in opened))
        assert found == [list(range(EACH))] * STREAMS
        assert await numbers(slow, EACH) == list(range(EACH))  # the slow reader missed nothing either


async def test_a_sign_out_ends_streams_and_too_many_streams_are_refused(office: Office) -> None:
    await office.hire(1)
    async with AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(office.listening(1))
        async with stream(office.server.port, office.token(1)) as ninth:
            status, headers = await ninth.head()
            assert (status, headers["retry-after"]) == (429, "30")
    token = office.token(1)
    access = office.teamwork.tokens.check(token)
    await office.teamwork.tokens.revoke(access)  # type: ignore[arg-type]
    async with stream(office.server.port, token) as refused:
        assert (await refused.head())[0] == 401


async def test_a_server_stop_ends_streams_immediately(office: Office) -> None:
    users = range(1, 11)
    await office.hire(*users)
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(office.listening(user)) for user in users for _ in range(3)]
        # Requests in progress may take two minutes; this waits for far less.
        assert await asyncio.to_thread(office.server.stop) == 0
        for one in opened:
            with pytest.raises(EOFError):
                await one.next()


def _most_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]
