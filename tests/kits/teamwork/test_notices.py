"""Notices in the database: each once, in the order of its reader, whatever is told twice or at the same moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from keystead.errors import BadValue
from keystead.kits.teamwork.service.notices import (
    ASSIGNED,
    DEADLINE,
    DEPLOYMENT_FAILED,
    IDEA_ADOPTED,
    PREFERENCES_FIRST,
    STATUS_CHANGED,
    Notices,
    Told,
)
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from keystead.parts.tables import Tables, open_tables
from tests.every_database import database_url, mariadb_server, on_databases, postgres_server

__all__ = ["database_url", "mariadb_server", "postgres_server"]

NOW_MS = 1_790_000_025_000


@pytest.fixture
async def tables(database_url: str) -> AsyncIterator[Tables]:
    async with open_tables(database_url, TEAMWORK_TABLES) as opened:
        yield opened


@pytest.fixture
def notices(tables: Tables) -> Notices:
    return Notices(tables)


def told(user: int = 42, kind: str = ASSIGNED, ref: str = "101") -> Told:
    return Told(user, kind, "WR-001", "에게 배정되었습니다 😀", "WORK_REQUEST", ref)


@on_databases()
async def test_an_event_is_told_once_to_each_however_often_it_is_told_of(notices: Notices) -> None:
    first = await notices.tell("e1", [told(42), told(7)], NOW_MS)
    assert [(one.user, one.place) for one in first] == [(7, 1), (42, 1)]
    assert await notices.tell("e1", [told(42), told(7), told(8)], NOW_MS + 1) != []  # 8 is new to it
    assert await notices.tell("e1", [told(42), told(7), told(8)], NOW_MS + 2) == []
    page = await notices.page(42)
    assert page.total == 1
    assert page.notices == [first[1]]
    assert (page.notices[0].message, page.notices[0].created_at_ms) == ("에게 배정되었습니다 😀", NOW_MS)


@on_databases()
async def test_of_many_events_at_once_each_reader_has_places_without_gaps(notices: Notices) -> None:
    async def tell(number: int) -> None:
        # Each event twice, and each in another order of its readers.
        users = [1, 2] if number % 2 else [2, 1]
        await asyncio.gather(*(notices.tell(f"e{number}", [told(user) for user in users], NOW_MS) for _ in range(2)))

    await asyncio.gather(*map(tell, range(30)))
    for user in (1, 2):
        found = await notices.unpublished(user)
        assert [one.place for one in found] == list(range(1, 31))
        assert {one.event_id for one in found} == {f"e{number}" for number in range(30)}


@on_databases()
async def test_what_is_on_the_stream_is_known_and_never_less_than_before(notices: Notices) -> None:
    for number in range(5):
        await notices.tell(f"e{number}", [told(42)], NOW_MS)
    assert (await notices.waiting(), await notices.last_place(42)) == ([42], 0)
    await notices.published(42, 3)
    assert [one.place for one in await notices.unpublished(42)] == [4, 5]
    await notices.published(42, 2)
    assert (await notices.last_place(42), len(await notices.unpublished(42))) == (3, 2)
    await notices.tell("e9", [told(42)], NOW_MS)
    await notices.published(42, 6)
    assert (await notices.waiting(), await notices.unpublished(42), await notices.last_place(42)) == ([], [], 6)
    assert await notices.last_place(99) == 0
    assert not await notices.published(42, 7)  # of a reader who was erased and told anew, it may be beyond
    assert not await notices.published(42, 6, event_id="another")
    await notices.tell("e10", [told(42)], NOW_MS)
    assert [one.event_id for one in await notices.unpublished(42)] == ["e10"]


@on_databases()
async def test_notices_are_paged_filtered_and_read(notices: Notices) -> None:
    for number in range(5):
        await notices.tell(f"e{number}", [told(42, ref=str(number % 2))], NOW_MS + number)
    await notices.tell("other", [told(7)], NOW_MS)
    newest = await notices.page(42, size=2)
    assert [one.event_id for one in newest.notices] == ["e4", "e3"]
    assert [one.event_id for one in (await notices.page(42, page=2, size=2)).notices] == ["e0"]
    [foreign] = (await notices.page(7)).notices
    assert await notices.find(42, foreign.id) is None
    assert await notices.mark_read(42, notice_id=foreign.id) == 0
    assert await notices.mark_read(42, notice_id=newest.notices[0].id) == 1
    assert await notices.mark_read(42, notice_id=newest.notices[0].id) == 0
    assert await notices.unread(42) == {"WORK_REQUEST": 4}
    assert await notices.mark_read(42, ref=("WORK_REQUEST", "1")) == 2
    assert [one.event_id for one in (await notices.page(42, read=True)).notices] == ["e4", "e3", "e1"]
    assert (await notices.page(42, read=False, ref_type="DEFECT")).total == 0
    assert await notices.mark_read(42) == 2
    assert await notices.unread(42) == {}
    assert await notices.unread(7) == {"WORK_REQUEST": 1}
    assert await notices.find(42, 2**80) is None


@on_databases()
async def test_who_has_said_nothing_hears_of_all_and_who_has_of_what_they_want(notices: Notices) -> None:
    assert await notices.tell("e1", [told(kind=STATUS_CHANGED)], NOW_MS) != []
    assert await notices.prefer(42, {"deadline": False}) == {**PREFERENCES_FIRST, "deadline": False}
    for kind, is_told in (
        (STATUS_CHANGED, False),
        (DEADLINE, False),
        (ASSIGNED, True),
        (DEPLOYMENT_FAILED, True),
        (IDEA_ADOPTED, True),
    ):
        assert bool(await notices.tell(f"e-{kind}", [told(kind=kind)], NOW_MS)) == is_told, kind
    assert (await notices.prefer(42, {"status": True}))["deadline"] is False
    with pytest.raises(BadValue, match="there are assign"):
        await notices.prefer(42, {"everything": True})
    with pytest.raises(BadValue, match="from 1 on"):
        await notices.tell("e1", [told(0)], NOW_MS)


@on_databases("memory")
async def test_all_of_a_user_is_erased(notices: Notices, tables: Tables) -> None:
    await notices.tell("e1", [told(42), told(7)], NOW_MS)
    await notices.prefer(42, {"status": True})
    counts = {"keystead_teamwork_notices": 1, "keystead_teamwork_preferences": 1, "keystead_teamwork_readers": 1}
    assert await tables.count_of("user:42") == counts
    assert await tables.erase("user:42") == counts
    assert await tables.count_of("user:42") == await tables.count_of("user:none") == {}
    assert (await notices.page(7)).total == 1
