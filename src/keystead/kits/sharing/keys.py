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
REMEMBERED = "30d"  # how long an expired link is remembered


class SharingKeys(Keyspace):
    """Share links that expire, and the uploads that the clean-up job deletes."""

    source = "Sharing: short tokens and the clean-up of expired files"
    part_keyspaces = (ScheduleKeys,)
    changes = (
        "Secrets that open a link (short token, key of edge-resolve) are stored as their SHA-256 digests.",
        "Keys, members and fields all use the digest, so relations between them still match.",
    )

    token = Value(
        "receive:token:{short:token}",
        str,
        lifetime=until("expires_at", at_most=LONGEST),
        doc="The sealed link of a short token, `v1.{iv}.{ciphertext and tag}`, until the link expires.",
        used_by=(_TOKEN, _RESOLVE),
        changed="The document contradicts itself on whether the sealed link is stored; its table is right, the sealed "
        "link is the value. The key contains the digest of the short token. A deadline in the past is refused; the "
        "original stored such a link for one second.",
    )
    index = SortedSet(
        "receive:edge:index",
        str,
        score="expires_at in ms since 1970",
        lifetime=never("emptied by the clean-up job"),
        doc="The ids of uploads, ordered by expiry.",
        used_by=(_CLEANUP,),
        changed="Written and deleted in one atomic step with the meta; in the document these are separate steps, and "
        "the entry stays.",
    )
    file = Value(
        "receive:edge:file:{path:uri}",
        str,
        lifetime=never("deleted with the meta of its upload"),
        doc="The upload that owns a file, by path.",
        used_by=(_EDGE, _UPLOAD),
        changed="New. Prevents two uploads of one path: the first to expire would delete the file of the other.",
    )
    meta = Value(
        "receive:edge:meta:{id:token}",
        EdgeMeta,
        lifetime=never("removed by the clean-up job"),
        listed_in=index.by(score="expires_at"),
        # A link to an external file has no upload and no meta.
        owns=(
            token.by(short="short_token"),
            file.by(path="pathname"),
            schema_link("link", optional=True),
            "retry",
            "claim",
        ),
        tag="id",
        doc="What the clean-up job deletes when an upload has expired.",
        used_by=(_EDGE, _UPLOAD, _CLEANUP),
        changed="Refused if it has neither `blob_name` nor `pathname`, since its file could not be deleted. "
        "`short_token` is the digest in the key of the token.",
    )
    link = Value(
        "receive:link:{id:token}",
        Link,
        lifetime=until("expires_at", at_most=LONGEST),
        owns=("downloads", "wrong_passwords"),
        member_of="login:{user_id}",
        tag="id",
        doc="An active link: a sealed link opens only while this record exists.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _PAGE),
        changed="New. In the document a sealed link opens until it expires, whatever is deleted; here revoking a link "
        "ends both its forms. It also holds the options of the link: password, download limit.",
    )
    links_of_user = SortedSet(
        "receive:user:{user_id:uri}:links",
        str,
        score="expires_at in ms since 1970",
        # Longer than the lifetime of a link; extending a link touches it.
        lifetime=sliding("15d", touch_every="1h"),
        member_of="login:{user_id}",
        doc="The ids of the links of a signed-in user, ordered by expiry.",
        used_by=(_TOKEN, _UPLOAD, _EDGE, _LINKS, _EXTEND, _DELETE),
        changed='New, for the page "My links". Expired and ended links are removed when it is read.',
    )
    gone = Value(
        "receive:edge:gone:{path:uri}",
        str,
        lifetime=after("1h"),
        doc="A path whose file was just deleted. It cannot be registered again during this time.",
        used_by=(_EDGE, _CLEANUP),
        changed="New. A delayed clean-up run must not delete a newer file at the same path.",
    )
    retry = Value(
        "receive:edge:retry:{id:token}",
        Retry,
        lifetime=sliding("30d", touch_every="1h"),
        tag="id",
        doc="A file that could not be deleted, and the time of the next attempt.",
        used_by=(_CLEANUP,),
        changed="New: the document tries three times in a row, and then again the next day.",
    )
    claim = Value(
        "receive:edge:claim:{id:token}",
        Claim,
        lifetime=until("until", at_most="2m"),
        tag="id",
        doc="The claim of a clean-up run on an upload; other runs skip it.",
        used_by=(_CLEANUP, _DELETE),
        changed="New. Concurrent runs count each file once.",
    )
    past = Value(
        "receive:past:{short:token}",
        PastLink,
        lifetime=until("forget_at", at_most="44d"),
        doc="The expiry of a link by its short token, remembered for 30 more days.",
        used_by=(_TOKEN, _UPLOAD, _EDGE, _RESOLVE, _DELETE, _PAGE),
        changed="New. In the document an expired short token cannot be distinguished from an unknown one.",
    )
    files = Value(
        "receive:files",
        FilesPlace,
        lifetime=never("there is one per store"),
        doc="The location of this store's files.",
        used_by=(_UPLOAD, _CLEANUP),
        changed="New. A process started in another folder would treat every file as deleted.",
    )
    stored = Counter(
        "receive:stored:{owner:uri}",
        # Longer than the lifetime of a file; uploads and extensions touch it.
        lifetime=sliding("30d", touch_every="1d"),
        doc="Stored bytes of uploads: in total, per user, or per client by the digest of its address.",
        used_by=(_UPLOAD, _CLEANUP, _DELETE),
        changed="New, for the storage quota. Changes in the same step as the records that it counts.",
    )
    downloads = Counter(
        "receive:downloads:{id:token}",
        lifetime=until("expires_at", at_most=LONGEST),
        tag="id",
        doc="How often the file of a link was downloaded, or how often a link to an external file was resolved.",
        used_by=(_RESOLVE, _DOWNLOAD),
        changed="New.",
    )
    wrong_passwords = Counter(
        "receive:wrong:{id:token}",
        lifetime=after("1h"),
        tag="id",
        doc="Wrong passwords for a link within the hour.",
        used_by=(_RESOLVE,),
        changed="New.",
    )
    guesses = Counter(
        "receive:guess:{id:token}:{client:hex}",
        lifetime=after("1h"),
        tag="id",
        doc="Wrong passwords of one client within the hour. `client` is the start of the digest of its address.",
        used_by=(_RESOLVE,),
        changed="New. A guessing client does not lock out people who know the password.",
    )
    ticket = Value(
        "receive:ticket:{id:token}:{ticket:token}",
        Ticket,
        lifetime=sliding("10m", touch_every="1m"),
        tag="id",
        doc="A download ticket: one download, which can be resumed.",
        used_by=(_RESOLVE, _DOWNLOAD),
        changed="New, for uploaded files. The key contains the id of the link and the digest of the ticket.",
    )
    requests = Counter(
        "receive:rl:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="Rate limit: requests of a client per minute. `window` is the number of the minute, `client` the start of "
        "the digest of its address.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _PAGE),
        changed="Not in the document, but in the running system, as `rl:…`. The first request sets the lifetime, in "
        "one step.",
    )
    audit = Log(
        "audit:sharing",
        AuditEntry,
        keep=10_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="Audit log: links issued, extended, ended and deleted, by whom and from where.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _CLEANUP),
        changed="New: the document lists the missing audit log as its fourth problem.",
    )
    uses = Log(
        "audit:sharing:used",
        AuditEntry,
        keep=10_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="Audit log of uses: downloads, and resolved links to external files, when and from where.",
        used_by=(_RESOLVE, _EDGE, _DOWNLOAD),
        changed="New. A separate log, so that frequent use of a link cannot displace the entries on who issued it.",
    )
    refusals = Log(
        "audit:sharing:refused",
        AuditEntry,
        keep=10_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="Audit log of refusals: to whom and why.",
        used_by=(_TOKEN, _RESOLVE, _DELETE, _UPLOAD, _EDGE, _DOWNLOAD),
        changed="New. A separate log, so that refused requests cannot displace other entries.",
    )
