"""The tables of the membership kit: profiles, usage, bonuses, promotions, consents and crash reports.

Every row of a member references a profile, which has the user's id at the provider, `patreon_user_id`. Times are
milliseconds since 1970, months are in UTC. In the database, table names have the prefix `keystead_membership_`.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Index,
    MetaData,
    Uuid,
    select,
    update,
)

from keystead.parts.tables import Belongings, Name, TableChange, TableSet, Words, create, extend, table

_metadata = MetaData()
ID_MAX_BYTES: Final = 200  # of ids that clients choose: events and bonuses
USER_MAX_BYTES: Final = 64
WORD_MAX_BYTES: Final = 64

PROFILES = table(
    "membership_profiles",
    _metadata,
    Column("id", Uuid, primary_key=True),
    Column("patreon_user_id", Name(USER_MAX_BYTES), nullable=False, unique=True),
    Column("email", Words),
    Column("full_name", Words),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    Column("plan", Name(WORD_MAX_BYTES)),  # as last reported; null: never reported
)

# One row per event id, so that a retry counts once. Ids are unique per member: no member can take another's id.
USAGE_EVENTS = table(
    "membership_usage_events",
    _metadata,
    Column("profile_id", Uuid, ForeignKey(PROFILES.c.id), primary_key=True),
    Column("event_id", Name(ID_MAX_BYTES), primary_key=True),
    Column("month", Name(7), nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("from_quota", BigInteger, nullable=False),
    Column("from_bonus", BigInteger, nullable=False),
    Column("beyond", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    CheckConstraint("tokens = from_quota + from_bonus + beyond", name="keystead_membership_usage_events_whole"),
)
Index("keystead_membership_usage_events_by_time", USAGE_EVENTS.c.at_ms)

# Monthly sums of the events: what counts against the quota, and what bonuses covered.
TOKEN_USAGE = table(
    "membership_token_usage",
    _metadata,
    Column("profile_id", Uuid, ForeignKey(PROFILES.c.id), primary_key=True),
    Column("month", Name(7), primary_key=True),
    Column("tokens_used", BigInteger, nullable=False),
    Column("bonus_used", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
)

BONUS_TOKENS = table(
    "membership_bonus_tokens",
    _metadata,
    Column("profile_id", Uuid, ForeignKey(PROFILES.c.id), primary_key=True),
    Column("bonus_id", Name(ID_MAX_BYTES), primary_key=True),
    Column("granted", BigInteger, nullable=False),
    Column("used", BigInteger, nullable=False),
    Column("source", Name(WORD_MAX_BYTES), nullable=False),
    Column("granted_at_ms", BigInteger, nullable=False),
    # The last line of defence: even a bug cannot spend a bonus twice.
    CheckConstraint("used >= 0 AND used <= granted", name="keystead_membership_bonus_tokens_used"),
)

CRASH_REPORTS = table(
    "membership_crash_reports",
    _metadata,
    Column("report_id", Uuid, primary_key=True),
    Column("crash_timestamp", Words, nullable=False),
    Column("error_message", Words, nullable=False),
    Column("app_version", Words, nullable=False),
    Column("os_version", Words, nullable=False),
    Column("system_info", Words),
    Column("logs", Words),
    Column("received_at_ms", BigInteger, nullable=False),
)
Index("keystead_membership_crash_reports_by_time", CRASH_REPORTS.c.received_at_ms)

# One row per event that names a plan, even an unchanged one: a replayed event must be recognized as old, or it would
# revert a later change.
LICENSE_HISTORY = table(
    "membership_license_history",
    _metadata,
    Column("profile_id", Uuid, ForeignKey(PROFILES.c.id), primary_key=True),
    Column("event_id", Name(ID_MAX_BYTES), primary_key=True),
    Column("old_plan", Name(WORD_MAX_BYTES), nullable=False),
    Column("new_plan", Name(WORD_MAX_BYTES), nullable=False),
    Column("source", Name(WORD_MAX_BYTES), nullable=False),
    Column("place", BigInteger, nullable=False),  # 1 is the member's first
    Column("at_ms", BigInteger, nullable=False),
)

# Codes are stored as digests, so reading the table reveals none. `masked` is shown to people.
PROMOTIONS = table(
    "membership_promotions",
    _metadata,
    Column("code_digest", Name(64), primary_key=True),
    Column("masked", Name(WORD_MAX_BYTES), nullable=False),
    Column("plan", Name(WORD_MAX_BYTES), nullable=False),
    Column("bonus_tokens", BigInteger, nullable=False),
    Column("lasts_ms", BigInteger, nullable=False),
    Column("max_uses", BigInteger, nullable=False),
    Column("uses", BigInteger, nullable=False),
    Column("redeem_before_ms", BigInteger),
    Column("made_at_ms", BigInteger, nullable=False),
    CheckConstraint("uses >= 0 AND uses <= max_uses", name="keystead_membership_promotions_uses"),
)

REDEMPTIONS = table(
    "membership_redemptions",
    _metadata,
    Column("profile_id", Uuid, ForeignKey(PROFILES.c.id), primary_key=True),
    Column("code_digest", Name(64), primary_key=True),
    Column("masked", Name(WORD_MAX_BYTES), nullable=False),
    Column("plan", Name(WORD_MAX_BYTES), nullable=False),
    Column("redeemed_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
)

# Insert-only.
CONSENTS = table(
    "membership_consents",
    _metadata,
    Column("profile_id", Uuid, ForeignKey(PROFILES.c.id), primary_key=True),
    Column("consent_type", Name(WORD_MAX_BYTES), primary_key=True),
    Column("version", Name(WORD_MAX_BYTES), primary_key=True),
    Column("accepted_at_ms", BigInteger, nullable=False),
    Column("client_version", Words),
    Column("recorded_at_ms", BigInteger, nullable=False),
)


def is_user(value: object) -> TypeGuard[str]:
    """Whether this is a valid user id of the provider: safe in a key, a row and a log line."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= USER_MAX_BYTES


