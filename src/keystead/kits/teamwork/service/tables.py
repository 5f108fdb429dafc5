"""The tables of the teamwork kit: notices, what each user wants to hear of, who they are, in which team, who is invited
to it, and what went to Slack.

Times are milliseconds since 1970. In the database each name has `keystead_teamwork_` before it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    UniqueConstraint,
    select,
)

from keystead.parts.tables import Belongings, Name, TableChange, TableSet, Words, create, extend, table

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
    # In the language of the server, for Slack and for rows of before there was `said`.
    Column("title", Words, nullable=False),
    Column("message", Words, nullable=False),
    Column("ref_type", Name(WORD_MAX_BYTES), nullable=False),
    Column("ref_id", Name(ID_MAX_BYTES), nullable=False),
    Column("is_read", Boolean(create_constraint=False), nullable=False),
    Column("slack_sent", Boolean(create_constraint=False), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    # What happened, and its arguments, as JSON: each reader is told in a language of their own.
    Column("said", Words),
    # Its words are gone. The row stays until it expires: an event that is told of again is known.
    Column("deleted_at_ms", BigInteger),
    UniqueConstraint("user_id", "place", name="keystead_teamwork_notices_place"),
    # The last line of defence: whatever tells of an event twice, its reader hears of it once.
    UniqueConstraint("user_id", "event_id", name="keystead_teamwork_notices_event"),
)
Index("keystead_teamwork_notices_unread", NOTICES.c.user_id, NOTICES.c.is_read, NOTICES.c.ref_type)
Index("keystead_teamwork_notices_time", NOTICES.c.created_at_ms)
Index("keystead_teamwork_notices_ref", NOTICES.c.ref_type, NOTICES.c.ref_id)

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

# Who works in which team, for applications that have no table of users of their own. Team 0: in none.
PEOPLE = table(
    "teamwork_people",
    _metadata,
    Column("user_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Words, nullable=False),
    Column("email", Words, nullable=False),
    Column("role", Name(WORD_MAX_BYTES), nullable=False),
    Column("team_id", BigInteger, nullable=False),
    Column("team_role", Name(WORD_MAX_BYTES), nullable=False),
    Column("slack_id", Name(WORD_MAX_BYTES)),
    # Who signs in as this person elsewhere, such as `login:42`.
    Column("identity", Name(ID_MAX_BYTES)),
)
Index("keystead_teamwork_people_team", PEOPLE.c.team_id)
Index("keystead_teamwork_people_identity", PEOPLE.c.identity, unique=True)

# One row for each team that was created here. It is locked before who is in the team, or what they may, changes.
TEAMS = table(
    "teamwork_teams",
    _metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Words, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

# An invitation to a team, by the digest of the secret in its link.
INVITATIONS = table(
    "teamwork_invitations",
    _metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("digest", Name(WORD_MAX_BYTES), nullable=False),
    Column("team_id", BigInteger, nullable=False),
    Column("team_role", Name(WORD_MAX_BYTES), nullable=False),
    Column("user_id", BigInteger),  # the one who may use it; NULL: whoever has the link
    Column("name", Words, nullable=False),  # whom it is for, as the inviter calls them
    Column("invited_by", BigInteger),  # NULL: an operator
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    UniqueConstraint("digest", name="keystead_teamwork_invitations_digest"),
)
Index("keystead_teamwork_invitations_team", INVITATIONS.c.team_id)
Index("keystead_teamwork_invitations_user", INVITATIONS.c.user_id)
Index("keystead_teamwork_invitations_end", INVITATIONS.c.expires_at_ms)

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

ALL = (READERS, NOTICES, PREFERENCES, PEOPLE, TEAMS, INVITATIONS, SLACK_LOG)


def rows_of_user(user: str) -> Belongings:
    """All rows of a user, including the invitations that they sent, whose links must not work any more."""
    # Keys render 42 without zeros, so `042` is not the same user.
    number = int(user) if user.isascii() and user.isdecimal() and user[0] != "0" and len(user) < 19 else -1
    given = INVITATIONS.c.invited_by == number
    return [
        (one, (one.c.user_id == number) | given if one is INVITATIONS else one.c.user_id == number)
        for one in (SLACK_LOG, NOTICES, PREFERENCES, INVITATIONS, PEOPLE, READERS)
    ]


def identity_of(subject: str) -> str:
    """Somebody who signs in elsewhere, such as `login:42`, as the table of people names them."""
    if len(subject.encode()) <= ID_MAX_BYTES:
        return subject
    return f"{subject.partition(':')[0]}:sha256:{sha256(subject.encode()).hexdigest()}"


def known_as(connection: Connection, subject: str) -> list[str]:
    """Which user somebody is who signs in elsewhere."""
    asked = select(PEOPLE.c.user_id).where(PEOPLE.c.identity == identity_of(subject))
    return [f"teamwork:{user}" for (user,) in connection.execute(asked)]


TEAMWORK_TABLES = TableSet(
    "teamwork",
    (
        TableChange(
            1,
            "makes the tables of notices, preferences, people and of what was sent to Slack",
            create(READERS, NOTICES, PREFERENCES, PEOPLE, SLACK_LOG),
        ),
        TableChange(2, "adds teams, invitations, and what a notice says in each language", extend(*ALL)),
    ),
    member_of={"teamwork": rows_of_user},
    known_as=known_as,
)
