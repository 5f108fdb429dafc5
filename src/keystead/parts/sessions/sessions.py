"""Sessions: logins that end when they should, and stay ended."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeAlias, cast

from pydantic import ValidationError

from keystead.errors import (
    BadCall,
    BadDeclaration,
    BadKey,
    BadValue,
    CapReached,
    DoesNotFit,
    KeysteadError,
    StoreUnavailable,
    Unreadable,
)
from keystead.parts.audit import Audit
from keystead.parts.sessions.session_lookup import Question, Questions
from keystead.parts.sessions.session_policy import Policy
from keystead.parts.sessions.session_record import Act, Ended, Gone, Live, New, Reason, S, Successor
from keystead.parts.sessions.session_token import SECRET_BYTES, id_of, named_by, new_token
from keystead.schema import Bound, Operation, Steps, attempts, procedure
from keystead.schema.kinds import Seen, SetKey, ValueKey
from keystead.schema.lifetime import After, Sliding, in_words
from keystead.schema.listing import PRUNE_FROM
from keystead.schema.relation import Relation
from keystead.schema.repeated_reads import Repeated
from keystead.schema.times import deadline_ms, moment
from keystead.schema.unreadable import log_unreadable

_ROTATIONS = 8  # rotations within one grace that a token from before them is followed through
_AT_ONCE = 200
_EPOCH, _MILLISECOND = moment(0), timedelta(milliseconds=1)
_KEPT = frozenset({"created_at", "last_seen_at"})
_UNLISTED = "a record that its user's list does not name counts for nothing, and dies by its TTL"
_NOTED_LATER = "what has ended is noted after that, or not at all"

# What is to be done once a session has ended, by its id and its record.
Farewell: TypeAlias = Callable[[str, Any], Awaitable[Sequence[Operation[Any]]]]


class _Sorted(NamedTuple):
    """The entries of a user's Set, by what they name."""

    alive: list[Live[Any]]
    dead: list[str]
    unreadable: list[str]


