"""What a member can do, from the sign-in to the logout, and what the provider tells of them. It knows no HTTP."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import date, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import httpx2
from pydantic import SecretStr

from keystead.errors import BadDeclaration, KeysteadError, StoreError, StoreUnavailable, Unreadable
from keystead.kits.kit import Site, StandIn
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import (
    CachedAuth,
    CachedMembership,
    CachedQuota,
    ParsedMembership,
    Plan,
    RefreshTokenData,
    UserTokenData,
)
from keystead.kits.membership.service.account import Account
from keystead.kits.membership.service.consents import Consents
from keystead.kits.membership.service.crash_reports import crash_report_of
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.ledger_records import Recorded, Status, ToldPlan
from keystead.kits.membership.service.outcomes import (
    ASKING,
    Entitled,
    Heard,
    KnownPlan,
    Member,
    MembershipRefused,
    Named,
    SignedIn,
    TokenPair,
    session_invalid,
    token_expired,
)
from keystead.kits.membership.service.patreon import Patreon, TokenRejected, code_form
from keystead.kits.membership.service.programs import Programs
from keystead.kits.membership.service.promotions import Promotions
from keystead.kits.membership.service.settings import LIMITS, PATREON, MembershipSettings
from keystead.kits.membership.service.tables import is_user
from keystead.kits.membership.service.translation import Translation
from keystead.kits.membership.service.webhook import told_in
from keystead.parts.apikeys import ApiKeys
from keystead.parts.cache import Cache, LoadFailed, TryLater
from keystead.parts.jwt import Access, AccessTokens, SigningKeys
from keystead.parts.limit import AlignedWindow, FixedWindow, LimitReached, Limits, Rate, WhenDown
from keystead.parts.oauth import BadAnswer, Provider, ProviderRefused, ProviderUnavailable, Tokens
from keystead.parts.refresh import NewChain, RefreshEvent, RefreshTokens, Retried, Rotated, RotationRefused
from keystead.parts.renewal import Fresh, HeldTokens, Over, Renewal
from keystead.parts.schedule import Job, Run
from keystead.schema import Bound
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.membership")
_security = logging.getLogger("keystead.security")

_MINUTE_MS: Final = 60_000
_APP_SESSION_MOST: Final = 128
_PORTION: Final = 1_000
_TRY_AGAIN_S: Final = 5
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,2048}=*", re.ASCII)
_CHAIN: Final = re.compile(r"[\w-]{43}", re.ASCII)

TRY_PATH: Final = "/membership/try"


class _Claimed(NamedTuple):
    """What a bearer token names. `chain` is that of the refresh tokens that an access token came with."""

    named: Named
    chain: str | None


class _Profile(NamedTuple):
    """Whom an access token is for."""

    subject: str
    has_bonus_tokens: bool


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
        self._renewal: Renewal[UserTokenData] = Renewal(patreon, keys.renewing, held=_held, renewed=self._renewed)
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
        await self._renewal.finish()
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
        self._refuse_sign_in(redirect_uri)
        with _failing("TOKEN_EXCHANGE_FAILED", "the code could not be exchanged; sign in again"):
            tokens = await self._patreon.tokens_for(code, redirect_uri, verifier)
        with _failing("IDENTITY_FETCH_FAILED", "the provider does not say who this is; sign in again"):
            told = await self._patreon.membership(tokens.access_token, self.settings.campaign)
        # Before the swap, too: where this fails, the session on the other device is still good.
        await self.memberships.invalidate(self.keys.membership(told.user_id))
        token, named = await self.devices.admit(told.user_id, tokens, told.email, told.full_name)
        await self._forget(named)
        try:
            found = await self.memberships.get(self.keys.membership(named.user), lambda: self._asked(named.user))
        except LoadFailed:
            found = None
        self.site.count("membership", "sign-in", "succeeded")
        now_ms = self.keys.now_ms()
        if found is None:
            found = CachedMembership(membership=told, cached_at=moment(now_ms))
        lifetime = timedelta(milliseconds=self.keys.session.family.lifetime.longest_ms or 0)
        return SignedIn(token, self._member(named, lifetime, found))

    async def exchange_code(self, code: str, redirect_uri: str, verifier: str | None = None) -> dict[str, Any]:
        """The provider's own tokens for a code, for an application that keeps them itself. No session begins."""
        self._refuse_sign_in(redirect_uri)
        with _failing("TOKEN_EXCHANGE_FAILED", "the code could not be exchanged; sign in again"):
            return await self._patreon.raw_tokens(code_form(code, redirect_uri, verifier))

    async def exchange_refresh_token(self, refresh_token: str) -> dict[str, Any]:
        """The provider's own next tokens, for the same application."""
        self._refuse_sign_in(None)
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        with _failing("TOKEN_EXCHANGE_FAILED", "the refresh token could not be exchanged; sign in again"):
            return await self._patreon.raw_tokens(form)

    async def membership_by(self, access_token: str) -> ParsedMembership:
        """What the provider says of whoever has this access token of its own. Nothing is remembered."""
        self._refuse_sign_in(None)
        if not _BEARER.fullmatch(access_token):
            raise token_expired()
        with _failing("IDENTITY_FETCH_FAILED", "the provider does not say who this is; sign in again"):
            try:
                return await self._patreon.membership(access_token, self.settings.campaign)
            except TokenRejected:
                raise token_expired() from None

    def _refuse_sign_in(self, redirect_uri: str | None) -> None:
        """Raises MembershipRefused where sign-ins do not return to this address, or nobody can sign in at all."""
        if redirect_uri is not None and not self._may_return_to(redirect_uri):
            raise MembershipRefused("INVALID_REDIRECT_URI", "sign-ins do not return to this address")
        if not self.settings.client_id and self.stand_in is None:
            raise MembershipRefused(
                "CONFIG_ERROR", "nobody can sign in: set PATREON_CLIENT_ID and PATREON_CLIENT_SECRET, and restart"
            )

    def _may_return_to(self, uri: str) -> bool:
        """Exactly one of the list. Without a list nothing is, but in development.

        The page that shows the kit with a stand-in is always one.
        """
        if self.stand_in is not None and uri == f"{self.site.public_url}{TRY_PATH}":
            return True
        if not self.settings.redirect_uris:
            return self.site.development
        return uri in self.settings.redirect_uris

    # --- being signed in -----------------------------------------------------------------------------------

    async def validate(self, token: str) -> Member:
        """Who has this session, and what they pay for. One round trip, unless the provider has to be asked."""
        named, left, found = await self._session(token)
        if found is None:
            found = await self._membership(named)
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
            found = await self.memberships.refresh(self.keys.membership(named.user), lambda: self._asked(named.user))
        except LoadFailed as error:
            raise _unavailable(error) from None
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
        claimed = self._claimed(bearer)
        named, key = claimed.named, self.keys.auth(claimed.named.session)
        chain = [] if claimed.chain is None else [self.keys.refresh(claimed.chain).get()]
        is_there, held, *record, found = await self._each(
            self.keys.session(named.session).exists(), self.keys.user_token(named.user).get(), *chain, key.get()
        )
        if not is_there or held is None or named.session not in held.session_tokens:
            raise session_invalid()
        if chain and not _is_alive(record[0], named):
            raise session_invalid()
        if found is None:
            try:
                found = await self.entitlements.get(key, lambda: self._entitlement(named))
            except LoadFailed as error:
                if isinstance(
                    error.__cause__, MembershipRefused | StoreError
                ):  # the database is away, not the provider
                    raise error.__cause__ from None
                raise _unavailable(error) from None
        if found is None:
            raise session_invalid()
        # What an older version wrote does not say how old the plan is; then it is as old as what was written.
        as_of_ms = deadline_ms(found.plan_as_of or found.cached_at)
        return Entitled(named, found.plan, found.has_bonus_tokens, as_of_ms, self._is_stale(as_of_ms))

    def _claimed(self, bearer: str) -> _Claimed:
        """What a bearer token of either kind names. It asks nobody."""
        if bearer.count(".") == 1:
            named = self.devices.named(bearer)
            if named is None:
                raise session_invalid()
            return _Claimed(named, None)
        access = self.access.check(bearer)
        claimed = _claims_of(access) if isinstance(access, Access) else None
        if claimed is None:
            self._note_refused("claims" if isinstance(access, Access) else access.reason)
            raise session_invalid()
        return claimed

    def _note_refused(self, reason: str) -> None:
        """A token that nobody of ours made is an event. One that has expired is what honest clients come with."""
        level = logging.INFO if reason == "expired" else logging.WARNING
        event = {"event": "refused-token", "reason": reason, "client": ASKING.get()}
        _security.log(level, "membership: a bearer token was refused: %s", reason, extra=event)

    async def _named(self, bearer: str) -> Named:
        """What a bearer token names, unless it came with a chain of refresh tokens that has ended."""
        claimed = self._claimed(bearer)
        if claimed.chain is not None:
            record = await self.keys.refresh(claimed.chain).get().if_readable()
            if not _is_alive(record, claimed.named):
                raise session_invalid()
        return claimed.named

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

    async def _membership(self, named: Named) -> CachedMembership:
        try:
            found = await self.memberships.get(self.keys.membership(named.user), lambda: self._asked(named.user))
        except LoadFailed as error:
            raise _unavailable(error) from None
        if found is None:
            raise token_expired()
        return found

    async def _asked(self, user: str) -> CachedMembership | None:
        """What the provider says now; None: the user is not signed in any more, or the provider says that they are not.

        Who may interleave: a logout. It deletes the row of the user before it drops the mark of this load. So either
        the row is gone when it is read here, or the mark is when the answer is to be written.
        """
        row = self.keys.user_token(user)
        for _ in range(2):
            before = await row.get()
            fresh = await self._renewal.fresh(row)
            if before is None or isinstance(fresh, Over):
                if before is not None and isinstance(fresh, Over) and fresh.reason == "refused":
                    again = await row.get()
                    if again is not None and again.session_tokens != before.session_tokens:
                        continue  # they have just signed in again, with tokens that nobody refused
                    await self._withdrawn(user, before)
                return None
            if not isinstance(fresh, Fresh):
                raise ProviderUnavailable(
                    self._patreon.provider.name, f"its tokens could not be renewed ({fresh.reason})"
                )
            try:
                told = await self._patreon.membership(fresh.value.access_token, self.settings.campaign)
            except TokenRejected:
                again = await row.get()
                if again is None or again.access_token == fresh.value.access_token:
                    await self._withdrawn(user, fresh.value)
                    return None
                continue  # it was renewed meanwhile, and the provider takes only the new one
            if fresh.was_renewed:
                await self._copied(fresh.value)
            if told.user_id != user:
                raise BadAnswer(self._patreon.provider.name, "its identity endpoint speaks of somebody else")
            asked_at = moment(self.keys.now_ms())
            told = told.model_copy(update={"has_bonus_tokens": await self._bonus_if_known(user, told.plan)})
            return CachedMembership(membership=told, cached_at=asked_at)
        raise ProviderUnavailable(self._patreon.provider.name, "it takes none of its tokens")

    async def _copied(self, held: UserTokenData) -> None:
        """The session shows the tokens that its user has now, as in the document. It is changed, and never revived."""
        renewed = {
            "access_token": held.access_token,
            "refresh_token": held.refresh_token,
            "expires_at": held.expires_at,
        }
        for session in held.session_tokens:
            await self.keys.session(session).change(lambda record: record.model_copy(update=renewed))

    async def _withdrawn(self, user: str, held: UserTokenData) -> None:
        """The user took back at the provider what they had allowed us: the session ends that had these tokens.

        Who may interleave: a new sign-in. Its session is another one, and stays.
        """
        _security.info("membership: the provider does not take a user's tokens any more", extra={"event": "withdrawn"})
        self.site.count("membership", "session", "withdrawn")
        for session in held.session_tokens:
            await self.devices.end(Named(user, session))

    async def _entitlement(self, named: Named) -> CachedAuth | None:
        left, held = await self.keys.run(
            self.keys.session(named.session).exists(), self.keys.user_token(named.user).get()
        )
        if not left or held is None or named.session not in held.session_tokens:
            return None
        found = await self._membership(named)
        plan = found.membership.plan
        bonus = await self._has_bonus_tokens(named.user, plan)
        return CachedAuth(
            user_id=named.user,
            plan=plan,
            has_bonus_tokens=bonus,
            cached_at=moment(self.keys.now_ms()),
            plan_as_of=found.cached_at,
        )

    async def _has_bonus_tokens(self, user: str, plan: Plan) -> bool:
        return (await self.status_of(user, plan)).has_bonus_tokens

    async def _bonus_if_known(self, user: str, plan: Plan) -> bool:
        """Whether somebody has bonus tokens, for what is remembered of their membership. Sessions go on while the
        database is away; the routes that tell of bonus tokens ask it themselves."""
        try:
            return await self._has_bonus_tokens(user, plan)
        except StoreError as error:
            _log.warning("membership: whether a user has bonus tokens is not known: %s", error.code)
            return False

    def _member(
        self, named: Named, left: timedelta, found: CachedMembership, fresh_since_ms: int | None = None
    ) -> Member:
        """`fresh_since_ms`: what was told before this moment is stale; without it, what should not be remembered."""
        as_of_ms = deadline_ms(found.cached_at)
        is_stale = self._is_stale(as_of_ms) if fresh_since_ms is None else as_of_ms < fresh_since_ms
        ends_ms = self.keys.now_ms() + left // timedelta(milliseconds=1)
        return Member(named, found.membership, ends_ms, as_of_ms, is_stale)

    def _is_stale(self, as_of_ms: int) -> bool:
        """Whether the provider told this longer ago than it is asked again, so it does not answer."""
        return self.keys.now_ms() >= as_of_ms + (self.keys.membership.family.lifetime.longest_ms or 0)

    # --- signing out ---------------------------------------------------------------------------------------

    async def logout(self, bearer: str) -> bool:
        """End the session of a token, of either kind. False: it had ended, or never was one. Nobody is told which."""
        try:
            named = await self._named(bearer)
        except MembershipRefused:
            return False
        return await self.devices.end(named)

    async def logout_all(self, bearer: str) -> int:
        """End every session of the user, of which there is one, and say how many that were.

        Raises MembershipRefused for a session that has ended: the one on a newer device is not ended by an older one.
        """
        if not await self.devices.end(await self._named(bearer)):
            raise session_invalid()
        return 1

    # --- tokens --------------------------------------------------------------------------------------------

    async def tokens(self, token: str, app_session: str | None = None) -> TokenPair:
        """An access token and a refresh token for a session. Those that it had before end: a session has one pair."""
        member = await self.validate(token)
        named, profile = member.named, await self._profile(member.membership, member.as_of_ms)
        begun = await self.refresh.begin(
            RefreshTokenData(user_id=named.user, session_token=named.session, audience=self.settings.audience)
        )
        row = self.keys.refresh_chain(named.session)
        before, _ = (await self.keys.atomically(row.get(), row.set(begun.id))).values
        if before is not None:
            await self.refresh.revoke_chain(before)
        # A logout that came between may not have seen the new chain, or only the row that named it: it leads nowhere,
        # and is not left behind.
        counts = await self._counts(named)
        if not counts:
            await self.refresh.revoke_chain(begun.id)
            if counts is not None:
                await self.devices.drop(named.session)
            raise session_invalid()
        return self._pair(named, member.membership.plan, profile, begun, app_session, is_stale=member.is_stale)

    async def refreshed(self, refresh_token: str, app_session: str | None = None) -> TokenPair:
        """The next pair for a refresh token. It may be sent again for as long as the grace, and gets the same.

        All that can fail is asked before the token is used up: who is refused because the provider or the database is
        away comes again with the same token, whenever that is.
        """
        record = await self.refresh.examine(refresh_token)
        if isinstance(record, RotationRefused):
            raise _bad_refresh_token()
        named = Named(record.user_id, record.session_token)
        counts = await self._counts(named)
        if not counts:
            if counts is not None:
                await self.devices.drop(named.session)
                await self.refresh.revoke(refresh_token)
            raise _session_expired()
        known = await self._membership(named)
        membership, as_of_ms = known.membership, deadline_ms(known.cached_at)
        profile = await self._profile(membership, as_of_ms)
        found = await self.refresh.rotate(refresh_token)
        if isinstance(found, RotationRefused):
            raise _session_expired() if found.reason == "session" else _bad_refresh_token()
        return self._pair(named, membership.plan, profile, found, app_session, is_stale=self._is_stale(as_of_ms))

    async def _counts(self, named: Named) -> bool | None:
        """Whether a session is the one of its user. None: their row cannot be read, which says nothing: as where a key
        is missing on the ring by mistake. Then nobody is let in, and nothing is ended."""
        sessions = await self._sessions(named.user)
        return None if sessions is None else named.session in sessions

    async def _sessions(self, user: str) -> list[UUID] | None:
        """The sessions of a user that count, of which there is one at most. None: their row cannot be read."""
        try:
            held = await self.keys.user_token(user).get()
        except Unreadable:
            return None
        return [] if held is None else held.session_tokens

    async def _profile(self, membership: ParsedMembership, as_of_ms: int) -> _Profile:
        """Whom an access token is for. The database learns here what the provider said of them."""
        user, plan = membership.user_id, ToldPlan(membership.plan, as_of_ms)
        email, name = membership.email or None, membership.full_name or None
        found = await self.ledger.profile_of(user, self.keys.now_ms(), email=email, full_name=name, plan=plan)
        return _Profile(str(found.id), await self._has_bonus_tokens(user, membership.plan))

    def _pair(
        self,
        named: Named,
        plan: Plan,
        profile: _Profile,
        refresh: NewChain[RefreshTokenData] | Rotated[RefreshTokenData] | Retried[RefreshTokenData],
        app_session: str | None,
        *,
        is_stale: bool,
    ) -> TokenPair:
        claims: dict[str, Any] = {
            "plan": plan,
            "hasBonusTokens": profile.has_bonus_tokens,
            "ver": 1,
            "pid": named.user,
            "ses": str(named.session),
            "chn": refresh.id,
        }
        if is_stale:
            claims["planIsStale"] = True
        if app_session:
            claims["sid"] = app_session[:_APP_SESSION_MOST]
        new = self.access.issue(profile.subject, **claims)
        return TokenPair(new.token, refresh.token, new.expires_in_s)

    # --- the quota -----------------------------------------------------------------------------------------

    async def quota(self, bearer: str) -> tuple[Entitled, Status]:
        """How somebody stands this month, past the cache: the database is asked."""
        who = await self.entitled(bearer)
        return who, await self.status_of(who.named.user, who.plan)

    async def tokens_used(self, who: Entitled) -> int:
        """How many tokens somebody has used this month, as it was known within the last 5 minutes, or since the last
        use that was recorded here."""
        user, month = who.named.user, _month(self.keys.now_ms())

        async def asked() -> CachedQuota | None:
            if not await self._counts(who.named):  # signed out meanwhile: nothing is left behind
                return None
            used = (await self.ledger.usage(user, f"{month:%Y-%m}")).tokens_used
            return CachedQuota(tokens_used=used, cached_at=moment(self.keys.now_ms()))

        found = await self.quotas.get(self.keys.quota(user, month), asked)
        return 0 if found is None else found.tokens_used

    async def record_usage(self, who: Entitled, event_id: str, tokens: int) -> Recorded:
        """Count what somebody has used, once for each event. What is remembered of their quota is dropped after it."""
        return await self.count_usage(who.named.user, who.plan, event_id, tokens)

    async def count_usage(self, user: str, plan: Plan, event_id: str, tokens: int) -> Recorded:
        """The same for somebody who need not be signed in."""
        now_ms = self.keys.now_ms()
        recorded = await self.ledger.record_usage(user, plan, event_id, tokens, now_ms)
        await self.quotas.invalidate(self.keys.quota(user, _month(now_ms)))
        if recorded.from_bonus:
            await self.bonuses_changed(user)
        return recorded

    async def grant_bonus(self, user: str, bonus_id: str, tokens: int, source: str) -> bool:
        """Give a user tokens beside their quota. False: they had this bonus already, and it is as it was."""
        is_new = await self.ledger.grant_bonus(user, bonus_id, tokens, source, self.keys.now_ms())
        await self.bonuses_changed(user)
        return is_new

    async def bonuses_changed(self, user: str) -> None:
        """Bonus tokens were granted or used: what is remembered of a user says from now on whether there are some.

        The membership itself stays: to drop it would make its plan depend on a provider that may be away. Who may
        interleave: a question to the provider that read the ledger before and writes after this. Then the flag in the
        cache is wrong until the next question; no route goes by it, they all ask the ledger.
        """
        has_bonus = await self._has_bonus_tokens(user, "Free")

        def told(cached: CachedMembership) -> CachedMembership:
            membership = cached.membership.model_copy(update={"has_bonus_tokens": has_bonus})
            return cached.model_copy(update={"membership": membership})

        for family in (self.keys.membership, self.keys.membership_stale):
            with suppress(Unreadable):
                await family(user).change(told)
        for session in await self._sessions(user) or ():
            await self.entitlements.invalidate(self.keys.auth(session))

    async def plan_of(self, user: str, *, may_be_stale: bool = False) -> KnownPlan:
        """What a user pays for, whether they are signed in or not: what the provider says where it can be asked with
        their tokens, else what it said last, and Free where nobody ever said.

        Where they are signed in and the provider does not answer, it is what it said last if that may be stale, and
        MembershipRefused otherwise: to go by an old plan could spend bonus tokens in the place of the quota.
        """
        is_stale = False
        if await self._sessions(user):
            try:
                found = await self.memberships.get(self.keys.membership(user), lambda: self._asked(user))
            except LoadFailed as error:
                if not may_be_stale:
                    raise _unavailable(error) from None
                found, is_stale = None, True
            if found is not None:
                return KnownPlan(found.membership.plan, self._is_stale(deadline_ms(found.cached_at)))
        return KnownPlan(await self.ledger.plan_of(user) or "Free", is_stale)

    async def status_of(self, user: str, plan: Plan) -> Status:
        """How somebody stands this month, past the cache."""
        return await self.ledger.status(user, plan, self.keys.now_ms())

    def month_ends_s(self) -> int:
        """When the quota begins anew: the first of the next month, UTC, in seconds since 1970."""
        now = moment(self.keys.now_ms())
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return int((start + timedelta(days=32)).replace(day=1).timestamp())

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
            await self._end_those_before(user, noted.at_ms)
        self.site.count("membership", "webhook", event.rpartition(":")[2])
        return Heard(event, user, noted.is_new and noted.is_change)

    def _webhook_secrets(self) -> list[SecretStr]:
        own = None if self.stand_in is None else self.stand_in.webhook_secret
        return [secret for secret in (self.settings.webhook_secret, own) if secret is not None]

    async def _end_those_before(self, user: str, at_ms: int) -> None:
        """End what an event should have ended when it first came, and did not because a process died over it.

        A session that began later stays: an old event, sent again by whomever, signs nobody out.
        """
        for session in await self._sessions(user) or ():
            if await self._began_before(session, at_ms):
                await self.devices.end(Named(user, session))

    async def _began_before(self, session: UUID, at_ms: int) -> bool:
        try:
            record = await self.keys.session(session).get()
        except Unreadable:
            return False
        return record is None or record.created_at is None or deadline_ms(record.created_at) <= at_ms

    async def changed(self, user: str) -> None:
        """Somebody's membership has changed: it is out of every cache when this returns."""
        await self.memberships.invalidate(self.keys.membership(user))
        for session in await self._sessions(user) or ():
            await self.entitlements.invalidate(self.keys.auth(session))

    async def _forget_user(self, user: str) -> None:
        """Whoever is signed out leaves nothing behind in a cache."""
        await self.memberships.invalidate(self.keys.membership(user))
        now_ms = self.keys.now_ms()
        quota_ms = self.keys.quota.family.lifetime.longest_ms or 0
        for month in {_month(now_ms), _month(now_ms - quota_ms)}:  # at the beginning of one, that of the last is there
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

    # --- the provider's tokens -----------------------------------------------------------------------------

    def _renewed(self, held: UserTokenData, tokens: Tokens) -> UserTokenData:
        return held.model_copy(
            update={
                "access_token": tokens.access_token,
                "refresh_token": tokens.refresh_token or held.refresh_token,
                "expires_at": moment(tokens.expires_at_ms),
                "updated_at": moment(self.keys.now_ms()),
            }
        )


