"""Key document of the widgets kit: the keys of the five services, then those they share."""

from keystead.kits.widgets.models import (
    BbsMessage,
    BbsRecord,
    CounterRecord,
    LikeRecord,
    RankingDetail,
    RankingEntry,
    RankingMeta,
    RankingRecord,
    WelcomeRecord,
    WidgetName,
)
from keystead.parts.outbox.outbox_keys import OutboxKeys
from keystead.parts.schedule.schedule_keys import ScheduleKeys
from keystead.schema import (
    VALUE,
    Counter,
    Hash,
    IsoTime,
    Keyspace,
    List,
    Set,
    SortedSet,
    Value,
    after,
    link,
    never,
    packed,
    sliding,
    until,
)

_VISIT, _LIKE, _RANKING, _BBS = ("/api/visit",), ("/api/like",), ("/api/ranking",), ("/api/bbs",)
_YOKOSO = ("/api/yokoso",)
_ALL = (*_VISIT, *_LIKE, *_RANKING, *_BBS, *_YOKOSO)
_OF_COUNTER, _OF_LIKE = never("deleted with its counter"), never("deleted with its like button")
_OF_RANKING, _OF_BBS = never("deleted with its ranking"), never("deleted with its board")
_RECORD, _EMPTIED = never("deleted by its owner"), never("emptied as widgets are deleted")
_TODAY = until("end_of_day", at_most="26h")
_URL_CHANGED = "A URL whose escaped form is longer than 400 bytes is hashed, because some stores limit the key length."
_INDEX_CHANGED = (
    "Written and deleted together with each record. The document does not define the score, and deletes the entry for "
    "only one of the four services."
)
_RECORD_CHANGED = (
    "{} and `owner` have their own keys; an old record that contains them is upgraded on its next use. `webhook`, "
    "`ending`, `layout` and `moved` are new."
)


def _url(pattern: str, family: str, noun: str, used_by: tuple[str, ...], changed: str = _URL_CHANGED) -> Value[str]:
    return Value(
        pattern,
        str,
        lifetime=never(f"deleted with its {noun}"),
        leads_to=link(family, id=VALUE),
        doc=f"The id of the {noun} for a page, by URL. The URL is escaped as `encodeURIComponent` does.",
        used_by=used_by,
        changed=changed,
    )


def _index(pattern: str, noun: str, used_by: tuple[str, ...], changed: str = _INDEX_CHANGED) -> SortedSet[str]:
    return SortedSet(
        pattern,
        str,
        score="created, in ms since 1970",
        lifetime=_EMPTIED,
        doc=f"The ids of all {noun}s, oldest first.",
        used_by=used_by,
        changed=changed,
    )


def _owner(pattern: str, noun: str, used_by: tuple[str, ...]) -> Value[str]:
    return Value(
        pattern,
        str,
        lifetime=never(f"deleted with its {noun}"),
        tag="id",
        doc=f"The hash of the {noun}'s owner token.",
        used_by=used_by,
    )