class Sessions(Generic[S]):
    """The sessions of a family: a `Value` of a model with `created_at` and `last_seen_at`, listed in a Set by user.

    **A session is alive while its record is there and the user's Set names it.** Only a login and a rotation write
    into the Set. So whatever takes the entry out ends the session for good: no save, touch, rotation or refresh
    that is under way brings it back, and deleting the Set ends all sessions of a user in one atomic write.

        keys = AppKeys(store)
        sessions = Sessions(keys.session, Policy(idle="1h", absolute="24h", cap=3))

    `successors` and `ends`, two further families, are optional: with the first, requests under way may come with the
    old token for a moment after a rotation, also to log out; with the second, whoever was evicted or revoked is told
    so. Without a policy it is the usual one, with deadlines no longer than the families live. Keys live as long as the
    policy lets their sessions live, which may be less than the families say.

    `audit` notes who signed in, signed out, revoked and was evicted, in one step with what it notes (in a cluster after
    it). `farewell` is called with the id and the record of each session that ends before its time; the operations that
    it returns take effect in the step that ends the session (in a cluster after it, and their keys have the hash tag
    of the id). `new_secret` is for tests. Raises BadDeclaration where the families cannot keep what the policy says.
    """

    def __init__(
        self,
        family: Bound[ValueKey[S]],
        policy: Policy | None = None,
        *,
        successors: Bound[ValueKey[Successor]] | None = None,
        ends: Bound[ValueKey[Ended]] | None = None,
        audit: Audit | None = None,
        farewell: Farewell | None = None,
        new_secret: Callable[[], bytes] = lambda: secrets.token_bytes(SECRET_BYTES),
    ) -> None:
        relation = _index_relation(family)
        index = family.related(relation.target)
        self.policy = policy or _usual_policy(family, index)
        self._user_field = _user_field(family, relation)
        _refuse_unfit(self.policy, family, index, successors, ends)
        self._idle_ms, self._absolute_ms = self.policy.idle_ms, self.policy.absolute_ms
        self._touch_every_ms = self.policy.touch_every_ms
        self._family = family
        # A list lives as long as a session that is used now: none of the others can live longer.
        self._index: Bound[SetKey[str]] = index.lasting(self._idle_ms)
        self._successors = successors
        self._ends = ends
        self._audit = audit
        self._farewell = farewell
        self._new_secret = new_secret
        self._run = family.keyspace.run
        self._now_ms = family.now_ms
        self._questions = Questions(lambda user, sid: Repeated(family(sid).see(), self._index(user).has(sid)))

    # --- logins --------------------------------------------------------------------------------------------

    async def create(self, session: S, act: Act | None = None) -> New[S]:
        """Make a session for the user that it names. Two round trips; where room must be made, three and cleaning up.

        Beyond the cap the session whose login is longest ago is evicted, or CapReached is raised, as the policy says;
        of any number of logins at one moment exactly so many are alive afterwards. A login never takes over what a
        browser sends: the token is always new, and nothing that is there is written over.
        """
        user = self._user_of(session)
        async for _ in attempts("the list of a user's sessions"):
            dead, evicted = await self._in_the_way(user)
            # The clock is read after the list, so that whoever is on it logged in before.
            now = self._now()
            session = session.model_copy(update={"created_at": now, "last_seen_at": now})
            token = new_token(self._new_secret(), user)
            sid = id_of(token)
            more = [
                *await self._farewells(evicted),
                *(self._notes("session-evicted", user, act, *evicted, why="too many sessions") if evicted else ()),
                *self._notes("signed-in", user, act, sid),
            ]
            done = await self._admit(user, sid, session, [*dead, *evicted], more)
            if done:
                await self._discard(evicted, "evicted")
                await self._discard(dead)
                await self._upkeep(user, done.value)
                return New(token, sid, session, tuple(evicted))
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def rotate(self, token: str) -> New[S] | Gone:
        """Exchange the token for a new one; the session goes on, with its login and its absolute deadline.

        The old token counts no more, except that requests under way may come with it for `policy.grace`; it cannot
        be rotated again. One atomic step: at each moment exactly one of both is listed.
        """
        async for _ in attempts("the session"):
            found = await self._found(token)
            if isinstance(found, Gone):
                return found
            live, raw = found
            if live.aged:
                return Gone("unknown")
            if self._now_ms() >= live.ends_at_ms:
                continue  # its time ran out since it was read: the next look ends it
            session = live.session.model_copy(update={"last_seen_at": self._now()})
            new = new_token(self._new_secret(), live.user)
            done = await self._move(live, raw, id_of(new), session)
            if done:
                last = done.value
                if last is not None and last.stored != raw:
                    session = await self._catch_up(live, last.value, new, session)
                if self._family.family.owns:
                    await self._discard([live.id])
                return New(new, id_of(new), session)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    # --- requests ------------------------------------------------------------------------------------------

    async def read(self, token: str) -> Live[S] | Gone:
        """The session of a token. One round trip; a second one about once a minute, which notes that it was used.

        What was never a token is not looked for. Both deadlines are held here, by the record's own times.
        """
        question = self._questions.of(token)
        return Gone("unknown") if question is None else await self._read(question)

    async def read_id(self, user: str, id: str) -> Live[S] | Gone:
        """The session of a user by the id that a listing shows, which is no secret: for whatever was issued for it,
        such as an access token, and counts as long as the session does. Otherwise as `read`."""
        try:
            question = self._questions.named(user, id)
        except BadKey:
            return Gone("unknown")
        return await self._read(question)

    async def touch(self, token: str) -> bool:
        """Note that the session was used, now. False: it is not alive, and stays so. Two round trips."""
        async for _ in attempts("the session"):
            found = await self._found(token)
            if isinstance(found, Gone):
                return False
            noted = await self._noted(*found)
            if noted is not None:
                return bool(noted)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def change(self, token: str, function: Callable[[S], S]) -> Live[S] | Gone:
        """Change what the session holds. `function` gets the newest state and may be called several times.

        Two requests that change different fields both succeed. Nothing that has ended is written. Its user, the time
        of its login and of its last use stay as they are.
        """
        async for _ in attempts("the session"):
            found = await self._found(token)
            if isinstance(found, Gone):
                return found
            live, raw = found
            fixed = {name: getattr(live.session, name) for name in (*_KEPT, self._user_field)}
            changed = function(live.session).model_copy(update=fixed)
            if await self._replace(live, raw, changed):
                return Live(live.id, live.user, changed, live.ends_at_ms, live.aged)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def update(self, token: str, **fields: Any) -> Live[S] | Gone:
        """Change some fields of the session and leave the others as they are, whoever changes those meanwhile.

        Raises BadValue for a field that it does not have or that is not for you to change, and for a value that does
        not fit.
        """
        unknown = fields.keys() - self._family.family.field_names
        if unknown:
            raise BadCall(f"the session has no field {min(unknown)!r}")
        kept = fields.keys() & {*_KEPT, self._user_field}
        if kept:
            raise BadCall(f"{min(kept)!r} of a session stays as it is; log in again for another one")

        def changed(session: S) -> S:
            try:
                return session.model_validate({**dict(session), **fields}, by_name=True)
            except ValidationError as error:
                # The fields only: what was given may be a secret.
                names = sorted({str(one["loc"][0]) if one["loc"] else "?" for one in error.errors()})
                raise BadValue(f"the session does not take what was given for {', '.join(names)}") from None

        return await self.change(token, changed)

    # --- ends ----------------------------------------------------------------------------------------------

    async def revoke(self, token: str, act: Act | None = None) -> bool:
        """Log out: end the session of a token, also of one from before a rotation. False: it was not alive.

        The first step takes it off the list, which ends it; the rest only cleans up.
        """
        named = named_by(token)
        if named is None:
            return False
        sid, user = named
        with suppress(BadKey, Unreadable):  # no user has this name, or what is stored leads nowhere
            for _ in range(_ROTATIONS):
                if await self._end_one(user, sid, None, "signed-out", act):
                    return True
                successor, _why = await self._traces(sid)
                if successor is None:
                    return False
                sid = successor
        return False

    async def revoke_id(self, user: str, id: str, act: Act | None = None) -> bool:
        """End one session of a user by the id that a listing shows. False: that user has no such session."""
        with suppress(BadKey):  # what is no id names no session
            return await self._end_one(user, id, "revoked", "session-revoked", act)
        return False

    async def revoke_others(self, token: str, act: Act | None = None) -> int:
        """End all sessions of the user but this one; how many there were. One atomic step, and cleaning up.

        None ends where this one is not alive itself.
        """
        async for _ in attempts("the session"):
            found = await self._found(token)
            if isinstance(found, Gone):
                return 0
            live, _raw = found
            listed = self._index(live.user)
            others = [one for one in await self._to_greet(listed) if one != live.id]
            more = [
                *await self._farewells(others),
                *self._notes("other-sessions-revoked", live.user, act, self._subject_of(live.user)),
            ]
            done = await self._keep_only(listed, live.id, more)
            if done:
                ended = [one for one in self._ids(listed, done.value) if one != live.id]
                await self._discard(ended, "revoked", greeted=others)
                return len(ended)
            # It was rotated or ended since it was read: the next look says which.
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def revoke_all(self, user: str, act: Act | None = None) -> int:
        """End all sessions of a user; how many there were. One atomic write, which needs no list to be complete.

        A login at the same moment is either before it, and ended, or after it, and alive.
        """
        return await self._emptied(
            self._index(user), lambda: self._notes("all-sessions-revoked", user, act, self._subject_of(user))
        )

    async def revoke_everyone(self, act: Act | None = None) -> AsyncIterator[tuple[str, int]]:
        """End every session there is: yields each user and how many they had, as they end. So go through all of it.

        A login that comes while this goes through the users may or may not be ended. The audit log has one entry from
        before the first and one from after the last, and none for each user, which would push out what others did.
        """
        act = act or Act(who="operator")
        for note in self._notes("everyone-revoked", "", act, why="begins"):
            await note
        users = sessions = 0
        async for key in self._index.scan():
            # The key as it was found: of a user whose id is long it holds a digest, which makes no key again.
            count = await self._emptied(key)
            users, sessions = users + 1, sessions + count
            yield str(next(iter(key.values.values()))), count
        for note in self._notes("everyone-revoked", "", act, why=f"{sessions} sessions of {users} users have ended"):
            await note

    async def list_for(self, user: str) -> list[Live[S]]:
        """The sessions of a user that are alive, the latest login first; what has ended is taken off the list."""
        listed = self._index(user)
        found = await self._sorted_out(user, self._ids(listed, await listed.see()))
        await self._end(user, found.dead)
        return sorted(found.alive, key=lambda live: (-_ms(live.session.created_at), live.id))

    # --- one session ---------------------------------------------------------------------------------------

    async def _read(self, question: Question) -> Live[S] | Gone:
        found = await self._asked(question)
        if type(found) is Gone:
            return found
        live, raw = cast("tuple[Live[S], bytes]", found)
        if self._now_ms() - _ms(live.session.last_seen_at) < self._touch_every_ms or live.aged:  # type: ignore[attr-defined]
            return live
        noted = await self._noted(live, raw)
        if noted is not None:
            return noted
        # Somebody changed, rotated or ended it meanwhile. If it is alive, the next request notes that it was used.
        again = await self._asked(question)
        return again if isinstance(again, Gone) else again[0]

    async def _found(self, token: str) -> tuple[Live[S], bytes] | Gone:
        question = self._questions.of(token)
        return Gone("unknown") if question is None else await self._asked(question)

    async def _asked(self, question: Question, aged: bool = False) -> tuple[Live[S], bytes] | Gone:
        """The session, alive, or why it is not. `aged`: its token is one from before a rotation."""
        user, sid, ask = question
        try:
            seen, is_listed = await ask()
            if seen is not None and is_listed:
                live = self._live(user, sid, seen.value, aged)
                if live:
                    return live, seen.stored
                if live.reason == "expired":  # nothing of it stays behind
                    await self._end(user, [sid])
                return live
        except Unreadable as error:
            # A session whose record, or whose list, cannot be read is signed out. Both stay as they are.
            log_unreadable(self._family.store, error)
            return Gone("unreadable")
        if aged:
            return Gone("unknown")
        if is_listed:  # its record has died by its TTL, which is the end that the policy gives it
            await self._end(user, [sid])
            return Gone("expired")
        return await self._elsewhere(user, sid)

    async def _elsewhere(self, user: str, sid: str) -> tuple[Live[S], bytes] | Gone:
        """For a token that names no session: was it rotated a moment ago, and if not, why did it end?"""
        try:
            for _ in range(_ROTATIONS):
                successor, end = await self._traces(sid)
                if successor is None:
                    return Gone(end.reason if end is not None else "unknown")
                sid = successor
                found = await self._asked(self._questions.named(user, sid), aged=True)
                if not isinstance(found, Gone) or found.reason != "unknown":
                    return found
        except Unreadable:
            return Gone("unreadable")
        return Gone("unknown")

    async def _traces(self, sid: str) -> tuple[str | None, Ended | None]:
        """What is left of a session that is not listed: the id that it went on with, and why it ended."""
        asked = [
            self._successors(sid).get() if self._successors else None,
            self._ends(sid).get() if self._ends else None,
        ]
        answers = iter(await self._run(*(one for one in asked if one is not None)))
        successor, end = (next(answers) if one is not None else None for one in asked)
        if successor is not None and self._now_ms() >= _ms(successor.until):
            successor = None
        return (None if successor is None else successor.sid), end

    def _live(self, user: str, sid: str, session: S, aged: bool = False) -> Live[S] | Gone:
        if getattr(session, self._user_field) != user:
            return Gone("unknown")
        ends_at_ms = self._end_of(session)
        return Live(sid, user, session, ends_at_ms, aged) if self._now_ms() < ends_at_ms else Gone("expired")

    async def _noted(self, live: Live[S], raw: bytes) -> Live[S] | Gone | None:
        """The session with `last_seen_at` now. None: it was changed, rotated or ended since it was read."""
        now_ms = self._now_ms()
        if now_ms >= live.ends_at_ms:  # its time ran out since it was read: a late note must not bring it back
            await self._end(live.user, [live.id])
            return Gone("expired")
        session = live.session.model_copy(update={"last_seen_at": moment(now_ms)})
        if not await self._replace(live, raw, session):
            return None
        return Live(live.id, live.user, session, self._end_of(session), live.aged)

    @procedure(ordered=_UNLISTED)
    def _replace(self, live: Live[S], raw: bytes, session: S) -> Steps[None]:
        """Write the record if nobody did since it was read, and if it is still listed."""
        listed, record = self._index(live.user), self._family(live.id)
        return Steps(
            listed.has(live.id).otherwise("ended"),
            listed.touch(),
            record.holds(Seen(live.session, raw)),
            self._lasting(live.id, session).replace(session),
        )

    @procedure(ordered=_UNLISTED)
    def _move(self, live: Live[S], raw: bytes, sid: str, session: S) -> Steps[Seen[S] | None]:
        """Put the session under another id, unless it was changed or ended since it was read. What stood there last.

        Across slots all is prepared first, and counts for nothing until the list says so. What another request wrote
        to the old record until then is to be written to the new one, too: see `_catch_up`.
        """
        listed, old, new = self._index(live.user), self._family(live.id), self._lasting(sid, session)
        last = old.see().if_readable()
        until = moment(self._now_ms() + self.policy.grace_ms)
        return (
            Steps(
                new.add(session).otherwise("there is such a session"),
                old.holds(Seen(live.session, raw)),
                *([self._successors(live.id).set(Successor(sid=sid, until=until))] if self._successors else []),
                listed.remove(live.id).otherwise("ended"),
                listed.add(sid),
                last,
                old.alone.delete(),
            )
            .giving(last)
            .undone_by(new.delete())
        )

    async def _catch_up(self, live: Live[S], last: S, new: str, session: S) -> S:
        """In a cluster: what another request wrote to the old record until it was moved is written to the new one, too.

        Nothing is written to the old one once it is gone: whoever tries comes here, by way of the successor.
        """
        names = self._family.family.field_names - _KEPT
        written = {name: getattr(last, name) for name in names if getattr(last, name) != getattr(live.session, name)}
        changed = await self.change(new, lambda newest: newest.model_copy(update=written))
        return changed.session if changed else session

    # --- the list of a user --------------------------------------------------------------------------------

    def _ids(self, listed: SetKey[str], entries: Sequence[Seen[str | None]]) -> list[str]:
        """The ids on a list. Other entries name nothing."""
        ids = [one.value for one in entries if one.value is not None and self._is_id(one.value)]
        if len(ids) < len(entries):
            log_unreadable(self._index.store, Unreadable("an entry is no id of a session", listed.key))
        return ids

    def _is_id(self, text: str) -> bool:
        try:
            return bool(self._family(text))
        except BadKey:
            return False

    async def _in_the_way(self, user: str) -> tuple[list[str], list[str]]:
        """What must leave the list so that one more may be on it: what has ended anyway, and the oldest beyond the cap.

        What is unreadable goes before anything that is alive; `keystead doctor` sets it aside. Entries that are no id
        at all go at once: they name nothing, and would leave a user no room to log in.
        """
        cap = self.policy.cap
        if cap is None:
            return [], []
        listed = self._index(user)
        entries = await listed.see()
        ids = self._ids(listed, entries)
        if len(ids) < len(entries):
            await listed.remove(*(one for one in entries if one.value not in ids))
        if len(ids) < cap:
            return [], []
        alive, dead, unreadable = await self._sorted_out(user, ids)
        if len(alive) >= cap and self.policy.at_cap == "refuse":
            await self._end(user, dead)
            raise CapReached(f"the user has {len(alive)} sessions, and {cap} are allowed; end one of them first")
        oldest = sorted(alive, key=lambda live: (_ms(live.session.created_at), live.id))
        beyond = max(len(alive) + len(unreadable) - cap + 1, 0)
        return dead, [*unreadable, *(live.id for live in oldest)][:beyond]

    async def _sorted_out(self, user: str, ids: Sequence[str]) -> _Sorted:
        found = _Sorted([], [], [])
        for sid, record in await self._records(ids):
            live = None if record is None or isinstance(record, Unreadable) else self._live(user, sid, record)
            if live:
                found.alive.append(live)
            else:
                (found.unreadable if isinstance(record, Unreadable) else found.dead).append(sid)
        return found

    async def _records(self, ids: Sequence[str]) -> list[tuple[str, S | Unreadable | None]]:
        """The record of each of these; None where it is gone, the error where it cannot be read."""
        found: list[tuple[str, Any]] = []
        for at in range(0, len(ids), _AT_ONCE):
            page = ids[at : at + _AT_ONCE]
            records = await self._family.keyspace.run_each(*(self._family(sid).get() for sid in page))
            for sid, record in zip(page, records, strict=True):
                if isinstance(record, Unreadable):
                    log_unreadable(self._family.store, record)
                elif isinstance(record, KeysteadError):
                    raise record
                found.append((sid, record))
        return found

    @procedure(ordered=_UNLISTED)
    def _admit(
        self, user: str, sid: str, session: S, leaving: Sequence[str], more: Sequence[Operation[Any]]
    ) -> Steps[int]:
        """Write a new record and list it, in the place of those who leave; how many are listed then.

        It is alive from the moment when it is listed. A login that others overtook is stopped: with those who leave,
        there must be room for one more.
        """
        listed, record, cap = self._index(user), self._lasting(sid, session), self.policy.cap
        count = listed.count()
        return (
            Steps(
                record.add(session).otherwise("there is such a session"),
                *([] if cap is None else [listed.at_most(cap - 1 + len(leaving)).otherwise("no room")]),
                *(listed.remove(one).otherwise("another took it off") for one in leaving),
                listed.add(sid),
                count,
                *more,
            )
            .giving(count)
            .undone_by(record.delete())
        )

    async def _upkeep(self, user: str, count: int) -> None:
        """Where no cap looks through the list, do so each time it has doubled: so it does not grow for ever."""
        if self.policy.cap is None and count >= PRUNE_FROM and count & (count - 1) == 0:
            with suppress(KeysteadError):  # the login took place
                await self.list_for(user)

    async def _emptied(self, listed: SetKey[str], notes: Callable[[], Sequence[Operation[Any]]] = tuple) -> int:
        known = await self._to_greet(listed)
        done = await self._empty(listed, [*await self._farewells(known), *notes()])
        ended = self._ids(listed, done.value) if done else []
        await self._discard(ended, "revoked", greeted=known)
        return len(ended)

    @procedure(ordered=_NOTED_LATER)
    def _empty(self, listed: SetKey[str], more: Sequence[Operation[Any]]) -> Steps[list[Seen[str | None]]]:
        entries = listed.see()
        was_there = [listed.exists().otherwise("nobody was there")] if more else []  # what ends nothing is not noted
        return Steps(*was_there, entries, listed.alone.delete(), *more).giving(entries)

    @procedure(ordered=_NOTED_LATER)
    def _keep_only(
        self, listed: SetKey[str], sid: str, more: Sequence[Operation[Any]]
    ) -> Steps[list[Seen[str | None]]]:
        entries = listed.see()
        steps = listed.has(sid).otherwise("ended"), entries, listed.alone.delete(), listed.add(sid)
        return Steps(*steps, *more).giving(entries)

    @procedure(ordered=_NOTED_LATER)
    def _take_off(self, user: str, sid: str, more: Sequence[Operation[Any]]) -> Steps[None]:
        return Steps(self._index(user).remove(sid).otherwise("it was not on the list"), *more)

    async def _end_one(self, user: str, sid: str, reason: Reason | None, event: str, act: Act | None) -> bool:
        """End a session that somebody wants to end. False: it was not on the list, and nothing is noted."""
        self._family(sid)  # or raise BadKey, before anything is written
        more = [*await self._farewells([sid]), *self._notes(event, user, act, sid)]
        if not await self._take_off(user, sid, more):
            return False
        await self._discard([sid], reason)
        return True

    async def _end(self, user: str, ids: Sequence[str]) -> None:
        """Take sessions off the list whose time is over, and delete what is left of them."""
        removed = await self._run(*(self._index(user).remove(sid) for sid in ids))
        # Only what was on the list: another user's record is none of theirs, whatever id is given.
        await self._discard([sid for sid, was_listed in zip(ids, removed, strict=True) if was_listed])

    async def _discard(
        self, ids: Iterable[str], reason: Reason | None = None, *, greeted: Sequence[str] | None = None
    ) -> None:
        """Delete the records of sessions that have ended, and what they own. `greeted` are those that were given their
        farewell already, where others may be among them that came to the list in the last moment.

        They have ended, whether this succeeds or not. What a store that went away keeps is dead, and dies by its TTL.
        """
        waiting = list(ids)
        with suppress(StoreUnavailable):
            late = [] if greeted is None else [sid for sid in waiting if sid not in set(greeted)]
            for operation in await self._farewells(late):
                await operation
            while waiting:
                await asyncio.gather(*(self._discard_one(sid, reason) for sid in waiting[:_AT_ONCE]))
                del waiting[:_AT_ONCE]

    async def _discard_one(self, sid: str, reason: Reason | None) -> None:
        if self._ends is not None and reason in ("evicted", "revoked"):
            await self._ends(sid).set(Ended(reason=reason))
        with suppress(Unreadable):
            await self._family(sid).delete()

    # --- what goes with an end ------------------------------------------------------------------------------

    def _notes(self, event: str, user: str, act: Act | None, *what: str, why: str = "") -> list[Operation[Any]]:
        """What the audit log is told of this: an entry for each thing that it was done to."""
        if self._audit is None:
            return []
        act = act or Act()
        who = act.who or self._subject_of(user)
        return [
            self._audit.note(event, who=who, what=one, where=act.where, why=why or act.why) for one in what or ("",)
        ]

    def _subject_of(self, user: str) -> str:
        """The user, with the identity space that the family names: `login:42`, as `keystead erase` takes it."""
        subject = self._family.family.subject
        return f"{'user' if subject is None else subject.kind}:{user}"

    async def _to_greet(self, listed: SetKey[str]) -> list[str]:
        """The ids on a list whose sessions are about to end; none where nothing is to be done for them."""
        return [] if self._farewell is None else self._ids(listed, await listed.see())

    async def _farewells(self, ids: Sequence[str]) -> list[Operation[Any]]:
        """What is to be done once these have ended. Those whose record is gone, or cannot be read, have nothing."""
        found: list[Operation[Any]] = []
        if self._farewell is not None:
            for sid, record in await self._records(ids):
                if record is not None and not isinstance(record, Unreadable):
                    found += await self._farewell(sid, record)
        return found

    # --- names and times -----------------------------------------------------------------------------------

    def _lasting(self, sid: str, session: S) -> ValueKey[S]:
        """The record of a session, alone, which lives until the first of its deadlines."""
        left_ms = self._end_of(session) - self._now_ms()
        # Another server's clock may be ahead; none lives longer than one that is used now.
        return self._family(sid).alone.lasting(min(max(left_ms, 1), self._idle_ms))

    def _end_of(self, session: Any) -> int:
        """When the first of its two deadlines comes, in milliseconds since 1970."""
        return min(_ms(session.last_seen_at) + self._idle_ms, _ms(session.created_at) + self._absolute_ms)

    def _user_of(self, session: S) -> str:
        user = getattr(session, self._user_field)
        if not isinstance(user, str) or not user:
            raise BadValue(f"{self._user_field} names the user of a session, as text, and is {user!r:.40} here")
        return user

    def _now(self) -> datetime:
        return moment(self._now_ms())


