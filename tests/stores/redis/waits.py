"""Waiting on conditions, and on a store that comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from keystead.errors import StoreUnavailable
from tests.stopwatch import Stopwatch

LOOK_EVERY_S = 0.005


async def until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> float:
    """Wait until the condition holds and return how long that took; fails the test when the time is over."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            pytest.fail(f"waited {seconds:g} seconds in vain until {what}")
        await asyncio.sleep(LOOK_EVERY_S)
    return time.monotonic() - began


async def works_again(call: Callable[[], Awaitable[Any]], seconds: float = 5.0) -> float:
    """Call until there is no StoreUnavailable, and return how long that took. Any other error is raised."""
    watch = Stopwatch()
    while True:
        try:
            await call()
            return watch.seconds
        except StoreUnavailable as error:
            if watch.seconds > seconds:
                pytest.fail(f"it did not work again within {seconds:g} seconds: {error}")
        await asyncio.sleep(LOOK_EVERY_S)


@contextmanager
def takes_at_most(seconds: float) -> Iterator[None]:
    watch = Stopwatch()
    yield
    took = watch.seconds
    assert took <= seconds, f"it took {took:.3f} s instead of at most {seconds:g} s"
