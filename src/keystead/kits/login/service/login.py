"""Sessions after the sign-in: who is signed in, tokens for programs, and signing out. It knows no HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import httpx2

from keystead.kits.kit import Site
from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import DISCORD, Session
from keystead.kits.login.revocation import Revocations
from keystead.kits.login.service.outcomes import UNKNOWN_VISITOR, LoginRefused, TokenPair, Visitor, not_logged_in
from keystead.kits.login.service.refresh import Refresh
from keystead.kits.login.service.settings import LIMITS, LoginSettings
from keystead.kits.login.service.sign_in import SignIns
from keystead.kits.login.service.tokens import ProgramTokens, refresh_refused, token_refused
from keystead.parts.audit import Audit
from keystead.parts.limit import NamedLimits
from keystead.parts.oauth import Client
from keystead.parts.sessions import Act, Gone, Live, Sessions
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import moment

_log = logging.getLogger("keystead.login")
_security = logging.getLogger("keystead.security")


class Login:
    """Logins, and the sessions that they make."""

    def __init__(
        self,
        keys: LoginKeys,
        settings: LoginSettings,
        site: Site,
        clients: Mapping[str, Client],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.keys = keys
        self.settings = settings
        self.site = site
        self.audit = Audit(keys.audit())
        self.revocations = Revocations(keys, clients, self._has_session_with)
        self.sessions: Sessions[Session] = Sessions(
            keys.session,
            settings.policy,
            successors=keys.session_successor,
            ends=keys.session_end,
            audit=self.audit,
            farewell=self.revocations.farewell,
        )
        self.limit = NamedLimits(keys.guesses, LIMITS | settings.limits, site.now_ms)
        self.tokens = ProgramTokens(keys, site.public_url, settings.token_lifetime, self.audit)
        self._clients = clients
        self.sign_ins = SignIns(keys, settings, site, clients, self.sessions, self.revocations, self.audit)
        self._refresh = Refresh(keys, self.sessions, clients, site, pause, self.revocations.revoke)

    async def close(self) -> None:
        """Save what providers have granted before the store is closed."""
        await self._refresh.finish()

    @property
    def providers(self) -> list[str]:
        return list(self._clients)

    # --- being logged in -----------------------------------------------------------------------------------

    async def session(self, token: str | None) -> Live[Session] | Gone:
        """Who is logged in. One round trip; the provider's tokens are renewed shortly before they expire.

        A refresh that fails leaves the session as it is, and is tried again after five seconds.
        """
        live = await self.seen(token)
        if not live or token is None or not self._refresh.is_due(live.session):
            return live
        return await self._refresh.renewed(token, live)

    async def seen_by_token(self, access_token: str) -> Live[Session] | None:
        """The same for a program, by its access token; None: that is no token of this kit.

        Raises LoginRefused for one that has expired, or whose session or chain has ended.
        """
        named = self.tokens.named(access_token)
        if named is None:
            return None
        live, counts = await in_one_turn(self._read_id(named.user, named.session), self.tokens.counts(named))
        if not live or not counts:
            raise token_refused()
        return live

    async def _read_id(self, user: str, id: str) -> Live[Session] | Gone:
        return self._drop_untrusted(await self.sessions.read_id(user, id))

    async def seen(self, token: str | None) -> Live[Session] | Gone:
        """Who is signed in, for every other request: one round trip, and no question to the provider."""
        if token is None:
            return Gone("unknown")
        live = await self.sessions.read(token)
        if not live and live.reason == "unknown":
            _security.info("login: a token that names no session", extra={"event": "unknown-token"})
        return self._drop_untrusted(live)

    def _drop_untrusted(self, live: Live[Session] | Gone) -> Live[Session] | Gone:
        if live and (live.session.provider or DISCORD) not in self._clients:
            # The provider of this session is no longer configured. The session is hidden, not revoked: a provider that
            # is missing by mistake, in one process or for an hour, signs nobody out.
            return Gone("unknown")
        return live

    # --- programs ------------------------------------------------------------------------------------------

    async def exchange(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> TokenPair:
        """Tokens for a program, for a session that is alive. Raises LoginRefused."""
        live = await self._require_live(token)
        await self.audit.note("program-signed-in", who=f"login:{live.user}", what=live.id, where=visitor.where)
        return await self.tokens.exchange(live)

    async def next_tokens(self, refresh_token: str) -> TokenPair:
        """The next tokens of a program. Raises LoginRefused where its session has ended.

        Whether the session is alive is asked first, so that nothing is used up for a provider that is missing by
        mistake.
        """
        named = await self.tokens.find(refresh_token)
        if named is None or not await self._read_id(named.user, named.session):
            raise refresh_refused()
        return await self.tokens.next_pair(refresh_token)

    # --- logging out ---------------------------------------------------------------------------------------

    async def logout(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> None:
        """End the session of a token. Whether there was one is not told."""
        if token is not None:
            await self.sessions.revoke(token, Act(where=visitor.where))

    async def logout_program(self, access_token: str, visitor: Visitor = UNKNOWN_VISITOR) -> bool:
        """End the tokens of a program; the session that they came of goes on. False: it is no token of this kit."""
        try:
            named = self.tokens.named(access_token)
        except LoginRefused:
            return True  # it has ended already; nobody is told which it was
        if named is not None and await self.tokens.end(named):
            who = f"login:{named.user}"
            await self.audit.note("program-signed-out", who=who, what=named.session, where=visitor.where)
        return named is not None

    async def logout_all(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> int:
        """End all sessions of the user. Raises LoginRefused where the login is not recent."""
        live = await self._require_recent(token)
        return await self.sessions.revoke_all(live.user, Act(where=visitor.where))

    async def logout_others(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> int:
        """End all other sessions of the user. Raises LoginRefused where the login is not recent."""
        await self._require_recent(token)
        return await self.sessions.revoke_others(token or "", Act(where=visitor.where))

    async def end(self, token: str | None, id: str, visitor: Visitor = UNKNOWN_VISITOR) -> bool:
        """End one session of the user, the own one or, after a recent login, another. False: there is no such."""
        live = await self._require_live(token)
        if id == live.id:
            await self.logout(token, visitor)
            return True
        await self._require_recent(token)
        return await self.sessions.revoke_id(live.user, id, Act(where=visitor.where))

    def start_path(self, session: Session) -> str:
        """Where the user of a session signs in again, at the same provider."""
        return f"/api/auth/{session.provider or DISCORD}/start"

    async def all_of(self, token: str | None) -> tuple[Live[Session], list[Live[Session]]]:
        """The own session, and all sessions of the user, the latest login first."""
        live = await self._require_live(token)
        return live, await self.sessions.list_for(live.user)

    async def _require_live(self, token: str | None) -> Live[Session]:
        live = await self.seen(token)
        if not live:
            raise not_logged_in(live)
        return live

    async def _require_recent(self, token: str | None) -> Live[Session]:
        live = await self._require_live(token)
        if moment(self.site.now_ms()) - live.session.created_at > timedelta(
            milliseconds=duration_ms(self.settings.recent)
        ):
            raise LoginRefused(
                "LOGIN_AGAIN",
                "you signed in too long ago to end other sessions; sign in again",
                start_url=self.start_path(live.session),
            )
        return live

    async def _has_session_with(self, user: str, provider: str) -> bool:
        return any((live.session.provider or DISCORD) == provider for live in await self.sessions.list_for(user))


@asynccontextmanager
async def open_login(keys: LoginKeys, settings: LoginSettings, site: Site) -> AsyncIterator[Login]:
    """The service for these settings, with an HTTP client for each provider: one that hangs uses up only its own
    connections."""
    async with AsyncExitStack() as opened:
        providers = {name: one.provider(name) for name, one in settings.providers.items()} | dict(site.providers)
        tls = httpx2.create_ssl_context()
        clients: dict[str, Client] = {}
        for name, provider in providers.items():
            http = await opened.enter_async_context(httpx2.AsyncClient(follow_redirects=False, verify=tls))
            clients[name] = Client(provider, http, site.now_ms, development=site.development)
        login = Login(keys, settings, site, clients)
        async with login.revocations.outbox:
            try:
                yield login
            finally:
                await login.close()
