"""The sessions of any family, for operators: which families hold sessions, and the part that lists and ends them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from keystead.parts.audit import Audit
from keystead.parts.sessions.session_policy import Policy
from keystead.parts.sessions.session_record import Ended
from keystead.parts.sessions.sessions import Sessions
from keystead.schema import Value
from keystead.schema.family import Bound

_LONGEST: Final = timedelta(days=3650)
_FIELDS: Final = frozenset({"created_at", "last_seen_at"})


def holds_sessions(bound: Bound[Any]) -> bool:
    """Whether this family has the shape of sessions: records with their times, listed by user, named by a secret."""
    family = bound.family
    if not isinstance(family, Value) or not family.listed_in or len(family.pattern.names) != 1:
        return False
    return family.field_names >= _FIELDS and len(family.listed_in[0].target.pattern.names) == 1


def sessions_of(bound: Bound[Any], audit: Audit | None) -> Sessions[Any]:
    """The sessions of a family, for an operator: with the longest policy that the family allows, because reading must
    not end a session. Raises BadDeclaration for a family of another shape."""
    keys = bound.keyspace
    ends = next(
        (one for one in keys.bounds() if isinstance(one.family, Value) and one.family.codec.type is Ended), None
    )
    idle = timedelta(milliseconds=bound.family.lifetime.longest_ms or _LONGEST.total_seconds() * 1000)
    policy = Policy(idle=idle, absolute=max(idle, _LONGEST), cap=None)
    return Sessions(bound, policy, ends=ends, audit=audit, farewell=getattr(keys, "farewell", None))
