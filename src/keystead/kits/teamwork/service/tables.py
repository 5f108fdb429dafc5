"""The tables of the teamwork kit: notices, what each user wants to hear of, who they are, and what went to Slack.

Times are milliseconds since 1970. In the database each name has `keystead_teamwork_` before it.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, UniqueConstraint

from keystead.parts.tables import Belongings, Change, Name, TableSet, Words, create, table

_metadata = MetaData()
ID_MAX_BYTES: Final = 200  # of ids that others give: of an event, of a work item
WORD_MAX_BYTES: Final = 64

# SQLite counts up only what it calls INTEGER.
_Number: Final = BigInteger().with_variant(Integer, "sqlite")

# One row for each user who was ever told something. It is locked before a notice is written: so the places of a user's
# notices have no gaps, and are in the order in which they were committed.
READERS = table(
    "teamwork_readers",
    _metadata,
    Column("user_id", BigInteger, primary_key=True, autoincrement=False),
    Column("last_place", BigInteger, nullable=False),
    Column("waiting", BigInteger, nullable=False),  # how many of the last are not on the stream yet
)
Index("keystead_teamwork_readers_waiting", READERS.c.waiting)

NOTICES = table(
    "teamwork_notices",
    _metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("user_id", BigInteger, ForeignKey(READERS.c.user_id), nullable=False),
    Column("place", BigInteger, nullable=False),  # 1 is the user's first
    Column("event_id", Name(ID_MAX_BYTES), nullable=False),
    Column("type", Name(WORD_MAX_BYTES), nullable=False),
    Column("title", Words, nullable=False),
    Column("message", Words, nullable=False),
    Column("ref_type", Name(WORD_MAX_BYTES), nullable=False),
    Column("ref_id", Name(ID_MAX_BYTES), nullable=False),
    Column("is_read", Boolean(create_constraint=False), nullable=False),
    Column("slack_sent", Boolean(create_constraint=False), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    UniqueConstraint("user_id", "place", name="keystead_teamwork_notices_place"),
    # The last line of defence: whatever tells of an event twice, its reader hears of it once.
    UniqueConstraint("user_id", "event_id", name="keystead_teamwork_notices_event"),
)
Index("keystead_teamwork_notices_unread", NOTICES.c.user_id, NOTICES.c.is_read, NOTICES.c.ref_type)

# What a user wants to hear of. No row: all of it.
PREFERENCES = table(
    "teamwork_preferences",
    _metadata,
    Column("user_id", BigInteger, primary_key=True, autoincrement=False),
    *(
        Column(f"{name}_on", Boolean(create_constraint=False), nullable=False)
        for name in ("assign", "comment", "deadline", "status", "deploy", "mention")
    ),
)

# Who works in which team, for applications that have no table of users of their own.
PEOPLE = table(
    "teamwork_people",
    _metadata,
    Column("user_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Words, nullable=False),
    Column("email", Words, nullable=False),
    Column("role", Name(WORD_MAX_BYTES), nullable=False),
    Column("team_id", BigInteger, nullable=False),
    Column("team_role", Name(WORD_MAX_BYTES), nullable=False),
)
Index("keystead_teamwork_people_team", PEOPLE.c.team_id)

SLACK_LOG = table(
    "teamwork_slack_log",
    _metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("notice_id", BigInteger, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("channel", Words, nullable=False),
    Column("payload", Words, nullable=False),  # JSON
    Column("status", Name(WORD_MAX_BYTES), nullable=False),  # SENT or FAILED
    Column("error", Words),
    Column("retries", BigInteger, nullable=False),  # attempts before this one
    Column("sent_at_ms", BigInteger, nullable=False),
)
Index("keystead_teamwork_slack_log_notice", SLACK_LOG.c.notice_id)
Index("keystead_teamwork_slack_log_status", SLACK_LOG.c.status, SLACK_LOG.c.sent_at_ms)
Index("keystead_teamwork_slack_log_time", SLACK_LOG.c.sent_at_ms)

ALL = (READERS, NOTICES, PREFERENCES, PEOPLE, SLACK_LOG)


def rows_of_user(user: str) -> Belongings:
    """All that is kept of a user."""
    number = int(user) if user.isascii() and user.isdecimal() and len(user) < 19 else -1
    return [(one, one.c.user_id == number) for one in (SLACK_LOG, NOTICES, PREFERENCES, PEOPLE, READERS)]


TEAMWORK_TABLES = TableSet(
    "teamwork",
    (Change(1, "makes the tables of notices, preferences, people and of what was sent to Slack", create(*ALL)),),
    member_of={"user": rows_of_user},
)
