"""The key document of the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue

from keystead.parts.outbox.retry_policy import LONGEST_LEASE
from keystead.schema import (
    Keyspace,
    List,
    Log,
    OmittedIfNone,
    Operation,
    SortedSet,
    Steps,
    Value,
    link,
    never,
    packed,
    procedure,
    sliding,
    until,
)
from keystead.schema.kinds.value import Seen

Why: TypeAlias = Literal["too old", "undeliverable", "too many", "unreadable"]

_USED_BY = ("keystead serve",)
KEPT_GIVEN_UP = 20
KEPT_DEAD: Final = 200
LOST: Final = "the lease is lost"
MARKED_AGAIN: Final = "it was marked again"


class QueueName(NamedTuple):
    """One queue: the topic of its messages, and their owner."""

    topic: str
    name: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


class StoredMessage(BaseModel):
    """A message that waits."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    id: str
    """unique; the receiver can use it for idempotency"""
    created_ms: int
    payload: dict[str, JsonValue]


# A message as it was read; its value is None if it is unreadable.
SeenMessage: TypeAlias = Seen[StoredMessage | None]


class QueueLease(BaseModel):
    """The lease on a queue."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    by: str
    """the process"""


class Trouble(BaseModel):
    """The state of a queue whose delivery fails."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    failures: int
    """how many attempts in a row have failed"""
    since_ms: int
    """when the first of them did"""
    next_ms: int
    """when it is tried again"""
    error: str
    """why the last one failed: the message of a Keystead error, otherwise the name of the exception class"""
    id: str
    """of the message that was tried last"""
    attempts: int
    """how often that message was tried"""


