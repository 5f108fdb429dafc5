"""Teams: members, roles and invitations. Each operation is one transaction."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from keystead.errors import BadValue, KeysteadError
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service.people import GENERATED_BELOW, NO_TEAM, People, check_text
from keystead.kits.teamwork.service.tables import INVITATIONS, PEOPLE, TEAMS
from keystead.parts.digest import digest
from keystead.parts.tables import Tables, insert_new
from keystead.schema import attempts

_security = logging.getLogger("keystead.security")

TeamRole: TypeAlias = Literal["OWNER", "ADMIN", "MEMBER"]
TEAM_ROLES: Final[tuple[TeamRole, ...]] = get_args(TeamRole)
LEADS: Final = frozenset({"OWNER", "ADMIN"})
OPEN_MAX: Final = 100  # open invitations per team
_TEAM_NAME_MAX: Final = 100

Reason: TypeAlias = Literal[
    "FORBIDDEN",
    "NOT_FOUND",
    "ALREADY_IN_TEAM",
    "LAST_OWNER",
    "INVITATION_INVALID",
    "TOO_MANY_INVITATIONS",
    "PEOPLE_ELSEWHERE",
]
_SENTENCES: Final[Mapping[Reason, str]] = {
    "FORBIDDEN": "Only owners and admins of the team can do this; only owners can change owners.",
    "NOT_FOUND": "Your team has no such member or invitation.",
    "ALREADY_IN_TEAM": "This user is already in a team, and must leave it first.",
    "LAST_OWNER": "This is the last owner of the team. Make another member an owner first.",
    "INVITATION_INVALID": "This invitation was used, withdrawn, or has expired. Ask for a new one.",
    "TOO_MANY_INVITATIONS": f"A team can have at most {OPEN_MAX} open invitations. Withdraw some first.",
    "PEOPLE_ELSEWHERE": "Another application manages the users of this server. Change teams there.",
}


class TeamRefused(KeysteadError):
    """A team operation was refused; `reason` is for programs."""

    code = "team-refused"

    def __init__(self, reason: Reason) -> None:
        super().__init__(_SENTENCES[reason])
        self.reason: Reason = reason


@dataclass(frozen=True)
class Team:
    """A team. The name is empty if an application created the team."""

    id: int
    name: str


@dataclass(frozen=True)
class Invitation:
    """An open invitation. `user` is the only one who can accept it; None: anyone with the link."""

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
    """An invitation with the token of its link. The table has only the digest of the token."""

    invitation: Invitation
    token: str


class Teams:
    """Teams, members and invitations, in the tables of the kit.

    `by` is the user who requests the change; None: an operator, with all permissions. Permissions are checked in the
    transaction of the change. **Who may interleave:** another change of the same team. The row of the team is locked
    first, so two owners who leave at once are serialized, and the second is refused. Of concurrent uses of one link one
    succeeds: its row is locked, and deleted in the transaction that adds the member.
    """

    def __init__(self, tables: Tables, people: People, now_ms: Callable[[], int], *, invitation_ms: int) -> None:
        self._tables = tables
        self._people = people
        self._now_ms = now_ms
        self._invitation_ms = invitation_ms

    # --- teams -----------------------------------------------------------------------------------------------

    async def create(self, name: str, *, owner: int | None = None, number: int | None = None, above: int = 0) -> Team:
        """Create a team with its first owner. Raises TeamRefused if the owner is in a team, and BadValue.

        number   the id, if another program sets it; refused if the team exists
        above    otherwise the new id is greater than this one, and than those of all teams
        """
        checked = _check_team_name(name)
        if number is not None and not 0 < number < 2**63:
            raise BadValue("the number of a team must be a whole number of at least 1")

        def work(connection: Connection) -> Team | None:
            if owner is not None:
                self._lock_newcomer(connection, owner)
            team = self._insert(connection, checked, number, above)
            if owner is not None and team is not None:
                _set_team(connection, owner, team.id, "OWNER")
            return team

        await self._invalidate(owner)
        async for _ in attempts("the list of teams", most=200):
            team = await self._tables.write(work)
            if team is not None:
                _security.info("a team was created", extra={"event": "team-created", "team": team.id, "by": owner})
                await self._invalidate(owner)
                return team
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    def _insert(self, connection: Connection, name: str, number: int | None, above: int) -> Team | None:
        """Insert a team; None: a concurrent transaction took its number."""
        row = {"name": name, "created_at_ms": self._now_ms()}
        if number is not None:
            if insert_new(connection, TEAMS, {"id": number, **row}):
                return Team(number, name)
            raise BadValue(f"team {number} already exists")
        teams = connection.execute(select(func.max(TEAMS.c.id)).where(TEAMS.c.id < GENERATED_BELOW)).scalar()
        used = connection.execute(select(func.max(PEOPLE.c.team_id)).where(PEOPLE.c.team_id < GENERATED_BELOW)).scalar()
        team = Team(max(int(teams or 0), int(used or 0), above) + 1, name)
        return team if insert_new(connection, TEAMS, {"id": team.id, **row}) else None

    async def ensure(self, team: int, name: str) -> None:
        """Create a team with this id and name if it has no row yet."""
        row = {"id": team, "name": _check_team_name(name), "created_at_ms": self._now_ms()}
        await self._tables.write(lambda connection: insert_new(connection, TEAMS, row))

    async def find(self, team: int) -> Team | None:
        """A team; None: there is none. A team that an application created has no name."""
        named = select(TEAMS).where(TEAMS.c.id == team)
        used = select(PEOPLE.c.user_id).where(PEOPLE.c.team_id == team).limit(1)

        def work(connection: Connection) -> Team | None:
            row = connection.execute(named).first()
            if row is not None:
                return Team(int(row.id), row.name)
            return Team(team, "") if team > 0 and connection.execute(used).first() is not None else None

        return await self._tables.read(work)

    async def all(self) -> list[tuple[Team, int]]:
        """All teams with their number of members, by id."""

        def work(connection: Connection) -> list[tuple[Team, int]]:
            names = {int(row.id): row.name for row in connection.execute(select(TEAMS))}
            counted = select(PEOPLE.c.team_id, func.count()).where(PEOPLE.c.team_id > 0).group_by(PEOPLE.c.team_id)
            counts = {int(team): int(count) for team, count in connection.execute(counted)}
            ids = sorted(names.keys() | counts.keys())
            return [(Team(one, names.get(one, "")), counts.get(one, 0)) for one in ids]

        return await self._tables.read(work)

    async def rename(self, team: int, name: str, *, by: int | None = None) -> None:
        checked = _check_team_name(name)

        def work(connection: Connection) -> None:
            self._lock(connection, team, by)
            connection.execute(update(TEAMS).where(TEAMS.c.id == team).values(name=checked))

        await self._tables.write(work)

    async def require_lead(self, team: int, by: int | None) -> None:
        """Raises TeamRefused if the user is not an owner or admin of the team."""
        if by is not None and _role_in(await self._people.find(by), team) not in LEADS:
            raise TeamRefused("FORBIDDEN")

    # --- members ---------------------------------------------------------------------------------------------

    async def set_role(self, team: int, user: int, role: str, *, by: int | None = None) -> None:
        """Change the role of a member. Only owners can add or change owners."""
        _check_role(role)

        def work(connection: Connection) -> None:
            own_role = self._lock(connection, team, by)
            before = _role_of(connection, user, team)
            if before is None:
                raise TeamRefused("NOT_FOUND")
            if "OWNER" in (before, role) and own_role != "OWNER":
                raise TeamRefused("FORBIDDEN")
            if before == "OWNER" and role != "OWNER" and _count(connection, team, "OWNER") == 1:
                raise TeamRefused("LAST_OWNER")
            connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(team_role=role))
            _delete_invitations_by(connection, user, role)

        await self._invalidate(user)
        await self._tables.write(work)
        event = {"event": "team-role-changed", "team": team, "user": user, "role": role, "by": by}
        _security.info("the role of a team member was changed", extra=event)
        await self._invalidate(user)

    async def remove(self, team: int, user: int, *, by: int | None = None) -> None:
        """Remove a member from a team. A member who leaves is removed `by` themselves."""

        def work(connection: Connection) -> None:
            own_role = self._lock(connection, team, None if by == user else by)
            role = _role_of(connection, user, team)
            if role is None:
                raise TeamRefused("NOT_FOUND")
            if role == "OWNER" and own_role != "OWNER":
                raise TeamRefused("FORBIDDEN")
            is_last = role == "OWNER" and _count(connection, team, "OWNER") == 1
            if is_last and _count(connection, team) > 1:
                raise TeamRefused("LAST_OWNER")
            _set_team(connection, user, NO_TEAM, "")
            _delete_invitations_by(connection, user, "")

        await self._invalidate(user)
        await self._tables.write(work)
        event = {"event": "team-left" if by == user else "team-member-removed", "team": team, "user": user, "by": by}
        _security.info("a member left a team or was removed", extra=event)
        await self._invalidate(user)

    # --- invitations -----------------------------------------------------------------------------------------

    async def invite(
        self, team: int, *, role: str = "MEMBER", user: int | None = None, name: str = "", by: int | None = None
    ) -> NewInvitation:
        """Create an invitation for one use: for a user of ours (`user`), or for anyone with the link."""
        _check_role(role)
        checked = check_text(name, "a name", empty=True)
        token = secrets.token_urlsafe(32)
        now_ms = self._now_ms()
        row = {
            "digest": digest(token),
            "team_id": team,
            "team_role": role,
            "user_id": user,
            "name": checked,
            "invited_by": by,
            "created_at_ms": now_ms,
            "expires_at_ms": now_ms + self._invitation_ms,
        }

        def work(connection: Connection) -> NewInvitation:
            own_role = self._lock(connection, team, by)
            if role == "OWNER" and own_role != "OWNER":
                raise TeamRefused("FORBIDDEN")
            if user is not None:
                self._lock_newcomer(connection, user, or_in=team)
                # A new personal invitation replaces the previous one.
                same = (INVITATIONS.c.team_id == team, INVITATIONS.c.user_id == user)
                connection.execute(delete(INVITATIONS).where(*same))
            is_open = (INVITATIONS.c.team_id == team, INVITATIONS.c.expires_at_ms > now_ms)
            count = select(func.count()).select_from(INVITATIONS).where(*is_open)
            if connection.execute(count).scalar_one() >= OPEN_MAX:
                raise TeamRefused("TOO_MANY_INVITATIONS")
            key: Any = connection.execute(insert(INVITATIONS).values(**row)).inserted_primary_key
            return NewInvitation(_invitation({"id": key[0], **row}), token)

        new = await self._tables.write(work)
        event = {"event": "team-invited", "team": team, "invitation": new.invitation.id, "role": role, "by": by}
        _security.info("a team invitation was created", extra=event)
        return new

    async def invitations(self, team: int) -> list[Invitation]:
        """The open invitations of a team, newest first."""
        return await self._list_open(INVITATIONS.c.team_id == team)

    async def invitations_to(self, user: int) -> list[Invitation]:
        """The open personal invitations of a user, newest first."""
        return await self._list_open(INVITATIONS.c.user_id == user)

    async def find_invitation(self, token: str) -> Invitation | None:
        """The open invitation of a link, without using it; None: used, withdrawn, expired or unknown."""
        found = await self._list_open(INVITATIONS.c.digest == digest(token))
        return found[0] if found else None

    async def _list_open(self, where: Any) -> list[Invitation]:
        is_open = INVITATIONS.c.expires_at_ms > self._now_ms()
        query = select(INVITATIONS).where(where, is_open).order_by(INVITATIONS.c.id.desc()).limit(OPEN_MAX)
        return await self._tables.read(
            lambda connection: [_invitation(row._mapping) for row in connection.execute(query)]
        )

    async def accept(self, user: int, *, token: str | None = None, invitation: int | None = None) -> Team:
        """Join a team by the token of a link, or by the id of a personal invitation. The invitation is deleted.

        Raises TeamRefused; then nothing has changed, and the invitation stays valid.
        """
        which = INVITATIONS.c.digest == digest(token) if token is not None else INVITATIONS.c.id == invitation

        def work(connection: Connection) -> tuple[int, str]:
            row = connection.execute(select(INVITATIONS).where(which).with_for_update()).first()
            is_recipient = row is not None and row.user_id in ((None, user) if token is not None else (user,))
            if row is None or not is_recipient or row.expires_at_ms <= self._now_ms():
                raise TeamRefused("INVITATION_INVALID")
            self._lock(connection, row.team_id, None)
            self._lock_newcomer(connection, user)
            _set_team(connection, user, row.team_id, row.team_role)
            connection.execute(delete(INVITATIONS).where(INVITATIONS.c.id == row.id))
            return int(row.team_id), row.team_role

        await self._invalidate(user)
        team, role = await self._tables.write(work)
        event = {"event": "team-joined", "team": team, "user": user, "role": role}
        _security.info("a user joined a team", extra=event)
        await self._invalidate(user)
        return await self.find(team) or Team(team, "")

    async def withdraw(self, team: int, invitation: int, *, by: int | None = None) -> None:
        """Delete an invitation. Raises TeamRefused if the team has no such one."""

        def work(connection: Connection) -> None:
            self._lock(connection, team, by)
            where = (INVITATIONS.c.id == invitation, INVITATIONS.c.team_id == team)
            if connection.execute(select(INVITATIONS.c.id).where(*where)).first() is None:
                raise TeamRefused("NOT_FOUND")
            connection.execute(delete(INVITATIONS).where(*where))

        await self._tables.write(work)
        event = {"event": "team-invitation-withdrawn", "team": team, "invitation": invitation, "by": by}
        _security.info("a team invitation was withdrawn", extra=event)

    async def delete_expired(self) -> int:
        """Delete expired invitations. Returns their number."""
        expired = delete(INVITATIONS).where(INVITATIONS.c.expires_at_ms <= self._now_ms())
        return int(await self._tables.write(lambda connection: connection.execute(expired).rowcount))

    # --- in a transaction ------------------------------------------------------------------------------------

    def _lock(self, connection: Connection, team: int, by: int | None) -> str:
        """Lock a team. Returns the role of `by`. Raises TeamRefused for a missing team, or if they do not lead it."""
        row = connection.execute(select(TEAMS.c.id).where(TEAMS.c.id == team).with_for_update()).first()
        if row is None:
            # A team that an application created has no row yet.
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
        """Lock a user without a team, or, for an invitation, not in this team (`or_in`). Raises TeamRefused."""
        row = connection.execute(select(PEOPLE.c.team_id).where(PEOPLE.c.user_id == user).with_for_update()).first()
        if row is None:
            raise TeamRefused("NOT_FOUND")
        if row.team_id == or_in or (or_in is None and row.team_id != NO_TEAM):
            raise TeamRefused("ALREADY_IN_TEAM")

    async def _invalidate(self, user: int | None) -> None:
        """Invalidate the cached user, before and after a change.

        During a cache outage the first call fails, and nothing has changed. If only the second one fails, a repeated
        request invalidates the cache, even though the change itself is refused then.
        """
        if user is not None:
            await self._people.report_change(user)


def _set_team(connection: Connection, user: int, team: int, role: str) -> None:
    connection.execute(update(PEOPLE).where(PEOPLE.c.user_id == user).values(team_id=team, team_role=role))


def _delete_invitations_by(connection: Connection, user: int, role: str) -> None:
    """Delete the invitations by a user that their new role does not permit."""
    if role == "OWNER":
        return
    own = INVITATIONS.c.invited_by == user
    beyond = [INVITATIONS.c.team_role == "OWNER"] if role in LEADS else []
    connection.execute(delete(INVITATIONS).where(own, *beyond))


def _role_of(connection: Connection, user: int, team: int) -> str | None:
    query = select(PEOPLE.c.team_role).where(PEOPLE.c.user_id == user, PEOPLE.c.team_id == team).with_for_update()
    found: Row[Any] | None = connection.execute(query).first()
    return None if found is None else str(found.team_role)


def _role_in(person: UserSession | None, team: int) -> str | None:
    return person.team_role if person is not None and person.team_id == team else None


def _count(connection: Connection, team: int, role: str | None = None) -> int:
    query = select(func.count()).select_from(PEOPLE).where(PEOPLE.c.team_id == team)
    return int(connection.execute(query if role is None else query.where(PEOPLE.c.team_role == role)).scalar_one())


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
        raise BadValue(f"a team role must be one of {', '.join(TEAM_ROLES)}")


def _check_team_name(name: str) -> str:
    checked = check_text(name, "the name of a team")
    if len(checked) > _TEAM_NAME_MAX:
        raise BadValue(f"the name of a team can have at most {_TEAM_NAME_MAX} characters")
    return checked
