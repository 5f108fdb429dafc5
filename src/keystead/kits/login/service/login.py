"""What a login does, from the first click to the last logout. It knows no HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx2

from keystead.errors import Unreadable
from keystead.kits.kit import Site
from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import (
    DISCORD,
    AuthState,
    LoginContext,
    PendingLogin,
    PwaSession,
    PwaSessionMetadata,
    Session,
)
from keystead.kits.login.service.outcomes import Finished, LoginRefused, Started, Unconfirmed, not_logged_in
from keystead.kits.login.service.refresh import Refresh
from keystead.kits.login.service.secret import claim_digest, is_secret, new_secret
from keystead.kits.login.service.settings import LIMITS, LoginSettings, is_return_path
from keystead.parts.digest import digest, same
from keystead.parts.limit import NamedLimits
from keystead.parts.oauth import (
    Client,
    Identity,
    OAuthError,
    ProviderUnavailable,
    Tokens,
    challenge_of,
    error_word,
    new_verifier,
)
from keystead.parts.sessions import Gone, Live, New, Sessions
from keystead.parts.sessions.token import USER_MAX_BYTES
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import moment

_log = logging.getLogger("keystead.login")
_security = logging.getLogger("keystead.security")


T = TypeVar("T")


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
        self.sessions: Sessions[Session] = Sessions(
            keys.session, settings.policy, successors=keys.session_successor, ends=keys.session_end
        )
        self.limit = NamedLimits(keys.guesses, LIMITS | settings.limits, site.now_ms)
        self._clients = clients
        self._refresh = Refresh(keys, self.sessions, clients, site, pause)

    async def close(self) -> None:
        """Save what providers have granted before the store is closed."""
        await self._refresh.finish()

    @property
    def providers(self) -> list[str]:
        return list(self._clients)

    # --- logging in ----------------------------------------------------------------------------------------

    async def start(
        self, provider: str, *, context: LoginContext, return_to: str | None, browser: str | None
    ) -> Started:
        """Begin a login. `browser` is the secret of this browser from another tab, if it has one: all tabs share it.

        The path to return to is checked here, so that nothing a callback brings can choose it.
        """
        client = self._client(provider)
        if return_to is not None and not is_return_path(return_to):
            raise LoginRefused(
                "BAD_RETURN_TO", "returnTo is a path of this site, such as /welcome, and not under /api/"
            )
        state, verifier, nonce = new_secret(), new_verifier(), new_secret()
        browser = browser if browser is not None and is_secret(browser) else new_secret()
        claim = new_secret() if context == "pwa" else None
        record = AuthState(
            verifier=verifier,
            loginContext=context,
            claimTokenDigest=None if claim is None else claim_digest(claim),
            returnTo=return_to,
            browserDigest=digest(browser),
            nonce=nonce,
            issuer=client.provider.issuer,
        )
        redirect_uri, challenge = self._redirect_uri(provider), challenge_of(verifier)
        with self._refusing(provider):
            url = await client.authorize_url(redirect_uri, state, challenge, nonce)
        app_url = client.app_authorize_url(redirect_uri, state, challenge, nonce)
        if not await self._state(provider, state).add(record):
            raise LoginRefused("TRY_AGAIN", "this login could not begin; try again")
        return Started(url, app_url, state, browser, claim)

    async def refused_by_provider(self, provider: str, state: str | None, error: str) -> tuple[str, str]:
        """The user said no at the provider, or it did: the login is over. Where to go, and the word for it."""
        self._client(provider)
        record = await _readable(self._state(provider, state).consume()) if state and is_secret(state) else None
        self.site.count("login", "login", "refused")
        return (record.returnTo if record and record.returnTo else self.settings.return_to), (
            error_word(error) or "unknown_error"
        )

    async def callback(
        self,
        provider: str,
        *,
        code: str | None,
        state: str | None,
        iss: str | None,
        browser: str | None,
        token: str | None,
        can_ask: bool = True,
    ) -> Finished | Unconfirmed:
        """The browser comes back from the provider. `token` is that of the session that it has, which ends then.

        The state is consumed before anything else, in one atomic step, whatever comes of it. A browser with another
        secret than the one in which the login began is refused; one with none is asked (`Unconfirmed`), or refused
        where nobody is there to answer (`can_ask` is false).
        """
        client = self._client(provider)
        if not state or not code:
            raise LoginRefused("BAD_CALLBACK", "the callback of a login has a state and a code; start again")
        record = await _readable(self._state(provider, state).consume()) if is_secret(state) else None
        if record is None:
            _security.warning(
                "login: a callback with a state that is unknown, spent or too old", extra=_event(provider)
            )
            raise LoginRefused("STATE_INVALID", "this login is over, or never began here; start again")
        if browser is not None and not same(digest(browser), record.browserDigest or ""):
            _security.warning("login: a callback in another browser than the login began in", extra=_event(provider))
            raise LoginRefused("STATE_INVALID", "this login is over, or never began here; start again")
        if record.issuer != client.provider.issuer:
            raise LoginRefused("STATE_INVALID", "this login is over, or never began here; start again")
        if browser is None and not can_ask:
            raise LoginRefused("CONFIRMATION_REQUIRED", "this browser lost the cookie of the login; start again")
        tokens, identity = await self._identified(client, code, record, iss)
        context: LoginContext = record.loginContext or "browser"
        if browser is None:
            return await self._ask(provider, tokens, identity, record, context, state)
        made = await self._admit(self._new_session(provider, tokens, identity), token)
        if context == "pwa" and record.claimTokenDigest is not None:
            await self._park(provider, digest(state), made, record.claimTokenDigest, restored=False)
        self.site.count("login", "login", "succeeded")
        return Finished(made.token, made.session, context, record.returnTo or self.settings.return_to)

    async def confirm(self, provider: str, confirm: str, browser: str | None, token: str | None) -> Finished:
        """The user says that a login without its cookie is theirs. Once, and only in the browser that was asked."""
        self._client(provider)
        question = self.keys.login_confirm(digest(confirm)) if is_secret(confirm) else None
        pending = None if question is None else await _readable(question.consume())
        if (
            pending is None
            or browser is None
            or not same(digest(browser), pending.browserDigest)
            or (pending.provider or DISCORD) != provider
        ):
            raise LoginRefused("STATE_INVALID", "this login is over, or never began here; start again")
        session = Session(
            **{name: getattr(pending, name) for name in Session.model_fields if name in PendingLogin.model_fields},
            created_at=moment(0),
            last_seen_at=moment(0),
        )
        if pending.loginContext == "pwa" and pending.claimTokenDigest and pending.state:
            made = await self._admit(session, None)
            await self._park(provider, pending.state, made, pending.claimTokenDigest, restored=True)
            issued = None  # this browser only helped; the app that holds the claim token gets the session
        else:
            made = await self._admit(session, token)
            issued = made.token
        self.site.count("login", "login", "confirmed")
        return Finished(issued, made.session, pending.loginContext, pending.returnTo or self.settings.return_to)

    async def claim(self, provider: str, state: str | None, claim: str | None, token: str | None) -> str:
        """The token of the session that a login made for the installed app which began it. Once.

        `token` is that of the session that the app had before, which ends then, as with any login.
        """
        self._client(provider)
        if not state:
            raise LoginRefused("STATE_REQUIRED", "name the state of the login whose session is claimed")
        if claim is None or not is_secret(claim):
            raise LoginRefused("CLAIM_TOKEN_REQUIRED", "only the app in which the login began can claim its session")
        parked = self._parked(provider, digest(state)) if is_secret(state) else None
        record = None if parked is None else await _readable(parked.get())
        if parked is None or record is None:
            raise LoginRefused("NOT_FOUND", "there is no session to claim: the login is not finished, or too long ago")
        if record.claimTokenDigest is None:
            raise LoginRefused("NOT_CLAIMABLE", "this session cannot be claimed")
        if not same(claim_digest(claim), record.claimTokenDigest):
            _security.warning("login: a session was claimed with a wrong claim token", extra=_event(provider))
            raise LoginRefused("CLAIM_TOKEN_WRONG", "only the app in which the login began can claim its session")
        taken = await _readable(parked.consume())
        if taken is None:
            raise LoginRefused("ALREADY_CLAIMED", "this session was claimed already")
        if not await self.sessions.read(taken.sid):
            raise LoginRefused("SESSION_ENDED", "the session has ended; log in again")
        claimed: str = taken.sid
        if token is not None and token != claimed:
            await self.sessions.revoke(token)
        return claimed

    # --- being logged in -----------------------------------------------------------------------------------

    async def session(self, token: str | None) -> Live[Session] | Gone:
        """Who is logged in. One round trip; the provider's tokens are renewed shortly before they expire.

        A refresh that fails leaves the session as it is, and is tried again after five seconds.
        """
        live = await self._seen(token)
        if not live or token is None or not self._refresh.is_due(live.session):
            return live
        return await self._refresh.renewed(token, live)

    async def _seen(self, token: str | None) -> Live[Session] | Gone:
        if token is None:
            return Gone("unknown")
        live = await self.sessions.read(token)
        if live and (live.session.provider or DISCORD) not in self._clients:
            # Whoever vouched for this login is no longer trusted here. It is not ended for good: a provider that is
            # missing by mistake, in one process or for an hour, logs nobody out.
            return Gone("unknown")
        if not live and live.reason == "unknown":
            _security.info("login: a token that names no session", extra={"event": "unknown-token"})
        return live

    # --- logging out ---------------------------------------------------------------------------------------

    async def logout(self, token: str | None) -> None:
        """End the session of a token. Whether there was one is not told."""
        if token is not None:
            await self.sessions.revoke(token)

    async def logout_all(self, token: str | None) -> int:
        """End all sessions of the user. Raises LoginRefused where the login is not recent."""
        live = await self._recent(token)
        return await self.sessions.revoke_all(live.user)

    async def logout_others(self, token: str | None) -> int:
        """End all other sessions of the user. Raises LoginRefused where the login is not recent."""
        await self._recent(token)
        return await self.sessions.revoke_others(token or "")

    async def end(self, token: str | None, id: str) -> bool:
        """End one session of the user, the own one or, after a recent login, another. False: there is no such."""
        live = await self._live(token)
        if id == live.id:
            await self.logout(token)
            return True
        await self._recent(token)
        return await self.sessions.revoke_id(live.user, id)

    async def all_of(self, token: str | None) -> tuple[Live[Session], list[Live[Session]]]:
        """The own session, and all sessions of the user, the latest login first."""
        live = await self._live(token)
        return live, await self.sessions.list_for(live.user)

    async def _live(self, token: str | None) -> Live[Session]:
        live = await self._seen(token)
        if not live:
            raise not_logged_in(live)
        return live

    async def _recent(self, token: str | None) -> Live[Session]:
        live = await self._live(token)
        if self.now - live.session.created_at > timedelta(milliseconds=duration_ms(self.settings.recent)):
            raise LoginRefused(
                "LOGIN_AGAIN",
                "the login is too long ago to end other sessions; log in again",
                startUrl=f"/api/auth/{live.session.provider or DISCORD}/start",
            )
        return live

    # --- limits --------------------------------------------------------------------------------------------

    # --- what these are made of ----------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return moment(self.site.now_ms())

    def _client(self, provider: str) -> Client:
        client = self._clients.get(provider)
        if client is None:
            raise LoginRefused("UNKNOWN_PROVIDER", "there is no such provider here")
        return client

    def _redirect_uri(self, provider: str) -> str:
        given = self.settings.providers.get(provider)
        if given is not None and given.redirect_uri:
            return given.redirect_uri
        return f"{self.site.public_url}/api/auth/{provider}/callback"

    def _state(self, provider: str, state: str) -> Any:
        keys = self.keys
        return keys.auth_state(digest(state)) if provider == DISCORD else keys.oauth_state(provider, digest(state))

    def _parked(self, provider: str, state_digest: str) -> Any:
        keys = self.keys
        return keys.pwa_session(state_digest) if provider == DISCORD else keys.oauth_session(provider, state_digest)

    async def _identified(
        self, client: Client, code: str, record: AuthState, iss: str | None
    ) -> tuple[Tokens, Identity]:
        provider = client.provider.name
        with self._refusing(provider):
            await client.check_issuer(iss)
            tokens = await client.exchange(code, record.verifier, self._redirect_uri(provider))
            return tokens, await client.identity(tokens, record.nonce or "")

    @contextmanager
    def _refusing(self, provider: str) -> Iterator[None]:
        """Turns what goes wrong with a provider into what a user is told, which holds nothing that it said."""
        try:
            yield
        except ProviderUnavailable as error:
            self.site.count("login", "login", "unavailable")
            _log.warning("login: %s", error)
            raise LoginRefused("PROVIDER_UNAVAILABLE", f"{provider} does not answer now; try again later") from None
        except OAuthError as error:
            self.site.count("login", "login", "failed")
            _log.warning("login: %s", error)
            raise LoginRefused("PROVIDER_REFUSED", f"{provider} did not confirm this login; start again") from None

    def _new_session(self, provider: str, tokens: Tokens, identity: Identity) -> Session:
        # Discord's ids stand for themselves, as in the document; those of others are told apart by their name.
        uid = identity.id if provider == DISCORD else f"{provider}.{identity.id}"
        if len(uid.encode()) > USER_MAX_BYTES:
            _log.warning("login: %s: it gave an id of more than %d bytes", provider, USER_MAX_BYTES)
            raise LoginRefused("PROVIDER_REFUSED", f"{provider} did not confirm this login; start again")
        return Session(
            uid=uid,
            name=identity.name,
            avatar=identity.avatar,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            scope=tokens.scope,
            token_type=tokens.token_type,
            access_expires_at=moment(tokens.expires_at_ms),
            created_at=moment(0),
            last_seen_at=moment(0),
            provider=None if provider == DISCORD else provider,
        )

    async def _admit(self, session: Session, before: str | None) -> New[Session]:
        """A new session. The one that the browser had ends, whoever's it was: no login goes on with an old token."""
        if before is not None:
            await self.sessions.revoke(before)
        return await self.sessions.create(session)

    async def _park(self, provider: str, state: str, made: New[Session], claim: str, *, restored: bool) -> None:
        record = PwaSession(
            sid=made.token,
            userId=made.session.uid,
            loginContext="pwa",
            issuedAt=self.now,
            metadata=PwaSessionMetadata(stateRestoredFromKv=restored),
            claimTokenDigest=claim,
        )
        await self._parked(provider, state).set(record)

    async def _ask(
        self, provider: str, tokens: Tokens, identity: Identity, record: AuthState, context: LoginContext, state: str
    ) -> Unconfirmed:
        session = self._new_session(provider, tokens, identity)
        confirm, browser = new_secret(), new_secret()
        pending = PendingLogin(
            **{name: getattr(session, name) for name in PendingLogin.model_fields if name in Session.model_fields},
            loginContext=context,
            browserDigest=digest(browser),
            claimTokenDigest=record.claimTokenDigest,
            returnTo=record.returnTo,
            state=digest(state),
        )
        await self.keys.login_confirm(digest(confirm)).set(pending)
        return Unconfirmed(confirm, browser, identity.name, context)


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
        try:
            yield login
        finally:
            await login.close()


async def _readable(reading: Awaitable[T]) -> T | None:
    """What a record of a login holds; None: it is not there, or cannot be read, and then that login is over."""
    try:
        return await reading
    except Unreadable:  # which the schema has logged
        return None


def _event(provider: str) -> dict[str, str]:
    return {"event": "bad-state", "provider": provider}
