"""OAuth token renewal: a provider's tokens in a record, refreshed before they expire, once across all processes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from keystead.deprecation import forward_old_names
from keystead.errors import BadDeclaration, DoesNotFit, StoreError, StoreUnavailable
from keystead.parts.oauth import Client, OAuthError, ProviderRefused, Tokens
from keystead.schema import Bound, attempts
from keystead.schema.kinds import Value, ValueKey
from keystead.schema.lifetime import After, duration_ms, in_words
from keystead.schema.store_fit import has_atomic_steps

__all__ = ["Fresh", "HeldTokens", "Over", "Renewal", "Unrenewed"]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = forward_old_names(__name__, {"Held": "HeldTokens"})

_log = logging.getLogger("keystead.renewal")

_PAUSE_S: Final = 0.1
_ATTEMPTS: Final = 8  # to store new tokens, the only copy

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Why: TypeAlias = Literal["unavailable", "misconfigured", "busy"]
_FailureReason: TypeAlias = Literal["unavailable", "misconfigured", "refused"]

# Stored in place of the holder of a claim: the renewal failed, and must not be retried for a while.
_FAILURES: Final[tuple[_FailureReason, ...]] = get_args(_FailureReason)


@dataclass(frozen=True)
class HeldTokens:
    """The tokens in a record. Without a refresh token they cannot be renewed."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at_ms: int


@dataclass(frozen=True)
class Fresh(Generic[T_co]):
    """The access token is valid now. `was_renewed`: by this call."""

    value: T_co = field(repr=False)
    was_renewed: bool = False

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True)
class Unrenewed(Generic[T_co]):
    """The access token has expired and could not be renewed now. Nothing is lost; try again later.

    reason   `unavailable`: the provider is down, too slow, or sends invalid responses
             `misconfigured`: the provider refuses us, not the user: client id, secret or settings are wrong
             `busy`: another request is still renewing it
    """

    value: T_co = field(repr=False)
    reason: Why

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class Over:
    """The tokens cannot be renewed any more.

    reason   `refused`: the provider rejects the refresh token (`invalid_grant`), or there is none: the user has to log
             in there again
             `gone`: the record does not exist; tokens issued meanwhile were revoked at the provider
    """

    reason: Literal["refused", "gone"]

    def __bool__(self) -> Literal[False]:
        return False


