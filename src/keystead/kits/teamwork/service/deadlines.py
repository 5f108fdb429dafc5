"""Deadlines of teams, and their notices: once per mark, from 09:00 in the team's time zone on."""

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
_REF_MAX_BYTES: Final = 100  # of a work item in an event id; a longer one is replaced by its digest
_LONGEST_MARK: Final = 365
_MARKS_MAX: Final = 20
_SCAN_EVERY_MS: Final = 3_600_000
FIRST_DAY, LAST_DAY = date(1970, 1, 1), date(9999, 12, 31)


@dataclass(frozen=True)
class Due:
    """A deadline on a day."""

    ref: Deadline
    due: date
    item: DueItem | None  # None: another program added the deadline without a work item

    @property
    def title(self) -> str:
        return "" if self.item is None else self.item.title

    @property
    def doc_no(self) -> str:
        return "" if self.item is None else self.item.doc_no

    @property
    def assignee_id(self) -> int | None:
        return None if self.item is None else self.item.assignee_id


@dataclass(frozen=True)
class TeamRules:
    """The time zone of a team, and how many days before a deadline it is notified, in ascending order."""

    zone: ZoneInfo
    days: tuple[int, ...]


@dataclass(frozen=True)
class FoundItem:
    """Recipients, title and document number of a deadline that another program added."""

    users: Sequence[int]
    title: str = ""
    doc_no: str = ""


@dataclass(frozen=True)
class DeadlineCounts:
    """The result of one run: deadlines with new notices, and teams or deadlines that failed, which are logged."""

    teams: int
    notified: int
    failed: int = 0


