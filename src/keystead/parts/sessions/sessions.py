"""Sessions: logins with idle and absolute timeouts, rotation and revocation. A session that has ended stays ended."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import CoroutineType
from typing import Any, Final

from pydantic import ValidationError

from keystead.errors import BadCall, BadKey, BadValue, Unreadable
from keystead.parts.audit import Audit
from keystead.parts.sessions.session_declaration import MANAGED_FIELDS, check_successors_and_ends
from keystead.parts.sessions.session_index import UNLISTED, Farewell, SessionIndex, epoch_ms
from keystead.parts.sessions.session_lookup import REMEMBERED_MAX_BYTES, SessionQueries, SessionQuery
from keystead.parts.sessions.session_policy import Policy
from keystead.parts.sessions.session_record import Act, Ended, Gone, Live, New, S, SharedLive, Successor
from keystead.parts.sessions.session_token import SECRET_BYTES, id_of, new_token, parse_token
from keystead.schema import Bound, Steps, attempts, procedure
from keystead.schema.kinds import Seen, ValueKey
from keystead.schema.record_copies import copier_of
from keystead.schema.repeated_reads import Repeated
from keystead.schema.times import moment
from keystead.schema.unreadable import log_unreadable

_MAX_ROTATIONS_FOLLOWED: Final = 8  # within one grace, from an old token to the current one


class Sessions(SessionIndex[S]):
    """The sessions of a family: a `Value` of a model with `created_at` and `last_seen_at`, listed in a Set by user.

    **A session is alive while its record is there and the user's Set names it.** Only a login and a rotation write
    into the Set. So removing the entry ends the session for good: no save, touch, rotation or refresh under way
    resurrects it, and deleting the Set ends all sessions of a user in one atomic write.

        keys = AppKeys(store)
        sessions = Sessions(keys.session, Policy(idle="1h", absolute="24h", cap=3))

    policy       without one, `Policy()` with timeouts no longer than the lifetimes of the families. Keys expire when
                 the policy ends their sessions, which may be earlier than the families say
    successors   optional family: requests under way may use the old token for a moment after a rotation, even to log
                 out
    ends         optional family: a request with the token of an evicted or revoked session learns the reason
    audit        records sign-ins, sign-outs, revocations and evictions in the same step (in a cluster right after it)
    farewell     called with the id and the record of each session that ends before its time. The operations it returns
                 take effect in the step that ends the session (in a cluster after it, and their keys have the hash tag
                 of the id)
    new_secret   for tests

    Raises BadDeclaration if the families cannot do what the policy says.
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
        super().__init__(family, policy, ends, audit, farewell)
        check_successors_and_ends(self.policy, family, successors, ends)
        self._touch_every_ms = self.policy.touch_every_ms
        self._successors = successors
        self._new_secret = new_secret
        self._is_near, near_s = bool(self.policy.near_ms), self.policy.near_ms / 1000
        self._queries = SessionQueries(
            lambda user, sid: Repeated(family(sid).see(), self._index(user).has(sid), near=near_s)
        )

    # --- logins --------------------------------------------------------------------------------------------

    async def create(self, session: S, act: Act | None = None) -> New[S]:
        """Create a session for the user in the record. Two round trips; three and a clean-up if room must be made.

        Beyond the cap the session with the oldest login is evicted, or CapReached is raised, as the policy says. The
        cap holds however many logins arrive at once. This prevents session fixation: the token is always new, and no
        existing record is overwritten.
        """
        user = self._user_of(session)
        async for _ in attempts("the list of a user's sessions"):
            dead, evicted = await self._sessions_to_evict(user)
            # Read the clock after the list, so that the sessions on it have earlier logins.
            now = self._now()
            session = session.model_copy(update={"created_at": now, "last_seen_at": now})
            token = new_token(self._new_secret(), user)
            sid = id_of(token)
            more = [
                *await self._farewell_operations(evicted),
                *self._audit_entries("session-evicted", user, act, evicted, why="too many sessions"),
                *self._audit_entries("signed-in", user, act, [sid]),
            ]
            done = await self._admit(user, sid, session, [*dead, *evicted], more)
            if done:
                await self._discard(evicted, "evicted")
                await self._discard(dead)
                await self._prune_if_doubled(user, done.value)
                return New(token, sid, session, tuple(evicted))
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def rotate(self, token: str) -> New[S] | Gone:
        """Exchange the token for a new one. The session keeps its login time and its absolute deadline.

        The old token stops working, except for requests under way within `policy.grace`, and cannot be rotated again.
        One atomic step: exactly one of the two ids is listed at any time.
        """
        async for _ in attempts("the session"):
            found = await self._lookup_token(token)
            if isinstance(found, Gone):
                return found
            live, raw = found
            if live.aged:
                return Gone("unknown")
            if self._now_ms() >= live.ends_at_ms:
                continue  # it expired since it was read: the next lookup ends it
            session = live.session.model_copy(update={"last_seen_at": self._now()})
            new = new_token(self._new_secret(), live.user)
            done = await self._move_to(live, raw, id_of(new), session)
            if done:
                last = done.value
                if last is not None and last.stored != raw:
                    session = await self._copy_late_changes(live, last.value, new, session)
                if self._family.family.owns:
                    await self._discard([live.id])
                return New(new, id_of(new), session)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    # --- requests ------------------------------------------------------------------------------------------

    async def read(self, token: str) -> Live[S] | Gone:
        """The session of a token. One round trip; about once a minute a second one, which updates `last_seen_at`.
        With a policy that says `near`, most reads make none.

        Malformed tokens cost no round trip. Both deadlines are enforced here, by the times in the record.
        """
        query = self.find_query(token)
        if query is None:
            return Gone("unknown")
        found = self.start_read(query)
        if isinstance(found, CoroutineType):
            found = await found
        return found.own() if isinstance(found, SharedLive) else found

    def find_query(self, token: str) -> SessionQuery | None:
        """What `start_read` needs to read the session of a token; None: this is not a token. No round trip."""
        return self._queries.for_token(token)

    def start_read(self, query: SessionQuery) -> Live[S] | Gone | CoroutineType[Any, Any, Live[S] | Gone]:
        """As `read`, but without a coroutine if there is nothing to wait for.

        The result may be a SharedLive, whose `session` is a new copy each time it is asked for.
        """
        ask = query[2]
        replies = ask.replies()
        known: SharedLive[S] | None = ask.remembered
        if known is not None and known.replies is replies and self._now_ms() < known.until_ms:
            return known
        return self._read(query, replies)  # type: ignore[return-value]  # it is one: mypy has the abstract type

    async def read_id(self, user: str, id: str) -> Live[S] | Gone:
        """The session of a user by its id, which is not a secret: for things that live as long as the session, such as
        an access token. Otherwise as `read`."""
        try:
            query = self._queries.for_id(user, id)
        except BadKey:
            return Gone("unknown")
        found = await self._read(query, query[2].replies())
        return found.own() if isinstance(found, SharedLive) else found

    async def touch(self, token: str) -> bool:
        """Set `last_seen_at` to now. False: the session is not alive, and stays ended. Two round trips."""
        async for _ in attempts("the session"):
            found = await self._lookup_token(token)
            if isinstance(found, Gone):
                return False
            touched = await self._touch(*found)
            if touched is not None:
                return bool(touched)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def change(self, token: str, function: Callable[[S], S]) -> Live[S] | Gone:
        """Change the record with compare-and-set. `function` gets the latest record and may be called several times.

        Two requests that change different fields both succeed. A session that has ended is not written. The user,
        `created_at` and `last_seen_at` keep their values.
        """
        return await self._change(lambda: self._lookup_token(token), function)

    async def change_id(self, user: str, id: str, function: Callable[[S], S]) -> Live[S] | Gone:
        """As `change`, for a session of a user by its id, as in `list_for`."""
        try:
            query = self._queries.for_id(user, id)
        except BadKey:
            return Gone("unknown")
        return await self._change(lambda: self._lookup(query), function)

    async def _change(
        self, lookup: Callable[[], Awaitable[tuple[Live[S], bytes] | Gone]], function: Callable[[S], S]
    ) -> Live[S] | Gone:
        async for _ in attempts("the session"):
            found = await lookup()
            if isinstance(found, Gone):
                return found
            live, raw = found
            fixed = {name: getattr(live.session, name) for name in (*MANAGED_FIELDS, self._user_field)}
            changed = function(live.session).model_copy(update=fixed)
            if await self._replace(live, raw, changed):
                return Live(live.id, live.user, changed, live.ends_at_ms, live.aged)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def update(self, token: str, **fields: Any) -> Live[S] | Gone:
        """Change some fields of the session; concurrent changes to other fields are kept.

        Raises BadCall for a field that does not exist or is read-only, and BadValue for an invalid value.
        """
        unknown = fields.keys() - self._family.family.field_names
        if unknown:
            raise BadCall(f"the session has no field {min(unknown)!r}")
        read_only = fields.keys() & {*MANAGED_FIELDS, self._user_field}
        if read_only:
            raise BadCall(f"{min(read_only)!r} of a session is read-only")

        def changed(session: S) -> S:
            try:
                return session.model_validate({**dict(session), **fields}, by_name=True)
            except ValidationError as error:
                # Name the fields only: the values may be secret.
                names = sorted({str(one["loc"][0]) if one["loc"] else "?" for one in error.errors()})
                raise BadValue(f"invalid values for {', '.join(names)} of the session") from None

        return await self.change(token, changed)

    # --- ends ----------------------------------------------------------------------------------------------

    async def revoke(self, token: str, act: Act | None = None) -> bool:
        """Log out: end the session of a token, also of a token that was just rotated. False: it was not alive.

        The first step takes the session off the list, which ends it; the rest is clean-up.
        """
        named = parse_token(token)
        if named is None:
            return False
        sid, user = named
        with suppress(BadKey, Unreadable):  # no key can name this user, or the successor is unreadable
            for _ in range(_MAX_ROTATIONS_FOLLOWED):
                if await self._revoke_one(user, sid, None, "signed-out", act):
                    return True
                successor, _why = await self._read_traces(sid)
                if successor is None:
                    return False
                sid = successor
        return False

    async def revoke_id(self, user: str, id: str, act: Act | None = None) -> bool:
        """End one session of a user by its id, as in `list_for`. False: that user has no such session."""
        with suppress(BadKey):  # not an id, so not a session
            return await self._revoke_one(user, id, "revoked", "session-revoked", act)
        return False

    async def revoke_others(self, token: str, act: Act | None = None) -> int:
        """End all other sessions of the user; returns how many. One atomic step, then clean-up.

        If this session is not alive itself, no session ends.
        """
        async for _ in attempts("the session"):
            found = await self._lookup_token(token)
            if isinstance(found, Gone):
                return 0
            live, _raw = found
            listed = self._index(live.user)
            others = [one for one in await self._ids_for_farewell(listed) if one != live.id]
            more = [
                *await self._farewell_operations(others),
                *self._audit_entries("other-sessions-revoked", live.user, act, [self._subject_of(live.user)]),
            ]
            done = await self._keep_only(listed, live.id, more)
            if done:
                ended = [one for one in self._ids(listed, done.value) if one != live.id]
                await self._discard(ended, "revoked", already_left=others)
                return len(ended)
            # It was rotated or ended since it was read: the next lookup says which.
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def revoke_all(self, user: str, act: Act | None = None) -> int:
        """End all sessions of a user; returns how many. One atomic write, which does not depend on a complete list.

        A concurrent login comes either before it and is ended, or after it and is alive.
        """
        return await self._revoke_listed(
            self._index(user), lambda: self._audit_entries("all-sessions-revoked", user, act, [self._subject_of(user)])
        )

    async def revoke_everyone(self, act: Act | None = None) -> AsyncIterator[tuple[str, int]]:
        """End every session of every user. Yields each user and their number of sessions; iterate to the end.

        A login during the iteration may or may not be ended. The audit log gets one entry before the first user and one
        after the last. An entry per user would push older events out of the log.
        """
        act = act or Act(who="operator")
        for entry in self._audit_entries("everyone-revoked", "", act, [""], why="begins"):
            await entry
        users = sessions = 0
        async for key in self._index.scan():
            # Use the scanned key: for a long user id it holds a digest, from which the key cannot be built again.
            count = await self._revoke_listed(key)
            users, sessions = users + 1, sessions + count
            yield str(next(iter(key.values.values()))), count
        total = f"{sessions} sessions of {users} users have ended"
        for entry in self._audit_entries("everyone-revoked", "", act, [""], why=total):
            await entry

    # --- one session ---------------------------------------------------------------------------------------

    async def _read(self, query: SessionQuery, answer: list[Any] | Awaitable[list[Any]]) -> Live[S] | Gone:
        try:
            replies = answer if isinstance(answer, list) else await answer
        except Unreadable as error:
            return self._unreadable(error)
        known = self._live_in(query, replies)
        if known is not None:
            return known
        found = await self._lookup(query, None if self._is_near else replies)
        if isinstance(found, Gone):
            return found
        live, raw = found
        if self._now_ms() < self._touch_due_ms(live.session) or live.aged:
            return live
        touched = await self._touch(live, raw)
        if touched is not None:
            return touched
        # A concurrent request changed, rotated or ended it. If it is alive, the next request touches it.
        again = await self._lookup(query)
        return again if isinstance(again, Gone) else again[0]

    async def _lookup_token(self, token: str) -> tuple[Live[S], bytes] | Gone:
        query = self._queries.for_token(token)
        return Gone("unknown") if query is None else await self._lookup(query)

    def _live_in(self, query: SessionQuery, replies: list[Any]) -> SharedLive[S] | None:
        """The live session in these replies, which may be a copy. None: `_lookup` it, because it is gone or a touch is
        due."""
        ask = query[2]
        known: SharedLive[S] | None = ask.remembered
        if known is None or known.replies != replies:
            known = ask.remembered = self._share(query, replies)
        else:
            known.replies = replies  # so that `start_read` knows the copy
        return known if known is not None and self._now_ms() < known.until_ms else None

    def _share(self, query: SessionQuery, replies: list[Any]) -> SharedLive[S] | None:
        """None: the session is gone, or its record is too large to be remembered."""
        user, sid, ask = query
        try:
            seen, is_listed = ask.finish(replies)
        except Unreadable:
            return None
        if seen is None or not is_listed or len(seen.stored) > REMEMBERED_MAX_BYTES:
            return None
        live = self._check_live(user, sid, seen.value)
        if not live:
            return None
        # What was sealed does not stay in memory.
        make_record = None if self._family.family.codec.sealed else copier_of(seen.value)
        until_ms = min(self._touch_due_ms(seen.value), live.ends_at_ms)
        make_record = make_record or (lambda: ask.finish(replies)[0].value)
        return SharedLive(sid, user, live.ends_at_ms, until_ms, replies, type(seen.value), make_record)

    async def _lookup(
        self, query: SessionQuery, replies: list[Any] | None = None, aged: bool = False
    ) -> tuple[Live[S], bytes] | Gone:
        """The live session and its stored bytes, or why it is gone. `aged`: its token has been rotated.

        replies   of the store to the query, if it was asked already
        """
        user, sid, ask = query
        try:
            seen, is_listed = await ask() if replies is None else ask.finish(replies)
            if seen is not None and is_listed:
                live = self._check_live(user, sid, seen.value, aged)
                if live:
                    return live, seen.stored
                if live.reason == "expired":  # clean up the record and the list
                    await self._remove_ended(user, [sid])
                return live
        except Unreadable as error:
            return self._unreadable(error)
        if aged:
            return Gone("unknown")
        if is_listed:  # its record expired by its TTL, as the policy says
            await self._remove_ended(user, [sid])
            return Gone("expired")
        return await self._follow_rotations(user, sid)

    def _unreadable(self, error: Unreadable) -> Gone:
        """An unreadable record or list signs the session out. Neither is deleted."""
        log_unreadable(self._family.store, error)
        return Gone("unreadable")

    async def _follow_rotations(self, user: str, sid: str) -> tuple[Live[S], bytes] | Gone:
        """For a token without a session: the session it was rotated to within the grace period, or why it ended."""
        try:
            for _ in range(_MAX_ROTATIONS_FOLLOWED):
                successor, end = await self._read_traces(sid)
                if successor is None:
                    return Gone(end.reason if end is not None else "unknown")
                sid = successor
                found = await self._lookup(self._queries.for_id(user, sid), aged=True)
                if not isinstance(found, Gone) or found.reason != "unknown":
                    return found
        except Unreadable:
            return Gone("unreadable")
        return Gone("unknown")

    async def _read_traces(self, sid: str) -> tuple[str | None, Ended | None]:
        """For a session that is not listed: the id it was rotated to, and why it ended."""
        reads = [
            self._successors(sid).get() if self._successors else None,
            self._ends(sid).get() if self._ends else None,
        ]
        results = iter(await self._run(*(one for one in reads if one is not None)))
        successor, end = (next(results) if one is not None else None for one in reads)
        if successor is not None and self._now_ms() >= epoch_ms(successor.until):
            successor = None
        return (None if successor is None else successor.sid), end

    def _touch_due_ms(self, session: Any) -> int:
        return epoch_ms(session.last_seen_at) + self._touch_every_ms

    async def _touch(self, live: Live[S], raw: bytes) -> Live[S] | Gone | None:
        """Set `last_seen_at` to now. None: the session was changed, rotated or ended since it was read."""
        now_ms = self._now_ms()
        if now_ms >= live.ends_at_ms:  # it expired since it was read: a late touch must not resurrect it
            await self._remove_ended(live.user, [live.id])
            return Gone("expired")
        session = live.session.model_copy(update={"last_seen_at": moment(now_ms)})
        if not await self._replace(live, raw, session):
            return None
        return Live(live.id, live.user, session, self._deadline_ms(session), live.aged)

    @procedure(ordered=UNLISTED)
    def _replace(self, live: Live[S], raw: bytes, session: S) -> Steps[None]:
        """Write the record if it is unchanged since it was read and still listed."""
        listed, record = self._index(live.user), self._family(live.id)
        return Steps(
            listed.has(live.id).otherwise("ended"),
            listed.touch(),
            record.holds(Seen(live.session, raw)),
            self._expiring_record(live.id, session).replace(session),
        )

    @procedure(ordered=UNLISTED)
    def _move_to(self, live: Live[S], raw: bytes, sid: str, session: S) -> Steps[Seen[S] | None]:
        """Move the session to a new id, unless it was changed or ended since it was read. Gives the last old record.

        Across cluster slots the new record is written first and counts only once it is listed. Writes to the old record
        until then are copied to the new one: see `_copy_late_changes`.
        """
        listed, old, new = self._index(live.user), self._family(live.id), self._expiring_record(sid, session)
        last = old.see().if_readable()
        until = moment(self._now_ms() + self.policy.grace_ms)
        return (
            Steps(
                new.add(session).otherwise("there already is such a session"),
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

    async def _copy_late_changes(self, live: Live[S], last: S, new: str, session: S) -> S:
        """In a cluster: copy what another request wrote to the old record before the move to the new record.

        After the move the old record is gone, and requests with the old token reach the new one by its successor.
        """
        names = self._family.family.field_names - MANAGED_FIELDS
        written = {name: getattr(last, name) for name in names if getattr(last, name) != getattr(live.session, name)}
        changed = await self.change(new, lambda newest: newest.model_copy(update=written))
        return changed.session if changed else session
