"""The marks: which queues may have messages, and when to look at each. They live in one sorted set for all queues."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from keystead.errors import Unreadable, WrongKind
from keystead.parts.outbox.outbox_keys import OutboxKeys, QueueName
from keystead.schema.kinds.value import Seen
from keystead.schema.slots import one_step
from keystead.schema.unreadable import log_unreadable

# In a cluster: how long an announcement holds, and how long a queue keeps its mark after it was found empty, by which
# time whoever announced a message before that look has written it.
ANNOUNCED_FOR_MS: Final = 60_000
_LINGERS_MS: Final = 3 * ANNOUNCED_FOR_MS
# The scores of marks that only linger end with this, and those of all others are whole: so an announcement always
# changes the score of a mark that is about to be taken out.
_EMPTY: Final = 0.5
_SET_ASIDE_MS: Final = 86_400_000


class QueueMark(NamedTuple):
    """The mark of a queue, as it was read."""

    queue: QueueName
    at: float

    @property
    def lingers(self) -> bool:
        """The queue was empty when somebody looked, and nothing was announced since."""
        return self.at % 1 != 0


class Due(NamedTuple):
    """What is to be looked at now."""

    marks: Sequence[QueueMark]
    all: bool  # there is nothing else that is due
    next_ms: float | None  # when there will be, as far as is known


class QueueIndex:
    """The marks in their store. Where one step can span any keys, they change in one step with what they tell of.

    In a cluster they cannot. There a mark is set before a message is written (`announce`), so that none waits unmarked;
    and it is taken out only when the queue was empty twice, with time to write in between, and nothing was announced
    meanwhile.
    """

    def __init__(self, keys: OutboxKeys, topics: Collection[str] | None = None) -> None:
        self._keys = keys
        self._topics = topics
        self._store = keys.waiting.store
        self.in_one_step: Final = one_step(self._store, keys.queue("any", "any").key, keys.waiting().key)

    async def due(self, now_ms: int, limit: int) -> Due:
        """The marks whose time has come, the earliest first. One round trip, and more where other outboxes of the same
        store are behind with theirs.

        Where they are of another kind there are none, and the log says so; nobody can add a message meanwhile.
        """
        marks: list[QueueMark] = []
        skip, more = 0, True
        while more and len(marks) < limit:
            try:
                # One more than is asked for, which says whether that is all.
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
        """Let marks wait that name no queue, and would stand before all others for ever. `keystead doctor` says what
        they are."""
        waiting = self._keys.waiting()
        for seen in strange:
            log_unreadable(self._store, Unreadable("a mark names no queue", waiting.key, seen.stored))
        await self._keys.run(*(waiting.move(seen, now_ms + _SET_ASIDE_MS) for seen in strange))

    def _is_ours(self, queue: QueueName) -> bool:
        return self._topics is None or queue.topic in self._topics

    async def move(self, mark: QueueMark, at_ms: float) -> None:
        """Give a mark another time, if it is still as it was read."""
        await self._keys.move_mark(*mark.queue, mark.at, at_ms)

    async def found_empty(self, mark: QueueMark, now_ms: int) -> None:
        """Take the mark of an empty queue out, or see to it that it is taken out later."""
        lingers_until = self.lingers_until(now_ms)
        if lingers_until is None or mark.lingers:
            await self._keys.take_mark_out(*mark.queue, mark.at)
        else:
            await self.move(mark, lingers_until)

    def lingers_until(self, now_ms: int) -> float | None:
        """Until when the mark of a queue that is empty now stays; None: it goes at once."""
        return None if self.in_one_step else now_ms + _LINGERS_MS + _EMPTY
