"""A turn: one process delivers one queue, message by message, under the queue's lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from keystead.errors import KeysteadError, StoreError, Unreadable
from keystead.parts.outbox.keys import GivenUp, OutboxKeys, QueueLease, QueueName, StoredMessage, Trouble, Why
from keystead.parts.outbox.marks import Mark, Marks
from keystead.parts.outbox.message import DeliveryFailed, OutboxMessage, Undeliverable
from keystead.parts.outbox.policy import OutboxPolicy
from keystead.parts.visible import visible
from keystead.schema.doctor.quarantine import set_entries_aside
from keystead.schema.unreadable import log_unreadable
from keystead.stores import Command, Outcome, Reply, Step, absent, holds, required

_log = logging.getLogger("keystead.outbox")

Send: TypeAlias = Callable[[OutboxMessage], Awaitable[None]]
Said: TypeAlias = Literal["delivered", "failed", "given-up"]

MOST_IN_A_TURN: Final = 100  # then others have a turn
_RENEWALS: Final = 3  # in the time of a lease
_NO_DEADLINE: Final = -1  # as PTTL says it
_GIVEN_UP_TOGETHER: Final = 200
_LONGEST_ERROR: Final = 300


@dataclass
class Counts:
    """What was done with messages: each attempt counts once, and what was given up once more."""

    delivered: int = 0
    failed: int = 0
    given_up: int = 0


class Head(NamedTuple):
    """The first message of a queue as it is stored; None: there is none any more."""

    raw: bytes | None


class Lost(Exception):
    """The lease is another's by now, or the queue was dropped: there is nothing more to do, and nothing to write."""


class Deliverer:
    """What all turns of one process have in common."""

    def __init__(
        self,
        keys: OutboxKeys,
        marks: Marks,
        send: Send,
        policy: OutboxPolicy,
        by: str,
        wait: Callable[[float], Awaitable[Any]],
        on_outcome: Callable[[str, Said], None],
    ) -> None:
        self.keys = keys
        self.marks = marks
        self.store = keys.queue.store
        self.send = send
        self.policy = policy
        self.wait = wait
        self.on_outcome = on_outcome
        # The same in each turn of this process: it takes up again what it lost sight of when the store was away.
        self.lease: Final = keys.lease.family.codec.encode(QueueLease(by=by), "outbox:lease")

    def given_up(self, queue: QueueName, entry: GivenUp) -> list[Step]:
        """The steps that note what was given up."""
        steps: list[Step] = self.keys.given_up(*queue).append(entry).in_batch()
        return steps


