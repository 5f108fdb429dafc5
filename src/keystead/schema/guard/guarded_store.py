"""A store that runs only what its write guard allows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, cast

from keystead.errors import CommandError
from keystead.schema.guard.write_guard import CheckedSteps, WriteGuard
from keystead.schema.slots import one_step
from keystead.stores import Call, Message, Outcome, Reply, Store
from keystead.stores.changed_keys import ChangedKeys
from keystead.stores.store_contract import Planned, Step

_TOGETHER: Final = 128  # commands in one step, which others wait for
_NOT_ATOMIC: Final = frozenset(("SCAN", "DBSIZE"))


class GuardedStore(Store):
    """Wraps an open store, for clients that know nothing of the schema. Refused writes raise WriteRefused.

    A write that needs a check of the store's state becomes an atomic step. A batch with such writes is tried as one
    step; if one of them is refused or fails, each runs by itself, in its own round trip.
    """

    def __init__(self, store: Store, guard: WriteGuard) -> None:
        self.url = store.url
        self.guarantees = store.guarantees
        self.guard = guard
        self._store = store

    async def open(self) -> None:
        await self._store.open()
        self.guarantees = self._store.guarantees

    async def close(self) -> None:
        await self._store.close()

    def _replies(self, calls: list[Call]) -> list[Reply] | Awaitable[list[Reply]]:
        checked = [self._check(call) if call.spec.writes else None for call in calls]
        if any(checked):
            return self._run(calls, checked)
        return self._store._replies(calls)

    def _check(self, call: Call) -> CheckedSteps | CommandError | None:
        try:
            return self.guard.check_call(call)
        except CommandError as error:
            return error

    async def _run(self, calls: list[Call], checked: list[CheckedSteps | CommandError | None]) -> list[Reply]:
        """Run the commands in order: all in one step if that is possible and all are right; else one by one."""
        together = await self._run_together(calls, checked)
        if together is not None:
            return [one if isinstance(one, CommandError) else next(together) for one in checked]
        return await self._run_in_turn(calls, checked)

    async def _run_together(
        self, calls: list[Call], checked: list[CheckedSteps | CommandError | None]
    ) -> Iterator[Reply] | None:
        """The replies of those that are not refused, from one atomic step. None: nothing ran."""
        valid = [(call, one) for call, one in zip(calls, checked, strict=True) if not isinstance(one, CommandError)]
        keys = {key for call, _ in valid for key in call.keys}
        names = {call.spec.name for call, _ in valid}
        if not 1 < len(valid) <= _TOGETHER or not _NOT_ATOMIC.isdisjoint(names):
            return None
        if not one_step(self._store, *(key.decode("utf-8", "replace") for key in keys)):
            return None
        batch = CheckedSteps()
        existing: set[bytes] = set()  # keys that are known to exist at this point of the batch
        for call, one in valid:
            if one is None or one.grows in existing:
                batch.extend(CheckedSteps([cast("Step", call)], [0]))
            else:
                batch.extend(one)
            if one is not None and one.grows is not None:
                existing.add(one.grows)
            elif call.spec.writes:
                existing.difference_update(call.keys)
        try:
            outcome = await batch.run_on(self._store)
        except CommandError:
            return None
        if not outcome:
            return None
        self.guard.note(batch, outcome.replies)
        return iter([outcome.replies[place] for place in batch.places])

    async def _run_in_turn(self, calls: list[Call], checked: list[CheckedSteps | CommandError | None]) -> list[Reply]:
        """Those that pass unchanged run in one round trip with their neighbours."""
        replies: list[Reply] = []
        waiting: list[Call] = []
        for call, one in zip(calls, checked, strict=True):
            if one is None:
                waiting.append(call)
                continue
            replies += await self._run_waiting(waiting)
            replies.append(one if isinstance(one, CommandError) else await self._run_checked(call, one))
        return [*replies, *await self._run_waiting(waiting)]

    async def _run_waiting(self, waiting: list[Call]) -> list[Reply]:
        replies = await self._store._await_replies(waiting) if waiting else []
        waiting.clear()
        return replies

    async def _run_checked(self, call: Call, checked: CheckedSteps) -> Reply:
        try:
            return (await self._finish(checked)).replies[0]
        except CommandError as error:
            return call.blame(error)

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        checked = self.guard.check(steps)
        return await self._store._atomically(steps) if checked is None else await self._finish(checked)

    async def _finish(self, checked: CheckedSteps) -> Outcome:
        """Run checked steps; the outcome is that of the steps that were given. Raises WriteRefused."""
        outcome = await checked.run_on(self._store)
        if outcome.stopped_at is not None:
            refused = self.guard.refusal(checked, outcome.stopped_at)
            if refused is not None:
                raise refused
        self.guard.note(checked, outcome.replies)
        replies = [outcome.replies[place] for place in checked.places if place < len(outcome.replies)]
        stopped_at = None if outcome.stopped_at is None else checked.places.index(outcome.stopped_at)
        return Outcome(replies, stopped_at)

    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        return self._store._scan(pattern, kind, page)

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        return self._store._subscribe(channels)

    def changed_keys(
        self, prefixes: Sequence[bytes] = (b"",)
    ) -> AbstractAsyncContextManager[AsyncIterator[ChangedKeys]] | None:
        return self._store.changed_keys(prefixes)

    def version(self) -> object:
        return self._store.version()
