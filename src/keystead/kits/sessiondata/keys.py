"""The key document of the session data kit."""

from keystead.kits.sessiondata.models import SessionField, UserField
from keystead.parts.apikeys import ApiKey
from keystead.schema import Counter, Hash, Keyspace, SortedSet, Value, after, never, packed, until

_SESSIONS = ("/api/Sessions/Get", "/api/Sessions/Set", "/api/Sessions/Delete")
_EACH_REQUEST = "every request"
LONGEST = "400d"


class SessionDataKeys(Keyspace):
    """Session data: values of a session, until it ends or they are read once, and durable values of a user."""

    source = "Session data: fields of sessions and users, by key and page"
    changes = (
        "An underscore in the key of a field is stored as `%5F`, so the first plain one separates key and page.",
        "The document splits `User_Theme` and `TempFile_{guid}` at the wrong place. Other names are unchanged.",
        "The guid in a key is the hex digest of the guid in the cookie.",
        "All families are read, written and removed alike. In the document, a removal leaves a field in Redis.",
    )

    session = Hash(
        "{guid:alnum}",
        dict[SessionField, str],
        fields=packed(SessionField, "{key}[_{page}]"),
        lifetime=until("ends_at", at_most=LONGEST),
        owns="read_once",
        tag="guid",
        doc="The data of a session, by key and page. It expires `retention` (1440 minutes) after its last use. The "
        "field `StartTime` exists for as long as the session.",
        used_by=(*_SESSIONS, _EACH_REQUEST),
        changed="In the document only a write renews the 1440 minutes, so a session can expire while it is being "
        "read. Here every use renews them, at most once a minute, unless `renewed_by` is `write`. Removing a field "
        "never renews them. A session is created once, with `StartTime`. Writes require an existing session, so a "
        "session that has ended is never revived. Deleting a session also deletes its read-once data.",
    )
    read_once = Hash(
        "{guid:alnum}_readOnce",
        dict[SessionField, str],
        fields=packed(SessionField, "{key}[_{page}]"),
        lifetime=until("ends_at", at_most=LONGEST),
        tag="guid",
        doc="Read-once data of a session (flash messages), such as a message for the next page. It ends with its "
        "session.",
        used_by=(_EACH_REQUEST,),
        changed="Reading and deleting a field are one atomic step: one of two concurrent requests gets the message, "
        "and other fields stay. In the document both can get it, and all other fields are lost.",
    )
    user_area = Hash(
        "@{userId:int}",
        dict[UserField, str],
        fields=packed(UserField, "User_{key}[_{page}]"),
        lifetime=never("removed by the user, or with the user"),
        role="durable",
        member_of="sessiondata:{userId}",
        doc="The data of a user across sessions, such as settings and views.",
        used_by=(*_SESSIONS, _EACH_REQUEST),
        changed="In the document these are rows of a table that the Redis side cannot read. Here they are a hash with "
        "the same names, in the durable store.",
    )
    api_keys = SortedSet(
        "sessiondata:apikeys",
        str,
        lifetime=never("emptied as API keys are revoked"),
        role="durable",
        doc="The ids of all API keys, the oldest first.",
        used_by=("keystead apikeys",),
        changed="The document says only that a request carries an ApiKey.",
    )
    api_key = Value(
        "sessiondata:apikey:{id:alnum}",
        ApiKey,
        lifetime=never("removed when it is revoked, or with the user"),
        role="durable",
        listed_in=api_keys.by(score="made_ms"),
        member_of="sessiondata:{user_id}",
        doc="The owner of an API key, stored under the public part of the key. The secret part is stored as a digest.",
        used_by=(*_SESSIONS, "keystead apikeys"),
        changed="The document says only that a request carries an ApiKey.",
    )
    asked = Counter(
        "sessiondata:asked:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="Rate limits: requests of a client per minute. `guesses` counts wrong API keys from an address, `requests` "
        "counts calls with one API key. `window` is the number of the minute, `client` a digest prefix.",
        used_by=_SESSIONS,
        changed="Not in the document. The running system can limit API requests, but does not count wrong keys.",
    )
