"""Store metrics: calls are counted by the family of their first key."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from keystead.errors import StoreError, StoreUnavailable
from keystead.schema.family import Bound
from keystead.schema.family_lookup import Belonging, name_of
from keystead.server.logs import log_slow_call
from keystead.stores import Call, Command, Message, Outcome, Reply, Store
from keystead.stores.changed_keys import ChangedKeys
from keystead.stores.near_reads import NearReads
from keystead.stores.store_contract import PROCEDURE, Planned, Step, keys_of

if TYPE_CHECKING:
    from keystead.server.metrics import Metrics

NO_FAMILY: Final = "(none)"


class MeteredStore(Store):
    """Wraps a store and counts its calls. Replies and errors pass unchanged."""

    def __init__(self, store: Store, metrics: Metrics, slow_s: float = math.inf) -> None:
        self.url = store.url
        self.guarantees = store.guarantees
        self._store = store
        self._metrics = metrics
        self._slow_s = slow_s  # a call that takes this long is logged
        self._families: Belonging | None = None
        self._near: NearReads | None = None  # once there was a near read

    def set_families(self, bounds: Iterable[Bound[Any]]) -> None:
        """The families that metrics distinguish."""
        self._families = Belonging(self, bounds)

    def add_families(self, bounds: Iterable[Bound[Any]]) -> None:
        """Further families that metrics distinguish. A key that fits several belongs to the one that came first."""
        known = [] if self._families is None else self._families.bounds
        families = {bound.family for bound in known}
        self.set_families([*known, *(bound for bound in bounds if bound.family not in families)])

    async def open(self) -> None:
        await self._store.open()
        self.guarantees = self._store.guarantees

    async def close(self) -> None:
        await self._store.close()

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        began = time.perf_counter()
        try:
            replies = await self._store.run(commands)
        except StoreError as error:
            self._record(_first_key_in(commands), _outcome_of(error.replies or [error]), began)
            raise
        self._record(_first_key_in(commands), "ok", began)
        return replies

    def _replies(self, calls: list[Call]) -> list[Reply] | Awaitable[list[Reply]]:
        return self._store._replies(calls)

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        began = time.perf_counter()
        try:
            outcome = await self._store.atomically(steps)
        except StoreError as error:
            self._record(_first_key_in(steps), _outcome_of([error]), began)
            raise
        self._record(_first_key_in(steps), "ok", began)
        return outcome

    def _atomically(self, steps: list[Planned]) -> Coroutine[Any, Any, Outcome]:
        return self._store._atomically(steps)

    def prepared(
        self, make: Callable[..., Sequence[Step]], arguments: int, numbers: Collection[int] = ()
    ) -> Callable[..., Coroutine[Any, Any, Outcome]]:
        run = self._store.prepared(make, arguments, numbers)
        places = [b"%d" % number if number in numbers else b"argument %d" % number for number in range(arguments)]
        first = _first_key_in(make(*places))
        place = places.index(first) if first in places else None
        known = ""  # the family, which is the same for all calls

        async def run_metered(*given: bytes) -> Outcome:
            nonlocal known
            family = known or self._family_of(first if place is None else given[place])
            if family != NO_FAMILY:  # a call may come before `set_families`
                known = family
            began = time.perf_counter()
            try:
                outcome = await run(*given)
            except StoreError as error:
                self._record_call(family, _outcome_of([error]), began)
                raise
            self._record_call(family, "ok", began)
            return outcome

        return run_metered

    @property
    def near(self) -> NearReads | None:
        self._near = self._store.near
        return self._near

    def changed_keys(
        self, prefixes: Sequence[bytes] = (b"",)
    ) -> AbstractAsyncContextManager[AsyncIterator[ChangedKeys]] | None:
        return self._store.changed_keys(prefixes)

    def version(self) -> object:
        return self._store.version()

    @property
    def runs_are_isolated(self) -> bool:
        return self._store.runs_are_isolated

    @property
    def takes_foreign(self) -> bool:
        return self._store.takes_foreign

    async def run_foreign(self, commands: Sequence[Sequence[str | bytes]], *, atomic: bool = False) -> list[Reply]:
        return await self._store.run_foreign(commands, atomic=atomic)

    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        return self._store._scan(pattern, kind, page)

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        return self._store._subscribe(channels)

    def _record(self, key: bytes | None, outcome: str, began: float) -> None:
        self._record_call(self._family_of(key), outcome, began)

    def _family_of(self, key: bytes | None) -> str:
        bound = None if key is None or self._families is None else self._families.bound_of(key)
        return NO_FAMILY if bound is None else name_of(bound.family)

    def _record_call(self, family: str, outcome: str, began: float) -> None:
        took_s = time.perf_counter() - began
        procedure = PROCEDURE.get()
        self._metrics.count_call(family, procedure, outcome, took_s)
        if self._near is not None:
            self._metrics.count_near(self._near)
        if took_s >= self._slow_s:
            log_slow_call(family, procedure, outcome, took_s)


def _outcome_of(replies: Sequence[Reply]) -> str:
    outcome = "ok"
    for reply in replies:
        if isinstance(reply, StoreUnavailable):
            return "unavailable"
        if isinstance(reply, StoreError):
            outcome = "error"
    return outcome


def _first_key_in(steps: Sequence[Step]) -> bytes | None:
    """The key of the first step that names one."""
    key = next((key for step in steps for key in keys_of(step)), None)
    return key.encode(errors="replace") if isinstance(key, str) else key
