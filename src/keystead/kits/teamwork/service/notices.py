"""Notices in the database: each is written once, in the order of its reader, and stays until it is read and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, func, insert, select, update

from keystead.errors import BadValue
from keystead.kits.teamwork.service.tables import NOTICES, PREFERENCES, READERS
from keystead.parts.tables import Tables, insert_new, locked_row

PAGE_MOST: Final = 100
_LARGEST: Final = 2**63 - 1

# The kinds of notices, and the preference that each goes by. What is in none of them is always told.
ASSIGNED, STATUS_CHANGED, DEADLINE = "담당자배정", "상태변경", "마감임박"
DEFECT_REGISTERED, COMMENTED, MENTIONED = "결함등록", "댓글등록", "멘션"
DEPLOYED, DEPLOYMENT_FAILED = "배포완료", "배포실패"
TEAM_INVITED, IDEA_ADOPTED, ACTION_ASSIGNED = "팀초대", "아이디어채택", "액션아이템배정"
TYPES: Final = (
    STATUS_CHANGED,
    ASSIGNED,
    DEADLINE,
    DEFECT_REGISTERED,
    COMMENTED,
    DEPLOYED,
    DEPLOYMENT_FAILED,
    TEAM_INVITED,
    IDEA_ADOPTED,
    ACTION_ASSIGNED,
    MENTIONED,
)
PREFERENCE_OF: Final[Mapping[str, str]] = {
    ASSIGNED: "assign",
    ACTION_ASSIGNED: "assign",
    COMMENTED: "comment",
    DEADLINE: "deadline",
    STATUS_CHANGED: "status",
    DEPLOYED: "deploy",
    DEPLOYMENT_FAILED: "deploy",
    MENTIONED: "mention",
}
PREFERENCES_FIRST: Final[Mapping[str, bool]] = {
    "assign": True,
    "comment": True,
    "deadline": True,
    "status": False,
    "deploy": True,
    "mention": True,
}


@dataclass(frozen=True)
class Told:
    """What somebody is to be told of."""

    user: int
    type: str
    title: str
    message: str
    ref_type: str
    ref_id: str


@dataclass(frozen=True)
class Notice:
    """A notice, as it was written. `place` is its place among those of its reader."""

    id: int
    user: int
    place: int
    event_id: str
    type: str
    title: str
    message: str
    ref_type: str
    ref_id: str
    is_read: bool
    slack_sent: bool
    created_at_ms: int


@dataclass(frozen=True)
class Page:
    """Notices, the newest first, and how many there are in all."""

    notices: list[Notice]
    total: int


class Notices:
    """The tables of notices as operations; each is one transaction. A database that is away is a StoreError."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # --- writing ---------------------------------------------------------------------------------------------

    async def tell(self, event_id: str, told: Sequence[Told], at_ms: int) -> list[Notice]:
        """Write what an event tells, one notice for each who wants to hear of it; what was written now.

        All of them or none, and each once for an event, however often it is told of.
        """
        for one in told:
            _check_user(one.user)
        # Readers are locked in one order, so that two events never wait for each other.
        ordered = sorted({one.user: one for one in told}.values(), key=lambda one: one.user)

        def work(connection: Connection) -> list[Notice]:
            written = (_written(connection, event_id, one, at_ms) for one in ordered)
            return [one for one in written if one is not None]

        return await self._tables.write(work) if ordered else []

    async def waiting(self, *, after: int = 0, most: int = 100) -> list[int]:
        """Readers whose newest notices are not on the stream yet, in the order of their ids, from the one after."""
        where = (READERS.c.waiting > 0, READERS.c.user_id > after)
        asked = select(READERS.c.user_id).where(*where).order_by(READERS.c.user_id).limit(most)
        return await self._tables.read(lambda connection: [int(user) for (user,) in connection.execute(asked)])

    async def unpublished(self, user: int, *, most: int = 100) -> list[Notice]:
        """The notices of a reader that are not on the stream yet, the oldest first."""

        def work(connection: Connection) -> list[Notice]:
            reader = connection.execute(select(READERS).where(READERS.c.user_id == user)).first()
            if reader is None or not reader.waiting:
                return []
            after = reader.last_place - reader.waiting
            asked = _own(user).where(NOTICES.c.place > after).order_by(NOTICES.c.place).limit(most)
            return [_notice(row) for row in connection.execute(asked)]

        return await self._tables.read(work)

    async def published(self, user: int, place: int, *, event_id: str | None = None) -> bool:
        """The notices of a reader are on the stream up to this place. An earlier one than is known changes nothing.

        False: there is no notice at this place, or it tells of another event: its reader was erased meanwhile, and
        nothing is changed.
        """
        left = READERS.c.last_place - place
        # The last: of a reader who was erased and told anew, there would be fewer than none.
        where = (READERS.c.user_id == user, READERS.c.waiting > left, READERS.c.last_place >= place)
        there = select(NOTICES.c.event_id).where(NOTICES.c.user_id == user, NOTICES.c.place == place)

        def work(connection: Connection) -> bool:
            found = connection.execute(there).scalar()
            if found is None or event_id not in (None, found):
                return False
            connection.execute(update(READERS).where(*where).values(waiting=left))
            return True

        return await self._tables.write(work)

    async def newest_place(self, user: int) -> int:
        """The place of the newest notice of a reader, be it on the stream or not; 0: there is none."""
        asked = select(READERS.c.last_place).where(READERS.c.user_id == user)
        return int(await self._tables.read(lambda connection: connection.execute(asked).scalar()) or 0)

    async def last_place(self, user: int) -> int:
        """The place of the newest notice of a reader that is on the stream; 0: there is none."""
        asked = select(READERS.c.last_place - READERS.c.waiting).where(READERS.c.user_id == user)
        return int(await self._tables.read(lambda connection: connection.execute(asked).scalar()) or 0)

    async def sent_to_slack(self, notice_id: int) -> None:
        asked = update(NOTICES).where(NOTICES.c.id == notice_id).values(slack_sent=True)
        await self._tables.write(lambda connection: connection.execute(asked))

    # --- reading ---------------------------------------------------------------------------------------------

    async def page(
        self, user: int, *, read: bool | None = None, ref_type: str | None = None, page: int = 0, size: int = 20
    ) -> Page:
        """Notices of a user, the newest first: all, or those that are read or not, or of one kind of work item."""
        where = _wanted(user, read, ref_type)

        def work(connection: Connection) -> Page:
            total = connection.execute(select(func.count()).select_from(NOTICES).where(*where)).scalar_one()
            asked = select(NOTICES).where(*where).order_by(NOTICES.c.place.desc()).limit(size).offset(page * size)
            return Page([_notice(row) for row in connection.execute(asked)], total)

        return await self._tables.read(work)

    async def find(self, user: int, notice_id: int) -> Notice | None:
        """A notice of a user; None: there is none, or it is another's."""
        asked = _own(user).where(NOTICES.c.id == _bounded(notice_id))
        row = await self._tables.read(lambda connection: connection.execute(asked).first())
        return None if row is None else _notice(row)

    async def unread(self, user: int) -> dict[str, int]:
        """How many notices of a user are not read, by the kind of work item."""
        asked = (
            select(NOTICES.c.ref_type, func.count())
            .where(NOTICES.c.user_id == user, NOTICES.c.is_read.is_(False))
            .group_by(NOTICES.c.ref_type)
        )
        return await self._tables.read(lambda connection: {kind: int(n) for kind, n in connection.execute(asked)})

    async def mark_read(self, user: int, *, notice_id: int | None = None, ref: tuple[str, str] | None = None) -> int:
        """Mark notices of a user as read: one, those of one work item, or all. How many were not read before."""
        where: list[ColumnElement[bool]] = [NOTICES.c.user_id == user, NOTICES.c.is_read.is_(False)]
        if notice_id is not None:
            where.append(NOTICES.c.id == _bounded(notice_id))
        if ref is not None:
            where += [NOTICES.c.ref_type == ref[0], NOTICES.c.ref_id == ref[1]]
        asked = update(NOTICES).where(*where).values(is_read=True)
        return int(await self._tables.write(lambda connection: connection.execute(asked).rowcount))

    # --- preferences -----------------------------------------------------------------------------------------

    async def preferences(self, user: int) -> dict[str, bool]:
        """What a user wants to hear of. Who has said nothing hears of all."""
        asked = select(PREFERENCES).where(PREFERENCES.c.user_id == user)
        row = await self._tables.read(lambda connection: connection.execute(asked).mappings().first())
        return {name: True if row is None else bool(row[f"{name}_on"]) for name in PREFERENCES_FIRST}

    async def prefer(self, user: int, wanted: Mapping[str, bool]) -> dict[str, bool]:
        """Change what a user wants to hear of. What is not named stays; the first time it is as `PREFERENCES_FIRST`."""
        unknown = sorted(wanted.keys() - PREFERENCES_FIRST.keys())
        if unknown:
            raise BadValue(f"there is no preference {unknown[0]!r}; there are {', '.join(PREFERENCES_FIRST)}")
        _check_user(user)

        def work(connection: Connection) -> None:
            first = {f"{name}_on": is_on for name, is_on in {**PREFERENCES_FIRST, **wanted}.items()}
            if not insert_new(connection, PREFERENCES, {"user_id": user, **first}) and wanted:
                changed = {f"{name}_on": is_on for name, is_on in wanted.items()}
                connection.execute(update(PREFERENCES).where(PREFERENCES.c.user_id == user).values(**changed))

        await self._tables.write(work)
        return await self.preferences(user)


