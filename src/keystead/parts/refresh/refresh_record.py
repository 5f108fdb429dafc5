"""What a chain of refresh tokens holds, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from keystead.schema import EpochMs, OmittedIfNone
from keystead.schema.times import moment


class RefreshRecord(BaseModel):
    """One chain: all tokens that come of one `begin`. Inherit it, and add whose it is and the session it belongs to.

    `client`, `scope` and `audience` are what the chain is bound to; the others are kept by `RefreshTokens`, and
    whatever you give them is replaced.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    created_at: EpochMs = moment(0)
    """when the chain began"""
    expires_at: EpochMs = moment(0)
    """when it ends, however often it is rotated"""
    is_used: bool = False
    """one of its tokens was used again after its time: the chain has ended"""
    generation: int = 0
    """which of its tokens is the newest, counted from 0"""
    rotated_at: OmittedIfNone[EpochMs] = None
    """when the token before the newest was used"""
    client: OmittedIfNone[str] = None
    """who may use it: the id of an application"""
    scope: OmittedIfNone[str] = None
    """what it is good for at most: words with spaces between them"""
    audience: OmittedIfNone[str] = None
    """for whom the access tokens are that it brings"""


R = TypeVar("R", bound=BaseModel)
R_co = TypeVar("R_co", bound=BaseModel, covariant=True)

Reason: TypeAlias = Literal["unknown", "expired", "reused", "session", "client", "scope", "audience", "unreadable"]
Misuse: TypeAlias = Literal["stale", "late", "ended"]


@dataclass(frozen=True)
class _Good(Generic[R_co]):
    token: str = field(repr=False)
    id: str
    record: R_co
    scope: str | None = None

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True)
class NewChain(_Good[R_co]):
    """A new chain.

    token    its first token, for the client; it is stored nowhere
    id       what the store knows the chain by, which is no secret: for `revoke_chain`
    record   what the chain holds
    scope    what the access token may be good for
    """


@dataclass(frozen=True)
class Rotated(_Good[R_co]):
    """The token was good, and is used up; `token` is the next one. `scope` is what was asked for, or all of it."""


@dataclass(frozen=True)
class Retried(_Good[R_co]):
    """The token was used a moment ago, and its answer may have been lost: `token` is the same successor again."""


@dataclass(frozen=True)
class RotationRefused:
    """No new token. It is false where the others are true.

    reason   `unknown`: no token of this server, or one whose chain was revoked or has expired and is gone
             `expired`: its chain lived its time
             `reused`: it was used before, so somebody has it who should not: its chain has ended
             `session`: the session that it belongs to is gone
             `client`, `scope`, `audience`: it is good, for others than were named; it stays good for them
             `unreadable`: what is stored is no chain
    why      of `reused`: `stale`, a token from before the last one; `late`, the last one after the grace; `ended`, any
             token of a chain that ended this way
    """

    reason: Reason
    why: Misuse | None = None

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class RefreshEvent:
    """Something that an operator should know.

    event    `refresh-reused`, or `refresh-wrong-client`
    why      as in `RotationRefused`
    user     whose chain it is, where its family says `member_of`
    chain   the id of the chain, which opens nothing
    client   who came with the token, as they say
    """

    event: Literal["refresh-reused", "refresh-wrong-client"]
    why: Misuse | None
    user: str | None
    chain: str
    client: str | None
