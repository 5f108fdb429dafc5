"""Outbox messages, and the errors that a sender raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keystead.errors import KeysteadError


@dataclass(frozen=True)
class OutboxMessage:
    """One message, to be sent.

    topic, name   its queue
    id            unique, and the same for each attempt: the receiver can use it for idempotency
    created_ms    when it was added
    payload       the JSON object that was added
    attempts      the number of failed attempts so far
    """

    topic: str
    name: str
    id: str
    created_ms: int
    payload: dict[str, Any]
    attempts: int = 0


class DeliveryFailed(KeysteadError):
    """A message was not delivered, and is retried: not before `retry_after_ms`, if the receiver sets it.

    Any error that a sender raises means this. The message of this error is recorded and shown; of an error that is not
    Keystead's only the class name is, because its text may contain a secret.
    """

    code = "delivery-failed"

    def __init__(self, sentence: str, retry_after_ms: int | None = None) -> None:
        super().__init__(sentence)
        self.retry_after_ms = retry_after_ms


class Undeliverable(KeysteadError):
    """A message can never be delivered, for example because its receiver is gone: it is given up without a retry."""

    code = "undeliverable"
