"""Who works in which team: a table for applications that have none of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from sqlalchemy import Connection, select, update

from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service.tables import PEOPLE
from keystead.parts.tables import Tables, insert_new


class People:
    """The table of people as operations. Each is one transaction. `changed` is told who is another from now on."""

    def __init__(self, tables: Tables, changed: Callable[[int], Awaitable[Any]] | None = None) -> None:
        self._tables = tables
        self._changed = changed

    async def save(self, user: int, person: UserSession) -> None:
        """Who somebody is from now on."""
        row = {
            "name": person.name,
            "email": person.email,
            "role": person.role,
            "team_id": person.teamId,
            "team_role": person.teamRole,
        }

        def work(connection: Connection) -> None:
            if not insert_new(connection, PEOPLE, {"user_id": user, **row}):
                connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(**row))

        await self._tables.write(work)
        if self._changed is not None:
            await self._changed(user)

    async def find(self, user: int) -> UserSession | None:
        """Who somebody is; None: nobody of ours."""
        asked = select(PEOPLE).where(PEOPLE.c.user_id == user)
        row = await self._tables.read(lambda connection: connection.execute(asked).first())
        if row is None:
            return None
        return UserSession(name=row.name, email=row.email, role=row.role, teamId=row.team_id, teamRole=row.team_role)

    async def of_team(self, team: int, users: Collection[int]) -> set[int]:
        """Those of some users who are in a team."""
        asked = select(PEOPLE.c.user_id).where(PEOPLE.c.team_id == team, PEOPLE.c.user_id.in_(list(users)))
        return await self._tables.read(lambda connection: {int(user) for (user,) in connection.execute(asked)})
