"""A turn: one process delivers one queue, message by message, under the queue's lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

from keystead.errors import KeysteadError, StoreError, Unreadable
from keystead.parts.outbox.message import DeliveryFailed, OutboxMessage, Undeliverable
from keystead.parts.outbox.outbox_keys import (
    LOST,
    MARKED_AGAIN,
    GivenUp,
    OutboxKeys,
    QueueLease,
    QueueName,
    SeenMessage,
    StoredMessage,
    Trouble,
    Why,
)
from keystead.parts.outbox.queue_index import QueueIndex
from keystead.parts.outbox.retry_policy import OutboxPolicy
from keystead.parts.sanitize import visible
from keystead.schema.doctor.quarantine import set_entries_aside
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.outbox")

Send: TypeAlias = Callable[[OutboxMessage], Awaitable[None]]
Said: TypeAlias = Literal["delivered", "failed", "given-up"]
Head: TypeAlias = Sequence[SeenMessage]  # the first message of a queue, or none

MOST_IN_A_TURN: Final = 100  # then others have a turn
_RENEWALS: Final = 3  # in the time of a lease
_NO_DEADLINE: Final = -1  # as PTTL says it
_GIVEN_UP_TOGETHER: Final = 200
_LONGEST_ERROR: Final = 300


@dataclass
class DeliveryCounts:
    """What was done with messages: each attempt counts once, and what was given up once more."""

    delivered: int = 0
    failed: int = 0
    given_up: int = 0


class Lost(Exception):
    """The lease is another's by now, or the queue was dropped: there is nothing more to do, and nothing to write."""


class Deliverer:
    """What all turns of one process have in common."""

    def __init__(
        self,
        keys: OutboxKeys,
        marks: QueueIndex,
        send: Send,
        policy: OutboxPolicy,
        by: str,
        wait: Callable[[float], Awaitable[Any]],
        on_outcome: Callable[[str, Said], None],
    ) -> None:
        self.keys = keys
        self.marks = marks
        self.send = send
        self.policy = policy
        self.wait = wait
        self.on_outcome = on_outcome
        # The same in each turn of this process: it takes up again what it lost sight of when the store was away.
        self.lease: Final = QueueLease(by=by)


