"""Batched writes to the notice tables: new notices, and publishing progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, bindparam, insert, select, update

from keystead.kits.teamwork.service.notice_rows import NewNotice, Notice, notice_of, row_of
from keystead.kits.teamwork.service.notice_types import PREFERENCE_OF
from keystead.kits.teamwork.service.tables import NOTICES, PREFERENCES, READERS
from keystead.parts.tables import locked_rows

_PAIRS: Final = 16

_Pair: TypeAlias = tuple[int, str]  # a user and the id of an event


@dataclass(frozen=True, eq=False)
class WriteNotices:
    """Write the notices of one event, at most one per user."""

    event_id: str
    notices: Sequence[NewNotice]
    at_ms: int


@dataclass(frozen=True, eq=False)
class MarkPublished:
    """Record that the notices of a reader are on the stream up to this place."""

    user: int
    place: int
    event_id: str | None


NoticeJob: TypeAlias = WriteNotices | MarkPublished


def write_batch(connection: Connection, jobs: Sequence[NoticeJob]) -> list[Any]:
    """Run all jobs in one transaction: the new notices of a WriteNotices, and whether a MarkPublished took effect.

    Who may interleave: batches of other processes. Every batch locks all of its readers first, in the same order. So
    batches never deadlock, and places follow the order of the commits.
    """
    writes = [job for job in jobs if isinstance(job, WriteNotices)]
    marks = [job for job in jobs if isinstance(job, MarkPublished)]
    wanted = _drop_unwanted(connection, writes)
    users = {one.user for new in wanted.values() for one in new}
    fresh = [{"user_id": user, "last_place": 0, "waiting": 0} for user in users]
    query = select(READERS.c.user_id, READERS.c.last_place).where(
        READERS.c.user_id.in_(sorted(users | {mark.user for mark in marks}))
    )
    places = {row.user_id: row.last_place for row in locked_rows(connection, query, READERS, fresh)}
    notices = _insert(connection, wanted, places)
    marked = _mark(connection, marks)
    return [notices[job] if isinstance(job, WriteNotices) else marked[job] for job in jobs]


def _drop_unwanted(connection: Connection, writes: Sequence[WriteNotices]) -> dict[WriteNotices, list[NewNotice]]:
    """The notices to write, without the types that their readers have turned off."""
    users = {one.user for write in writes for one in write.notices if one.type in PREFERENCE_OF}
    if not users:
        return {write: list(write.notices) for write in writes}
    query = select(PREFERENCES).where(PREFERENCES.c.user_id.in_(sorted(users)))
    found = {row["user_id"]: row for row in connection.execute(query).mappings()}

    def is_wanted(one: NewNotice) -> bool:
        name, row = PREFERENCE_OF.get(one.type), found.get(one.user)
        return name is None or row is None or bool(row[f"{name}_on"])

    return {write: [one for one in write.notices if is_wanted(one)] for write in writes}


def _insert(
    connection: Connection, wanted: Mapping[WriteNotices, Sequence[NewNotice]], places: dict[int, int]
) -> dict[WriteNotices, list[Notice]]:
    """Write notices at the next free places. Deduplication: a reader gets one notice for an event id."""
    rows = _new_rows(connection, wanted, places)
    ids = _insert_rows(connection, rows) if rows else {}
    notices: dict[WriteNotices, list[Notice]] = {write: [] for write in wanted}
    for pair, (write, row) in rows.items():
        notices[write].append(notice_of({"id": ids[pair], **row}))
    return notices


def _new_rows(
    connection: Connection, wanted: Mapping[WriteNotices, Sequence[NewNotice]], places: dict[int, int]
) -> dict[_Pair, tuple[WriteNotices, dict[str, Any]]]:
    """Rows for notices that are not in the table yet, each with its write. Advances `places`."""
    pairs = [(one.user, write.event_id) for write, new in wanted.items() for one in new]
    known = {(row.user_id, row.event_id) for row in _find(connection, NOTICES.c.event_id, pairs)}
    rows: dict[_Pair, tuple[WriteNotices, dict[str, Any]]] = {}
    for write, one in ((write, one) for write, new in wanted.items() for one in new):
        pair = (one.user, write.event_id)
        if pair not in known and pair not in rows:
            places[one.user] += 1
            rows[pair] = (write, row_of(write.event_id, one, places[one.user], write.at_ms))
    return rows


def _insert_rows(connection: Connection, rows: Mapping[_Pair, tuple[WriteNotices, dict[str, Any]]]) -> dict[_Pair, int]:
    """Insert rows and advance their readers. Returns the ids that the database generated."""
    connection.execute(insert(NOTICES), [row for _, row in rows.values()])
    counts = Counter(user for user, _ in rows)
    more: ColumnElement[int] = bindparam("more")
    counted = {"last_place": READERS.c.last_place + more, "waiting": READERS.c.waiting + more}
    connection.execute(
        update(READERS).where(READERS.c.user_id == bindparam("user")).values(counted),
        [{"user": user, "more": counts[user]} for user in sorted(counts)],
    )
    newest = NOTICES.c.place > READERS.c.last_place - max(counts.values())
    query = (
        select(NOTICES.c.id, NOTICES.c.user_id, NOTICES.c.event_id)
        .join(READERS, READERS.c.user_id == NOTICES.c.user_id)
        .where(READERS.c.user_id.in_(sorted(counts)), newest)
    )
    return {(row.user_id, row.event_id): int(row.id) for row in connection.execute(query)}


def _find(
    connection: Connection, column: ColumnElement[Any], pairs: Sequence[tuple[int, Any]]
) -> Iterator[Row[Any, Any, Any]]:
    """Notices of these users with these values of a column, and possibly others of the same users.

    Each query has a few users and a few values, which uses an index. For a list of pairs, SQLite scans the table.
    """
    query = select(NOTICES.c.user_id, NOTICES.c.place, NOTICES.c.event_id)
    for first in range(0, len(pairs), _PAIRS):
        users, values = zip(*pairs[first : first + _PAIRS], strict=True)
        yield from connection.execute(query.where(NOTICES.c.user_id.in_(set(users)), column.in_(set(values))))


def _mark(connection: Connection, marks: Sequence[MarkPublished]) -> dict[MarkPublished, bool]:
    """Record publishing progress. False: the reader was erased meanwhile, and the place is not theirs."""
    if not marks:
        return {}
    places = [(mark.user, mark.place) for mark in marks]
    events = {(row.user_id, row.place): row.event_id for row in _find(connection, NOTICES.c.place, places)}
    reached = select(READERS.c.user_id, READERS.c.last_place).where(
        READERS.c.user_id.in_(sorted({mark.user for mark in marks}))
    )
    last = {row.user_id: row.last_place for row in connection.execute(reached)}

    def is_of_reader(mark: MarkPublished) -> bool:
        # A notice that its reader deleted meanwhile keeps its place; no other notice takes it.
        found = events.get((mark.user, mark.place), mark.event_id)
        return mark.place <= last.get(mark.user, 0) and mark.event_id in (None, found)

    done = {mark: is_of_reader(mark) for mark in marks}
    _lower_waiting(connection, [mark for mark, is_own in done.items() if is_own])
    return done


def _lower_waiting(connection: Connection, marks: Iterable[MarkPublished]) -> None:
    left = READERS.c.last_place - bindparam("place")
    values = sorted(({"user": mark.user, "place": mark.place} for mark in marks), key=lambda one: one["user"])
    if values:
        connection.execute(
            update(READERS)
            .where(READERS.c.user_id == bindparam("user"), READERS.c.waiting > left)
            .values(waiting=left),
            values,
        )
