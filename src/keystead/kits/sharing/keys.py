"""The key document of the sharing kit."""

from keystead.kits.sharing.models import EdgeMeta
from keystead.schema import Keyspace, SortedSet, Value, never, until

_EDGE, _CLEANUP = "/api/receive/edge-resolve", "/api/cron/receive-cleanup"


class SharingKeys(Keyspace):
    """Share links: a short token that leads a receiver to a file until it expires, and what the clean-up deletes."""

    source = "Sharing: short tokens and the clean-up of expired files"
    changes = (
        "What opens a link when it is known (short token, key of edge-resolve) is stored as its SHA-256 digest.",
        "That is so in keys, members and fields alike, so the two ends of a relation still meet.",
    )

    token = Value(
        "receive:token:{short:token}",
        str,
        lifetime=until("expires_at", at_most="14d"),
        doc="Short token to the sealed link, `v1.{iv}.{ciphertext and tag}`, until the link expires.",
        used_by=("/api/receive/token", "/api/receive/resolve"),
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
    meta = Value(
        "receive:edge:meta:{id:token}",
        EdgeMeta,
        lifetime=never("removed by the clean-up job"),
        listed_in=index.by(score="expires_at"),
        owns=token.by(short="short_token"),
        doc="What the clean-up job must delete when an upload has expired.",
        used_by=(_EDGE, _CLEANUP),
        changed="One without `blob_name` and without `pathname` is refused, since nobody could delete its file. "
        "`short_token` is the digest that is in the key of the token.",
    )
