"""Dashboard summaries of a user in a team: cached, with single flight, and invalidated by changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import DashboardSummary
from keystead.parts.cache import Cache
from keystead.schema.times import moment


@dataclass(frozen=True)
class Work:
    """Counts of work, without notices."""

    my_work_requests: int = 0
    my_tech_tasks: int = 0
    active_defects: int = 0
    upcoming_deployments: int = 0


Count: TypeAlias = Callable[[int, int], Awaitable[Work]]


class Dashboard:
    """Summaries by user and team.

    count    counts the work of a user in a team, for example in your database (single flight)
    unread   counts the unread notices of a user

    After `changed`, `changed_team` or `changed_in`, the next read in any process sees the change. Other changes are
    hidden for at most `longest_staleness`.
    """

    def __init__(self, keys: TeamworkKeys, count: Count, unread: Callable[[int], Awaitable[int]]) -> None:
        self._keys = keys
        self._count = count
        self._unread = unread
        self.summaries: Cache[DashboardSummary] = Cache(keys.dashboard, keys.dashboard_mark)

    @property
    def longest_staleness(self) -> timedelta:
        return self.summaries.longest_staleness

    async def summary(self, user: int, team: int) -> DashboardSummary:
        """The summary of a user in a team. Raises LoadFailed if it cannot be counted."""
        found = await self.summaries.get(self._keys.dashboard(user, team), lambda: self._count_all(user, team))
        return found if found is not None else await self._count_all(user, team)

    async def changed(self, *users: int) -> None:
        """Invalidate the summaries of users, in all teams."""
        for user in dict.fromkeys(users):
            for team in await self._keys.dashboard_teams(user).members().if_readable():
                await self.changed_in(user, team)

    async def changed_team(self, team: int) -> None:
        """Invalidate the summaries of a team, for all users."""
        for user in await self._keys.dashboard_users(team).members().if_readable():
            await self.changed_in(user, team)

    async def changed_in(self, user: int, team: int) -> None:
        """Invalidate the summary of one user in one team."""
        await self.summaries.invalidate(self._keys.dashboard(user, team))

    async def close(self) -> None:
        await self.summaries.close()

    async def _count_all(self, user: int, team: int) -> DashboardSummary:
        # Before the count, so that a change after it finds this user and team, and invalidates the summary.
        await self._keys.run(self._keys.dashboard_teams(user).add(team), self._keys.dashboard_users(team).add(user))
        work = await self._count(user, team)
        return DashboardSummary(
            my_work_requests=work.my_work_requests,
            my_tech_tasks=work.my_tech_tasks,
            active_defects=work.active_defects,
            upcoming_deployments=work.upcoming_deployments,
            unread_notifications=await self._unread(user),
            computed_at=moment(self._keys.now_ms()),
        )
