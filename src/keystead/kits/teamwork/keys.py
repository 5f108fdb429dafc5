"""The key document of the teamwork kit."""

from datetime import date

from keystead.kits.teamwork.models import (
    DashboardSummary,
    Deadline,
    DueItem,
    Notification,
    TeamSettings,
    UserSession,
)
from keystead.parts.cache import LoadMarkers
from keystead.parts.outbox.outbox_keys import OutboxKeys
from keystead.parts.schedule.schedule_keys import ScheduleKeys
from keystead.schema import (
    Channel,
    Counter,
    Hash,
    Keyspace,
    Log,
    Set,
    SortedSet,
    Value,
    after,
    never,
    packed,
    sliding,
    until,
)

_EPOCH = date(1970, 1, 1)
_DAY_SECONDS = 86_400
_EACH_REQUEST = "every request"


def deadline_score(due: date) -> int:
    """The score of a deadline: its day at 00:00 UTC, in seconds since 1970."""
    return (due - _EPOCH).days * _DAY_SECONDS


class TeamworkKeys(Keyspace):
    """A team at work: revoked tokens, who is active, notices as they happen, deadlines, and dashboards."""

    source = "Teamwork: tokens, sessions, notices, deadlines and dashboards"
    part_keyspaces = (OutboxKeys, ScheduleKeys)
    naming = "domain:entity:scope"

    revoked_token = Value(
        "jwt:blacklist:{jti}",
        str,
        lifetime=until("expires_at"),
        role="durable",
        doc="A JWT that is refused although it has not expired: its user has logged out. The value is `1`.",
        used_by=("logout", _EACH_REQUEST),
        changed="It lives in the store that forgets nothing when it starts again: a token that was revoked stays "
        "revoked. The deadline is the moment at which the token expires, not a number of seconds.",
    )
    tokens_since = Value(
        "jwt:since:{userId}",
        int,
        lifetime=after("1d"),
        role="durable",
        doc="When all tokens of a user were ended: what was issued until then does not count. In ms since 1970.",
        used_by=("logout everywhere", _EACH_REQUEST),
        changed="New: the document ends tokens one by one only.",
    )
    user_session = Hash(
        "session:user:{userId:int}",
        UserSession,
        lifetime=sliding("30m", touch_every="1m"),
        tag="userId",
        member_of="teamwork:{userId}",
        doc="Who a user is and which team they work in, until they have done nothing for 30 minutes.",
        used_by=(_EACH_REQUEST,),
        changed="To spare writes, the 30 minutes begin anew at most once a minute.",
    )
    user_session_mark = LoadMarkers(
        "session:user:{userId:int}:mark",
        role="default",
        nothing="1m",
        tag="userId",
        member_of="teamwork:{userId}",
        doc="Who finds out now who a user is: so that one asks the database.",
        used_by=(_EACH_REQUEST,),
        changed="New: in the document every request asks when the cache is empty.",
    )
    notifications = Channel(
        "notifications:user:{userId:int}",
        Notification,
        member_of="teamwork:{userId}",
        doc="Notices to a user, for whoever listens now. They are stored in the database before they are published.",
        used_by=("/api/notifications",),
    )
    notice_log = Log(
        "notifications:user:{userId:int}:log",
        Notification,
        keep=1_000,
        lifetime=sliding("7d", touch_every="1h"),
        tag="userId",
        member_of="teamwork:{userId}",
        doc="The newest notices to a user, by their place among all of theirs: what a stream replays that was cut off.",
        used_by=("/api/notifications/stream",),
        changed="New: a message on a channel is gone for whoever was away in that moment.",
    )
    notice_wakes = Channel(
        "notifications:wakes:log",
        str,
        doc="Whose log has something new, so that one subscription serves all streams of a process.",
        used_by=("/api/notifications/stream",),
        changed="New: on Redis a subscription is a connection of its own.",
    )
    deadlines = SortedSet(
        "deadlines:team:{teamId:int}",
        packed(Deadline, "{ref_type}:{ref_id}"),
        score="the day that it is due at 00:00 UTC, in seconds since 1970",
        lifetime=never("each deadline is taken out when its work item is closed or deleted"),
        tag="teamId",
        doc="What is due in a team, in the order of the days.",
        used_by=("the deadline job, daily at 09:00",),
        changed="The document gives no lifetime. It takes a member out before it changes its date; a put alone moves "
        "it, and so nobody sees the team without it.",
    )
    due_item = Hash(
        "deadlines:item:{teamId:int}:{refType}:{refId}",
        DueItem,
        lifetime=never("deleted in one step with its deadline"),
        tag="teamId",
        doc="Who is to be told of a deadline, and what was told.",
        used_by=("the deadline job, daily at 09:00",),
        changed="New: the document reads it from the database.",
    )
    due_teams = Set(
        "deadlines:teams:all",
        int,
        lifetime=never("as many as there are teams with a deadline"),
        doc="The teams that have deadlines, so that the job finds them.",
        used_by=("the deadline job, daily at 09:00",),
        changed="New: the document does not say where the job has the teams from. A team whose deadlines another "
        "program has added is found by a scan, at most once an hour.",
    )
    due_found = Hash(
        "deadlines:found:{teamId:int}",
        dict[Deadline, str],
        fields=packed(Deadline, "{ref_type}:{ref_id}"),
        lifetime=never("a field is taken out when its deadline is gone"),
        tag="teamId",
        doc="What was told of a deadline that another program has put into the list with nothing beside it.",
        used_by=("the deadline job, daily at 09:00",),
        changed="New: as for what is told of a work item.",
    )
    team_settings = Hash(
        "team:settings:{teamId:int}",
        TeamSettings,
        lifetime=never("deleted with the team"),
        tag="teamId",
        doc="In which time zone a team works, and how many days before a deadline it is told.",
        used_by=("the deadline job, daily at 09:00", "/api/team"),
        changed="New: the document's job knows only the zone of its server.",
    )
    dashboard = Hash(
        "dashboard:summary:{userId:int}:{teamId:int}",
        DashboardSummary,
        lifetime=after("5m"),
        role="cache",
        tag="userId",
        member_of="teamwork:{userId}",
        doc="What waits for a user in a team, counted at most every five minutes. Deleted when something changes.",
        used_by=("/api/dashboard/summary",),
    )
    dashboard_mark = LoadMarkers(
        "dashboard:summary:{userId:int}:{teamId:int}:mark",
        loading="10s",
        retry="2s",
        tag="userId",
        member_of="teamwork:{userId}",
        doc="Who counts now: so that one does, and a change is not undone by a count that was under way.",
        used_by=("/api/dashboard/summary",),
        changed="New: in the document every request counts when the cache is empty.",
    )
    dashboard_teams = Set(
        "dashboard:teams:{userId:int}",
        int,
        lifetime=sliding("15m", touch_every="1m"),
        role="cache",
        tag="userId",
        member_of="teamwork:{userId}",
        doc="In which teams something is counted for a user, so that a change drops all of it.",
        used_by=("/api/dashboard/summary",),
        changed="New: the document does not say whose summaries a notice concerns.",
    )
    requests = Counter(
        "limits:requests:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="How often a user has told of something in a minute: `window` is the number of the minute, `client` begins "
        "the digest of the user's id.",
        used_by=("/api/events", "/api/deadlines"),
        changed="New: in the document nothing is limited.",
    )
    dashboard_users = Set(
        "dashboard:users:{teamId:int}",
        int,
        lifetime=sliding("15m", touch_every="1m"),
        role="cache",
        tag="teamId",
        doc="For which users something is counted in a team, so that a deadline that changes drops all of it.",
        used_by=("/api/dashboard/summary",),
        changed="New: as for the teams of a user.",
    )