@asynccontextmanager
async def open_members(keys: MembershipKeys, settings: MembershipSettings, site: Site) -> AsyncIterator[Members]:
    """The service for these settings, with an HTTP client for the provider, on the open tables of the site."""
    ledger = Ledger(site.tables_for("membership"))
    async with httpx2.AsyncClient(follow_redirects=False, verify=httpx2.create_ssl_context()) as http:
        provider = _provider(settings, stand_in_of(settings, site))
        members = Members(
            keys, settings, site, Patreon(provider, http, site.now_ms, development=site.development), ledger
        )
        try:
            yield members
        finally:
            await members.close()


def stand_in_of(settings: MembershipSettings, site: Site) -> StandIn | None:
    """Who answers in the place of the provider, where there is no client of it. In production there is nobody."""
    return None if settings.client_id else site.stand_ins.get(PATREON.name)


def _provider(settings: MembershipSettings, stand_in: StandIn | None) -> Provider:
    if stand_in is not None:
        return stand_in.provider
    # In development the kit starts without a client. Nobody can sign in then, and the provider is not asked.
    return settings.provider if settings.client_id else settings.provider.configured(**_UNSET)


_UNSET: Final = {"client_id": "unset", "client_secret": "unset"}


@contextmanager
def _failing(reason: str, sentence: str) -> Iterator[None]:
    """Turns what goes wrong with the provider at a sign-in into a refusal. Its own words are not repeated."""
    try:
        yield
    except ProviderRefused as error:
        _log.info("membership: %s", error)
        raise MembershipRefused(reason, sentence) from None
    except KeysteadError as error:
        if isinstance(error, StoreError | MembershipRefused):
            raise
        _log.warning("membership: the provider could not be asked: %s", error.code)
        wait_s = -(-error.after_ms // 1000) if isinstance(error, TryLater) else _TRY_AGAIN_S
        raise MembershipRefused(
            "PROVIDER_UNAVAILABLE", "the provider does not answer as it should; try again", retry_after_s=wait_s
        ) from None


async def _all(forget: Callable[..., Awaitable[int]], before_ms: int) -> int:
    """Forget in portions, so that nobody waits long for a lock."""
    total = 0
    while count := await forget(before_ms, most=_PORTION):
        total += count
    return total


def _month(at_ms: int) -> date:
    return moment(at_ms).date().replace(day=1)


def _unavailable(error: LoadFailed) -> MembershipRefused:
    wait = max(1, -(-int(error.retry_after.total_seconds() * 1000) // 1000))
    return MembershipRefused(
        "PROVIDER_UNAVAILABLE",
        "what is paid for cannot be asked at the moment; sessions stay as they are; try again",
        retry_after_s=wait,
    )


def _session_expired() -> MembershipRefused:
    return MembershipRefused("SESSION_EXPIRED", "the session of this token has ended; sign in again")


def _bad_refresh_token() -> MembershipRefused:
    return MembershipRefused("INVALID_REFRESH_TOKEN", "this refresh token does not count; sign in again")


def _signing_keys(keys: MembershipKeys, settings: MembershipSettings) -> SigningKeys:
    if settings.signing_keys is not None:
        return settings.signing_keys
    if keys.ring is None:
        raise BadDeclaration("the membership kit seals tokens, so it needs keys: MembershipKeys(store, seal=…)")
    return SigningKeys.from_ring(keys.ring)


def _held(row: UserTokenData) -> HeldTokens:
    return HeldTokens(row.access_token, row.refresh_token or None, deadline_ms(row.expires_at))


def _claims_of(access: Access) -> _Claimed | None:
    """What an access token names; None: it is signed by our key, and yet no token of this kit."""
    user, session, chain = (access.claims.get(name) for name in ("pid", "ses", "chn"))
    if not is_user(user) or not isinstance(session, str) or not isinstance(chain, str) or not _CHAIN.fullmatch(chain):
        return None
    try:
        UUID(access.sub)  # the id of a profile
        return _Claimed(Named(user, UUID(session)), chain)
    except ValueError:
        return None


def _is_alive(record: RefreshTokenData | None, named: Named) -> bool:
    """Whether a chain of refresh tokens is that of this session, and has not ended."""
    return record is not None and not record.is_used and record.session_token == named.session
