"""Operations: what the verbs of a key return. Await one, or put several into one `run` or one `atomically`."""

from __future__ import annotations

import asyncio
import logging
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from keystead.errors import BadArgument, BadCall, KeysteadError, Unreadable, is_refusing
from keystead.schema.unreadable import log_unreadable
from keystead.stores import Absent, AtMost, Call, FieldHolds, Holds, MoreThan, Reply, Required, Still, Store
from keystead.stores.near_reads import NearRead
from keystead.stores.synchronous import wait

if TYPE_CHECKING:
    from keystead.schema.family import Bound

_log = logging.getLogger("keystead.schema")

R = TypeVar("R")

_NOT_STOPPED: Any = object()
_OWN_MODULES: Final = "keystead.schema."

# Commands whose reply does not tell whether they found or did something: not nil or 0 for nothing, or 0 for success.
_AMBIGUOUS_REPLIES = frozenset(
    {"HGETALL", "HMGET", "HSET", "SMEMBERS", "LRANGE", "ZRANGE", "ZPOPMIN", "XRANGE", "XREVRANGE", "PTTL"}
)


class Operation(Generic[R]):
    """One round trip that has not been made yet.

    `await operation` makes it, or `operation.wait()` in synchronous code. `keys.run(a, b)` makes several in one round
    trip; `keys.atomically(a, b)` makes them one atomic step, all or nothing. An operation is used once. An unused
    operation warns when it is dropped, as a coroutine does: a RuntimeWarning with its family and verb, and the line
    that dropped it.
    """

    __slots__ = ("bound", "finish", "pending", "steps")

    # Slots of `Compound` only: one plain operation is made per access to a key, and most need none of these.
    atomic: bool = False
    stopped: Any = _NOT_STOPPED
    follow: Callable[[list[Reply]], Awaitable[None] | None] | None = None
    reason: str = ""  # given to the caller if this operation stops the batch
    takes_several: bool = False  # takes several steps when awaited alone: its keys span slots of a cluster
    stops_by_itself: bool = False  # a result of False means that it stopped
    inner: Operation[Any] | None = None  # the operation that this one wraps as a guard

    def __init__(self, bound: Bound[Any], verb: str, steps: list[Any], finish: Callable[[list[Reply]], R]) -> None:
        self.bound = bound
        self.pending = verb  # empty once the operation is used
        self.steps = steps
        self.finish = finish

    @property
    def store(self) -> Store:
        return self.bound.store

    def __await__(self) -> Generator[Any, None, R]:
        self.pending = ""
        try:
            # Without a coroutine of its own: this is the hot path of every read.
            return self.finish((yield from self.bound.store.run(self.steps).__await__()))
        except Unreadable as error:
            log_unreadable(self.store, error)
            raise

    def wait(self) -> R:
        """The result, in synchronous code. Blocks the calling thread; `await` it in asynchronous code."""
        return wait(self)

    def __del__(self) -> None:
        if self.pending:
            _warn_dropped(self)

    def __bool__(self) -> bool:
        raise BadArgument("an operation is neither true nor false before it is awaited: write `if await key.exists():`")

    def __repr__(self) -> str:
        names = ", ".join(_command_name(step) or type(step).__name__ for step in self.steps)
        return f"<operation that was not awaited: {names or 'delete'}>"

    async def upkeep(self, replies: list[Reply]) -> None:
        """Follow-up work, such as pruning. The operation has already taken effect, so errors here are only logged."""
        if self.follow is None:
            return
        try:
            work = self.follow(replies)
            if work is not None:
                await work
        except KeysteadError as error:
            # Only the code: the message names the key, which may be a secret.
            _log.warning("upkeep failed after an operation that took effect: %s", error.code)

    def close(self) -> None:
        """Drop it unused, without a warning, as `close` of a coroutine does."""
        self.pending = ""

    def in_batch(self) -> list[Any]:
        """The steps, for use in a batch."""
        self.pending = ""
        return self.steps

    def if_readable(self) -> Operation[R]:
        """The same read, treating unreadable content as absent. One log line names the family.

        For a set, a sorted set, a list or a log, the result holds the readable entries. Otherwise, and if the key is of
        another kind, the result is that of a missing key. For reads, alone or in a `run`. Raises BadCall for a write,
        which must not silently overwrite unreadable content.
        """
        return IfReadable(self)

    def or_error(self) -> Operation[R | Unreadable]:
        """The same read. Unreadable content makes the error the result; it is neither raised nor logged.

        For callers with a fallback. A key of another kind is a store error and is raised as usual.
        """
        verb, steps = self.pending, self.in_batch()
        if type(self) not in (Operation, NearOperation):
            raise BadCall("or_error is for reads of one command")
        return Operation(self.bound, verb, steps, partial(_finish_or_error, self.finish))

    def required(self) -> Operation[R]:
        """For `atomically`: if the reply of this operation is nil or 0, nothing in the batch takes effect.

        Raises BadArgument for an operation whose reply does not tell whether it found or did something.
        """
        return Guarded(self, "")

    def otherwise(self, reason: str) -> Operation[R]:
        """As `required`, with a reason for the caller: `done.stopped`, if this operation stops the batch."""
        if not reason.strip():
            self.close()
            raise BadArgument("otherwise takes the reason for the caller, as in otherwise('sold out')")
        return Guarded(self, reason)

    def afterwards(self, work: Callable[[R], Awaitable[Any]]) -> Operation[R]:
        """The same operation. After it took effect, alone or in a batch, `work` is awaited with its result.

        A KeysteadError in it is only logged, because the operation itself has taken effect.
        """
        finish, upkeep, verb = self.finish, self.upkeep, self.pending

        async def follow(replies: list[Reply]) -> None:
            await upkeep(replies)
            await work(finish(replies))

        return Compound(
            self.bound, verb, self.in_batch(), finish, atomic=self.atomic, stopped=self.stopped, follow=follow
        )

    async def alone(self) -> R:
        """The result of an operation that takes several steps when awaited alone."""
        return await self


