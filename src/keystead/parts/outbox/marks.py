"""The marks: which queues may have messages, and when to look at each. They live in one sorted set for all queues."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from keystead.errors import Unreadable, WrongKind
from keystead.parts.outbox.keys import OutboxKeys, QueueName
from keystead.schema import Operation
from keystead.schema.unreadable import log_unreadable
from keystead.stores import Command, Outcome, Step, absent, at_most, required

# In a cluster: how long an announcement holds, and how long a queue keeps its mark after it was found empty, by which
# time whoever announced a message before that look has written it.
ANNOUNCED_FOR_MS: Final = 60_000
_LINGERS_MS: Final = 3 * ANNOUNCED_FOR_MS
# The scores of marks that only linger end with this, and those of all others are whole: so an announcement always
# changes the score of a mark that is about to be taken out.
_EMPTY: Final = 0.5
_LESS: Final = 0.25
_SET_ASIDE_MS: Final = 86_400_000


class Mark(NamedTuple):
    """The mark of a queue, as it was read."""

    queue: QueueName
    at: float

    @property
    def lingers(self) -> bool:
        """The queue was empty when somebody looked, and nothing was announced since."""
        return self.at % 1 != 0


class Due(NamedTuple):
    """What is to be looked at now."""

    marks: Sequence[Mark]
    all: bool  # there is nothing else that is due
    next_ms: float | None  # when there will be, as far as is known


class Marks:
    """The marks in their store. Where one step can span any keys, they change in one step with what they tell of.

    In a cluster they cannot. There a mark is set before a message is written (`announce`), so that none waits unmarked;
    and it is taken out only when the queue was empty twice, with time to write in between, and nothing was announced
    meanwhile.
    """

    def __init__(self, keys: OutboxKeys, topics: Collection[str] | None = None) -> None:
        self._keys = keys
        self._topics = topics
        self._store = keys.waiting.store
        self._key = keys.waiting().key
        self._codec = keys.waiting.family.member
        self.in_one_step: Final = self._store.guarantees.atomic == "any keys"

    async def due(self, now_ms: int, limit: int) -> Due:
        """The marks whose time has come, the earliest first. One round trip, and more where other outboxes of the same
        store are behind with theirs.

        Where they are of another kind there are none, and the log says so; nobody can add a message meanwhile.
        """
        marks: list[Mark] = []
        start = 0
        try:
            while True:
                # Marks of other topics stay where they are, so each page begins after them.
                found, later = await self._store.run(
                    [
                        ("ZRANGE", self._key, "-inf", now_ms, "BYSCORE", "LIMIT", start, limit, "WITHSCORES"),
                        ("ZRANGE", self._key, f"({now_ms}", "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"),
                    ]
                )
                marks += [mark for mark in await self._decode(found, now_ms) if self._is_ours(mark.queue)]
                if len(found) < limit or len(marks) >= limit:
                    break
                start += len(found)
        except WrongKind as error:
            log_unreadable(self._store, error)
            return Due([], True, None)
        return Due(marks[:limit], len(found) < limit, later[0][1] if later else None)

    async def _decode(self, found: Sequence[tuple[bytes, float]], now_ms: int) -> list[Mark]:
        marks, strange = [], []
        for data, score in found:
            try:
                marks.append(Mark(self._codec.decode(data, self._key), score))
            except Unreadable as error:
                log_unreadable(self._store, error)
                strange.append(data)
        if strange:
            # They name no queue, and would stand before all others for ever. `keystead doctor` says what they are.
            later_ms = now_ms + _SET_ASIDE_MS
            await self._store.run([("ZADD", self._key, "XX", later_ms, data) for data in strange])
        return marks

    def _is_ours(self, queue: QueueName) -> bool:
        return self._topics is None or queue.topic in self._topics

    # --- in one step with others -----------------------------------------------------------------------------

    def adding(self, queue: QueueName, now_ms: int) -> Operation[bool]:
        """Mark a queue, unless it is marked: one that waits after a failure goes on waiting."""
        return self._keys.waiting().add(queue, now_ms)

    def removing(self, queue: QueueName) -> Operation[int]:
        return self._keys.waiting().remove(queue)

    def set_to(self, queue: QueueName, at_ms: int) -> Command:
        return ("ZADD", self._key, at_ms, self._member(queue))

    def taken_out(self, queue: QueueName) -> Command:
        return ("ZREM", self._key, self._member(queue))

    # --- alone -----------------------------------------------------------------------------------------------

    async def announce(self, queue: QueueName, now_ms: int) -> None:
        """Mark a queue, to be looked at now."""
        await self._store.run([self.set_to(queue, now_ms)])

    async def remove(self, queue: QueueName) -> None:
        await self._store.run([self.taken_out(queue)])

    async def move(self, mark: Mark, at_ms: float) -> Mark | None:
        """Give a mark another time, if it is still as it was read; None: it is not, or is gone."""
        moved = Mark(mark.queue, at_ms)
        done = await self._changed(mark, ("ZADD", self._key, "XX", at_ms, self._member(mark.queue)))
        return moved if done else None

    async def found_empty(self, mark: Mark, queue_key: str, now_ms: int) -> None:
        """Take the mark of an empty queue out, or see to it that it is taken out later."""
        if self.in_one_step:
            await self._store.atomically([absent(queue_key), self.taken_out(mark.queue)])
        elif mark.lingers:
            await self._changed(mark, self.taken_out(mark.queue))
        else:
            await self.move(mark, now_ms + _LINGERS_MS + _EMPTY)

    async def _changed(self, mark: Mark, command: Command) -> Outcome:
        """Run a command if the mark has still the score that was read: it is not more, and can be made less."""
        member = self._member(mark.queue)
        unchanged: list[Step] = [
            at_most(("ZSCORE", self._key, member), mark.at),
            required(("ZADD", self._key, "XX", "LT", "CH", mark.at - _LESS, member)),
        ]
        return await self._store.atomically([*unchanged, command])

    def _member(self, queue: QueueName) -> bytes:
        data: bytes = self._codec.encode(queue, self._key)
        return data
