"""The key document of the widgets kit: four services, told one after the other in the same way."""

from keystead.kits.widgets.models import (
    BbsMessage,
    BbsRecord,
    CounterRecord,
    LikeRecord,
    RankingEntry,
    RankingMeta,
    RankingRecord,
)
from keystead.schema import (
    VALUE,
    Counter,
    IsoTime,
    Keyspace,
    List,
    SortedSet,
    Value,
    after,
    end_of_day,
    link,
    never,
    packed,
)

_VISIT, _LIKE, _RANKING, _BBS = ("/api/visit",), ("/api/like",), ("/api/ranking",), ("/api/bbs",)
_CREATED = "created, in ms since 1970"
_EMPTIED = never("emptied as services are deleted")
_URL_CHANGED = "An address whose escaped form is longer than 400 bytes is hashed, so that every store can keep the key."
_INDEX_CHANGED = (
    "Written with each record and taken back with it; the document says what is in it, but not what the score is, and "
    "takes an entry out for one of the four services only."
)


class WidgetKeys(Keyspace):
    """Counters, like buttons, rankings and boards, each for one address, and all that goes when one is deleted."""

    source = "Widgets: counter, like, ranking and BBS"
    changes = (
        "Deleting a record deletes all that the document lists for its service, marks and index entry included.",
        "The pattern `counter:{id}:*` that the document deletes by leaves out `counter:{id}` itself.",
        "A day ends at midnight UTC; the document says 23:59:59 and no zone. A mark always has time left.",
        "`owner` stands in the record and under its own key, as in the document; the latter is what counts.",
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
        "counter:{id:slug}",
        CounterRecord,
        lifetime=never("deleted by its owner"),
        listed_in=counters.by(score="created"),
        owns=[counter_url, "counter_total", "counter_daily", "counter_owner", "counter_visit"],
        tag="id",
        doc="A counter: its address, when it was made, and when it was last visited.",
        used_by=_VISIT,
        changed="`totalCount` is the total when the record was last written; `counter_total` is the one that counts.",
    )
    counter_total = Counter(
        "counter:{id:slug}:total",
        lifetime=never("deleted with its counter"),
        tag="id",
        doc="All visits.",
        used_by=_VISIT,
    )
    counter_daily = Counter(
        "counter:{id:slug}:daily:{date:date}",
        lifetime=never("deleted with its counter"),
        tag="id",
        doc="The visits of a day, in UTC.",
        used_by=_VISIT,
    )
    counter_owner = Value(
        "counter:{id:slug}:owner",
        str,
        lifetime=never("deleted with its counter"),
        tag="id",
        doc="The hash of the token that lets its owner change the counter.",
        used_by=_VISIT,
    )
    counter_visit = Value(
        "counter:{id:slug}:visit:{user_hash:hex}",
        IsoTime,
        lifetime=end_of_day("UTC"),
        tag="id",
        doc="That a visitor was counted today, and when.",
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
        "like:{id:slug}",
        LikeRecord,
        lifetime=never("deleted by its owner"),
        listed_in=likes.by(score="created"),
        owns=[like_url, "like_total", "like_user", "like_owner"],
        tag="id",
        doc="A like button: its address, when it was made, and when it was last used.",
        used_by=_LIKE,
        changed="`totalLikes` is the total when the record was last written; `like_total` is the one that counts.",
    )
    like_total = Counter(
        "like:{id:slug}:total",
        lifetime=never("deleted with its like button"),
        tag="id",
        doc="All likes.",
        used_by=_LIKE,
    )
    like_user = Value(
        "like:{id:slug}:users:{user_hash:hex}",
        bool,
        lifetime=end_of_day("UTC"),
        tag="id",
        doc="Whether a visitor likes the page today.",
        used_by=_LIKE,
    )
    like_owner = Value(
        "like:{id:slug}:owner",
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
        "ranking:{id:slug}",
        RankingRecord,
        lifetime=never("deleted by its owner"),
        listed_in=rankings.by(score="created"),
        owns=[ranking_url, "ranking_scores", "ranking_owner", "ranking_meta", "ranking_submit"],
        tag="id",
        doc="A ranking: its address, when it was made, how many entries it holds, and when one last came.",
        used_by=_RANKING,
        changed="`totalEntries` is how many there were when the record was last written; `ranking_scores` has them.",
    )
    ranking_scores = SortedSet(
        "ranking:{id:slug}:scores",
        packed(RankingEntry, "{name}:{unique_id}"),
        score="the score",
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="The entries by score.",
        used_by=_RANKING,
        changed="A colon in a name is written `%3A`, so that the first plain one divides `name` and `unique_id`.",
    )
    ranking_owner = Value(
        "ranking:{id:slug}:owner",
        str,
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="The hash of the token that lets its owner change the ranking.",
        used_by=_RANKING,
    )
    ranking_meta = Value(
        "ranking:{id:slug}:meta",
        RankingMeta,
        lifetime=never("deleted with its ranking"),
        tag="id",
        doc="What is shown above the ranking.",
        used_by=_RANKING,
    )
    ranking_submit = Value(
        "ranking:{id:slug}:submit:{user_hash:hex}",
        IsoTime,
        lifetime=after("60s"),
        tag="id",
        doc="That a visitor has just sent a score, and when: the next one may come 60 seconds later.",
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
        "bbs:{id:slug}",
        BbsRecord,
        lifetime=never("deleted by its owner"),
        listed_in=bbss.by(score="created"),
        owns=[bbs_url, "bbs_messages", "bbs_owner", "bbs_post"],
        tag="id",
        doc="A board: its address, when it was made, its settings, and when a message last came.",
        used_by=_BBS,
        changed="`totalMessages` is how many there were when the record was last written; `bbs_messages` has them.",
    )
    bbs_messages = List(
        "bbs:{id:slug}:messages",
        BbsMessage,
        lifetime=never("deleted with its board"),
        tag="id",
        doc="The messages, the newest first.",
        used_by=_BBS,
        changed="`editDigest` is new, and left out unless it is set: `userHash` is shown to everybody, so it cannot "
        "be what lets an author change a message.",
    )
    bbs_owner = Value(
        "bbs:{id:slug}:owner",
        str,
        lifetime=never("deleted with its board"),
        tag="id",
        doc="The hash of the token that lets its owner change the board.",
        used_by=_BBS,
    )
    bbs_post = Value(
        "bbs:{id:slug}:post:{user_hash:hex}",
        IsoTime,
        lifetime=after("10s"),
        tag="id",
        doc="That a visitor has just posted, and when: the next message may come 10 seconds later.",
        used_by=_BBS,
    )
