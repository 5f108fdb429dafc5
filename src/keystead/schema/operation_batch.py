"""Batches: several operations in one round trip (`run`), or as one atomic step (`atomically`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from keystead.errors import BadArgument, BadCall, KeysteadError, StoreError, StoreUnavailable, Unreadable
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.operation import IfReadable, Operation, use_all
from keystead.schema.unreadable import log_unreadable
from keystead.stores import Outcome, Reply, Store

R_co = TypeVar("R_co", covariant=True)


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class Done(Generic[R_co]):
    """The outcome of `keys.atomically`: true if everything took effect, false if nothing did.

    `values` has the result of each operation. If it was stopped, `values` is empty and `stopped_at` is the position of
    the operation that stopped it. `before` then has the results of the operations before that one: reads show the state
    at that moment, writes were rolled back. `stopped` is the reason given with `otherwise`, or the name of its family.
    `value` is the result of a procedure.
    """

    values: R_co
    stopped_at: int | None = None
    before: tuple[Any, ...] = ()
    stopped: str | None = None

    @property
    def value(self) -> R_co:
        """The result of a procedure. Raises BadCall if it was stopped."""
        if self.stopped_at is not None:
            raise BadCall(f"it was stopped ({self.stopped}), so it has no value: check `if done:` first")
        return self.values

    def __bool__(self) -> bool:
        return self.stopped_at is None


def run(operations: Sequence[Operation[Any]]) -> Coroutine[Any, Any, tuple[Any, ...]]:
    """The results in order: one round trip per store.

    An operation that is atomic alone stays atomic; it is sent with the others and may take effect before or after them.
    Every operation is tried. Then the first error is raised, and its `results` has the results of the others.
    The operations count as used from here on; if the coroutine is not awaited, it warns instead.
    """
    steps: list[Any] = []
    store: Store | None = None
    for one in operations:
        if type(one) is not Operation or (one.bound.store is not store and store is not None):
            return _run_apart(operations)
        store = one.bound.store
        steps += one.steps
        one.pending = ""
    return _run_plain(operations, store, steps)


async def _run_plain(operations: Sequence[Operation[Any]], store: Store | None, steps: list[Any]) -> tuple[Any, ...]:
    """The results of plain operations of one store."""
    if store is None:
        return ()
    try:
        replies = await store.run(steps)
    except StoreError as error:
        return _raise_first_error(operations, _results(operations, error.replies or [error] * len(steps)))
    if len(steps) != len(operations):
        return _raise_first_error(operations, _results(operations, replies))
    results = []
    try:
        for one, reply in zip(operations, replies):  # noqa: B905 - one reply per step, and strict is slow
            results.append(one.finish([reply]))
    except Exception:
        return _raise_first_error(operations, _results(operations, replies))
    return tuple(results)


async def run_each(operations: Sequence[Operation[Any]]) -> list[Any]:
    """As `run`, with the error in place of the result of each that failed. Raises StoreUnavailable."""
    use_all(operations)
    results = [one.error if type(one) is _Failed else one for one in await _gather_groups(operations)]
    for one in results:
        if isinstance(one, StoreUnavailable):
            raise one
    return results


def _raise_first_error(operations: Sequence[Operation[Any]], results: list[Any]) -> tuple[Any, ...]:
    """The results if none failed. Otherwise raises the first error, and logs unreadable content."""
    failed = [(one, result.error) for one, result in zip(operations, results, strict=True) if type(result) is _Failed]
    for one, error in failed:
        if isinstance(error, Unreadable):
            log_unreadable(one.store, error)
    if failed:
        raise _first_error(results)
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _Failed:
    """Takes the place of the result of an operation."""

    error: Exception


def _results(operations: Sequence[Operation[Any]], replies: list[Reply]) -> list[Any]:
    """The result or failure of each operation."""
    results, at = [], 0
    for one in operations:
        results.append(_result(one, replies[at : at + len(one.steps)]))
        at += len(one.steps)
    return results


async def _run_together(operations: Sequence[Operation[Any]]) -> list[Any]:
    """The results of operations of one store, none of them atomic alone: one round trip."""
    steps = [step for one in operations for step in one.steps]
    try:
        replies = await operations[0].store.run(steps)
    except StoreError as error:
        replies = error.replies or [error] * len(steps)
    results = _results(operations, replies)
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
    return _raise_first_error(operations, await _gather_groups(operations))


async def _gather_groups(operations: Sequence[Operation[Any]]) -> list[Any]:
    """The results of operations of several stores, or atomic alone, sent in one turn of the event loop."""
    together: dict[int, list[int]] = {}
    for place, one in enumerate(operations):
        together.setdefault(-1 - place if one.atomic else id(one.store), []).append(place)
    groups = [[operations[place] for place in places] for places in together.values()]
    work = [_run_alone(group[0]) if group[0].atomic else _run_together(group) for group in groups]
    if len(work) == 1:
        answers: Sequence[list[Any]] = [await work[0]]
    elif all(one.store is operations[0].store for one in operations):
        answers = await in_one_turn(*work)
    else:  # one store that is down must not hold up another
        answers = await asyncio.gather(*work)
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
    """All or nothing, in one round trip. The operations count as used from here on."""
    use_all(operations)
    return _run_atomically(operations)


async def _run_atomically(operations: Sequence[Operation[Any]]) -> Done[tuple[Any, ...]]:
    if not operations:
        return Done(())
    store = operations[0].store
    if any(operation.store is not store for operation in operations):
        raise BadArgument("one atomic step needs one store; these families have different roles")
    try:
        return await _run_one_step(store, operations)
    except Unreadable as error:
        log_unreadable(store, error)
        raise


async def _run_one_step(store: Store, operations: Sequence[Operation[Any]]) -> Done[tuple[Any, ...]]:
    parts = [operation.in_batch() for operation in operations]
    return await finish_batch(operations, parts, await store.atomically([step for part in parts for step in part]))


async def finish_batch(
    operations: Sequence[Operation[Any]], parts: list[list[Any]], outcome: Outcome
) -> Done[tuple[Any, ...]]:
    """The outcome of these operations, whose steps are `parts`, after their upkeep."""
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
    """The outcome of a batch that one operation stopped."""
    left, at = cast("int", outcome.stopped_at), 0
    before: list[Any] = []
    for place, (operation, part) in enumerate(zip(operations, parts, strict=True)):
        if left < len(part):
            return Done((), place, tuple(before), operation.reason or operation.bound.family.name)
        left -= len(part)
        before.append(operation.finish(outcome.replies[at : at + len(part)]))
        at += len(part)
    raise AssertionError("the step that stopped is one of the steps")  # pragma: no cover


# The names in Python's warning about a coroutine that is never awaited.
_run_plain.__qualname__ = _run_groups.__qualname__ = "Keyspace.run"
_run_atomically.__qualname__ = "Keyspace.atomically"