class Deadlines:
    """The deadlines of teams.

    notify    notifies a team of a deadline; must be idempotent by event id (see `Notices.write`)
    changed   called with a team whose deadlines have changed
    find      details of a deadline that another program added without a work item
    teams     all teams, in addition to those with deadlines from here
    zone      the default time zone of teams
    days      the default marks: how many days before a deadline to notify, (3,) or (7, 3, 1)

    **One notice per item, day and mark**, from 09:00 in the team's time zone on, even if the job runs late, repeatedly,
    or on two machines: the event id consists of team, item, day and mark. If several marks have passed, because the
    item is new or no job ran, only the nearest is notified. No farther mark follows it, even if the team changes its
    time zone. After the due day there is one more notice: overdue.
    """

    def __init__(
        self,
        keys: TeamworkKeys,
        notify: Callable[[int, DeadlineNear], Awaitable[Any]],
        *,
        changed: Callable[[int], Awaitable[Any]] | None = None,
        find: Callable[[int, Deadline], Awaitable[FoundItem]] | None = None,
        teams: Callable[[], Awaitable[Iterable[int]]] | None = None,
        zone: str = "UTC",
        days: Sequence[int] = (3,),
    ) -> None:
        self._keys = keys
        self._notify = notify
        self._changed = changed
        self._find = find
        self._teams = teams
        self._rules = TeamRules(parse_zone(zone), check_days(days))
        self._scanned_ms: int | None = None

    # --- the list --------------------------------------------------------------------------------------------

    async def register(
        self, team: int, ref: Deadline, due: date, *, title: str, doc_no: str = "", assignee: int | None = None
    ) -> bool:
        """Add or move a deadline. Returns whether it is new. One atomic step.

        Raises BadValue for values that a later notice could not contain.
        """
        _check_day(due)
        _check_item(ref, title, doc_no, assignee)
        keys = self._keys
        # First: a listed team without deadlines costs one read; an unlisted team with deadlines would get no notices.
        await keys.due_teams().add(team)
        row, items = keys.due_item(team, *ref), keys.deadlines(team)
        # Field by field, to keep `told`.
        fields = {"title": title, "doc_no": doc_no, "due": due}
        put = row.put(fields if assignee is None else {**fields, "assignee_id": assignee})
        unassign = [row.remove("assignee_id")] if assignee is None else []
        done = await keys.atomically(items.score(ref), put, *unassign, items.put({ref: deadline_score(due)}))
        await self._report_change(team)
        return done.values[0] is None

    async def move(self, team: int, ref: Deadline, due: date) -> bool:
        """Change the day of a deadline. False: there is none."""
        _check_day(due)
        row, items = self._keys.due_item(team, *ref), self._keys.deadlines(team)
        done = await self._keys.atomically(row.update({"due": due}), items.put({ref: deadline_score(due)}))
        await self._report_change(team)
        return bool(done)

    async def complete(self, team: int, ref: Deadline) -> bool:
        """Remove a deadline: its work item is closed or deleted. False: there was none."""
        row, items = self._keys.due_item(team, *ref), self._keys.deadlines(team)
        outcome = await self._keys.atomically(items.remove(ref), row.delete())
        await self._report_change(team)
        return bool(outcome.values[0])

    async def _report_change(self, team: int) -> None:
        if self._changed is not None:
            await self._changed(team)

    async def between(
        self, team: int, first: date = FIRST_DAY, last: date = LAST_DAY, *, limit: int = 500
    ) -> list[Due]:
        """The deadlines from one day to another, both included, by day. Unreadable entries are left out."""
        found, _ = await self._list(team, first, last, limit)
        return found

    async def _list(self, team: int, first: date, last: date, limit: int) -> tuple[list[Due], int]:
        """The deadlines, and the number of unreadable ones."""
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
        for (ref, score), item in zip(found, await self._load_items(team, [ref for ref, _ in found]), strict=True):
            if isinstance(item, Unreadable):
                broken += 1
            else:
                listed.append(Due(ref, _day_of(score), item))
        return listed, broken

    async def _load_items(self, team: int, refs: Sequence[Deadline]) -> Sequence[DueItem | Unreadable | None]:
        if not refs:
            return []
        try:
            return await self._keys.run(*(self._keys.due_item(team, *ref).get() for ref in refs))
        except Unreadable:
            return [await self._load_item(team, ref) for ref in refs]

    async def _load_item(self, team: int, ref: Deadline) -> DueItem | Unreadable | None:
        try:
            return await self._keys.due_item(team, *ref).get()
        except Unreadable as error:
            return error

    # --- teams -----------------------------------------------------------------------------------------------

    def check_rules(self, zone: str | None, days: Sequence[int] | None) -> None:
        """Raises BadValue for values that `set_rules` would refuse."""
        if zone is not None:
            parse_zone(zone)
        if days is not None:
            check_days(days)

    async def set_rules(self, team: int, *, zone: str | None = None, days: Sequence[int] | None = None) -> None:
        """Set the time zone and marks of a team. Omitted ones stay. Raises BadValue."""
        fields: dict[str, str] = {}
        if zone is not None:
            fields["zone"] = str(parse_zone(zone))
        if days is not None:
            fields["deadline_days"] = ",".join(map(str, check_days(days)))
        if fields:
            await self._keys.team_settings(team).put(fields)
            await self._report_change(team)

    async def rules_of(self, team: int) -> TeamRules:
        """The rules of a team. The server's settings replace missing or unreadable ones."""
        try:
            stored = await self._keys.team_settings(team).get()
        except Unreadable:
            stored = None
        zone, days = self._rules.zone, self._rules.days
        with suppress(BadValue):  # a time zone that no longer exists does not stop notices
            zone = zone if stored is None or stored.zone is None else parse_zone(stored.zone)
        with suppress(ValueError, BadValue):
            if stored is not None and stored.deadline_days is not None:
                days = check_days([int(one) for one in stored.deadline_days.split(",")])
        return TeamRules(zone, days)

    def today_in(self, zone: ZoneInfo) -> date:
        """The current day in a time zone."""
        return self._now_in(zone).date()

    def _now_in(self, zone: ZoneInfo) -> datetime:
        return datetime.fromtimestamp(self._keys.now_ms() / 1000, UTC).astimezone(zone)

    # --- the job ---------------------------------------------------------------------------------------------

    async def notify_due(self, *, at_any_hour: bool = False) -> DeadlineCounts:
        """Send all notices that are due now, in every team. Safe to run at any time, and concurrently.

        An invalid team or item does not block others. `at_any_hour`: also before 09:00.
        """
        notified = failed = 0
        teams = await self._all_teams()
        for team in teams:
            try:
                done = await self._notify_team(team, at_any_hour)
            except (StoreError, StoreClosed) as error:
                if not isinstance(error, Unreadable):
                    raise
                failed += 1
            except KeysteadError as error:
                _log.error("deadline notices of team %d failed: %s", team, error)
                failed += 1
            else:
                notified, failed = notified + done.notified, failed + done.failed
        return DeadlineCounts(len(teams), notified, failed)

    async def _all_teams(self) -> list[int]:
        """The teams that may have deadlines: listed ones, all known teams, and those that a scan finds."""
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
        # Another program may have written a number that does not fit a table.
        return sorted(team for team in listed | found if 0 < team < 2**63)

    async def _notify_team(self, team: int, at_any_hour: bool) -> DeadlineCounts:
        rules = await self.rules_of(team)
        local = self._now_in(rules.zone)
        if local.time() < MORNING and not at_any_hour:
            return DeadlineCounts(1, 0)
        today = local.date()
        notified = 0
        listed, failed = await self._list(team, FIRST_DAY, _add_days(today, rules.days[-1]), -1)
        if failed:
            _log.error("%d deadlines of team %d are unreadable; `keystead doctor` lists them", failed, team)
        found = await self._load_found_marks(team, [one.ref for one in listed if one.item is None])
        for one in listed:
            mark = _mark_of(one.due, today, rules.days)
            if mark is None:
                continue
            try:
                if one.item is None:
                    notified += await self._notify_found(team, one, mark, (one.due - today).days, found.get(one.ref))
                elif one.item.assignee_id is not None:
                    notified += await self._notify_assignee(team, one, one.item, mark, (one.due - today).days)
            except (BadValue, ValidationError) as error:
                # Only the class: the message may contain text from other programs.
                _log.error("the notice of a deadline of team %d failed (%s)", team, type(error).__name__)
                failed += 1
        return DeadlineCounts(1, notified, failed)

    async def _notify_assignee(self, team: int, one: Due, item: DueItem, mark: str, left: int) -> int:
        who = str(item.assignee_id)
        if _is_notified(item.told, one.due, mark, who):
            return 0
        work = _work_item(one.ref, item.title, item.doc_no, item.assignee_id)
        await self._notify(team, _event(team, one, work, mark, left))
        await self._keys.due_item(team, *one.ref).update({"told": f"{one.due.isoformat()} {mark} {who}"})
        return 1

    async def _notify_found(self, team: int, one: Due, mark: str, left: int, told: str | None) -> int:
        """Notify of a deadline that another program added, of which only type, id and day are stored."""
        if self._find is None:
            return 0
        found = await self._find(team, one.ref)
        who = ",".join(map(str, sorted(found.users)))
        if not who or _is_notified(told, one.due, mark, who):
            return 0
        for user in found.users:
            work = _work_item(one.ref, found.title, found.doc_no, user)
            await self._notify(team, _event(team, one, work, mark, left))
        await self._keys.due_found(team).put({one.ref: f"{one.due.isoformat()} {mark} {who}"})
        return 1

    async def _load_found_marks(self, team: int, listed: Sequence[Deadline]) -> dict[Deadline, str]:
        """The last notices of deadlines from other programs. Entries of removed deadlines are deleted."""
        key = self._keys.due_found(team)
        try:
            told = await key.get() or {}
        except Unreadable:
            return {}  # the event id still prevents duplicates
        if gone := [ref for ref in told if ref not in set(listed)]:
            await key.remove(*gone)
        return told


