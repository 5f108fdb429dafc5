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

from keystead.errors import BadDeclaration, KeysteadError, StoreError, StoreUnavailable, Unreadable
from keystead.kits.kit import Site
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import CachedAuth, CachedMembership, CachedQuota, Plan, RefreshTokenData
from keystead.kits.membership.service.account import Account
from keystead.kits.membership.service.bearer_tokens import BearerTokens, is_alive
from keystead.kits.membership.service.consents import Consents
from keystead.kits.membership.service.crash_reports import crash_report_of
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.ledger_records import Recorded
from keystead.kits.membership.service.membership_loader import MembershipLoader
from keystead.kits.membership.service.outcomes import (
    ASKING,
    Entitled,
    Heard,
    Member,
    MembershipRefused,
    Named,
    SignedIn,
    session_invalid,
    token_expired,
    unavailable,
)
from keystead.kits.membership.service.patreon import Patreon
from keystead.kits.membership.service.programs import Programs
from keystead.kits.membership.service.promotions import Promotions
from keystead.kits.membership.service.provider_access import ProviderAccess, provider_of, refuse_failures, stand_in_of
from keystead.kits.membership.service.settings import LIMITS, MembershipSettings
from keystead.kits.membership.service.tables import is_user
from keystead.kits.membership.service.token_pairs import TokenPairs
from keystead.kits.membership.service.translation import Translation
from keystead.kits.membership.service.usage import UsageAccounts, month_of
from keystead.kits.membership.service.webhook import told_in
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
_PORTION: Final = 1_000


