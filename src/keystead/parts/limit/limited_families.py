"""The families that rate limits of this process count in, so that operators can reset them."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from keystead.schema.family import Bound, Family

_LIMITED: Final[WeakSet[Family[Any]]] = WeakSet()


def remember_limited(bound: Bound[Any]) -> None:
    """A rate limit counts in this family."""
    _LIMITED.add(bound.family)


def is_limited(bound: Bound[Any]) -> bool:
    """Whether a rate limit of this process counts in this family: to delete a key resets it for one client."""
    return bound.family in _LIMITED