def _mark_of(due: date, today: date, days: Sequence[int]) -> str | None:
    """The nearest mark that a deadline has reached; None: none yet."""
    left = (due - today).days
    if left < 0:
        return _OVERDUE
    return next((f"D-{one}" for one in days if left <= one), None)


def _is_notified(told: str | None, due: date, mark: str, who: str) -> bool:
    """Whether these users were already notified of this day, for this mark or a nearer one."""
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
    if len(ref.encode()) > _REF_MAX_BYTES:
        ref = sha256(ref.encode()).hexdigest()
    event_id = f"deadline:{team}:{ref}:{one.due.isoformat()}:{mark}"
    return DeadlineNear(id=event_id, item=item, days=left, due=one.due)


def check_days(days: Sequence[int]) -> tuple[int, ...]:
    """The marks in ascending order, each once. Raises BadValue."""
    is_valid = all(type(one) is int and 0 <= one <= _LONGEST_MARK for one in days)
    if not 0 < len(days) <= _MARKS_MAX or not is_valid:
        raise BadValue(
            f"days must be 1 to {_MARKS_MAX} whole numbers from 0 to {_LONGEST_MARK}, not {list(days)!r:.80}"
        )
    return tuple(sorted(set(days)))


def parse_zone(name: str) -> ZoneInfo:
    """The time zone with this name. Raises BadValue if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadValue(f"there is no time zone {name!r:.80}; write one such as Europe/Berlin") from None


def _day_of(score: float) -> date:
    return FIRST_DAY + timedelta(days=score // _DAY_S)


def _add_days(day: date, days: int) -> date:
    return LAST_DAY if (LAST_DAY - day).days < days else day + timedelta(days=days)


def _check_item(ref: Deadline, title: str, doc_no: str, assignee: int | None) -> None:
    try:
        _work_item(ref, title, doc_no, assignee)
    except ValidationError as error:
        # The last one: for an id, which may be a number or text, it is the error about the text.
        last = error.errors(include_url=False, include_input=False, include_context=False)[-1]
        raise BadValue(
            f"{to_camel(str(last['loc'][0]))} of a deadline: {last['msg'].removeprefix('Value error, ')}"
        ) from None


def _check_day(day: date) -> None:
    if type(day) is not date or not FIRST_DAY <= day <= LAST_DAY:
        raise BadValue(f"a deadline must be a day from {FIRST_DAY} on, not {day!s:.80}")
