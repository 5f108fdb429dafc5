"""The sessions of one kind of owner, signed-in users or anonymous visitors, by the policy for them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from keystead.errors import Unreadable
from keystead.parts.audit import Audit
from keystead.parts.datasessions.data_keys import DataSessionKeys
from keystead.parts.datasessions.data_record import DataRecord, DataSession
from keystead.parts.datasessions.data_token import new_data_id, new_data_token
from keystead.parts.datasessions.field_writes import ENDED, TOO_MANY, FieldWrites
from keystead.parts.digest import digest
from keystead.parts.sessions import Act, Policy
from keystead.parts.sessions.session_index import UNLISTED, SessionIndex, epoch_ms
from keystead.parts.sessions.session_token import SECRET_BYTES
from keystead.schema import Operation, Steps, attempts, procedure
from keystead.schema.kinds import HashKey, Seen
from keystead.schema.operation_batch import Done
from keystead.schema.times import moment

CHANGED: Final = "changed"


def random_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


class DataIndex(SessionIndex[DataRecord]):
    """As `SessionIndex`, for records with data beside them, and with timeouts of their own."""

    def __init__(
        self,
        keys: DataSessionKeys,
        policy: Policy,
        audit: Audit | None,
        fields_max: int,
        new_secret: Callable[[], bytes] = random_secret,
    ) -> None:
        super().__init__(keys.session, policy, keys.session_end, audit, None)
        self._data = keys.session_data
        self._fields_max = fields_max
        self._field_writes = FieldWrites(self._index, self._family, self._data, fields_max)
        self._new_secret = new_secret

    # --- creating --------------------------------------------------------------------------------------------

    async def create(
        self, owner: str, times: Mapping[str, Any], texts: Mapping[str, str], act: Act | None
    ) -> DataSession:
        """Create a session. Insert-only, with a new id and a new token; the cap holds however many come at once."""
        async for _ in attempts("the list of a user's sessions"):
            dead, evicted = await self._sessions_to_evict(owner)
            id = new_data_id(self._new_secret())
            token, record = self.new_record(id, owner, times)
            more = [
                *self.data_writes(id, record, texts, ()),
                *self._audit_entries("session-evicted", owner, act, evicted, why="too many sessions"),
                *self._audit_entries("signed-in", owner, act, [id]),
            ]
            done = await self._admit(owner, id, record, [*dead, *evicted], more)
            if done:
                await self._after_admission(owner, dead, evicted, done.value)
                raw = self._family.family.codec.encode(record, self._family(id).key, None)
                return self.session_of(token, id, record, raw, dict(texts), evicted=tuple(evicted))
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def _after_admission(self, owner: str, dead: Sequence[str], evicted: Sequence[str], count: int) -> None:
        await self._discard(evicted, "evicted")
        await self._discard(dead)
        await self._prune_if_doubled(owner, count)

    def new_record(self, id: str, owner: str, times: Mapping[str, Any]) -> tuple[str, DataRecord]:
        """A new token, and the record of a session that begins now."""
        token, now = new_data_token(id, self._new_secret(), owner), self._now()
        return token, DataRecord(uid=owner, token=digest(token), created_at=now, last_seen_at=now, **times)

    def session_of(
        self,
        token: str,
        id: str,
        record: DataRecord,
        raw: bytes,
        texts: dict[str, str],
        aged: bool = False,
        evicted: tuple[str, ...] = (),
    ) -> DataSession:
        return DataSession(token, id, texts, self._deadline_ms(record), record, raw, aged, evicted)

    # --- reading ---------------------------------------------------------------------------------------------

    async def see(self, owner: str, id: str) -> tuple[Seen[DataRecord] | None, bool, dict[bytes, bytes]]:
        """The record, whether the owner's list names it, and the data. One round trip, not atomic."""
        seen, is_listed, data = await self._run(*self.reads(owner, id))
        return seen, is_listed, data

    def reads(self, owner: str, id: str) -> tuple[Operation[Any], Operation[Any], Operation[Any]]:
        """What `see` reads. Raises BadKey."""
        return self._family(id).see(), self._index(owner).has(id), self._data(id).see()

    # --- writing ---------------------------------------------------------------------------------------------

    async def save(
        self, owner: str, id: str, record: DataRecord, texts: Mapping[str, str], gone: Sequence[str]
    ) -> Done[None]:
        """`write`, by its fast form if nothing is removed and only a few keys are written."""
        if not gone:
            fast = self._field_writes.start(owner, id, texts, self.data_ends_at_ms(record))
            if fast is not None and (done := await fast).stopped != TOO_MANY:
                return done
        return await self.write(owner, id, record, texts, gone)

    @procedure(ordered=UNLISTED)
    def write(
        self,
        owner: str,
        id: str,
        record: DataRecord,
        texts: Mapping[str, str],
        gone: Sequence[str],
        seen: Mapping[bytes, bytes] | None = None,
    ) -> Steps[None]:
        """Write these keys of a session, and remove those; with `seen`, only if the data is still that.

        Who may interleave: a logout, a revocation, an expiry. The record and the data are in one slot, so nothing is
        written once the record is gone; what was written just before goes with it.
        """
        return Steps(
            self._index(owner).has(id).otherwise(ENDED),
            self._family(id).exists().otherwise(ENDED),
            *([] if seen is None else [self._data(id).holds(seen).otherwise(CHANGED)]),
            *self.data_writes(id, record, texts, gone),
        )

    def data_writes(
        self, id: str, record: DataRecord, texts: Mapping[str, str], gone: Sequence[str]
    ) -> list[Operation[Any]]:
        data: HashKey[dict[str, str], str, str] = self._data(id)
        writes: list[Operation[Any]] = []
        if texts:
            ends_at = self.data_ends_at_ms(record)
            writes = [data.put(texts, ends_at=ends_at), data.at_most(self._fields_max).otherwise(TOO_MANY)]
        return [*([data.remove(*gone)] if gone else []), *writes]

    @procedure(ordered=UNLISTED)
    def replace(self, session: DataSession, record: DataRecord) -> Steps[None]:
        """Write the record, if it is unchanged since it was read and still listed. The data lives as long."""
        listed, data, id = self._index(session.owner), self._data(session.id), session.id
        ends_at = self.data_ends_at_ms(record)
        # A session may be given less time than it had. Its data lives on for at most one touch.
        shortened = [data.shorten(ends_at - self._now_ms())] if ends_at < session.ends_at_ms else []
        return Steps(
            listed.has(id).otherwise(ENDED),
            listed.touch(),
            self._family(id).holds(Seen(session.record, session.raw)),
            self._expiring_record(id, record).replace(record),
            data.extend(ends_at),
            *shortened,
        )

    # --- times -----------------------------------------------------------------------------------------------

    def _own_idle_ms(self, record: DataRecord) -> int:
        return self._idle_ms if record.idle_ms is None else min(record.idle_ms, self._idle_ms)

    def _deadline_ms(self, session: Any) -> int:
        return self._deadline_after(session, epoch_ms(session.last_seen_at))

    def data_ends_at_ms(self, record: DataRecord) -> int:
        """The deadline of a session that is used now: the data is never gone before its record."""
        return max(self._deadline_after(record, self._now_ms()), self._now_ms() + 1)

    def _deadline_after(self, record: DataRecord, used_ms: int) -> int:
        ends_ms = min(used_ms + self._own_idle_ms(record), epoch_ms(record.created_at) + self._absolute_ms)
        return ends_ms if record.ends_at is None else min(ends_ms, epoch_ms(record.ends_at))

    def touch_due_ms(self, record: DataRecord) -> int:
        return epoch_ms(record.last_seen_at) + min(self.policy.touch_every_ms, self._own_idle_ms(record) // 20)

    def grace_until(self) -> Any:
        return moment(self._now_ms() + self.policy.grace_ms)

    def _is_moving(self, user: str, record: DataRecord | Unreadable | None) -> bool:
        """In a cluster a session that is signed in is on two lists for a moment."""
        return isinstance(record, DataRecord) and record.uid != user