def _written(connection: Connection, event_id: str, told: Told, at_ms: int) -> Notice | None:
    """One notice, in the transaction of its event; None: they do not want it, or have it."""
    if not _wants(connection, told):
        return None
    last = _locked_place(connection, told.user)
    there = select(NOTICES.c.id).where(NOTICES.c.user_id == told.user, NOTICES.c.event_id == event_id)
    if connection.execute(there).first() is not None:
        return None
    row = {
        "user_id": told.user,
        "place": last + 1,
        "event_id": event_id,
        "type": told.type,
        "title": told.title,
        "message": told.message,
        "ref_type": told.ref_type,
        "ref_id": told.ref_id,
        "is_read": False,
        "slack_sent": False,
        "created_at_ms": at_ms,
    }
    made: Any = connection.execute(insert(NOTICES).values(**row)).inserted_primary_key
    counted = {"last_place": READERS.c.last_place + 1, "waiting": READERS.c.waiting + 1}
    connection.execute(update(READERS).where(READERS.c.user_id == told.user).values(**counted))
    return _made(int(made[0]), row)


def _wants(connection: Connection, told: Told) -> bool:
    name = PREFERENCE_OF.get(told.type)
    if name is None:
        return True
    asked = select(PREFERENCES.c[f"{name}_on"]).where(PREFERENCES.c.user_id == told.user)
    found = connection.execute(asked).scalar()
    return True if found is None else bool(found)


