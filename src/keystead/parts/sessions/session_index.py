"""The list of each user's sessions: only a session that is on it is alive.

A login and a rotation put a session on the list. Whatever takes it off ends the session: a logout, a revocation, an
eviction by the cap, an expiry. Deleting the record afterwards is clean-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeAlias

from keystead.errors import BadKey, BadValue, CapReached, KeysteadError, StoreUnavailable, Unreadable
from keystead.parts.audit import Audit
from keystead.parts.sessions.session_declaration import check_lifetimes, default_policy, index_relation, user_field
from keystead.parts.sessions.session_policy import Policy
from keystead.parts.sessions.session_record import Act, Ended, Gone, Live, Reason, S
from keystead.schema import Bound, Operation, Steps, procedure
from keystead.schema.kinds import Seen, SetKey, ValueKey
from keystead.schema.listing import PRUNE_FROM
from keystead.schema.times import deadline_ms, moment
from keystead.schema.unreadable import log_unreadable

UNLISTED: Final = "a record that is not on its user's list is dead, and expires"
_AUDITED_LATER: Final = "the end of a session is audited after that, or not at all"
_PAGE: Final = 200  # records that are read or deleted at a time
_EPOCH, _MILLISECOND = moment(0), timedelta(milliseconds=1)

# Called with the id and the record of a session that ends; returns the operations to run in the same step.
Farewell: TypeAlias = Callable[[str, Any], Awaitable[Sequence[Operation[Any]]]]


class _ClassifiedSessions(NamedTuple):
    """The sessions on a user's list, by state."""

    alive: list[Live[Any]]
    dead: list[str]
    unreadable: list[str]


