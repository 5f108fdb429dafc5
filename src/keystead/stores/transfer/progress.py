"""How far a backup, a restore or a copy is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias


class Progress(NamedTuple):
    """`done` keys of about `total`, which is None where it is not known."""

    phase: Literal["saving", "checking", "restoring", "copying", "comparing"]
    done: int
    total: int | None = None


OnProgress: TypeAlias = Callable[[Progress], None]


def ignore(_: Progress) -> None:
    """For callers that do not want to know."""
