"""Refresh tokens: refresh token rotation, reuse detection and revocation."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, Literal, TypeAlias, cast

from keystead.errors import BadDeclaration, BadKey, BadValue, Contended, DoesNotFit, Unreadable
from keystead.parts.digest import digest
from keystead.parts.refresh.refresh_record import (
    NewChain,
    R,
    RefreshEvent,
    RefreshRecord,
    Retried,
    Rotated,
    RotationRefused,
)
from keystead.parts.refresh.refresh_token_format import PURPOSE, SECRET_BYTES, Given, Mint
from keystead.schema import Bound, Operation, Steps, attempts, procedure
from keystead.schema.kinds import Seen, Value, ValueKey
from keystead.schema.lifetime import After, duration_ms, in_words
from keystead.schema.relation import read_origin
from keystead.schema.slots import spans_keys
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.refresh")

_MAX_SECRETS: Final = 16  # collisions before the random number generator counts as broken
_NEEDED: Final = frozenset(RefreshRecord.model_fields)

Alive: TypeAlias = Callable[[R], Operation[bool]]
Tell: TypeAlias = Callable[[RefreshEvent], Awaitable[Any]]


class RefreshTokens(Generic[R]):
    """The refresh tokens of a family `Value("refresh:{token:token}", …, lifetime=after("30d"), leads_to=session)`.

        class RefreshToken(RefreshRecord):
            uid: str
            sid: str

        tokens = RefreshTokens(keys.refresh, grace="30s")
        begun = await tokens.begin(RefreshToken(uid="42", sid=sid, client="desktop"))
        rotated = await tokens.rotate(begun.token, client="desktop")     # Rotated, Retried or RotationRefused

    **All tokens that descend from one `begin` are a chain (a token family), and a chain is one record**, which knows
    its newest token. A rotation is one compare-and-set on it. So concurrent requests with one token all get the same
    successor, a chain that was revoked or has ended stays ended, and all of it is in one slot of a cluster.

    grace    how long the last used token gets the same successor again, for clients that lost the response. **Reuse
             detection**: any older token, or the last one after the grace, ends the chain, because it was stolen
    alive    whether the session of a record is alive. By default: whether the key that `leads_to` names exists
    tell     called with security events for an operator; the token is refused even if this fails

    The lifetime of the family is that of the whole chain, from `begin` on. The clock of the keyspace decides the grace
    and the expiry, so clock skew shifts both. `new_secret` is for tests. Raises BadDeclaration for families of another
    shape or without a key ring, and DoesNotFit for a store without atomic steps.
    """

    def __init__(
        self,
        family: Bound[ValueKey[R]],
        *,
        grace: str | timedelta = "30s",
        alive: Alive[R] | None = None,
        tell: Tell | None = None,
        new_secret: Callable[[], bytes] = lambda: secrets.token_bytes(SECRET_BYTES),
    ) -> None:
        self._lifetime_ms = _lifetime_ms(family)
        self.grace_ms: Final = duration_ms(grace, "grace")
        if self.grace_ms >= self._lifetime_ms:
            raise BadDeclaration(
                f"{family.family.place}: the grace ({in_words(self.grace_ms)}) must be much shorter than the lifetime "
                f"({in_words(self._lifetime_ms)})"
            )
        self._family = family
        self._mint = Mint(_token_keys(family))
        self._alive = alive or _alive_by_relation(family)
        self._tell = tell
        self._new_secret = new_secret
        self._now_ms = family.now_ms

    async def begin(self, record: R) -> NewChain[R]:
        """Start a chain for the user and the session in the record. One round trip; nothing is overwritten.

        The session is checked when the token is used: the token of a session that has ended is dead. Raises BadValue
        for a record that names no session.
        """
        self._alive(record).close()
        now_ms = self._now_ms()
        record = record.model_copy(
            update={
                "created_at": moment(now_ms),
                "expires_at": moment(now_ms + self._lifetime_ms),
                "is_used": False,
                "generation": 0,
                "rotated_at": None,
            }
        )
        for _ in range(_MAX_SECRETS):
            first = self._mint.first(self._new_secret())
            if await self._family(first.id).add(record):
                return NewChain(first.text, first.id, record, _base_fields(record).scope)
        raise Contended("every new secret collided with an existing chain; is the random number generator broken?")

    async def rotate(
        self, token: str, *, client: str | None = None, scope: str | None = None, audience: str | None = None
    ) -> Rotated[R] | Retried[R] | RotationRefused:
        """Rotate: use a token up and get the next one. Two round trips, three in a cluster; none for a malformed token.

        `client` must be the one the chain is bound to. `scope` may ask for a subset of the granted scope, `audience`
        must be the granted one; without them everything is granted. A store outage raises the store's error: whether or
        not the token was used, the same token works again within the grace.
        """
        given = self._mint.read(token)
        if given is None:
            return RotationRefused("unknown")
        try:
            return await self._rotate(self._family(given.id), given, client, scope, audience)
        except Unreadable:
            return RotationRefused("unreadable")

    async def _rotate(
        self, key: ValueKey[R], given: Given, client: str | None, scope: str | None, audience: str | None
    ) -> Rotated[R] | Retried[R] | RotationRefused:
        seen, is_alive = await key.see(), False
        async for _ in attempts("a chain of refresh tokens"):
            if seen is None:
                return RotationRefused("unknown")
            decision = self._decide(seen.value, given, client, scope, audience)
            if isinstance(decision, RotationRefused):
                return await self._refuse(key, seen.value, decision, client)
            granted = _base_fields(seen.value).scope if scope is None else scope
            if decision == "retry":
                if not is_alive and not await self._alive(seen.value):
                    break
                return Retried(given.successor.text, given.id, seen.value, granted)
            alive = self._alive(seen.value)
            is_in_other_store = alive.store is not key.bound.store
            if is_in_other_store and not await alive:
                break
            advanced = self._advance(seen.value, given)
            done = await self._write(key, seen, advanced, [] if is_in_other_store else [alive])
            if done:
                return Rotated(given.successor.text, given.id, advanced, granted)
            if done.stopped == "session":
                break
            seen, is_alive = done.before[-1], True  # another request was faster: the record it wrote decides
        # Only a session that has ended leads here: the last attempt raises Contended.
        await key.delete()
        return RotationRefused("session")

    async def examine(self, token: str, *, client: str | None = None) -> R | RotationRefused:
        """The record of a token's chain, without using the token up, or why `rotate` would refuse it. One round trip.

        For checks with other systems before the token is used up. Reuse detection works here as in `rotate`, so an
        outage of those systems does not delay it. The session is not checked.
        """
        given = self._mint.read(token)
        if given is None:
            return RotationRefused("unknown")
        key = self._family(given.id)
        try:
            seen = await key.see()
        except Unreadable:
            return RotationRefused("unreadable")
        if seen is None:
            return RotationRefused("unknown")
        decision = self._decide(seen.value, given, client, None, None)
        return (
            await self._refuse(key, seen.value, decision, client)
            if isinstance(decision, RotationRefused)
            else seen.value
        )

    async def revoke(self, token: str) -> bool:
        """Revoke the chain of a token, even of an old token. False: not a token, or already ended. One round trip."""
        given = self._mint.read(token)
        return given is not None and await self.revoke_chain(given.id)

    async def revoke_chain(self, id: str) -> bool:
        """Revoke a chain by its id. False: there is none. No rotation under way resurrects it. One round trip."""
        try:
            key = self._family(id)
        except BadKey:
            return False
        return await key.delete()

    # --- one use -------------------------------------------------------------------------------------------

    def _decide(
        self, found: R, given: Given, client: str | None, scope: str | None, audience: str | None
    ) -> RotationRefused | Literal["rotate", "retry"]:
        """Decide about an authentic token. A token that is too old never works again."""
        record, now_ms = _base_fields(found), self._now_ms()
        if record.is_used:
            return RotationRefused("reused", "ended")
        if now_ms >= deadline_ms(record.expires_at):
            return RotationRefused("expired")
        if given.generation < record.generation - 1:
            return RotationRefused("reused", "stale")
        is_last = given.generation == record.generation - 1
        if is_last and not self._in_grace(record, now_ms):
            return RotationRefused("reused", "late")
        if client != record.client:
            return RotationRefused("client")
        if scope is not None and not set(scope.split()) <= set((record.scope or "").split()):
            return RotationRefused("scope")
        if audience is not None and audience != record.audience:
            return RotationRefused("audience")
        # A generation beyond that of the record is authentic too: the store lost its last writes, as after a failover.
        # The token itself proves that the chain came this far.
        return "retry" if is_last else "rotate"

    def _in_grace(self, record: RefreshRecord, now_ms: int) -> bool:
        return record.rotated_at is not None and now_ms < deadline_ms(record.rotated_at) + self.grace_ms

    def _advance(self, record: R, given: Given) -> R:
        return record.model_copy(
            update={"generation": given.successor.generation, "rotated_at": moment(self._now_ms())}
        )

    @procedure(ordered="each use checks the session again: a token written while its session ended is dead")
    def _write(self, key: ValueKey[R], seen: Seen[R], record: R, alive: Sequence[Operation[bool]]) -> Steps[None]:
        """Write the record if it is unchanged since it was read and its session, in the same store, is alive.

        Who may interleave: another rotation, a revoke, a reuse, the end of the session. The first three change or
        delete the record, so `holds` stops us, and the last one stops us before that.
        """
        guards = (one.otherwise("session") for one in alive)
        return Steps(*guards, key.see(), key.holds(seen), key.replace(record))

    async def _refuse(
        self, key: ValueKey[R], record: R, refused: RotationRefused, client: str | None
    ) -> RotationRefused:
        """End the chain if its token was reused, and report it."""
        if refused.reason == "reused":
            if refused.why != "ended":
                # No compare-and-set: whatever a rotation wrote meanwhile, the token is old and its chain ends.
                # `replace` does not recreate a deleted chain, and keeps the TTL.
                await key.replace(record.model_copy(update={"is_used": True}))
                _log.warning("refresh: token reuse detected (%s); the chain has ended", refused.why)
            await self._report("refresh-reused", refused, key, record, client)
        elif refused.reason == "client":
            await self._report("refresh-wrong-client", refused, key, record, client)
        return refused

    async def _report(
        self,
        event: Literal["refresh-reused", "refresh-wrong-client"],
        refused: RotationRefused,
        key: ValueKey[R],
        record: R,
        client: str | None,
    ) -> None:
        if self._tell is None:
            return
        subject = self._family.family.subject
        user = None if subject is None else str(read_origin(subject.origin, key.values, record))
        chain = str(next(iter(key.values.values())))
        try:
            await self._tell(RefreshEvent(event, refused.why, user, chain, client))
        except Exception as error:  # a failing callback must not let a stolen token in
            _log.warning("refresh: reporting a security event failed: %s", type(error).__name__)


def _base_fields(record: Any) -> RefreshRecord:
    """The record as a RefreshRecord. Its family was checked to have these fields."""
    return cast("RefreshRecord", record)


def _alive_by_relation(family: Bound[Any]) -> Alive[Any]:
    """Check that the key exists that `leads_to` names."""
    relations = family.family.leads_to
    if len(relations) != 1:
        raise BadDeclaration(
            f"{family.family.place}: a refresh token belongs to a session; write leads_to=session, or pass alive=… to "
            "check whether it may still be used"
        )
    [relation] = relations
    if any(origin is None or origin.kind == "placeholder" for origin in relation.origins.values()):
        raise BadDeclaration(
            f"{family.family.place}: a field of the model must name its session, as in "
            'leads_to=session.by(sid="session_id")'
        )
    if any(listing.admits for listing in relation.target.listed_in):
        raise BadDeclaration(
            f"{family.family.place}: the sessions of {relation.target.place} count only while an index lists them, so "
            "an existing key proves nothing; pass alive=lambda record: keys.user_sessions(record.uid).has(…)"
        )
    sessions = family.related(relation.target)

    def alive(record: Any) -> Operation[bool]:
        values = relation.target_values({}, record)
        if values is None:
            raise BadValue(f"{family.family.place}: a refresh token needs a session, but this record names none")
        found: Operation[bool] = sessions(**values).exists()
        return found

    return alive


def _lifetime_ms(family: Any) -> int:
    """The lifetime of a chain. Raises BadDeclaration or DoesNotFit if the family or its store does not fit."""
    if not isinstance(family, Bound) or not isinstance(family.family, Value):
        raise BadDeclaration("refresh tokens need a family Value(…), as in RefreshTokens(keys.refresh)")
    place, lifetime = family.family.place, family.family.lifetime
    missing = _NEEDED - family.family.field_names
    if missing:
        raise BadDeclaration(f"{place}: the model of refresh tokens has no {min(missing)}; subclass RefreshRecord")
    if not isinstance(lifetime, After):
        raise BadDeclaration(
            f"{place}: refresh tokens expire a fixed time after the login, however often they are rotated; write "
            f'lifetime=after("30d"), not {lifetime.describe()}'
        )
    if len(family.family.pattern.names) != 1:
        raise BadDeclaration(
            f'{place}: the only placeholder of the key must be the digest of the token, as in "refresh:{{token:token}}"'
        )
    store = family.store
    if not spans_keys(store):
        raise DoesNotFit(f"{place} does not fit {store.url}: using a refresh token up needs an atomic step")
    if store.guarantees.consistency == "eventual":
        raise DoesNotFit(f"{place} does not fit {store.url}: a read may miss an acknowledged logout")
    try:
        family(digest(""))
    except BadKey as error:
        raise BadDeclaration(
            f"{place}: it must allow 43 base64url characters, as in {{token:token}}; {error}"
        ) from None
    return lifetime.ms


def _token_keys(family: Bound[Any]) -> list[bytes]:
    if family.ring is None:
        raise BadDeclaration(f"{family.family.place}: refresh tokens need a key ring; pass seal=… to the keyspace")
    return family.ring.derived(PURPOSE)
