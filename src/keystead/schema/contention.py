"""Optimistic locking: retry an update when another caller changed the data in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from keystead.errors import Contended

ATTEMPTS: Final = 64
_FIRST_S: Final = 0.0005
_LONGEST_S: Final = 0.128


class attempts:  # noqa: N801 - it is used as a function is
    """Retry an optimistic update, with back-off and jitter: `async for _ in attempts("the team"):`.

        async for _ in attempts("the cart"):
            seen = await keys.cart(7).see()
            if await keys.pay(seen, ...):
                return

    Leave the loop when the update has worked. Each further attempt waits longer, for a random time, so that callers
    spread out and one of them wins. Raises Contended after the last attempt. `what` appears in its message, so it must
    not be a secret. `wait` is for tests.
    """

    __slots__ = ("_most", "_number", "_wait", "_what")

    def __init__(
        self, what: str, *, most: int = ATTEMPTS, wait: Callable[[float], Awaitable[Any]] = asyncio.sleep
    ) -> None:
        self._what = what
        self._most = most
        self._wait = wait
        self._number = 0

    def __aiter__(self) -> attempts:
        return self

    async def __anext__(self) -> int:
        number = self._number
        if number >= self._most:
            raise Contended(f"{self._what} was changed by other callers {self._most} times in a row; try again")
        if number:
            longest = min(_FIRST_S * 2**number, _LONGEST_S)
            await self._wait(random.random() * longest)  # noqa: S311 - spreads callers apart
        self._number = number + 1
        return number
