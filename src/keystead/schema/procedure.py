"""Procedures: several operations with guards, declared once and called by name. See docs/procedures.md."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast, overload

from keystead.errors import BadArgument, BadDeclaration, CrossSlot, KeysteadError, Unreadable
from keystead.schema.compiled_procedure import CompiledProcedure, compile_procedure
from keystead.schema.operation import Guarded, Operation
from keystead.schema.operation_batch import Done, finish_batch, stopped_batch
from keystead.schema.slots import slots_of
from keystead.schema.steps import Steps
from keystead.schema.unreadable import log_unreadable
from keystead.stores import Store
from keystead.stores.store_contract import PROCEDURE

_log = logging.getLogger("keystead.schema")

O = TypeVar("O")  # noqa: E741 - the owner: a keyspace, or a part that is given families
P = ParamSpec("P")
R = TypeVar("R")

_CALLED_ONCE: Any = object()


class Procedure(Generic[O, P, R]):
    """A declared procedure. Accessed on an instance, it is a function to be awaited."""

    def __init__(self, function: Callable[Concatenate[O, P], Steps[R]], ordered: str | None) -> None:
        self.function: Final = function
        self.ordered: Final = ordered
        self.name = function.__name__
        self.place = function.__qualname__
        self.__doc__ = function.__doc__
        self._call = self._make_call()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.place = name, f"{owner.__name__}.{name}"
        self._call = self._make_call()

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: O, owner: type) -> Callable[P, Coroutine[Any, Any, Done[R]]]: ...
    def __get__(self, instance: O | None, owner: type) -> Any:
        # Not cached on the instance: the reference cycle would leave it to the garbage collector.
        return self if instance is None else MethodType(self._call, instance)

    def __call__(self, *args: Any, **values: Any) -> Any:
        raise BadArgument(f"{self.place} is a declaration; bind its keyspace first: keys = Keys(store)")

    def _make_call(self) -> Callable[Concatenate[O, P], Coroutine[Any, Any, Done[R]]]:
        function, place = self.function, self.place

        async def call(instance: O, /, *args: P.args, **values: P.kwargs) -> Done[R]:
            compiled = self._compiled(instance)
            running = None if compiled is None else compiled.start(args, values)
            return await (self._run(function(instance, *args, **values)) if running is None else running)

        call.__name__, call.__qualname__, call.__doc__ = self.name, place, self.__doc__
        return call

    def _compiled(self, instance: Any) -> CompiledProcedure[R] | None:
        """The compiled form in the store of this keyspace, from the second call on; None: the body makes the steps.

        A keyspace that is bound for one call would not benefit from it.
        """
        known: dict[Any, CompiledProcedure[R] | None] | None = getattr(instance, "_compiled", None)
        if known is None:
            return None
        if self not in known:
            known[self] = _CALLED_ONCE
            return None
        compiled = known[self]
        if compiled is _CALLED_ONCE:
            known[self] = compiled = compile_procedure(instance, self)
        return compiled

    async def _run(self, steps: Steps[R]) -> Done[R]:
        store = self._store_of(steps)
        if store is None:
            return cast("Done[R]", Done(None))
        named = PROCEDURE.set(self.place)
        try:
            if store.guarantees.atomic != "any keys" and (groups := _split_groups(store, steps.operations)):
                return cast("Done[R]", await self._run_groups(store, steps, groups))
            parts = [operation.in_batch() for operation in steps.operations]
            outcome = await store.atomically([step for part in parts for step in part])
            if not outcome:
                return stopped_batch(steps.operations, parts, outcome)
            at, results = 0, {}
            for operation, part in zip(steps.operations, parts):  # noqa: B905 - one for each, and strict is slow
                end = at + len(part)
                if operation.follow is not None:
                    await operation.upkeep(outcome.replies[at:end])
                if steps.wants(operation):
                    results[operation] = operation.finish(outcome.replies[at:end])
                at = end
            return cast("Done[R]", Done(steps.value_of(results)))
        except Unreadable as error:
            log_unreadable(store, error)
            raise
        finally:
            PROCEDURE.reset(named)

    def _store_of(self, steps: Steps[Any]) -> Store | None:
        """The store of all operations; None: there are none."""
        if type(steps) is not Steps:
            raise BadDeclaration(f"{self.place} returns Steps(...), not {type(steps).__name__}")
        operations = steps.operations
        if not operations:
            return None
        store = operations[0].bound.store
        for one in operations:
            if one.bound.store is not store:
                raise BadArgument(
                    f"{self.place} is one atomic step, and {one.bound.family.place} lives in another store than "
                    f"{operations[0].bound.family.place}; give both one role"
                )
        return store

    async def _run_groups(self, store: Store, steps: Steps[Any], groups: list[list[Operation[Any]]]) -> Done[Any]:
        if self.ordered is None:
            raise self._cross_slot_error(store, groups)
        return await _run_in_order(store, steps, groups)

    def _cross_slot_error(self, store: Store, groups: list[list[Operation[Any]]]) -> CrossSlot:
        families = list(dict.fromkeys(one.bound.family.name for group in groups for one in group))
        return CrossSlot(
            f"{self.place} is one atomic step over {' and '.join(families)}, whose keys are in different slots of "
            f"{store.url}; give these families one `tag`, or declare @procedure(ordered='what repairs it when it is "
            "interrupted')",
            "atomically",
        )


@overload
def procedure(function: Callable[Concatenate[O, P], Steps[R]], /) -> Procedure[O, P, R]: ...
@overload
def procedure(*, ordered: str) -> Callable[[Callable[Concatenate[O, P], Steps[R]]], Procedure[O, P, R]]: ...
def procedure(function: Any = None, /, *, ordered: str | None = None) -> Any:
    """Declare a procedure: a method that returns the Steps of one call. It sends nothing itself, and is not async.

    All steps take effect, or none does, in one round trip. In a cluster this needs keys in one slot: give the families
    the same `tag`. If that is impossible, declare the procedure `ordered`, with what repairs an interruption. Then,
    across slots, the steps run in the given order, adjacent ones of one slot atomically, up to the first guard that
    stops. Choose an order in which an interruption leaves nothing harmful.
    """
    if ordered is not None and not any(character.isalpha() for character in str(ordered)):
        raise BadDeclaration("ordered says in words what repairs an interruption, as in ordered='readers skip it'")
    return partial(_declare, ordered=ordered) if function is None else _declare(function, ordered)


def _declare(function: Any, ordered: str | None) -> Procedure[Any, Any, Any]:
    if not callable(function):
        raise BadDeclaration("@procedure stands above a method that returns Steps(...)")
    if iscoroutinefunction(function) or isgeneratorfunction(function) or isasyncgenfunction(function):
        raise BadDeclaration(
            f"{function.__qualname__} is a plain `def` that returns Steps(...): it only makes operations, without "
            "await or yield; the caller awaits them"
        )
    return Procedure(function, ordered)


def _split_groups(store: Store, operations: Sequence[Operation[Any]]) -> list[list[Operation[Any]]]:
    """The atomic steps that these operations take there; empty if one is enough."""
    groups = list(_groups(store, operations))
    return groups if len(groups) > 1 or groups[0][0].takes_several else []


def _groups(store: Store, operations: Sequence[Operation[Any]]) -> Iterator[list[Operation[Any]]]:
    """Adjacent operations whose keys can be changed together. One that takes several steps itself is separate."""
    group: list[Operation[Any]] = []
    slot: Any = None
    for one in operations:
        slots = slots_of(store, one.steps)
        own = next(iter(slots), slot)
        if group and (one.takes_several or group[-1].takes_several or (slots and slot is not None and own != slot)):
            yield group
            group, slot = [], None
        group.append(one)
        slot = own if slots else slot
    yield group


async def _run_in_order(store: Store, steps: Steps[Any], groups: list[list[Operation[Any]]]) -> Done[Any]:
    results: dict[Operation[Any], Any] = {}
    for number, group in enumerate(groups):
        done = await _run_group(store, group)
        if not done:
            if number:
                await _undo([one for step, one in steps.undoing if step is None or step in results])
            place = sum(map(len, groups[:number])) + cast("int", done.stopped_at)
            before = tuple(results[one] for one in steps.operations[: place - len(done.before)]) + done.before
            return Done((), place, before, done.stopped)
        results.update(zip(group, done.values, strict=True))
    return Done(steps.value_of(results))


async def _run_group(store: Store, group: list[Operation[Any]]) -> Done[Any]:
    operation = group[0]
    if not operation.takes_several:
        parts = [one.in_batch() for one in group]
        return await finish_batch(group, parts, await store.atomically([step for part in parts for step in part]))
    result = await operation.alone()
    # A write of a listed record says False where it stopped; the result of a `set` that took effect is None.
    own = operation if operation.inner is None else operation.inner
    stopped = result is False if own.stops_by_itself else isinstance(operation, Guarded) and not result
    return Done((), 0, (), operation.reason or operation.bound.family.name) if stopped else Done((result,))


async def _undo(operations: Sequence[Operation[Any]]) -> None:
    for one in operations:
        try:
            await one
        except KeysteadError as error:
            # The guard's answer stands. What is left behind is the same as after an interruption.
            _log.warning("undoing the first steps of a procedure failed: %s", error.code)
