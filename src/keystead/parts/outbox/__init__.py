"""Transactional outbox: at-least-once delivery, even if the receiver is down or the process is killed."""

from typing import TYPE_CHECKING

from keystead.deprecation import forward_old_names
from keystead.parts.outbox.delivery import DeliveryCounts
from keystead.parts.outbox.message import DeliveryFailed, OutboxMessage, Undeliverable
from keystead.parts.outbox.outbox import Outbox, QueueNow
from keystead.parts.outbox.outbox_keys import GivenUp, OutboxKeys, QueueName, Trouble
from keystead.parts.outbox.retry_policy import OutboxPolicy

__all__ = [
    "DeliveryCounts",
    "DeliveryFailed",
    "GivenUp",
    "Outbox",
    "OutboxKeys",
    "OutboxMessage",
    "OutboxPolicy",
    "QueueName",
    "QueueNow",
    "Trouble",
    "Undeliverable",
]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = forward_old_names(__name__, {"Counts": "DeliveryCounts"})
