"""The ledger: profiles, usage, bonus tokens, plan history and crash reports. It knows no HTTP.

Every change of a member's data first locks the row of their profile. So changes of one member are serialized across
processes, and those of different members do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, func, insert, select, update

from keystead.errors import BadValue
from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.ledger_records import (
    Bonus,
    CrashReport,
    PlanAsOf,
    PlanChange,
    PlanNote,
    Profile,
    ReceivedReport,
    RecordedUsage,
    Status,
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
)
from keystead.parts.tables import Tables, insert_new, locked_row
from keystead.schema.times import moment

MONTHLY_TOKENS: Final[Mapping[Plan, int]] = MappingProxyType(
    {"Free": 0, "Pro": 10_000_000, "Premium": 20_000_000, "Ultimate": 50_000_000}
)
MOST_TOKENS: Final = 10**12  # per call; a sum of millions of these still fits a column


class Ledger:
    """Operations on `MEMBERSHIP_TABLES`. Each is one transaction.

    Users are identified by their id at the provider. The first write creates their profile. Raises BadValue for
    invalid ids and negative numbers, before anything is written. Raises StoreError if the database is down; every
    operation is idempotent, so it can be retried.
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
        plan: PlanAsOf | None = None,
    ) -> Profile:
        """The profile of a user, created if absent. Stores the email, name and plan if given.

        Race: a webhook may set a newer plan while a caller still holds an older one. So a plan that was reported
        before the last plan event is ignored.
        """
        check_user(user)

        def work(connection: Connection) -> Profile:
            row = lock_profile(connection, user, at_ms)
            given = {"email": email, "full_name": full_name}
            if plan is not None and plan.as_of_ms >= _last_event_ms(connection, row["id"]):
                given["plan"] = plan.plan
            changes = {name: value for name, value in given.items() if value is not None and value != row[name]}
            if changes:
                is_row = PROFILES.c.id == row["id"]
                connection.execute(update(PROFILES).where(is_row).values(**changes, updated_at_ms=at_ms))
            saved = {**row, **changes}
            return Profile(*(saved[name] for name in Profile.__dataclass_fields__))

        return await self.tables.write(work)

    async def find_profile(self, profile_id: UUID) -> Profile | None:
        """The profile with this id (the `sub` of an access token); None if absent."""
        columns = (PROFILES.c[name] for name in Profile.__dataclass_fields__)
        query = select(*columns).where(PROFILES.c.id == profile_id)
        row = await self.tables.read(lambda connection: connection.execute(query).first())
        return None if row is None else Profile(*row)

    async def plan_of(self, user: str) -> Plan | None:
        """The last plan stored for a user, by a webhook or when tokens were issued; None if there is none."""
        query = select(PROFILES.c.plan).where(PROFILES.c.patreon_user_id == user)
        found: Plan | None = await self.tables.read(lambda connection: connection.execute(query).scalar())
        return found

    # --- quota ---------------------------------------------------------------------------------------------

    async def record_usage(self, user: str, plan: Plan, event_id: str, tokens: int, at_ms: int) -> RecordedUsage:
        """Charge usage to the monthly quota first, then to bonuses, oldest first.

        Idempotent per user and `event_id`, across processes: the first call counts. Derive the id from the work or
        create it on the server: a client that chooses it freely could reuse one and pay nothing. The month is that of
        `at_ms` in UTC. Quota and bonuses are never overspent: `beyond` is what neither covers, and still counts
        against the month.
        """
        check_user(user)
        _check_id("an event id", event_id, ID_MAX_BYTES)
        check_tokens(tokens)
        limit, month = self._limits[plan], month_of(at_ms)

        def work(connection: Connection) -> RecordedUsage:
            profile = lock_profile(connection, user, at_ms)["id"]
            if (earlier := _find_recorded_usage(connection, profile, event_id)) is not None:
                return earlier
            used = _load_usage(connection, profile, month)
            from_quota = min(tokens, max(0, limit - used.tokens_used))
            from_bonus = _spend_bonuses(connection, profile, tokens - from_quota)
            beyond = tokens - from_quota - from_bonus
            parts = {"month": month, "from_quota": from_quota, "from_bonus": from_bonus, "beyond": beyond}
            connection.execute(
                insert(USAGE_EVENTS).values(profile_id=profile, event_id=event_id, tokens=tokens, at_ms=at_ms, **parts)
            )
            _add_to_month(connection, profile, month, from_quota + beyond, from_bonus, at_ms)
            return RecordedUsage(True, month, from_quota, from_bonus, beyond)

        return await self.tables.write(work)

    async def usage(self, user: str, month: str) -> Usage:
        """The usage of a user in a month such as `2026-01`; zeros if there is none."""

        def work(connection: Connection) -> Usage:
            profile = _find_profile_id(connection, user)
            return Usage(month, 0, 0) if profile is None else _load_usage(connection, profile, month)

        return await self.tables.read(work)

    async def status(self, user: str, plan: Plan, at_ms: int) -> Status:
        """The usage and limits of a user in the month of `at_ms`."""
        month = month_of(at_ms)
        profile = select(PROFILES.c.id).where(PROFILES.c.patreon_user_id == user).scalar_subquery()
        used = select(TOKEN_USAGE.c.tokens_used).where(
            TOKEN_USAGE.c.profile_id == profile, TOKEN_USAGE.c.month == month
        )
        left = select(func.sum(BONUS_TOKENS.c.granted - BONUS_TOKENS.c.used)).where(
            BONUS_TOKENS.c.profile_id == profile
        )
        # One statement, so both numbers are of the same snapshot: no usage is in one of them and not in the other.
        query = select(used.scalar_subquery(), left.scalar_subquery())
        tokens_used, bonus_left = await self.tables.read(lambda connection: connection.execute(query).one())
        return Status(month, tokens_used or 0, self._limits[plan], int(bonus_left or 0))

    async def delete_usage_events(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` usage events older than `before_ms`. Returns how many. Monthly sums stay.

        A deleted event that is sent again counts again: delete only what no client can still retry.
        """
        return await self._delete_old(USAGE_EVENTS, USAGE_EVENTS.c.at_ms < before_ms, most)

    async def _delete_old(self, table: Table, old: ColumnElement[bool], most: int) -> int:
        keys = tuple(table.primary_key)

        def work(connection: Connection) -> int:
            rows = connection.execute(select(*keys).where(old).limit(most)).all()
            for row in rows:
                connection.execute(delete(table).where(*(key == value for key, value in zip(keys, row, strict=True))))
            return len(rows)

        return await self.tables.write(work)

    # --- bonuses -------------------------------------------------------------------------------------------

    async def grant_bonus(self, user: str, bonus_id: str, tokens: int, source: str, at_ms: int) -> bool:
        """Grant bonus tokens. False if the user has this bonus already; it is not changed."""
        check_user(user)
        _check_id("a bonus id", bonus_id, ID_MAX_BYTES)
        _check_id("a bonus source", source, WORD_MAX_BYTES)
        check_tokens(tokens)

        def work(connection: Connection) -> bool:
            profile = lock_profile(connection, user, at_ms)["id"]
            return insert_bonus(connection, profile, bonus_id, tokens, source, at_ms)

        return await self.tables.write(work)

    async def sync_bonuses(self, user: str, used: Mapping[str, int]) -> dict[str, int]:
        """Store how much of each bonus a client reports as used. Returns the resulting number for each.

        The larger number wins, so late or repeated reports change nothing. It never exceeds what was granted. Bonuses
        that the user does not have are left out.
        """
        for bonus_id, tokens in used.items():
            _check_id("a bonus id", bonus_id, ID_MAX_BYTES)
            check_tokens(tokens)

        def work(connection: Connection) -> dict[str, int]:
            profile = _find_profile_id(connection, user, lock=True)
            synced: dict[str, int] = {}
            if profile is None:
                return synced
            for bonus in _load_bonuses(connection, profile):
                if bonus.id in used:
                    synced[bonus.id] = max(bonus.used, min(used[bonus.id], bonus.granted))
                    if synced[bonus.id] != bonus.used:
                        _set_used(connection, profile, bonus.id, synced[bonus.id])
            return synced

        return await self.tables.write(work)

    async def bonuses(self, user: str) -> list[Bonus]:
        """All bonuses of a user, oldest first, including exhausted ones."""

        def work(connection: Connection) -> list[Bonus]:
            profile = _find_profile_id(connection, user)
            return [] if profile is None else _load_bonuses(connection, profile)

        return await self.tables.read(work)

    # --- crash reports and plans ---------------------------------------------------------------------------

    async def add_crash_report(self, report: CrashReport, at_ms: int) -> bool:
        """Store a report. False if its id is taken; the stored one is not changed."""
        row = {**asdict(report), "received_at_ms": at_ms}
        return await self.tables.write(lambda connection: insert_new(connection, CRASH_REPORTS, row))

    async def find_crash_report(self, report_id: UUID) -> CrashReport | None:
        """The report with this id; None if absent."""
        columns = (CRASH_REPORTS.c[name] for name in CrashReport.__dataclass_fields__)
        query = select(*columns).where(CRASH_REPORTS.c.report_id == report_id)
        row = await self.tables.read(lambda connection: connection.execute(query).first())
        return None if row is None else CrashReport(*row)

    async def crash_reports(self, most: int, before: UUID | None = None) -> list[ReceivedReport]:
        """The newest reports, newest first. `before` continues after the report with this id; none if it is gone."""
        columns = CRASH_REPORTS.c
        query = select(columns.received_at_ms, *(columns[name] for name in CrashReport.__dataclass_fields__))
        if before is not None:
            # The id orders reports of the same millisecond, so no page repeats or skips one.
            received = select(columns.received_at_ms).where(columns.report_id == before).scalar_subquery()
            same_moment = (columns.received_at_ms == received) & (columns.report_id > before)
            query = query.where((columns.received_at_ms < received) | same_moment)
        query = query.order_by(columns.received_at_ms.desc(), columns.report_id).limit(most)
        rows = await self.tables.read(lambda connection: connection.execute(query).all())
        return [ReceivedReport(CrashReport(*row[1:]), row[0]) for row in rows]

    async def delete_crash_reports(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` reports received before `before_ms`. Returns how many."""
        return await self._delete_old(CRASH_REPORTS, CRASH_REPORTS.c.received_at_ms < before_ms, most)

    async def record_plan_change(self, user: str, event_id: str, plan: Plan, source: str, at_ms: int) -> PlanChange:
        """Record the plan that an event gives a user. Idempotent per `event_id`.

        `old_plan` is that of the last recorded event, or Free before the first.
        """
        check_user(user)
        _check_id("an event id", event_id, ID_MAX_BYTES)
        history = LICENSE_HISTORY.c

        def work(connection: Connection) -> PlanChange:
            profile = lock_profile(connection, user, at_ms)["id"]
            own = select(LICENSE_HISTORY).where(history.profile_id == profile)
            if (earlier := connection.execute(own.where(history.event_id == event_id)).first()) is not None:
                return PlanChange(False, earlier.old_plan, earlier.new_plan, earlier.at_ms)
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
        """The plan changes of a user by events, newest first."""
        history = LICENSE_HISTORY.c
        query = (
            select(history.old_plan, history.new_plan, history.source, history.at_ms)
            .join(PROFILES, PROFILES.c.id == history.profile_id)
            .where(PROFILES.c.patreon_user_id == user)
            .order_by(history.place.desc())
            .limit(most)
        )
        rows = await self.tables.read(lambda connection: connection.execute(query).all())
        return [PlanNote(*row) for row in rows]


def insert_bonus(connection: Connection, profile: UUID, bonus_id: str, tokens: int, source: str, at_ms: int) -> bool:
    """Insert a bonus in the caller's transaction. False if the member has it already; it is not changed."""
    row = {"bonus_id": bonus_id, "granted": tokens, "used": 0, "source": source, "granted_at_ms": at_ms}
    return insert_new(connection, BONUS_TOKENS, {"profile_id": profile, **row})


def month_of(at_ms: int) -> str:
    """The month in UTC, such as `2026-01`."""
    return f"{moment(at_ms):%Y-%m}"


# --- within a transaction ----------------------------------------------------------------------------------


def lock_profile(connection: Connection, user: str, at_ms: int) -> dict[str, Any]:
    """Lock the profile of a user until the end of the transaction. Creates it if absent."""
    query = select(PROFILES).where(PROFILES.c.patreon_user_id == user)
    new = {"id": uuid4(), "patreon_user_id": user, "created_at_ms": at_ms, "updated_at_ms": at_ms}
    return dict(locked_row(connection, query, PROFILES, new)._mapping)


def _find_profile_id(connection: Connection, user: str, *, lock: bool = False) -> UUID | None:
    query = select(PROFILES.c.id).where(PROFILES.c.patreon_user_id == user)
    found: UUID | None = connection.execute(query.with_for_update() if lock else query).scalar()
    return found


def _last_event_ms(connection: Connection, profile: UUID) -> int:
    """The time of a member's last plan event; 0 if there is none."""
    query = select(func.max(LICENSE_HISTORY.c.at_ms)).where(LICENSE_HISTORY.c.profile_id == profile)
    return int(connection.execute(query).scalar() or 0)


def _find_recorded_usage(connection: Connection, profile: UUID, event_id: str) -> RecordedUsage | None:
    query = select(USAGE_EVENTS).where(USAGE_EVENTS.c.profile_id == profile, USAGE_EVENTS.c.event_id == event_id)
    row: Row[Any] | None = connection.execute(query).first()
    return None if row is None else RecordedUsage(False, row.month, row.from_quota, row.from_bonus, row.beyond)


def _load_usage(connection: Connection, profile: UUID, month: str) -> Usage:
    query = select(TOKEN_USAGE).where(TOKEN_USAGE.c.profile_id == profile, TOKEN_USAGE.c.month == month)
    row = connection.execute(query).first()
    return Usage(month, 0, 0) if row is None else Usage(month, row.tokens_used, row.bonus_used)


def _add_to_month(connection: Connection, profile: UUID, month: str, tokens: int, bonus: int, at_ms: int) -> None:
    row = {"profile_id": profile, "month": month, "tokens_used": tokens, "bonus_used": bonus, "updated_at_ms": at_ms}
    if not insert_new(connection, TOKEN_USAGE, row):
        sums = TOKEN_USAGE.c
        connection.execute(
            update(TOKEN_USAGE)
            .where(sums.profile_id == profile, sums.month == month)
            .values(tokens_used=sums.tokens_used + tokens, bonus_used=sums.bonus_used + bonus, updated_at_ms=at_ms)
        )


def _load_bonuses(connection: Connection, profile: UUID) -> list[Bonus]:
    columns = BONUS_TOKENS.c
    query = (
        select(columns.bonus_id, columns.granted, columns.used, columns.source, columns.granted_at_ms)
        .where(columns.profile_id == profile)
        .order_by(columns.granted_at_ms, columns.bonus_id)
    )
    return [Bonus(*row) for row in connection.execute(query)]


def _spend_bonuses(connection: Connection, profile: UUID, wanted: int) -> int:
    """Spend up to `wanted` bonus tokens, oldest bonus first. Returns how many were available."""
    left = wanted
    for bonus in _load_bonuses(connection, profile) if wanted else ():
        taken = min(left, bonus.left)
        if taken:
            _set_used(connection, profile, bonus.id, bonus.used + taken)
            left -= taken
    return wanted - left


def _set_used(connection: Connection, profile: UUID, bonus_id: str, used: int) -> None:
    columns = BONUS_TOKENS.c
    is_row = (columns.profile_id == profile, columns.bonus_id == bonus_id)
    connection.execute(update(BONUS_TOKENS).where(*is_row).values(used=used))


def check_user(user: Any) -> None:
    """Raises BadValue for an invalid user id."""
    _check_id("a user id", user, USER_MAX_BYTES)


def _check_id(what: str, text: Any, max_bytes: int) -> None:
    if not isinstance(text, str) or not text or not text.isprintable() or len(text.encode()) > max_bytes:
        raise BadValue(f"{what} must be 1 to {max_bytes} bytes of printable text")


def check_tokens(tokens: int) -> None:
    if type(tokens) is not int or not 0 <= tokens <= MOST_TOKENS:
        raise BadValue(f"tokens must be a whole number from 0 to {MOST_TOKENS:,}")
