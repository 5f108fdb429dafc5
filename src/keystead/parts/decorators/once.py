"""`@once`: idempotent handlers. The same key gives the same stored result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from keystead.errors import BadDeclaration, BadValue, KeysteadError
from keystead.parts.companions import beside, tag_of
from keystead.parts.decorators.call_keys import CallKeys
from keystead.parts.decorators.lock_block import this_process
from keystead.parts.lock import HeldBy, Hold, Lock, Locked, LockHeld, LockLost
from keystead.schema import Bound, Lifetime, Value
from keystead.schema.kinds import ValueKey
from keystead.schema.store_fit import misfits_beside
from keystead.stores import Guarantees
from keystead.stores.synchronous import enter, wait

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class OnceResult(BaseModel, Generic[T]):
    """The result of a call, as it is stored: None is a result, too."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    result: T
    """what the function returned"""


class Once(Value[OnceResult[T]]):
    """The results of calls that must not happen twice, for `@once`:

        receipt = Once("payment:{id}", Receipt, lifetime=after("7d"))

    Its keyspace also gets `receipt_lease`, the lock of a call that is running, and its fencing tokens.

    lifetime   how long a result is kept: a later call with the same key runs again
    lease      how long a call that died keeps others from running. A running call refreshes it
    tag        the hash tag in a cluster; by default the first placeholder
    """

    def __init__(
        self,
        pattern: str,
        type_: type[T],
        *,
        lifetime: Lifetime,
        lease: str | timedelta = "1m",
        role: str = "default",
        tag: str | None = None,
        member_of: str | None = None,
        doc: str = "",
        used_by: Sequence[str] = (),
        naming_exempt: str | None = None,
    ) -> None:
        shared: Any = {"role": role, "tag": tag or tag_of(pattern), "member_of": member_of, "used_by": used_by}
        if naming_exempt is not None:
            shared["naming_exempt"] = naming_exempt
        stored: Any = OnceResult.__class_getitem__(type_)
        super().__init__(pattern, stored, lifetime=lifetime, doc=doc, **shared)
        self.companions["lease"] = Locked(
            beside(pattern, "lease"), lease=lease, doc="The process that runs this call.", **shared
        )

    def further_misfits(self, guarantees: Guarantees) -> Iterator[str]:
        yield from misfits_beside(self.pattern, guarantees)


class AlreadyRunning(KeysteadError):
    """Another caller runs this call, and has not finished within `wait`. `held` says who, since when."""

    code = "already-running"

    def __init__(self, place: str, held: HeldBy) -> None:
        super().__init__(f"{place}: {held.by} is running this call; repeat it later to get its result")
        self.held = held


def once(
    family: Bound[ValueKey[OnceResult[Any]]],
    *,
    key: Callable[..., Any] | None = None,
    wait: str | timedelta | None = "30s",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run a function, synchronous or asynchronous, once for each key; later calls get the stored result:

        @once(keys.receipt)                     # receipt = Once("payment:{id}", Receipt, lifetime=after("7d"))
        def charge(id: str, amount: int) -> Receipt: ...

    key    the key of a call, from some of its parameters: `key=lambda event: event.id`. By default the parameters have
           the names of the placeholders; other parameters do not matter
    wait   how long a second caller waits for the first. Then AlreadyRunning is raised; None: at once

    An exception is not stored: the next call runs again. If the process dies, the next call runs when the lease is
    over, so what the function did before may be done twice: at least once, and one at a time. If the lease is lost
    while the function runs, LockLost is raised and nothing is stored. A stored result is one round trip.
    """
    if not isinstance(getattr(family, "family", None), Once):
        raise BadDeclaration('@once takes a family Once, as in receipt = Once("payment:{id}", Receipt, lifetime=…)')

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        keys = CallKeys(family.family.place, family.family.pattern.names, function, key)
        calls = _Calls(family, wait)
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await calls.run_async(keys.values(args, kwargs), lambda: function(*args, **kwargs))

            return cast("Callable[P, R]", call_async)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return calls.run(keys.values(args, kwargs), lambda: function(*args, **kwargs))

        return call

    return decorate


class _Calls:
    """The calls of one function: their results and their leases."""

    def __init__(self, results: Bound[ValueKey[OnceResult[Any]]], patience: str | timedelta | None) -> None:
        self._results = results
        self._leases = cast("Bound[ValueKey[Any]]", results.companion("lease"))
        self._patience = patience

    async def run_async(self, values: dict[str, Any], function: Callable[[], Any]) -> Any:
        key = self._results(**values)
        found = await key.get()
        if found is not None:
            return found.result
        async with AsyncExitStack() as stack:
            try:
                hold = await stack.enter_async_context(self._holding(values))
            except LockHeld as error:
                raise AlreadyRunning(self._results.family.place, error.held) from None
            found = await key.get()  # another caller may have finished just before
            if found is not None:
                return found.result
            result = await function()
            return await self._keep(key, hold, result)

    def run(self, values: dict[str, Any], function: Callable[[], Any]) -> Any:
        key = self._results(**values)
        found = wait(key.get())
        if found is not None:
            return found.result
        with ExitStack() as stack:
            try:
                hold = stack.enter_context(enter(self._holding(values)))
            except LockHeld as error:
                raise AlreadyRunning(self._results.family.place, error.held) from None
            found = wait(key.get())  # another caller may have finished just before
            if found is not None:
                return found.result
            result = function()
            return wait(self._keep(key, hold, result))

    def _holding(self, values: dict[str, Any]) -> Any:
        return Lock(self._leases(**values)).holding(this_process(), wait=self._patience)

    async def _keep(self, key: ValueKey[OnceResult[Any]], hold: Hold, result: Any) -> Any:
        """Store the result, unless the lease was lost: then another caller may have run it. Returns it as stored, so
        that the first caller gets what later ones get."""
        try:
            made: OnceResult[Any] = self._results.family.codec.type(result=result)
        except ValidationError:  # its text would show the result
            raise BadValue(
                f"{self._results.family.place}: the function returned a {type(result).__name__}, which does not fit; "
                "nothing was stored, so the next call runs it again"
            ) from None
        if not await self._results.keyspace.atomically(hold.guard(), key.set(made)):
            raise LockLost(hold.by)
        return made.result
