"""What a session holds, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from keystead.schema import EpochMs
from keystead.schema.times import moment


class SessionRecord(BaseModel):
    """The least that a session holds. Inherit it and add what your application keeps in a session.

    `created_at` and `last_seen_at` are kept by `Sessions`; whatever you give them is replaced.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    """the id of the user whose session it is"""
    created_at: EpochMs = moment(0)
    """when the user logged in"""
    last_seen_at: EpochMs = moment(0)
    """when the session was last used, to about a minute"""


S = TypeVar("S", bound=BaseModel)
S_co = TypeVar("S_co", bound=BaseModel, covariant=True)


@dataclass(slots=True)  # and not frozen, which would make it three times as slow to make: each request makes one
class Live(Generic[S_co]):
    """A session that is alive. It is true where `Gone` is false.

    id           its id, which is no secret: what listings show, and what `revoke_id` takes
    user         the id of its user
    session      what it holds
    ends_at_ms   when it ends if it is not used again
    aged         the token that was given is one from before a rotation, and soon counts no more
    """

    id: str
    user: str
    session: S_co
    ends_at_ms: int
    aged: bool = False

    def __bool__(self) -> Literal[True]:
        return True


Reason: TypeAlias = Literal["unknown", "expired", "evicted", "revoked", "unreadable"]


@dataclass(frozen=True)
class Gone:
    """There is no such session. It is false where `Live` is true.

    reason   `expired`, `evicted` by a later login or `revoked` by the user elsewhere or by an operator, as far as that
             is still known; `unreadable` where what is stored is none; else `unknown`
    """

    reason: Reason

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class New(Generic[S_co]):
    """A session that was made or rotated. `token` is the secret for the cookie; it is stored nowhere."""

    token: str = field(repr=False)
    id: str
    session: S_co
    evicted: tuple[str, ...] = ()  # the ids of the sessions that it took the place of


@dataclass(frozen=True)
class Act:
    """Who signs in or ends sessions, for the audit log. Without `who` it is the user of the session.

    who     `operator:root`
    where   an address, or the name of a machine
    why     the reason, where there is one to tell
    """

    who: str = ""
    where: str = ""
    why: str = ""


class Ended(BaseModel):
    """Why a session ended, for whoever still comes with its token."""

    reason: Literal["evicted", "revoked"]


class Successor(BaseModel):
    """Where a session went when its token was rotated."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    sid: str
    until: EpochMs
    """from when on the old token counts no more"""
