"""What comes of a sign-in and of each request after it: a member, tokens, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from keystead.errors import KeysteadError
from keystead.kits.membership.models import ParsedMembership, Plan


class MembershipRefused(KeysteadError):
    """A request is refused. `reason` is a stable word; `retry_after_s` says when to come again, where that helps."""

    code = "membership-refused"

    def __init__(self, reason: str, sentence: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Named:
    """What a session token names: whose it is, and the key under which the store knows it. Neither opens anything."""

    user: str
    session: UUID


@dataclass(frozen=True)
class Member:
    """Somebody who is signed in, and what they pay for. `expires_at_ms` is when the session ends."""

    named: Named
    membership: ParsedMembership
    expires_at_ms: int


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
