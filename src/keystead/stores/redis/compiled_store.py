"""What the stores of Redis's scripts share: compiled atomic steps, and copies of whole keys.

Steps of a shape that was seen before run as a script of just their commands.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from keystead.stores.near_reads import Dropping, dropping
from keystead.stores.redis.compiled_steps import CompiledCache, CompiledSteps, compile_steps, shape_of
from keystead.stores.redis.redis_full_copy import KEYS_AT_ONCE, WholeKeys, in_batches, sort_replies
from keystead.stores.store_contract import Outcome, Planned, Step, Store, WholeKey


class CompiledStore(Store):
    """
    _near         the near reads of the store, once there were some
    _copy_bytes   how many bytes a script takes that writes whole keys; None: any number
    """

    _copy_bytes: int | None = None

    def __init__(self) -> None:
        self._compiled = CompiledCache()
        self._near: Dropping | None = None

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        found = shape_of(steps)
        compiled = None if found is None else self._compiled.get(found[0])
        if found is None or compiled is None:
            return await super().atomically(steps)
        self._check_loop()
        if self._opened_in is None:
            await self._open_on_use()
        return await self._dropping(compiled, found[1], self._run_compiled(compiled, found[1], lambda: steps))

    def prepared(
        self, make: Callable[..., Sequence[Step]], arguments: int, numbers: Collection[int] = ()
    ) -> Callable[..., Coroutine[Any, Any, Outcome]]:
        compiled = compile_steps(make, arguments, numbers)
        if compiled is None:
            return super().prepared(make, arguments, numbers)

        async def run_steps(*given: bytes) -> Outcome:
            self._check_loop()
            if self._opened_in is None:
                await self._open_on_use()
            if not compiled.fits(given):
                return await self.atomically(make(*given))
            return await self._dropping(compiled, given, self._run_compiled(compiled, given, lambda: make(*given)))

        return run_steps

    def _dropping(
        self, compiled: CompiledSteps, arguments: Sequence[bytes], work: Coroutine[Any, Any, Outcome]
    ) -> Coroutine[Any, Any, Outcome]:
        """The work, which drops the copies of what it writes."""
        return work if self._near is None or compiled.reads_only else dropping(self._near, arguments, work)

    @abstractmethod
    async def _run_compiled(
        self, compiled: CompiledSteps, arguments: Sequence[bytes], steps: Callable[[], Sequence[Step]]
    ) -> Outcome:
        """Run compiled steps. `steps` makes them again, for an error and for a retry."""

    async def whole_keys(self, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]]:
        found: list[WholeKey] = []
        left: list[bytes] = []
        while keys:
            some = keys[:KEYS_AT_ONCE]
            replies = await self._run_copy_script(WholeKeys.read(some))
            sort_replies(some, replies, found, left)
            keys = keys[len(replies) :]
        return found, left

    async def add_whole_keys(self, keys: Sequence[WholeKey]) -> list[bool]:
        done: list[bool] = []
        for some in in_batches(keys, self._copy_bytes):
            work = self._run_copy_script(WholeKeys.add(some))
            replies = await (work if self._near is None else dropping(self._near, [key for key, *_ in some], work))
            done += map(bool, replies)
        return done

    @abstractmethod
    async def _run_copy_script(self, script: WholeKeys) -> list[Any]:
        """Run a script that reads or adds whole keys."""


def written_keys(steps: Sequence[Planned]) -> list[bytes]:
    return [key for step in steps if step.call.spec.writes for key in step.call.keys]
