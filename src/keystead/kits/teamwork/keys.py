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
    """A team at work: revoked tokens, user sessions, real-time notices, deadlines, and dashboards."""

    source = "Teamwork: tokens, sessions, notices, deadlines and dashboards"
    part_keyspaces = (OutboxKeys, ScheduleKeys)
    naming = "domain:entity:scope"

    revoked_token = Value(
        "jwt:blacklist:{jti}",
        str,
        lifetime=until("expires_at"),
        role="durable",
        doc="A revoked JWT: refused before it expires, because its user has logged out. The value is `1`.",
        used_by=("logout", _EACH_REQUEST),
        changed="It is in the durable store, so a revoked token stays revoked after a restart. The entry expires at "
        "the moment the token does, not after a number of seconds.",
    )
    tokens_since = Value(
        "jwt:since:{userId}",
        int,
        lifetime=after("1d"),
        role="durable",
        doc="When all tokens of a user were revoked: tokens issued before are refused. In ms since 1970.",
        used_by=("logout everywhere", _EACH_REQUEST),
        changed="New: the document revokes tokens only one by one.",
    )
    user_session = Hash(
        "session:user:{userId:int}",
        UserSession,
        lifetime=sliding("30m", touch_every="1m"),
        tag="userId",
        member_of="teamwork:{userId}",
        doc="A user and their team, cached until 30 minutes after their last request.",
        used_by=(_EACH_REQUEST,),
        changed="To save writes, the 30 minutes are renewed at most once a minute.",
    )
    user_session_mark = LoadMarkers(
        "session:user:{userId:int}:mark",
        role="default",
        nothing="1m",
        tag="userId",
        member_of="teamwork:{userId}",
        doc="Load marker of a user session: concurrent misses trigger one database query (single flight).",
        used_by=(_EACH_REQUEST,),
        changed="New: in the document every request queries the database when the cache is empty.",
    )
    notifications = Channel(
        "notifications:user:{userId:int}",
        Notification,
        member_of="teamwork:{userId}",
        doc="Notices to a user, for current subscribers. They are stored in the database before they are published.",
        used_by=("/api/notifications",),
    )
    notice_log = Log(
        "notifications:user:{userId:int}:log",
        Notification,
        keep=1_000,
        lifetime=sliding("7d", touch_every="1h"),
        tag="userId",
        member_of="teamwork:{userId}",
        doc="The newest notices to a user, by place, for replay after a stream was interrupted.",
        used_by=("/api/notifications/stream",),
        changed="New: a disconnected subscriber misses messages on a channel.",
    )
    notice_wakes = Channel(
        "notifications:wakes:log",
        str,
        doc="Wake-ups: whose log has new notices. One subscription serves all streams of a process.",
        used_by=("/api/notifications/stream",),
        changed="New: on Redis each subscription needs its own connection.",
    )
    deadlines = SortedSet(
        "deadlines:team:{teamId:int}",
        packed(Deadline, "{ref_type}:{ref_id}"),
        score="the due day at 00:00 UTC, in seconds since 1970",
        lifetime=never("each deadline is removed when its work item is closed or deleted"),
        tag="teamId",
        doc="The deadlines of a team, by day.",
        used_by=("the deadline job, daily at 09:00",),
        changed="The document gives no lifetime. To move a deadline, it removes the member and adds it again. Here one "
        "put moves it, so readers always see it.",
    )
    due_item = Hash(
        "deadlines:item:{teamId:int}:{refType}:{refId}",
        DueItem,
        lifetime=never("deleted in one step with its deadline"),
        tag="teamId",
        doc="Title, assignee and last notice of a deadline.",
        used_by=("the deadline job, daily at 09:00",),
        changed="New: the document reads it from the database.",
    )
    due_teams = Set(
        "deadlines:teams:all",
        int,
        lifetime=never("one member per team with deadlines"),
        doc="The teams with deadlines, for the deadline job.",
        used_by=("the deadline job, daily at 09:00",),
        changed="New: the document does not say how the job finds the teams. Deadlines that another program adds for "
        "an unknown team are found by a scan, at most once an hour.",
    )
    due_found = Hash(
        "deadlines:found:{teamId:int}",
        dict[Deadline, str],
        fields=packed(Deadline, "{ref_type}:{ref_id}"),
        lifetime=never("a field is removed when its deadline is gone"),
        tag="teamId",
        doc="The last notice of each deadline that another program added without a work item.",
        used_by=("the deadline job, daily at 09:00",),
        changed="New: such a deadline has no work item to record it in.",
    )
    team_settings = Hash(
        "team:settings:{teamId:int}",
        TeamSettings,
        lifetime=never("deleted with the team"),
        tag="teamId",
        doc="The time zone of a team, and how many days before a deadline it is notified.",
        used_by=("the deadline job, daily at 09:00", "/api/team"),
        changed="New: the document's job uses the time zone of its server.",
    )
    dashboard = Hash(
        "dashboard:summary:{userId:int}:{teamId:int}",
        DashboardSummary,
        lifetime=after("5m"),
        role="cache",
        tag="userId",
        member_of="teamwork:{userId}",
        doc="Open work of a user in a team, counted at most every five minutes. Deleted when something changes.",
        used_by=("/api/dashboard/summary",),
    )
    dashboard_mark = LoadMarkers(
        "dashboard:summary:{userId:int}:{teamId:int}:mark",
        loading="10s",
        retry="2s",
        tag="userId",
        member_of="teamwork:{userId}",
        doc="Load marker of a summary: concurrent misses trigger one count, and a stale count never overwrites an "
        "invalidation.",
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
        doc="The teams of a user's cached summaries, so that a change to the user invalidates all of them.",
        used_by=("/api/dashboard/summary",),
        changed="New: the document does not say which summaries a notice affects.",
    )
    requests = Counter(
        "limits:requests:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="Rate limits: requests of a user per minute. `window` is the number of the minute, `client` a digest "
        "prefix of the user's id.",
        used_by=("/api/events", "/api/deadlines"),
        changed="New: the document has no rate limits.",
    )
    dashboard_users = Set(
        "dashboard:users:{teamId:int}",
        int,
        lifetime=sliding("15m", touch_every="1m"),
        role="cache",
        tag="teamId",
        doc="The users with a cached summary of a team, so that a changed deadline invalidates all of them.",
        used_by=("/api/dashboard/summary",),
        changed="New: as for the teams of a user.",
    )
