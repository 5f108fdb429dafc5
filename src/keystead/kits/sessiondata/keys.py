"""The key document of the session data kit."""

from keystead.kits.sessiondata.models import SessionField, UserField
from keystead.schema import Hash, Keyspace, never, packed, sliding

_SESSIONS = ("/api/Sessions/Get", "/api/Sessions/Set", "/api/Sessions/Delete")
_EACH_REQUEST = "every request"


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
        lifetime=sliding("24h", touch_every="1m"),
        owns="read_once",
        tag="guid",
        doc="The data of a session, by key and page, until it has not been used for 24 hours.",
        used_by=(*_SESSIONS, _EACH_REQUEST),
        changed="In the document only a write starts the 24 hours anew, so that a session could end in the midst of "
        "being read; here a use does, at most once a minute. Removing a field does not. Deleting a session deletes "
        "what is to be read once, too.",
    )
    read_once = Hash(
        "{guid:alnum}_readOnce",
        dict[SessionField, str],
        fields=packed(SessionField, "{key}[_{page}]"),
        lifetime=sliding("24h", touch_every="1m"),
        tag="guid",
        doc="Data of a session that is gone once it was read, such as a message for the next page.",
        used_by=(_EACH_REQUEST,),
        changed="Reading and deleting are one atomic step, of a field or of all: of two requests one gets a message. "
        "In the document both can.",
    )
    user_area = Hash(
        "@{userId:int}",
        dict[UserField, str],
        fields=packed(UserField, "User_{key}[_{page}]"),
        lifetime=never("removed by the user, or with the user"),
        role="durable",
        member_of="user:{userId}",
        doc="The data of a user across sessions, such as settings and views.",
        used_by=(*_SESSIONS, _EACH_REQUEST),
        changed="In the document these are rows of a table that the Redis side cannot read. Here they are a hash with "
        "the same names, in the store for what must last.",
    )
