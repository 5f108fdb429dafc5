"""What comes of a sign-in and of each request after it: a member, tokens, or a refusal."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from keystead.errors import KeysteadError
from keystead.kits.membership.models import ParsedMembership, Plan
from keystead.kits.membership.service.ledger_records import Status
from keystead.parts.cache import LoadFailed

# The address of whoever asks, for what is logged. Whoever calls the service for somebody may set it.
ASKING: Final = ContextVar("keystead membership: who asks", default="")


class MembershipRefused(KeysteadError):
    """A request is refused.

    reason          a stable word
    retry_after_s   when to come again, where that helps
    status          of a quota that is used up: how the member stands
    is_retryable    of a translation: whether the same may succeed later
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
class Named:
    """What a session token names: whose it is, and the key under which the store knows it. Neither opens anything."""

    user: str
    session: UUID


@dataclass(frozen=True)
class Member:
    """Somebody who is signed in, and what they pay for.

    expires_at_ms   when the session ends
    as_of_ms        when the provider told what they pay for
    is_stale        whether that is older than it should be, because the provider does not answer
    """

    named: Named
    membership: ParsedMembership
    expires_at_ms: int
    as_of_ms: int
    is_stale: bool = False


@dataclass(frozen=True)
class SignedIn:
    """A sign-in that succeeded. `token` is the session token, which is told once and is not in the store."""

    token: str = field(repr=False)
    member: Member


@dataclass(frozen=True)
class TokenPair:
    """An access token, and the refresh token that brings the next one."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in_s: int


@dataclass(frozen=True)
class Entitled:
    """Who sent a request with a bearer token of either kind, and what they may do."""

    named: Named
    plan: Plan
    has_bonus_tokens: bool
    plan_as_of_ms: int
    plan_is_stale: bool = False


@dataclass(frozen=True)
class KnownPlan:
    """What a user pays for, and whether that is older than it should be, because the provider does not answer."""

    plan: Plan
    is_stale: bool


@dataclass(frozen=True)
class Heard:
    """What came of a webhook. `user` is None where the event speaks of nobody; then nothing was done."""

    event: str
    user: str | None
    plan_change_recorded: bool


def session_invalid() -> MembershipRefused:
    return MembershipRefused("SESSION_INVALID", "this session has ended, or never was one; sign in again")


def token_expired() -> MembershipRefused:
    return MembershipRefused(
        "PATREON_TOKEN_EXPIRED", "the provider does not vouch for this session any more; sign in again"
    )


def unavailable(error: LoadFailed) -> MembershipRefused:
    wait = max(1, -(-int(error.retry_after.total_seconds() * 1000) // 1000))
    return MembershipRefused(
        "PROVIDER_UNAVAILABLE",
        "what is paid for cannot be asked at the moment; sessions stay as they are; try again",
        retry_after_s=wait,
    )
