"""Errors that pass by themselves, which web frameworks answer with 503 and `Retry-After`."""

from __future__ import annotations

from typing import Final

from keystead.errors import CommandError, Contended, StoreError

RETRY_AFTER_S: Final = 1


def is_temporary(error: BaseException | None) -> bool:
    """Whether the same request may succeed in a moment: the store is away, or others changed the same data."""
    return isinstance(error, Contended) or (isinstance(error, StoreError) and not isinstance(error, CommandError))