def _locked_place(connection: Connection, user: int) -> int:
    """The place of a reader's newest notice. Their row is locked, and made at first sight."""
    asked = select(READERS.c.last_place).where(READERS.c.user_id == user)
    row = locked_row(connection, asked, READERS, {"user_id": user, "last_place": 0, "waiting": 0})
    return int(row.last_place)


def _own(user: int) -> Select[Any]:
    return select(NOTICES).where(NOTICES.c.user_id == user)


def _wanted(user: int, read: bool | None, ref_type: str | None) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = [NOTICES.c.user_id == user]
    if read is not None:
        where.append(NOTICES.c.is_read.is_(read))
    if ref_type is not None:
        where.append(NOTICES.c.ref_type == ref_type)
    return where


def _notice(row: Row[Any]) -> Notice:
    return _made(row.id, dict(row._mapping))


def _made(notice_id: int, row: Mapping[str, Any]) -> Notice:
    return Notice(
        notice_id,
        row["user_id"],
        row["place"],
        row["event_id"],
        row["type"],
        row["title"],
        row["message"],
        row["ref_type"],
        row["ref_id"],
        bool(row["is_read"]),
        bool(row["slack_sent"]),
        row["created_at_ms"],
    )


def _check_user(user: int) -> None:
    if type(user) is not int or not 0 < user <= _LARGEST:
        raise BadValue(f"the id of a user is a whole number from 1 on, not {user!r:.80}")


def _bounded(number: int) -> int:
    """A number that a column can be compared with; what is beyond them is nobody's."""
    return number if -_LARGEST <= number <= _LARGEST else -1
