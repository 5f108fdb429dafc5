"""The notice tables: each notice is written once, at the next place of its reader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, select, update

from keystead.errors import BadValue
from keystead.kits.teamwork.service.batches import Batches
from keystead.kits.teamwork.service.notice_rows import NewNotice, Notice, notice_of
from keystead.kits.teamwork.service.notice_types import PREFERENCES
from keystead.kits.teamwork.service.notice_writes import MarkPublished, NoticeJob, WriteNotices, write_batch
from keystead.kits.teamwork.service.tables import NOTICES, READERS
from keystead.kits.teamwork.service.tables import PREFERENCES as PREFERENCE_ROWS
from keystead.parts.tables import Tables, insert_new

_LARGEST: Final = 2**63 - 1
_BATCH: Final = 300  # notices in one transaction
_UNPUBLISHED_MAX: Final = 100  # of one reader at a time

_PUBLISHED: Final = (READERS.c.last_place - READERS.c.waiting).label("published")  # the last known published place
_NOT_DELETED: Final = NOTICES.c.deleted_at_ms.is_(None)


@dataclass(frozen=True)
class Reach:
    """The place of a reader's newest notice, and of the last one that is known to be published.

    The stream may be ahead of `published`, but never of `newest`.
    """

    newest: int = 0
    published: int = 0


@dataclass(frozen=True)
class Unpublished:
    """Notices of a reader that are not on the stream yet, up to a place. Missing places were deleted."""

    notices: list[Notice]
    up_to: int
    is_all: bool


@dataclass(frozen=True)
class Page:
    """One page of notices, newest first, and their total number."""

    notices: list[Notice]
    total: int


class Notices:
    """Operations on the notice tables. Each is one transaction. A database outage is a StoreError."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._batches: Batches[NoticeJob] = Batches(
            lambda jobs: tables.write(lambda connection: write_batch(connection, jobs)),
            lambda job: len(job.notices) if isinstance(job, WriteNotices) else 1,
            _BATCH,
        )

    # --- writing ---------------------------------------------------------------------------------------------

    async def write(self, event_id: str, notices: Sequence[NewNotice], at_ms: int) -> list[Notice]:
        """Write the notices of an event, except those of a type that their reader turned off. Returns the new ones.

        Atomic and idempotent: a reader gets one notice for an event id. Concurrent events share one transaction.
        """
        for one in notices:
            _check_user(one.user)
        ordered = sorted({one.user: one for one in notices}.values(), key=lambda one: one.user)
        return await self._batches.add(WriteNotices(event_id, ordered, at_ms)) if ordered else []

    async def behind(self, *, most: int = 10_000) -> dict[int, int]:
        """Readers with notices that are not on the stream yet, each with the last published place."""
        # No ORDER BY: it would use the index of all readers instead of the one of waiting readers.
        query = select(READERS.c.user_id, _PUBLISHED).where(READERS.c.waiting > 0).limit(most)
        found = await self._tables.read(lambda connection: connection.execute(query).all())
        return {row.user_id: row.published for row in sorted(found)}

    async def unpublished(self, users: Collection[int]) -> dict[int, Unpublished]:
        """The oldest unpublished notices of these readers. Readers without any are left out."""
        behind = (
            select(READERS.c.user_id.label("reader"), READERS.c.last_place, _PUBLISHED)
            .where(READERS.c.waiting > 0, READERS.c.user_id.in_(users))
            .subquery()
        )
        ends = behind.c.published + _UNPUBLISHED_MAX
        places = (NOTICES.c.place > behind.c.published, NOTICES.c.place <= ends)
        own = and_(NOTICES.c.user_id == behind.c.reader, *places, _NOT_DELETED)
        # One statement, for a consistent snapshot.
        query = select(behind, NOTICES).select_from(behind.outerjoin(NOTICES, own))

        def work(connection: Connection) -> dict[int, Unpublished]:
            found: dict[int, Unpublished] = {}
            for row in connection.execute(query.order_by(behind.c.reader, NOTICES.c.place)):
                up_to = min(row.last_place, row.published + _UNPUBLISHED_MAX)
                one = found.setdefault(row.reader, Unpublished([], up_to, up_to == row.last_place))
                if row.id is not None:
                    one.notices.append(notice_of(row._mapping))
            return found

        return await self._tables.read(work)

    async def mark_published(self, user: int, place: int, *, event_id: str | None = None) -> bool:
        """Record that the notices of a reader are on the stream up to this place. An earlier place changes nothing.

        False: the place belongs to another event, or does not exist: the reader was erased meanwhile. Nothing changes.
        """
        done: bool = await self._batches.add(MarkPublished(user, place, event_id))
        return done

    async def reach(self, user: int) -> Reach:
        """The newest and the last published place of a reader; 0 for an unknown reader."""
        query = select(READERS.c.last_place, READERS.c.waiting).where(READERS.c.user_id == user)
        row = await self._tables.read(lambda connection: connection.execute(query).first())
        return Reach() if row is None else Reach(row.last_place, row.last_place - row.waiting)

    async def has_between(self, user: int, first: int, last: int) -> bool:
        """Whether a reader has notices at these places; False if all were deleted."""
        query = _own(user).where(NOTICES.c.place >= first, NOTICES.c.place <= last, _NOT_DELETED).limit(1)
        return await self._tables.read(lambda connection: connection.execute(query).first() is not None)

    async def mark_sent_to_slack(self, notice_id: int) -> None:
        change = update(NOTICES).where(NOTICES.c.id == notice_id).values(slack_sent=True)
        await self._tables.write(lambda connection: connection.execute(change))

    # --- reading ---------------------------------------------------------------------------------------------

    async def page(
        self,
        user: int,
        *,
        read: bool | None = None,
        ref_type: str | None = None,
        ref_id: str | None = None,
        page: int = 0,
        size: int = 20,
    ) -> Page:
        """Notices of a user, newest first, filtered by read state, type of work item, or work item."""
        where = _filters(user, read, ref_type, ref_id)

        def work(connection: Connection) -> Page:
            total = connection.execute(select(func.count()).select_from(NOTICES).where(*where)).scalar_one()
            query = select(NOTICES).where(*where).order_by(NOTICES.c.place.desc()).limit(size).offset(page * size)
            return Page([notice_of(row._mapping) for row in connection.execute(query)], total)

        return await self._tables.read(work)

    async def find(self, user: int, notice_id: int) -> Notice | None:
        """A notice of a user; None: they have no such notice, or it was deleted."""
        query = _own(user).where(NOTICES.c.id == _bounded(notice_id), _NOT_DELETED)
        row = await self._tables.read(lambda connection: connection.execute(query).first())
        return None if row is None else notice_of(row._mapping)

    async def count_unread(self, user: int) -> dict[str, int]:
        """Count the unread notices of a user, by type of work item."""
        query = (
            select(NOTICES.c.ref_type, func.count())
            .where(*_filters(user, False, None, None))
            .group_by(NOTICES.c.ref_type)
        )
        return await self._tables.read(lambda connection: {kind: int(n) for kind, n in connection.execute(query)})

    async def mark_read(self, user: int, *, notice_id: int | None = None, ref: tuple[str, str] | None = None) -> int:
        """Mark notices of a user as read: one, those of a work item, or all. Returns how many were unread."""
        where = _filters(user, False, *(ref or (None, None)))
        if notice_id is not None:
            where.append(NOTICES.c.id == _bounded(notice_id))
        change = update(NOTICES).where(*where).values(is_read=True)
        return int(await self._tables.write(lambda connection: connection.execute(change).rowcount))

    async def newest_of_item(self, kind: str, ref_type: str, ref_id: str) -> Notice | None:
        """The newest notice of a type about a work item, of any reader; None: there is none."""
        where = (NOTICES.c.ref_type == ref_type, NOTICES.c.ref_id == ref_id, NOTICES.c.type == kind, _NOT_DELETED)
        query = select(NOTICES).where(*where).order_by(NOTICES.c.id.desc()).limit(1)
        row = await self._tables.read(lambda connection: connection.execute(query).first())
        return None if row is None else notice_of(row._mapping)

    # --- deleting --------------------------------------------------------------------------------------------

    async def delete(self, user: int, notice_id: int, at_ms: int) -> bool:
        """Delete a notice of a user. False: they have no such notice.

        The text is deleted immediately. The row stays until it expires, for deduplication of its event.
        """
        where = (NOTICES.c.user_id == user, NOTICES.c.id == _bounded(notice_id), _NOT_DELETED)
        blank = {"title": "", "message": "", "said": None, "is_read": True, "deleted_at_ms": at_ms}
        change = update(NOTICES).where(*where).values(**blank)
        return await self._tables.write(lambda connection: connection.execute(change).rowcount == 1)

    async def delete_old(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` published notices from before a moment. Returns their number."""
        is_published = NOTICES.c.place <= READERS.c.last_place - READERS.c.waiting
        old = (
            select(NOTICES.c.id)
            .join(READERS, READERS.c.user_id == NOTICES.c.user_id)
            .where(NOTICES.c.created_at_ms < before_ms, is_published)
            .limit(most)
        )

        def work(connection: Connection) -> int:
            ids = [found for (found,) in connection.execute(old)]
            if ids:
                connection.execute(delete(NOTICES).where(NOTICES.c.id.in_(ids)))
            return len(ids)

        return await self._tables.write(work)

    # --- preferences -----------------------------------------------------------------------------------------

    async def preferences(self, user: int) -> dict[str, bool]:
        """The preferences of a user. All are on by default."""
        query = select(PREFERENCE_ROWS).where(PREFERENCE_ROWS.c.user_id == user)
        row = await self._tables.read(lambda connection: connection.execute(query).mappings().first())
        return {name: True if row is None else bool(row[f"{name}_on"]) for name in PREFERENCES}

    async def set_preferences(self, user: int, changes: Mapping[str, bool]) -> dict[str, bool]:
        """Change some preferences of a user. Returns all of them. Raises BadValue for an unknown one."""
        unknown = sorted(changes.keys() - set(PREFERENCES))
        if unknown:
            raise BadValue(f"there is no preference {unknown[0]!r}; there are {', '.join(PREFERENCES)}")
        _check_user(user)

        def work(connection: Connection) -> None:
            first = {f"{name}_on": changes.get(name, True) for name in PREFERENCES}
            if not insert_new(connection, PREFERENCE_ROWS, {"user_id": user, **first}) and changes:
                values = {f"{name}_on": is_on for name, is_on in changes.items()}
                connection.execute(update(PREFERENCE_ROWS).where(PREFERENCE_ROWS.c.user_id == user).values(**values))

        await self._tables.write(work)
        return await self.preferences(user)


def _own(user: int) -> Select[Any]:
    return select(NOTICES).where(NOTICES.c.user_id == user)


def _filters(user: int, read: bool | None, ref_type: str | None, ref_id: str | None) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = [NOTICES.c.user_id == user, _NOT_DELETED]
    if read is not None:
        where.append(NOTICES.c.is_read.is_(read))
    if ref_type is not None:
        where.append(NOTICES.c.ref_type == ref_type)
    if ref_id is not None:
        where.append(NOTICES.c.ref_id == ref_id)
    return where


def _check_user(user: int) -> None:
    if type(user) is not int or not 0 < user <= _LARGEST:
        raise BadValue(f"the id of a user must be a whole number of at least 1, not {user!r:.80}")


def _bounded(number: int) -> int:
    """An id that fits the column; -1, which no row has, for one that does not."""
    return number if -_LARGEST <= number <= _LARGEST else -1
