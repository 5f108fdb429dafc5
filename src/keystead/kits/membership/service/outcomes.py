"""Results and refusals of the membership service."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from keystead.errors import KeysteadError
from keystead.kits.membership.models import ParsedMembership, Plan
from keystead.kits.membership.service.ledger_records import Status
from keystead.parts.cache import LoadFailed

# The client's address, for log lines. Routes set it; other callers of the service may.
CLIENT_ADDRESS: Final = ContextVar("keystead membership: client address", default="")


class MembershipRefused(KeysteadError):
    """The service refuses a request.

    reason          a stable code
    retry_after_s   when to retry, if a retry can help
    status          the member's usage, if the quota is exhausted
    is_retryable    for translations: whether the same request may succeed later
    """

    code = "membership-refused"

    def __init__(
        self,
        reason: str,
        sentence: str,
        *,
        retry_after_s: int | None = None,
        status: Status | None = None,
        is_retryable: bool | None = None,
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.status = status
        self.is_retryable = is_retryable


@dataclass(frozen=True)
class SessionRef:
    """A session's user, and its id in the store. Neither is a credential."""

    user: str
    id: UUID


@dataclass(frozen=True)
class Member:
    """A signed-in user and their membership.

    expires_at_ms   when the session ends
    as_of_ms        when the provider reported the membership
    is_stale        whether that is too long ago, because the provider does not answer
    """

    session: SessionRef
    membership: ParsedMembership
    expires_at_ms: int
    as_of_ms: int
    is_stale: bool = False


@dataclass(frozen=True)
class SignInResult:
    """A successful sign-in. `token` is the session token. It is returned only once; the store does not hold it."""

    token: str = field(repr=False)
    member: Member


@dataclass(frozen=True)
class TokenPair:
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in_s: int


@dataclass(frozen=True)
class Entitled:
    """The sender of a request with a bearer token of either kind, and their plan."""

    session: SessionRef
    plan: Plan
    has_bonus_tokens: bool
    plan_as_of_ms: int
    plan_is_stale: bool = False


@dataclass(frozen=True)
class KnownPlan:
    """A user's plan, and whether it may be out of date because the provider does not answer."""

    plan: Plan
    is_stale: bool


@dataclass(frozen=True)
class WebhookResult:
    """The result of a webhook. `user` is None if the event names no user; it then had no effect."""

    event: str
    user: str | None
    plan_change_recorded: bool


def session_invalid() -> MembershipRefused:
    return MembershipRefused("SESSION_INVALID", "this session has ended or never existed; sign in again")


def token_expired() -> MembershipRefused:
    return MembershipRefused(
        "PATREON_TOKEN_EXPIRED", "the provider no longer accepts this user's tokens; sign in again"
    )


def provider_unavailable(error: LoadFailed) -> MembershipRefused:
    wait_s = max(1, -(-int(error.retry_after.total_seconds() * 1000) // 1000))
    return MembershipRefused(
        "PROVIDER_UNAVAILABLE",
        "the provider does not answer; your session stays valid; try again",
        retry_after_s=wait_s,
    )
