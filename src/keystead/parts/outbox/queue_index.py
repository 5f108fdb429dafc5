"""The index of queues: which queues may have messages, and when to poll each. One sorted set of marks for all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from keystead.errors import Unreadable, WrongKind
from keystead.parts.outbox.outbox_keys import OutboxKeys, QueueName
from keystead.schema.kinds.value import Seen
from keystead.schema.slots import one_step
from keystead.schema.unreadable import log_unreadable

# In a cluster: how long an announcement holds, and how long a queue keeps its mark after it was found empty. By then a
# message that was announced before has been written.
ANNOUNCED_FOR_MS: Final = 60_000
_LINGERS_MS: Final = 3 * ANNOUNCED_FOR_MS
# The scores of marks that only linger have this fraction, all others are whole: so an announcement always changes the
# score of a mark that is about to be removed.
_EMPTY: Final = 0.5
_SET_ASIDE_MS: Final = 86_400_000


class QueueMark(NamedTuple):
    """The mark of a queue, as it was read."""

    queue: QueueName
    at: float

    @property
    def lingers(self) -> bool:
        """The queue was empty at the last poll, and nothing was announced since."""
        return self.at % 1 != 0


class Due(NamedTuple):
    """The queues to poll now."""

    marks: Sequence[QueueMark]
    all: bool  # nothing else is due
    next_ms: float | None  # when the next one is due, if known


class QueueIndex:
    """The marks in the store. If one step can span any keys, a mark changes in one step with its queue.

    In a cluster it cannot. There a mark is set before a message is written (`announce`), so that no message waits
    unmarked; and it is removed only when the queue was empty twice, with time to write in between, and nothing was
    announced meanwhile.
    """

    def __init__(self, keys: OutboxKeys, topics: Collection[str] | None = None) -> None:
        self._keys = keys
        self._topics = topics
        self._store = keys.waiting.store
        self.in_one_step: Final = one_step(self._store, keys.queue("any", "any").key, keys.waiting().key)

    async def due(self, now_ms: int, limit: int) -> Due:
        """The marks that are due, earliest first. One round trip, or more if other outboxes of the same store have
        overdue marks.

        If the key holds another kind there are none, and it is logged; no message can be added meanwhile.
        """
        marks: list[QueueMark] = []
        skip, more = 0, True
        while more and len(marks) < limit:
            try:
                # One more than needed, which tells whether there are more.
                found = await self._keys.waiting().see_lowest(limit + 1, skip=skip)
            except WrongKind:
                return Due([], True, None)
            due = [(seen, at) for seen, at in found[:limit] if at <= now_ms]
            marks += [
                QueueMark(seen.value, at) for seen, at in due if seen.value is not None and self._is_ours(seen.value)
            ]
            strange = [seen for seen, _ in due if seen.value is None]
            await self._set_aside(strange, now_ms)
            more = len(found) > limit and found[-1][1] <= now_ms
            # Marks of other topics stay where they are, so each page begins after them.
            skip += limit - len(strange)
        return Due(marks[:limit], not more and len(marks) <= limit, next((at for _, at in found if at > now_ms), None))

    async def _set_aside(self, strange: Sequence[Seen[QueueName | None]], now_ms: int) -> None:
        """Postpone marks that name no queue, which would otherwise always come first. `keystead doctor` reports
        them."""
        waiting = self._keys.waiting()
        for seen in strange:
            log_unreadable(self._store, Unreadable("a mark does not name a queue", waiting.key, seen.stored))
        await self._keys.run(*(waiting.move(seen, now_ms + _SET_ASIDE_MS) for seen in strange))

    def _is_ours(self, queue: QueueName) -> bool:
        return self._topics is None or queue.topic in self._topics

    async def move(self, mark: QueueMark, at_ms: float) -> None:
        """Move a mark to another time, if it is unchanged since it was read."""
        await self._keys.move_mark(*mark.queue, mark.at, at_ms)

    async def found_empty(self, mark: QueueMark, now_ms: int) -> None:
        """Remove the mark of an empty queue, now or later."""
        lingers_until = self.lingers_until(now_ms)
        if lingers_until is None or mark.lingers:
            await self._keys.take_mark_out(*mark.queue, mark.at)
        else:
            await self.move(mark, lingers_until)

    def lingers_until(self, now_ms: int) -> float | None:
        """Until when the mark of an empty queue stays; None: it is removed now."""
        return None if self.in_one_step else now_ms + _LINGERS_MS + _EMPTY
