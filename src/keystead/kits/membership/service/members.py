"""The membership service: sign-in, sessions, plans, webhooks and sign-out. It knows no HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import httpx2
from pydantic import SecretStr

from keystead.errors import BadDeclaration, StoreError, StoreUnavailable, Unreadable
from keystead.kits.kit import Site
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import CachedAuth, CachedMembership, CachedQuota, Plan, RefreshTokenData
from keystead.kits.membership.service.account import Account
from keystead.kits.membership.service.bearer_tokens import BearerTokens, is_alive
from keystead.kits.membership.service.consents import Consents
from keystead.kits.membership.service.crash_reports import parse_crash_report
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.ledger_records import RecordedUsage
from keystead.kits.membership.service.membership_loader import MembershipLoader
from keystead.kits.membership.service.outcomes import (
    CLIENT_ADDRESS,
    Entitled,
    Member,
    MembershipRefused,
    SessionRef,
    SignInResult,
    WebhookResult,
    provider_unavailable,
    session_invalid,
    token_expired,
)
from keystead.kits.membership.service.patreon import Patreon
from keystead.kits.membership.service.programs import Programs
from keystead.kits.membership.service.promotions import Promotions
from keystead.kits.membership.service.provider_access import ProviderAccess, provider_of, refuse_failures
from keystead.kits.membership.service.session_reads import SessionReads, read_tolerantly
from keystead.kits.membership.service.settings import LIMITS, MembershipSettings
from keystead.kits.membership.service.tables import is_user
from keystead.kits.membership.service.token_pairs import TokenPairs
from keystead.kits.membership.service.translation import Translation
from keystead.kits.membership.service.usage import UsageAccounts, first_of_month
from keystead.kits.membership.service.webhook import parse_webhook
from keystead.parts.apikeys import ApiKeys
from keystead.parts.cache import Cache, LoadFailed
from keystead.parts.jwt import AccessTokens, SigningKeys
from keystead.parts.limit import AlignedWindow, FixedWindow, LimitReached, Limits, Rate, WhenDown
from keystead.parts.refresh import RefreshEvent, RefreshTokens
from keystead.parts.schedule import Job, Run
from keystead.schema import Bound
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.membership")
_security = logging.getLogger("keystead.security")

_MINUTE_MS: Final = 60_000
_BATCH: Final = 1_000


class Members:
    """The membership service: sign-ins, sessions, and the members' plans and usage.

    ledger   the relational side: profiles, usage, bonus tokens, plan changes and crash reports

    A webhook, a logout, a sign-in and a sync have invalidated every cache entry of the membership when the call
    returns. Otherwise an answer is at most `longest_staleness` old: an hour while the provider answers, a day while it
    is down, and a minute more in `entitled`.
    """

    def __init__(
        self,
        keys: MembershipKeys,
        settings: MembershipSettings,
        site: Site,
        patreon: Patreon,
        ledger: Ledger,
    ) -> None:
        self.keys = keys
        self.settings = settings
        self.site = site
        self._patreon = patreon
        self.ledger = ledger
        self.memberships: Cache[CachedMembership] = Cache(
            keys.membership, keys.membership_mark, stale=keys.membership_stale
        )
        self.entitlements: Cache[CachedAuth] = Cache(keys.auth, keys.auth_mark)
        self.quotas: Cache[CachedQuota] = Cache(keys.quota, keys.quota_mark)
        self.refresh: RefreshTokens[RefreshTokenData] = RefreshTokens(
            keys.refresh, grace=settings.refresh_grace, tell=self._log_reuse
        )
        self.devices = Devices(keys, self.refresh, self._forget_user)
        self.session_reads = SessionReads(keys, self.devices)
        self.signing = _signing_keys(keys, settings)
        self.access = AccessTokens(self.signing, issuer=site.public_url, audience=settings.audience, now_ms=site.now_ms)
        self.bearers = BearerTokens(keys, self.devices, self.access)
        self.loader = MembershipLoader(keys, settings, site, patreon, self.devices, self.has_bonus_tokens)
        self.provider = ProviderAccess(settings, site, patreon)
        self.token_pairs = TokenPairs(self)
        self.usage = UsageAccounts(self)
        # These two protect no secret: while the store is down they allow requests, counted per process.
        self.crash_reports = self._limit("crash_report", FixedWindow, keys.crash_report_limit, when_down="allow")
        self.webhooks = self._limit("webhook", when_down="allow")
        self.sign_ins, self.syncs = self._limit("sign_in"), self._limit("sync")
        self.account = Account(
            self,
            Promotions(ledger.tables, settings.promotion_prefix),
            Consents(ledger.tables),
            {name: self._limit(name) for name in ("sync_init", "bonus_sync", "redeem")},
        )
        self.programs = Programs(self, ApiKeys(keys.api_key, keys.api_keys()))
        self.translation = Translation(self, settings, patreon.http, self._limit("translate"))

    def _limit(
        self,
        name: str,
        kind: type[FixedWindow | AlignedWindow] = AlignedWindow,
        family: Bound[Any] | None = None,
        when_down: WhenDown = "deny",
    ) -> Limits | None:
        most = (LIMITS | self.settings.limits)[name]
        counters: Bound[Any] = self.keys.rate_limit if family is None else family
        return kind(counters, Rate(most, _MINUTE_MS), when_down=when_down) if most else None

    @property
    def longest_staleness(self) -> timedelta:
        """The maximum age of a membership in any answer, without an invalidation."""
        return self.memberships.longest_staleness + self.entitlements.longest_staleness

    async def close(self) -> None:
        """Finish pending translations and token renewals. Call it before the store is closed."""
        await self.translation.finish()
        await self.loader.finish()
        await self.quotas.close()
        await self.entitlements.close()
        await self.memberships.close()

    # --- signing in ----------------------------------------------------------------------------------------

    async def sign_in(self, code: str, redirect_uri: str, verifier: str | None = None) -> SignInResult:
        """Exchange an authorization code for a session. Ends the user's session on another device in the same step.

        Three provider requests: the tokens, the identity, and, after the swap, the membership for the cache. So a
        cached membership is never older than a webhook that invalidated it. If the third request fails, the result
        has the membership of the second, and nothing is cached. If a cache is down, it raises StoreError before
        anything has changed.
        """
        self.provider.check_sign_in(redirect_uri)
        with refuse_failures("TOKEN_EXCHANGE_FAILED", "the code could not be exchanged; sign in again"):
            tokens = await self._patreon.tokens_for(code, redirect_uri, verifier)
        with refuse_failures("IDENTITY_FETCH_FAILED", "the provider did not identify the user; sign in again"):
            membership = await self._patreon.membership(tokens.access_token, self.settings.campaign)
        # Also before the swap: if this fails, the session on the other device is still valid.
        await self.memberships.invalidate(self.keys.membership(membership.user_id))
        token, session = await self.devices.admit(membership.user_id, tokens, membership.email, membership.full_name)
        await self.memberships.invalidate(self.keys.membership(session.user))
        await self.entitlements.invalidate(self.keys.auth(session.id))
        try:
            found = await self.get_membership(session.user)
        except LoadFailed:
            found = None
        self.site.count("membership", "sign-in", "succeeded")
        if found is None:
            found = CachedMembership(membership=membership, cached_at=moment(self.keys.now_ms()))
        lifetime = timedelta(milliseconds=self.keys.session.family.lifetime.longest_ms or 0)
        return SignInResult(token, self._build_member(session, lifetime, found))

    # --- being signed in -----------------------------------------------------------------------------------

    async def validate(self, token: str) -> Member:
        """The member of a session token. One round trip on a cache hit. Raises MembershipRefused."""
        session, left, found = await self.session_reads.read(token)
        if found is None:
            found = await self.require_membership(session.user)
        return self._build_member(session, left, found)

    async def sync(self, token: str) -> Member:
        """As `validate`, but asks the provider now, for users who have just paid. Limited per user and minute.

        If the provider does not answer, the result is its last answer, and it is not asked again for 5 s.
        """
        session, left, _ = await self.session_reads.read(token)
        await self.enforce_limit(self.syncs, "sync", session.user)
        started_ms = self.keys.now_ms()
        try:
            found = await self.memberships.refresh(
                self.keys.membership(session.user), lambda: self.loader.load(session.user)
            )
        except LoadFailed as error:
            raise provider_unavailable(error) from None
        if found is None:
            raise token_expired()
        await self.entitlements.invalidate(self.keys.auth(session.id))
        return self._build_member(session, left, found, fresh_since_ms=started_ms)

    async def enforce_limit(self, limit: Limits | None, name: str, user: str) -> None:
        """Count a request of a user. Raises MembershipRefused above the limit, StoreUnavailable if it is unknown."""
        verdict = None if limit is None else await limit.hit(f"{name}:{user}")
        if verdict is None or verdict:
            return
        if verdict.store_is_down:
            raise StoreUnavailable("the rate limit cannot be checked: the store does not answer")
        reached = LimitReached.of(verdict)
        raise MembershipRefused("RATE_LIMITED", str(reached), retry_after_s=reached.retry_after_s)

    async def entitled(self, bearer: str) -> Entitled:
        """The sender of an access token or session token, and their plan. One round trip on a cache hit.

        Raises MembershipRefused if the session has ended, or the refresh token chain of the access token.
        """
        claimed = self.bearers.read(bearer)
        session, key = claimed.session, self.keys.auth(claimed.session.id)
        chain = [] if claimed.chain is None else [self.keys.refresh(claimed.chain).get()]
        exists, held, *record, found = await read_tolerantly(
            self.keys,
            self.keys.session(session.id).exists(),
            self.keys.user_token(session.user).get(),
            *chain,
            key.get(),
        )
        is_current = exists and held is not None and session.id in held.session_tokens
        if not is_current or (chain and not is_alive(record[0], session)):
            raise session_invalid()
        if found is None:
            try:
                found = await self.entitlements.get(key, lambda: self._load_entitlement(session))
            except LoadFailed as error:
                # The database is down, not the provider.
                if isinstance(error.__cause__, MembershipRefused | StoreError):
                    raise error.__cause__ from None
                raise provider_unavailable(error) from None
        if found is None:
            raise session_invalid()
        # Entries of older versions have no `plan_as_of`.
        as_of_ms = deadline_ms(found.plan_as_of or found.cached_at)
        return Entitled(session, found.plan, found.has_bonus_tokens, as_of_ms, self.is_stale(as_of_ms))

    async def _log_reuse(self, event: RefreshEvent) -> None:
        """A reused refresh token may be stolen: its chain has ended, with its access tokens."""
        self.site.count("membership", "refresh", "reused")
        fields = {"event": event.event, "reason": event.why, "user": event.user, "chain": event.chain}
        _security.warning(
            "membership: refresh token reused; its chain and access tokens were revoked",
            extra={**fields, "client": CLIENT_ADDRESS.get()},
        )

    async def get_membership(self, user: str) -> CachedMembership | None:
        """The membership from the cache or the provider; None if the user is not signed in. Raises LoadFailed."""
        return await self.memberships.get(self.keys.membership(user), lambda: self.loader.load(user))

    async def require_membership(self, user: str) -> CachedMembership:
        """As `get_membership`, but raises MembershipRefused if it is absent or the provider does not answer."""
        try:
            found = await self.get_membership(user)
        except LoadFailed as error:
            raise provider_unavailable(error) from None
        if found is None:
            raise token_expired()
        return found

    async def _load_entitlement(self, session: SessionRef) -> CachedAuth | None:
        exists, held = await self.keys.run(
            self.keys.session(session.id).exists(), self.keys.user_token(session.user).get()
        )
        if not exists or held is None or session.id not in held.session_tokens:
            return None
        found = await self.require_membership(session.user)
        plan = found.membership.plan
        return CachedAuth(
            user_id=session.user,
            plan=plan,
            has_bonus_tokens=await self.has_bonus_tokens(session.user, plan),
            cached_at=moment(self.keys.now_ms()),
            plan_as_of=found.cached_at,
        )

    async def has_bonus_tokens(self, user: str, plan: Plan) -> bool:
        return (await self.usage.status_of(user, plan)).has_bonus_tokens

    def _build_member(
        self, session: SessionRef, left: timedelta, found: CachedMembership, fresh_since_ms: int | None = None
    ) -> Member:
        """A membership is stale if it is older than `fresh_since_ms`, or by default older than the cache lifetime."""
        as_of_ms = deadline_ms(found.cached_at)
        is_stale = self.is_stale(as_of_ms) if fresh_since_ms is None else as_of_ms < fresh_since_ms
        ends_ms = self.keys.now_ms() + left // timedelta(milliseconds=1)
        return Member(session, found.membership, ends_ms, as_of_ms, is_stale)

    def is_stale(self, as_of_ms: int) -> bool:
        """Whether this is older than the cache lifetime, which means that the provider does not answer."""
        return self.keys.now_ms() >= as_of_ms + (self.keys.membership.family.lifetime.longest_ms or 0)

    # --- signing out ---------------------------------------------------------------------------------------

    async def logout(self, bearer: str) -> bool:
        """End the session of a bearer token of either kind. False if there is none."""
        try:
            session = await self.bearers.find(bearer)
        except MembershipRefused:
            return False
        return await self.devices.end(session)

    async def logout_all(self, bearer: str) -> int:
        """End all sessions of the user, and return their number: there is at most one.

        Raises MembershipRefused if the token's session has ended: an old device cannot end the session of a newer one.
        """
        if not await self.devices.end(await self.bearers.find(bearer)):
            raise session_invalid()
        return 1

    async def is_current(self, session: SessionRef) -> bool | None:
        """Whether a session is its user's current one. None if the user's row is unreadable: then admit nobody, and
        end nothing."""
        sessions = await self.sessions_of(session.user)
        return None if sessions is None else session.id in sessions

    async def sessions_of(self, user: str) -> list[UUID] | None:
        """The current sessions of a user, at most one. None if the user's row is unreadable."""
        try:
            held = await self.keys.user_token(user).get()
        except Unreadable:
            return None
        return [] if held is None else held.session_tokens

    async def tokens_used(self, who: Entitled) -> int:
        """See `UsageAccounts.tokens_used`."""
        return await self.usage.tokens_used(who)

    async def record_usage(self, who: Entitled, event_id: str, tokens: int) -> RecordedUsage:
        """See `UsageAccounts.record_usage`."""
        return await self.usage.record_usage(who.session.user, who.plan, event_id, tokens)

    # --- webhooks and crash reports ------------------------------------------------------------------------

    async def webhook(self, body: bytes, signature: str | None, event: str) -> WebhookResult:
        """Process a webhook of the provider. Idempotent: a repeated event changes nothing, however late.

        Every event invalidates the caches of the membership. A declined or former patron's session ends too. The end
        of a pledge ends no session: the paid period continues.
        """
        parsed = parse_webhook(body, signature, event, self._webhook_secrets())
        user = None if parsed is None else parsed.user
        if parsed is None or not is_user(user):
            return WebhookResult(event, None, False)
        # Record the change first, then invalidate the caches.
        try:
            change = await self.ledger.record_plan_change(user, parsed.id, parsed.plan, event, self.keys.now_ms())
        except StoreError:
            await self.invalidate_membership(user)  # the caches may still be up; the provider will retry
            raise
        if parsed.ends_session and change.is_new:
            await self.devices.end_all(user)
        else:
            await self.invalidate_membership(user)
        if parsed.ends_session and not change.is_new:
            await self._end_sessions_before(user, change.at_ms)
        self.site.count("membership", "webhook", event.rpartition(":")[2])
        return WebhookResult(event, user, change.is_new and change.is_change)

    def _webhook_secrets(self) -> list[SecretStr]:
        stand_in = self.provider.stand_in
        own = None if stand_in is None else stand_in.webhook_secret
        return [secret for secret in (self.settings.webhook_secret, own) if secret is not None]

    async def _end_sessions_before(self, user: str, at_ms: int) -> None:
        """End the sessions that an event should have ended, if a process died before it could.

        Sessions that began later stay: replaying an old event signs nobody out.
        """
        for session_id in await self.sessions_of(user) or ():
            if await self._began_before(session_id, at_ms):
                await self.devices.end(SessionRef(user, session_id))

    async def _began_before(self, session_id: UUID, at_ms: int) -> bool:
        try:
            record = await self.keys.session(session_id).get()
        except Unreadable:
            return False
        return record is None or record.created_at is None or deadline_ms(record.created_at) <= at_ms

    async def invalidate_membership(self, user: str) -> None:
        """Invalidate every cache entry of a user whose membership has changed."""
        await self.memberships.invalidate(self.keys.membership(user))
        for session_id in await self.sessions_of(user) or ():
            await self.entitlements.invalidate(self.keys.auth(session_id))

    async def _forget_user(self, user: str) -> None:
        """Invalidate the membership and quota caches of a user who has signed out."""
        await self.memberships.invalidate(self.keys.membership(user))
        now_ms = self.keys.now_ms()
        quota_ms = self.keys.quota.family.lifetime.longest_ms or 0
        # Early in a month, last month's quota may still be cached.
        for month in {first_of_month(now_ms), first_of_month(now_ms - quota_ms)}:
            await self.quotas.invalidate(self.keys.quota(user, month))

    async def crash_report(self, body: dict[str, Any]) -> bool:
        """Store a crash report. False if its id is stored already, which is not an error."""
        return await self.ledger.add_crash_report(parse_crash_report(body), self.keys.now_ms())

    # --- clean-up ------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> list[Job]:
        doc = "Deletes usage events and crash reports after their retention period. Monthly sums stay."
        return [Job("membership.clean-up", "30 3 * * *", self._clean_up, doc=doc)]

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        events_before_ms = self.keys.now_ms() - duration_ms(self.settings.keep_usage_events)
        reports_before_ms = self.keys.now_ms() - duration_ms(self.settings.keep_crash_reports)
        return {
            "usage_events": await _delete_in_batches(self.ledger.delete_usage_events, events_before_ms),
            "crash_reports": await _delete_in_batches(self.ledger.delete_crash_reports, reports_before_ms),
        }


@asynccontextmanager
async def open_members(keys: MembershipKeys, settings: MembershipSettings, site: Site) -> AsyncIterator[Members]:
    """Open the service, with an HTTP client for the provider and the tables of the site."""
    ledger = Ledger(site.tables_for("membership"))
    async with httpx2.AsyncClient(follow_redirects=False, verify=httpx2.create_ssl_context()) as http:
        patreon = Patreon(provider_of(settings, site), http, site.now_ms, development=site.development)
        members = Members(keys, settings, site, patreon, ledger)
        try:
            yield members
        finally:
            await members.close()


async def _delete_in_batches(delete: Callable[..., Awaitable[int]], before_ms: int) -> int:
    """Delete in batches, so that no lock is held for long."""
    total = 0
    while count := await delete(before_ms, most=_BATCH):
        total += count
    return total


def _signing_keys(keys: MembershipKeys, settings: MembershipSettings) -> SigningKeys:
    if settings.signing_keys is not None:
        return settings.signing_keys
    if keys.ring is None:
        raise BadDeclaration("the membership kit encrypts tokens, so it needs keys: MembershipKeys(store, seal=…)")
    return SigningKeys.from_ring(keys.ring)
