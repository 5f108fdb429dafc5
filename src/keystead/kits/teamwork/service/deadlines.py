"""Deadlines: what is due in a team, and the notice of it in the team's morning: once, late rather than never."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from keystead.errors import BadValue, KeysteadError, StoreClosed, StoreError, Unreadable, WrongKind
from keystead.kits.teamwork.keys import TeamworkKeys, deadline_score
from keystead.kits.teamwork.models import Deadline, DueItem
from keystead.kits.teamwork.service.events import DeadlineNear, WorkItem

_log = logging.getLogger("keystead.teamwork")

MORNING: Final = time(9, 0)
_DAY_S: Final = 86_400
_OVERDUE: Final = "overdue"
_REF_MOST: Final = 100  # bytes of an item's name in the id of an event; a longer one is there as its digest
_LONGEST_MARK: Final = 365
_MARKS_MOST: Final = 20
_SCAN_EVERY_MS: Final = 3_600_000
_FIRST, _LAST = date(1970, 1, 1), date(9999, 12, 31)


@dataclass(frozen=True)
class Due:
    """A work item that is due on a day."""

    ref: Deadline
    due: date
    item: DueItem | None  # None: only its place in the list is there, as of a program that writes it alone


@dataclass(frozen=True)
class TeamRules:
    """How a team works: its time zone, and how many days before a deadline it is told, in ascending order."""

    zone: ZoneInfo
    days: tuple[int, ...]


@dataclass(frozen=True)
class FoundItem:
    """What is known of a deadline that another program has put into the list alone: whom it concerns, and its words."""

    users: Sequence[int]
    title: str = ""
    doc_no: str = ""


@dataclass(frozen=True)
class Morning:
    """What one look at the deadlines did. `failed`: how many teams or items could not be told of; the log says why."""

    teams: int
    told: int
    failed: int = 0


class Deadlines:
    """The deadlines of teams.

    tell      tells a team of one; what was told before may be told again, and is known then (see `Notices.tell`)
    changed   is told which team's deadlines have changed
    find      what is known of a deadline that another program has put into the list, with nothing beside it
    teams     the teams that there are, besides those whose deadlines were put in here
    zone      the time zone of teams that have none of their own
    days      how many days before the day each is told of, in teams that do not say: (3,) or (7, 3, 1)

    **Told once for each item, day and mark**, from 09:00 in the zone of the team on, however often the job runs, late,
    or on two machines: the id of the event is made of the team, the item, its day and the mark, and of nothing else.
    Where several marks are past, because the item is new or no job ran, only the nearest is told of, and none that is
    farther comes after it, also where a team changes its zone and its day begins anew. What was due is told of once
    more, as overdue.
    """

    def __init__(
        self,
        keys: TeamworkKeys,
        tell: Callable[[int, DeadlineNear], Awaitable[Any]],
        *,
        changed: Callable[[int], Awaitable[Any]] | None = None,
        find: Callable[[int, Deadline], Awaitable[FoundItem]] | None = None,
        teams: Callable[[], Awaitable[Iterable[int]]] | None = None,
        zone: str = "UTC",
        days: Sequence[int] = (3,),
    ) -> None:
        self._keys = keys
        self._tell = tell
        self._changed = changed
        self._find = find
        self._teams = teams
        self._rules = TeamRules(zone_named(zone), checked_days(days))
        self._scanned_ms: int | None = None

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
        fields = {"title": title, "doc_no": doc_no, "due": due}
        written = row.put(fields if assignee is None else {**fields, "assignee_id": assignee})
        nobody = [row.remove("assignee_id")] if assignee is None else []
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
        found, _ = await self._list(team, first, last, limit)
        return found

    async def _list(self, team: int, first: date, last: date, limit: int) -> tuple[list[Due], int]:
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
            readable = key.between(low, high, limit=limit).if_readable()
            found, count = await self._keys.run(readable, key.count_between(low, high))
            broken = max(0, (count if limit < 0 else min(count, limit)) - len(found))
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

    def check_rules(self, zone: str | None, days: Sequence[int] | None) -> None:
        """Raises BadValue for what `set_rules` would refuse."""
        if zone is not None:
            zone_named(zone)
        if days is not None:
            checked_days(days)

    async def set_rules(self, team: int, *, zone: str | None = None, days: Sequence[int] | None = None) -> None:
        """In which time zone a team works, and when it is told. What is not named stays. Raises BadValue."""
        fields: dict[str, str] = {}
        if zone is not None:
            fields["zone"] = str(zone_named(zone))
        if days is not None:
            fields["deadline_days"] = ",".join(map(str, checked_days(days)))
        if fields:
            await self._keys.team_settings(team).put(fields)
            await self._note(team)

    async def rules_of(self, team: int) -> TeamRules:
        """How a team works; what it does not say is as the settings of the server."""
        try:
            said = await self._keys.team_settings(team).get()
        except Unreadable:
            said = None
        if said is None:
            return self._rules
        zone, days = self._rules.zone, self._rules.days
        with suppress(BadValue):  # a zone that is gone stops no notice
            zone = zone if said.zone is None else zone_named(said.zone)
        with suppress(ValueError, BadValue):
            days = (
                days
                if said.deadline_days is None
                else checked_days([int(one) for one in said.deadline_days.split(",")])
            )
        return TeamRules(zone, days)

    def today_in(self, zone: ZoneInfo) -> date:
        """What day it is in a zone."""
        return self._local(zone).date()

    def _local(self, zone: ZoneInfo) -> datetime:
        return datetime.fromtimestamp(self._keys.now_ms() / 1000, UTC).astimezone(zone)

    # --- the job ---------------------------------------------------------------------------------------------

    async def tell_due(self, *, at_any_hour: bool = False) -> Morning:
        """Tell of all that is to be told of now, in every team. It may run at any time, and twice at once.

        A team or an item that is not as it should be holds up no other. `at_any_hour`: also before 09:00.
        """
        told = failed = 0
        teams = await self._all_teams()
        for team in teams:
            try:
                done = await self._tell_team(team, at_any_hour)
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

    async def _all_teams(self) -> list[int]:
        """The teams that may have deadlines: those of the list, those that there are, and those that a scan finds."""
        keys = self._keys
        listed = await keys.due_teams().members().if_readable()
        found = set() if self._teams is None else set(await self._teams())
        now_ms = keys.now_ms()
        if self._scanned_ms is None or now_ms - self._scanned_ms >= _SCAN_EVERY_MS:
            new = {key.values["teamId"] async for key in keys.deadlines.scan()} - listed
            if new:
                await keys.due_teams().add(*new)
            found |= new
            self._scanned_ms = now_ms
        # What another program has written may be a number that no table can hold.
        return sorted(team for team in listed | found if 0 < team < 2**63)

    async def _tell_team(self, team: int, at_any_hour: bool) -> Morning:
        rules = await self.rules_of(team)
        local = self._local(rules.zone)
        if local.time() < MORNING and not at_any_hour:
            return Morning(1, 0)
        today = local.date()
        told = 0
        listed, failed = await self._list(team, _FIRST, _plus(today, rules.days[-1]), -1)
        if failed:
            _log.error("%d deadlines of team %d cannot be read; `keystead doctor` says which", failed, team)
        found = await self._load_found_marks(team, [one.ref for one in listed if one.item is None])
        for one in listed:
            mark = _mark(one.due, today, rules.days)
            if mark is None:
                continue
            try:
                if one.item is None:
                    told += await self._tell_found(team, one, mark, (one.due - today).days, found.get(one.ref))
                elif one.item.assignee_id is not None:
                    told += await self._tell_item(team, one, one.item, mark, (one.due - today).days)
            except (BadValue, ValidationError) as error:
                # Its own words show what others have written.
                _log.error("a deadline of team %d cannot be told of (%s)", team, type(error).__name__)
                failed += 1
        return Morning(1, told, failed)

    async def _tell_item(self, team: int, one: Due, item: DueItem, mark: str, left: int) -> int:
        who = str(item.assignee_id)
        if _is_told(item.told, one.due, mark, who):
            return 0
        work = _work_item(one.ref, item.title, item.doc_no, item.assignee_id)
        await self._tell(team, _event(team, one, work, mark, left))
        await self._keys.due_item(team, *one.ref).update({"told": f"{one.due.isoformat()} {mark} {who}"})
        return 1

    async def _tell_found(self, team: int, one: Due, mark: str, left: int, told: str | None) -> int:
        """Tell of what another program has put into the list. Of it only kind, number and day are known."""
        if self._find is None:
            return 0
        found = await self._find(team, one.ref)
        who = ",".join(map(str, sorted(found.users)))
        if not who or _is_told(told, one.due, mark, who):
            return 0
        for user in found.users:
            await self._tell(team, _event(team, one, _work_item(one.ref, found.title, found.doc_no, user), mark, left))
        await self._keys.due_found(team).put({one.ref: f"{one.due.isoformat()} {mark} {who}"})
        return 1

    async def _load_found_marks(self, team: int, there: Sequence[Deadline]) -> dict[Deadline, str]:
        """What was told of deadlines that others have put in. What is not in the list any more is forgotten."""
        key = self._keys.due_found(team)
        try:
            told = await key.get() or {}
        except Unreadable:
            return {}  # what was told is known by the id of its event, too
        if gone := [ref for ref in told if ref not in set(there)]:
            await key.remove(*gone)
        return told


def _mark(due: date, today: date, days: Sequence[int]) -> str | None:
    """Which notice a deadline has come to; None: none yet."""
    left = (due - today).days
    if left < 0:
        return _OVERDUE
    return next((f"D-{one}" for one in days if left <= one), None)


def _is_told(told: str | None, due: date, mark: str, who: str) -> bool:
    """Whether this mark, or one that is nearer, was told for this day to these users."""
    day, _, rest = (told or "").partition(" ")
    last, _, users = rest.partition(" ")
    return day == due.isoformat() and users == who and _nearness(last) <= _nearness(mark)


def _nearness(mark: str) -> int:
    if mark == _OVERDUE:
        return -1
    days = mark.removeprefix("D-")
    return int(days) if days.isascii() and days.isdecimal() and len(days) < 4 else _LONGEST_MARK + 1


def _work_item(ref: Deadline, title: str, doc_no: str, assignee: int | None) -> WorkItem:
    return WorkItem(ref_type=ref.ref_type, ref_id=ref.ref_id, title=title, doc_no=doc_no, assignee_id=assignee)


def _event(team: int, one: Due, item: WorkItem, mark: str, left: int) -> DeadlineNear:
    ref = f"{one.ref.ref_type}:{one.ref.ref_id}"
    if len(ref.encode()) > _REF_MOST:
        ref = sha256(ref.encode()).hexdigest()
    event_id = f"deadline:{team}:{ref}:{one.due.isoformat()}:{mark}"
    return DeadlineNear(id=event_id, item=item, days=left, due=one.due)


def checked_days(days: Sequence[int]) -> tuple[int, ...]:
    """The marks in ascending order, each once. Raises BadValue."""
    if (
        not days
        or len(days) > _MARKS_MOST
        or any(type(one) is not int or not 0 <= one <= _LONGEST_MARK for one in days)
    ):
        raise BadValue(
            f"days is a list of 1 to {_MARKS_MOST} whole numbers from 0 to {_LONGEST_MARK}, not {list(days)!r:.80}"
        )
    return tuple(sorted(set(days)))


def zone_named(name: str) -> ZoneInfo:
    """The time zone of this name. Raises BadValue where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadValue(f"there is no time zone {name!r:.80}; write one such as Europe/Berlin") from None


def _day(score: float) -> date:
    return _FIRST + timedelta(days=score // _DAY_S)


def _plus(day: date, days: int) -> date:
    return _LAST if (_LAST - day).days < days else day + timedelta(days=days)


def _check_item(ref: Deadline, title: str, doc_no: str, assignee: int | None) -> None:
    try:
        _work_item(ref, title, doc_no, assignee)
    except ValidationError as error:
        # The last: of an id, which may be a number or a text, it says what is wrong with the text.
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[-1]
        raise BadValue(
            f"{to_camel(str(wrong['loc'][0]))} of a deadline: {wrong['msg'].removeprefix('Value error, ')}"
        ) from None


def _check_day(day: date) -> None:
    if type(day) is not date or not _FIRST <= day <= _LAST:
        raise BadValue(f"a deadline is a day from {_FIRST} on, not {day!s:.80}")
