"""Session records, and the results that `Sessions` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from keystead.schema import EpochMs
from keystead.schema.times import moment
from keystead.stores import Reply


class SessionRecord(BaseModel):
    """The base model of a session. Subclass it and add the fields of your application.

    `Sessions` sets `created_at` and `last_seen_at`, and replaces any value you give them.
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


@dataclass(slots=True)  # not frozen: that makes it three times as slow to create, and each request creates one
class Live(Generic[S_co]):
    """A session that is alive. It is truthy; `Gone` is falsy.

    id           its id, which is not a secret: listings show it and `revoke_id` takes it
    user         the id of its user
    session      the record
    ends_at_ms   when it ends if it is not used again
    aged         the token was rotated a moment ago, and is accepted only until the grace period ends
    """

    id: str
    user: str
    session: S_co
    ends_at_ms: int
    aged: bool = False

    def __bool__(self) -> Literal[True]:
        return True

    @property
    def model(self) -> type[S_co]:
        """The type of the record."""
        return type(self.session)


class SharedLive(Live[S_co]):
    """A live session as the store described it last, shared by all who read it. Its `session` is a new copy each time.

    replies      of the store: while it gives the same ones, only the time must be checked
    until_ms     when the session ends or must be touched
    make_record  makes a copy of the record
    """

    __slots__ = ("_model", "make_record", "replies", "until_ms")

    def __init__(
        self,
        id: str,
        user: str,
        ends_at_ms: int,
        until_ms: int,
        replies: list[Reply],
        model: type[S_co],
        make_record: Callable[[], S_co],
    ) -> None:
        self.id = id
        self.user = user
        self.ends_at_ms = ends_at_ms
        self.aged = False
        self.until_ms = until_ms
        self.replies = replies
        self._model = model
        self.make_record = make_record

    @property
    def model(self) -> type[S_co]:
        return self._model

    @property
    def session(self) -> S_co:  # type: ignore[override]
        return self.make_record()

    def own(self) -> Live[S_co]:
        """The session with a record of its own, for one reader."""
        return Live(self.id, self.user, self.make_record(), self.ends_at_ms)


Reason: TypeAlias = Literal["unknown", "expired", "evicted", "revoked", "unreadable"]


@dataclass(frozen=True)
class Gone:
    """There is no such session. It is falsy; `Live` is truthy.

    reason   `expired`; `evicted` by a later login or `revoked` by the user elsewhere or by an operator, while that is
             still recorded; `unreadable` if the stored record cannot be decoded; otherwise `unknown`
    """

    reason: Reason

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class New(Generic[S_co]):
    """A session that was created or rotated. `token` is the secret for the cookie; it is not stored anywhere."""

    token: str = field(repr=False)
    id: str
    session: S_co
    evicted: tuple[str, ...] = ()  # the ids of the sessions that were evicted for it


@dataclass(frozen=True)
class Act:
    """Who signs in or ends sessions, for the audit log. Without `who` it is the user of the session.

    who     `operator:root`
    where   an address, or the name of a machine
    why     the reason, if there is one
    """

    who: str = ""
    where: str = ""
    why: str = ""


class Ended(BaseModel):
    """Why a session ended, for requests that still carry its token."""

    reason: Literal["evicted", "revoked"]


class Successor(BaseModel):
    """The session id that replaced another one when its token was rotated."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    sid: str
    until: EpochMs
    """when the old token stops working"""
