"""The key document of data sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from keystead.parts.datasessions.data_record import DataRecord
from keystead.parts.limit import Limited, Rate
from keystead.parts.sessions import Ended, Policy
from keystead.schema import Hash, Keyspace, Set, Value, after, link, sliding, until

ANONYMOUS: Final = Policy(idle="1d", absolute="30d", cap=1000)
"""The usual policy of anonymous sessions. Its cap is per client address, which many people can share."""

CREATIONS: Final = "session_creations"
_ENDS_ARE_KEPT = "1d"


class DataSessionKeys(Keyspace):
    """The families of every keyspace that `data_session_keys` makes."""

    session: Value[DataRecord]
    session_data: Hash[dict[str, str], str, str]
    user_sessions: Set[str]
    session_end: Value[Ended]


def data_session_keys(
    policy: Policy | None = None,
    anonymous: Policy | None = None,
    *,
    prefix: str = "app",
    creations: str | Rate | None = None,
) -> type[DataSessionKeys]:
    """The keyspace of data sessions with these policies.

    creations   how many anonymous sessions a client address may begin, as in `"100/minute"`. None: no limit

    Assign it to a name in your module, so that `keystead check`, `docs` and `doctor` work on it. Applications sharing
    a store need different prefixes.
    """
    policies = (policy or Policy(), anonymous or ANONYMOUS)
    longest = _ms(max(one.idle_ms for one in policies))
    while_used = sliding(longest, touch_every=_ms(min(one.touch_every_ms for one in policies)))
    families: dict[str, Any] = {
        "session": Value(
            f"{prefix}:sess:{{sid:token}}",
            DataRecord,
            lifetime=while_used,
            listed_in=link("user_sessions", admits=True),
            owns="session_data",
            member_of="user:{uid}",
            tag="sid",
            doc="Whose session it is, the digest of its token, and its times. It is valid only while the set of its "
            "owner contains it.",
        ),
        "session_data": Hash(
            f"{prefix}:data:{{sid:token}}",
            dict[str, str],
            lifetime=until("ends_at", at_most=longest),
            tag="sid",
            doc="The data of a session: each key is a field, and its value is JSON.",
        ),
        "user_sessions": Set(
            f"{prefix}:user:{{uid}}:sessions",
            str,
            lifetime=while_used,
            member_of="user:{uid}",
            doc="The live sessions of a user, by `sid`; for `@` and a digest, the anonymous ones of a client address. "
            "Deleting it ends all of them.",
        ),
        "session_end": Value(
            f"{prefix}:end:{{sid:token}}",
            Ended,
            lifetime=after(_ENDS_ARE_KEPT),
            tag="sid",
            doc="Why a session was ended elsewhere, for the browser that still has its token.",
        ),
    }
    if creations is not None:
        families[CREATIONS] = Limited(
            f"{prefix}:limit:sessions:{{client}}", creations, doc="Anonymous sessions that a client address began."
        )
    return type("DataKeys", (DataSessionKeys,), {"__module__": __name__, "__doc__": "Sessions with data.", **families})


def _ms(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)