class SessionIndex(Generic[S]):
    """The list operations of `Sessions`: admit, evict, remove, clean up, and audit all of it."""

    def __init__(
        self,
        family: Bound[ValueKey[S]],
        policy: Policy | None,
        ends: Bound[ValueKey[Ended]] | None,
        audit: Audit | None,
        farewell: Farewell | None,
    ) -> None:
        relation = index_relation(family)
        index = family.related(relation.target)
        self.policy = policy or default_policy(family, index)
        self._user_field = user_field(family, relation)
        check_lifetimes(self.policy, family, index)
        self._idle_ms, self._absolute_ms = self.policy.idle_ms, self.policy.absolute_ms
        self._family = family
        # A list lives as long as a session that is used now: none of the others can live longer.
        self._index: Bound[SetKey[str]] = index.lasting(self._idle_ms)
        self._ends = ends
        self._audit = audit
        self._farewell = farewell
        self._run = family.keyspace.run
        self._now_ms = family.now_ms

    async def list_for(self, user: str) -> list[Live[S]]:
        """The live sessions of a user, latest login first. Sessions that have ended are taken off the list."""
        listed = self._index(user)
        found = await self._classify(user, self._ids(listed, await listed.see()))
        await self._remove_ended(user, found.dead)
        return sorted(found.alive, key=lambda live: (-epoch_ms(live.session.created_at), live.id))

    # --- the list of a user --------------------------------------------------------------------------------

    def _ids(self, listed: SetKey[str], entries: Sequence[Seen[str | None]]) -> list[str]:
        """The session ids on a list; other entries are ignored and logged."""
        ids = [one.value for one in entries if one.value is not None and self._is_id(one.value)]
        if len(ids) < len(entries):
            log_unreadable(self._index.store, Unreadable("an entry is not a session id", listed.key))
        return ids

    def _is_id(self, text: str) -> bool:
        try:
            return bool(self._family(text))
        except BadKey:
            return False

    async def _sessions_to_evict(self, user: str) -> tuple[list[str], list[str]]:
        """The ids to take off the list to make room for one more: sessions that have ended, and the oldest logins.

        Unreadable records are evicted before live ones; `keystead doctor` sets them aside. Entries that are not ids are
        removed immediately, because they would count toward the cap.
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
        alive, dead, unreadable = await self._classify(user, ids)
        moving = len(ids) - len(alive) - len(dead) - len(unreadable)
        if len(alive) + moving >= cap and self.policy.at_cap == "refuse":
            await self._remove_ended(user, dead)
            raise CapReached(f"the user has {len(alive)} sessions, the maximum is {cap}; end one of them first")
        oldest = sorted(alive, key=lambda live: (epoch_ms(live.session.created_at), live.id))
        beyond = max(len(alive) + len(unreadable) + moving - cap + 1, 0)
        return dead, [*unreadable, *(live.id for live in oldest)][:beyond]

    async def _classify(self, user: str, ids: Sequence[str]) -> _ClassifiedSessions:
        found = _ClassifiedSessions([], [], [])
        for sid, record in await self._records(ids):
            if self._is_moving(user, record):
                continue
            live = None if record is None or isinstance(record, Unreadable) else self._check_live(user, sid, record)
            if live:
                found.alive.append(live)
            else:
                (found.unreadable if isinstance(record, Unreadable) else found.dead).append(sid)
        return found

    def _is_moving(self, user: str, record: S | Unreadable | None) -> bool:
        """Whether a listed session is on its way to or from another list: it is not shown, and not removed."""
        return False

    def _check_live(self, user: str, sid: str, session: S, aged: bool = False) -> Live[S] | Gone:
        if getattr(session, self._user_field) != user:
            return Gone("unknown")
        ends_at_ms = self._deadline_ms(session)
        return Live(sid, user, session, ends_at_ms, aged) if self._now_ms() < ends_at_ms else Gone("expired")

    async def _records(self, ids: Sequence[str]) -> list[tuple[str, S | Unreadable | None]]:
        """The record of each id: None if it is gone, the error if it is unreadable."""
        found: list[tuple[str, Any]] = []
        for at in range(0, len(ids), _PAGE):
            page = ids[at : at + _PAGE]
            records = await self._family.keyspace.run_each(*(self._family(sid).get() for sid in page))
            for sid, record in zip(page, records, strict=True):
                if isinstance(record, Unreadable):
                    log_unreadable(self._family.store, record)
                elif isinstance(record, KeysteadError):
                    raise record
                found.append((sid, record))
        return found

    @procedure(ordered=UNLISTED)
    def _admit(
        self, user: str, sid: str, session: S, leaving: Sequence[str], more: Sequence[Operation[Any]]
    ) -> Steps[int]:
        """Write a new record and list it in place of the `leaving` sessions. Gives the number listed afterwards.

        The session is alive once it is listed. Concurrent logins may have taken the room: then this step is stopped and
        the caller tries again.
        """
        listed, record, cap = self._index(user), self._expiring_record(sid, session), self.policy.cap
        count = listed.count()
        return (
            Steps(
                record.add(session).otherwise("there already is such a session"),
                *([] if cap is None else [listed.at_most(cap - 1 + len(leaving)).otherwise("no room")]),
                *(listed.remove(one).otherwise("another process took it off") for one in leaving),
                listed.add(sid),
                count,
                *more,
            )
            .giving(count)
            .undone_by(record.delete())
        )

    async def _prune_if_doubled(self, user: str, count: int) -> None:
        """Without a cap, prune the list each time its size doubles, so that it does not grow forever."""
        if self.policy.cap is None and count >= PRUNE_FROM and count & (count - 1) == 0:
            with suppress(KeysteadError):  # the login itself succeeded
                await self.list_for(user)

    async def _revoke_listed(self, listed: SetKey[str], notes: Callable[[], Sequence[Operation[Any]]] = tuple) -> int:
        known = await self._ids_for_farewell(listed)
        done = await self._clear_list(listed, [*await self._farewell_operations(known), *notes()])
        ended = self._ids(listed, done.value) if done else []
        await self._discard(ended, "revoked", already_left=known)
        return len(ended)

    @procedure(ordered=_AUDITED_LATER)
    def _clear_list(self, listed: SetKey[str], more: Sequence[Operation[Any]]) -> Steps[list[Seen[str | None]]]:
        entries = listed.see()
        # If no session ends, nothing is audited.
        was_there = [listed.exists().otherwise("there were no sessions")] if more else []
        return Steps(*was_there, entries, listed.alone.delete(), *more).giving(entries)

    @procedure(ordered=_AUDITED_LATER)
    def _keep_only(
        self, listed: SetKey[str], sid: str, more: Sequence[Operation[Any]]
    ) -> Steps[list[Seen[str | None]]]:
        entries = listed.see()
        steps = listed.has(sid).otherwise("ended"), entries, listed.alone.delete(), listed.add(sid)
        return Steps(*steps, *more).giving(entries)

    @procedure(ordered=_AUDITED_LATER)
    def _take_off(self, user: str, sid: str, more: Sequence[Operation[Any]]) -> Steps[None]:
        return Steps(self._index(user).remove(sid).otherwise("it was not on the list"), *more)

    async def _revoke_one(self, user: str, sid: str, reason: Reason | None, event: str, act: Act | None) -> bool:
        """End a session on request. False: it was not on the list, and nothing is audited."""
        self._family(sid)  # raises BadKey before anything is written
        more = [*await self._farewell_operations([sid]), *self._audit_entries(event, user, act, [sid])]
        if not await self._take_off(user, sid, more):
            return False
        await self._discard([sid], reason)
        return True

    async def _remove_ended(self, user: str, ids: Sequence[str]) -> None:
        """Take expired sessions off the list and delete their records."""
        removed = await self._run(*(self._index(user).remove(sid) for sid in ids))
        # Only ids that were on this user's list: an id of another user must not delete that user's record.
        await self._discard([sid for sid, was_listed in zip(ids, removed, strict=True) if was_listed])

    async def _discard(
        self, ids: Iterable[str], reason: Reason | None = None, *, already_left: Sequence[str] | None = None
    ) -> None:
        """Delete the records of sessions that have ended, and the keys they own.

        already_left   the ids whose `farewell` has run. Others may have been listed at the last moment; they get theirs
                       now

        The sessions have ended even if this fails. Records left behind by a store outage are dead and expire.
        """
        waiting = list(ids)
        with suppress(StoreUnavailable):
            late = [] if already_left is None else [sid for sid in waiting if sid not in set(already_left)]
            for operation in await self._farewell_operations(late):
                await operation
            while waiting:
                await asyncio.gather(*(self._discard_one(sid, reason) for sid in waiting[:_PAGE]))
                del waiting[:_PAGE]

    async def _discard_one(self, sid: str, reason: Reason | None) -> None:
        if self._ends is not None and reason in ("evicted", "revoked"):
            await self._ends(sid).set(Ended(reason=reason))
        with suppress(Unreadable):
            await self._family(sid).delete()

    # --- audit and farewell ---------------------------------------------------------------------------------

    def _audit_entries(
        self, event: str, user: str, act: Act | None, what: Iterable[str], why: str = ""
    ) -> list[Operation[Any]]:
        """The entries for the audit log: one for each session id in `what`."""
        if self._audit is None:
            return []
        act = act or Act()
        who = act.who or self._subject_of(user)
        return [self._audit.note(event, who=who, what=one, where=act.where, why=why or act.why) for one in what]

    def _subject_of(self, user: str) -> str:
        """The user, with the identity space that the family names: `login:42`, as `keystead erase` takes it."""
        subject = self._family.family.subject
        return f"{'user' if subject is None else subject.kind}:{user}"

    async def _ids_for_farewell(self, listed: SetKey[str]) -> list[str]:
        """The ids of the sessions about to end; empty without a `farewell`."""
        return [] if self._farewell is None else self._ids(listed, await listed.see())

    async def _farewell_operations(self, ids: Sequence[str]) -> list[Operation[Any]]:
        """The operations that `farewell` returns for these sessions. Missing and unreadable records have none."""
        found: list[Operation[Any]] = []
        if self._farewell is not None:
            for sid, record in await self._records(ids):
                if record is not None and not isinstance(record, Unreadable):
                    found += await self._farewell(sid, record)
        return found

    # --- names and times -----------------------------------------------------------------------------------

    def _expiring_record(self, sid: str, session: S) -> ValueKey[S]:
        """The key of a session's record, without its relations, with a TTL up to the first deadline."""
        left_ms = self._deadline_ms(session) - self._now_ms()
        # Another server's clock may be ahead. No session outlives one that is used now.
        return self._family(sid).alone.lasting(min(max(left_ms, 1), self._idle_ms))

    def _deadline_ms(self, session: Any) -> int:
        """The earlier of the idle and the absolute deadline, in ms since 1970."""
        return min(epoch_ms(session.last_seen_at) + self._idle_ms, epoch_ms(session.created_at) + self._absolute_ms)

    def _user_of(self, session: S) -> str:
        user = getattr(session, self._user_field)
        if not isinstance(user, str) or not user:
            raise BadValue(f"{self._user_field} must be the id of the user, as text, not {user!r:.40}")
        return user

    def _now(self) -> datetime:
        return moment(self._now_ms())


def epoch_ms(at: datetime) -> int:
    # The usual case without the checks of `deadline_ms`: the codec lets no naive datetime through.
    return (at - _EPOCH) // _MILLISECOND if type(at) is datetime else deadline_ms(at)
