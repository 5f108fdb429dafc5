"""A store that counts the calls made to it, by the family of their first key."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from keystead.errors import StoreError, StoreUnavailable
from keystead.schema.belonging import Belonging, name_of
from keystead.schema.family import Bound
from keystead.stores import Call, Message, Outcome, Reply, Store
from keystead.stores.base import Planned

if TYPE_CHECKING:
    from keystead.server.metrics import Metrics

NO_FAMILY: Final = "(none)"


class Measured(Store):
    """Another store, with its calls counted. It is opened and closed with that one, and says what that one says."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self.url = store.url
        self.guarantees = store.guarantees
        self._store = store
        self._metrics = metrics
        self._families: Belonging | None = None

    def knows(self, bounds: Iterable[Bound[Any]]) -> None:
        """The families whose calls are to be told apart."""
        self._families = Belonging(self, bounds)

    async def open(self) -> None:
        await self._store.open()
        self.guarantees = self._store.guarantees

    async def close(self) -> None:
        await self._store.close()

    def _replies(self, calls: list[Call]) -> list[Reply] | Awaitable[list[Reply]]:
        began = time.perf_counter()
        answer = self._store._replies(calls)
        if isinstance(answer, list):
            self._note(calls, answer, began)
            return answer
        return self._awaited(calls, answer, began)

    async def _awaited(self, calls: list[Call], answer: Awaitable[list[Reply]], began: float) -> list[Reply]:
        try:
            replies = await answer
        except StoreError as error:
            self._note(calls, [error], began)
            raise
        self._note(calls, replies, began)
        return replies

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        began = time.perf_counter()
        calls = [step.call for step in steps]
        try:
            outcome = await self._store._atomically(steps)
        except StoreError as error:
            self._note(calls, [error], began)
            raise
        self._note(calls, (), began)
        return outcome

    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        return self._store._scan(pattern, kind, page)

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        return self._store._subscribe(channels)

    def _note(self, calls: Sequence[Call], replies: Sequence[Reply], began: float) -> None:
        outcome = "ok"
        for reply in replies:
            if isinstance(reply, StoreUnavailable):
                outcome = "unavailable"
                break
            if isinstance(reply, StoreError):
                outcome = "error"
        self._metrics.called(self._family_of(calls), outcome, time.perf_counter() - began)

    def _family_of(self, calls: Sequence[Call]) -> str:
        keys = calls[0].keys
        member = self._families.of(keys[0]) if keys and self._families is not None else None
        return NO_FAMILY if member is None else name_of(member.bound.family)
