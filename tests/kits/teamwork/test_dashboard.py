"""Summaries: counted once under load, with bounded staleness."""

import asyncio
from datetime import timedelta

import pytest

from keystead import Store
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.service.dashboard import Dashboard, Work
from keystead.parts.cache import LoadFailed
from tests.every_store import EVERY, mariadb_server, on, postgres_server, redis_server, store, stores, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

everywhere = on(*EVERY, "cluster")
here = on("memory")


class Office:
    """A dashboard with adjustable counts."""

    def __init__(self, store: Store) -> None:
        self.keys = TeamworkKeys(store)
        self.defects, self.unread, self.counts = 5, 3, 0
        self.failing = False
        self.held: asyncio.Event | None = None
        self.dashboard = Dashboard(self.keys, self._count, self._unread)

    async def _count(self, user: int, team: int) -> Work:
        self.counts += 1
        if self.failing:
            raise RuntimeError("the database is away")
        found = Work(12, 8, self.defects, 2)
        if self.held is not None:
            await self.held.wait()
        return found

    async def _unread(self, user: int) -> int:
        return self.unread

    async def shown(self, team: int = 3) -> tuple[int, int]:
        summary = await self.dashboard.summary(42, team)
        return summary.active_defects, summary.unread_notifications


@everywhere
async def test_1000_concurrent_reads_count_once_and_the_next_read_sees_a_change(store: Store) -> None:
    office = Office(store)
    assert set(await asyncio.gather(*(office.shown() for _ in range(1000)))) == {(5, 3)}
    assert office.counts == 1
    office.unread = 4
    await office.dashboard.changed(42, 7)
    assert await office.shown() == (5, 4)
    office.defects = 6
    assert await office.shown() == (5, 4)  # the change was not reported
    await office.dashboard.changed_in(42, 3)
    assert await office.shown() == (6, 4)
    await office.dashboard.close()


@on("redis")
async def test_a_summary_is_stored_as_in_the_document(store: Store, redis_server: object) -> None:
    office = Office(store)
    await office.shown()
    ask = redis_server.ask  # type: ignore[attr-defined]
    assert ask("HGET", "dashboard:summary:42:3", "myWorkRequests") == b"12"
    assert ask("HGET", "dashboard:summary:42:3", "unreadNotifications") == b"3"
    assert 0 < ask("PTTL", "dashboard:summary:42:3") <= 300_000
    await office.dashboard.close()


@here
async def test_a_change_invalidates_the_summaries_of_all_teams_of_a_user(store: Store) -> None:
    office = Office(store)
    assert [await office.shown(team) for team in (3, 4)] == [(5, 3), (5, 3)]
    office.unread = 0
    await office.dashboard.changed(42)
    assert [await office.shown(team) for team in (3, 4)] == [(5, 0), (5, 0)]


@here
async def test_a_change_during_a_count_is_not_hidden(store: Store) -> None:
    office = Office(store)
    office.held = asyncio.Event()
    asking = asyncio.ensure_future(office.shown())
    while not office.counts:
        await office.keys.dashboard_teams(42).count()
    office.defects = 9  # after the count, before it is cached
    await office.dashboard.changed(42)
    office.held.set()
    await asking
    office.held = None
    assert await office.shown() == (9, 3)


@here
async def test_the_longest_staleness_is_that_of_the_document(store: Store) -> None:
    office = Office(store)
    assert office.dashboard.longest_staleness == timedelta(seconds=300)
    lifetime = office.keys.dashboard.family.lifetime.longest_ms
    teams = office.keys.dashboard_teams.family.lifetime.longest_ms
    assert lifetime == 300_000
    assert teams is None or teams > lifetime  # the index outlives the summary


@here
async def test_a_failed_count_hides_no_change(store: Store) -> None:
    office = Office(store)
    assert await office.shown() == (5, 3)
    office.defects, office.failing = 6, True
    await office.dashboard.changed_in(42, 3)
    with pytest.raises(LoadFailed):
        await office.shown()
    office.failing = False
    await office.dashboard.changed_in(42, 3)
    assert await office.shown() == (6, 3)
