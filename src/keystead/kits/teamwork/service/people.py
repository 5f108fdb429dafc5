"""Who works in which team: a table for applications that have none of their own."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from secrets import randbelow
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, update

from keystead.errors import BadValue
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service.tables import PEOPLE
from keystead.parts.tables import Tables, insert_new
from keystead.schema import attempts

NO_TEAM: Final = 0
NEWCOMER_ROLE: Final = "DEVELOPER"
TEXT_MOST: Final = 200  # of a name, of an address
_SLACK_ID: Final = re.compile(r"[UW][A-Z0-9]{1,30}")
_GIVEN_UNTIL: Final = 900_000_000  # ids from here on are those of the demo team, or of an application
# Whoever signs in at this server gets an id from here on, by chance: an application that counts its users up never
# meets it, nobody gets that of somebody who was erased, and JavaScript reads all of them as numbers.
_SIGNED_IN_FROM: Final = 10**12


class People:
    """The table of people as operations. Each is one transaction. `changed` is told who is another from now on."""

    def __init__(self, tables: Tables, changed: Callable[[int], Awaitable[Any]] | None = None) -> None:
        self._tables = tables
        self._changed = changed

    async def save(self, user: int, person: UserSession) -> None:
        """Who somebody is from now on."""
        row = _row_of(person)

        def work(connection: Connection) -> None:
            if not insert_new(connection, PEOPLE, {"user_id": user, **row}):
                connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(**row))

        await self._tables.write(work)
        await self.note_changed(user)

    async def save_new(self, user: int, person: UserSession) -> bool:
        """Who somebody is, where nobody of this id is known. Otherwise nothing changes: False."""
        row = {"user_id": user, **_row_of(person)}
        is_new = await self._tables.write(lambda connection: insert_new(connection, PEOPLE, row))
        if is_new:
            await self.note_changed(user)
        return is_new

    async def add(self, name: str, *, email: str = "", slack_id: str | None = None, identity: str | None = None) -> int:
        """Somebody new, in no team yet; the id that they have from now on. Raises BadValue where a text cannot be one.

        identity   who signs in as them elsewhere, such as `login:42`. Where somebody has it already, it is their id
        """
        row = {
            "name": checked_text(name, "a name"),
            "email": checked_text(email, "an address", empty=True),
            "role": NEWCOMER_ROLE,
            "team_id": NO_TEAM,
            "team_role": "",
            "slack_id": None if slack_id is None else checked_slack_id(slack_id),
            "identity": identity,
        }

        newest = select(func.max(PEOPLE.c.user_id)).where(PEOPLE.c.user_id < _GIVEN_UNTIL)
        same = select(PEOPLE.c.user_id).where(PEOPLE.c.identity == identity).with_for_update()

        def work(connection: Connection) -> int | None:
            if identity is None:
                user = int(connection.execute(newest).scalar() or 0) + 1
            elif (found := connection.execute(same).scalar()) is not None:
                return int(found)
            else:
                user = _SIGNED_IN_FROM + randbelow(_SIGNED_IN_FROM)
            # Another may take the same number, or the same identity, at this moment: then nothing is inserted.
            return user if insert_new(connection, PEOPLE, {"user_id": user, **row}) else None

        async for _ in attempts("the list of people", most=200):
            user = await self._tables.write(work)
            if user is not None:
                return user
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def of_identity(self, identity: str) -> int | None:
        """Whom somebody is who signs in elsewhere, such as `login:42`; None: nobody of ours."""
        asked = select(PEOPLE.c.user_id).where(PEOPLE.c.identity == identity)
        found = await self._tables.read(lambda connection: connection.execute(asked).scalar())
        return None if found is None else int(found)

    async def set_slack_id(self, user: int, slack_id: str | None) -> bool:
        """By which id somebody is mentioned in Slack; None: by none. False: there is no such user."""
        given = None if slack_id is None else checked_slack_id(slack_id)

        def work(connection: Connection) -> bool:
            there = connection.execute(select(PEOPLE.c.user_id).where(PEOPLE.c.user_id == user)).first()
            connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(slack_id=given))
            return there is not None

        done = await self._tables.write(work)
        await self.note_changed(user)
        return done

    async def find(self, user: int) -> UserSession | None:
        """Who somebody is; None: nobody of ours. In no team, their `team_id` is 0."""
        asked = select(PEOPLE).where(PEOPLE.c.user_id == user)
        row = await self._tables.read(lambda connection: connection.execute(asked).first())
        return None if row is None else person_of(row)

    async def of_team(self, team: int, users: Collection[int]) -> set[int]:
        """Those of some users who are in a team."""
        asked = select(PEOPLE.c.user_id).where(PEOPLE.c.team_id == team, PEOPLE.c.user_id.in_(list(users)))
        return await self._tables.read(lambda connection: {int(user) for (user,) in connection.execute(asked)})

    async def members(self, team: int) -> dict[int, UserSession]:
        """All who are in a team, by their ids, in the order of these."""
        asked = select(PEOPLE).where(PEOPLE.c.team_id == team).order_by(PEOPLE.c.user_id)
        return await self._tables.read(
            lambda connection: {int(row.user_id): person_of(row) for row in connection.execute(asked)}
        )

    async def note_changed(self, *users: int) -> None:
        if self._changed is not None:
            for user in users:
                await self._changed(user)


def _row_of(person: UserSession) -> dict[str, Any]:
    return {
        "name": person.name,
        "email": person.email,
        "role": person.role,
        "team_id": person.team_id,
        "team_role": person.team_role,
        "slack_id": person.slack_id,
    }


def person_of(row: Row[Any]) -> UserSession:
    return UserSession(
        name=row.name,
        email=row.email,
        role=row.role,
        team_id=row.team_id,
        team_role=row.team_role,
        slack_id=row.slack_id,
    )


def checked_text(text: str, what: str, *, empty: bool = False) -> str:
    """A text on one line. Raises BadValue."""
    given = text.strip()
    if len(given) > TEXT_MOST or not given.isprintable() or (not given and not empty):
        raise BadValue(f"{what} is a text on one line of {0 if empty else 1} to {TEXT_MOST} characters")
    return given


def checked_slack_id(slack_id: str) -> str:
    """The id of a member in Slack. Raises BadValue."""
    if not _SLACK_ID.fullmatch(slack_id):
        raise BadValue("a member id of Slack looks like U012ABCDE; copy it from the profile of the member in Slack")
    return slack_id
