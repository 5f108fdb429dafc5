"""The tables of the teamwork kit: notices, preferences, people, teams, invitations, and the Slack log.

Times are milliseconds since 1970. In the database the names have the prefix `keystead_teamwork_`.
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
ID_MAX_BYTES: Final = 200  # of external ids, such as those of events and work items
WORD_MAX_BYTES: Final = 64

# SQLite auto-increments only INTEGER columns.
_Number: Final = BigInteger().with_variant(Integer, "sqlite")

# One row per user with notices. It is locked before a notice is written, so places have no gaps and follow the order of
# the commits.
READERS = table(
    "teamwork_readers",
    _metadata,
    Column("user_id", BigInteger, primary_key=True, autoincrement=False),
    Column("last_place", BigInteger, nullable=False),
    Column("waiting", BigInteger, nullable=False),  # the number of unpublished notices
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
    # In the language of the server, for Slack and for old rows without `said`.
    Column("title", Words, nullable=False),
    Column("message", Words, nullable=False),
    Column("ref_type", Name(WORD_MAX_BYTES), nullable=False),
    Column("ref_id", Name(ID_MAX_BYTES), nullable=False),
    Column("is_read", Boolean(create_constraint=False), nullable=False),
    Column("slack_sent", Boolean(create_constraint=False), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    # The event and its arguments as JSON, to be translated for each reader.
    Column("said", Words),
    # A deleted notice has no text. Its row stays until it expires, for deduplication of its event.
    Column("deleted_at_ms", BigInteger),
    UniqueConstraint("user_id", "place", name="keystead_teamwork_notices_place"),
    # The last line of defence against duplicate notices of an event.
    UniqueConstraint("user_id", "event_id", name="keystead_teamwork_notices_event"),
)
Index("keystead_teamwork_notices_unread", NOTICES.c.user_id, NOTICES.c.is_read, NOTICES.c.ref_type)
Index("keystead_teamwork_notices_time", NOTICES.c.created_at_ms)
Index("keystead_teamwork_notices_ref", NOTICES.c.ref_type, NOTICES.c.ref_id)

# Without a row, all preferences are on.
PREFERENCES = table(
    "teamwork_preferences",
    _metadata,
    Column("user_id", BigInteger, primary_key=True, autoincrement=False),
    *(
        Column(f"{name}_on", Boolean(create_constraint=False), nullable=False)
        for name in ("assign", "comment", "deadline", "status", "deploy", "mention")
    ),
)

# For applications without their own user table. Team 0: no team.
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
    # The sign-in identity, such as `login:42`.
    Column("identity", Name(ID_MAX_BYTES)),
)
Index("keystead_teamwork_people_team", PEOPLE.c.team_id)
Index("keystead_teamwork_people_identity", PEOPLE.c.identity, unique=True)

# One row per team that was created here. It is locked before members or roles change.
TEAMS = table(
    "teamwork_teams",
    _metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Words, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

INVITATIONS = table(
    "teamwork_invitations",
    _metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("digest", Name(WORD_MAX_BYTES), nullable=False),  # of the token in the link
    Column("team_id", BigInteger, nullable=False),
    Column("team_role", Name(WORD_MAX_BYTES), nullable=False),
    Column("user_id", BigInteger),  # the only one who can accept it; NULL: anyone with the link
    Column("name", Words, nullable=False),  # of the invited person, from the inviter
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
    """All rows of a user, including the invitations that they sent, whose links must stop working."""
    # Keys render 42 without leading zeros, so `042` is not the same user.
    number = int(user) if user.isascii() and user.isdecimal() and user[0] != "0" and len(user) < 19 else -1
    sent = INVITATIONS.c.invited_by == number
    return [
        (one, (one.c.user_id == number) | sent if one is INVITATIONS else one.c.user_id == number)
        for one in (SLACK_LOG, NOTICES, PREFERENCES, INVITATIONS, PEOPLE, READERS)
    ]


def identity_of(subject: str) -> str:
    """A sign-in subject, such as `login:42`, as stored in the table of people: a digest if it is too long."""
    if len(subject.encode()) <= ID_MAX_BYTES:
        return subject
    return f"{subject.partition(':')[0]}:sha256:{sha256(subject.encode()).hexdigest()}"


def subjects_of(connection: Connection, subject: str) -> list[str]:
    """The users of this kit with a sign-in subject, such as `login:42`."""
    query = select(PEOPLE.c.user_id).where(PEOPLE.c.identity == identity_of(subject))
    return [f"teamwork:{user}" for (user,) in connection.execute(query)]


TEAMWORK_TABLES = TableSet(
    "teamwork",
    (
        TableChange(
            1,
            "creates the tables of notices, preferences, people and the Slack log",
            create(READERS, NOTICES, PREFERENCES, PEOPLE, SLACK_LOG),
        ),
        TableChange(2, "adds teams, invitations, and translatable notices", extend(*ALL)),
    ),
    member_of={"teamwork": rows_of_user},
    known_as=subjects_of,
)
