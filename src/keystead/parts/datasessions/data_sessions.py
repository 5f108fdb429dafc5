"""Data sessions: server-side sessions with free keys, for `request.session` of web frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from keystead.errors import BadKey, Unreadable
from keystead.parts.audit import Audit
from keystead.parts.datasessions.data_index import CHANGED, DataIndex, random_secret
from keystead.parts.datasessions.data_input import DataRoom, checked_owner, times_of
from keystead.parts.datasessions.data_keys import ANONYMOUS, CREATIONS, DataSessionKeys
from keystead.parts.datasessions.data_lookup import DataQuery, KnownRecord, data_queries, remember
from keystead.parts.datasessions.data_record import DataRecord, DataSession, JsonData
from keystead.parts.datasessions.data_token import new_data_token, parse_data_token, visitor_of
from keystead.parts.datasessions.field_writes import ENDED
from keystead.parts.datasessions.json_texts import decode_texts, stored_texts
from keystead.parts.digest import digest
from keystead.parts.limit import RateLimit, client_of
from keystead.parts.sessions import Act, Gone, Live, Policy
from keystead.parts.sessions.session_declaration import check_successors_and_ends
from keystead.parts.sessions.session_record import Reason
from keystead.schema import Steps, attempts, procedure
from keystead.schema.kinds import Seen
from keystead.schema.times import moment
from keystead.schema.unreadable import log_unreadable

FIELDS_MAX: Final = 1000
VALUE_MAX_BYTES: Final = 1_000_000
_IN_TWO_LISTS: Final = "an entry of a list whose record names another owner is skipped, and ends with the session"


class DataSessions:
    """Sessions whose data is a dict of JSON values, stored key by key. A session that has ended stays ended.

        keys = data_session_keys(policy)(store)
        sessions = DataSessions(keys, policy)
        session = await sessions.create({"cart": ["apple"]}, client="192.0.2.1")
        session = await sessions.load(token)   # Gone, which is falsy, if there is none
        session.data["theme"] = "dark"
        session = await sessions.save(session)

    **A session is alive while its record is there and the list of its owner names it**, as in `Sessions`. The owner is
    a user, or for an anonymous session the client's address. Everything but `create` needs a live session, and revives
    none. `load` takes a token, all else takes what `load` returned.

    policy           of signed-in sessions; its timeouts are the longest a session can be given
    anonymous        the policy of anonymous sessions; its cap is per client address
    audit            records sign-ins, sign-outs, revocations and evictions of users
    fields_max       how many keys a session can have
    value_max_bytes  how large one value can be, as JSON
    new_secret       for tests
    """

    def __init__(
        self,
        keys: DataSessionKeys,
        policy: Policy | None = None,
        anonymous: Policy | None = None,
        *,
        audit: Audit | None = None,
        fields_max: int = FIELDS_MAX,
        value_max_bytes: int = VALUE_MAX_BYTES,
        new_secret: Callable[[], bytes] = random_secret,
    ) -> None:
        self.policy, self.anonymous = policy or Policy(), anonymous or ANONYMOUS
        check_successors_and_ends(self.policy, keys.session, None, keys.session_end)
        self._users = DataIndex(keys, self.policy, audit, fields_max, new_secret)
        self._visitors = DataIndex(keys, self.anonymous, None, fields_max, new_secret)
        creations = getattr(keys, CREATIONS, None)
        self._creations = None if creations is None else RateLimit(creations, when_down="raise")
        self._keys = keys
        self._now_ms = keys.now_ms
        self._queries = data_queries(self._index_of)
        self._room = DataRoom(fields_max, value_max_bytes)
        self._new_secret = new_secret

    # --- one session -----------------------------------------------------------------------------------------

    async def create(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        user: str | None = None,
        client: str = "",
        idle: str | timedelta | None = None,
        ends_at: datetime | int | None = None,
        act: Act | None = None,
    ) -> DataSession:
        """Create a session of a user, or an anonymous one of a client address. Always a new token.

        idle      its own idle timeout, if it is to be shorter than the one of the policy
        ends_at   when it ends in any case (an aware datetime, or ms since 1970), if earlier than the policy says

        Two round trips; more if room must be made. At the cap the oldest session is evicted, or CapReached raised, as
        the policy says. Raises BadValue for data that is not JSON or too large, and LimitReached if this client address
        began too many anonymous sessions (`creations` of `data_session_keys`; one more round trip).
        """
        texts = self._room.encode(data or {})
        if user is None and self._creations is not None:
            await self._creations.require(client_of(client))
        owner = visitor_of(client) if user is None else checked_owner(user)
        return await self._index_of(owner).create(owner, times_of(idle, ends_at), texts, act)

    async def load(self, token: str) -> DataSession | Gone:
        """The session of a token, with its data. One round trip; about once a minute a second one, which touches it.
        With a policy that says `near`, most reads make none.

        A malformed token costs none. A token that was rotated is accepted for `policy.grace`; one from before a
        sign-in is not.
        """
        query = self._queries.for_token(token)
        if query is None:
            return Gone("unknown")
        owner, id, ask = query
        try:
            answer = ask.replies()
            replies = answer if isinstance(answer, list) else await answer
            known: KnownRecord | None = ask.remembered
            if known is not None and known.raw == replies[0] and replies[1] and self._now_ms() < known.until_ms:
                return known.session(token, id, replies[2])
        except Unreadable as error:
            return self._unreadable(error)
        index = self._index_of(owner)
        found = await self._look_up(token, query, None if index.policy.near_ms else replies)
        if isinstance(found, Gone):
            return found
        if self._now_ms() >= index.touch_due_ms(found.record):
            return await self._touch(found)
        if not found.aged:
            remember(ask, index, found)
        return found

    async def is_replaced(self, token: str) -> bool:
        """Whether the session of this token got another one a moment ago, so that the browser is about to have that."""
        record = await self._record_of(token)
        return record is not None and record.state_of(token, self._now_ms()) == "previous"

    async def save(self, session: DataSession, data: Mapping[str, Any] | None = None) -> DataSession | Gone:
        """Write the keys that differ from what was loaded, and remove those that are missing. Returns the session.

        data   instead of `session.data`

        One round trip; none if nothing has changed. Of two requests that change different keys both succeed; of one key
        the last one wins. Gone: the session has ended, and nothing was written. A save that was under way during a
        sign-in reaches the signed-in session. Raises BadValue for data that is not JSON or too large.
        """
        texts, before = self._room.encode(session.data if data is None else data), session.texts
        changed = {name: text for name, text in texts.items() if before.get(name) != text}
        gone = [] if texts.keys() == before.keys() else [name for name in before if name not in texts]
        if not changed and not gone:
            return session
        record, ends_at_ms = session.record, session.ends_at_ms
        async for _ in attempts("the session"):
            if self._now_ms() < ends_at_ms:
                done = await self._index_of(record.uid).save(record.uid, session.id, record, changed, gone)
                if done:
                    return DataSession(
                        session.token, session.id, texts, ends_at_ms, record, session.raw, aged=session.aged
                    )
                self._room.check(done.stopped)
            moved = await self._find_moved(session, record)
            if isinstance(moved, Gone):
                return moved
            record, ends_at_ms = moved, self._index_of(moved.uid)._deadline_ms(moved)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def change(
        self, session: DataSession, function: Callable[[JsonData], Mapping[str, Any]]
    ) -> DataSession | Gone:
        """Change the data by a function of what is stored now, which may be called several times.

        Of two requests that change the same key, both changes are in the result. What was changed in `session.data` is
        not written. Two round trips. Gone: the session has ended, and nothing was written.
        """
        record = session.record
        async for _ in attempts("the session"):
            index = self._index_of(record.uid)
            seen, is_listed, stored = await index.see(record.uid, session.id)
            if seen is not None and is_listed and self._now_ms() < index._deadline_ms(record):
                before = stored_texts(stored, index._data(session.id).key)
                texts = self._room.encode(function(decode_texts(before, index._data(session.id).key)))
                changed = {name: text for name, text in texts.items() if before.get(name) != text}
                gone = [name for name in before if name not in texts]
                done = await index.write(record.uid, session.id, record, changed, gone, stored)
                if done:
                    return index.session_of(session.token, session.id, record, session.raw, texts, session.aged)
                self._room.check(done.stopped)
                if done.stopped == CHANGED:
                    continue
            moved = await self._find_moved(session, record)
            if isinstance(moved, Gone):
                return moved
            record = moved
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def set_lifetime(
        self,
        session: DataSession,
        *,
        idle: str | timedelta | None = None,
        ends_at: datetime | int | None = None,
    ) -> DataSession | Gone:
        """Give a session timeouts of its own, as in `create`; None: those of the policy. Also counts as use of it."""
        return await self._change_record(session, {"idle_ms": None, "ends_at": None, **times_of(idle, ends_at)})

    async def touch(self, session: DataSession) -> DataSession | Gone:
        """Count this as use of the session, now. `load` does so about once a minute."""
        return await self._change_record(session, {})

    async def rotate(self, session: DataSession, *, at_once: bool = False) -> DataSession | Gone:
        """Exchange the token for a new one. The id, the data, the start and the absolute deadline stay.

        One atomic step. The old token is accepted for `policy.grace`, and cannot be rotated again. With `at_once` it is
        not accepted; only a save under way may still use it.
        """
        return await self._exchange_token(session, {"previous_until": None} if at_once else {})

    async def end(self, session: DataSession, act: Act | None = None) -> bool:
        """Sign out: end this session. False: it had ended."""
        if await self._end_in(session.owner, session.id, None, "signed-out", act):
            return True
        # Another request of this browser may have signed it in meanwhile.
        moved = await self._find_moved(session, session.record)
        if isinstance(moved, Gone) or moved.uid == session.owner:
            return False
        return await self._end_in(moved.uid, session.id, None, "signed-out", act)

    # --- signing in ------------------------------------------------------------------------------------------

    async def sign_in(
        self,
        session: DataSession | None,
        user: str,
        merge: Callable[[JsonData], Mapping[str, Any]] | None = None,
        act: Act | None = None,
    ) -> DataSession | Gone:
        """Make this the session of a user: with a new token and new timeouts. None: there was no session.

        merge   gets the data of the anonymous session and returns that of the signed-in one; it may be called several
                times. Without it the data stays as it is

        One atomic step: what a parallel request saves comes before it and is merged, or after it and is kept. (In a
        cluster several, of which the one that writes the session is atomic.) The old token ends at once; only a save
        under way may still use it. The session of another user ends, and its data is not taken over.

        Gone: the session has ended. Raises CapReached if the policy refuses another session.
        """
        owner = checked_owner(user)
        if session is not None and session.user is not None and session.owner != owner:
            await self.end(session, act)
            session = None
        if session is None:
            return await self.create({} if merge is None else merge({}), user=user, act=act)
        if session.owner == owner:
            return await self._sign_in_again(session, merge)
        async for _ in attempts("the session"):
            found = await self._find(session.token, session.id, session.owner)
            if isinstance(found, Gone):
                return found
            if found.aged:
                return Gone("unknown")
            signed_in = await self._sign_in_once(found, owner, merge, act)
            if signed_in is not None:
                return signed_in
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def _sign_in_once(
        self, found: DataSession, owner: str, merge: Callable[[JsonData], Mapping[str, Any]] | None, act: Act | None
    ) -> DataSession | None:
        """None: the session was changed or ended since it was read, or the list was."""
        users, id = self._users, found.id
        seen = {name.encode(): text.encode() for name, text in found.texts.items()}
        texts = found.texts if merge is None else self._room.encode(merge(found.data))
        dead, evicted = await users._sessions_to_evict(owner)
        token, record = users.new_record(id, owner, {"ends_at": found.record.ends_at, "idle_ms": found.record.idle_ms})
        record = record.model_copy(update={"previous": found.record.token, "previous_until": self._users.grace_until()})
        writes = [
            *users.data_writes(
                id,
                record,
                {name: text for name, text in texts.items() if found.texts.get(name) != text},
                [name for name in found.texts if name not in texts],
            ),
            *([users._data(id).extend(users.data_ends_at_ms(record))] if texts else []),
        ]
        done = await self._move(found, seen, record, [*dead, *evicted], writes)
        if not done:
            self._room.check(done.stopped)
            return None
        for event, ids in (("session-evicted", evicted), ("signed-in", [id])):
            for entry in users._audit_entries(event, owner, act, ids):
                await entry
        await users._after_admission(owner, dead, evicted, done.value)
        raw = users._family.family.codec.encode(record, users._family(id).key, None)
        return users.session_of(token, id, record, raw, dict(texts), evicted=tuple(evicted))

    @procedure(ordered=_IN_TWO_LISTS)
    def _move(
        self, found: DataSession, seen: dict[bytes, bytes], record: DataRecord, leaving: Sequence[str], writes: Any
    ) -> Steps[int]:
        """Sign a session in: list it for the user, write the record and the data, and take it off the visitors' list.

        In a cluster the three are in different slots. The record and the data change in one step, which decides: before
        it the session is anonymous and listed there, after it the user's and listed there. A list that names a session
        of another owner neither shows nor removes it; so the entry of a caller that loses is left, because another
        sign-in of the same user may have won.
        """
        mine, theirs = self._users._index(record.uid), self._visitors._index(found.owner)
        id, cap = found.id, self.policy.cap
        listed, count = mine.add(id), mine.count()
        return Steps(
            theirs.has(id).otherwise(ENDED),
            *([] if cap is None else [mine.at_most(cap - 1 + len(leaving)).otherwise("no room")]),
            *(mine.remove(one).otherwise("another process took it off") for one in leaving),
            listed,
            count,
            self._users._family(id).holds(Seen(found.record, found.raw)),
            self._users._data(id).holds(seen),
            self._users._expiring_record(id, record).replace(record),
            *writes,
            theirs.remove(id).otherwise(ENDED),
        ).giving(count)

    async def _sign_in_again(
        self, session: DataSession, merge: Callable[[JsonData], Mapping[str, Any]] | None
    ) -> DataSession | Gone:
        now = moment(self._now_ms())
        found = await self._exchange_token(session, {"created_at": now})
        if isinstance(found, Gone) or merge is None:
            return found
        return await self.save(found, merge(found.data))

    async def data_signed_in(self, token: str, user: str) -> JsonData:
        """For a `sign_in` that found the session gone: its data, if another request of this browser has just signed in
        the same user. Otherwise nothing. Two round trips. Raises Unreadable."""
        record = await self._record_of(token)
        if record is None or record.uid != checked_owner(user) or record.state_of(token, self._now_ms()) is None:
            return {}
        key = self._users._data(token.partition(".")[0])
        return decode_texts(stored_texts(await key.see(), key.key), key.key)

    # --- the sessions of a user ------------------------------------------------------------------------------

    async def list_for(self, user: str) -> list[Live[DataRecord]]:
        """The live sessions of a user, latest sign-in first, without their data."""
        return await self._users.list_for(checked_owner(user))

    async def end_id(self, user: str, id: str, act: Act | None = None) -> bool:
        """End one session of a user by its id, as in `list_for`. False: that user has no such session."""
        with suppress(BadKey):
            return await self._end_in(checked_owner(user), id, "revoked", "session-revoked", act)
        return False

    async def end_others(self, session: DataSession, act: Act | None = None) -> int:
        """End all other sessions of the user; returns how many. If this one has ended itself, or is anonymous: none."""
        if session.user is None:
            return 0
        users = self._users
        listed = users._index(session.owner)
        more = users._audit_entries("other-sessions-revoked", session.owner, act, [users._subject_of(session.owner)])
        done = await users._keep_only(listed, session.id, more)
        ended = [one for one in users._ids(listed, done.value) if one != session.id] if done else []
        await users._discard(ended, "revoked")
        return len(ended)

    async def end_all(self, user: str, act: Act | None = None) -> int:
        """End all sessions of a user; returns how many. One atomic write, which does not depend on a complete list."""
        users, owner = self._users, checked_owner(user)
        subject = users._subject_of(owner)
        return await users._revoke_listed(
            users._index(owner), lambda: users._audit_entries("all-sessions-revoked", owner, act, [subject])
        )

    # --- finding ---------------------------------------------------------------------------------------------

    def _index_of(self, owner: str) -> DataIndex:
        return self._visitors if owner.startswith("@") and not owner.startswith("@@") else self._users

    async def _find(self, token: str, id: str, owner: str) -> DataSession | Gone:
        """Raises BadKey if no key can name the owner."""
        return await self._look_up(token, self._queries.for_id(owner, id))

    async def _look_up(self, token: str, query: DataQuery, replies: list[Any] | None = None) -> DataSession | Gone:
        """The session as it is stored, or why it is gone. `replies`: of the store, if it was asked already."""
        owner, id, ask = query
        index = self._index_of(owner)
        try:
            seen, is_listed, data = await ask() if replies is None else ask.finish(replies)
            if seen is None or not is_listed:
                return Gone(await self._why_gone(id))
            record = seen.value
            state = record.state_of(token, self._now_ms())
            if record.uid != owner or state is None:
                return Gone("unknown")
            if self._now_ms() >= index._deadline_ms(record):
                await index._remove_ended(owner, [id])
                return Gone("expired")
            key = index._data(id).key
            texts = stored_texts(data, key)
            session = index.session_of(token, id, record, seen.stored, texts, aged=state == "previous")
            session.data = decode_texts(texts, key)
            return session
        except Unreadable as error:
            return self._unreadable(error)

    def _unreadable(self, error: Unreadable) -> Gone:
        log_unreadable(self._keys.session.store, error)
        return Gone("unreadable")

    async def _record_of(self, token: str) -> DataRecord | None:
        named = parse_data_token(token)
        return None if named is None else await self._keys.session(named[0]).get().if_readable()

    async def _why_gone(self, id: str) -> Reason:
        end = await self._keys.session_end(id).get()
        return "unknown" if end is None else end.reason

    async def _find_moved(self, session: DataSession, record: DataRecord) -> DataRecord | Gone:
        """The record as it is now, if this session's token is or just was that of it, whoever the owner is."""
        seen = await self._keys.session(session.id).see().if_readable()
        if seen is None:
            return Gone(await self._why_gone(session.id))
        newest, index = seen.value, self._index_of(seen.value.uid)
        if newest.state_of(session.token, self._now_ms()) is None:
            return Gone("unknown")
        if self._now_ms() >= index._deadline_ms(newest):
            return Gone("expired")
        return Gone("unknown") if newest == record else newest

    # --- changing the record ---------------------------------------------------------------------------------

    async def _touch(self, found: DataSession) -> DataSession | Gone:
        """Touch it as part of `load`. If another request changes the record now, that one counts as use of it."""
        index = self._index_of(found.owner)
        record = found.record.model_copy(update={"last_seen_at": moment(self._now_ms())})
        if await index.replace(found, record):
            return self._with_record(found, record)
        return await self._find(found.token, found.id, found.owner)

    async def _change_record(self, session: DataSession, changes: dict[str, Any]) -> DataSession | Gone:
        """Change the record with compare-and-set. The data is returned as the caller has it."""
        current = session
        async for _ in attempts("the session"):
            index, now_ms = self._index_of(current.owner), self._now_ms()
            if now_ms >= current.ends_at_ms:
                found = await self._find(session.token, session.id, session.owner)
                if isinstance(found, Gone):
                    return found
                current = found
            record = current.record.model_copy(update={"last_seen_at": moment(now_ms), **changes})
            if index._deadline_ms(record) <= now_ms:  # it was given a moment in the past
                await self.end(session)
                return Gone("expired")
            if await index.replace(current, record):
                return self._with_record(session, record)
            found = await self._find(session.token, session.id, session.owner)
            if isinstance(found, Gone):
                return found
            current = found
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def _exchange_token(self, session: DataSession, changes: dict[str, Any]) -> DataSession | Gone:
        """A new token for the same owner. Of several callers one gets it, the others Gone."""
        async for _ in attempts("the session"):
            found = await self._find(session.token, session.id, session.owner)
            if isinstance(found, Gone):
                return found
            if found.aged:
                return Gone("unknown")
            index = self._index_of(found.owner)
            token = new_data_token(found.id, self._new_secret(), found.owner)
            record = found.record.model_copy(
                update={
                    "token": digest(token),
                    "previous": found.record.token,
                    "previous_until": index.grace_until(),
                    "last_seen_at": moment(self._now_ms()),
                    **changes,
                }
            )
            if self._now_ms() < found.ends_at_ms and await index.replace(found, record):
                exchanged = self._with_record(found, record)
                exchanged.token = token
                return exchanged
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    def _with_record(self, session: DataSession, record: DataRecord) -> DataSession:
        index = self._index_of(record.uid)
        raw = index._family.family.codec.encode(record, index._family(session.id).key, None)
        return replace(session, ends_at_ms=index._deadline_ms(record), record=record, raw=raw, evicted=())

    async def _end_in(self, owner: str, id: str, reason: Reason | None, event: str, act: Act | None) -> bool:
        return await self._index_of(owner)._revoke_one(owner, id, reason, event, act)