class Members:
    """Sign-ins, the sessions that they make, and what is known of those who have them.

    ledger     the relational side: profiles, usage, bonus tokens, plan changes and crash reports
    stand_in   who answers in the place of the provider, where there is no client of it; None: nobody

    A membership that a webhook, a logout, a sign-in or a sync has changed is out of every cache when the call returns.
    Otherwise what is told of it is at most `longest_staleness` old: a day while the provider is away, an hour while it
    answers, and a minute more where a bearer token is asked what it may do.
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
        self.stand_in = stand_in_of(settings, site)
        self._patreon = patreon
        self.ledger = ledger
        self.memberships: Cache[CachedMembership] = Cache(
            keys.membership, keys.membership_mark, stale=keys.membership_stale
        )
        self.entitlements: Cache[CachedAuth] = Cache(keys.auth, keys.auth_mark)
        self.quotas: Cache[CachedQuota] = Cache(keys.quota, keys.quota_mark)
        self.refresh: RefreshTokens[RefreshTokenData] = RefreshTokens(
            keys.refresh, grace=settings.refresh_grace, tell=self._tell_misuse
        )
        self.devices = Devices(keys, self.refresh, self._forget_user)
        self.signing = _signing_keys(keys, settings)
        self.access = AccessTokens(self.signing, issuer=site.public_url, audience=settings.audience, now_ms=site.now_ms)
        self.bearers = BearerTokens(keys, self.devices, self.access)
        self.loader = MembershipLoader(keys, settings, site, patreon, self.devices, self.has_bonus_tokens)
        self.provider = ProviderAccess(settings, site, patreon, self.stand_in)
        self.token_pairs = TokenPairs(self)
        self.usage = UsageAccounts(self)
        # What guards nothing secret goes on while the store is away, counted in each process.
        self.crash_reports = self._limit("crash_report", FixedWindow, keys.crash_report_limit, when_down="allow")
        self.webhooks = self._limit("webhook", AlignedWindow, keys.rate_limit, when_down="allow")
        self.sign_ins = self._limit("sign_in", AlignedWindow, keys.rate_limit, when_down="deny")
        self.syncs = self._limit("sync", AlignedWindow, keys.rate_limit, when_down="deny")
        self.account = Account(
            self,
            Promotions(ledger.tables, settings.promotion_prefix),
            Consents(ledger.tables),
            {
                name: self._limit(name, AlignedWindow, keys.rate_limit, when_down="deny")
                for name in ("sync_init", "bonus_sync", "redeem")
            },
        )
        self.programs = Programs(self, ApiKeys(keys.api_key, keys.api_keys()))
        self.translation = Translation(
            self, settings, patreon.http, self._limit("translate", AlignedWindow, keys.rate_limit, when_down="deny")
        )

    def _limit(
        self, name: str, kind: type[FixedWindow | AlignedWindow], family: Bound[Any], when_down: WhenDown
    ) -> Limits | None:
        most = (LIMITS | self.settings.limits)[name]
        return kind(family, Rate(most, _MINUTE_MS), when_down=when_down) if most else None

    @property
    def longest_staleness(self) -> timedelta:
        """How old what is told of a membership may be, where nobody dropped it."""
        return self.memberships.longest_staleness + self.entitlements.longest_staleness

    async def close(self) -> None:
        """Save what the provider has granted, and what was translated, before the store is closed."""
        await self.translation.finish()
        await self.loader.finish()
        await self.quotas.close()
        await self.entitlements.close()
        await self.memberships.close()

    # --- signing in ----------------------------------------------------------------------------------------

    async def sign_in(self, code: str, redirect_uri: str, verifier: str | None = None) -> SignedIn:
        """Exchange a code for a session. The session that the user had on another device ends in the same step.

        Two questions to the provider tell who it is; a third, after the swap, what they pay for: so what is remembered
        was never asked before a webhook that has dropped it. Where that one fails, the answer of the second is told,
        and nothing is remembered. Where a cache is away that would have to be emptied, nothing has changed.
        """
        self.provider.check_sign_in(redirect_uri)
        with refuse_failures("TOKEN_EXCHANGE_FAILED", "the code could not be exchanged; sign in again"):
            tokens = await self._patreon.tokens_for(code, redirect_uri, verifier)
        with refuse_failures("IDENTITY_FETCH_FAILED", "the provider does not say who this is; sign in again"):
            told = await self._patreon.membership(tokens.access_token, self.settings.campaign)
        # Before the swap, too: where this fails, the session on the other device is still good.
        await self.memberships.invalidate(self.keys.membership(told.user_id))
        token, named = await self.devices.admit(told.user_id, tokens, told.email, told.full_name)
        await self._forget(named)
        try:
            found = await self.memberships.get(self.keys.membership(named.user), lambda: self.loader.load(named.user))
        except LoadFailed:
            found = None
        self.site.count("membership", "sign-in", "succeeded")
        now_ms = self.keys.now_ms()
        if found is None:
            found = CachedMembership(membership=told, cached_at=moment(now_ms))
        lifetime = timedelta(milliseconds=self.keys.session.family.lifetime.longest_ms or 0)
        return SignedIn(token, self._member(named, lifetime, found))

    # --- being signed in -----------------------------------------------------------------------------------

    async def validate(self, token: str) -> Member:
        """Who has this session, and what they pay for. One round trip, unless the provider has to be asked."""
        named, left, found = await self._session(token)
        if found is None:
            found = await self.membership_of(named)
        return self._member(named, left, found)

    async def sync(self, token: str) -> Member:
        """The same past the cache: the provider is asked now. It is for users who have just paid.

        Where the provider does not answer, it is what it said last; for 5 s after that, nobody asks it again. Each user
        may ask so a few times a minute: every such question is one to the provider.
        """
        named, left, _ = await self._session(token)
        await self.refuse_impatient(self.syncs, "sync", named.user)
        asked_ms = self.keys.now_ms()
        try:
            found = await self.memberships.refresh(
                self.keys.membership(named.user), lambda: self.loader.load(named.user)
            )
        except LoadFailed as error:
            raise unavailable(error) from None
        if found is None:
            raise token_expired()
        await self.entitlements.invalidate(self.keys.auth(named.session))
        return self._member(named, left, found, fresh_since_ms=asked_ms)

    async def refuse_impatient(self, limit: Limits | None, name: str, user: str) -> None:
        """Count a request of a user. Raises MembershipRefused where they ask too often, and StoreUnavailable where
        nobody can tell."""
        verdict = None if limit is None else await limit.hit(f"{name}:{user}")
        if verdict is None or verdict:
            return
        if verdict.store_is_down:
            raise StoreUnavailable("how often a user has asked cannot be counted: the store does not answer")
        reached = LimitReached.of(verdict)
        raise MembershipRefused("RATE_LIMITED", str(reached), retry_after_s=reached.retry_after_s)

    async def entitled(self, bearer: str) -> Entitled:
        """Who sent this access token or session token, and what they may do. One round trip, on a hit.

        An access token counts as long as its session does, and the chain of refresh tokens that it came with, whatever
        its own end is.
        """
        claimed = self.bearers.read(bearer)
        named, key = claimed.named, self.keys.auth(claimed.named.session)
        chain = [] if claimed.chain is None else [self.keys.refresh(claimed.chain).get()]
        is_there, held, *record, found = await self._each(
            self.keys.session(named.session).exists(), self.keys.user_token(named.user).get(), *chain, key.get()
        )
        if not is_there or held is None or named.session not in held.session_tokens:
            raise session_invalid()
        if chain and not is_alive(record[0], named):
            raise session_invalid()
        if found is None:
            try:
                found = await self.entitlements.get(key, lambda: self._entitlement(named))
            except LoadFailed as error:
                if isinstance(
                    error.__cause__, MembershipRefused | StoreError
                ):  # the database is away, not the provider
                    raise error.__cause__ from None
                raise unavailable(error) from None
        if found is None:
            raise session_invalid()
        # What an older version wrote does not say how old the plan is; then it is as old as what was written.
        as_of_ms = deadline_ms(found.plan_as_of or found.cached_at)
        return Entitled(named, found.plan, found.has_bonus_tokens, as_of_ms, self.is_stale(as_of_ms))

    async def _tell_misuse(self, event: RefreshEvent) -> None:
        """A refresh token that was used twice is in two hands: its whole chain has ended, with its access tokens."""
        self.site.count("membership", "refresh", "reused")
        fields = {"event": event.event, "reason": event.why, "user": event.user, "chain": event.chain}
        _security.warning(
            "membership: a refresh token was used again, so its chain and the access tokens of it have ended",
            extra={**fields, "client": ASKING.get()},
        )

    async def _session(self, token: str) -> tuple[Named, timedelta, CachedMembership | None]:
        """A session that counts, how long it lives, and what is remembered of its user: one round trip."""
        named = self.devices.named(token)
        if named is None:
            raise session_invalid()
        left, held, found = await self._each(
            self.keys.session(named.session).remaining(),
            self.keys.user_token(named.user).get(),
            self.keys.membership(named.user).get(),
        )
        if left is None or held is None or named.session not in held.session_tokens:
            # Another one is named: this one has ended, and who ended it did not come to its row. A row of the user that
            # cannot be read says nothing, as where a key is missing on the ring by mistake: that signs nobody out.
            if left is not None and held is not None:
                await self.devices.drop(named.session)
            raise session_invalid()
        return named, left, found

    async def _each(self, *operations: Any) -> list[Any]:
        """The results, with None for what cannot be read, and for a cache that is away.

        Raises the error of the store where what says who is signed in cannot be asked.
        """
        try:
            return list(await self.keys.run(*operations))
        except KeysteadError as error:
            results = list(error.results or ())
            if len(results) != len(operations):
                raise
            for one in results[:-1]:  # the last is what a cache remembers
                if isinstance(one, StoreError) and not isinstance(one, Unreadable):
                    raise one from None
            if any(isinstance(one, Exception) and not isinstance(one, Unreadable | StoreError) for one in results):
                raise
            return [None if isinstance(one, Exception) else one for one in results]

    async def membership_of(self, named: Named) -> CachedMembership:
        try:
            found = await self.memberships.get(self.keys.membership(named.user), lambda: self.loader.load(named.user))
        except LoadFailed as error:
            raise unavailable(error) from None
        if found is None:
            raise token_expired()
        return found

    async def _entitlement(self, named: Named) -> CachedAuth | None:
        left, held = await self.keys.run(
            self.keys.session(named.session).exists(), self.keys.user_token(named.user).get()
        )
        if not left or held is None or named.session not in held.session_tokens:
            return None
        found = await self.membership_of(named)
        plan = found.membership.plan
        bonus = await self.has_bonus_tokens(named.user, plan)
        return CachedAuth(
            user_id=named.user,
            plan=plan,
            has_bonus_tokens=bonus,
            cached_at=moment(self.keys.now_ms()),
            plan_as_of=found.cached_at,
        )

    async def has_bonus_tokens(self, user: str, plan: Plan) -> bool:
        return (await self.usage.status_of(user, plan)).has_bonus_tokens

    def _member(
        self, named: Named, left: timedelta, found: CachedMembership, fresh_since_ms: int | None = None
    ) -> Member:
        """`fresh_since_ms`: what was told before this moment is stale; without it, what should not be remembered."""
        as_of_ms = deadline_ms(found.cached_at)
        is_stale = self.is_stale(as_of_ms) if fresh_since_ms is None else as_of_ms < fresh_since_ms
        ends_ms = self.keys.now_ms() + left // timedelta(milliseconds=1)
        return Member(named, found.membership, ends_ms, as_of_ms, is_stale)

    def is_stale(self, as_of_ms: int) -> bool:
        """Whether the provider told this longer ago than it is asked again, so it does not answer."""
        return self.keys.now_ms() >= as_of_ms + (self.keys.membership.family.lifetime.longest_ms or 0)

    # --- signing out ---------------------------------------------------------------------------------------

    async def logout(self, bearer: str) -> bool:
        """End the session of a token, of either kind. False: it had ended, or never was one. Nobody is told which."""
        try:
            named = await self.bearers.find(bearer)
        except MembershipRefused:
            return False
        return await self.devices.end(named)

    async def logout_all(self, bearer: str) -> int:
        """End every session of the user, of which there is one, and say how many that were.

        Raises MembershipRefused for a session that has ended: the one on a newer device is not ended by an older one.
        """
        if not await self.devices.end(await self.bearers.find(bearer)):
            raise session_invalid()
        return 1

    async def is_current(self, named: Named) -> bool | None:
        """Whether a session is the one of its user. None: their row cannot be read, which says nothing: as where a key
        is missing on the ring by mistake. Then nobody is let in, and nothing is ended."""
        sessions = await self.sessions_of(named.user)
        return None if sessions is None else named.session in sessions

    async def sessions_of(self, user: str) -> list[UUID] | None:
        """The sessions of a user that count, of which there is one at most. None: their row cannot be read."""
        try:
            held = await self.keys.user_token(user).get()
        except Unreadable:
            return None
        return [] if held is None else held.session_tokens

    async def tokens_used(self, who: Entitled) -> int:
        """See `UsageAccounts.tokens_used`."""
        return await self.usage.tokens_used(who)

    async def record_usage(self, who: Entitled, event_id: str, tokens: int) -> Recorded:
        """See `UsageAccounts.record_usage`."""
        return await self.usage.record_usage(who, event_id, tokens)

    # --- what the provider and applications tell -----------------------------------------------------------

    async def webhook(self, body: bytes, signature: str | None, event: str) -> Heard:
        """What the provider tells of a user. The same event again changes nothing, whenever it comes.

        Every event drops what is remembered of the membership. One that says that the user does not pay any more ends
        their session, but for the end of a pledge: the time that was paid for goes on.
        """
        told = told_in(body, signature, event, self._webhook_secrets())
        user = None if told is None else told.user
        if told is None or not is_user(user):
            return Heard(event, None, False)
        # First what has changed, then the drop of what was remembered of it.
        try:
            noted = await self.ledger.note_plan_change(user, told.id, told.plan, event, self.keys.now_ms())
        except StoreError:
            await self.changed(user)  # the database is away, and the caches are not; the provider sends it again
            raise
        if told.ends_session and noted.is_new:
            await self.devices.end_all(user)
        else:
            await self.changed(user)
        if told.ends_session and not noted.is_new:
            await self._end_sessions_before(user, noted.at_ms)
        self.site.count("membership", "webhook", event.rpartition(":")[2])
        return Heard(event, user, noted.is_new and noted.is_change)

    def _webhook_secrets(self) -> list[SecretStr]:
        own = None if self.stand_in is None else self.stand_in.webhook_secret
        return [secret for secret in (self.settings.webhook_secret, own) if secret is not None]

    async def _end_sessions_before(self, user: str, at_ms: int) -> None:
        """End what an event should have ended when it first came, and did not because a process died over it.

        A session that began later stays: an old event, sent again by whomever, signs nobody out.
        """
        for session in await self.sessions_of(user) or ():
            if await self._began_before(session, at_ms):
                await self.devices.end(Named(user, session))

    async def _began_before(self, session: UUID, at_ms: int) -> bool:
        try:
            record = await self.keys.session(session).get()
        except Unreadable:
            return False
        return record is None or record.created_at is None or deadline_ms(record.created_at) <= at_ms

    async def changed(self, user: str) -> None:
        """Invalidate every cache entry of a user whose membership has changed."""
        await self.memberships.invalidate(self.keys.membership(user))
        for session in await self.sessions_of(user) or ():
            await self.entitlements.invalidate(self.keys.auth(session))

    async def _forget_user(self, user: str) -> None:
        """Whoever is signed out leaves nothing behind in a cache."""
        await self.memberships.invalidate(self.keys.membership(user))
        now_ms = self.keys.now_ms()
        quota_ms = self.keys.quota.family.lifetime.longest_ms or 0
        for month in {
            month_of(now_ms),
            month_of(now_ms - quota_ms),
        }:  # early in a month, last month's is still cached
            await self.quotas.invalidate(self.keys.quota(user, month))

    async def _forget(self, named: Named) -> None:
        await self.memberships.invalidate(self.keys.membership(named.user))
        await self.entitlements.invalidate(self.keys.auth(named.session))

    async def crash_report(self, told: dict[str, Any]) -> bool:
        """Keep a crash report. False: there is one with this id already, which is a success, too."""
        return await self.ledger.add_crash_report(crash_report_of(told), self.keys.now_ms())

    # --- what is kept for a while --------------------------------------------------------------------------

    @property
    def jobs(self) -> list[Job]:
        doc = "Deletes records of uses and crash reports that are kept long enough. The sums of the months stay."
        return [Job("membership.clean-up", "30 3 * * *", self._clean_up, doc=doc)]

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        now_ms, settings = self.keys.now_ms(), self.settings
        events = await _all(self.ledger.forget_usage_events, now_ms - duration_ms(settings.keep_usage_events))
        reports = await _all(self.ledger.forget_crash_reports, now_ms - duration_ms(settings.keep_crash_reports))
        return {"usage_events": events, "crash_reports": reports}


@asynccontextmanager
async def open_members(keys: MembershipKeys, settings: MembershipSettings, site: Site) -> AsyncIterator[Members]:
    """The service for these settings, with an HTTP client for the provider, on the open tables of the site."""
    ledger = Ledger(site.tables_for("membership"))
    async with httpx2.AsyncClient(follow_redirects=False, verify=httpx2.create_ssl_context()) as http:
        provider = provider_of(settings, stand_in_of(settings, site))
        members = Members(
            keys, settings, site, Patreon(provider, http, site.now_ms, development=site.development), ledger
        )
        try:
            yield members
        finally:
            await members.close()


async def _all(forget: Callable[..., Awaitable[int]], before_ms: int) -> int:
    """Delete in batches, so that no lock is held for long."""
    total = 0
    while count := await forget(before_ms, most=_PORTION):
        total += count
    return total


def _signing_keys(keys: MembershipKeys, settings: MembershipSettings) -> SigningKeys:
    if settings.signing_keys is not None:
        return settings.signing_keys
    if keys.ring is None:
        raise BadDeclaration("the membership kit seals tokens, so it needs keys: MembershipKeys(store, seal=…)")
    return SigningKeys.from_ring(keys.ring)
