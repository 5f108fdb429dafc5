"""Deadlines: what is due in a team, and the notice of it in the team's morning: once, late rather than never."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ValidationError

from keystead.errors import BadValue, KeysteadError, StoreClosed, StoreError, Unreadable, WrongKind
from keystead.kits.teamwork.keys import TeamworkKeys, deadline_score
from keystead.kits.teamwork.models import Deadline, DueItem, TeamSettings
from keystead.kits.teamwork.service.events import DeadlineNear, WorkItem
from keystead.schema.kinds import SortedSetKey
from keystead.stores import Command

_log = logging.getLogger("keystead.teamwork")

MORNING: Final = time(9, 0)
_DAY_S: Final = 86_400
_OVERDUE: Final = "overdue"
_REF_MOST: Final = 100  # bytes of an item's name in the id of an event; a longer one is there as its digest
_FIRST, _LAST = date(1970, 1, 1), date(9999, 12, 31)


@dataclass(frozen=True)
class Due:
    """A work item that is due on a day."""

    ref: Deadline
    due: date
    item: DueItem | None  # None: only its place in the list is there, as of a program that writes it alone


@dataclass(frozen=True)
class Morning:
    """What one look at the deadlines did. `failed`: how many teams or items could not be told of; the log says why."""

    teams: int
    told: int
    failed: int = 0


class Deadlines:
    """The deadlines of teams.

    tell      tells of one; what was told before may be told again, and is then known as told (see `Notices.tell`)
    changed   is told which team's deadlines have changed
    zone      the time zone of teams that have none of their own
    days      how many days before the day each is told of: (3,) or (7, 3, 1)

    **Told once for each item, day and mark**, however often the job runs, late, or on two machines: the id of the event
    is made of the team, the item, its day and the mark, and of nothing else. Where several marks are past, because the
    item is new or no job ran, only the nearest is told of. What was due is told of once more, as overdue.
    """

    def __init__(
        self,
        keys: TeamworkKeys,
        tell: Callable[[DeadlineNear], Awaitable[Any]],
        *,
        changed: Callable[[int], Awaitable[Any]] | None = None,
        zone: str = "UTC",
        days: Sequence[int] = (3,),
    ) -> None:
        if not days or any(type(one) is not int or not 0 <= one <= 365 for one in days):
            raise BadValue(f"days is a list of whole numbers from 0 to 365, not {days!r:.80}")
        self._keys = keys
        self._tell = tell
        self._changed = changed
        self._zone = zone_named(zone)
        self._days = sorted(set(days))

    # --- the list --------------------------------------------------------------------------------------------

    async def register(
        self, team: int, ref: Deadline, due: date, *, title: str, doc_no: str = "", assignee: int | None = None
    ) -> bool:
        """Put a deadline in, or move it, and say whom it concerns; whether it is new. One atomic step.

        Raises BadValue for what could not be told of when the day comes.
        """
        _check_day(due)
        _check_item(ref, title, doc_no, assignee)
        keys = self._keys
        await keys.due_teams().add(team)  # first: a team without a deadline costs one look, and the other way all
        row, items = keys.due_item(team, *ref), keys.deadlines(team)
        # Field by field: what was told of it stays.
        fields = {"title": title, "docNo": doc_no, "due": due}
        written = row.put(fields if assignee is None else {**fields, "assigneeId": assignee})
        nobody = [row.remove("assigneeId")] if assignee is None else []
        done = await keys.atomically(items.score(ref), written, *nobody, items.put({ref: deadline_score(due)}))
        await self._note(team)
        return done.values[0] is None

    async def move(self, team: int, ref: Deadline, due: date) -> bool:
        """Give a deadline another day. False: there is none."""
        _check_day(due)
        row, items = self._keys.due_item(team, *ref), self._keys.deadlines(team)
        done = await self._keys.atomically(row.update({"due": due}), items.put({ref: deadline_score(due)}))
        await self._note(team)
        return bool(done)

    async def complete(self, team: int, ref: Deadline) -> bool:
        """Take a deadline out: its work item is closed or deleted. False: there was none."""
        row, items = self._keys.due_item(team, *ref), self._keys.deadlines(team)
        outcome = await self._keys.atomically(items.remove(ref), row.delete())
        await self._note(team)
        return bool(outcome.values[0])

    async def _note(self, team: int) -> None:
        if self._changed is not None:
            await self._changed(team)

    async def between(self, team: int, first: date, last: date, *, limit: int = 500) -> list[Due]:
        """What is due from one day to another, both included, in the order of the days. What cannot be read, as of
        another program, is left out."""
        found, _ = await self._listed(team, first, last, limit)
        return found

    async def _listed(self, team: int, first: date, last: date, limit: int) -> tuple[list[Due], int]:
        """What is due, and how many of them cannot be read."""
        _check_day(first)
        _check_day(last)
        low, high = deadline_score(first), deadline_score(last)
        key = self._keys.deadlines(team)
        broken = 0
        try:
            found = await key.between(low, high, limit=limit)
        except WrongKind:
            return [], 1
        except Unreadable:
            command: Command = ("ZRANGE", key.key, low, high, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
            [pairs] = await self._keys.deadlines.store.run([command])
            read = [(_deadline(key, data), score) for data, score in pairs]
            found = [(ref, score) for ref, score in read if ref is not None]
            broken = len(read) - len(found)
        listed: list[Due] = []
        for (ref, score), item in zip(found, await self._items(team, [ref for ref, _ in found]), strict=True):
            if isinstance(item, Unreadable):
                broken += 1
            else:
                listed.append(Due(ref, _day(score), item))
        return listed, broken

    async def _items(self, team: int, refs: Sequence[Deadline]) -> Sequence[DueItem | Unreadable | None]:
        if not refs:
            return []
        try:
            return await self._keys.run(*(self._keys.due_item(team, *ref).get() for ref in refs))
        except Unreadable:
            return [await self._item(team, ref) for ref in refs]

    async def _item(self, team: int, ref: Deadline) -> DueItem | Unreadable | None:
        try:
            return await self._keys.due_item(team, *ref).get()
        except Unreadable as error:
            return error

    # --- teams -----------------------------------------------------------------------------------------------

    async def set_zone(self, team: int, zone: str) -> None:
        """In which time zone a team has its mornings. Raises BadValue where there is no such zone."""
        zone_named(zone)
        await self._keys.team_settings(team).set(TeamSettings(zone=zone))

    async def zone_of(self, team: int) -> ZoneInfo:
        try:
            settings = await self._keys.team_settings(team).get()
            return self._zone if settings is None else zone_named(settings.zone)
        except (Unreadable, BadValue):
            return self._zone  # a zone that is gone stops no notice

    # --- the job ---------------------------------------------------------------------------------------------

    async def tell_due(self) -> Morning:
        """Tell of all that is to be told of now, in every team. It may run at any time, and twice at once.

        A team or an item that is not as it should be holds up no other.
        """
        told = failed = 0
        teams = await self._keys.due_teams().members().if_readable()
        for team in teams:
            try:
                done = await self._tell_team(team)
            except (StoreError, StoreClosed) as error:
                if not isinstance(error, Unreadable):
                    raise
                failed += 1
            except KeysteadError as error:
                _log.error("the deadlines of team %d cannot be told of: %s", team, error)
                failed += 1
            else:
                told, failed = told + done.told, failed + done.failed
        return Morning(len(teams), told, failed)

    async def _tell_team(self, team: int) -> Morning:
        today = self.morning_of(await self.zone_of(team))
        horizon = today + timedelta(days=self._days[-1])
        told = 0
        listed, failed = await self._listed(team, _FIRST, horizon, -1)
        if failed:
            _log.error("%d deadlines of team %d cannot be read; `keystead doctor` says which", failed, team)
        for one in listed:
            mark = self._mark(one.due, today)
            if one.item is None or one.item.assigneeId is None or mark is None:
                continue
            done = f"{one.due.isoformat()} {mark} {one.item.assigneeId}"
            if one.item.told == done:
                continue
            try:
                await self._tell(_event(team, one, one.item, mark, (one.due - today).days))
                await self._keys.due_item(team, *one.ref).update({"told": done})
            except (BadValue, ValidationError) as error:
                # Its own words show what others have written.
                _log.error("a deadline of team %d cannot be told of (%s)", team, type(error).__name__)
                failed += 1
            else:
                told += 1
        return Morning(1, told, failed)

    def morning_of(self, zone: ZoneInfo) -> date:
        """The day whose morning has begun last in a zone."""
        local = datetime.fromtimestamp(self._keys.now_ms() / 1000, UTC).astimezone(zone)
        return local.date() if local.time() >= MORNING else local.date() - timedelta(days=1)

    def _mark(self, due: date, today: date) -> str | None:
        """Which notice a deadline has come to; None: none yet."""
        left = (due - today).days
        if left < 0:
            return _OVERDUE
        return next((f"D-{days}" for days in self._days if left <= days), None)


def _deadline(key: SortedSetKey[Deadline], data: bytes) -> Deadline | None:
    try:
        return key.bound.family.member.decode(data, key.key, key.bound.ring)  # type: ignore[no-any-return]
    except Unreadable:
        return None


def _event(team: int, one: Due, item: DueItem, mark: str, left: int) -> DeadlineNear:
    ref = f"{one.ref.ref_type}:{one.ref.ref_id}"
    if len(ref.encode()) > _REF_MOST:
        ref = sha256(ref.encode()).hexdigest()
    return DeadlineNear(
        id=f"deadline:{team}:{ref}:{one.due.isoformat()}:{mark}",
        item=WorkItem(
            refType=one.ref.ref_type,
            refId=one.ref.ref_id,
            title=item.title,
            docNo=item.docNo,
            assigneeId=item.assigneeId,
        ),
        days=left,
    )


def zone_named(name: str) -> ZoneInfo:
    """The time zone of this name. Raises BadValue where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadValue(f"there is no time zone {name!r:.80}; write one such as Europe/Berlin") from None


def _day(score: float) -> date:
    return _FIRST + timedelta(days=score // _DAY_S)


def _check_item(ref: Deadline, title: str, doc_no: str, assignee: int | None) -> None:
    try:
        WorkItem(refType=ref.ref_type, refId=ref.ref_id, title=title, docNo=doc_no, assigneeId=assignee)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise BadValue(f"{wrong['loc'][0]} of a deadline: {wrong['msg']}") from None


def _check_day(day: date) -> None:
    if type(day) is not date or not _FIRST <= day <= _LAST:
        raise BadValue(f"a deadline is a day from {_FIRST} on, not {day!r:.80}")
