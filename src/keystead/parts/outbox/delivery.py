"""Delivery of one queue by one process: message by message, under the queue's lease."""

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
from keystead.parts.sanitize import error_text
from keystead.schema.quarantine import set_entries_aside
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.outbox")

Send: TypeAlias = Callable[[OutboxMessage], Awaitable[None]]
Said: TypeAlias = Literal["delivered", "failed", "given-up"]
Head: TypeAlias = Sequence[SeenMessage]  # the first message of a queue, or empty

MAX_PER_DELIVERY: Final = 100  # then other queues are next
_RENEWALS_PER_LEASE: Final = 3  # per lease
_NO_DEADLINE: Final = -1  # as PTTL returns it
_MAX_GIVEN_UP_AT_ONCE: Final = 200
_MAX_ERROR: Final = 300


@dataclass
class DeliveryCounts:
    """Counts of attempts; messages that were given up count once more."""

    delivered: int = 0
    failed: int = 0
    given_up: int = 0


class Lost(Exception):
    """The lease was lost, or the queue was dropped: stop, and write nothing."""


class Deliverer:
    """What all deliveries of one process share."""

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
        # The same for all deliveries of this process: it can resume its leases after a store outage.
        self.lease: Final = QueueLease(by=by)


class Delivery:
    """The delivery of one queue, from its claim until it is empty, fails, or has had its share of messages.

    Each step is atomic and guarded by the lease: without it nothing changes. A message is removed after it was sent, so
    a crash in between repeats it.
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
        """Deliver the waiting messages. `again`: this process already has the lease.

        Raises StoreError during a store outage; the lease then expires, or is resumed.
        """
        try:
            head = await self._claim(again)
            for _ in range(MAX_PER_DELIVERY):
                if head is None:
                    return
                head = await self._handle_first(head)
            if head is not None:
                await self._give_back(self._now_ms())
        except Lost:
            return
        except asyncio.CancelledError:
            with suppress(StoreError, Lost):
                await self._give_back(self._now_ms())
            raise

    async def _handle_first(self, head: Head) -> Head | None:
        """Handle the first message. Returns the next one, or None when the delivery is over."""
        if not head:
            return await self._close()
        [seen] = head
        if seen.value is None:
            await self._set_aside(seen.stored)
            return await self._drop(head, "unreadable", None, "it is unreadable")
        message = self._message(seen.value)
        error = await self._attempt(message)
        if error is None:
            self._count("delivered")
            self._trouble = None
            return await self._step(head)
        self._count("failed")
        if isinstance(error, Undeliverable):
            return await self._drop(head, "undeliverable", message, error_text(error, _MAX_ERROR))
        return await self._back_off(head, message, error)

    async def _set_aside(self, raw: bytes) -> None:
        """Move an unreadable item into quarantine, from where `keystead doctor --restore` brings it back."""
        key, store = self._keys.queue(*self._queue).key, self._keys.queue.store
        log_unreadable(store, Unreadable("an item is not a message", key, raw))
        why_not = await set_entries_aside(store, key, "list", [raw], self._now_ms(), _NO_DEADLINE)
        if why_not:
            _log.error("%s: an item in its queue is not a message and was dropped: %s", self._queue, why_not)
        else:
            _log.error("%s: an item in its queue is not a message, and was set aside", self._queue)

    # --- sending ---------------------------------------------------------------------------------------------

    def _message(self, stored: StoredMessage) -> OutboxMessage:
        tried = self._trouble.attempts if self._trouble is not None and self._trouble.id == stored.id else 0
        return OutboxMessage(*self._queue, stored.id, stored.created_ms, stored.payload, tried)

    async def _attempt(self, message: OutboxMessage) -> BaseException | None:
        """Send a message while renewing the lease. Returns why it was not delivered, or None. Raises Lost."""
        limit_s = self._all.policy.send_within_ms / 1000
        name = f"keystead outbox {self._queue}"
        sending = asyncio.create_task(_try_send(self._all.send, message), name=f"{name}, sending")
        limit = asyncio.ensure_future(self._all.wait(limit_s))
        renewal = asyncio.create_task(self._keep_lease(), name=f"{name}, lease")
        try:
            await asyncio.wait({sending, limit, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                # The outbox did not cancel it, so the sender cancelled itself.
                return asyncio.CancelledError() if sending.cancelled() else sending.result()
            if renewal.done():
                raise Lost  # the new holder of the lease sends it too
            return DeliveryFailed(f"it timed out after {limit_s:g} seconds")
        finally:
            for task in (sending, limit, renewal):
                task.cancel()
            await asyncio.gather(sending, limit, renewal, return_exceptions=True)

    async def _keep_lease(self) -> None:
        """Renew the lease again and again. Returns when it is lost."""
        while True:
            await self._all.wait(self._all.policy.lease_ms / 1000 / _RENEWALS_PER_LEASE)
            with suppress(StoreError):  # retried; if that is too late, the next step finds out
                if not await self._keys.renew(*self._queue, self._lease, self._all.policy.lease_ms):
                    return

    # --- steps under the lease -------------------------------------------------------------------------------

    async def _claim(self, again: bool) -> Head | None:
        """Take the lease of a queue with messages. Returns the first one. None: another process was faster."""
        lease_ms = self._all.policy.lease_ms
        # Other processes need not poll before the lease can expire.
        self._marked_at = self._now_ms() + lease_ms
        claimed = await self._keys.claim(*self._queue, self._lease, lease_ms, self._marked_at, again)
        if not claimed:
            return None
        self._trouble, head = claimed.value
        return head

    async def _back_off(self, head: Head, message: OutboxMessage, error: BaseException) -> Head | None:
        """Back off with the whole queue; give up messages that are too old."""
        policy, before, now_ms = self._all.policy, self._trouble, self._now_ms()
        failures = 1 if before is None else before.failures + 1
        asked_ms = error.retry_after_ms if isinstance(error, DeliveryFailed) else None
        trouble = Trouble(
            failures=failures,
            since_ms=now_ms if before is None else before.since_ms,
            next_ms=now_ms + policy.wait_ms(failures, asked_ms),
            error=error_text(error, _MAX_ERROR),
            id=message.id,
            attempts=message.attempts + 1,
        )
        if failures == 1:
            _log.warning("%s was not delivered, and will be retried: %s", self._queue, trouble.error)
        self._trouble = trouble
        too_old_ms = now_ms - policy.give_up_after_ms
        if trouble.since_ms <= too_old_ms and message.created_ms <= too_old_ms:
            # If another message failed just before, the receiver is failing, not this one message: then the old
            # messages are given up together, without trying each.
            alone = before is None or before.id == message.id
            old = head if alone else await self._older_than(too_old_ms)
            return await self._drop(old, "too old", message, trouble.error)
        await self._give_back(trouble.next_ms, trouble)
        return None

    async def _older_than(self, moment_ms: int) -> Head:
        """The messages at the head of the queue that were added before this time."""
        found = await self._keys.queue(*self._queue).see(0, _MAX_GIVEN_UP_AT_ONCE - 1)
        return [*takewhile(lambda one: one.value is None or one.value.created_ms <= moment_ms, found)]

    async def _drop(self, messages: Head, why: Why, first: OutboxMessage | None, error: str) -> Head:
        """Give up messages and record it, in one step."""
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
            _log.warning("%s: %d messages were given up, %s: %s", self._queue, len(messages), why, error)
        for _ in messages:
            self._count("given-up")
        return head

    async def _step(self, messages: Head = (), given_up: GivenUp | None = None) -> Head:
        """Remove messages as the holder of the lease, and renew it. Returns the next first message. Raises Lost."""
        lease_ms = self._all.policy.lease_ms
        done = await self._keys.take_out(*self._queue, self._lease, lease_ms, messages, self._trouble, given_up)
        if not done:
            raise Lost
        return done.value

    async def _close(self) -> Head | None:
        """Release the lease of an empty queue, or continue if a message has just arrived."""
        lingers_until = self._all.marks.lingers_until(self._now_ms())
        done = await self._keys.close(*self._queue, self._lease, self._marked_at, lingers_until)
        if done or done.stopped == MARKED_AGAIN:
            return None
        if done.stopped == LOST:
            raise Lost
        return await self._step()

    async def _give_back(self, look_ms: int, trouble: Trouble | None = None) -> None:
        """Release the lease of a queue that has messages; any process may take it at `look_ms`."""
        if not await self._keys.give_back(*self._queue, self._lease, look_ms, trouble):
            raise Lost

    def _count(self, outcome: Said) -> None:
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


async def _try_send(send: Send, message: OutboxMessage) -> BaseException | None:
    """Send a message; returns the error if it fails. Anything but a cancellation is a failure."""
    try:
        await send(message)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit too: it would end this process, and then the next one
        if not isinstance(error, KeysteadError):
            # Without its text, which may contain a secret.
            _log.debug("%s/%s: the sender raised %s", message.topic, message.name, type(error).__name__)
        return error
    return None
