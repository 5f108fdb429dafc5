"""The progress of a backup, a restore or a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias


class TransferProgress(NamedTuple):
    """`done` keys of about `total`; None: unknown."""

    phase: Literal["saving", "checking", "restoring", "copying", "comparing"]
    done: int
    total: int | None = None


OnProgress: TypeAlias = Callable[[TransferProgress], None]


def ignore(_: TransferProgress) -> None:
    """For callers that need no progress."""
