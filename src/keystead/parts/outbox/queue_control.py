"""Queues of the outbox for operators: what waits, what fails, and dead letters; retry or drop them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from keystead.errors import KeysteadError
from keystead.parts.outbox.outbox_keys import KEPT_GIVEN_UP, GivenUp, OutboxKeys, QueueName, Trouble

_MOST_LISTED: Final = 500


class ListedQueue(NamedTuple):
    """A queue with its state. `given_up`: the last dead letters, newest first."""

    queue: QueueName
    waiting: int
    trouble: Trouble | None
    given_up: Sequence[GivenUp]


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
        waiting, trouble, given_up = await self._keys.run_each(
            self._keys.queue(*queue).count(),
            self._keys.trouble(*queue).get(),
            self._keys.given_up(*queue).newest(KEPT_GIVEN_UP),
        )
        return ListedQueue(
            queue,
            0 if isinstance(waiting, KeysteadError) else waiting,
            None if isinstance(trouble, KeysteadError) else trouble,
            () if isinstance(given_up, KeysteadError) else given_up,
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

    async def drop_dead_letters(self, queue: QueueName) -> bool:
        """Delete the records of messages that were given up. False: there are none."""
        return bool(await self._keys.given_up(*queue).delete())

    async def drop_waiting(self, queue: QueueName) -> int:
        """Delete the messages that wait, with their back-off. Returns how many there were.

        A send in progress completes. The mark stays; the next poll finds the queue empty and removes it.
        """
        waiting = await self._keys.queue(*queue).count()
        await self._keys.trouble(*queue).delete()
        await self._keys.queue.alone(*queue).delete()
        return int(waiting)