class Turn:
    """One queue, from the moment that this process claims it until it is empty, fails, or had its share of the time.

    Each step is atomic and begins with the lease: whoever lost it changes nothing. A message is taken out after it was
    sent, so a crash in between repeats it.
    """

    def __init__(self, deliverer: Deliverer, mark: Mark, counts: Counts) -> None:
        self._all = deliverer
        self._queue = mark.queue
        self._mark: Mark | None = mark
        self._counts = counts
        keys, policy = deliverer.keys, deliverer.policy
        self._key = keys.queue(*mark.queue).key
        self._trouble_key = keys.trouble(*mark.queue).key
        self._lease_key = keys.lease(*mark.queue).key
        self._held = holds(self._lease_key, deliverer.lease)
        self._renewal: Command = ("PEXPIRE", self._lease_key, policy.lease_ms)
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
                head = await self._next(head.raw)
            if head is not None:
                await self._released()
        except Lost:
            return
        except asyncio.CancelledError:
            with suppress(StoreError, Lost):
                await self._released()
            raise

    async def _next(self, raw: bytes | None) -> Head | None:
        """See to the first message; then the next one, or None: the turn is over."""
        if raw is None:
            return await self._closed()
        message = self._message(raw)
        if message is None:
            await self._set_aside(raw)
            return await self._drop([raw], "unreadable", None, "it cannot be read")
        error = await self._attempt(message)
        if error is None:
            self._say("delivered")
            return await self._delivered(raw)
        self._say("failed")
        if isinstance(error, Undeliverable):
            return await self._drop([raw], "undeliverable", message, _sentence(error))
        return await self._failed(raw, message, error)

    async def _set_aside(self, raw: bytes) -> None:
        """Move what is no message into quarantine, from where `keystead doctor --restore` brings it back."""
        log_unreadable(self._all.store, Unreadable("an item is no message", self._key, raw))
        why_not = await set_entries_aside(self._all.store, self._key, "list", [raw], self._now_ms(), _NO_DEADLINE)
        if why_not:
            _log.error("%s: what stands in its queue is no message and is dropped: %s", self._queue, why_not)
        else:
            _log.error("%s: what stands in its queue is no message, and was set aside", self._queue)

    # --- sending ---------------------------------------------------------------------------------------------

    def _message(self, raw: bytes) -> OutboxMessage | None:
        stored = self._read(raw)
        if stored is None:
            return None
        tried = self._trouble.attempts if self._trouble is not None and self._trouble.id == stored.id else 0
        return OutboxMessage(*self._queue, stored.id, stored.created_ms, stored.payload, tried)

    def _read(self, raw: bytes) -> StoredMessage | None:
        try:
            return self._all.keys.queue.family.item.decode(raw, self._key)  # type: ignore[no-any-return]
        except Unreadable:
            return None

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
                if not await self._all.store.atomically([self._held, self._renewal]):
                    return

    # --- steps under the lease -------------------------------------------------------------------------------

    async def _claimed(self, again: bool) -> Head | None:
        """Take the lease of a queue that has messages; its first one. None: somebody else was faster."""
        marks, lease_ms = self._all.marks, self._all.policy.lease_ms
        claim: list[Step] = [
            self._held if again else required(("SET", self._lease_key, self._all.lease, "PX", lease_ms, "NX")),
            required(("EXISTS", self._key)),
            self._renewal,
            ("GET", self._trouble_key),
            ("LINDEX", self._key, 0),
        ]
        # Nobody else need look before the lease could be over.
        looked_at_ms = self._now_ms() + lease_ms
        if marks.in_one_step:
            claim.append(marks.set_to(self._queue, looked_at_ms))
        outcome = await self._all.store.atomically(claim)
        if not outcome:
            return None
        if not marks.in_one_step and self._mark is not None:
            self._mark = await marks.move(self._mark, looked_at_ms)
        self._trouble = self._read_trouble(outcome.replies[3])
        return Head(outcome.replies[4])

    def _read_trouble(self, raw: Reply) -> Trouble | None:
        try:
            found: Trouble | None = self._all.keys.trouble.family.value_of(raw, self._trouble_key, None)
        except Unreadable:
            return None  # it only tells how long to wait; `keystead doctor` says so
        return found

    async def _delivered(self, raw: bytes) -> Head:
        """Take out a message that was delivered. Of one that is gone already, because the queue was full, nothing."""
        self._trouble = None
        return await self._step(("LREM", self._key, 1, raw), ("DEL", self._trouble_key))

    async def _failed(self, raw: bytes, message: OutboxMessage, error: BaseException) -> Head | None:
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
        noted = self._all.keys.trouble(*self._queue).set(trouble).in_batch()
        too_old_ms = now_ms - policy.give_up_after_ms
        if trouble.since_ms <= too_old_ms and message.created_ms <= too_old_ms:
            # Where another message failed just before, it is the receiver that fails, and not this one message: then
            # not each of them need be tried once more.
            alone = before is None or before.id == message.id
            old = [raw] if alone else await self._older_than(too_old_ms)
            return await self._drop(old, "too old", message, trouble.error, *noted)
        await self._end(trouble.next_ms, *noted)
        return None

    async def _older_than(self, moment_ms: int) -> list[bytes]:
        """The first messages of the queue, as far as they were added before this."""
        [found] = await self._all.store.run([("LRANGE", self._key, 0, _GIVEN_UP_TOGETHER - 1)])
        old: list[bytes] = []
        for raw in found:
            stored = self._read(raw)
            if stored is not None and stored.created_ms > moment_ms:
                break
            old.append(raw)
        return old

    async def _drop(
        self, messages: list[bytes], why: Why, first: OutboxMessage | None, error: str, *more: Step
    ) -> Head:
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
        removals: Iterable[Step] = (("LREM", self._key, 1, raw) for raw in messages)
        head = await self._step(*removals, *self._all.given_up(self._queue, entry), *more)
        if why != "unreadable":
            _log.warning("%s: %d of its messages were given up, %s: %s", self._queue, len(messages), why, error)
        for _ in messages:
            self._say("given-up")
        return head

    async def _step(self, *changes: Step) -> Head:
        """Make changes as the holder of the lease, and renew it. The first message then. Raises Lost."""
        outcome = await self._all.store.atomically([self._held, *changes, self._renewal, ("LINDEX", self._key, 0)])
        if not outcome:
            raise Lost
        return Head(outcome.replies[-1])

    async def _closed(self) -> Head | None:
        """Give back the lease of an empty queue; where a message came just now, go on with that."""
        marks = self._all.marks
        last: list[Step] = [self._held, absent(self._key), ("DEL", self._lease_key, self._trouble_key)]
        if marks.in_one_step:
            last.append(marks.taken_out(self._queue))
        outcome = await self._all.store.atomically(last)
        if outcome:
            if not marks.in_one_step and self._mark is not None:
                await marks.found_empty(self._mark, self._key, self._now_ms())
            return None
        if outcome.stopped_at == 0:
            raise Lost
        return await self._step()

    async def _released(self) -> None:
        """Give back the lease of a queue that goes on: whoever looks next may have it."""
        await self._end(self._now_ms())

    async def _end(self, look_ms: int, *changes: Step) -> None:
        marks = self._all.marks
        looked_at = marks.set_to(self._queue, look_ms)
        in_step: list[Command] = [looked_at] if marks.in_one_step else []
        outcome: Outcome = await self._all.store.atomically([self._held, *changes, *in_step, ("DEL", self._lease_key)])
        if not outcome:
            raise Lost
        if not marks.in_one_step:
            await self._all.store.run([looked_at])

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
        return self._all.keys.now_ms()


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
