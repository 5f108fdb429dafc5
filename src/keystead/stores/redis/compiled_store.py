"""A store that compiles atomic steps: the shapes that it has seen before run as a script of just their commands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from keystead.stores.near_reads import Dropping, dropping
from keystead.stores.redis.compiled_steps import CompiledCache, CompiledSteps, compile_steps, shape_of
from keystead.stores.store_contract import Outcome, Step, Store


class CompiledStore(Store):
    """`_near`: the near reads of the store, once there were some."""

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
        work = self._run_compiled(compiled, found[1], lambda: steps)
        return await (work if self._near is None else dropping(self._near, found[1], work))

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
            work = self._run_compiled(compiled, given, lambda: make(*given))
            return await (work if self._near is None else dropping(self._near, given, work))

        return run_steps

    @abstractmethod
    async def _run_compiled(
        self, compiled: CompiledSteps, arguments: Sequence[bytes], steps: Callable[[], Sequence[Step]]
    ) -> Outcome:
        """Run compiled steps. `steps` makes them again, for an error and for a retry."""