class WidgetKeys(Keyspace):
    """Counters, like buttons, rankings, boards and welcome cards: at most one of each per page."""

    source = "Widgets: counter, like, ranking and BBS"
    part_keyspaces = (OutboxKeys, ScheduleKeys)
    changes = (
        "Deleting a record deletes all keys that the document lists for its service, markers and index entry included.",
        "The pattern `counter:{id}:*`, which the document deletes by, does not match `counter:{id}` itself.",
        "A day ends at midnight, in UTC or in the configured time zone. The document says 23:59:59 without a zone.",
        "A marker always has time left, even in the last second of a day.",
        "Totals, the last visit and the owner are stored only under their own keys, so no two copies can disagree.",
        "A record therefore changes only when its owner changes it, and it guards every write beside it.",
        "Each service lists its markers in a set, so deleting a widget needs no scan of the store.",
    )

    # Counter

    counter_url = _url("url:counter:{url:uri<=400}", "counter", "counter", _VISIT)
    counters = _index("counters:index", "counter", _VISIT)
    counter = Value(
        "counter:{id:token}",
        CounterRecord,
        lifetime=_RECORD,
        listed_in=counters.by(score="created"),
        owns=[
            counter_url,
            "counter_total",
            "counter_last",
            "counter_daily",
            "counter_owner",
            "counter_visit",
            "counter_visitors",
        ],
        tag="id",
        doc="A counter: its page, when it was created, and its webhook.",
        used_by=_VISIT,
        changed=_RECORD_CHANGED.format("`totalCount`, `lastVisit`"),
    )
    counter_total = Counter(
        "counter:{id:token}:total", lifetime=_OF_COUNTER, tag="id", doc="All visits.", used_by=_VISIT
    )
    counter_last = Value(
        "counter:{id:token}:last",
        IsoTime,
        lifetime=_OF_COUNTER,
        tag="id",
        doc="When the page was last visited.",
        used_by=_VISIT,
    )
    counter_daily = Counter(
        "counter:{id:token}:daily:{date:date}",
        lifetime=_OF_COUNTER,
        tag="id",
        doc="The visits of one day, in the configured time zone.",
        used_by=_VISIT,
    )
    counter_owner = _owner("counter:{id:token}:owner", "counter", _VISIT)
    counter_visit = Value(
        "counter:{id:token}:visit:{user_hash:hex}",
        IsoTime,
        lifetime=_TODAY,
        listed_in="counter_visitors",
        tag="id",
        doc="Marker: when this visitor was counted today.",
        used_by=_VISIT,
    )
    counter_visitors = Set(
        "counter:{id:token}:visitors", str, lifetime=_TODAY, tag="id", doc="Visitors counted today.", used_by=_VISIT
    )

    # Like

    like_url = _url("url:like:{url:uri<=400}", "like", "like button", _LIKE)
    likes = _index("likes:index", "like button", _LIKE)
    like = Value(
        "like:{id:token}",
        LikeRecord,
        lifetime=_RECORD,
        listed_in=likes.by(score="created"),
        owns=[like_url, "like_total", "like_last", "like_user", "like_users", "like_owner"],
        tag="id",
        doc="A like button: its page, when it was created, its icon, and its webhook.",
        used_by=_LIKE,
        changed=_RECORD_CHANGED.format("`totalLikes`, `lastLike`"),
    )
    like_total = Counter("like:{id:token}:total", lifetime=_OF_LIKE, tag="id", doc="All likes.", used_by=_LIKE)
    like_last = Value(
        "like:{id:token}:last",
        IsoTime,
        lifetime=_OF_LIKE,
        tag="id",
        doc="When the button was last used.",
        used_by=_LIKE,
    )
    like_user = Value(
        "like:{id:token}:users:{user_hash:hex}",
        bool,
        lifetime=_TODAY,
        listed_in="like_users",
        tag="id",
        doc="Whether this visitor likes the page today.",
        used_by=_LIKE,
    )
    like_users = Set(
        "like:{id:token}:users",
        str,
        lifetime=_TODAY,
        tag="id",
        doc="Visitors who used the button today.",
        used_by=_LIKE,
    )
    like_owner = _owner("like:{id:token}:owner", "like button", _LIKE)

    # Ranking

    ranking_url = _url("url:ranking:{url:uri<=400}", "ranking", "ranking", _RANKING)
    rankings = _index("rankings:index", "ranking", _RANKING)
    ranking = Value(
        "ranking:{id:token}",
        RankingRecord,
        lifetime=_RECORD,
        listed_in=rankings.by(score="created"),
        owns=[
            ranking_url,
            "ranking_scores",
            "ranking_turns",
            "ranking_details",
            "ranking_sequence",
            "ranking_last",
            "ranking_owner",
            "ranking_meta",
            "ranking_submit",
            "ranking_submitters",
        ],
        tag="id",
        doc="A ranking: its page, when it was created, its maximum number of entries, and its sort order.",
        used_by=_RANKING,
        changed=_RECORD_CHANGED.format("`totalEntries`, `lastSubmit`") + " `sortOrder` is new.",
    )
    ranking_scores = SortedSet(
        "ranking:{id:token}:scores",
        packed(RankingEntry, "{name}:{unique_id}"),
        score="the score",
        lifetime=_OF_RANKING,
        tag="id",
        doc="The entries by score.",
        used_by=_RANKING,
        changed="A colon in a name is written `%3A`, so the first plain colon separates `name` from `unique_id`. There "
        "is one entry per name: `unique_id` is derived from it. Equal scores are ordered by `turns`.",
    )
    ranking_turns = SortedSet(
        "ranking:{id:token}:turns",
        packed(RankingEntry, "{name}:{unique_id}"),
        score="the sequence number at which the score was submitted",
        lifetime=_OF_RANKING,
        tag="id",
        doc="The entries by submission order, the tie-breaker for equal scores: the earlier entry ranks higher.",
        used_by=_RANKING,
    )
    ranking_details = Hash(
        "ranking:{id:token}:details",
        dict[str, RankingDetail],
        lifetime=_OF_RANKING,
        tag="id",
        doc="The display score and submission time of each entry, by `unique_id`.",
        used_by=_RANKING,
    )
    ranking_sequence = Counter(
        "ranking:{id:token}:sequence",
        lifetime=_OF_RANKING,
        tag="id",
        doc="How often the scores have changed. It numbers the turns, and guards each change (optimistic locking).",
        used_by=_RANKING,
    )
    ranking_last = Value(
        "ranking:{id:token}:last",
        IsoTime,
        lifetime=_OF_RANKING,
        tag="id",
        doc="When a score was last submitted.",
        used_by=_RANKING,
    )
    ranking_owner = _owner("ranking:{id:token}:owner", "ranking", _RANKING)
    ranking_meta = Value(
        "ranking:{id:token}:meta",
        RankingMeta,
        lifetime=_OF_RANKING,
        tag="id",
        doc="The title and description of the ranking.",
        used_by=_RANKING,
    )
    ranking_submit = Value(
        "ranking:{id:token}:submit:{user_hash:hex}",
        IsoTime,
        lifetime=after("60s"),
        listed_in="ranking_submitters",
        tag="id",
        doc="Cooldown marker: when this visitor submitted a score. The next is accepted 60 seconds later.",
        used_by=_RANKING,
    )
    ranking_submitters = SortedSet(
        "ranking:{id:token}:submitters",
        str,
        score="when the marker expires, in ms since 1970",
        lifetime=sliding("60s", touch_every="1s"),
        tag="id",
        doc="Visitors in the cooldown after a score.",
        used_by=_RANKING,
    )

    # BBS

    bbs_url = _url("url:bbs:{url:uri<=400}", "bbs", "board", _BBS)
    bbss = _index("bbss:index", "board", _BBS, f"{_INDEX_CHANGED} The name follows its rule `{{service}}s:index`.")
    bbs = Value(
        "bbs:{id:token}",
        BbsRecord,
        lifetime=_RECORD,
        listed_in=bbss.by(score="created"),
        owns=[bbs_url, "bbs_messages", "bbs_version", "bbs_owner", "bbs_post", "bbs_posters"],
        tag="id",
        doc="A board: its page, when it was created, and its settings.",
        used_by=_BBS,
        changed=_RECORD_CHANGED.format("`totalMessages`, `lastMessage`"),
    )
    bbs_messages = List(
        "bbs:{id:token}:messages",
        BbsMessage,
        lifetime=_OF_BBS,
        tag="id",
        doc="The messages, newest first.",
        used_by=_BBS,
        changed="`editDigest` is new, and left out unless set: `userHash` is public, so it cannot authorize an edit. "
        "`edited` is new: an edit changes neither `timestamp` nor the position.",
    )
    bbs_version = Counter(
        "bbs:{id:token}:version",
        lifetime=_OF_BBS,
        tag="id",
        doc="How often the messages have changed. It guards edits, which write to the position that was read.",
        used_by=_BBS,
    )
    bbs_owner = _owner("bbs:{id:token}:owner", "board", _BBS)
    bbs_post = Value(
        "bbs:{id:token}:post:{user_hash:hex}",
        IsoTime,
        lifetime=after("10s"),
        listed_in="bbs_posters",
        tag="id",
        doc="Cooldown marker: when this visitor posted. The next message is accepted 10 seconds later.",
        used_by=_BBS,
    )
    bbs_posters = SortedSet(
        "bbs:{id:token}:posters",
        str,
        score="when the marker expires, in ms since 1970",
        lifetime=sliding("10s", touch_every="1s"),
        tag="id",
        doc="Visitors in the cooldown after a message.",
        used_by=_BBS,
    )

    # Welcome card: not in the document, because the original system got it later

    yokoso_url = _url("url:yokoso:{url:uri<=400}", "yokoso", "welcome card", _YOKOSO, "")
    yokosos = _index("yokosos:index", "welcome card", _YOKOSO, "")
    yokoso = Value(
        "yokoso:{id:token}",
        WelcomeRecord,
        lifetime=_RECORD,
        listed_in=yokosos.by(score="created"),
        owns=[yokoso_url, "yokoso_owner"],
        tag="id",
        doc="A welcome card: its page, its message, and who it is from.",
        used_by=_YOKOSO,
    )
    yokoso_owner = _owner("yokoso:{id:token}:owner", "welcome card", _YOKOSO)

    # Shared

    ending = Set(
        "widgets:ending",
        packed(WidgetName, "{service}:{id}"),
        lifetime=_EMPTIED,
        doc="Widgets that are being deleted. The clean-up job finishes interrupted deletes.",
        used_by=_ALL,
    )
    requests = Counter(
        "widgets:requests:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("2m"),
        doc="Rate limits: requests of a client in one minute, by limit name.",
        used_by=_ALL,
    )
