"""Refreshes the provider's tokens of a session shortly before they expire, once across all processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from keystead.errors import KeysteadError
from keystead.kits.kit import Site
from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import DISCORD, Session
from keystead.kits.login.service.secret import new_secret
from keystead.parts.oauth import Client, OAuthError, ProviderRefused
from keystead.parts.sessions import Gone, Live, Sessions
from keystead.schema.kinds.value import ValueKey
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.login")

REFRESH_BEFORE_MS: Final = 30_000  # a provider's access token is renewed this long before it expires
REFRESH_WITHIN_S: Final = 4.0  # shorter than the lock, so that no two requests refresh at once
WAIT_S: Final = 1.5  # how long other requests wait for the one that refreshes
_FIRST_PAUSE_S: Final = 0.1
_FAILED: Final = "failed"  # lock value instead of a holder: the refresh failed, do not retry before the lock expires


class Refresh:
    """Single-flight token refresh: one request calls the provider, concurrent ones wait for its result."""

    def __init__(
        self,
        keys: LoginKeys,
        sessions: Sessions[Session],
        clients: Mapping[str, Client],
        site: Site,
        pause: Callable[[float], Awaitable[None]],
        revoke: Callable[[Session], Awaitable[None]],
    ) -> None:
        self._keys = keys
        self._sessions = sessions
        self._clients = clients
        self._site = site
        self._pause = pause
        self._revoke = revoke
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self) -> None:
        """Wait for refreshes in progress."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def renew(self, token: str, live: Live[Session]) -> Live[Session] | Gone:
        """The session with fresh tokens, or unchanged if the refresh failed. A failure never ends the session."""
        task = asyncio.ensure_future(self._refresh(token, live))
        # The provider may have consumed the old refresh token: a client that disconnects must not lose the new one.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _refresh(self, token: str, live: Live[Session]) -> Live[Session] | Gone:
        lock, holder = self._keys.session_lock(live.id), new_secret()
        if not await lock.add(holder):
            return await self._wait_for_refresh(token, live, lock)
        again = await self._sessions.read(token)
        if not again or not self.is_due(again.session):
            await self._release(lock, holder)
            return again
        provider = again.session.provider or DISCORD
        try:
            async with asyncio.timeout(REFRESH_WITHIN_S):
                tokens = await self._clients[provider].refresh(again.session.refresh_token)
        except (OAuthError, TimeoutError) as error:
            if isinstance(error, ProviderRefused) and error.error == "invalid_grant":
                return await self._mark_refused(token, again.session, lock, holder)
            # The lock stays until it expires: a provider that is down is called once in five seconds, and no other
            # request waits for it.
            await lock.compare_and_set(holder, _FAILED)
            self._site.count("login", "refresh", "failed")
            _log.warning("login: %s: could not refresh the tokens of a session: %s", provider, _error_code(error))
            return again

        def with_new_tokens(session: Session) -> Session:
            return session.model_copy(
                update={
                    "access_token": tokens.access_token,
                    "refresh_token": tokens.refresh_token or session.refresh_token,
                    "scope": tokens.scope,
                    "token_type": tokens.token_type,
                    "access_expires_at": moment(tokens.expires_at_ms),
                    "ver": session.ver + 1,
                }
            )

        changed = await self._sessions.change(token, with_new_tokens)
        if not changed:  # the session ended meanwhile
            await self._revoke(with_new_tokens(again.session))
        self._site.count("login", "refresh", "succeeded")
        await self._release(lock, holder)
        return changed

    async def _mark_refused(self, token: str, sent: Session, lock: ValueKey[str], holder: str) -> Live[Session] | Gone:
        """The provider rejects this refresh token for good, for example after a lost response. The session continues
        without it, marked as `provider_refused`."""

        def without_refresh_token(session: Session) -> Session:
            if session.refresh_token != sent.refresh_token:  # another process has stored a new one meanwhile
                return session
            return session.model_copy(update={"refresh_token": "", "provider_refused": True})

        changed = await self._sessions.change(token, without_refresh_token)
        await self._release(lock, holder)
        self._site.count("login", "refresh", "refused")
        _log.warning("login: %s: rejected the refresh token of a session", sent.provider or DISCORD)
        return changed

    async def _wait_for_refresh(self, token: str, live: Live[Session], lock: ValueKey[str]) -> Live[Session] | Gone:
        """The session as another request refreshes it, or unchanged after `WAIT_S`."""
        pause, left = _FIRST_PAUSE_S, WAIT_S
        seen: Live[Session] | Gone = live
        while left > 0 and await lock.get() != _FAILED:
            await self._pause(min(pause, left))
            left -= pause
            pause = 2 * _FIRST_PAUSE_S
            seen = await self._sessions.read(token)
            if not seen or seen.session.ver != live.session.ver or not self.is_due(seen.session):
                break
        return seen

    async def _release(self, lock: ValueKey[str], holder: str) -> None:
        """Release the lock if it is still ours."""
        await self._keys.atomically(lock.holds(holder), lock.delete())

    def is_due(self, session: Session) -> bool:
        return (
            bool(session.refresh_token)
            and self._site.now_ms() > deadline_ms(session.access_expires_at) - REFRESH_BEFORE_MS
        )


def _error_code(error: Exception) -> str:
    return error.code if isinstance(error, KeysteadError) else "timeout"
