"""The key document of the session data kit."""

from keystead.kits.sessiondata.models import SessionField, UserField
from keystead.parts.apikeys import ApiKey
from keystead.schema import Counter, Hash, Keyspace, SortedSet, Value, after, never, packed, until

_SESSIONS = ("/api/Sessions/Get", "/api/Sessions/Set", "/api/Sessions/Delete")
_EACH_REQUEST = "every request"
LONGEST = "400d"


class SessionDataKeys(Keyspace):
    """What an application remembers: of a session until it ends or is read once, and of a user for good."""

    source = "Session data: fields of sessions and users, by key and page"
    changes = (
        "An underscore in the key of a field is written `%5F`, so the first plain one divides key and page.",
        "The document cuts `User_Theme` and `TempFile_{guid}` at the wrong place. Other names stay as they are.",
        "The guid in a key is the digest, in hex, of the one in the cookie.",
        "All families are read, written and removed in one way. In the document, removing leaves a field in Redis.",
    )

    session = Hash(
        "{guid:alnum}",
        dict[SessionField, str],
        fields=packed(SessionField, "{key}[_{page}]"),
        lifetime=until("ends_at", at_most=LONGEST),
        owns="read_once",
        tag="guid",
        doc="The data of a session, by key and page, for `retention` after its last use: 1440 minutes. The field "
        "`StartTime` is there from its beginning to its end.",
        used_by=(*_SESSIONS, _EACH_REQUEST),
        changed="In the document only a write starts the 1440 minutes anew, so that a session can end in the midst of "
        "being read; here a use does, at most once a minute, unless `renewed_by` says `write`. Removing a field never "
        "does. A session is begun once, with `StartTime`; only one that is there is written to, so that one that has "
        "ended stays dead. Deleting a session deletes what is to be read once, too.",
    )
    read_once = Hash(
        "{guid:alnum}_readOnce",
        dict[SessionField, str],
        fields=packed(SessionField, "{key}[_{page}]"),
        lifetime=until("ends_at", at_most=LONGEST),
        tag="guid",
        doc="Data of a session that is gone once it was read, such as a message for the next page. It ends with its "
        "session.",
        used_by=(_EACH_REQUEST,),
        changed="Reading and deleting are one atomic step, of a field: of two requests one gets a message, and the "
        "others stay. In the document both can, and all others are lost.",
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
        "the same names, in the store for what must last.",
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
        doc="Whose an API key is, under the part of it that is no secret. Of the rest there is a digest.",
        used_by=(*_SESSIONS, "keystead apikeys"),
        changed="The document says only that a request carries an ApiKey.",
    )
    asked = Counter(
        "sessiondata:asked:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="Requests of a client in a minute, by what is counted: `guesses` of an address with a wrong API key, and "
        "`requests` with one API key. `window` is the number of the minute, `client` begins a digest of the client.",
        used_by=_SESSIONS,
        changed="Not in the document. The running system can limit how often its API is asked; wrong keys are not "
        "counted there.",
    )