class GivenUp(BaseModel):
    """Messages that were given up (dead letters)."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    at_ms: int
    why: Why
    """`too many`: the queue was full; `unreadable`: it was not a message"""
    count: int
    """how many messages were given up together"""
    id: OmittedIfNone[str] = None
    """of the first of them"""
    created_ms: OmittedIfNone[int] = None
    """when the first of them was added"""
    attempts: int = 0
    """how often the first of them was tried"""
    error: OmittedIfNone[str] = None
    """why the last attempt failed"""


class OutboxKeys(Keyspace):
    """The transactional outbox: messages for at-least-once delivery, in order, and the leases of who delivers them."""

    source = "Keystead's outbox"
    naming = "domain:entity:scope"

    queue = List(
        "outbox:queue:{topic:slug}:{name:token}",
        StoredMessage,
        lifetime=never("each message is removed when it was delivered or given up"),
        # After the last message its process still has the lease for a moment.
        owns=(link("lease", optional=True), "trouble"),
        tag="name",
        doc="The waiting messages, oldest first. They are written in one step with the change they report: in a "
        "cluster a queue is in the slot of its `name`.",
        used_by=_USED_BY,
    )
    lease = Value(
        "outbox:lease:{topic:slug}:{name:token}",
        QueueLease,
        lifetime=until("lease_ends", at_most=LONGEST_LEASE),
        tag="name",
        doc="The lease of the process that delivers a queue. Only its holder, who renews it, removes messages.",
        used_by=_USED_BY,
    )
    trouble = Value(
        "outbox:trouble:{topic:slug}:{name:token}",
        Trouble,
        lifetime=sliding("30d", touch_every="1d"),
        tag="name",
        doc="Since when the delivery of a queue fails, why, and when it is retried. Deleted by the next success.",
        used_by=_USED_BY,
    )
    given_up = Log(
        "outbox:given-up:{topic:slug}:{name:token}",
        GivenUp,
        keep=KEPT_GIVEN_UP,
        lifetime=sliding("30d", touch_every="1d"),
        tag="name",
        doc="Dead letters: when and why messages were given up.",
        used_by=_USED_BY,
    )
    dead = List(
        "outbox:dead:{topic:slug}:{name:token}",
        StoredMessage,
        keep=KEPT_DEAD,
        lifetime=sliding("30d", touch_every="1d"),
        tag="name",
        doc="The messages that were given up, oldest first, so that an operator can send them again.",
        used_by=("/console/queues",),
    )
    waiting = SortedSet(
        "outbox:waiting",
        packed(QueueName, "{topic:slug}/{name:token}"),
        score="when to poll the queue, in ms; with half a millisecond, it was empty and is then removed",
        lifetime=never("a queue is removed when it is empty"),
        doc="The queues that may have messages. An empty one is harmless, and removed at the next poll.",
        used_by=_USED_BY,
    )

    @procedure(ordered="a process that polls before the mark was moved finds the lease, and moves the mark")
    def claim(
        self, topic: str, name: str, lease: QueueLease, lease_ms: int, look_ms: int, again: bool
    ) -> Steps[tuple[Trouble | None, list[SeenMessage]]]:
        """Take the lease of a queue with messages, or keep it (`again`). Other processes poll again at `look_ms`."""
        own = self.lease(topic, name).lasting(lease_ms)
        trouble, first = self.trouble(topic, name).get().if_readable(), self.queue(topic, name).see(0, 0)
        return Steps(
            own.holds(lease).otherwise(LOST) if again else own.add(lease).otherwise("another process has the lease"),
            self.queue(topic, name).exists().otherwise("nothing waits"),
            own.touch(),
            trouble,
            first,
            self.waiting().put({QueueName(topic, name): look_ms}),
        ).giving(trouble, first)

    @procedure
    def renew(self, topic: str, name: str, lease: QueueLease, lease_ms: int) -> Steps[None]:
        """Keep the lease while a message is being sent."""
        own = self.lease(topic, name)
        return Steps(own.holds(lease).otherwise(LOST), own.lasting(lease_ms).touch())

    @procedure
    def take_out(
        self,
        topic: str,
        name: str,
        lease: QueueLease,
        lease_ms: int,
        messages: Sequence[SeenMessage],
        trouble: Trouble | None,
        given_up: GivenUp | None,
    ) -> Steps[list[SeenMessage]]:
        """Remove messages that were delivered or given up, and continue; gives the first that is left.

        A message that is already gone, because the queue was full, is not an error.
        """
        queue, own, troubles = self.queue(topic, name), self.lease(topic, name), self.trouble(topic, name)
        first = queue.see(0, 0)
        return Steps(
            own.holds(lease).otherwise(LOST),
            *(queue.remove(one, 1) for one in messages),
            troubles.delete() if trouble is None else troubles.set(trouble),
            *([] if given_up is None else self._bury(topic, name, messages, given_up)),
            own.lasting(lease_ms).touch(),
            first,
        ).giving(first)

    @procedure(ordered="the mark says when the lease would expire; then a process polls the queue")
    def give_back(self, topic: str, name: str, lease: QueueLease, look_ms: int, trouble: Trouble | None) -> Steps[None]:
        """Release the lease of a queue with messages, which is polled again at `look_ms`."""
        return Steps(
            self.lease(topic, name).holds(lease).otherwise(LOST),
            *([] if trouble is None else [self.trouble(topic, name).set(trouble)]),
            self.lease(topic, name).delete(),
            self.waiting().put({QueueName(topic, name): look_ms}),
        )

    @procedure(ordered="the mark of an empty queue is harmless, and removed at the next poll")
    def close(
        self, topic: str, name: str, lease: QueueLease, seen_at: float, lingers_until: float | None
    ) -> Steps[None]:
        """Release the lease of an empty queue. Its mark is removed, or lingers if it is unchanged since it was read."""
        queue, waiting = QueueName(topic, name), self.waiting()
        marks: list[Operation[Any]]
        if lingers_until is None:
            marks = [waiting.remove(queue)]
        else:
            marks = [waiting.score_is(queue, seen_at).otherwise(MARKED_AGAIN), waiting.move(queue, lingers_until)]
        return Steps(
            self.lease(topic, name).holds(lease).otherwise(LOST),
            self.queue(topic, name).absent().otherwise("a message came"),
            self.lease(topic, name).delete(),
            self.trouble(topic, name).delete(),
            *marks,
        )

    @procedure
    def cut(self, topic: str, name: str, messages: Sequence[SeenMessage], given_up: GivenUp) -> Steps[None]:
        """Give up messages of a full queue. Of several processes that read the same, one removes them."""
        return Steps(
            *(self.queue(topic, name).remove(one, 1).otherwise("another process removed it") for one in messages),
            *self._bury(topic, name, messages, given_up),
        )

    @procedure
    def revive(self, topic: str, name: str, messages: Sequence[SeenMessage]) -> Steps[None]:
        """Add dead letters to the end of their queue, and delete the records of why they were given up."""
        return Steps(
            *(self.dead(topic, name).remove(one, 1).otherwise("another process took it") for one in messages),
            self.queue(topic, name).append(*(one.value for one in messages if one.value is not None)),
            self.given_up(topic, name).delete(),
        )

    def _bury(self, topic: str, name: str, messages: Sequence[SeenMessage], given_up: GivenUp) -> list[Operation[Any]]:
        """Record messages that were given up, and keep those that can be sent again."""
        readable = [one.value for one in messages if one.value is not None]
        record: Operation[Any] = self.given_up(topic, name).append(given_up)
        return [record, *([self.dead(topic, name).append(*readable)] if readable else [])]

    @procedure
    def move_mark(self, topic: str, name: str, seen_at: float, at_ms: float) -> Steps[None]:
        """Move a mark to another time, if it is unchanged since it was read."""
        queue = QueueName(topic, name)
        return Steps(self.waiting().score_is(queue, seen_at).otherwise(MARKED_AGAIN), self.waiting().move(queue, at_ms))

    @procedure(ordered="the mark of an empty queue is harmless, and removed at the next poll")
    def take_mark_out(self, topic: str, name: str, seen_at: float) -> Steps[None]:
        """Remove the mark of an empty queue, if it is unchanged since it was read."""
        queue = QueueName(topic, name)
        return Steps(
            self.queue(topic, name).absent().otherwise("a message came"),
            self.waiting().score_is(queue, seen_at).otherwise(MARKED_AGAIN),
            self.waiting().remove(queue),
        )
