"""A message as whoever sends it is given it, and how a sender says that it was not delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keystead.errors import KeysteadError


@dataclass(frozen=True)
class OutboxMessage:
    """One message, to be sent.

    topic, name   the queue that it stands in
    id            the same at each attempt, and of no other message: by it a receiver knows what it has seen already
    created_ms    when it was added
    payload       what was added
    attempts      how often it was tried before, in vain
    """

    topic: str
    name: str
    id: str
    created_ms: int
    payload: dict[str, Any]
    attempts: int = 0


class DeliveryFailed(KeysteadError):
    """A message was not delivered, and is tried again later: not before `retry_after_ms` where the receiver asks so.

    A sender may raise whatever it likes, and each error means this. The sentence of this one is kept and shown; of an
    error that is not Keystead's only the name of its class is, because its text may hold a secret.
    """

    code = "delivery-failed"

    def __init__(self, sentence: str, retry_after_ms: int | None = None) -> None:
        super().__init__(sentence)
        self.retry_after_ms = retry_after_ms


class Undeliverable(KeysteadError):
    """A message can never be delivered, so it is given up at once: its receiver says that it is gone for good."""

    code = "undeliverable"
