"""The key document of an application's sessions, made for its model."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, TypeVar

from keystead.errors import BadDeclaration
from keystead.parts.sessions import Ended, Policy, SessionRecord, Sessions, Successor
from keystead.schema import Keyspace, Set, Value, after, link, sliding

R = TypeVar("R", bound=SessionRecord)

_ENDS_ARE_KEPT = "1d"


class SessionKeys(Keyspace, Generic[R]):
    """The families of every keyspace that `session_keys` makes, which declares them for its model."""

    session: Value[R]
    user_sessions: Set[str]
    session_successor: Value[Successor]
    session_end: Value[Ended]


def session_keys(model: type[R], policy: Policy | None = None, *, prefix: str = "app") -> type[SessionKeys[R]]:
    """The keyspace of sessions with this `model`: the sessions, each user's list, successors and end reasons.

    Assign it to a name in your module, so that `keystead check`, `docs` and `doctor` work on it. Applications sharing
    a store need different prefixes. Raises BadDeclaration if `model` is not a SessionRecord.
    """
    if not issubclass(model, SessionRecord):
        raise BadDeclaration(f"the model of a session inherits from keystead.parts.sessions.SessionRecord, not {model}")
    policy = policy or Policy()
    while_used = sliding(_ms(policy.idle_ms), touch_every=_ms(policy.touch_every_ms))
    families: dict[str, Any] = {
        "session": Value(
            f"{prefix}:sess:{{sid:token}}",
            model,
            lifetime=while_used,
            listed_in=link("user_sessions", admits=True),
            member_of="user:{uid}",
            tag="sid",
            doc="A browser session. `sid` is the digest of the token in its cookie. It is valid only while the set of "
            "its user contains it.",
        ),
        "user_sessions": Set(
            f"{prefix}:user:{{uid}}:sessions",
            str,
            lifetime=while_used,
            member_of="user:{uid}",
            doc="The live sessions of a user, by `sid`. Deleting it ends all of them.",
        ),
        "session_successor": Value(
            f"{prefix}:next:{{sid:token}}",
            Successor,
            lifetime=after(_ms(policy.grace_ms)),
            tag="sid",
            doc="The successor of a session whose token was rotated, for concurrent requests.",
        ),
        "session_end": Value(
            f"{prefix}:end:{{sid:token}}",
            Ended,
            lifetime=after(_ENDS_ARE_KEPT),
            tag="sid",
            doc="Why a session was ended elsewhere, for the browser that still has its token.",
        ),
    }
    named = {"__module__": model.__module__, "__doc__": f"Sessions in browsers, each a {model.__name__}."}
    return type(f"{model.__name__}Keys", (SessionKeys,), {**named, **families})


def sessions_of(keys: SessionKeys[R], policy: Policy | None = None) -> Sessions[R]:
    """`Sessions` for such a keyspace."""
    return Sessions(keys.session, policy, successors=keys.session_successor, ends=keys.session_end)


def _ms(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)
