"""Sessions: logins that end when they should, and stay ended."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, cast

from keystead.errors import BadDeclaration, BadValue, CapReached, Contended, Unreadable
from keystead.parts.sessions.policy import Policy
from keystead.parts.sessions.record import Ended, Gone, Live, New, Reason, S, Successor
from keystead.parts.sessions.token import SECRET_BYTES, id_of, named_by, new_token
from keystead.schema.family import Bound
from keystead.schema.kinds.value import ValueKey
from keystead.schema.relation import Relation
from keystead.schema.times import deadline_ms
from keystead.stores import TABLE, Call, Command, Reply, Step, at_most, holds, required

_ATTEMPTS = 64  # logins of one user at one moment that may come between before a login gives up
_AT_ONCE = 200
_GET, _SISMEMBER = TABLE["GET"], TABLE["SISMEMBER"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT = frozenset({"created_at", "last_seen_at"})


class Sessions(Generic[S]):
    """The sessions of a family: a `Value` of a model with `created_at` and `last_seen_at`, listed in a Set by user.

    **A session is alive while its record is there and the user's Set names it.** Only a login and a rotation write
    into the Set. So whatever takes the entry out ends the session for good: no save, touch, rotation or refresh
    that is under way brings it back, and deleting the Set ends all sessions of a user in one atomic write.

        keys = AppKeys(store)
        sessions = Sessions(keys.session, Policy(idle="1h", absolute="24h", cap=3))

    `successors` and `ends`, two further families, are optional: with the first, requests under way may come with the
    old token for a moment after a rotation; with the second, whoever was evicted or revoked is told so.
    `new_secret` is for tests.
    """

    def __init__(
        self,
        family: Bound[ValueKey[S]],
        policy: Policy | None = None,
        *,
        successors: Bound[ValueKey[Successor]] | None = None,
        ends: Bound[ValueKey[Ended]] | None = None,
        new_secret: Callable[[], bytes] = lambda: secrets.token_bytes(SECRET_BYTES),
    ) -> None:
        relation = _index_relation(family)
        self.policy = policy or Policy()
        self._family = family
        self._index = family.related(relation.target)
        self._user_field = _user_field(family, relation)
        self._successors = successors
        self._ends = ends
        self._new_secret = new_secret
        self._store = family.store
        self._one_step = family.store.guarantees.atomic == "any keys"
        self._idle_ms, self._absolute_ms = self.policy.idle_ms, self.policy.absolute_ms
        self._touch_every_ms = self.policy.touch_every_ms

    # --- logins --------------------------------------------------------------------------------------------

    async def create(self, session: S) -> New[S]:
        """Make a session for the user that it names. Three round trips, or four where one must make room.

        Beyond the cap the session whose login is longest ago is evicted, or CapReached is raised, as the policy says;
        of any number of logins at one moment exactly so many are alive afterwards. A login never takes over what a
        browser sends: the token is always new, and nothing that is there is written over.
        """
        now = self._now()
        session = session.model_copy(update={"created_at": now, "last_seen_at": now})
        user = self._user_of(session)
        for _ in range(_ATTEMPTS):
            evicted = await self._in_the_way(user)
            token = new_token(self._new_secret(), user)
            sid = id_of(token)
            taking_out = [required(("SREM", self._list(user), one)) for one in evicted]
            if await self._admit(user, sid, session, [*self._room(user, len(evicted)), *taking_out]):
                await self._discard(evicted, "evicted")
                return New(token, sid, session, tuple(evicted))
        raise Contended("too many logins of one user at the same moment; try again")

    async def rotate(self, token: str) -> New[S] | Gone:
        """Exchange the token for a new one; the session goes on, with its login and its absolute deadline.

        The old token counts no more, except that requests under way may read with it for `policy.grace`; it cannot
        be rotated again. One atomic step: at each moment exactly one of both is listed.
        """
        for _ in range(_ATTEMPTS):
            found = await self._found(token)
            if isinstance(found, Gone):
                return found
            live, raw = found
            if live.aged:
                return Gone("unknown")
            session = live.session.model_copy(update={"last_seen_at": self._now()})
            new = new_token(self._new_secret(), live.user)
            sid = id_of(new)
            guards: list[Step] = [required(("SREM", self._list(live.user), live.id))]
            if self._one_step:  # what another request wrote meanwhile must not be lost
                guards.insert(0, holds(self._key(live.id), raw))
            after: list[Step] = [("DEL", self._key(live.id))]
            if self._successors is not None:
                after += self._successors(live.id).set(Successor(sid=sid)).steps
            if await self._admit(live.user, sid, session, guards, after):
                return New(new, sid, session)
        raise Contended("the session was changed again and again while it was rotated; try again")

    # --- requests ------------------------------------------------------------------------------------------

    async def read(self, token: str) -> Live[S] | Gone:
        """The session of a token. One round trip; a second one about once a minute, which notes that it was used.

        What was never a token is not looked for. Both deadlines are held here, by the record's own times.
        """
        found = await self._found(token)
        if isinstance(found, Gone):
            return found
        live, raw = found
        if self._now_ms() - _ms(live.session.last_seen_at) >= self._touch_every_ms and not live.aged:  # type: ignore[attr-defined]
            return await self._touched(live, raw)
        return live

    async def touch(self, token: str) -> bool:
        """Note that the session was used, now. False: it is not alive, and stays so. Two round trips."""
        found = await self._found(token)
        if isinstance(found, Gone) or found[0].aged:
            return False
        return bool(await self._touched(*found, must=True))

    async def change(self, token: str, function: Callable[[S], S]) -> Live[S] | Gone:
        """Change what the session holds. `function` gets the newest state and may be called several times.

        Two requests that change different fields both succeed. Nothing that has ended is written. Its user, the time
        of its login and of its last use stay as they are.
        """
        for _ in range(_ATTEMPTS):
            found = await self._found(token)
            if isinstance(found, Gone):
                return found
            live, raw = found
            fixed = {name: getattr(live.session, name) for name in (*_KEPT, self._user_field)}
            changed = function(live.session).model_copy(update=fixed)
            if await self._replace(live, raw, changed):
                return Live(live.id, live.user, changed, live.ends_at_ms, live.aged)
        raise Contended("the session was changed by others again and again; try again")

    async def update(self, token: str, **fields: Any) -> Live[S] | Gone:
        """Change some fields of the session and leave the others as they are, whoever changes those meanwhile."""
        unknown = fields.keys() - self._family.family.field_names
        if unknown:
            raise BadValue(f"the session has no field {min(unknown)!r}")
        return await self.change(token, lambda session: session.model_validate({**dict(session), **fields}))

    # --- ends ----------------------------------------------------------------------------------------------

    async def revoke(self, token: str) -> bool:
        """Log out: end the session of a token, also of one from before a rotation. False: it was not alive.

        The first step takes it off the list, which ends it; the rest only cleans up.
        """
        named = named_by(token)
        if named is None:
            return False
        ended = await self._end(named.user, [named.id])
        if not ended and self._successors is not None:
            successor = await self._successors(named.id).consume()
            if successor is not None:
                ended = await self._end(named.user, [successor.sid])
        return bool(ended)

    async def revoke_id(self, user: str, id: str) -> bool:
        """End one session of a user by the id that a listing shows. False: that user has no such session."""
        return bool(await self._end(user, [id], "revoked"))

    async def revoke_others(self, token: str) -> int:
        """End all sessions of the user but this one; how many there were. One atomic step, and cleaning up.

        None ends where this one is not alive itself.
        """
        found = await self._found(token)
        if isinstance(found, Gone):
            return 0
        live, _ = found
        name = self._list(live.user)
        outcome = await self._store.atomically(
            [
                required(("SISMEMBER", name, live.id)),
                ("SMEMBERS", name),
                ("DEL", name),
                ("SADD", name, live.id),
                *self._renewal(live.user),
            ]
        )
        if not outcome:
            return 0
        others = [one for one in _texts(outcome.replies[1]) if one != live.id]
        await self._discard(others, "revoked")
        return len(others)

    async def revoke_all(self, user: str) -> int:
        """End all sessions of a user; how many there were. One atomic write, which needs no list to be complete.

        A login at the same moment is either before it, and ended, or after it, and alive.
        """
        name = self._list(user)
        outcome = await self._store.atomically([("SMEMBERS", name), ("DEL", name)])
        ended = _texts(outcome.replies[0])
        await self._discard(ended, "revoked")
        return len(ended)

    async def revoke_everyone(self) -> AsyncIterator[tuple[str, int]]:
        """End every session there is: yields each user and how many they had, as they end.

        A login that comes while this goes through the users may or may not be ended.
        """
        async for key in self._index.scan():
            user = str(next(iter(key.values.values())))
            yield user, await self.revoke_all(user)

    async def list_for(self, user: str) -> list[Live[S]]:
        """The sessions of a user that are alive, the latest login first; what has ended is taken off the list."""
        members = _texts((await self._store.run([("SMEMBERS", self._list(user))]))[0])
        alive, dead = await self._sorted_out(user, members)
        if dead:
            await self._end(user, dead)
        return sorted(alive, key=lambda live: (-_ms(live.session.created_at), live.id))  # type: ignore[attr-defined]

    # --- one session ---------------------------------------------------------------------------------------

    async def _found(self, token: str) -> tuple[Live[S], bytes] | Gone:
        named = named_by(token)
        if named is None:
            return Gone("unknown")
        found = await self._read(named.user, named.id)
        if isinstance(found, Gone) and found.reason == "unknown":
            return await self._elsewhere(named.user, named.id)
        return found

    async def _read(self, user: str, sid: str, *, aged: bool = False) -> tuple[Live[S], bytes] | Gone:
        key, member = self._key(sid), sid.encode()
        raw, listed = await self._store.run(
            [
                cast("Command", Call(_GET, [key.encode()], None)),
                cast("Command", Call(_SISMEMBER, [self._list(user).encode(), member], None)),
            ]
        )
        if raw is None or not listed:
            return Gone("unknown")
        live = self._live(user, sid, raw, aged)
        if isinstance(live, Gone):
            if live.reason == "expired":
                await self._end(user, [sid])
            return live
        return live, raw

    async def _elsewhere(self, user: str, sid: str) -> tuple[Live[S], bytes] | Gone:
        """For a token that names no session: was it rotated a moment ago, and if not, why did it end?"""
        asked = [
            self._successors(sid).get() if self._successors else None,
            self._ends(sid).get() if self._ends else None,
        ]
        answers = iter(await self._family.keyspace.run(*(one for one in asked if one is not None)))
        successor, end = (next(answers) if one is not None else None for one in asked)
        if successor is not None:
            return await self._read(user, successor.sid, aged=True)
        return Gone(end.reason if end is not None else "unknown")

    def _live(self, user: str, sid: str, raw: bytes, aged: bool = False) -> Live[S] | Gone:
        try:
            session: S = self._family.family.codec.decode(raw, self._key(sid), self._family.ring)
        except Unreadable:
            return Gone("unreadable")
        if getattr(session, self._user_field) != user:
            return Gone("unknown")
        dated: Any = session
        ends_at_ms = min(_ms(dated.last_seen_at) + self._idle_ms, _ms(dated.created_at) + self._absolute_ms)
        if self._now_ms() >= ends_at_ms:
            return Gone("expired")
        return Live(sid, user, session, ends_at_ms, aged)

    async def _touched(self, live: Live[S], raw: bytes, *, must: bool = False) -> Live[S] | Gone:
        """The session with `last_seen_at` now. Where another request changed it meanwhile, that one saw it, too."""
        session = live.session.model_copy(update={"last_seen_at": self._now()})
        if await self._replace(live, raw, session):
            ends_at_ms = min(self._now_ms() + self._idle_ms, _ms(cast("Any", session).created_at) + self._absolute_ms)
            return Live(live.id, live.user, session, ends_at_ms)
        again = await self._read(live.user, live.id)
        if isinstance(again, Gone):
            return again
        return await self._touched(*again) if must and again[1] != raw else again[0]

    async def _replace(self, live: Live[S], raw: bytes, session: S) -> bool:
        """Write the record if nobody did since it was read, and if it is still listed."""
        key = self._key(live.id)
        family = self._family.family
        options = family.lifetime.on_update(self._now_ms(), None)
        write: Command = ("SET", key, family.codec.encode(session, key, self._family.ring), *options, "XX")
        listed = required(("SISMEMBER", self._list(live.user), live.id))
        if self._one_step:
            return bool(await self._store.atomically([holds(key, raw), listed, write, *self._renewal(live.user)]))
        # In a cluster the list is in another slot. What is written to a record that is no longer listed stays dead.
        if not await self._store.atomically([listed, *self._renewal(live.user)]):
            return False
        return bool(await self._store.atomically([holds(key, raw), write]))

    # --- the list of a user --------------------------------------------------------------------------------

    async def _in_the_way(self, user: str) -> list[str]:
        """The sessions that must end so that one more may be: what has ended anyway, and the oldest beyond the cap."""
        cap = self.policy.cap
        if cap is None:
            return []
        members = _texts((await self._store.run([("SMEMBERS", self._list(user))]))[0])
        if len(members) < cap:
            return []
        alive, dead = await self._sorted_out(user, members)
        beyond = len(alive) - cap + 1
        if beyond > 0 and self.policy.at_cap == "refuse":
            if dead:
                await self._end(user, dead)
            raise CapReached(f"the user has {len(alive)} sessions, and {cap} are allowed; end one of them first")
        oldest = sorted(alive, key=lambda live: (_ms(live.session.created_at), live.id))  # type: ignore[attr-defined]
        return dead + [live.id for live in oldest[: max(beyond, 0)]]

    def _room(self, user: str, leaving: int) -> list[Step]:
        """Stops a login that others overtook: with those who leave, there must be room for one more."""
        cap = self.policy.cap
        return [] if cap is None else [at_most(("SCARD", self._list(user)), cap - 1 + leaving)]

    async def _sorted_out(self, user: str, members: Sequence[str]) -> tuple[list[Live[S]], list[str]]:
        alive: list[Live[S]] = []
        dead: list[str] = []
        for at in range(0, len(members), _AT_ONCE):
            page = members[at : at + _AT_ONCE]
            replies = await self._store.run([("GET", self._key(sid)) for sid in page])
            for sid, raw in zip(page, replies, strict=True):
                live = Gone("unknown") if raw is None else self._live(user, sid, raw)
                if live:
                    alive.append(live)
                elif live.reason != "unreadable":  # which `keystead doctor` sets aside
                    dead.append(sid)
        return alive, dead

    async def _admit(self, user: str, sid: str, session: S, guards: list[Step], after: Sequence[Step] = ()) -> bool:
        """Write a new record and list it, if the guards hold. It is alive from the moment when it is listed."""
        key, now_ms = self._key(sid), self._now_ms()
        family = self._family.family
        data = family.codec.encode(session, key, self._family.ring)
        write = required(("SET", key, data, *family.lifetime.on_create(now_ms, None), "NX"))
        entry: list[Step] = [("SADD", self._list(user), sid), *self._renewal(user)]
        if self._one_step:
            return bool(await self._store.atomically([*guards, write, *entry, *after]))
        # In a cluster the record comes first, and counts for nothing until it is listed.
        if not await self._store.atomically([write]):
            return False
        if await self._store.atomically([*guards, *entry]):
            await self._store.run(cast("list[Command]", after))
            return True
        await self._store.run([("DEL", key)])
        return False

    async def _end(self, user: str, ids: Sequence[str], reason: Reason | None = None) -> int:
        """Take sessions off the list, which ends them, and delete what is left of them; how many were on it."""
        if not ids:
            return 0
        [ended] = await self._store.run([("SREM", self._list(user), *ids)])
        # Only what was on the list: another user's record is none of theirs, whatever id is given.
        if ended or len(ids) > 1:
            await self._discard(ids, reason)
        return int(ended)

    async def _discard(self, ids: Iterable[str], reason: Reason | None) -> None:
        """Delete the records of sessions that have ended, and what they own."""
        for sid in ids:
            if self._ends is not None and reason in ("evicted", "revoked"):
                await self._ends(sid).set(Ended(reason=reason))
            with suppress(Unreadable):
                await self._family(sid).delete()

    # --- names and times -----------------------------------------------------------------------------------

    def _key(self, sid: str) -> str:
        return self._family(sid).key

    def _list(self, user: str) -> str:
        key: str = self._index(user).key
        return key

    def _renewal(self, user: str) -> list[Command]:
        commands: list[Command] = self._index.family.lifetime.on_write(self._list(user), self._now_ms(), None)
        return commands

    def _user_of(self, session: S) -> str:
        user = getattr(session, self._user_field)
        if not isinstance(user, str) or not user:
            raise BadValue(f"{self._user_field} names the user of a session, as text, and is {user!r:.40} here")
        return user

    def _now_ms(self) -> int:
        return self._family.now_ms()

    def _now(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self._now_ms())


def _index_relation(family: Bound[Any]) -> Relation:
    admitting = [relation for relation in family.family.listed_in if relation.admits]
    if len(admitting) != 1 or len(family.family.listed_in) != 1:
        raise BadDeclaration(
            f"{family.family.place}: sessions are listed in one Set, by user, that admits them: "
            'listed_in=link("user_sessions", admits=True)'
        )
    missing = _KEPT - family.family.field_names
    if missing:
        raise BadDeclaration(f"{family.family.place}: the model of a session has a field {min(missing)}, of EpochMs")
    relation: Relation = admitting[0]
    return relation


def _user_field(family: Bound[Any], relation: Relation) -> str:
    origins = list(relation.origins.values())
    if len(origins) != 1 or origins[0] is None or origins[0].kind != "field" or len(family.family.pattern.names) != 1:
        raise BadDeclaration(
            f"{family.family.place}: the key of a session holds its id alone, and its Set is named after one field of "
            'the model: Set("user:{uid}:sessions", ...)'
        )
    return origins[0].name


def _ms(moment: datetime) -> int:
    return deadline_ms(moment)


def _texts(reply: Reply) -> list[str]:
    return [one.decode() for one in reply]