class Renewal(Generic[T]):
    """Renews the tokens of one provider in the records of a family before they expire.

        renewal = Renewal(
            client,
            keys.renewing,  # Value("renewing:{sid:token}", str, lifetime=after("20s"), tag="sid", …)
            held=lambda session: HeldTokens(session.access_token, session.refresh_token, session.expires_at_ms),
            renewed=lambda session, tokens: session.model_copy(update={…}),
        )
        found = await renewal.fresh(keys.session(sid))

    claims    one key for each record, with the same placeholders: the claim of the request that renews it. It lives
              longer than `within`; after a failure the provider is not called again for that long
    held      reads the tokens from a record
    renewed   puts new ones into it. It may be called several times, and leaves the other fields alone
    refused   marks a record whose refresh token the provider rejects, as after a renewal whose response was lost;
              `held` then returns no refresh token. Without it, the provider is called again each time a claim expires
    before    how long before its expiry a token is renewed. Meanwhile the old one is still valid, and no request waits
    within    the time limit for the provider
    wait      how long other requests wait for the one that renews, if the old token has expired

    A provider may issue a new refresh token with each use, and treat the use of an old one as theft. So only one
    request at a time calls it; new tokens are stored before they are used, with a compare-and-set on the spent ones;
    and cancelling the caller does not stop that. One thing is impossible: if the process dies between the provider's
    response and the write, the new refresh token is lost. `pause` is for tests.
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
        """The record with valid tokens. One round trip if they are; otherwise one request calls the provider.

        Raises the store's error during an outage, and BadKey for a record that the claims cannot name.
        """
        value = await key.get()
        if value is None:
            return Over("gone")
        if not self._is_due(value):
            return Over("refused") if self._is_expired(value) else Fresh(value)
        # The provider may have spent the old refresh token: cancelling the caller must not lose the new one.
        task = asyncio.ensure_future(self._claim_and_renew(key, value))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for renewals in progress, before the program ends."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _claim_and_renew(self, key: ValueKey[T], value: T) -> Fresh[T] | Unrenewed[T] | Over:
        claim, holder = self._claims(**key.values), secrets.token_hex(16)
        # Measured from before the claim exists: so no request calls the provider after its claim has expired.
        until_s = asyncio.get_running_loop().time() + self._within_s
        if not await claim.add(holder):
            return await self._wait_for_other(key, value, claim)
        failed: _FailureReason | None = None
        try:
            found = await self._renew(key, until_s)
            if not isinstance(found, _Failure):
                return found
            failed = found.reason
            return self._result_without_renewal(found.value, failed)
        finally:
            with suppress(StoreError):  # it expires
                await self._release(claim, holder, failed)

    async def _renew(self, key: ValueKey[T], until_s: float) -> Fresh[T] | _Failure[T] | Over:
        """Call the provider. No other request does meanwhile, so read the record again first."""
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
                again = await key.get()  # a new login may have stored other tokens
                if again is not None and self._held(again) != spent:
                    return Fresh(again)
                await self._mark_refused(key, spent)
                return _Failure(value, "refused")
            _log.error("renewal: %s refuses us: %s", self._client.provider.name, error.error or "no reason given")
            return _Failure(value, "misconfigured")
        except (OAuthError, TimeoutError) as error:
            code = error.code if isinstance(error, OAuthError) else "timeout"
            _log.warning("renewal: no new tokens from %s: %s", self._client.provider.name, code)
            return _Failure(value, "unavailable")
        return await self._store(key, spent, tokens)

    async def _mark_refused(self, key: ValueKey[T], spent: HeldTokens) -> None:
        """Mark the record, unless it has new tokens: the provider would reject the old ones again."""
        if self._refused is None:
            return
        async for _ in attempts("a record with the tokens of a provider"):
            seen = await key.see()
            if seen is None or self._held(seen.value) != spent:
                return
            if await key.replace_seen(seen, self._refused(seen.value)):
                return

    async def _store(self, key: ValueKey[T], spent: HeldTokens, tokens: Tokens) -> Fresh[T] | Over:
        """Store new tokens in the record with compare-and-set, unless the record is gone."""
        async for attempt in attempts("a record with the tokens of a provider", most=_ATTEMPTS):
            try:
                seen = await key.see()
                if seen is None:
                    break
                if self._held(seen.value) != spent:  # ours, by a write whose reply was lost; or those of a new login
                    return Fresh(seen.value, was_renewed=True)
                value = self._renewed(seen.value, tokens)
                if await key.replace_seen(seen, value):
                    return Fresh(value, was_renewed=True)
            except StoreUnavailable:  # these tokens exist nowhere else, so retry
                if attempt == _ATTEMPTS - 1:
                    raise
                await self._pause(_PAUSE_S * 2**attempt)
        with suppress(OAuthError):  # the user logged out: revoke tokens that still work
            await self._client.revoke(tokens.refresh_token or tokens.access_token)
        return Over("gone")

    async def _wait_for_other(self, key: ValueKey[T], value: T, claim: ValueKey[str]) -> Fresh[T] | Unrenewed[T] | Over:
        """Another request is renewing: return the old tokens while they are valid, then the new ones."""
        left_s = self._wait_s
        while self._is_expired(value):
            state = await claim.get()
            for failed in _FAILURES:
                if state == failed:
                    return self._result_without_renewal(value, failed)
            if left_s <= 0:
                return Unrenewed(value, "busy")
            await self._pause(min(_PAUSE_S, left_s))
            left_s -= _PAUSE_S
            found = await key.get()
            if found is None:
                return Over("gone")
            value = found
        return Fresh(value)

    async def _release(self, claim: ValueKey[str], holder: str, failed: _FailureReason | None) -> None:
        """Release the claim if it is still ours.

        After a failure it stays: so requests neither call nor wait for a provider that is down.
        """
        mark = claim.delete() if failed is None else claim.replace(failed)
        await claim.bound.keyspace.atomically(claim.holds(holder), mark)

    def _result_without_renewal(self, value: T, failed: _FailureReason) -> Fresh[T] | Unrenewed[T] | Over:
        """The result without new tokens."""
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
    reason: _FailureReason


def _check(claims: Any, within_ms: int) -> None:
    if not isinstance(claims, Bound) or not isinstance(claims.family, Value) or claims.family.codec.type is not str:
        raise BadDeclaration("claims need a family Value(…, str, …), as in Renewal(client, keys.renewing, …)")
    place, lifetime = claims.family.place, claims.family.lifetime
    if not isinstance(lifetime, After) or lifetime.ms <= within_ms:
        raise BadDeclaration(
            f"{place}: a claim must live longer than the time limit for the provider ({in_words(within_ms)}), so that "
            'only one request calls it; write lifetime=after("20s")'
        )
    if not has_atomic_steps(claims.store.guarantees):
        raise DoesNotFit(f"{place} does not fit {claims.store.url}: two processes could spend one refresh token")
