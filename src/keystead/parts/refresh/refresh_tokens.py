"""Refresh tokens: begin, rotate, revoke."""

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
from keystead.schema.relation import taken
from keystead.schema.slots import spans_keys
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.refresh")

_SECRETS: Final = 16  # that may be taken before the source of random numbers is called broken
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
        rotated = await tokens.rotate(begun.token, client="desktop")     # Rotated, Retried or Refused

    **All tokens that come of one `begin` are a chain, and a chain is one record**, which says which of them is the
    newest. A rotation is one compare-and-set on it. So of any number of clients with one token all get one successor;
    nothing that was revoked or has ended comes back; and all of it is in one slot of a cluster.

    grace    for how long after its use the last token gets the same successor again, for clients that lost the answer.
             Any older token, and the last one after the grace, ends the chain: somebody has it who should not
    alive    asks whether the session of a record is alive. Without it, it is the key that `leads_to` names
    tell     is called with what an operator should know; the token is refused whether this succeeds or not

    The lifetime that the family states is that of a whole chain, from `begin` on. The clock of the keyspace decides the
    grace and the end, so clocks that are two seconds apart shift them by as much. `new_secret` is for tests. Raises
    BadDeclaration for families of another shape and without a key ring, DoesNotFit for a store without atomic steps.
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
                f"{family.family.place}: the grace ({in_words(self.grace_ms)}) is shorter than the lifetime "
                f"({in_words(self._lifetime_ms)}), and much so"
            )
        self._family = family
        self._mint = Mint(_mint_keys(family))
        self._alive = alive or _alive_by_relation(family)
        self._tell = tell
        self._new_secret = new_secret
        self._now_ms = family.now_ms

    async def begin(self, record: R) -> NewChain[R]:
        """A new chain, for the user and the session that the record names. One round trip; nothing is overwritten.

        Whether the session is alive is asked when the token is used: the token of a session that is gone is dead.
        Raises BadValue for a record that names none.
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
        for _ in range(_SECRETS):
            first = self._mint.first(self._new_secret())
            if await self._family(first.id).add(record):
                return NewChain(first.text, first.id, record, _of(record).scope)
        raise Contended("there is a chain for each secret that was made; is the source of random numbers broken?")

    async def rotate(
        self, token: str, *, client: str | None = None, scope: str | None = None, audience: str | None = None
    ) -> Rotated[R] | Retried[R] | RotationRefused:
        """Use a token up and get the next one. Two round trips, three in a cluster; none for what is no token of ours.

        `client` must be the one that the chain is bound to. `scope` asks for a part of what it is good for, and
        `audience` for the one that it is for; without them it is all of it. Raises the error of a store that is down:
        then the token may have been used or not, and either way the same token works again within the grace.
        """
        given = self._mint.read(token)
        if given is None:
            return RotationRefused("unknown")
        key = self._family(given.id)
        try:
            seen, is_alive = await key.see(), False
            async for _ in attempts("a chain of refresh tokens"):
                if seen is None:
                    return RotationRefused("unknown")
                judged = self._judged(seen.value, given, client, scope, audience)
                if isinstance(judged, RotationRefused):
                    return await self._refused(key, seen.value, judged, client)
                granted = _of(seen.value).scope if scope is None else scope
                if judged == "retry":
                    if not is_alive and not await self._alive(seen.value):
                        return await self._without_session(key)
                    return Retried(given.successor.text, given.id, seen.value, granted)
                advanced = self._advanced(seen.value, given)
                alive = self._alive(seen.value)
                is_apart = alive.store is not key.bound.store
                if is_apart and not await alive:
                    return await self._without_session(key)
                done = await self._write(key, seen, advanced, [] if is_apart else [alive])
                if done:
                    return Rotated(given.successor.text, given.id, advanced, granted)
                if done.stopped == "session":
                    return await self._without_session(key)
                seen, is_alive = done.before[-1], True  # another was faster: what it wrote decides
        except Unreadable:
            return RotationRefused("unreadable")
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def examine(self, token: str, *, client: str | None = None) -> R | RotationRefused:
        """What the chain of a token holds, without using the token up; or why `rotate` would refuse it. One round trip.

        For what has to be asked of others before a token is used up. A token that was used before ends its chain here
        as it does there, so that whatever else is away does not put that off. Whether its session is alive is not
        asked.
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
        judged = self._judged(seen.value, given, client, None, None)
        return (
            await self._refused(key, seen.value, judged, client) if isinstance(judged, RotationRefused) else seen.value
        )

    async def revoke(self, token: str) -> bool:
        """End the chain of a token, also of an old one. False: it was none, or had ended. One round trip."""
        given = self._mint.read(token)
        return given is not None and await self.revoke_chain(given.id)

    async def revoke_chain(self, id: str) -> bool:
        """End a chain by its id. False: there is none. No rotation under way brings it back. One round trip."""
        try:
            key = self._family(id)
        except BadKey:
            return False
        return await key.delete()

    # --- one use -------------------------------------------------------------------------------------------

    def _judged(
        self, found: R, given: Given, client: str | None, scope: str | None, audience: str | None
    ) -> RotationRefused | Literal["rotate", "retry"]:
        """What is to become of a token that this server made. One that is too old is never good again."""
        record, now_ms = _of(found), self._now_ms()
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
        # A generation beyond that of the record was made by us all the same: the store lost its last moments, as
        # after a failover. The token itself proves that the chain came so far.
        return "retry" if is_last else "rotate"

    def _in_grace(self, record: RefreshRecord, now_ms: int) -> bool:
        return record.rotated_at is not None and now_ms < deadline_ms(record.rotated_at) + self.grace_ms

    def _advanced(self, record: R, given: Given) -> R:
        return record.model_copy(
            update={"generation": given.successor.generation, "rotated_at": moment(self._now_ms())}
        )

    @procedure(ordered="each use asks again: a token that was written as its session ended is dead")
    def _write(self, key: ValueKey[R], seen: Seen[R], record: R, alive: Sequence[Operation[bool]]) -> Steps[None]:
        """Write the record if nobody did since it was seen, and the session is alive, which is asked in the same store.

        Who may interleave: another rotation, a revoke, a reuse, the end of the session. The first three change or
        delete the record, so `holds` stops us, and the last one stops us before that.
        """
        asked = (one.otherwise("session") for one in alive)
        return Steps(*asked, key.see(), key.holds(seen), key.replace(record))

    async def _refused(
        self, key: ValueKey[R], record: R, refused: RotationRefused, client: str | None
    ) -> RotationRefused:
        """End the chain where its token was used again, and tell of it."""
        if refused.reason == "reused":
            if refused.why != "ended":
                # Not compared: whatever a rotation wrote meanwhile, the token is old, and all that came of it ends.
                # It is never written where the chain is gone, and lives no longer by it.
                await key.replace(record.model_copy(update={"is_used": True}))
                _log.warning("refresh: a token was used again (%s), so its chain has ended", refused.why)
            await self._told("refresh-reused", refused, key, record, client)
        elif refused.reason == "client":
            await self._told("refresh-wrong-client", refused, key, record, client)
        return refused

    async def _without_session(self, key: ValueKey[R]) -> RotationRefused:
        await key.delete()
        return RotationRefused("session")

    async def _told(
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
        user = None if subject is None else str(taken(subject.origin, key.values, record))
        chain = str(next(iter(key.values.values())))
        try:
            await self._tell(RefreshEvent(event, refused.why, user, chain, client))
        except Exception as error:  # whoever is told must not be able to let a stolen token in
            _log.warning("refresh: nobody could be told of a misuse: %s", type(error).__name__)


def _of(record: Any) -> RefreshRecord:
    """A record by the fields that `RefreshTokens` keeps. Its family was checked to have them."""
    return cast("RefreshRecord", record)


def _alive_by_relation(family: Bound[Any]) -> Alive[Any]:
    """Asks for the key that `leads_to` names."""
    relations = family.family.leads_to
    if len(relations) != 1:
        raise BadDeclaration(
            f"{family.family.place}: a refresh token belongs to a session; write leads_to=session, or pass alive=… to "
            "say how to ask whether it may still be used"
        )
    [relation] = relations
    if any(origin is None or origin.kind == "placeholder" for origin in relation.origins.values()):
        raise BadDeclaration(
            f"{family.family.place}: its session is named by a field of the model, as in "
            'leads_to=session.by(sid="session_id")'
        )
    if any(listing.admits for listing in relation.target.listed_in):
        raise BadDeclaration(
            f"{family.family.place}: the sessions of {relation.target.place} count only while an index names them, so "
            "that their key is there says nothing; pass alive=lambda record: keys.user_sessions(record.uid).has(…)"
        )
    sessions = family.related(relation.target)

    def alive(record: Any) -> Operation[bool]:
        values = relation.target_values({}, record)
        if values is None:
            raise BadValue(f"{family.family.place}: a refresh token belongs to a session, and this record names none")
        found: Operation[bool] = sessions(**values).exists()
        return found

    return alive


def _lifetime_ms(family: Any) -> int:
    """How long a chain of tokens lives. Raises BadDeclaration or DoesNotFit where it cannot be made here."""
    if not isinstance(family, Bound) or not isinstance(family.family, Value):
        raise BadDeclaration("refresh tokens are kept in a family Value(…), as in RefreshTokens(keys.refresh)")
    place, lifetime = family.family.place, family.family.lifetime
    missing = _NEEDED - family.family.field_names
    if missing:
        raise BadDeclaration(f"{place}: the model of refresh tokens has no {min(missing)}; inherit RefreshRecord")
    if not isinstance(lifetime, After):
        raise BadDeclaration(
            f"{place}: refresh tokens end a fixed time after the login, however often they are rotated; write "
            f'lifetime=after("30d"), not {lifetime.describe()}'
        )
    if len(family.family.pattern.names) != 1:
        raise BadDeclaration(f'{place}: the key holds the digest of the token alone, as in "refresh:{{token:token}}"')
    store = family.store
    if not spans_keys(store):
        raise DoesNotFit(f"{place} does not fit {store.url}: a refresh token is used once, in one atomic step")
    if store.guarantees.consistency == "eventual":
        raise DoesNotFit(f"{place} does not fit {store.url}: a read may miss a logout that was acknowledged")
    try:
        family(digest(""))
    except BadKey as error:
        raise BadDeclaration(
            f"{place}: the digest has 43 letters of base64url, as in {{token:token}}; {error}"
        ) from None
    return lifetime.ms


def _mint_keys(family: Bound[Any]) -> list[bytes]:
    if family.ring is None:
        raise BadDeclaration(
            f"{family.family.place}: refresh tokens are made with a key of the key ring; pass "
            "seal=KeyRing.from_text(…) to the keyspace"
        )
    return family.ring.derived(PURPOSE)
