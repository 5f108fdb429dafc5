"""Users and their teams, for applications without their own user table."""

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
TEXT_MAX: Final = 200  # characters of a name or an address
_SLACK_ID: Final = re.compile(r"[UW][A-Z0-9]{1,30}")
GENERATED_BELOW: Final = 900_000_000  # sequential ids of users and teams; the demo team and applications use others
# Users who sign in at this server get a random id from here on. It never collides with an application that counts its
# users up, is not the id of an erased user, and is exact as a JavaScript number.
_SIGNED_IN_FROM: Final = 10**12


class People:
    """The table of people. Each operation is one transaction. `changed` is called with each changed user."""

    def __init__(self, tables: Tables, changed: Callable[[int], Awaitable[Any]] | None = None) -> None:
        self._tables = tables
        self._changed = changed

    async def save(self, user: int, person: UserSession) -> None:
        """Insert or update a user."""
        row = _row_of(person)

        def work(connection: Connection) -> None:
            if not insert_new(connection, PEOPLE, {"user_id": user, **row}):
                connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(**row))

        await self._tables.write(work)
        await self.report_change(user)

    async def save_new(self, user: int, person: UserSession) -> bool:
        """Insert a user. False: the id exists, and nothing changes."""
        row = {"user_id": user, **_row_of(person)}
        is_new = await self._tables.write(lambda connection: insert_new(connection, PEOPLE, row))
        if is_new:
            await self.report_change(user)
        return is_new

    async def add(self, name: str, *, email: str = "", slack_id: str | None = None, identity: str | None = None) -> int:
        """Add a user without a team. Returns the new id. Raises BadValue for invalid text.

        identity   the sign-in identity, such as `login:42`. If a user has it already, their id is returned
        """
        row = {
            "name": check_text(name, "a name"),
            "email": check_text(email, "an address", empty=True),
            "role": NEWCOMER_ROLE,
            "team_id": NO_TEAM,
            "team_role": "",
            "slack_id": None if slack_id is None else check_slack_id(slack_id),
            "identity": identity,
        }

        newest = select(func.max(PEOPLE.c.user_id)).where(PEOPLE.c.user_id < GENERATED_BELOW)
        same = select(PEOPLE.c.user_id).where(PEOPLE.c.identity == identity).with_for_update()

        def work(connection: Connection) -> int | None:
            if identity is None:
                user = int(connection.execute(newest).scalar() or 0) + 1
            elif (found := connection.execute(same).scalar()) is not None:
                return int(found)
            else:
                user = _SIGNED_IN_FROM + randbelow(_SIGNED_IN_FROM)
            # Who may interleave: another transaction with the same id or identity. Then nothing is inserted.
            return user if insert_new(connection, PEOPLE, {"user_id": user, **row}) else None

        async for _ in attempts("the list of people", most=200):
            user = await self._tables.write(work)
            if user is not None:
                return user
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def of_identity(self, identity: str) -> int | None:
        """The user with a sign-in identity, such as `login:42`; None: there is none."""
        query = select(PEOPLE.c.user_id).where(PEOPLE.c.identity == identity)
        found = await self._tables.read(lambda connection: connection.execute(query).scalar())
        return None if found is None else int(found)

    async def set_slack_id(self, user: int, slack_id: str | None) -> bool:
        """Set or remove (None) the Slack member id of a user. False: there is no such user."""
        checked = None if slack_id is None else check_slack_id(slack_id)

        def work(connection: Connection) -> bool:
            found = connection.execute(select(PEOPLE.c.user_id).where(PEOPLE.c.user_id == user)).first()
            connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(slack_id=checked))
            return found is not None

        done = await self._tables.write(work)
        await self.report_change(user)
        return done

    async def find(self, user: int) -> UserSession | None:
        """A user; None: there is none."""
        query = select(PEOPLE).where(PEOPLE.c.user_id == user)
        row = await self._tables.read(lambda connection: connection.execute(query).first())
        return None if row is None else _person_of(row)

    async def of_team(self, team: int, users: Collection[int]) -> set[int]:
        """The subset of users who are in a team."""
        query = select(PEOPLE.c.user_id).where(PEOPLE.c.team_id == team, PEOPLE.c.user_id.in_(list(users)))
        return await self._tables.read(lambda connection: {int(user) for (user,) in connection.execute(query)})

    async def members(self, team: int) -> dict[int, UserSession]:
        """The members of a team, ordered by id."""
        query = select(PEOPLE).where(PEOPLE.c.team_id == team).order_by(PEOPLE.c.user_id)
        return await self._tables.read(
            lambda connection: {int(row.user_id): _person_of(row) for row in connection.execute(query)}
        )

    async def report_change(self, user: int) -> None:
        if self._changed is not None:
            await self._changed(user)


def _row_of(person: UserSession) -> dict[str, Any]:
    return {name: getattr(person, name) for name in UserSession.model_fields}


def _person_of(row: Row[Any]) -> UserSession:
    return UserSession(**{name: getattr(row, name) for name in UserSession.model_fields})


def check_text(text: str, what: str, *, empty: bool = False) -> str:
    """The stripped text. Raises BadValue if it has several lines, or a bad length."""
    stripped = text.strip()
    if len(stripped) > TEXT_MAX or not stripped.isprintable() or (not stripped and not empty):
        raise BadValue(f"{what} must be one line of {0 if empty else 1} to {TEXT_MAX} characters")
    return stripped


def check_slack_id(slack_id: str) -> str:
    """Raises BadValue for an invalid Slack member id."""
    if not _SLACK_ID.fullmatch(slack_id):
        raise BadValue("a Slack member id looks like U012ABCDE; copy it from the member's profile in Slack")
    return slack_id
