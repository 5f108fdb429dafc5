"""The outbox: what is added is delivered, by whichever process comes to it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from keystead.errors import BadValue, CommandError, StoreError, Unreadable
from keystead.parts.background_loop import Rounds
from keystead.parts.outbox.delivery import Deliverer, Delivery, DeliveryCounts, Said, Send
from keystead.parts.outbox.outbox_keys import KEPT_GIVEN_UP, GivenUp, OutboxKeys, QueueName, StoredMessage, Trouble
from keystead.parts.outbox.queue_index import ANNOUNCED_FOR_MS, Due, QueueIndex, QueueMark
from keystead.parts.outbox.retry_policy import OutboxPolicy
from keystead.schema import Operation
from keystead.schema.store_fit import require_atomic_steps
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.outbox")

_FIRST_TRY_MS: Final = 1_000  # after which a store that is away is asked again; then twice as long, and so on
_LONGEST_TRY_MS: Final = 30_000
_SPREAD_MS: Final = 50  # so that not all processes ask at the very same moment
_CUT_TOGETHER: Final = 200
_AFTER_TROUBLE_MS: Final = 3_600_000
_MOST_ANNOUNCED: Final = 10_000


@dataclass(frozen=True)
class QueueNow:
    """A queue as it stands.

    waiting    how many messages wait
    trouble    since when and why they are not delivered; None: they are, or none was tried yet
    given_up   the last that were given up, the newest first
    """

    waiting: int
    trouble: Trouble | None
    given_up: Sequence[GivenUp]


class _Looked(NamedTuple):
    """What the store says of a queue that is marked."""

    waiting: int
    is_own: bool  # the lease is that of this process
    lease_left: timedelta | None  # None: nobody has it
    next_ms: int  # when it may be tried again


class Outbox(Rounds[None]):
    """Messages that are delivered although their receiver is down, or this process is killed.

        outbox = Outbox(OutboxKeys(store), send)
        async with outbox:                                   # in every process; it delivers until the block ends
            await outbox.announce("order", id)
            await keys.atomically(keys.order(id).set(order), *outbox.add("order", id, {"event": "paid"}))

    A queue is a topic and a name. **Its messages are sent in the order in which they were added, each at least once**,
    by one process at a time, under a lease; queues do not wait for each other. `send` raises to say that a message was
    not delivered: the queue then waits, as the policy says, and is tried again; where it raises Undeliverable, the
    message is given up at once. A message is taken out after it was sent, so whatever dies, it is repeated and not
    lost; its `id` stays the same, so that a receiver can know it again.

    `topics` are those that this outbox delivers; without it, all there are. Programs that share a store, and kits of
    one server, share the marks of all queues: where each names its topics, none sends what another one added.

    `send` obeys cancellation. A store that is away is waited for; the outbox never ends by itself. When it is stopped
    it waits a little for what is under way, cancels it, and gives the leases back. Time is `keys.now_ms`; `wait` is for
    tests. `on_outcome` is told the topic of each attempt, and how it went. Raises DoesNotFit for a store without
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
        so_far = "another process delivers it when its lease is over"
        super().__init__("outbox", so_far, _log, self._policy.stop_within_ms, wait)
        self._keys = keys
        self._store = keys.queue.store
        require_atomic_steps(self._store, "the outbox", "a message is written in one atomic step with what it tells of")
        self.by: Final = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._marks = QueueIndex(keys, topics)
        self._deliverer = Deliverer(keys, self._marks, send, self._policy, self.by, wait, on_outcome)
        self._announced: dict[QueueName, int] = {}  # when, in a cluster; the earliest first
        self._complained: set[QueueName] = set()

    # --- adding ----------------------------------------------------------------------------------------------

    async def announce(self, topic: str, name: str) -> None:
        """Say that a message will be added to a queue; within a minute it is written, or may as well never be.

        No round trip where one step can span any keys. In a cluster the mark by which processes find the queue lies in
        another slot, and must be there before the message is.
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
        """The operations that add a message, to be put into one `atomically` with what it tells of.

        Either both take effect or neither does. What runs here wakes up then, and delivers. In a cluster the keys
        that it tells of have the hash tag `name`; and where the queue was not announced it is refused (BadValue), so
        call `announce` before it on every store. Beyond `most_waiting` the oldest tenth of the queue is given up, but
        for its first message, which may be under way; that costs two more round trips.
        """
        queue, now_ms = self._queue(topic, name), self._keys.now_ms()
        if not self._marks.in_one_step and self._announced.get(queue, 0) <= now_ms - ANNOUNCED_FOR_MS:
            raise BadValue(
                f"a message is added to the queue {queue}, which was not announced within the last minute; write "
                "`await outbox.announce(topic, name)` before the step that it is added in"
            )
        try:
            message = StoredMessage(id=f"msg_{secrets.token_urlsafe(16)}", created_ms=now_ms, payload=payload)
        except ValidationError:
            # Its own words show the payload, which is nobody else's business.
            raise BadValue(f"a message of the queue {queue} has a payload that is no JSON object") from None
        append = self._keys.queue(*queue).append(message).afterwards(lambda count: self._follow_up(queue, count))
        # A queue that is marked already, because it waits after a failure, goes on waiting.
        return [append, self._keys.waiting().add(queue, now_ms)] if self._marks.in_one_step else [append]

    def drop(self, topic: str, name: str) -> list[Operation[Any]]:
        """The operations that delete all that there is of a queue, to be put into the step that deletes its owner.

        What is being sent at that moment is sent. In a cluster the queue loses its mark after the step; a crash
        in between leaves a mark that is taken out when it is met.
        """
        queue = self._queue(topic, name)
        families = (self._keys.queue.alone, self._keys.lease, self._keys.trouble, self._keys.given_up)
        *first, last = (family(*queue).delete() for family in families)
        if self._marks.in_one_step:
            return [*first, last, self._keys.waiting().remove(queue)]
        return [*first, last.afterwards(lambda _: self._keys.waiting().remove(queue))]

    async def state(self, topic: str, name: str) -> QueueNow:
        """How a queue stands, for people. One round trip."""
        queue = self._queue(topic, name)
        waiting, trouble, given_up = await self._keys.run(
            self._keys.queue(*queue).count(),
            self._keys.trouble(*queue).get(),
            self._keys.given_up(*queue).newest(KEPT_GIVEN_UP),
        )
        return QueueNow(waiting, trouble, given_up)

    def _queue(self, topic: str, name: str) -> QueueName:
        self._keys.queue(topic, name)  # or raise what is wrong with them
        return QueueName(topic, name)

    async def _follow_up(self, queue: QueueName, count: int) -> None:
        """What comes after a message was added, with which the queue has so many."""
        try:
            if not self._marks.in_one_step:
                # Somebody may have looked between the announcement and the message, and let the queue rest.
                await self._keys.waiting().put({queue: self._keys.now_ms()})
            if count > self._policy.most_waiting:
                await self._cut(queue)
        finally:
            self._woken.set()

    async def _cut(self, queue: QueueName) -> None:
        """Give up the oldest messages of a queue that is full, but for the first, which may be under way."""
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
            _log.warning("%s: %d of its messages were given up, too many", queue, len(going))

    # --- delivering ------------------------------------------------------------------------------------------

    async def deliver_due(self) -> DeliveryCounts:
        """Deliver what is due, until nothing is; how it went. Raises StoreError where the store is away.

        It may run beside the block: no queue is delivered twice at once.
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
                    ended, _ = await asyncio.wait(own or {*self._turns}, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended & own:
                        own.discard(task)
                        task.result()
        finally:
            for task in own:
                task.cancel()
            await asyncio.gather(*own, return_exceptions=True)

    @property
    def _free(self) -> int:
        return self._policy.at_once - len(self._turns)

    async def _round(self) -> float:
        """Begin what is due; how many seconds there is nothing more to do."""
        look_every_ms = self._policy.look_every_ms
        started: set[asyncio.Task[None]] = set()
        try:
            due = await self._look(DeliveryCounts(), started) if self._free > 0 else None
        except Exception as error:
            due = None
            self._is_away(error)
        else:
            if due is not None and not due.marks and not self._turns:
                self._is_back()
        for task in started:
            task.add_done_callback(self._turn_ended)
        spread = random.random()  # noqa: S311 - spreads processes apart
        if self._away:
            return min(_FIRST_TRY_MS << min(self._away - 1, 10), _LONGEST_TRY_MS) / 1000
        if due is not None and not due.all and self._free > 0:
            return 0
        left_ms = look_every_ms if due is None or due.next_ms is None else due.next_ms - self._keys.now_ms()
        if left_ms >= look_every_ms:
            return look_every_ms * (1 - spread / 4) / 1000
        return (max(0.0, left_ms) + spread * _SPREAD_MS) / 1000

    def _turn_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._is_back()
            self._woken.set()
        elif isinstance(error, Exception):
            self._is_away(error)

    async def _look(self, counts: DeliveryCounts, started: set[asyncio.Task[None]]) -> Due:
        """Look at the queues whose time has come, and begin a turn for each that can be delivered.

        Each mark that was seen is moved to when there may be something to do, so that nobody looks in vain again.
        """
        due = await self._marks.due(self._keys.now_ms(), self._free)
        for mark, looked in zip(due.marks, await self._read(due.marks), strict=True):
            if isinstance(looked, Exception):
                await self._set_aside(mark, looked)
                continue
            self._complained.discard(mark.queue)
            now_ms = self._keys.now_ms()
            own, left = looked.is_own, looked.lease_left
            if not looked.waiting:
                await self._marks.found_empty(mark, now_ms)
            elif looked.next_ms > now_ms:
                await self._marks.move(mark, looked.next_ms)
            elif left is not None and (not own or mark.queue in self._turns.values()):
                left_ms = self._policy.lease_ms if left == timedelta.max else left // timedelta(milliseconds=1)
                await self._marks.move(mark, now_ms + max(1, left_ms))
            elif self._free > 0 and mark.queue not in self._turns.values():
                started.add(self._start(mark, counts, again=own))
        return due

    def _start(self, mark: QueueMark, counts: DeliveryCounts, *, again: bool) -> asyncio.Task[None]:
        turn = Delivery(self._deliverer, mark.queue, counts)
        task = asyncio.create_task(turn.run(again=again), name=f"keystead outbox {mark.queue}")
        self._turns[task] = mark.queue
        task.add_done_callback(self._turns.pop)
        return task

    async def _read(self, marks: Sequence[QueueMark]) -> Sequence[_Looked | Exception]:
        """What the store says of each queue; an error in the place of one that is not what it should be."""
        asked: list[Operation[Any]] = []
        for queue, _ in marks:
            lease, trouble = self._keys.lease(*queue), self._keys.trouble(*queue)
            asked += [self._keys.queue(*queue).count(), lease.get(), lease.remaining(), trouble.get()]
        found = await self._keys.run_each(*asked)
        return [self._looked(*found[4 * place : 4 * place + 4]) for place in range(len(marks))]

    def _looked(self, waiting: Any, lease: Any, left: Any, trouble: Any) -> _Looked | Exception:
        for one in (waiting, lease, left, trouble):
            if isinstance(one, StoreError):
                return one
        if isinstance(trouble, Unreadable):
            log_unreadable(self._store, trouble)
            trouble = None  # it is tried at once, then
        # A wait that no policy asks for comes from a clock that was wrong.
        longest_ms = self._keys.now_ms() + self._policy.longest_retry_ms
        next_ms = 0 if trouble is None or trouble.next_ms > longest_ms else trouble.next_ms
        return _Looked(waiting, lease == self._deliverer.lease, left, next_ms)

    async def _set_aside(self, mark: QueueMark, error: Exception) -> None:
        """Leave a queue alone for a while that is not what it should be; it harms no other."""
        if not isinstance(error, CommandError):
            raise error
        if mark.queue not in self._complained:
            self._complained.add(mark.queue)
            if isinstance(error, Unreadable):
                log_unreadable(self._store, error)
            _log.error("%s is not delivered: %s", mark.queue, error)
        await self._marks.move(mark, self._keys.now_ms() + _AFTER_TROUBLE_MS)
