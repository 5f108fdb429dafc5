"""Renewal, as a part: a provider's tokens in a record, renewed before they expire, once across all processes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from keystead.deprecation import renamed
from keystead.errors import BadDeclaration, DoesNotFit, StoreError, StoreUnavailable
from keystead.parts.oauth import Client, OAuthError, ProviderRefused, Tokens
from keystead.schema import Bound, attempts
from keystead.schema.kinds import Value, ValueKey
from keystead.schema.lifetime import After, duration_ms, in_words
from keystead.schema.store_fit import has_atomic_steps

__all__ = ["Fresh", "HeldTokens", "Over", "Renewal", "Unrenewed"]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = renamed(__name__, {"Held": "HeldTokens"})

_log = logging.getLogger("keystead.renewal")

_PAUSE_S: Final = 0.1
_ATTEMPTS: Final = 8  # to store tokens that the provider gave, and that nobody else has

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Why: TypeAlias = Literal["unavailable", "misconfigured", "busy"]
_Failed: TypeAlias = Literal["unavailable", "misconfigured", "refused"]

# In the place of the holder of a claim: nobody renews now, and nobody should for a while.
_FAILURES: Final[tuple[_Failed, ...]] = get_args(_Failed)


@dataclass(frozen=True)
class HeldTokens:
    """The tokens that a record holds. Without a refresh token they end when they expire."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at_ms: int


@dataclass(frozen=True)
class Fresh(Generic[T_co]):
    """The access token is good now. `was_renewed`: this very call brought it."""

    value: T_co = field(repr=False)
    was_renewed: bool = False

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True)
class Unrenewed(Generic[T_co]):
    """The access token has expired and could not be renewed now. Nothing is lost; try again later.

    reason   `unavailable`: the provider is down, slow, or answers nonsense
             `misconfigured`: the provider refuses us, not the user: client id, secret or settings are wrong
             `busy`: another request is renewing it and has not come back yet
    """

    value: T_co = field(repr=False)
    reason: Why

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class Over:
    """There is nothing to renew any more.

    reason   `refused`: the provider says that the refresh token counts no more (`invalid_grant`), or there is none: the
             user has to log in there again
             `gone`: the record is not there; what the provider gave meanwhile was given back
    """

    reason: Literal["refused", "gone"]

    def __bool__(self) -> Literal[False]:
        return False