class NearOperation(Operation[R]):
    """A read that may answer from a copy in this process. In a batch it reads from the store, as others do."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, R]:
        self.pending = ""
        near = self.bound.store.near
        if near is None:
            return (yield from super().__await__())
        try:
            replies = near.read(NearRead(self.steps), self.bound.family.near_ms / 1000)
            return self.finish(replies if type(replies) is list else (yield from replies.__await__()))  # type: ignore[union-attr]
        except Unreadable as error:
            log_unreadable(self.store, error)
            raise


class Compound(Operation[R]):
    """An operation of several steps, or with upkeep.

    atomic    its steps are one atomic step, even when it is awaited alone
    stopped   its result if one of its own guards stopped it
    follow    upkeep that depends on its replies, such as pruning
    """

    __slots__ = ("atomic", "follow", "stopped")

    def __init__(
        self,
        bound: Bound[Any],
        verb: str,
        steps: list[Any],
        finish: Callable[[list[Reply]], R],
        *,
        atomic: bool = False,
        stopped: Any = _NOT_STOPPED,
        follow: Callable[[list[Reply]], Awaitable[None] | None] | None = None,
    ) -> None:
        # Without `super()`, for speed: most procedures make several.
        self.bound = bound
        self.pending = verb
        self.steps = steps
        self.finish = finish
        self.atomic = atomic
        self.stopped = stopped
        self.follow = follow

    def __await__(self) -> Generator[Any, None, R]:
        self.pending = ""
        try:
            return (yield from self._alone().__await__())
        except Unreadable as error:
            log_unreadable(self.store, error)
            raise

    async def _alone(self) -> R:
        if self.atomic:
            outcome = await self.store.atomically(self.steps)
            if not outcome:
                return cast("R", self.stopped)
            replies = outcome.replies
        else:
            replies = await self.store.run(self.steps)
        await self.upkeep(replies)
        return self.finish(replies)


class Guarded(Compound[R]):
    """An operation that must take effect, or nothing in its atomic step does."""

    __slots__ = ("inner", "reason")

    def __init__(self, inner: Operation[R], reason: str) -> None:
        verb, self.pending = inner.pending, ""
        if isinstance(inner, Guarded):
            inner = inner.inner
        inner.pending = ""
        self.inner: Operation[R] = inner
        self.reason = reason
        self.bound = inner.bound
        # One that takes several steps is never marked: its own result tells whether it took effect.
        self.steps = [] if inner.takes_several else _with_guard(inner)
        self.finish = inner.finish
        self.atomic = True
        self.stopped = _NOT_STOPPED
        self.follow = inner.follow
        self.pending = verb

    @property
    def takes_several(self) -> bool:  # type: ignore[override]
        return self.inner.takes_several

    def in_batch(self) -> list[Any]:
        self.pending = ""
        return self.steps or _with_guard(self.inner)

    async def alone(self) -> R:
        self.pending = ""
        return await self.inner

    async def _alone(self) -> R:
        if self.takes_several:
            return await self.inner
        outcome = await self.store.atomically(self.steps)
        if outcome:
            await self.upkeep(outcome.replies)
            return self.finish(outcome.replies)
        if self.inner.stopped is not _NOT_STOPPED:
            return cast("R", self.inner.stopped)
        try:
            return self.finish([None] * len(self.steps))
        except Exception:  # it has no result for an empty reply
            return cast("R", None)


def _with_guard(operation: Operation[Any]) -> list[Any]:
    """The steps of an operation. The first stops the batch if it finds or does nothing."""
    steps = operation.in_batch()
    first = steps[0]
    if type(first) in _GUARDS:
        return steps
    name = _command_name(first)
    if name is None:
        return steps
    if not isinstance(operation, Deleting) and _is_ambiguous(name, steps):
        raise BadArgument(
            "this operation cannot be required, because its reply does not tell whether it found anything; "
            "put key.exists().required() beside it"
        )
    return [Required(first), *steps[1:]]


def _warn_dropped(operation: Operation[Any]) -> None:
    """Warn as for a dropped coroutine, with the line that dropped it.

    There is no warning if the program did not forget the operation: at exit, if a batch is not made because one of its
    keys or values is refused, if asyncio drops it with a task that was cancelled before it started, and if it has no
    store, because a procedure is being compiled.
    """
    if sys.is_finalizing() or is_refusing() or not isinstance(operation.bound.store, Store):
        return
    # A task or a callback drops its operations in `asyncio.events`, when the program's own frame is gone.
    frame, level = sys._getframe(2), 3  # past this function and `__del__`
    while (module := frame.f_globals.get("__name__", "")).startswith(_OWN_MODULES) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    if not module.startswith("asyncio.") or (module == "asyncio.events" and not _is_wrapper_task(frame)):
        keyspace, family = type(operation.bound.keyspace).__name__, operation.bound.family.name
        sentence = f"operation {keyspace}.{family}.{operation.pending} was never awaited"
        warnings.warn(sentence, RuntimeWarning, stacklevel=level, source=operation)


def _is_wrapper_task(frame: FrameType) -> bool:
    """Whether this frame runs a task that asyncio made from an operation, as in `asyncio.gather(keys.a(1).get())`."""
    step = getattr(frame.f_locals.get("self"), "_callback", None)
    task = getattr(step, "__self__", None)
    return isinstance(task, asyncio.Task) and getattr(task.get_coro(), "__name__", "") == "_wrap_awaitable"


_GUARDS: Final = frozenset({Required, Holds, FieldHolds, Absent, AtMost, MoreThan, Still})

# What each read replies for a missing key.
_EMPTY_REPLIES: dict[str, Any] = {
    **dict.fromkeys(("SMEMBERS", "LRANGE", "ZRANGE", "XRANGE", "XREVRANGE"), ()),
    **dict.fromkeys(("EXISTS", "SCARD", "HLEN", "LLEN", "XLEN", "ZCARD", "ZCOUNT", "SISMEMBER", "HEXISTS"), 0),
    **dict.fromkeys(("GET", "HGET", "LINDEX", "ZSCORE", "ZRANK", "ZREVRANK", "HMGET"), None),
    "HGETALL": {},
    "PTTL": -2,
}
_ENTRIES = frozenset({"SMEMBERS", "LRANGE", "ZRANGE", "XRANGE", "XREVRANGE"})


class IfReadable(Compound[R]):
    """A read that treats unreadable content as absent."""

    __slots__ = ("_inner_finish",)

    def __init__(self, inner: Operation[R]) -> None:
        self.pending, verb, steps = "", inner.pending, inner.in_batch()
        if not all(_command_name(step) in _EMPTY_REPLIES for step in steps):
            raise BadCall("if_readable is for reads; a write that meets what cannot be read has to fail")
        self._inner_finish = inner.finish
        super().__init__(
            inner.bound,
            verb,
            steps,
            # Not a method: the reference cycle would leave the operation to the garbage collector.
            partial(_finish_readable, inner.store, steps, inner.finish),
            atomic=inner.atomic,
            stopped=inner.stopped,
            follow=inner.follow,
        )

    def __await__(self) -> Generator[Any, None, R]:
        self.pending = ""
        try:
            return (yield from self._alone().__await__())
        except Unreadable as error:
            return self.without(error)

    def without(self, error: Unreadable) -> R:
        """The result if the key is of another kind."""
        log_unreadable(self.store, error)
        return self._inner_finish([_empty_reply(step) for step in self.steps])


def _finish_or_error(finish: Callable[[list[Reply]], R], replies: list[Reply]) -> R | Unreadable:
    try:
        return finish(replies)
    except Unreadable as error:
        return error


def _finish_readable(store: Store, steps: list[Any], finish: Callable[[list[Reply]], R], replies: list[Reply]) -> R:
    """The result of the readable part of these replies."""
    try:
        return finish(replies)
    except Unreadable as error:
        log_unreadable(store, error)
    name = _command_name(steps[0])
    if name in _ENTRIES:
        return finish([[one for one in replies[0] if _is_readable(finish, [one])], *replies[1:]])
    if name == "HMGET":
        missing = [None] * len(replies[0])
        alone = ([*missing[:at], one, *missing[at + 1 :]] for at, one in enumerate(replies[0]))
        return finish([[one[at] if _is_readable(finish, one) else None for at, one in enumerate(alone)], *replies[1:]])
    return finish([_empty_reply(step) for step in steps])


def _is_readable(finish: Callable[[list[Reply]], Any], reply: Reply) -> bool:
    try:
        finish([reply])
    except Unreadable:
        return False
    return True


def _empty_reply(step: Any) -> Reply:
    """The reply of this read for a missing key."""
    if _command_name(step) == "HMGET":
        return [None] * (len(step) - 2)
    return _EMPTY_REPLIES[str(_command_name(step))]


def _command_name(step: Any) -> str | None:
    """The name of a command; None: the step is a guard."""
    if isinstance(step, Call):
        return step.spec.name
    # Most are tuples, and a check against Sequence takes ten times as long.
    return str(step[0]) if type(step) is tuple or isinstance(step, Sequence) else None


def _is_ambiguous(name: str, steps: list[Any]) -> bool:
    return name in _AMBIGUOUS_REPLIES or (name == "DEL" and len(steps) > 1)


class Deleting(Compound[R]):
    """An operation whose first step deletes, so that its reply tells whether the key existed."""

    __slots__ = ()


def combine(
    verb: str,
    operations: Sequence[Operation[Any]],
    make: Callable[..., R],
    *,
    atomic: bool = True,
    stopped: Any = _NOT_STOPPED,
) -> Operation[R]:
    """Several operations of one store as one. `make` turns their results into its result.

    For a part that returns one operation to await or to put into a batch. All of them take effect, or none does;
    `stopped` is the result if a guard among them stops it. Reads need not be `atomic`.
    """
    steps: list[Any] = []
    parts: list[tuple[Operation[Any], int, int]] = []
    use_all(operations)
    for one in operations:
        begin = len(steps)
        steps += one.in_batch()
        parts.append((one, begin, len(steps)))

    def finish(replies: list[Reply]) -> R:
        return make(*[one.finish(replies[begin:end]) for one, begin, end in parts])

    async def follow(replies: list[Reply]) -> None:
        for one, begin, end in parts:
            await one.upkeep(replies[begin:end])

    bound = operations[0].bound
    if not atomic:
        return Operation(bound, verb, steps, finish)
    follows = any(one.follow is not None for one in operations)
    return Compound(bound, verb, steps, finish, atomic=True, stopped=stopped, follow=follow if follows else None)


def settled(bound: Bound[Any], verb: str, result: R) -> Operation[R]:
    """An operation that sends nothing, because its result is known. For parts that return operations."""
    return Operation(bound, verb, [], lambda replies: result)


def taking(finish: Callable[[list[Reply]], R]) -> Callable[[list[Reply]], R]:
    """For an operation that removes what it reads: the error carries the removed content if it is unreadable."""

    def finished(replies: list[Reply]) -> R:
        try:
            return finish(replies)
        except Unreadable as error:
            error.taken = replies[0]
            raise

    return finished


def use_all(operations: Sequence[Operation[Any]]) -> None:
    """Mark these as used, so that none of them warns. Raises BadArgument if one is not an operation."""
    one: Any = None
    try:
        for one in operations:
            one.pending = ""
    except AttributeError:
        raise _not_an_operation(one) from None


def _not_an_operation(one: Any) -> BadArgument:
    if isinstance(one, Coroutine):
        one.close()
    return BadArgument(
        "operations are what verbs return before they are awaited, as in keys.run(keys.a(1).get(), "
        f"keys.b(2).get()), each by itself; this is a {type(one).__name__}"
    )
