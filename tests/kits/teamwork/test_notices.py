"""Notices in the database: each once and in order, even if events are repeated or concurrent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, delete

from keystead.errors import BadValue
from keystead.kits.teamwork.models import NoticeArguments
from keystead.kits.teamwork.service.notice_rows import NewNotice
from keystead.kits.teamwork.service.notice_types import (
    ASSIGNED,
    DEADLINE,
    DEPLOYMENT_FAILED,
    IDEA_ADOPTED,
    PREFERENCES,
    STATUS_CHANGED,
)
from keystead.kits.teamwork.service.notices import Notices, Reach, Unpublished
from keystead.kits.teamwork.service.tables import NOTICES, TEAMWORK_TABLES
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


def new(user: int = 42, kind: str = ASSIGNED, ref: str = "101") -> NewNotice:
    return NewNotice(user, kind, "WR-001", "에게 배정되었습니다 😀", "WORK_REQUEST", ref)


@on_databases()
async def test_a_repeated_event_notifies_each_reader_once(notices: Notices) -> None:
    first = await notices.write("e1", [new(42), new(7)], NOW_MS)
    assert [(one.user, one.place) for one in first] == [(7, 1), (42, 1)]
    assert await notices.write("e1", [new(42), new(7), new(8)], NOW_MS + 1) != []  # 8 is a new recipient
    assert await notices.write("e1", [new(42), new(7), new(8)], NOW_MS + 2) == []
    page = await notices.page(42)
    assert page.total == 1
    assert page.notices == [first[1]]
    assert (page.notices[0].message, page.notices[0].created_at_ms) == ("에게 배정되었습니다 😀", NOW_MS)


@on_databases()
async def test_concurrent_events_give_each_reader_places_without_gaps(notices: Notices, tables: Tables) -> None:
    processes = [notices, *(Notices(tables) for _ in range(3))]  # each with its own batches

    async def tell(number: int) -> int:
        # Each event twice, with readers in another order, by two processes.
        users = [1, 2, number + 10] if number % 2 else [number + 10, 2, 1]
        tellers = (processes[number % 4], processes[(number + 1) % 4])
        telling = (one.write(f"e{number}", [new(user) for user in users], NOW_MS) for one in tellers)
        written = sum(map(len, await asyncio.gather(*telling)))
        await processes[number % 3].mark_published(1, 1)
        return written

    assert await asyncio.gather(*map(tell, range(60))) == [3] * 60
    for user, first in ((1, 2), (2, 1)):
        found = (await notices.unpublished([user]))[user].notices
        assert [one.place for one in found] == list(range(first, 61))
    assert {one.event_id for one in (await notices.page(2, size=100)).notices} == {f"e{n}" for n in range(60)}
    assert await notices.reach(10) == Reach(1, 0)


@on_databases()
async def test_publishing_progress_never_goes_back(notices: Notices) -> None:
    for number in range(5):
        await notices.write(f"e{number}", [new(42)], NOW_MS)
    assert await notices.reach(42) == Reach(5, 0)
    await notices.mark_published(42, 3)
    assert await _waiting(notices) == {42: [4, 5]}
    await notices.mark_published(42, 2)
    assert (await notices.reach(42), await _waiting(notices)) == (Reach(5, 3), {42: [4, 5]})
    await notices.write("e9", [new(42)], NOW_MS)
    await notices.mark_published(42, 6)
    assert (await notices.reach(42), await _waiting(notices)) == (Reach(6, 6), {})
    assert await notices.reach(99) == Reach(0, 0)
    assert not await notices.mark_published(42, 7)  # beyond the last place, as after an erasure
    assert not await notices.mark_published(42, 6, event_id="another")
    await notices.write("e10", [new(42)], NOW_MS)
    assert await _waiting(notices) == {42: [7]}


@on_databases()
async def test_the_oldest_unpublished_notices_of_each_reader_are_read(notices: Notices) -> None:
    for user in (1, 2, 3):
        await asyncio.gather(*(notices.write(f"{user}-{number}", [new(user)], NOW_MS) for number in range(150)))
    await notices.mark_published(2, 60)
    assert await notices.behind() == {1: 0, 2: 60, 3: 0}
    assert await _waiting(notices) == {1: [*range(1, 101)], 2: [*range(61, 151)], 3: [*range(1, 101)]}
    found = await notices.unpublished([2, 3, 4])
    assert {user: (one.up_to, one.is_all) for user, one in found.items()} == {2: (150, True), 3: (100, False)}


@on_databases()
async def test_notices_deleted_before_they_are_published_are_skipped(notices: Notices, tables: Tables) -> None:
    for number in range(3):
        await notices.write(f"e{number}", [new(42)], NOW_MS)
    await tables.write(lambda connection: connection.execute(delete(NOTICES).where(NOTICES.c.place != 2)))
    assert await _waiting(notices) == {42: [2]}
    assert await notices.mark_published(42, 2, event_id="e1")
    left = (await notices.unpublished([42]))[42]
    assert left == Unpublished([], 3, True)
    assert await notices.mark_published(42, left.up_to)
    assert await _waiting(notices) == {}


@on_databases()
async def test_concurrent_events_share_a_transaction_and_a_bad_one_fails_alone(
    notices: Notices, tables: Tables
) -> None:
    committed = 0
    write = tables.write

    async def counting(work: Callable[[Connection], Any]) -> Any:
        nonlocal committed
        result = await write(work)
        committed += 1
        return result

    tables.write = counting  # type: ignore[method-assign]
    writes = (notices.write(f"e{number}", [new(number % 7 + 1)], NOW_MS) for number in range(100))
    assert all(await asyncio.gather(*writes))
    assert committed <= 3
    too_long = "x" * 300  # the limit is 200 bytes
    ids = ["good", too_long, "better"]
    outcomes = await asyncio.gather(*(notices.write(one, [new(9)], NOW_MS) for one in ids), return_exceptions=True)
    assert [type(one) for one in outcomes] == [list, BadValue, list]
    assert [one.event_id for one in (await notices.page(9)).notices] == ["better", "good"]


async def _waiting(notices: Notices) -> dict[int, list[int]]:
    """The unpublished places, by reader."""
    found = await notices.unpublished(await notices.behind())
    return {user: [one.place for one in behind.notices] for user, behind in found.items()}


@on_databases()
async def test_notices_are_paged_filtered_and_read(notices: Notices) -> None:
    for number in range(5):
        await notices.write(f"e{number}", [new(42, ref=str(number % 2))], NOW_MS + number)
    await notices.write("other", [new(7)], NOW_MS)
    newest = await notices.page(42, size=2)
    assert [one.event_id for one in newest.notices] == ["e4", "e3"]
    assert [one.event_id for one in (await notices.page(42, page=2, size=2)).notices] == ["e0"]
    [foreign] = (await notices.page(7)).notices
    assert await notices.find(42, foreign.id) is None
    assert await notices.mark_read(42, notice_id=foreign.id) == 0
    assert await notices.mark_read(42, notice_id=newest.notices[0].id) == 1
    assert await notices.mark_read(42, notice_id=newest.notices[0].id) == 0
    assert await notices.count_unread(42) == {"WORK_REQUEST": 4}
    assert await notices.mark_read(42, ref=("WORK_REQUEST", "1")) == 2
    assert [one.event_id for one in (await notices.page(42, read=True)).notices] == ["e4", "e3", "e1"]
    assert (await notices.page(42, read=False, ref_type="DEFECT")).total == 0
    assert await notices.mark_read(42) == 2
    assert await notices.count_unread(42) == {}
    assert await notices.count_unread(7) == {"WORK_REQUEST": 1}
    assert await notices.find(42, 2**80) is None


@on_databases()
async def test_preferences_are_on_by_default_and_filter_notices(notices: Notices) -> None:
    assert await notices.write("e1", [new(kind=STATUS_CHANGED)], NOW_MS) != []
    # Omitted preferences stay, also the first time.
    assert await notices.set_preferences(42, {"deadline": False}) == {
        **dict.fromkeys(PREFERENCES, True),
        "deadline": False,
    }
    for kind, is_sent in (
        (STATUS_CHANGED, True),
        (DEADLINE, False),
        (ASSIGNED, True),
        (DEPLOYMENT_FAILED, True),
        (IDEA_ADOPTED, True),
    ):
        assert bool(await notices.write(f"e-{kind}", [new(kind=kind)], NOW_MS)) == is_sent, kind
    assert (await notices.set_preferences(42, {"status": True}))["deadline"] is False
    with pytest.raises(BadValue, match="there are assign"):
        await notices.set_preferences(42, {"everything": True})
    with pytest.raises(BadValue, match="at least 1"):
        await notices.write("e1", [new(0)], NOW_MS)


@on_databases()
async def test_a_deleted_notice_does_not_come_back_when_its_event_is_repeated(notices: Notices) -> None:
    [first] = await notices.write("e1", [new(42)], NOW_MS)
    await notices.write("e2", [new(42)], NOW_MS)
    assert not await notices.delete(7, first.id, NOW_MS)  # of another reader
    assert await notices.delete(42, first.id, NOW_MS)
    assert not await notices.delete(42, first.id, NOW_MS)
    assert await notices.find(42, first.id) is None
    assert [one.event_id for one in (await notices.page(42)).notices] == ["e2"]
    assert await notices.count_unread(42) == {"WORK_REQUEST": 1}
    assert await notices.write("e1", [new(42)], NOW_MS) == []
    # It was not published yet, and is not published later.
    [waits] = (await notices.unpublished([42])).values()
    assert ([one.place for one in waits.notices], waits.up_to) == ([2], 2)
    assert (await notices.has_between(42, 1, 1), await notices.has_between(42, 1, 2)) == (False, True)
    assert await notices.mark_published(42, 2, event_id="e2")


@on_databases()
async def test_old_notices_are_deleted_only_after_they_are_published(notices: Notices) -> None:
    for number in range(6):
        await notices.write(f"e{number}", [new(42)], NOW_MS + number)
    await notices.mark_published(42, 4)
    assert await notices.delete_old(NOW_MS + 2, most=1) == 1
    assert await notices.delete_old(NOW_MS + 2) == 1
    assert await notices.delete_old(NOW_MS + 100) == 2  # the last two are unpublished
    assert [one.event_id for one in (await notices.page(42)).notices] == ["e5", "e4"]
    assert await notices.reach(42) == Reach(6, 4)
    [seventh] = await notices.write("e6", [new(42)], NOW_MS)
    assert seventh.place == 7


@on_databases()
async def test_a_notice_is_stored_as_an_event_with_arguments(notices: Notices) -> None:
    said = NoticeArguments(event="assigned", doc="WR-001", item="인쇄 😀", actor="Ann")
    [made] = await notices.write("e1", [replace(new(42), said=said)], NOW_MS)
    found = await notices.find(42, made.id)
    assert found is not None
    assert found.said == made.said == said


@on_databases("memory")
async def test_erasing_a_user_deletes_all_their_rows(notices: Notices, tables: Tables) -> None:
    await notices.write("e1", [new(42), new(7)], NOW_MS)
    await notices.set_preferences(42, {"status": True})
    counts = {"keystead_teamwork_notices": 1, "keystead_teamwork_preferences": 1, "keystead_teamwork_readers": 1}
    assert await tables.count_of("teamwork:42") == counts
    for other in ("042", "+42", "42 ", "\uff14\uff12", "4_2", "0"):  # as with keys, these are not the number
        assert await tables.erase(f"teamwork:{other}") == {}
    assert await tables.erase("teamwork:42") == counts
    assert await tables.count_of("teamwork:42") == await tables.count_of("teamwork:none") == {}
    assert (await notices.page(7)).total == 1
