"""Sign-in: the OAuth code flow with state and PKCE, its confirmation, and session claims by installed apps."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from keystead.errors import CapReached, Unreadable
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
from keystead.kits.login.revocation import Revocations
from keystead.kits.login.service.outcomes import (
    UNKNOWN_VISITOR,
    Finished,
    Full,
    LoginRefused,
    Started,
    Unconfirmed,
    Visitor,
)
from keystead.kits.login.service.secret import add_decoys, claim_digest, is_secret, new_codes, new_secret
from keystead.kits.login.service.settings import LoginSettings, is_return_path
from keystead.kits.login.service.user_agent import browser_and_device
from keystead.parts.audit import Audit
from keystead.parts.digest import digest, same
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
from keystead.parts.sessions import Act, New, Sessions
from keystead.parts.sessions.session_token import USER_MAX_BYTES
from keystead.schema.times import moment

_log = logging.getLogger("keystead.login")
_security = logging.getLogger("keystead.security")

CODES_SHOWN: Final = 3
_STARTED_ELSEWHERE: Final = "this sign-in has expired or was not started here; start again"
_CLAIM_DENIED: Final = "only the app that started the sign-in can claim its session"
T = TypeVar("T")


class SignIns:
    """Signs users in with OAuth providers and creates their sessions."""

    def __init__(
        self,
        keys: LoginKeys,
        settings: LoginSettings,
        site: Site,
        clients: Mapping[str, Client],
        sessions: Sessions[Session],
        revocations: Revocations,
        audit: Audit,
    ) -> None:
        self._keys = keys
        self._settings = settings
        self._site = site
        self._clients = clients
        self._sessions = sessions
        self._revocations = revocations
        self._audit = audit

    async def start(
        self, provider: str, *, context: LoginContext, return_to: str | None, browser: str | None
    ) -> Started:
        """Start a sign-in. `browser` is the secret that another tab of this browser already has: all tabs share it.

        `return_to` is checked and stored here, so that a forged callback cannot choose it (open redirect).
        """
        client = self._client(provider)
        if return_to is not None and not is_return_path(return_to):
            raise LoginRefused(
                "BAD_RETURN_TO", "returnTo must be a path on this site, such as /welcome, and not under /api/"
            )
        state, verifier, nonce = new_secret(), new_verifier(), new_secret()
        browser = browser if browser is not None and is_secret(browser) else new_secret()
        claim, code = (new_secret(), new_codes(1)[0]) if context == "pwa" else (None, None)
        record = AuthState(
            verifier=verifier,
            login_context=context,
            claim_token_digest=None if claim is None else claim_digest(claim),
            return_to=return_to,
            browser_digest=digest(browser),
            nonce=nonce,
            issuer=client.provider.issuer,
            code=code,
        )
        redirect_uri, challenge = self._redirect_uri(provider), challenge_of(verifier)
        with self._translate_provider_errors(provider):
            url = await client.authorize_url(redirect_uri, state, challenge, nonce)
        app_url = client.app_authorize_url(redirect_uri, state, challenge, nonce)
        if not await self._state(provider, state).add(record):
            raise LoginRefused("TRY_AGAIN", "this sign-in could not be started; try again")
        return Started(url, app_url, state, browser, claim, code)

    async def refused_by_provider(self, provider: str, state: str | None, error: str) -> tuple[str, str]:
        """End a sign-in that the user or the provider refused. Returns the path to redirect to and the error code."""
        self._client(provider)
        record = await _read_or_none(self._state(provider, state).consume()) if state and is_secret(state) else None
        self._site.count("login", "login", "refused")
        return_to = record.return_to if record else None
        return return_to or self._settings.return_to, error_word(error) or "unknown_error"

    async def callback(
        self,
        provider: str,
        *,
        code: str | None,
        state: str | None,
        iss: str | None,
        browser: str | None,
        token: str | None,
        visitor: Visitor = UNKNOWN_VISITOR,
        can_ask: bool = True,
    ) -> Finished | Unconfirmed | Full:
        """Handle the provider's callback. `token` is that of the browser's current session, which ends on success.

        The state is consumed first, in one atomic step, whatever the outcome. The browser must have the secret of the
        one that started the sign-in. Without any secret, the user has to confirm (`Unconfirmed`), or the sign-in is
        refused if `can_ask` is false. At the session cap the user chooses a session to end (`Full`); CapReached is
        raised if `can_ask` is false.
        """
        client = self._client(provider)
        if not state or not code:
            raise LoginRefused("BAD_CALLBACK", "the callback lacks a state or a code; start again")
        record = await _read_or_none(self._state(provider, state).consume()) if is_secret(state) else None
        if record is None:
            _security.warning("login: a callback with an unknown, used or expired state", extra=_log_fields(provider))
            raise LoginRefused("STATE_INVALID", _STARTED_ELSEWHERE)
        if browser is not None and not same(digest(browser), record.browser_digest or ""):
            _security.warning(
                "login: a callback in another browser than the one that started the sign-in",
                extra=_log_fields(provider),
            )
            raise LoginRefused("STATE_INVALID", _STARTED_ELSEWHERE)
        if record.issuer != client.provider.issuer:
            raise LoginRefused("STATE_INVALID", _STARTED_ELSEWHERE)
        if browser is None and not can_ask:
            raise LoginRefused("CONFIRMATION_REQUIRED", "this browser has lost the cookie of the sign-in; start again")
        tokens, identity = await self._exchange_code(client, code, record, iss)
        context: LoginContext = record.login_context or "browser"
        session = self._new_session(provider, tokens, identity, visitor)
        pending = PendingLogin(
            **{name: getattr(session, name) for name in PendingLogin.model_fields if name in Session.model_fields},
            login_context=context,
            browser_digest="",
            claim_token_digest=record.claim_token_digest,
            return_to=record.return_to,
            state=digest(state),
        )
        if browser is None:
            secret = new_secret()
            confirm = await self._store_pending(pending, secret, code=record.code if context == "pwa" else None)
            codes = [] if context != "pwa" or record.code is None else add_decoys(record.code, CODES_SHOWN)
            return Unconfirmed(confirm, secret, identity.name, context, codes)
        try:
            made = await self._create_session(session, token, visitor)
        except CapReached:
            if not can_ask:
                await self._revocations.revoke(session)
                raise
            return await self._ask_to_make_room(pending.model_copy(update={"began": True}), browser)
        if context == "pwa" and record.claim_token_digest is not None:
            await self._store_claimable(provider, digest(state), made, record.claim_token_digest, restored=False)
        self._site.count("login", "login", "succeeded")
        return Finished(made.token, made.session, context, record.return_to or self._settings.return_to)

    async def confirm(
        self,
        provider: str,
        confirm: str,
        browser: str | None,
        token: str | None,
        *,
        visitor: Visitor = UNKNOWN_VISITOR,
        code: str | None = None,
        end: str | None = None,
    ) -> Finished | Full:
        """The user confirms a sign-in, or picks a session to end for it. Once, and only in the browser that was asked.

        `code` is the one that the user selected, if an app shows one; a wrong code ends the sign-in.
        """
        pending = await self._consume_pending(provider, confirm, browser)
        if pending.code is not None and not same(code or "", pending.code):
            await self._reject(pending, "sign-in-refused", visitor, why="wrong code")
            _security.warning("login: the user selected a wrong code", extra=_log_fields(provider))
            raise LoginRefused(
                "CODE_WRONG", "that is not the code in your app, so you were not signed in; start again in the app"
            )
        if end is not None:
            await self._sessions.revoke_id(pending.uid, end, Act(where=visitor.where, why="to make room"))
        claim = pending.claim_token_digest if pending.login_context == "pwa" else None
        # If an app started the sign-in, the app that holds the claim token gets the session, not this browser.
        for_app = claim is not None and pending.state is not None and not pending.began
        try:
            made = await self._create_session(_session_of(pending), None if for_app else token, visitor)
        except CapReached:
            return await self._ask_to_make_room(pending, browser or "")
        if claim is not None and pending.state is not None:
            await self._store_claimable(provider, pending.state, made, claim, restored=for_app)
        self._site.count("login", "login", "confirmed")
        issued = None if for_app else made.token
        return Finished(issued, made.session, pending.login_context, pending.return_to or self._settings.return_to)

    async def deny(self, provider: str, confirm: str, browser: str | None, visitor: Visitor = UNKNOWN_VISITOR) -> None:
        """The user rejects a sign-in, or ends no session for it: it is over, and the provider's tokens are revoked."""
        pending = await self._consume_pending(provider, confirm, browser)
        await self._reject(pending, "sign-in-denied", visitor)
        self._site.count("login", "login", "denied")

    async def _consume_pending(self, provider: str, confirm: str, browser: str | None) -> PendingLogin:
        """Consume the pending sign-in (single use). Raises LoginRefused unless browser and provider match."""
        self._client(provider)
        question = self._keys.login_confirm(digest(confirm)) if is_secret(confirm) else None
        pending = None if question is None else await _read_or_none(question.consume())
        if (
            pending is None
            or browser is None
            or not same(digest(browser), pending.browser_digest)
            or (pending.provider or DISCORD) != provider
        ):
            raise LoginRefused("STATE_INVALID", _STARTED_ELSEWHERE)
        return pending

    async def _reject(self, pending: PendingLogin, event: str, visitor: Visitor, why: str = "") -> None:
        await self._revocations.revoke(_session_of(pending))
        await self._audit.note(event, who=f"login:{pending.uid}", where=visitor.where, why=why)

    async def _ask_to_make_room(self, pending: PendingLogin, browser: str) -> Full:
        confirm = await self._store_pending(pending, browser)
        self._site.count("login", "login", "full")
        return Full(confirm, browser, pending.name, await self._sessions.list_for(pending.uid))

    async def _store_pending(self, pending: PendingLogin, browser: str, code: str | None = None) -> str:
        """Store a sign-in until its user confirms it. Returns the token for the confirmation."""
        confirm = new_secret()
        record = pending.model_copy(update={"browser_digest": digest(browser), "code": code})
        await self._keys.login_confirm(digest(confirm)).set(record)
        return confirm

    async def claim(
        self, provider: str, state: str | None, claim: str | None, token: str | None, visitor: Visitor
    ) -> str:
        """The token of the session that an installed app's sign-in created. Single use.

        `token` is that of the app's previous session, which ends, as with any sign-in.
        """
        self._client(provider)
        if not state:
            raise LoginRefused("STATE_REQUIRED", "send the state of the sign-in whose session is claimed")
        if claim is None or not is_secret(claim):
            raise LoginRefused("CLAIM_TOKEN_REQUIRED", _CLAIM_DENIED)
        parked = self._claimable(provider, digest(state)) if is_secret(state) else None
        record = None if parked is None else await _read_or_none(parked.get())
        if parked is None or record is None:
            raise LoginRefused(
                "NOT_FOUND", "no session to claim: the sign-in is not finished, or the claim has expired"
            )
        if record.claim_token_digest is None:
            raise LoginRefused("NOT_CLAIMABLE", "this session cannot be claimed")
        if not same(claim_digest(claim), record.claim_token_digest):
            _security.warning("login: a session claim had a wrong claim token", extra=_log_fields(provider))
            raise LoginRefused("CLAIM_TOKEN_WRONG", _CLAIM_DENIED)
        taken = await _read_or_none(parked.consume())
        if taken is None:
            raise LoginRefused("ALREADY_CLAIMED", "this session has already been claimed")
        claimed: str = taken.sid
        browser, device = browser_and_device(visitor.agent)  # of the app; until now, of the browser that signed in
        live = await self._sessions.update(claimed, browser=browser, device=device)
        if not live:
            raise LoginRefused("SESSION_ENDED", "the session has ended; sign in again")
        await self._audit.note("session-claimed", who=f"login:{live.user}", what=live.id, where=visitor.where)
        if token is not None and token != claimed:
            await self._sessions.revoke(token, Act(where=visitor.where, why="signed in again"))
        return claimed

    def _client(self, provider: str) -> Client:
        client = self._clients.get(provider)
        if client is None:
            raise LoginRefused("UNKNOWN_PROVIDER", "this provider is not configured")
        return client

    def _redirect_uri(self, provider: str) -> str:
        given = self._settings.providers.get(provider)
        if given is not None and given.redirect_uri:
            return given.redirect_uri
        return f"{self._site.public_url}/api/auth/{provider}/callback"

    def _state(self, provider: str, state: str) -> Any:
        keys = self._keys
        return keys.auth_state(digest(state)) if provider == DISCORD else keys.oauth_state(provider, digest(state))

    def _claimable(self, provider: str, state_digest: str) -> Any:
        keys = self._keys
        return keys.pwa_session(state_digest) if provider == DISCORD else keys.oauth_session(provider, state_digest)

    async def _exchange_code(
        self, client: Client, code: str, record: AuthState, iss: str | None
    ) -> tuple[Tokens, Identity]:
        provider = client.provider.name
        with self._translate_provider_errors(provider):
            await client.check_issuer(iss)
            tokens = await client.exchange(code, record.verifier, self._redirect_uri(provider))
            return tokens, await client.identity(tokens, record.nonce or "")

    @contextmanager
    def _translate_provider_errors(self, provider: str) -> Iterator[None]:
        """Turns provider errors into refusals. The provider's own words are logged, never shown."""
        try:
            yield
        except ProviderUnavailable as error:
            self._site.count("login", "login", "unavailable")
            _log.warning("login: %s", error)
            raise LoginRefused("PROVIDER_UNAVAILABLE", f"{provider} is not responding; try again later") from None
        except OAuthError as error:
            self._site.count("login", "login", "failed")
            _log.warning("login: %s", error)
            raise LoginRefused("PROVIDER_REFUSED", f"{provider} did not confirm this sign-in; start again") from None

    def _new_session(self, provider: str, tokens: Tokens, identity: Identity, visitor: Visitor) -> Session:
        # Discord ids are used as they are, as in the document; other ids are prefixed with the provider's name.
        uid = identity.id if provider == DISCORD else f"{provider}.{identity.id}"
        if len(uid.encode()) > USER_MAX_BYTES:
            _log.warning("login: %s: the user id is longer than %d bytes", provider, USER_MAX_BYTES)
            raise LoginRefused("PROVIDER_REFUSED", f"{provider} did not confirm this sign-in; start again")
        browser, device = browser_and_device(visitor.agent)
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
            browser=browser,
            device=device,
        )

    async def _create_session(self, session: Session, previous: str | None, visitor: Visitor) -> New[Session]:
        """Create a session and revoke the browser's previous one, of any user (session fixation)."""
        if previous is not None:
            await self._sessions.revoke(previous, Act(where=visitor.where, why="signed in again"))
        known = await _read_or_none(self._keys.preferences(session.uid).get())
        if known is not None:
            session = session.model_copy(update=dict(known))
        return await self._sessions.create(session, Act(where=visitor.where, why=f"with {session.provider or DISCORD}"))

    async def _store_claimable(
        self, provider: str, state: str, made: New[Session], claim: str, *, restored: bool
    ) -> None:
        record = PwaSession(
            sid=made.token,
            user_id=made.session.uid,
            login_context="pwa",
            issued_at=moment(self._site.now_ms()),
            metadata=PwaSessionMetadata(state_restored_from_kv=restored),
            claim_token_digest=claim,
        )
        await self._claimable(provider, state).set(record)


def _session_of(pending: PendingLogin) -> Session:
    return Session(
        **{name: getattr(pending, name) for name in Session.model_fields if name in PendingLogin.model_fields},
        created_at=moment(0),
        last_seen_at=moment(0),
    )


async def _read_or_none(reading: Awaitable[T]) -> T | None:
    """The record; None if it is absent or unreadable. Either way the sign-in is over."""
    try:
        return await reading
    except Unreadable:  # which the schema has logged
        return None


def _log_fields(provider: str) -> dict[str, str]:
    return {"event": "bad-state", "provider": provider}
