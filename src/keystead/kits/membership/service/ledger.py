"""The ledger: who a member is, what they have used of what they may, and what was reported. It knows no HTTP.

Everything that changes what a member has begins by locking their profile's row. So all changes of one member happen
one after another, in whatever process, and those of different members do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, func, insert, select, update

from keystead.errors import BadValue
from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.ledger_records import (
    Bonus,
    CrashReport,
    PlanChange,
    PlanNote,
    Profile,
    Received,
    Recorded,
    Status,
    ToldPlan,
    Usage,
)
from keystead.kits.membership.service.tables import (
    BONUS_TOKENS,
    CRASH_REPORTS,
    ID_MAX_BYTES,
    LICENSE_HISTORY,
    PROFILES,
    TOKEN_USAGE,
    USAGE_EVENTS,
    USER_MAX_BYTES,
    WORD_MAX_BYTES,
    is_user,
    rows_of_user,
)
from keystead.parts.tables import Tables, insert_new, locked_row
from keystead.schema.times import moment

MONTHLY_TOKENS: Final[Mapping[Plan, int]] = MappingProxyType(
    {"Free": 0, "Pro": 10_000_000, "Premium": 20_000_000, "Ultimate": 50_000_000}
)
MOST_TOKENS: Final = 10**12  # at once: a sum of millions of these still fits a column


class Ledger:
    """The tables of the membership kit, `MEMBERSHIP_TABLES`, as operations. Each is one transaction.

    A user is named by their id at the provider, and has a profile from the first time that something is written of
    them. Ids that do not fit and numbers below 0 are a BadValue, before anything is written. A database that is away
    is a StoreError; whatever was asked may be asked again, since nothing counts twice.
    """

    def __init__(self, tables: Tables, limits: Mapping[Plan, int] = MONTHLY_TOKENS) -> None:
        self.tables: Final = tables
        self._limits = limits

    # --- profiles ------------------------------------------------------------------------------------------

    async def profile_of(
        self,
        user: str,
        at_ms: int,
        *,
        email: str | None = None,
        full_name: str | None = None,
        plan: ToldPlan | None = None,
    ) -> Profile:
        """The profile of a user, made at the first sight of them. An email, a name or a plan that is given is kept.

        A plan that is older than the last event that named one is not: whoever read it before a webhook must not put
        it back after it.
        """
        check_user(user)

        def work(connection: Connection) -> Profile:
            row = locked_profile(connection, user, at_ms)
            given = {"email": email, "full_name": full_name}
            if plan is not None and plan.as_of_ms >= _last_event_ms(connection, row["id"]):
                given["plan"] = plan.plan
            fresh = {name: value for name, value in given.items() if value is not None and value != row[name]}
            if fresh:
                at = PROFILES.c.id == row["id"]
                connection.execute(update(PROFILES).where(at).values(**fresh, updated_at_ms=at_ms))
            return _profile({**row, **fresh})

        return await self.tables.write(work)

    async def find_profile(self, profile_id: UUID) -> Profile | None:
        """The profile with this id, as in the `sub` of an access token; None: there is none."""
        return await self.tables.read(
            lambda connection: _maybe_profile(connection.execute(select(PROFILES).where(PROFILES.c.id == profile_id)))
        )

    async def plan_of(self, user: str) -> Plan | None:
        """The plan of a user as it was last told, by a webhook or when tokens were issued; None: nobody has told."""
        asked = select(PROFILES.c.plan).where(PROFILES.c.patreon_user_id == user)
        found: Plan | None = await self.tables.read(lambda connection: connection.execute(asked).scalar())
        return found

    async def erase(self, user: str) -> bool:
        """Delete all that is kept of a user. False: there was nothing. Crash reports name nobody, and stay."""

        def work(connection: Connection) -> bool:
            if not is_user(user) or profile_id_of(connection, user, lock=True) is None:
                return False
            for table, where in rows_of_user(user):
                connection.execute(delete(table).where(where))
            return True

        return await self.tables.write(work)

    # --- quota ---------------------------------------------------------------------------------------------

    async def record_usage(self, user: str, plan: Plan, event_id: str, tokens: int, at_ms: int) -> Recorded:
        """Count what a user has used: against the month's quota first, then against bonuses, the oldest first.

        Once for each `event_id` of a user, however often and from however many processes it is told; the first one
        counts. So an id that a client chooses freely would let it use for nothing: make it of the work, or at the
        server. The month is that of `at_ms`, in UTC. No quota and no bonus is ever overspent: what neither covers is
        `beyond`, and the month is exceeded by it.
        """
        check_user(user)
        _check_id("the id of an event", event_id, ID_MAX_BYTES)
        check_tokens(tokens)
        limit, month = self._limits[plan], month_of(at_ms)

        def work(connection: Connection) -> Recorded:
            profile = locked_profile(connection, user, at_ms)["id"]
            if (before := _recorded(connection, profile, event_id)) is not None:
                return before
            used = _usage(connection, profile, month)
            from_quota = min(tokens, max(0, limit - used.tokens_used))
            from_bonus = _spend_bonuses(connection, profile, tokens - from_quota)
            beyond = tokens - from_quota - from_bonus
            parts = {"month": month, "from_quota": from_quota, "from_bonus": from_bonus, "beyond": beyond}
            connection.execute(
                insert(USAGE_EVENTS).values(profile_id=profile, event_id=event_id, tokens=tokens, at_ms=at_ms, **parts)
            )
            _count(connection, profile, month, from_quota + beyond, from_bonus, at_ms)
            return Recorded(True, month, from_quota, from_bonus, beyond)

        return await self.tables.write(work)

    async def usage(self, user: str, month: str) -> Usage:
        """What a user has used in a month, as in `2026-01`; zeros where there is nothing."""

        def work(connection: Connection) -> Usage:
            profile = profile_id_of(connection, user)
            return Usage(month, 0, 0) if profile is None else _usage(connection, profile, month)

        return await self.tables.read(work)

    async def status(self, user: str, plan: Plan, at_ms: int) -> Status:
        """How a user stands in the month of `at_ms`."""
        month = month_of(at_ms)
        profile = select(PROFILES.c.id).where(PROFILES.c.patreon_user_id == user).scalar_subquery()
        used = select(TOKEN_USAGE.c.tokens_used).where(
            TOKEN_USAGE.c.profile_id == profile, TOKEN_USAGE.c.month == month
        )
        left = select(func.sum(BONUS_TOKENS.c.granted - BONUS_TOKENS.c.used)).where(
            BONUS_TOKENS.c.profile_id == profile
        )
        # One question, and so one state of both: a use is never seen in one of them and not yet in the other.
        asked = select(used.scalar_subquery(), left.scalar_subquery())
        tokens_used, bonus_left = await self.tables.read(lambda connection: connection.execute(asked).one())
        return Status(month, tokens_used or 0, self._limits[plan], int(bonus_left or 0))

    async def forget_usage_events(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` records of uses before a moment; how many there were. The sums of the months stay.

        A use that is told of again after that would count again: forget what nobody can still send.
        """
        return await self._forget(USAGE_EVENTS, USAGE_EVENTS.c.at_ms < before_ms, most)

    async def _forget(self, table: Table, old: ColumnElement[bool], most: int) -> int:
        keys = tuple(table.primary_key)

        def work(connection: Connection) -> int:
            rows = connection.execute(select(*keys).where(old).limit(most)).all()
            for row in rows:
                connection.execute(delete(table).where(*(key == value for key, value in zip(keys, row, strict=True))))
            return len(rows)

        return await self.tables.write(work)

    # --- bonuses -------------------------------------------------------------------------------------------

    async def grant_bonus(self, user: str, bonus_id: str, tokens: int, source: str, at_ms: int) -> bool:
        """Give a user tokens beside their quota. False: they had this bonus already, and it is as it was."""
        check_user(user)
        _check_id("the id of a bonus", bonus_id, ID_MAX_BYTES)
        _check_id("the source of a bonus", source, WORD_MAX_BYTES)
        check_tokens(tokens)

        def work(connection: Connection) -> bool:
            profile = locked_profile(connection, user, at_ms)["id"]
            return insert_bonus(connection, profile, bonus_id, tokens, source, at_ms)

        return await self.tables.write(work)

    async def sync_bonuses(self, user: str, used: Mapping[str, int]) -> dict[str, int]:
        """Take over how much a client says it has used of each bonus; what is now used of each that the user has.

        The larger number stays, so that what comes late or twice changes nothing; none grows beyond what was granted.
        Bonuses that the user does not have are left out.
        """
        for bonus_id, tokens in used.items():
            _check_id("the id of a bonus", bonus_id, ID_MAX_BYTES)
            check_tokens(tokens)

        def work(connection: Connection) -> dict[str, int]:
            profile = profile_id_of(connection, user, lock=True)
            synced: dict[str, int] = {}
            if profile is None:
                return synced
            for bonus in _bonuses(connection, profile):
                if bonus.id in used:
                    synced[bonus.id] = max(bonus.used, min(used[bonus.id], bonus.granted))
                    if synced[bonus.id] != bonus.used:
                        _set_used(connection, profile, bonus.id, synced[bonus.id])
            return synced

        return await self.tables.write(work)

    async def bonuses(self, user: str) -> list[Bonus]:
        """All bonuses of a user, the oldest first, those that are used up, too."""

        def work(connection: Connection) -> list[Bonus]:
            profile = profile_id_of(connection, user)
            return [] if profile is None else _bonuses(connection, profile)

        return await self.tables.read(work)

    # --- crash reports and plans ---------------------------------------------------------------------------

    async def add_crash_report(self, report: CrashReport, at_ms: int) -> bool:
        """Keep a report. False: one with its id is there already, and stays as it is."""
        row = {name: getattr(report, name) for name in report.__dataclass_fields__}
        return await self.tables.write(
            lambda connection: insert_new(connection, CRASH_REPORTS, {**row, "received_at_ms": at_ms})
        )

    async def find_crash_report(self, report_id: UUID) -> CrashReport | None:
        """The report with this id; None: there is none."""
        columns = (CRASH_REPORTS.c[name] for name in CrashReport.__dataclass_fields__)
        asked = select(*columns).where(CRASH_REPORTS.c.report_id == report_id)
        row = await self.tables.read(lambda connection: connection.execute(asked).first())
        return None if row is None else CrashReport(*row)

    async def crash_reports(self, most: int, before: UUID | None = None) -> list[Received]:
        """The newest reports, newest first; `before` goes on after the one with this id, and finds none where that is
        gone."""
        columns = CRASH_REPORTS.c
        asked = select(columns.received_at_ms, *(columns[name] for name in CrashReport.__dataclass_fields__))
        if before is not None:
            # Of several that came in one millisecond, the id decides: so no page repeats or leaves out one.
            came = select(columns.received_at_ms).where(columns.report_id == before).scalar_subquery()
            same_moment = (columns.received_at_ms == came) & (columns.report_id > before)
            asked = asked.where((columns.received_at_ms < came) | same_moment)
        asked = asked.order_by(columns.received_at_ms.desc(), columns.report_id).limit(most)
        rows = await self.tables.read(lambda connection: connection.execute(asked).all())
        return [Received(CrashReport(*row[1:]), row[0]) for row in rows]

    async def forget_crash_reports(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` reports that came before a moment; how many there were."""
        return await self._forget(CRASH_REPORTS, CRASH_REPORTS.c.received_at_ms < before_ms, most)

    async def note_plan_change(self, user: str, event_id: str, plan: Plan, source: str, at_ms: int) -> PlanChange:
        """Note which plan an event gives a user. Once for each `event_id`; an event that comes again changes nothing.

        The plan before is that of the last event, in the order in which they came, and Free before the first.
        """
        check_user(user)
        _check_id("the id of an event", event_id, ID_MAX_BYTES)
        history = LICENSE_HISTORY.c

        def work(connection: Connection) -> PlanChange:
            profile = locked_profile(connection, user, at_ms)["id"]
            own = select(LICENSE_HISTORY).where(history.profile_id == profile)
            if (before := connection.execute(own.where(history.event_id == event_id)).first()) is not None:
                return PlanChange(False, before.old_plan, before.new_plan, before.at_ms)
            last = connection.execute(own.order_by(history.place.desc()).limit(1)).first()
            old: Plan = "Free" if last is None else last.new_plan
            connection.execute(
                insert(LICENSE_HISTORY).values(
                    profile_id=profile,
                    event_id=event_id,
                    old_plan=old,
                    new_plan=plan,
                    source=source,
                    place=1 if last is None else last.place + 1,
                    at_ms=at_ms,
                )
            )
            connection.execute(update(PROFILES).where(PROFILES.c.id == profile).values(plan=plan))
            return PlanChange(True, old, plan, at_ms)

        return await self.tables.write(work)

    async def plan_history(self, user: str, most: int) -> list[PlanNote]:
        """Which plans events gave a user, the newest first."""
        history = LICENSE_HISTORY.c
        asked = (
            select(history.old_plan, history.new_plan, history.source, history.at_ms)
            .join(PROFILES, PROFILES.c.id == history.profile_id)
            .where(PROFILES.c.patreon_user_id == user)
            .order_by(history.place.desc())
            .limit(most)
        )
        rows = await self.tables.read(lambda connection: connection.execute(asked).all())
        return [PlanNote(*row) for row in rows]


def insert_bonus(connection: Connection, profile: UUID, bonus_id: str, tokens: int, source: str, at_ms: int) -> bool:
    """A bonus, in the transaction of whoever grants it. False: the member has it already, and it is as it was."""
    row = {"bonus_id": bonus_id, "granted": tokens, "used": 0, "source": source, "granted_at_ms": at_ms}
    return insert_new(connection, BONUS_TOKENS, {"profile_id": profile, **row})


def month_of(at_ms: int) -> str:
    """The month of a moment in UTC, as in `2026-01`."""
    return f"{moment(at_ms):%Y-%m}"


# --- within a transaction ----------------------------------------------------------------------------------


def locked_profile(connection: Connection, user: str, at_ms: int) -> dict[str, Any]:
    """The profile of a user, made if there is none, and locked until the end of the transaction."""
    asked = select(PROFILES).where(PROFILES.c.patreon_user_id == user)
    fresh = {"id": uuid4(), "patreon_user_id": user, "created_at_ms": at_ms, "updated_at_ms": at_ms}
    return dict(locked_row(connection, asked, PROFILES, fresh)._mapping)


def profile_id_of(connection: Connection, user: str, *, lock: bool = False) -> UUID | None:
    asked = select(PROFILES.c.id).where(PROFILES.c.patreon_user_id == user)
    found: UUID | None = connection.execute(asked.with_for_update() if lock else asked).scalar()
    return found


def _profile(row: Mapping[str, Any]) -> Profile:
    return Profile(row["id"], row["patreon_user_id"], row["email"], row["full_name"], row["created_at_ms"])


def _last_event_ms(connection: Connection, profile: UUID) -> int:
    """When the last event came that named a plan of a member; 0: there was none."""
    asked = select(func.max(LICENSE_HISTORY.c.at_ms)).where(LICENSE_HISTORY.c.profile_id == profile)
    return int(connection.execute(asked).scalar() or 0)


def _maybe_profile(found: Any) -> Profile | None:
    row = found.mappings().first()
    return None if row is None else _profile(row)


def _recorded(connection: Connection, profile: UUID, event_id: str) -> Recorded | None:
    """What an event was recorded as, before."""
    asked = select(USAGE_EVENTS).where(USAGE_EVENTS.c.profile_id == profile, USAGE_EVENTS.c.event_id == event_id)
    row: Row[Any] | None = connection.execute(asked).first()
    return None if row is None else Recorded(False, row.month, row.from_quota, row.from_bonus, row.beyond)


def _usage(connection: Connection, profile: UUID, month: str) -> Usage:
    asked = select(TOKEN_USAGE).where(TOKEN_USAGE.c.profile_id == profile, TOKEN_USAGE.c.month == month)
    row = connection.execute(asked).first()
    return Usage(month, 0, 0) if row is None else Usage(month, row.tokens_used, row.bonus_used)


def _count(connection: Connection, profile: UUID, month: str, tokens: int, bonus: int, at_ms: int) -> None:
    row = {"profile_id": profile, "month": month, "tokens_used": tokens, "bonus_used": bonus, "updated_at_ms": at_ms}
    if not insert_new(connection, TOKEN_USAGE, row):
        sums = TOKEN_USAGE.c
        connection.execute(
            update(TOKEN_USAGE)
            .where(sums.profile_id == profile, sums.month == month)
            .values(tokens_used=sums.tokens_used + tokens, bonus_used=sums.bonus_used + bonus, updated_at_ms=at_ms)
        )


def _bonuses(connection: Connection, profile: UUID) -> list[Bonus]:
    held = BONUS_TOKENS.c
    asked = (
        select(held.bonus_id, held.granted, held.used, held.source, held.granted_at_ms)
        .where(held.profile_id == profile)
        .order_by(held.granted_at_ms, held.bonus_id)
    )
    return [Bonus(*row) for row in connection.execute(asked)]


def _spend_bonuses(connection: Connection, profile: UUID, wanted: int) -> int:
    """Take up to so many tokens out of the bonuses, the oldest first; how many that were."""
    left = wanted
    for bonus in _bonuses(connection, profile) if wanted else ():
        taken = min(left, bonus.left)
        if taken:
            _set_used(connection, profile, bonus.id, bonus.used + taken)
            left -= taken
    return wanted - left


def _set_used(connection: Connection, profile: UUID, bonus_id: str, used: int) -> None:
    held = BONUS_TOKENS.c
    at = (held.profile_id == profile, held.bonus_id == bonus_id)
    connection.execute(update(BONUS_TOKENS).where(*at).values(used=used))


def check_user(user: Any) -> None:
    """Raises BadValue for what cannot be the id of a user at the provider."""
    _check_id("the id of a user", user, USER_MAX_BYTES)


def _check_id(what: str, text: Any, max_bytes: int) -> None:
    if not isinstance(text, str) or not text or not text.isprintable() or len(text.encode()) > max_bytes:
        raise BadValue(f"{what} is a text of 1 to {max_bytes} bytes that can be printed")


def check_tokens(tokens: int) -> None:
    if type(tokens) is not int or not 0 <= tokens <= MOST_TOKENS:
        raise BadValue(f"a number of tokens is a whole number from 0 to {MOST_TOKENS:,}")