_MEMBER_TABLES = (USAGE_EVENTS, TOKEN_USAGE, BONUS_TOKENS, LICENSE_HISTORY, REDEMPTIONS, CONSENTS)


def rows_of_user(user: str) -> Belongings:
    """All rows of a user, by their id at the provider. Crash reports are anonymous."""
    if not is_user(user):  # `keystead erase` calls every kit, also with ids that are not of this one
        return []
    profile = select(PROFILES.c.id).where(PROFILES.c.patreon_user_id == user).scalar_subquery()
    rows = [(one, one.c.profile_id == profile) for one in _MEMBER_TABLES]
    return [*rows, (PROFILES, PROFILES.c.patreon_user_id == user)]


# The profiles of version 1: a migration step is never edited after a release.
_PROFILES_1 = table(
    "membership_profiles",
    MetaData(),
    *(
        Column(one.name, one.type, primary_key=one.primary_key, nullable=one.nullable, unique=one.unique)
        for one in PROFILES.columns
        if one.name != "plan"
    ),
)
_VERSION_1 = (_PROFILES_1, USAGE_EVENTS, TOKEN_USAGE, BONUS_TOKENS, CRASH_REPORTS, LICENSE_HISTORY)


def _to_version_2(connection: Connection) -> None:
    """Set the plan of each member to that of their last plan event, if any."""
    extend(PROFILES, PROMOTIONS, REDEMPTIONS, CONSENTS)(connection)
    history = LICENSE_HISTORY.c
    last = (
        select(history.new_plan)
        .where(history.profile_id == PROFILES.c.id)
        .order_by(history.place.desc())
        .limit(1)
        .scalar_subquery()
    )
    connection.execute(update(PROFILES).where(PROFILES.c.plan.is_(None)).values(plan=last))


MEMBERSHIP_TABLES = TableSet(
    "membership",
    (
        TableChange(1, "creates profiles, usage, bonuses, crash reports and plan changes", create(*_VERSION_1)),
        TableChange(2, "adds the plan of a member, promotions, redemptions and consents", _to_version_2),
    ),
    member_of={"membership": rows_of_user},
)