def _index_relation(family: Bound[Any]) -> Relation:
    admitting = [relation for relation in family.family.listed_in if relation.admits]
    if len(admitting) != 1 or len(family.family.listed_in) != 1:
        raise BadDeclaration(
            f"{family.family.place}: sessions are listed in one Set, by user, that admits them: "
            'listed_in=link("user_sessions", admits=True)'
        )
    missing = _KEPT - family.family.field_names
    if missing:
        raise BadDeclaration(
            f"{family.family.place}: the model of a session has the fields created_at and last_seen_at, and this one "
            f"has no {min(missing)}; inherit SessionRecord, or write {min(missing)}: EpochMs"
        )
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


def _usual_policy(family: Bound[Any], index: Bound[Any]) -> Policy:
    usual = Policy()
    slides = [one.family.lifetime.ms for one in (family, index) if isinstance(one.family.lifetime, Sliding)]
    kept = family.family.lifetime
    absolute_ms = min(usual.absolute_ms, kept.ms) if isinstance(kept, After) else usual.absolute_ms
    idle_ms = min(usual.idle_ms, absolute_ms, *slides)
    return Policy(idle=timedelta(milliseconds=idle_ms), absolute=timedelta(milliseconds=absolute_ms))


def _refuse_unfit(
    policy: Policy,
    family: Bound[Any],
    index: Bound[Any],
    successors: Bound[Any] | None,
    ends: Bound[Any] | None,
) -> None:
    """A record or a list that is gone before its time would end sessions that the policy keeps."""
    place, kept, listing = family.family.place, family.family.lifetime, index.family.lifetime
    idle = in_words(policy.idle_ms)
    advice = f"write lifetime=sliding(...) with {idle} or more"
    if not (isinstance(kept, Sliding) and kept.ms >= policy.idle_ms) and not (
        isinstance(kept, After) and kept.ms >= policy.absolute_ms
    ):
        raise BadDeclaration(
            f"{place}: its lifetime ({kept.describe()}) would end sessions that may be idle for {idle}; {advice}"
        )
    if not (isinstance(listing, Sliding) and listing.ms >= policy.idle_ms):
        raise BadDeclaration(
            f"{index.family.place}: its lifetime ({listing.describe()}) would end sessions that may be idle for "
            f"{idle}; {advice}"
        )
    longest = None if successors is None else successors.family.lifetime.longest_ms
    if successors is not None and (longest is None or longest < policy.grace_ms):
        raise BadDeclaration(
            f"{successors.family.place}: its lifetime ({successors.family.lifetime.describe()}) is shorter than the "
            f"grace of the policy; write lifetime=after(...) with {in_words(policy.grace_ms)} or more"
        )
    for other in (successors, ends):
        if other is not None and other.store is not family.store:
            raise BadDeclaration(f"{other.family.place} and {place} need one role: they are written in one step")
    if family.store.guarantees.consistency == "eventual":
        raise DoesNotFit(f"{place} does not fit {family.store.url}: a read may miss a logout that was acknowledged")
    try:
        family(id_of(""))
    except BadKey as error:
        raise BadDeclaration(f"{place}: an id is 43 letters of base64url, as in {{sid:token}}; {error}") from None


def _ms(at: datetime) -> int:
    # The usual case without the checks of `deadline_ms`: the codec lets no naive datetime through.
    return (at - _EPOCH) // _MILLISECOND if type(at) is datetime else deadline_ms(at)
