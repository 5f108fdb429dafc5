"""Batches: several operations in one round trip (`run`), or as one atomic step (`atomically`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from keystead.errors import BadArgument, BadCall, KeysteadError, StoreError, StoreUnavailable, Unreadable
from keystead.schema.operation import IfReadable, Operation, use_all
from keystead.schema.unreadable import log_unreadable
from keystead.stores import Outcome, Reply, Store

R_co = TypeVar("R_co", covariant=True)


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which would take longer to make
class Done(Generic[R_co]):
    """What `keys.atomically` did. True where everything took effect, false where nothing did.

    `values` holds the result of each operation; where it was stopped it is empty, and `stopped_at` is the place of
    the operation that stopped it. `before` then holds the results of those before that one: what reads among them found
    is what was there at that moment; what writes among them did is undone. `stopped` is the reason that the operation
    was given by `otherwise`, or else the name of its family. Of a procedure, `value` is what it gives.
    """

    values: R_co
    stopped_at: int | None = None
    before: tuple[Any, ...] = ()
    stopped: str | None = None

    @property
    def value(self) -> R_co:
        """What a procedure gives. Raises BadCall where it was stopped."""
        if self.stopped_at is not None:
            raise BadCall(f"it was stopped ({self.stopped}), so it has no value: look at `if done:` first")
        return self.values

    def __bool__(self) -> bool:
        return self.stopped_at is None


def run(operations: Sequence[Operation[Any]]) -> Coroutine[Any, Any, tuple[Any, ...]]:
    """The results in order: one round trip a store.

    An operation that is atomic by itself stays so; it leaves with the others and may take effect before or after them.
    Every operation is tried; the first error is raised then, and its `results` holds what the others gave.
    The operations are used from here on: it is this coroutine that warns where it is not awaited.
    """
    steps: list[Any] = []
    store: Store | None = None
    for one in operations:
        if type(one) is not Operation or (one.bound.store is not store and store is not None):
            return _run_apart(operations)
        store = one.bound.store
        steps += one.steps
        one.pending = ""
    return _run_plainly(operations, store, steps)


async def _run_plainly(operations: Sequence[Operation[Any]], store: Store | None, steps: list[Any]) -> tuple[Any, ...]:
    """The results of operations of one store, none of which has more to it than its commands."""
    if store is None:
        return ()
    try:
        replies = await store.run(steps)
    except StoreError as error:
        return _checked(operations, _each(operations, error.replies or [error] * len(steps)))
    if len(steps) != len(operations):
        return _checked(operations, _each(operations, replies))
    results = []
    try:
        for one, reply in zip(operations, replies):  # noqa: B905 - a store gives a reply a step, and strict is slow
            results.append(one.finish([reply]))
    except Exception:
        return _checked(operations, _each(operations, replies))
    return tuple(results)


async def run_each(operations: Sequence[Operation[Any]]) -> list[Any]:
    """As `run`, with the error in the place of each that failed. Raises StoreUnavailable."""
    use_all(operations)
    results = [one.error if type(one) is _Failed else one for one in await _in_groups(operations)]
    for one in results:
        if isinstance(one, StoreUnavailable):
            raise one
    return results


def _checked(operations: Sequence[Operation[Any]], results: list[Any]) -> tuple[Any, ...]:
    """The results, where none failed; raises the first error otherwise, and logs what cannot be read."""
    failed = [(one, result.error) for one, result in zip(operations, results, strict=True) if type(result) is _Failed]
    for one, error in failed:
        if isinstance(error, Unreadable):
            log_unreadable(one.store, error)
    if failed:
        raise _first_error(results)
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _Failed:
    """Stands where the result of an operation would be."""

    error: Exception


def _each(operations: Sequence[Operation[Any]], replies: list[Reply]) -> list[Any]:
    """The result of each operation, or what stands for its error."""
    results, at = [], 0
    for one in operations:
        results.append(_result(one, replies[at : at + len(one.steps)]))
        at += len(one.steps)
    return results


async def _run_together(operations: Sequence[Operation[Any]]) -> list[Any]:
    """The results of operations of one store of which none is atomic by itself: one round trip."""
    steps = [step for one in operations for step in one.steps]
    try:
        replies = await operations[0].store.run(steps)
    except StoreError as error:
        replies = error.replies or [error] * len(steps)
    results = _each(operations, replies)
    at = 0
    for one, result in zip(operations, results, strict=True):
        if one.follow is not None and type(result) is not _Failed:
            await one.upkeep(replies[at : at + len(one.steps)])
        at += len(one.steps)
    return results


def _run_apart(operations: Sequence[Operation[Any]]) -> Coroutine[Any, Any, tuple[Any, ...]]:
    use_all(operations)
    return _run_groups(operations)


async def _run_groups(operations: Sequence[Operation[Any]]) -> tuple[Any, ...]:
    return _checked(operations, await _in_groups(operations))


async def _in_groups(operations: Sequence[Operation[Any]]) -> list[Any]:
    """The results of operations of several stores, or atomic by themselves. All leave in one turn of the event loop."""
    together: dict[int, list[int]] = {}
    for place, one in enumerate(operations):
        together.setdefault(-1 - place if one.atomic else id(one.store), []).append(place)
    groups = [[operations[place] for place in places] for places in together.values()]
    work = [_run_alone(group[0]) if group[0].atomic else _run_together(group) for group in groups]
    answers = [await work[0]] if len(work) == 1 else await asyncio.gather(*work)
    results: list[Any] = [None] * len(operations)
    for places, answer in zip(together.values(), answers, strict=True):
        for place, result in zip(places, answer, strict=True):
            results[place] = result
    return results


async def _run_alone(operation: Operation[Any]) -> list[Any]:
    try:
        return [await operation]
    except Exception as error:
        return [_Failed(error)]


def _result(operation: Operation[Any], replies: list[Reply]) -> Any:
    for reply in replies:
        if isinstance(reply, StoreError):
            if isinstance(reply, Unreadable) and isinstance(operation, IfReadable):
                return operation.without(reply)
            return _Failed(reply)
    try:
        return operation.finish(replies)
    except Exception as error:
        return _Failed(error)


def _first_error(results: list[Any]) -> Exception:
    plain = [result.error if type(result) is _Failed else result for result in results]
    first: Exception = next(result.error for result in results if type(result) is _Failed)
    if isinstance(first, KeysteadError):
        first.results = plain
    return first


def atomically(operations: Sequence[Operation[Any]]) -> Coroutine[Any, Any, Done[tuple[Any, ...]]]:
    """All of them, or none. One round trip. The operations are used from here on."""
    use_all(operations)
    return _run_atomically(operations)


async def _run_atomically(operations: Sequence[Operation[Any]]) -> Done[tuple[Any, ...]]:
    if not operations:
        return Done(())
    store = operations[0].store
    if any(operation.store is not store for operation in operations):
        raise BadArgument("what is to be one atomic step must live in one store; these families have different roles")
    try:
        return await _in_one_step(store, operations)
    except Unreadable as error:
        log_unreadable(store, error)
        raise


async def _in_one_step(store: Store, operations: Sequence[Operation[Any]]) -> Done[tuple[Any, ...]]:
    parts = [operation.in_batch() for operation in operations]
    return await finish_batch(operations, parts, await store.atomically([step for part in parts for step in part]))


async def finish_batch(
    operations: Sequence[Operation[Any]], parts: list[list[Any]], outcome: Outcome
) -> Done[tuple[Any, ...]]:
    """What these operations did, whose steps are `parts`, with the upkeep that they ask for."""
    if not outcome:
        return stopped_batch(operations, parts, outcome)
    at, values = 0, []
    for operation, part in zip(operations, parts, strict=True):
        own = outcome.replies[at : at + len(part)]
        at += len(part)
        if operation.follow is not None:
            await operation.upkeep(own)
        values.append(operation.finish(own))
    return Done(tuple(values))


def stopped_batch(operations: Sequence[Operation[Any]], parts: list[list[Any]], outcome: Outcome) -> Done[Any]:
    """What is said of operations of which one stopped the whole."""
    left, at = cast("int", outcome.stopped_at), 0
    before: list[Any] = []
    for place, (operation, part) in enumerate(zip(operations, parts, strict=True)):
        if left < len(part):
            return Done((), place, tuple(before), operation.reason or operation.bound.family.name)
        left -= len(part)
        before.append(operation.finish(outcome.replies[at : at + len(part)]))
        at += len(part)
    raise AssertionError("the step that stopped is one of the steps")  # pragma: no cover


# As the warning of Python names the coroutine of a batch that is not awaited.
_run_plainly.__qualname__ = _run_groups.__qualname__ = "Keyspace.run"
_run_atomically.__qualname__ = "Keyspace.atomically"
