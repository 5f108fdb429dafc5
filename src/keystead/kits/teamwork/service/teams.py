"""Teams: who is in one, what they may, and who is invited. Each operation is one transaction."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from keystead.errors import BadValue, KeysteadError
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service.people import NO_TEAM, People, checked_text
from keystead.kits.teamwork.service.tables import INVITATIONS, PEOPLE, TEAMS
from keystead.parts.digest import digest
from keystead.parts.tables import Tables, insert_new
from keystead.schema import attempts

_security = logging.getLogger("keystead.security")

TeamRole: TypeAlias = Literal["OWNER", "ADMIN", "MEMBER"]
TEAM_ROLES: Final[tuple[TeamRole, ...]] = get_args(TeamRole)
LEADS: Final = frozenset({"OWNER", "ADMIN"})
OPEN_MOST: Final = 100  # invitations of a team at a time
_TEAM_NAME_MOST: Final = 100
_GIVEN_UNTIL: Final = 900_000_000  # as for the ids of people

Reason: TypeAlias = Literal[
    "NO_TEAM",
    "FORBIDDEN",
    "NOT_FOUND",
    "ALREADY_IN_TEAM",
    "LAST_OWNER",
    "INVITATION_INVALID",
    "TOO_MANY_INVITATIONS",
    "PEOPLE_ELSEWHERE",
]
_SENTENCES: Final[Mapping[Reason, str]] = {
    "NO_TEAM": "You are in no team. Create one, or open a link that invites you.",
    "FORBIDDEN": "Only those who lead the team may do this; of owners, only owners decide.",
    "NOT_FOUND": "There is nobody of this number in your team, or no such invitation.",
    "ALREADY_IN_TEAM": "They are in a team already, and must leave it first.",
    "LAST_OWNER": "This is the last owner of the team. Make somebody else an owner first.",
    "INVITATION_INVALID": "This invitation was used, withdrawn, or has expired. Ask for a new one.",
    "TOO_MANY_INVITATIONS": f"A team has at most {OPEN_MOST} open invitations. Withdraw some first.",
    "PEOPLE_ELSEWHERE": "The people of this server are kept by another application. Change teams there.",
}


class TeamRefused(KeysteadError):
    """What a team does not allow, with the reason for programs."""

    code = "team-refused"

    def __init__(self, reason: Reason) -> None:
        super().__init__(_SENTENCES[reason])
        self.reason: Reason = reason


@dataclass(frozen=True)
class Team:
    """A team. A name is empty where an application has made the team without one."""

    id: int
    name: str


@dataclass(frozen=True)
class Invitation:
    """An invitation that can still be used. `user`: the only one who may; None: whoever has the link."""

    id: int
    team: int
    role: str
    user: int | None
    name: str
    invited_by: int | None
    created_at_ms: int
    expires_at_ms: int


@dataclass(frozen=True)
class NewInvitation:
    """An invitation with the secret of its link, which is told once: the table has its digest only."""

    invitation: Invitation
    token: str


class Teams:
    """Teams, members and invitations, in the tables of the kit.

    `by` is who asks for something; None: an operator, who may do all of it. Whether they may is looked at in the same
    transaction that does it. **Who may interleave:** another change of the same team. The row of the team is locked
    first, so two owners who leave at once are serialized, and the second is refused. However many people use one link
    at once, one gets in: its row is locked, and deleted in the transaction that admits them.
    """

    def __init__(self, tables: Tables, people: People, now_ms: Callable[[], int], *, invitation_ms: int) -> None:
        self._tables = tables
        self._people = people
        self._now_ms = now_ms
        self._invitation_ms = invitation_ms

    # --- teams -----------------------------------------------------------------------------------------------

    async def create(self, name: str, *, owner: int | None = None, number: int | None = None, above: int = 0) -> Team:
        """A new team, and its first owner. Raises TeamRefused where they are in a team, and BadValue.

        number   its id, where it is known elsewhere; refused where there is a team of this id
        above    otherwise it is above this one, and above those of all teams that anybody is in
        """
        called = _checked_name(name)
        if number is not None and not 0 < number < 2**63:
            raise BadValue("the number of a team is a whole number from 1 on")

        def work(connection: Connection) -> Team | None:
            if owner is not None:
                self._lock_newcomer(connection, owner)
            team = self._insert(connection, called, number, above)
            if owner is not None and team is not None:
                _put_in(connection, owner, team.id, "OWNER")
            return team

        await self._note(owner)
        async for _ in attempts("the list of teams", most=200):
            team = await self._tables.write(work)
            if team is not None:
                _security.info("a team was created", extra={"event": "team-created", "team": team.id, "by": owner})
                await self._note(owner)
                return team
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    def _insert(self, connection: Connection, name: str, number: int | None, above: int) -> Team | None:
        """A new team; None: another has taken its number at this moment."""
        row = {"name": name, "created_at_ms": self._now_ms()}
        if number is not None:
            if insert_new(connection, TEAMS, {"id": number, **row}):
                return Team(number, name)
            raise BadValue(f"there is a team {number} already")
        teams = connection.execute(select(func.max(TEAMS.c.id)).where(TEAMS.c.id < _GIVEN_UNTIL)).scalar()
        used = connection.execute(select(func.max(PEOPLE.c.team_id)).where(PEOPLE.c.team_id < _GIVEN_UNTIL)).scalar()
        team = Team(max(int(teams or 0), int(used or 0), above) + 1, name)
        return team if insert_new(connection, TEAMS, {"id": team.id, **row}) else None

    async def name_new(self, team: int, name: str) -> None:
        """Call a team so that was not given a name here. One that was keeps it."""
        row = {"id": team, "name": _checked_name(name), "created_at_ms": self._now_ms()}
        await self._tables.write(lambda connection: insert_new(connection, TEAMS, row))

    async def find(self, team: int) -> Team | None:
        """A team; None: there is none of this id. One that an application has made has no name here."""
        named = select(TEAMS).where(TEAMS.c.id == team)
        used = select(PEOPLE.c.user_id).where(PEOPLE.c.team_id == team).limit(1)

        def work(connection: Connection) -> Team | None:
            row = connection.execute(named).first()
            if row is not None:
                return Team(int(row.id), row.name)
            return Team(team, "") if team > 0 and connection.execute(used).first() is not None else None

        return await self._tables.read(work)

    async def all(self) -> list[tuple[Team, int]]:
        """All teams, each with how many are in it, in the order of their ids."""

        def work(connection: Connection) -> list[tuple[Team, int]]:
            names = {int(row.id): row.name for row in connection.execute(select(TEAMS))}
            counted = select(PEOPLE.c.team_id, func.count()).where(PEOPLE.c.team_id > 0).group_by(PEOPLE.c.team_id)
            counts = {int(team): int(count) for team, count in connection.execute(counted)}
            ids = sorted(names.keys() | counts.keys())
            return [(Team(one, names.get(one, "")), counts.get(one, 0)) for one in ids]

        return await self._tables.read(work)

    async def rename(self, team: int, name: str, *, by: int | None = None) -> None:
        """Call a team so from now on."""
        called = _checked_name(name)

        def work(connection: Connection) -> None:
            self._lock(connection, team, by)
            connection.execute(update(TEAMS).where(TEAMS.c.id == team).values(name=called))

        await self._tables.write(work)

    async def require_lead(self, team: int, by: int | None) -> None:
        """Raises TeamRefused where somebody does not lead this team, now."""
        if by is not None and _role_in(await self._people.find(by), team) not in LEADS:
            raise TeamRefused("FORBIDDEN")

    # --- members ---------------------------------------------------------------------------------------------

    async def set_role(self, team: int, user: int, role: str, *, by: int | None = None) -> None:
        """What somebody may do in a team from now on. Only an owner makes owners, or changes what one may."""
        _check_role(role)

        def work(connection: Connection) -> None:
            asks = self._lock(connection, team, by)
            before = _role_of(connection, user, team)
            if before is None:
                raise TeamRefused("NOT_FOUND")
            if "OWNER" in (before, role) and asks != "OWNER":
                raise TeamRefused("FORBIDDEN")
            if before == "OWNER" and role != "OWNER" and _count(connection, team, "OWNER") == 1:
                raise TeamRefused("LAST_OWNER")
            connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(team_role=role))
            _drop_invitations_of(connection, user, role)

        await self._note(user)
        await self._tables.write(work)
        told = {"event": "team-role-changed", "team": team, "user": user, "role": role, "by": by}
        _security.info("what somebody may do in a team was changed", extra=told)
        await self._note(user)

    async def remove(self, team: int, user: int, *, by: int | None = None) -> None:
        """Somebody is not in a team any more: they leave it (`by` themselves), or are taken out."""

        def work(connection: Connection) -> None:
            asks = self._lock(connection, team, None if by == user else by)
            role = _role_of(connection, user, team)
            if role is None:
                raise TeamRefused("NOT_FOUND")
            if role == "OWNER" and asks != "OWNER":
                raise TeamRefused("FORBIDDEN")
            is_last = role == "OWNER" and _count(connection, team, "OWNER") == 1
            if is_last and _count(connection, team) > 1:
                raise TeamRefused("LAST_OWNER")
            _put_in(connection, user, NO_TEAM, "")
            _drop_invitations_of(connection, user, "")

        await self._note(user)
        await self._tables.write(work)
        event = {"event": "team-left" if by == user else "team-member-removed", "team": team, "user": user, "by": by}
        _security.info("somebody is not in a team any more", extra=event)
        await self._note(user)

    # --- invitations -----------------------------------------------------------------------------------------

    async def invite(
        self, team: int, *, role: str = "MEMBER", user: int | None = None, name: str = "", by: int | None = None
    ) -> NewInvitation:
        """Invite somebody: a user of ours, who alone may use it, or whoever gets the link. It can be used once."""
        _check_role(role)
        called = checked_text(name, "a name", empty=True)
        token = secrets.token_urlsafe(32)
        now_ms = self._now_ms()
        row = {
            "digest": digest(token),
            "team_id": team,
            "team_role": role,
            "user_id": user,
            "name": called,
            "invited_by": by,
            "created_at_ms": now_ms,
            "expires_at_ms": now_ms + self._invitation_ms,
        }

        def work(connection: Connection) -> NewInvitation:
            asks = self._lock(connection, team, by)
            if role == "OWNER" and asks != "OWNER":
                raise TeamRefused("FORBIDDEN")
            if user is not None:
                self._lock_newcomer(connection, user, or_in=team)
                # One at a time: the newest is the one that they were told of last.
                same = (INVITATIONS.c.team_id == team, INVITATIONS.c.user_id == user)
                connection.execute(delete(INVITATIONS).where(*same))
            still = (INVITATIONS.c.team_id == team, INVITATIONS.c.expires_at_ms > now_ms)
            counted = select(func.count()).select_from(INVITATIONS).where(*still)
            if connection.execute(counted).scalar_one() >= OPEN_MOST:
                raise TeamRefused("TOO_MANY_INVITATIONS")
            made: Any = connection.execute(insert(INVITATIONS).values(**row)).inserted_primary_key
            return NewInvitation(_invitation({"id": made[0], **row}), token)

        new = await self._tables.write(work)
        told = {"event": "team-invited", "team": team, "invitation": new.invitation.id, "role": role, "by": by}
        _security.info("somebody was invited to a team", extra=told)
        return new

    async def invitations(self, team: int) -> list[Invitation]:
        """The open invitations of a team, the newest first."""
        return await self._open(INVITATIONS.c.team_id == team)

    async def invitations_to(self, user: int) -> list[Invitation]:
        """The open invitations that are for one user alone."""
        return await self._open(INVITATIONS.c.user_id == user)

    async def look(self, token: str) -> Invitation | None:
        """What a link leads to; None: it was used, withdrawn, has expired, or never was. It stays usable."""
        found = await self._open(INVITATIONS.c.digest == digest(token))
        return found[0] if found else None

    async def _open(self, where: Any) -> list[Invitation]:
        still = INVITATIONS.c.expires_at_ms > self._now_ms()
        asked = select(INVITATIONS).where(where, still).order_by(INVITATIONS.c.id.desc()).limit(OPEN_MOST)
        return await self._tables.read(
            lambda connection: [_invitation(row._mapping) for row in connection.execute(asked)]
        )

    async def accept(self, user: int, *, token: str | None = None, invitation: int | None = None) -> Team:
        """Somebody joins the team that they are invited to: by the secret of a link, or by the id of an invitation that
        is for them alone. It is gone with that. Raises TeamRefused; then nothing has changed, and it can still be used.
        """
        which = INVITATIONS.c.digest == digest(token) if token is not None else INVITATIONS.c.id == invitation

        def work(connection: Connection) -> tuple[int, str]:
            row = connection.execute(select(INVITATIONS).where(which).with_for_update()).first()
            is_meant = row is not None and row.user_id in ((None, user) if token is not None else (user,))
            if row is None or not is_meant or row.expires_at_ms <= self._now_ms():
                raise TeamRefused("INVITATION_INVALID")
            self._lock(connection, row.team_id, None)
            self._lock_newcomer(connection, user)
            _put_in(connection, user, row.team_id, row.team_role)
            connection.execute(delete(INVITATIONS).where(INVITATIONS.c.id == row.id))
            return int(row.team_id), row.team_role

        await self._note(user)
        team, role = await self._tables.write(work)
        _security.info(
            "somebody joined a team", extra={"event": "team-joined", "team": team, "user": user, "role": role}
        )
        await self._note(user)
        return await self.find(team) or Team(team, "")

    async def withdraw(self, team: int, invitation: int, *, by: int | None = None) -> None:
        """End an invitation: its link leads nowhere from now on."""

        def work(connection: Connection) -> None:
            self._lock(connection, team, by)
            where = (INVITATIONS.c.id == invitation, INVITATIONS.c.team_id == team)
            if connection.execute(select(INVITATIONS.c.id).where(*where)).first() is None:
                raise TeamRefused("NOT_FOUND")
            connection.execute(delete(INVITATIONS).where(*where))

        await self._tables.write(work)
        told = {"event": "team-invitation-withdrawn", "team": team, "invitation": invitation, "by": by}
        _security.info("an invitation to a team was withdrawn", extra=told)

    async def forget_expired(self) -> int:
        """Delete invitations that have expired; how many there were."""
        asked = delete(INVITATIONS).where(INVITATIONS.c.expires_at_ms <= self._now_ms())
        return int(await self._tables.write(lambda connection: connection.execute(asked).rowcount))

    # --- in a transaction ------------------------------------------------------------------------------------

    def _lock(self, connection: Connection, team: int, by: int | None) -> str:
        """Lock a team; what may do who asks. Raises TeamRefused where they do not lead it, or there is no such team."""
        row = connection.execute(select(TEAMS.c.id).where(TEAMS.c.id == team).with_for_update()).first()
        if row is None:
            # Of a team that an application has made there is no row yet.
            if team <= 0 or not _count(connection, team):
                raise TeamRefused("NOT_FOUND")
            insert_new(connection, TEAMS, {"id": team, "name": "", "created_at_ms": self._now_ms()})
            connection.execute(select(TEAMS.c.id).where(TEAMS.c.id == team).with_for_update())
        if by is None:
            return "OWNER"
        role = _role_of(connection, by, team)
        if role not in LEADS:
            raise TeamRefused("FORBIDDEN")
        return str(role)

    def _lock_newcomer(self, connection: Connection, user: int, *, or_in: int | None = None) -> None:
        """Lock somebody who is in no team, or, for an invitation, not in this one. Raises TeamRefused."""
        asked = select(PEOPLE.c.team_id).where(PEOPLE.c.user_id == user).with_for_update()
        row = connection.execute(asked).first()
        if row is None:
            raise TeamRefused("NOT_FOUND")
        if row.team_id == or_in or (or_in is None and row.team_id != NO_TEAM):
            raise TeamRefused("ALREADY_IN_TEAM")

    async def _note(self, user: int | None) -> None:
        """Drop what is cached of a user, before a change and after it.

        Where the cache cannot be reached, the first drop fails and nothing has changed. Where only the second one
        fails, asking again drops it, even though the request is refused then.
        """
        if user is not None:
            await self._people.note_changed(user)


def _put_in(connection: Connection, user: int, team: int, role: str) -> None:
    connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(team_id=team, team_role=role))


def _drop_invitations_of(connection: Connection, user: int, role: str) -> None:
    """Delete the invitations that a user may not send any more, now that they have this role."""
    if role == "OWNER":
        return
    own = INVITATIONS.c.invited_by == user
    beyond = [INVITATIONS.c.team_role == "OWNER"] if role in LEADS else []
    connection.execute(delete(INVITATIONS).where(own, *beyond))


def _role_of(connection: Connection, user: int, team: int) -> str | None:
    asked = select(PEOPLE.c.team_role).where(PEOPLE.c.user_id == user, PEOPLE.c.team_id == team).with_for_update()
    found: Row[Any] | None = connection.execute(asked).first()
    return None if found is None else str(found.team_role)


def _role_in(person: UserSession | None, team: int) -> str | None:
    return person.team_role if person is not None and person.team_id == team else None


def _count(connection: Connection, team: int, role: str | None = None) -> int:
    asked = select(func.count()).select_from(PEOPLE).where(PEOPLE.c.team_id == team)
    return int(connection.execute(asked if role is None else asked.where(PEOPLE.c.team_role == role)).scalar_one())


def _invitation(row: Mapping[Any, Any]) -> Invitation:
    return Invitation(
        int(row["id"]),
        int(row["team_id"]),
        row["team_role"],
        row["user_id"],
        row["name"],
        row["invited_by"],
        int(row["created_at_ms"]),
        int(row["expires_at_ms"]),
    )


def _check_role(role: str) -> None:
    if role not in TEAM_ROLES:
        raise BadValue(f"a role in a team is one of {', '.join(TEAM_ROLES)}")


def _checked_name(name: str) -> str:
    called = checked_text(name, "the name of a team")
    if len(called) > _TEAM_NAME_MOST:
        raise BadValue(f"the name of a team has at most {_TEAM_NAME_MOST} characters")
    return called
