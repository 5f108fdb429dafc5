"""Records, results and events of refresh token rotation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from keystead.schema import EpochMs, OmittedIfNone
from keystead.schema.times import moment


class RefreshRecord(BaseModel):
    """One chain: all tokens that descend from one `begin`. Subclass it, and add its user and its session.

    `client`, `scope` and `audience` are what the chain is bound to. `RefreshTokens` sets the other fields, and replaces
    any value you give them.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    created_at: EpochMs = moment(0)
    """when the chain began"""
    expires_at: EpochMs = moment(0)
    """when it ends, however often it is rotated"""
    is_used: bool = False
    """reuse was detected: the chain has ended"""
    generation: int = 0
    """the generation of the newest token, from 0"""
    rotated_at: OmittedIfNone[EpochMs] = None
    """when the previous token was used"""
    client: OmittedIfNone[str] = None
    """the id of the client that may use it"""
    scope: OmittedIfNone[str] = None
    """the granted scope: words separated by spaces"""
    audience: OmittedIfNone[str] = None
    """the audience of its access tokens"""


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

    token    its first token, for the client; it is not stored anywhere
    id       the id of the chain, which is not a secret: for `revoke_chain`
    record   the record of the chain
    scope    the scope for the access token
    """


@dataclass(frozen=True)
class Rotated(_Good[R_co]):
    """The token was valid, and is used up; `token` is the next one. `scope` is the requested or the full scope."""


@dataclass(frozen=True)
class Retried(_Good[R_co]):
    """The token was used a moment ago, and the response may have been lost: `token` is the same successor."""


@dataclass(frozen=True)
class RotationRefused:
    """No new token. It is falsy; the other results are truthy.

    reason   `unknown`: not a token of this server, or one whose chain was revoked or has expired and is gone
             `expired`: its chain has expired
             `reused`: it was used before, so it was probably stolen: its chain has ended
             `session`: its session has ended
             `client`, `scope`, `audience`: it is bound to others than were given; it stays valid for them
             `unreadable`: the stored record cannot be decoded
    why      for `reused`: `stale`, older than the previous token; `late`, the previous token after the grace; `ended`,
             any token of a chain that ended this way
    """

    reason: Reason
    why: Misuse | None = None

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class RefreshEvent:
    """A security event for an operator.

    event    `refresh-reused`, or `refresh-wrong-client`
    why      as in `RotationRefused`
    user     the user of the chain, if its family has `member_of`
    chain    the id of the chain, which is not a credential
    client   the client that sent the token, as it claims
    """

    event: Literal["refresh-reused", "refresh-wrong-client"]
    why: Misuse | None
    user: str | None
    chain: str
    client: str | None
