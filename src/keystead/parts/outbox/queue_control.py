"""Queues of the outbox for operators: what waits, what fails, and dead letters; retry or drop them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from keystead.errors import KeysteadError, Unreadable
from keystead.parts.outbox.outbox_keys import KEPT_GIVEN_UP, GivenUp, OutboxKeys, QueueName, Trouble
from keystead.schema.unreadable import log_unreadable

_MOST_LISTED: Final = 500


class ListedQueue(NamedTuple):
    """A queue with its state.

    given_up  the last dead letters, newest first
    dead      how many messages were given up and can be sent again
    """

    queue: QueueName
    waiting: int
    trouble: Trouble | None
    given_up: Sequence[GivenUp]
    dead: int


class QueueControl:
    """Operations on queues of any topic, while processes deliver them. Unlike `Outbox` it sends nothing."""

    def __init__(self, keys: OutboxKeys) -> None:
        self._keys = keys

    async def list(self) -> list[ListedQueue]:
        """The queues with messages, trouble or dead letters; at most 500. It scans for dead letters."""
        marks = await self._keys.waiting().see_lowest(_MOST_LISTED)
        found = dict.fromkeys(seen.value for seen, _ in marks if seen.value is not None)
        async for queue in self._with_dead_letters():
            if len(found) >= _MOST_LISTED:
                break
            found.setdefault(queue)
        listed = [await self.state(queue) for queue in found]
        return [one for one in listed if one.waiting or one.trouble is not None or one.given_up]

    async def _with_dead_letters(self) -> AsyncIterator[QueueName]:
        if not self._keys.given_up.store.guarantees.scans:
            return
        async for key in self._keys.given_up.scan():
            yield QueueName(str(key.values["topic"]), str(key.values["name"]))

    async def state(self, queue: QueueName) -> ListedQueue:
        """One round trip. What is unreadable counts as absent; `keystead doctor` reports it."""
        waiting, trouble, given_up, dead = await self._keys.run_each(
            self._keys.queue(*queue).count(),
            self._keys.trouble(*queue).get(),
            self._keys.given_up(*queue).newest(KEPT_GIVEN_UP),
            self._keys.dead(*queue).count(),
        )
        return ListedQueue(
            queue,
            0 if isinstance(waiting, KeysteadError) else waiting,
            None if isinstance(trouble, KeysteadError) else trouble,
            () if isinstance(given_up, KeysteadError) else given_up,
            0 if isinstance(dead, KeysteadError) else dead,
        )

    async def retry(self, queue: QueueName) -> bool:
        """End the back-off of a queue: it is due now, and a process delivers it at its next poll. False: nothing waits.

        A delivery in progress goes on; if it fails, the queue backs off again.
        """
        if not await self._keys.queue(*queue).count():
            return False
        await self._keys.trouble(*queue).delete()
        await self._keys.waiting().put({queue: self._keys.now_ms()})
        return True

    async def retry_dead_letters(self, queue: QueueName) -> int:
        """Add the messages that were given up to the end of their queue, with their ids. Returns how many there were.

        They are due now, and are given up again as any other message. Of several callers one gets the messages.
        """
        seen = await self._keys.dead(*queue).see()
        found = [one for one in seen if one.value is not None]
        if len(found) < len(seen):
            item = Unreadable("an item is not a message", self._keys.dead(*queue).key)
            log_unreadable(self._keys.dead.store, item)
        if not found:
            return 0
        # The mark first, in case this process ends here; and again, in case a process found the queue empty meanwhile.
        await self._keys.waiting().put({queue: self._keys.now_ms()})
        if not await self._keys.revive(*queue, found):
            return 0
        await self._keys.waiting().put({queue: self._keys.now_ms()})
        return len(found)

    async def drop_dead_letters(self, queue: QueueName) -> bool:
        """Delete the messages that were given up, and their records. False: there are none."""
        given_up, dead = await self._keys.run(self._keys.given_up(*queue).delete(), self._keys.dead(*queue).delete())
        return bool(given_up or dead)

    async def drop_waiting(self, queue: QueueName) -> int:
        """Delete the messages that wait, with their back-off. Returns how many there were.

        A send in progress completes. The mark stays; the next poll finds the queue empty and removes it.
        """
        waiting = await self._keys.queue(*queue).count()
        await self._keys.trouble(*queue).delete()
        await self._keys.queue.alone(*queue).delete()
        return int(waiting)
