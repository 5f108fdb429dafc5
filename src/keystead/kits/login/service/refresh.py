"""The provider's tokens of a session, renewed shortly before they expire: once, across all processes."""

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

REFRESH_BEFORE_MS: Final = 30_000  # so long before its end a provider's access token is renewed
REFRESH_WITHIN_S: Final = 4.0  # less than the lock lives, so that two never refresh at once
WAIT_S: Final = 1.5  # how long the others wait for the one that refreshes
_FIRST_PAUSE_S: Final = 0.1
_FAILED: Final = "failed"  # in the place of the holder: nobody refreshes now, and nobody should for a while


class Refresh:
    """Renews tokens. Of all requests that find them due, one asks the provider; the others wait for what it brings."""

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
        """Wait for what is under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def renewed(self, token: str, live: Live[Session]) -> Live[Session] | Gone:
        """The session with fresh tokens; where that failed, as it is. It is never lost by a failure."""
        task = asyncio.ensure_future(self._refreshed(token, live))
        # The provider may have spent the old refresh token already: a client that hangs up must not lose the new one.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _refreshed(self, token: str, live: Live[Session]) -> Live[Session] | Gone:
        lock, holder = self._keys.session_lock(live.id), new_secret()
        if not await lock.add(holder):
            return await self._waited(token, live, lock)
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
                return await self._given_up(token, again.session, lock, holder)
            # The lock stays until it expires: so a provider that is down is asked once in five seconds, not by all,
            # and none of them waits for it.
            await lock.compare_and_set(holder, _FAILED)
            self._site.count("login", "refresh", "failed")
            _log.warning("login: %s: the tokens of a session could not be refreshed: %s", provider, _word(error))
            return again

        def renewed(session: Session) -> Session:
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

        changed = await self._sessions.change(token, renewed)
        if not changed:  # it was ended meanwhile, and so nobody has any use for what came
            await self._revoke(renewed(again.session))
        self._site.count("login", "refresh", "succeeded")
        await self._release(lock, holder)
        return changed

    async def _given_up(self, token: str, asked: Session, lock: ValueKey[str], holder: str) -> Live[Session] | Gone:
        """The provider takes this refresh token no more, as after a refresh whose answer was lost on the way: asked
        again it would say the same for ever. The session goes on, and says that only a sign-in brings new tokens."""

        def refused(session: Session) -> Session:
            if session.refresh_token != asked.refresh_token:  # another process has brought a new one meanwhile
                return session
            return session.model_copy(update={"refresh_token": "", "provider_refused": True})

        changed = await self._sessions.change(token, refused)
        await self._release(lock, holder)
        self._site.count("login", "refresh", "refused")
        _log.warning("login: %s: it takes the refresh token of a session no more", asked.provider or DISCORD)
        return changed

    async def _waited(self, token: str, live: Live[Session], lock: ValueKey[str]) -> Live[Session] | Gone:
        """Another request refreshes: what it brings, or after a while the session as it is."""
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
        """Give the lock back, if it is still ours."""
        await self._keys.atomically(lock.holds(holder), lock.delete())

    def is_due(self, session: Session) -> bool:
        return (
            bool(session.refresh_token)
            and self._site.now_ms() > deadline_ms(session.access_expires_at) - REFRESH_BEFORE_MS
        )


def _word(error: Exception) -> str:
    return error.code if isinstance(error, KeysteadError) else "timeout"
