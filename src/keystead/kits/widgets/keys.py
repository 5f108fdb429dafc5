"""The key document of the widgets kit: its services, told one after the other in the same way."""

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
_CREATED = "created, in ms since 1970"
_EMPTIED = never("emptied as services are deleted")
_TODAY = until("end_of_day", at_most="26h")
_URL_CHANGED = "An address whose escaped form is longer than 400 bytes is hashed, so that every store can keep the key."
_INDEX_CHANGED = (
    "Written with each record and taken back with it; the document says what is in it, but not what the score is, and "
    "takes an entry out for one of the four services only."
)


_RECORD_CHANGED = (
    "{} and `owner` stand under keys of their own: of a record that has them they are moved there when it is next "
    "used. `webhook`, `ending`, `layout` and `moved` are new."
)


class WidgetKeys(Keyspace):
    """Counters, like buttons, rankings, boards and welcome cards, each for one address, and all that goes when one is
    deleted."""

    source = "Widgets: counter, like, ranking and BBS"
    part_keyspaces = (OutboxKeys, ScheduleKeys)
    changes = (
        "Deleting a record deletes all that the document lists for its service, marks and index entry included.",
        "The pattern `counter:{id}:*` that the document deletes by leaves out `counter:{id}` itself.",
        "A day ends at midnight, in UTC or in the zone of the settings; the document says 23:59:59 and no zone.",
        "A mark always has time left, also in the last second of a day.",
        "Totals, the last visit and the owner stand under keys of their own alone: what stands twice can disagree.",
        "So a record changes only when its owner changes it, and whatever is written beside it is guarded by it.",
        "The marks of a service are named in a set of its own, so that deleting it needs no walk through the store.",
    )

    # Counter

    counter_url = Value(
        "url:counter:{url:uri<=400}",
        str,
        lifetime=never("deleted with its counter"),
        leads_to=link("counter", id=VALUE),
        doc="The counter of an address. The address is escaped as `encodeURIComponent` does it.",
        used_by=_VISIT,
        changed=_URL_CHANGED,
    )
    counters = SortedSet(
        "counters:index",
        str,
        score=_CREATED,
        lifetime=_EMPTIED,
        doc="The ids of all counters, the oldest first.",
        used_by=_VISIT,
        changed=_INDEX_CHANGED,
    )
    counter = Value(
        "counter:{id:token}",
        CounterRecord,
        lifetime=never("deleted by its owner"),
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
        doc="A counter: its address, when it was made, and where its events are told.",
        used_by=_VISIT,
        changed=_RECORD_CHANGED.format("`totalCount`, `lastVisit`"),
    )
    counter_total = Counter(
        "counter:{id:token}:total",
        lifetime=never("deleted with its counter"),
        tag="id",
        doc="All visits.",
        used_by=_VISIT,
    )
    counter_last = Value(
        "counter:{id:token}:last",
        IsoTime,
        lifetime=never("deleted with its counter"),
        tag="id",
        doc="When the page was last visited.",
        used_by=_VISIT,
    )
    counter_daily = Counter(
        "counter:{id:token}:daily:{date:date}",
        lifetime=never("deleted with its counter"),
        tag="id",
        doc="The visits of a day, in the zone of the settings.",
        used_by=_VISIT,
    )
    counter_owner = Value(
        "counter:{id:token}:owner",
        str,
        lifetime=never("deleted with its counter"),
        tag="id",
        doc="The hash of the token that lets its owner change the counter.",
        used_by=_VISIT,
    )
    counter_visit = Value(
        "counter:{id:token}:visit:{user_hash:hex}",
        IsoTime,
        lifetime=_TODAY,
        listed_in="counter_visitors",
        tag="id",
        doc="That a visitor was counted today, and when.",
        used_by=_VISIT,
    )
    counter_visitors = Set(
        "counter:{id:token}:visitors",
        str,
        lifetime=_TODAY,
        tag="id",
        doc="Who was counted today.",
        used_by=_VISIT,
    )

    # Like

    like_url = Value(
        "url:like:{url:uri<=400}",
        str,
        lifetime=never("deleted with its like button"),
        leads_to=link("like", id=VALUE),
        doc="The like button of an address. The address is escaped as `encodeURIComponent` does it.",
        used_by=_LIKE,
        changed=_URL_CHANGED,
    )
    likes = SortedSet(
        "likes:index",
        str,
        score=_CREATED,
        lifetime=_EMPTIED,
        doc="The ids of all like buttons, the oldest first.",
        used_by=_LIKE,
        changed=_INDEX_CHANGED,
    )
    like = Value(
        "like:{id:token}",
        LikeRecord,
        lifetime=never("deleted by its owner"),
        listed_in=likes.by(score="created"),
        owns=[like_url, "like_total", "like_last", "like_user", "like_users", "like_owner"],
        tag="id",
        doc="A like button: its address, when it was made, what it shows, and where its events are told.",
        used_by=_LIKE,
        changed=_RECORD_CHANGED.format("`totalLikes`, `lastLike`"),
    )
    like_total = Counter(
        "like:{id:token}:total",
        lifetime=never("deleted with its like button"),
        tag="id",
        doc="All likes.",
        used_by=_LIKE,
    )
    like_last = Value(
        "like:{id:token}:last",
        IsoTime,
        lifetime=never("deleted with its like button"),
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
        doc="Whether a visitor likes the page today.",
        used_by=_LIKE,
    )
    like_users = Set(
        "like:{id:token}:users",
        str,
        lifetime=_TODAY,
        tag="id",
        doc="Who used the button today.",
        used_by=_LIKE,
    )
    like_owner = Value(
        "like:{id:token}:owner",
        str,
        lifetime=never("deleted with its like button"),
        tag="id",
        doc="The hash of the token that lets its owner change the like button.",
        used_by=_LIKE,
    )

    # Ranking

    ranking_url = Value(
        "url:ranking:{url:uri<=400}",
        str,
        lifetime=never("deleted with its ranking"),
        leads_to=link("ranking", id=VALUE),
        doc="The ranking of an address. The address is escaped as `encodeURIComponent` does it.",
        used_by=_RANKING,
        changed=_URL_CHANGED,
    )
    rankings = SortedSet(
        "rankings:index",
        str,
        score=_CREATED,
        lifetime=_EMPTIED,
        doc="The ids of all rankings, the oldest first.",
        used_by=_RANKING,
        changed=_INDEX_CHANGED,
    )
    ranking = Value(
        "ranking:{id:token}",
        RankingRecord,
        lifetime=never("deleted by its owner"),
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
        doc="A ranking: its address, when it was made, how many entries it holds, and which score is the best.",
        used_by=_RANKING,
        changed=_RECORD_CHANGED.format("`totalEntries`, `lastSubmit`") + " `sortOrder` is new.",
    )
    ranking_scores = SortedSet(
        "ranking:{id:token}:scores",
        packed(RankingEntry, "{name}:{unique_id}"),
        score="the score",
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="The entries by score.",
        used_by=_RANKING,
        changed="A colon in a name is written `%3A`, so that the first plain one divides `name` and `unique_id`. One "
        "entry a name: `unique_id` is made of it. Of equal scores the first to come is before the others; `turns` "
        "say who that is.",
    )
    ranking_turns = SortedSet(
        "ranking:{id:token}:turns",
        packed(RankingEntry, "{name}:{unique_id}"),
        score="the place in the sequence in which scores came",
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="The entries in the order in which they came: of equal scores the first is before the others.",
        used_by=_RANKING,
    )
    ranking_details = Hash(
        "ranking:{id:token}:details",
        dict[str, RankingDetail],
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="How the score of an entry is shown, and when it came, by `unique_id`.",
        used_by=_RANKING,
    )
    ranking_sequence = Counter(
        "ranking:{id:token}:sequence",
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="How often the scores have changed: the turns of the entries, and the guard of each change.",
        used_by=_RANKING,
    )
    ranking_last = Value(
        "ranking:{id:token}:last",
        IsoTime,
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="When a score last came in.",
        used_by=_RANKING,
    )
    ranking_owner = Value(
        "ranking:{id:token}:owner",
        str,
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="The hash of the token that lets its owner change the ranking.",
        used_by=_RANKING,
    )
    ranking_meta = Value(
        "ranking:{id:token}:meta",
        RankingMeta,
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="What is shown above the ranking.",
        used_by=_RANKING,
    )
    ranking_submit = Value(
        "ranking:{id:token}:submit:{user_hash:hex}",
        IsoTime,
        lifetime=after("60s"),
        listed_in="ranking_submitters",
        tag="id",
        doc="That a visitor has just sent a score, and when: the next one may come 60 seconds later.",
        used_by=_RANKING,
    )

    ranking_submitters = SortedSet(
        "ranking:{id:token}:submitters",
        str,
        score="when the mark ends, in ms since 1970",
        lifetime=sliding("60s", touch_every="1s"),
        tag="id",
        doc="Who has just sent a score.",
        used_by=_RANKING,
    )

    # BBS

    bbs_url = Value(
        "url:bbs:{url:uri<=400}",
        str,
        lifetime=never("deleted with its board"),
        leads_to=link("bbs", id=VALUE),
        doc="The board of an address. The address is escaped as `encodeURIComponent` does it.",
        used_by=_BBS,
        changed=_URL_CHANGED,
    )
    bbss = SortedSet(
        "bbss:index",
        str,
        score=_CREATED,
        lifetime=_EMPTIED,
        doc="The ids of all boards, the oldest first.",
        used_by=_BBS,
        changed=f"{_INDEX_CHANGED} The name follows its rule `{{service}}s:index` to the letter.",
    )
    bbs = Value(
        "bbs:{id:token}",
        BbsRecord,
        lifetime=never("deleted by its owner"),
        listed_in=bbss.by(score="created"),
        owns=[bbs_url, "bbs_messages", "bbs_version", "bbs_owner", "bbs_post", "bbs_posters"],
        tag="id",
        doc="A board: its address, when it was made, and its settings.",
        used_by=_BBS,
        changed=_RECORD_CHANGED.format("`totalMessages`, `lastMessage`"),
    )
    bbs_messages = List(
        "bbs:{id:token}:messages",
        BbsMessage,
        lifetime=never("deleted with its board"),
        tag="id",
        doc="The messages, the newest first.",
        used_by=_BBS,
        changed="`editDigest` is new, and left out unless it is set: `userHash` is shown to everybody, so it cannot "
        "be what lets an author change a message. `edited` is new, too: `timestamp` stays, as the place does.",
    )
    bbs_version = Counter(
        "bbs:{id:token}:version",
        lifetime=never("deleted with its board"),
        tag="id",
        doc="How often the messages have changed: a change of one of them is made at the place where it was read.",
        used_by=_BBS,
    )
    bbs_owner = Value(
        "bbs:{id:token}:owner",
        str,
        lifetime=never("deleted with its board"),
        tag="id",
        doc="The hash of the token that lets its owner change the board.",
        used_by=_BBS,
    )
    bbs_post = Value(
        "bbs:{id:token}:post:{user_hash:hex}",
        IsoTime,
        lifetime=after("10s"),
        listed_in="bbs_posters",
        tag="id",
        doc="That a visitor has just posted, and when: the next message may come 10 seconds later.",
        used_by=_BBS,
    )
    bbs_posters = SortedSet(
        "bbs:{id:token}:posters",
        str,
        score="when the mark ends, in ms since 1970",
        lifetime=sliding("10s", touch_every="1s"),
        tag="id",
        doc="Who has just posted.",
        used_by=_BBS,
    )

    # Welcome card, which the document does not have: the system that it describes got it later

    yokoso_url = Value(
        "url:yokoso:{url:uri<=400}",
        str,
        lifetime=never("deleted with its welcome card"),
        leads_to=link("yokoso", id=VALUE),
        doc="The welcome card of an address. The address is escaped as `encodeURIComponent` does it.",
        used_by=_YOKOSO,
    )
    yokosos = SortedSet(
        "yokosos:index",
        str,
        score=_CREATED,
        lifetime=_EMPTIED,
        doc="The ids of all welcome cards, the oldest first.",
        used_by=_YOKOSO,
    )
    yokoso = Value(
        "yokoso:{id:token}",
        WelcomeRecord,
        lifetime=never("deleted by its owner"),
        listed_in=yokosos.by(score="created"),
        owns=[yokoso_url, "yokoso_owner"],
        tag="id",
        doc="A welcome card: its address, what it says, and who says it.",
        used_by=_YOKOSO,
    )
    yokoso_owner = Value(
        "yokoso:{id:token}:owner",
        str,
        lifetime=never("deleted with its welcome card"),
        tag="id",
        doc="The hash of the token that lets its owner change the welcome card.",
        used_by=_YOKOSO,
    )

    # All of them

    ending = Set(
        "widgets:ending",
        packed(WidgetName, "{service}:{id}"),
        lifetime=never("emptied as services are deleted"),
        doc="What is being deleted: the clean-up finishes what was interrupted.",
        used_by=(*_VISIT, *_LIKE, *_RANKING, *_BBS, *_YOKOSO),
    )
    requests = Counter(
        "widgets:requests:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("2m"),
        doc="How often a client asked in a minute, by what it asked for.",
        used_by=(*_VISIT, *_LIKE, *_RANKING, *_BBS, *_YOKOSO),
    )
