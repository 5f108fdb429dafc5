"""The key document of the sharing kit."""

from keystead.kits.sharing.models import Claim, EdgeMeta, FilesPlace, Link, PastLink, Retry, Ticket
from keystead.parts.audit import AuditEntry
from keystead.parts.schedule.schedule_keys import ScheduleKeys
from keystead.schema import Counter, Keyspace, Log, SortedSet, Value, after, never, sliding, until
from keystead.schema import link as schema_link

_TOKEN, _RESOLVE, _DELETE = "/api/receive/token", "/api/receive/resolve", "/api/receive/delete"
_UPLOAD, _DOWNLOAD, _PAGE = "/api/receive/upload", "/api/receive/download", "/receive"
_EDGE, _CLEANUP = "/api/receive/edge-resolve", "/api/cron/receive-cleanup"
_LINKS, _EXTEND = "/api/receive/links", "/api/receive/extend"

LONGEST = "14d"
REMEMBERED = "30d"  # for how long after its end a link is remembered


class SharingKeys(Keyspace):
    """Share links: a short token that leads a receiver to a file until it expires, and what the clean-up deletes."""

    source = "Sharing: short tokens and the clean-up of expired files"
    part_keyspaces = (ScheduleKeys,)
    changes = (
        "What opens a link when it is known (short token, key of edge-resolve) is stored as its SHA-256 digest.",
        "That is so in keys, members and fields alike, so the two ends of a relation still meet.",
    )

    token = Value(
        "receive:token:{short:token}",
        str,
        lifetime=until("expires_at", at_most=LONGEST),
        doc="Short token to the sealed link, `v1.{iv}.{ciphertext and tag}`, until the link expires.",
        used_by=(_TOKEN, _RESOLVE),
        changed="In one place the document says that the sealed link is not stored; its table is right, the sealed "
        "link is the value. The short token in the key is its digest. A deadline that is past is refused: the "
        "original wrote such a link with one second to live.",
    )
    index = SortedSet(
        "receive:edge:index",
        str,
        score="expires_at in ms since 1970",
        lifetime=never("emptied by the clean-up job"),
        doc="The ids of uploads in the order in which they expire.",
        used_by=(_CLEANUP,),
        changed="Written in the same atomic step as the meta that it names, and an entry goes with its meta; in the "
        "document these are separate steps, and the entry stays.",
    )
    file = Value(
        "receive:edge:file:{path:uri}",
        str,
        lifetime=never("deleted with the meta of its upload"),
        doc="Which upload a file belongs to, by its path.",
        used_by=(_EDGE, _UPLOAD),
        changed="New. Two uploads of one path cannot be: the file would go with the first that expires, and leave the "
        "other one's link without it.",
    )
    meta = Value(
        "receive:edge:meta:{id:token}",
        EdgeMeta,
        lifetime=never("removed by the clean-up job"),
        listed_in=index.by(score="expires_at"),
        # A link to a file elsewhere has no upload, and so no meta.
        owns=(
            token.by(short="short_token"),
            file.by(path="pathname"),
            schema_link("link", optional=True),
            "retry",
            "claim",
        ),
        tag="id",
        doc="What the clean-up job must delete when an upload has expired.",
        used_by=(_EDGE, _UPLOAD, _CLEANUP),
        changed="One without `blob_name` and without `pathname` is refused, since nobody could delete its file. "
        "`short_token` is the digest that is in the key of the token.",
    )
    link = Value(
        "receive:link:{id:token}",
        Link,
        lifetime=until("expires_at", at_most=LONGEST),
        owns=("downloads", "wrong_passwords"),
        member_of="login:{user_id}",
        tag="id",
        doc="A link that can be used: a sealed link counts only while this is there.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _PAGE),
        changed="New. In the document a sealed link opens until it expires, whatever is deleted: here ending a link "
        "ends it in both forms. It also holds what its owner wanted: a password, a number of downloads.",
    )
    links_of_user = SortedSet(
        "receive:user:{user_id:uri}:links",
        str,
        score="expires_at in ms since 1970",
        # Longer than any link lives without being extended, which renews it.
        lifetime=sliding("15d", touch_every="1h"),
        member_of="login:{user_id}",
        doc="The ids of the links of a user who was signed in, in the order in which they expire.",
        used_by=(_TOKEN, _UPLOAD, _EDGE, _LINKS, _EXTEND, _DELETE),
        changed="New, for the list of one's own links. What has expired or was ended is taken out when it is read.",
    )
    gone = Value(
        "receive:edge:gone:{path:uri}",
        str,
        lifetime=after("1h"),
        doc="A path whose file was just deleted. Nothing is registered there for so long.",
        used_by=(_EDGE, _CLEANUP),
        changed="New. A run of the clean-up that was held up must not delete the file that came after its own.",
    )
    retry = Value(
        "receive:edge:retry:{id:token}",
        Retry,
        lifetime=sliding("30d", touch_every="1h"),
        tag="id",
        doc="A file that could not be deleted, and when that is tried again.",
        used_by=(_CLEANUP,),
        changed="New: the document tries three times at once, and then again the next day.",
    )
    claim = Value(
        "receive:edge:claim:{id:token}",
        Claim,
        lifetime=until("until", at_most="2m"),
        tag="id",
        doc="A run of the clean-up that is at work on an upload; others leave it to that one.",
        used_by=(_CLEANUP, _DELETE),
        changed="New. So each file is counted by one run, however many there are at once.",
    )
    past = Value(
        "receive:past:{short:token}",
        PastLink,
        lifetime=until("forget_at", at_most="44d"),
        doc="When a link has expired, by its short token, for 30 days more.",
        used_by=(_TOKEN, _UPLOAD, _EDGE, _RESOLVE, _DELETE, _PAGE),
        changed="New. In the document a short token that has expired is one that never was.",
    )
    files = Value(
        "receive:files",
        FilesPlace,
        lifetime=never("there is one, as long as there is the store"),
        doc="Where the files of this store are.",
        used_by=(_UPLOAD, _CLEANUP),
        changed="New. A process that was started in another folder would take every file for deleted.",
    )
    stored = Counter(
        "receive:stored:{owner:uri}",
        # Longer than any file stays without an upload or an extension, which renew it.
        lifetime=sliding("30d", touch_every="1d"),
        doc="How many bytes of uploads are kept: of all, of a user, or of a client by the digest of its address.",
        used_by=(_UPLOAD, _CLEANUP, _DELETE),
        changed="New, for the storage quota. It changes in one step with the records that it counts.",
    )
    downloads = Counter(
        "receive:downloads:{id:token}",
        lifetime=until("expires_at", at_most=LONGEST),
        tag="id",
        doc="How often the file of a link was downloaded; of a link to elsewhere, how often it was resolved.",
        used_by=(_RESOLVE, _DOWNLOAD),
        changed="New.",
    )
    wrong_passwords = Counter(
        "receive:wrong:{id:token}",
        lifetime=after("1h"),
        tag="id",
        doc="How often the password of a link was wrong within the hour.",
        used_by=(_RESOLVE,),
        changed="New.",
    )
    guesses = Counter(
        "receive:guess:{id:token}:{client:hex}",
        lifetime=after("1h"),
        tag="id",
        doc="The same of one client: `client` begins the digest of its address.",
        used_by=(_RESOLVE,),
        changed="New. So a stranger who guesses does not shut out whoever knows the password.",
    )
    ticket = Value(
        "receive:ticket:{id:token}:{ticket:token}",
        Ticket,
        lifetime=sliding("10m", touch_every="1m"),
        tag="id",
        doc="A download that may begin, and be taken up again where it broke off.",
        used_by=(_RESOLVE, _DOWNLOAD),
        changed="New, for files that are kept here. The key holds the id of the link and the digest of the ticket.",
    )
    requests = Counter(
        "receive:rl:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="Requests of a client in a minute: `window` is the number of the minute, `client` begins the digest of its "
        "address.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _PAGE),
        changed="Not in the document: the running system has it, as `rl:…`. The first request sets the lifetime, in "
        "one step.",
    )
    audit = Log(
        "audit:sharing",
        AuditEntry,
        keep=10_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="What was done with links, by whom and from where: issued, ended, deleted.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _CLEANUP),
        changed="New: the fourth of the problems that the document names.",
    )
    uses = Log(
        "audit:sharing:used",
        AuditEntry,
        keep=10_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="Which files were downloaded and which links to elsewhere resolved, when and from where.",
        used_by=(_RESOLVE, _EDGE, _DOWNLOAD),
        changed="New. In a log of their own, so that nobody can push out who issued a link by using one often.",
    )
    refusals = Log(
        "audit:sharing:refused",
        AuditEntry,
        keep=10_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="What was refused, to whom and why.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _DOWNLOAD),
        changed="New. In a log of their own, so that nobody can push out what was done by asking for what is refused.",
    )
