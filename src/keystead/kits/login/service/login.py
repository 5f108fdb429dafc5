"""Sessions after sign-in: the signed-in user, tokens for programs, and sign-out."""

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

_security = logging.getLogger("keystead.security")


class Login:
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
        """Finish pending token refreshes before the store is closed."""
        await self._refresh.finish()

    @property
    def providers(self) -> list[str]:
        return list(self._clients)

    # --- the current session -----------------------------------------------------------------------------------

    async def session(self, token: str | None) -> Live[Session] | Gone:
        """The session of a token, after renewing the provider's tokens if they are about to expire. One round trip
        if they are not. A failed refresh leaves the session unchanged and is retried after five seconds.
        """
        live = await self.read_session(token)
        if not live or token is None or not self._refresh.is_due(live.session):
            return live
        return await self._refresh.renew(token, live)

    async def read_session_by_token(self, access_token: str) -> Live[Session] | None:
        """The session of a program's access token; None if this kit did not issue the token.

        Raises LoginRefused if the token has expired, or its session or chain has ended.
        """
        owner = self.tokens.verify(access_token)
        if owner is None:
            return None
        live, is_active = await in_one_turn(
            self._read_id(owner.user, owner.session), self.tokens.is_chain_active(owner)
        )
        if not live or not is_active:
            raise token_refused()
        return live

    async def _read_id(self, user: str, id: str) -> Live[Session] | Gone:
        return self._hide_unconfigured(await self.sessions.read_id(user, id))

    async def read_session(self, token: str | None) -> Live[Session] | Gone:
        """The session of a token. One round trip; never calls the provider."""
        if token is None:
            return Gone("unknown")
        live = await self.sessions.read(token)
        if not live and live.reason == "unknown":
            _security.info("login: a token that names no session", extra={"event": "unknown-token"})
        return self._hide_unconfigured(live)

    def _hide_unconfigured(self, live: Live[Session] | Gone) -> Live[Session] | Gone:
        if live and (live.session.provider or DISCORD) not in self._clients:
            # The provider of this session is no longer configured. The session is hidden, not revoked: a provider left
            # out by mistake, in one process or for an hour, must not sign users out.
            return Gone("unknown")
        return live

    # --- programs ------------------------------------------------------------------------------------------

    async def exchange(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> TokenPair:
        """Exchange a live session for tokens of a program. Raises LoginRefused."""
        live = await self._require_live(token)
        await self.audit.note("program-signed-in", who=f"login:{live.user}", what=live.id, where=visitor.where)
        return await self.tokens.exchange(live)

    async def next_tokens(self, refresh_token: str) -> TokenPair:
        """The next tokens of a program. Raises LoginRefused if its session has ended.

        Checks the session first, so that no refresh token is consumed while its provider is missing by mistake.
        """
        owner = await self.tokens.find(refresh_token)
        if owner is None or not await self._read_id(owner.user, owner.session):
            raise refresh_refused()
        return await self.tokens.next_pair(refresh_token)

    # --- logging out ---------------------------------------------------------------------------------------

    async def logout(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> None:
        """End the session of a token. Does not reveal whether there was one."""
        if token is not None:
            await self.sessions.revoke(token, Act(where=visitor.where))

    async def logout_program(self, access_token: str, visitor: Visitor = UNKNOWN_VISITOR) -> bool:
        """End the tokens of a program; its session continues. False if this kit did not issue the token."""
        try:
            owner = self.tokens.verify(access_token)
        except LoginRefused:
            return True  # already invalid; the response is the same
        if owner is not None and await self.tokens.end(owner):
            who = f"login:{owner.user}"
            await self.audit.note("program-signed-out", who=who, what=owner.session, where=visitor.where)
        return owner is not None

    async def logout_all(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> int:
        """End all sessions of the user. Raises LoginRefused if the sign-in is not recent."""
        live = await self._require_recent(token)
        return await self.sessions.revoke_all(live.user, Act(where=visitor.where))

    async def logout_others(self, token: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> int:
        """End all other sessions of the user. Raises LoginRefused if the sign-in is not recent."""
        await self._require_recent(token)
        return await self.sessions.revoke_others(token or "", Act(where=visitor.where))

    async def end(self, token: str | None, id: str, visitor: Visitor = UNKNOWN_VISITOR) -> bool:
        """End one session of the user: this one, or another if the sign-in is recent. False if there is none."""
        live = await self._require_live(token)
        if id == live.id:
            await self.logout(token, visitor)
            return True
        await self._require_recent(token)
        return await self.sessions.revoke_id(live.user, id, Act(where=visitor.where))

    async def remember(self, token: str | None, chosen: Mapping[str, str]) -> None:
        """Store the language or theme that the user of a session chose, for all their sessions, also future ones."""
        live = await self.read_session(token)
        if not live:
            return
        preferences = live.session.preferences.model_copy(update=chosen)
        await self.keys.preferences(live.user).set(preferences)
        for one in await self.sessions.list_for(live.user):
            await self.sessions.change_id(live.user, one.id, lambda session: session.model_copy(update=chosen))

    def start_path(self, session: Session) -> str:
        """The path to sign in again with the provider of a session."""
        return f"/api/auth/{session.provider or DISCORD}/start"

    async def list_sessions(self, token: str | None) -> tuple[Live[Session], list[Live[Session]]]:
        """The current session, and all sessions of its user, the latest sign-in first."""
        live = await self._require_live(token)
        return live, await self.sessions.list_for(live.user)

    async def _require_live(self, token: str | None) -> Live[Session]:
        live = await self.read_session(token)
        if not live:
            raise not_logged_in(live)
        return live

    async def _require_recent(self, token: str | None) -> Live[Session]:
        live = await self._require_live(token)
        age = moment(self.site.now_ms()) - live.session.created_at
        if age > timedelta(milliseconds=duration_ms(self.settings.recent)):
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
    """The login service, with one HTTP client per provider: a provider that hangs uses up only its own connections."""
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