class Delivery:
    """One queue, from the moment that this process claims it until it is empty, fails, or had its share of the time.

    Each step is atomic and begins with the lease: whoever lost it changes nothing. A message is taken out after it was
    sent, so a crash in between repeats it.
    """

    def __init__(self, deliverer: Deliverer, queue: QueueName, counts: DeliveryCounts) -> None:
        self._all = deliverer
        self._keys = deliverer.keys
        self._lease = deliverer.lease
        self._queue = queue
        self._counts = counts
        self._marked_at = 0  # by the claim
        self._trouble: Trouble | None = None

    async def run(self, *, again: bool) -> None:
        """Deliver what waits. `again`: the lease is this process's own already.

        Raises StoreError where the store is away; the lease then ends by itself, or is taken up again.
        """
        try:
            head = await self._claimed(again)
            for _ in range(MOST_IN_A_TURN):
                if head is None:
                    return
                head = await self._next(head)
            if head is not None:
                await self._give_back(self._now_ms())
        except Lost:
            return
        except asyncio.CancelledError:
            with suppress(StoreError, Lost):
                await self._give_back(self._now_ms())
            raise

    async def _next(self, head: Head) -> Head | None:
        """See to the first message; then the next one, or None: the turn is over."""
        if not head:
            return await self._closed()
        [seen] = head
        if seen.value is None:
            await self._set_aside(seen.stored)
            return await self._drop(head, "unreadable", None, "it cannot be read")
        message = self._message(seen.value)
        error = await self._attempt(message)
        if error is None:
            self._say("delivered")
            self._trouble = None
            return await self._step(head)
        self._say("failed")
        if isinstance(error, Undeliverable):
            return await self._drop(head, "undeliverable", message, _sentence(error))
        return await self._failed(head, message, error)

    async def _set_aside(self, raw: bytes) -> None:
        """Move what is no message into quarantine, from where `keystead doctor --restore` brings it back."""
        key, store = self._keys.queue(*self._queue).key, self._keys.queue.store
        log_unreadable(store, Unreadable("an item is no message", key, raw))
        why_not = await set_entries_aside(store, key, "list", [raw], self._now_ms(), _NO_DEADLINE)
        if why_not:
            _log.error("%s: what stands in its queue is no message and is dropped: %s", self._queue, why_not)
        else:
            _log.error("%s: what stands in its queue is no message, and was set aside", self._queue)

    # --- sending ---------------------------------------------------------------------------------------------

    def _message(self, stored: StoredMessage) -> OutboxMessage:
        tried = self._trouble.attempts if self._trouble is not None and self._trouble.id == stored.id else 0
        return OutboxMessage(*self._queue, stored.id, stored.created_ms, stored.payload, tried)

    async def _attempt(self, message: OutboxMessage) -> BaseException | None:
        """Send a message; why it was not delivered, or None. The lease is renewed meanwhile. Raises Lost."""
        limit_s = self._all.policy.send_within_ms / 1000
        sending = asyncio.create_task(_tried(self._all.send, message), name=f"keystead outbox {self._queue}, sending")
        limit = asyncio.ensure_future(self._all.wait(limit_s))
        keeping = asyncio.create_task(self._keep_lease(), name=f"keystead outbox {self._queue}, lease")
        try:
            await asyncio.wait({sending, limit, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                # Nobody here cancelled it, so the sender did that to itself.
                return asyncio.CancelledError() if sending.cancelled() else sending.result()
            if keeping.done():
                raise Lost  # whoever has the queue now sends it, too
            return DeliveryFailed(f"it took longer than {limit_s:g} seconds")
        finally:
            for task in (sending, limit, keeping):
                task.cancel()
            await asyncio.gather(sending, limit, keeping, return_exceptions=True)

    async def _keep_lease(self) -> None:
        """Renew the lease again and again, until it is another's."""
        while True:
            await self._all.wait(self._all.policy.lease_ms / 1000 / _RENEWALS)
            with suppress(StoreError):  # it is tried again; where that is too late, the next step says so
                if not await self._keys.renew(*self._queue, self._lease, self._all.policy.lease_ms):
                    return

    # --- steps under the lease -------------------------------------------------------------------------------

    async def _claimed(self, again: bool) -> Head | None:
        """Take the lease of a queue that has messages; its first one. None: somebody else was faster."""
        lease_ms = self._all.policy.lease_ms
        # Nobody else need look before the lease could be over.
        self._marked_at = self._now_ms() + lease_ms
        claimed = await self._keys.claim(*self._queue, self._lease, lease_ms, self._marked_at, again)
        if not claimed:
            return None
        self._trouble, head = claimed.value
        return head

    async def _failed(self, head: Head, message: OutboxMessage, error: BaseException) -> Head | None:
        """Let the queue wait, and its other messages with it; give up what has waited for too long."""
        policy, before, now_ms = self._all.policy, self._trouble, self._now_ms()
        failures = 1 if before is None else before.failures + 1
        asked_ms = error.retry_after_ms if isinstance(error, DeliveryFailed) else None
        trouble = Trouble(
            failures=failures,
            since_ms=now_ms if before is None else before.since_ms,
            next_ms=now_ms + policy.wait_ms(failures, asked_ms),
            error=_sentence(error),
            id=message.id,
            attempts=message.attempts + 1,
        )
        if failures == 1:
            _log.warning("%s is not delivered, and is tried again: %s", self._queue, trouble.error)
        self._trouble = trouble
        too_old_ms = now_ms - policy.give_up_after_ms
        if trouble.since_ms <= too_old_ms and message.created_ms <= too_old_ms:
            # Where another message failed just before, it is the receiver that fails, and not this one message: then
            # not each of them need be tried once more.
            alone = before is None or before.id == message.id
            old = head if alone else await self._older_than(too_old_ms)
            return await self._drop(old, "too old", message, trouble.error)
        await self._give_back(trouble.next_ms, trouble)
        return None

    async def _older_than(self, moment_ms: int) -> Head:
        """The first messages of the queue, as far as they were added before this."""
        found = await self._keys.queue(*self._queue).see(0, _GIVEN_UP_TOGETHER - 1)
        return [*takewhile(lambda one: one.value is None or one.value.created_ms <= moment_ms, found)]

    async def _drop(self, messages: Head, why: Why, first: OutboxMessage | None, error: str) -> Head:
        """Give messages up, and note it, in one step."""
        entry = GivenUp(
            at_ms=self._now_ms(),
            why=why,
            count=len(messages),
            id=None if first is None else first.id,
            created_ms=None if first is None else first.created_ms,
            attempts=0 if first is None else first.attempts + 1,
            error=error,
        )
        head = await self._step(messages, entry)
        if why != "unreadable":
            _log.warning("%s: %d of its messages were given up, %s: %s", self._queue, len(messages), why, error)
        for _ in messages:
            self._say("given-up")
        return head

    async def _step(self, messages: Head = (), given_up: GivenUp | None = None) -> Head:
        """Take messages out as the holder of the lease, and renew it. The first message then. Raises Lost."""
        lease_ms = self._all.policy.lease_ms
        done = await self._keys.take_out(*self._queue, self._lease, lease_ms, messages, self._trouble, given_up)
        if not done:
            raise Lost
        return done.value

    async def _closed(self) -> Head | None:
        """Give back the lease of an empty queue; where a message came just now, go on with that."""
        lingers_until = self._all.marks.lingers_until(self._now_ms())
        done = await self._keys.close(*self._queue, self._lease, self._marked_at, lingers_until)
        if done or done.stopped == MARKED_AGAIN:
            return None
        if done.stopped == LOST:
            raise Lost
        return await self._step()

    async def _give_back(self, look_ms: int, trouble: Trouble | None = None) -> None:
        """Give back the lease of a queue that goes on: whoever looks then may have it."""
        if not await self._keys.give_back(*self._queue, self._lease, look_ms, trouble):
            raise Lost

    def _say(self, outcome: Said) -> None:
        match outcome:
            case "delivered":
                self._counts.delivered += 1
            case "failed":
                self._counts.failed += 1
            case "given-up":
                self._counts.given_up += 1
        self._all.on_outcome(self._queue.topic, outcome)

    def _now_ms(self) -> int:
        return self._keys.now_ms()


async def _tried(send: Send, message: OutboxMessage) -> BaseException | None:
    """Why a message was not sent. Whatever its sender raises is a failure, except that it was cancelled."""
    try:
        await send(message)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a sys.exit, too, which would end the process and be met again in the next one
        if not isinstance(error, KeysteadError):
            # Without its text, which may hold a secret; a sender logs what it wants to be seen.
            _log.debug("%s/%s: its sender raised %s", message.topic, message.name, type(error).__name__)
        return error
    return None


def _sentence(error: BaseException) -> str:
    # The text of a foreign error may hold anything, a secret, too.
    text = str(error) if isinstance(error, KeysteadError) else type(error).__name__
    return visible(" ".join(text.split()), _LONGEST_ERROR)