class Renewal(Generic[T]):
    """Keeps the tokens of one provider fresh in the records of a family.

        renewal = Renewal(
            client,
            keys.renewing,  # Value("renewing:{sid:token}", str, lifetime=after("20s"), tag="sid", …)
            held=lambda session: HeldTokens(session.access_token, session.refresh_token, session.expires_at_ms),
            renewed=lambda session, tokens: session.model_copy(update={…}),
        )
        found = await renewal.fresh(keys.session(sid))

    claims    one key for each record, with the same placeholders: who renews it. It lives longer than `within`, and
              for that long nobody asks a provider again that failed
    held      reads the tokens out of a record
    renewed   puts new ones into it. It may be called several times, and leaves the rest as it is
    refused   notes in a record that the provider takes its refresh token no more, as after a renewal whose answer was
              lost; `held` gives none then. Without it, the provider is asked again each time that a claim has ended
    before    so long before its end an access token is renewed. Meanwhile the old one is still good, and nobody waits
    within    how long the provider may take
    wait      how long others wait for the one that renews, where the old token has expired

    A provider may give a new refresh token with each use, and count the use of an old one as theft. So no two ask at
    the same moment; what came is stored before anybody uses it, with a compare-and-set on the tokens that were spent;
    and a caller that goes away does not stop that. What cannot be had: where the process dies between the answer of the
    provider and the write, the new refresh token is lost. `pause` is for tests.
    """

    def __init__(
        self,
        client: Client,
        claims: Bound[ValueKey[str]],
        *,
        held: Callable[[T], HeldTokens],
        renewed: Callable[[T, Tokens], T],
        refused: Callable[[T], T] | None = None,
        before: str | timedelta = "5m",
        within: str | timedelta = "10s",
        wait: str | timedelta = "1500ms",
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._before_ms = duration_ms(before, "before")
        self._within_s = duration_ms(within, "within") / 1000
        self._wait_s = duration_ms(wait, "wait") / 1000
        _check(claims, duration_ms(within, "within"))
        self._client = client
        self._claims = claims
        self._held = held
        self._renewed = renewed
        self._refused = refused
        self._pause = pause
        self._now_ms = claims.now_ms
        self._tasks: set[asyncio.Task[Any]] = set()

    async def fresh(self, key: ValueKey[T]) -> Fresh[T] | Unrenewed[T] | Over:
        """The record with tokens that are good. One round trip where they are; else the provider is asked, by one.

        Raises the error of a store that is down, BadKey for a record that the claims cannot name.
        """
        value = await key.get()
        if value is None:
            return Over("gone")
        if not self._is_due(value):
            return Over("refused") if self._is_expired(value) else Fresh(value)
        # The provider may have spent the old refresh token already: a caller that goes away must not lose the new one.
        task = asyncio.ensure_future(self._claimed(key, value))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for what is under way, before the program ends."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _claimed(self, key: ValueKey[T], value: T) -> Fresh[T] | Unrenewed[T] | Over:
        claim, holder = self._claims(**key.values), secrets.token_hex(16)
        # From before the claim is there: so whatever takes long, nobody asks who does not hold it any more.
        until_s = asyncio.get_running_loop().time() + self._within_s
        if not await claim.add(holder):
            return await self._waited(key, value, claim)
        failed: _Failed | None = None
        try:
            found = await self._asked(key, until_s)
            if not isinstance(found, _Failure):
                return found
            failed = found.reason
            return self._without(found.value, failed)
        finally:
            with suppress(StoreError):  # it ends by itself
                await self._released(claim, holder, failed)

    async def _asked(self, key: ValueKey[T], until_s: float) -> Fresh[T] | _Failure[T] | Over:
        """Ask the provider. Nobody else does meanwhile, so what stands in the record now is what counts."""
        value = await key.get()
        if value is None:
            return Over("gone")
        spent = self._held(value)
        if spent.refresh_token is None or not self._is_due(value):
            return Fresh(value)
        try:
            async with asyncio.timeout_at(until_s):
                tokens = await self._client.refresh(spent.refresh_token)
        except ProviderRefused as error:
            if error.error == "invalid_grant":
                again = await key.get()  # a new login may have brought others meanwhile
                if again is not None and self._held(again) != spent:
                    return Fresh(again)
                await self._note_refused(key, spent)
                return _Failure(value, "refused")
            _log.error("renewal: %s refuses us: %s", self._client.provider.name, error.error or "no reason given")
            return _Failure(value, "misconfigured")
        except (OAuthError, TimeoutError) as error:
            code = error.code if isinstance(error, OAuthError) else "timeout"
            _log.warning("renewal: %s gave no new tokens: %s", self._client.provider.name, code)
            return _Failure(value, "unavailable")
        return await self._stored(key, spent, tokens)

    async def _note_refused(self, key: ValueKey[T], spent: HeldTokens) -> None:
        """Note it in the record, unless others have put new tokens there: asked again, the provider says the same."""
        if self._refused is None:
            return
        async for _ in attempts("a record with the tokens of a provider"):
            seen = await key.see()
            if seen is None or self._held(seen.value) != spent:
                return
            if await key.replace_seen(seen, self._refused(seen.value)):
                return

    async def _stored(self, key: ValueKey[T], spent: HeldTokens, tokens: Tokens) -> Fresh[T] | Over:
        """Put new tokens into the record, whatever else is changed in it meanwhile, unless it is gone."""
        async for attempt in attempts("a record with the tokens of a provider", most=_ATTEMPTS):
            try:
                seen = await key.see()
                if seen is None:
                    break
                if self._held(seen.value) != spent:  # ours, by a write whose answer was lost; or those of a new login
                    return Fresh(seen.value, was_renewed=True)
                value = self._renewed(seen.value, tokens)
                if await key.replace_seen(seen, value):
                    return Fresh(value, was_renewed=True)
            except StoreUnavailable:  # nobody else has these tokens, so it is worth trying again
                if attempt == _ATTEMPTS - 1:
                    raise
                await self._pause(_PAUSE_S * 2**attempt)
        with suppress(OAuthError):  # the user logged out: nobody should have tokens that still work
            await self._client.revoke(tokens.refresh_token or tokens.access_token)
        return Over("gone")

    async def _waited(self, key: ValueKey[T], value: T, claim: ValueKey[str]) -> Fresh[T] | Unrenewed[T] | Over:
        """Another request renews: the old tokens while they are good, then what it brings."""
        left_s = self._wait_s
        while self._is_expired(value):
            state = await claim.get()
            for failed in _FAILURES:
                if state == failed:
                    return self._without(value, failed)
            if left_s <= 0:
                return Unrenewed(value, "busy")
            await self._pause(min(_PAUSE_S, left_s))
            left_s -= _PAUSE_S
            found = await key.get()
            if found is None:
                return Over("gone")
            value = found
        return Fresh(value)

    async def _released(self, claim: ValueKey[str], holder: str, failed: _Failed | None) -> None:
        """Give the claim back if it is still ours.

        After a failure it stays: so a provider that is down is not asked by every request, and none waits for it.
        """
        mark = claim.delete() if failed is None else claim.replace(failed)
        await claim.bound.keyspace.atomically(claim.holds(holder), mark)

    def _without(self, value: T, failed: _Failed) -> Fresh[T] | Unrenewed[T] | Over:
        """What there is where no new tokens came."""
        if failed == "refused":
            return Over("refused")
        return Unrenewed(value, failed) if self._is_expired(value) else Fresh(value)

    def _is_due(self, value: T) -> bool:
        held = self._held(value)
        return bool(held.refresh_token) and self._now_ms() >= held.expires_at_ms - self._before_ms

    def _is_expired(self, value: T) -> bool:
        return self._now_ms() >= self._held(value).expires_at_ms


@dataclass(frozen=True)
class _Failure(Generic[T_co]):
    value: T_co = field(repr=False)
    reason: _Failed


def _check(claims: Any, within_ms: int) -> None:
    if not isinstance(claims, Bound) or not isinstance(claims.family, Value) or claims.family.codec.type is not str:
        raise BadDeclaration("who renews is kept in a family Value(…, str, …), as in Renewal(client, keys.renewing, …)")
    place, lifetime = claims.family.place, claims.family.lifetime
    if not isinstance(lifetime, After) or lifetime.ms <= within_ms:
        raise BadDeclaration(
            f"{place}: it lives longer than the provider may take ({in_words(within_ms)}), so that no two ask at once; "
            'write lifetime=after("20s")'
        )
    if not has_atomic_steps(claims.store.guarantees):
        raise DoesNotFit(f"{place} does not fit {claims.store.url}: two processes would spend one refresh token")
