"""The transactional outbox: add messages atomically with a change; any process delivers them."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from keystead.errors import BadValue, CommandError, StoreError, Unreadable
from keystead.parts.background_loop import BackgroundLoop, process_name
from keystead.parts.outbox.delivery import Deliverer, Delivery, DeliveryCounts, Said, Send
from keystead.parts.outbox.outbox_keys import KEPT_GIVEN_UP, GivenUp, OutboxKeys, QueueName, StoredMessage, Trouble
from keystead.parts.outbox.queue_index import ANNOUNCED_FOR_MS, Due, QueueIndex, QueueMark
from keystead.parts.outbox.retry_policy import OutboxPolicy
from keystead.schema import Operation
from keystead.schema.store_fit import require_atomic_steps
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.outbox")

_FIRST_TRY_MS: Final = 1_000  # the first pause during a store outage; it doubles from then on
_LONGEST_TRY_MS: Final = 30_000
_JITTER_MS: Final = 50  # jitter, so that processes do not poll at the same moment
_CUT_TOGETHER: Final = 200
_AFTER_TROUBLE_MS: Final = 3_600_000
_MOST_ANNOUNCED: Final = 10_000


@dataclass(frozen=True)
class QueueNow:
    """The current state of a queue.

    waiting    how many messages wait
    trouble    since when and why delivery fails; None: it works, or was not tried yet
    given_up   the last dead letters, newest first
    """

    waiting: int
    trouble: Trouble | None
    given_up: Sequence[GivenUp]


class _QueueRead(NamedTuple):
    """The stored state of a marked queue."""

    waiting: int
    is_own: bool  # by this process
    lease_left: timedelta | None  # None: the lease is free
    next_ms: int  # the time of the next attempt


class Outbox(BackgroundLoop[None]):
    """Transactional outbox: messages are delivered at least once, even if the receiver is down or a process is killed.

        outbox = Outbox(OutboxKeys(store), send)
        async with outbox:                                   # in every process; it delivers until the block ends
            await outbox.announce("order", id)
            await keys.atomically(keys.order(id).set(order), *outbox.add("order", id, {"event": "paid"}))

    A queue is a topic and a name. **Its messages are sent in the order they were added, each at least once**, by one
    process at a time, under a lease; queues are independent. `send` raises if a message was not delivered: the queue
    backs off as the policy says, and is retried; if it raises Undeliverable, the message is given up. A message
    is removed after it was sent, so a crash repeats it and never loses it; its `id` stays the same, so that the
    receiver can be idempotent.

    `topics` are those that this outbox delivers; by default all. Programs that share a store, and kits of one server,
    share the marks of all queues: if each names its topics, none sends messages of another.

    `send` must obey cancellation. A store outage pauses the outbox; it never ends on its own. When stopped, it
    waits a little for sends in progress, cancels them, and releases the leases. Time is `keys.now_ms`; `wait` is for
    tests. `on_outcome` is called with the topic and the outcome of each attempt. Raises DoesNotFit for a store without
    atomic steps.
    """

    def __init__(
        self,
        keys: OutboxKeys,
        send: Send,
        *,
        topics: Collection[str] | None = None,
        policy: OutboxPolicy | None = None,
        wait: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        on_outcome: Callable[[str, Said], None] = lambda topic, outcome: None,
    ) -> None:
        self._policy = policy or OutboxPolicy()
        left_running = "another process delivers it when its lease expires"
        super().__init__("outbox", left_running, _log, self._policy.stop_within_ms, wait)
        self._keys = keys
        self._store = keys.queue.store
        require_atomic_steps(
            self._store, "the outbox", "a message is written in one atomic step with the change it reports"
        )
        self.by: Final = process_name()
        self._marks = QueueIndex(keys, topics)
        self._deliverer = Deliverer(keys, self._marks, send, self._policy, self.by, wait, on_outcome)
        self._announced: dict[QueueName, int] = {}  # when, in a cluster; the earliest first
        self._reported: set[QueueName] = set()

    # --- adding ----------------------------------------------------------------------------------------------

    async def announce(self, topic: str, name: str) -> None:
        """Announce that a message will be added to a queue within a minute. It does not have to be.

        No round trip if one step can span any keys. In a cluster the mark by which processes find the queue is in
        another slot, and must exist before the message.
        """
        queue = self._queue(topic, name)
        if self._marks.in_one_step:
            return
        now_ms = self._keys.now_ms()
        await self._keys.waiting().put({queue: now_ms})
        self._announced.pop(queue, None)
        self._announced[queue] = now_ms
        while (
            len(self._announced) > _MOST_ANNOUNCED or next(iter(self._announced.values())) <= now_ms - ANNOUNCED_FOR_MS
        ):
            del self._announced[next(iter(self._announced))]

    def add(self, topic: str, name: str, payload: dict[str, Any]) -> list[Operation[Any]]:
        """The operations that add a message; put them into one `atomically` with the change it reports.

        Either both take effect or neither. The outbox of this process then wakes up and delivers. In a cluster the
        changed keys have the hash tag `name`, and a queue that was not announced is refused (BadValue), so call
        `announce` first on every store. Beyond `most_waiting` the oldest tenth of the queue is given up, except for the
        first message, which may be in delivery; that costs two more round trips.
        """
        queue, now_ms = self._queue(topic, name), self._keys.now_ms()
        if not self._marks.in_one_step and self._announced.get(queue, 0) <= now_ms - ANNOUNCED_FOR_MS:
            raise BadValue(
                f"the queue {queue} was not announced within the last minute; write "
                "`await outbox.announce(topic, name)` before the step that adds a message"
            )
        try:
            message = StoredMessage(id=f"msg_{secrets.token_urlsafe(16)}", created_ms=now_ms, payload=payload)
        except ValidationError:
            # The message of pydantic contains the payload, which may be confidential.
            raise BadValue(f"the payload of a message for the queue {queue} is not a JSON object") from None
        append = self._keys.queue(*queue).append(message).afterwards(lambda count: self._follow_up(queue, count))
        # A queue that is already marked, because it backs off after a failure, continues to wait.
        return [append, self._keys.waiting().add(queue, now_ms)] if self._marks.in_one_step else [append]

    def drop(self, topic: str, name: str) -> list[Operation[Any]]:
        """The operations that delete a whole queue; put them into the step that deletes its owner.

        A send in progress completes. In a cluster the mark of the queue is removed after the step; a crash in between
        leaves a mark that is removed when it is next polled.
        """
        queue = self._queue(topic, name)
        families = (self._keys.queue.alone, self._keys.lease, self._keys.trouble, self._keys.given_up, self._keys.dead)
        *first, last = (family(*queue).delete() for family in families)
        if self._marks.in_one_step:
            return [*first, last, self._keys.waiting().remove(queue)]
        return [*first, last.afterwards(lambda _: self._keys.waiting().remove(queue))]

    async def state(self, topic: str, name: str) -> QueueNow:
        """The current state of a queue, for people. One round trip."""
        queue = self._queue(topic, name)
        waiting, trouble, given_up = await self._keys.run(
            self._keys.queue(*queue).count(),
            self._keys.trouble(*queue).get(),
            self._keys.given_up(*queue).newest(KEPT_GIVEN_UP),
        )
        return QueueNow(waiting, trouble, given_up)

    def _queue(self, topic: str, name: str) -> QueueName:
        self._keys.queue(topic, name)  # raises an error if they are invalid
        return QueueName(topic, name)

    async def _follow_up(self, queue: QueueName, count: int) -> None:
        """Wake up after a message was added, and trim the queue if it now has too many."""
        try:
            if not self._marks.in_one_step:
                # A process may have polled between the announcement and the message, and found the queue empty.
                await self._keys.waiting().put({queue: self._keys.now_ms()})
            if count > self._policy.most_waiting:
                await self._cut(queue)
        finally:
            self._wake.set()

    async def _cut(self, queue: QueueName) -> None:
        """Give up the oldest messages of a full queue, except for the first, which may be in delivery."""
        key, most = self._keys.queue(*queue), self._policy.most_waiting
        count, found = await self._keys.run(key.count(), key.see(1, _CUT_TOGETHER))
        going = found[: max(0, count - most + most // 10)]
        if count <= most or not going:
            return
        first = going[0].value
        entry = GivenUp(
            at_ms=self._keys.now_ms(),
            why="too many",
            count=len(going),
            id=None if first is None else first.id,
            created_ms=None if first is None else first.created_ms,
        )
        if await self._keys.cut(*queue, going, entry):
            _log.warning("%s: %d messages were given up, too many", queue, len(going))

    # --- delivering ------------------------------------------------------------------------------------------

    async def deliver_due(self) -> DeliveryCounts:
        """Deliver everything that is due, and return the counts. Raises StoreError during a store outage.

        It may run while the block is active: each queue has one delivery at a time.
        """
        counts = DeliveryCounts()
        own: set[asyncio.Task[None]] = set()
        try:
            while True:
                if self._free > 0:
                    due = await self._look(counts, own)
                    if not own and not due.marks and due.all:
                        return counts
                if own or self._free <= 0:
                    ended, _ = await asyncio.wait(own or {*self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended & own:
                        own.discard(task)
                        task.result()
        finally:
            for task in own:
                task.cancel()
            await asyncio.gather(*own, return_exceptions=True)

    @property
    def _free(self) -> int:
        return self._policy.at_once - len(self._tasks)

    async def _round(self) -> float:
        """Start the deliveries that are due. Returns the seconds until the next poll."""
        look_every_ms = self._policy.look_every_ms
        started: set[asyncio.Task[None]] = set()
        try:
            due = await self._look(DeliveryCounts(), started) if self._free > 0 else None
        except Exception as error:
            due = None
            self._record_outage(error)
        else:
            if due is not None and not due.marks and not self._tasks:
                self._record_recovery()
        for task in started:
            task.add_done_callback(self._task_ended)
        jitter = random.random()  # noqa: S311 - jitter
        if self._outages:
            return min(_FIRST_TRY_MS << min(self._outages - 1, 10), _LONGEST_TRY_MS) / 1000
        if due is not None and not due.all and self._free > 0:
            return 0
        left_ms = look_every_ms if due is None or due.next_ms is None else due.next_ms - self._keys.now_ms()
        if left_ms >= look_every_ms:
            return look_every_ms * (1 - jitter / 4) / 1000
        return (max(0.0, left_ms) + jitter * _JITTER_MS) / 1000

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._record_recovery()
            self._wake.set()
        elif isinstance(error, Exception):
            self._record_outage(error)

    async def _look(self, counts: DeliveryCounts, started: set[asyncio.Task[None]]) -> Due:
        """Poll the queues that are due, and start a delivery for each that can be delivered.

        Each mark is moved to when there may be something to do next, so that no process polls it in vain.
        """
        due = await self._marks.due(self._keys.now_ms(), self._free)
        for mark, stored in zip(due.marks, await self._read(due.marks), strict=True):
            if isinstance(stored, Exception):
                await self._set_aside(mark, stored)
                continue
            self._reported.discard(mark.queue)
            now_ms = self._keys.now_ms()
            own, left = stored.is_own, stored.lease_left
            if not stored.waiting:
                await self._marks.found_empty(mark, now_ms)
            elif stored.next_ms > now_ms:
                await self._marks.move(mark, stored.next_ms)
            elif left is not None and (not own or mark.queue in self._tasks.values()):
                left_ms = self._policy.lease_ms if left == timedelta.max else left // timedelta(milliseconds=1)
                await self._marks.move(mark, now_ms + max(1, left_ms))
            elif self._free > 0 and mark.queue not in self._tasks.values():
                started.add(self._start(mark, counts, again=own))
        return due

    def _start(self, mark: QueueMark, counts: DeliveryCounts, *, again: bool) -> asyncio.Task[None]:
        turn = Delivery(self._deliverer, mark.queue, counts)
        task = asyncio.create_task(turn.run(again=again), name=f"keystead outbox {mark.queue}")
        self._tasks[task] = mark.queue
        task.add_done_callback(self._tasks.pop)
        return task

    async def _read(self, marks: Sequence[QueueMark]) -> Sequence[_QueueRead | Exception]:
        """Read the state of each queue; an error in place of a damaged one."""
        operations: list[Operation[Any]] = []
        for queue, _ in marks:
            lease, trouble = self._keys.lease(*queue), self._keys.trouble(*queue)
            operations += [self._keys.queue(*queue).count(), lease.get(), lease.remaining(), trouble.get()]
        found = await self._keys.run_each(*operations)
        return [self._queue_read(*found[4 * place : 4 * place + 4]) for place in range(len(marks))]

    def _queue_read(self, waiting: Any, lease: Any, left: Any, trouble: Any) -> _QueueRead | Exception:
        for one in (waiting, lease, left, trouble):
            if isinstance(one, StoreError):
                return one
        for one in (lease, trouble):
            if isinstance(one, Unreadable):  # a lease counts as another process's; without a back-off it is tried now
                log_unreadable(self._store, one)
        trouble = None if isinstance(trouble, Unreadable) else trouble
        # A wait longer than the policy allows comes from a wrong clock.
        longest_ms = self._keys.now_ms() + self._policy.longest_retry_ms
        next_ms = 0 if trouble is None or trouble.next_ms > longest_ms else trouble.next_ms
        return _QueueRead(waiting, lease == self._deliverer.lease, left, next_ms)

    async def _set_aside(self, mark: QueueMark, error: Exception) -> None:
        """Leave a damaged queue alone for a while; the others continue."""
        if not isinstance(error, CommandError):
            raise error
        if mark.queue not in self._reported:
            self._reported.add(mark.queue)
            if isinstance(error, Unreadable):
                log_unreadable(self._store, error)
            _log.error("%s cannot be delivered: %s", mark.queue, error)
        await self._marks.move(mark, self._keys.now_ms() + _AFTER_TROUBLE_MS)
