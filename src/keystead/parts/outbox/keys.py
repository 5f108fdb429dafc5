"""The key document of the outbox."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue

from keystead.parts.outbox.policy import LONGEST_LEASE
from keystead.schema import Keyspace, List, Log, OmittedIfNone, SortedSet, Value, link, never, packed, sliding, until

Why: TypeAlias = Literal["too old", "undeliverable", "too many", "unreadable"]

_USED_BY = ("keystead serve",)
KEPT_GIVEN_UP = 20


class QueueName(NamedTuple):
    """One queue: what its messages are about, and whose they are."""

    topic: str
    name: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


class StoredMessage(BaseModel):
    """A message that waits."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    id: str
    """by which a receiver knows what it has seen already"""
    created_ms: int
    payload: dict[str, JsonValue]


class QueueLease(BaseModel):
    """Who delivers a queue now."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    by: str
    """the process"""


class Trouble(BaseModel):
    """A queue whose first message was not delivered yet, although it was tried."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    failures: int
    """how many attempts in a row have failed"""
    since_ms: int
    """when the first of them did"""
    next_ms: int
    """when it is tried again"""
    error: str
    """why the last one failed: the sentence of an error of Keystead, or else the name of the error's class"""
    id: str
    """of the message that was tried last"""
    attempts: int
    """how often that message was tried"""


class GivenUp(BaseModel):
    """Messages that are not tried any more."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    at_ms: int
    why: Why
    """`too many`: the queue was full; `unreadable`: it was no message"""
    count: int
    """how many messages, which went together"""
    id: OmittedIfNone[str] = None
    """of the first of them"""
    created_ms: OmittedIfNone[int] = None
    """when the first of them was added"""
    attempts: int = 0
    """how often the first of them was tried"""
    error: OmittedIfNone[str] = None
    """why the last attempt failed"""


class OutboxKeys(Keyspace):
    """The outbox: messages that are delivered once their receiver takes them, in order, and who delivers them now."""

    source = "Keystead's outbox"
    naming = "domain:entity:scope"

    queue = List(
        "outbox:queue:{topic:slug}:{name:token}",
        StoredMessage,
        lifetime=never("each message is taken out when it was delivered or given up"),
        # Whoever has delivered the last message still has the lease for a moment.
        owns=(link("lease", optional=True), "trouble"),
        tag="name",
        doc="The messages that wait, the oldest first. They are written in one step with what they tell of: in a "
        "cluster a queue lies in the slot of its `name`.",
        used_by=_USED_BY,
    )
    lease = Value(
        "outbox:lease:{topic:slug}:{name:token}",
        QueueLease,
        lifetime=until("lease_ends", at_most=LONGEST_LEASE),
        tag="name",
        doc="Who delivers a queue now. It is renewed while that works; only its holder takes messages out.",
        used_by=_USED_BY,
    )
    trouble = Value(
        "outbox:trouble:{topic:slug}:{name:token}",
        Trouble,
        lifetime=sliding("30d", touch_every="1d"),
        tag="name",
        doc="Since when a queue is not delivered, why, and when it is tried again. It goes with the next success.",
        used_by=_USED_BY,
    )
    given_up = Log(
        "outbox:given-up:{topic:slug}:{name:token}",
        GivenUp,
        keep=KEPT_GIVEN_UP,
        lifetime=sliding("30d", touch_every="1d"),
        tag="name",
        doc="Messages that were given up, for people who ask where they are.",
        used_by=_USED_BY,
    )
    waiting = SortedSet(
        "outbox:waiting",
        packed(QueueName, "{topic:slug}/{name:token}"),
        score="when to look at the queue, in ms; with half a millisecond, it was empty and is then taken out",
        lifetime=never("a queue is taken out when it is empty"),
        doc="The queues that may have messages. One that is empty is harmless, and taken out when it is met.",
        used_by=_USED_BY,
    )
