"""How each command of a REST client runs: as steps that share a round trip, by itself, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.gateway.rest_requests import RawCommand
from keystead.stores import Call, Reply, Store
from keystead.stores.derived import Derived, Exchange
from keystead.stores.store_contract import Step

Finish: TypeAlias = Callable[[list[Reply]], Any]


class AtomicPart(NamedTuple):
    """The steps of one command in an atomic step, and what makes its reply from theirs."""

    steps: Sequence[Step]
    finish: Finish


class CommandPlan:
    """How to run one command.

    steps     what it needs of the store, unless it `is_alone`
    is_alone  whether it cannot share a round trip with others
    is_atomic whether it can be part of an atomic step with others
    """

    __slots__ = ()
    is_alone = False
    is_atomic = True
    reads_first = False
    steps: Sequence[Step] = ()

    def finish(self, replies: list[Reply]) -> Any:
        """The reply of the command, from those of its steps. An exception among them is returned, not raised."""
        raise NotImplementedError

    async def run(self, store: Store) -> Any:
        """Run it by itself. Raises StoreUnavailable; every other error is the reply."""
        try:
            return await self._run(store)
        except StoreUnavailable:
            raise
        except KeysteadError as error:  # of this command: Contended, CommandError
            return error

    async def _run(self, store: Store) -> Any:
        raise NotImplementedError

    async def attempt(self, store: Store) -> AtomicPart | None:
        """Its part of an atomic step, for which it may read. None: start over. Raises CommandError."""
        return AtomicPart(self.steps, self.finish)

    @property
    def written(self) -> Sequence[str | bytes]:
        """The keys that it writes."""
        return ()


class RefusedPlan(CommandPlan):
    """A command that is not run, and why."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error

    def finish(self, replies: list[Reply]) -> Any:
        return self.error


class PlainPlan(CommandPlan):
    """A command of the stores."""

    __slots__ = ("_call", "steps")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.steps: Sequence[Any] = (call,)

    def finish(self, replies: list[Reply]) -> Any:
        return replies[0]

    @property
    def written(self) -> Sequence[str | bytes]:
        return self._call.keys if self._call.spec.writes else ()


class DerivedPlan(CommandPlan):
    """A command that is one or more of the stores' own."""

    __slots__ = ("_derived", "_writes", "is_alone", "is_atomic", "steps")

    def __init__(self, derived: Derived, writes: bool) -> None:
        self._derived = derived
        self._writes = writes
        self.steps = derived.steps
        self.is_alone = derived.is_guarded or len(derived.steps) > 1
        self.is_atomic = not derived.is_guarded  # its guards would stop the others, too

    def finish(self, replies: list[Reply]) -> Any:
        failed = next((reply for reply in replies if isinstance(reply, Exception)), None)
        return failed or self._derived.finish(replies)

    async def _run(self, store: Store) -> Any:
        return self._derived.reply(await store.atomically(self.steps))

    @property
    def written(self) -> Sequence[str | bytes]:
        return self._derived.keys if self._writes else ()


class ExchangePlan(CommandPlan):
    """A command that reads before it writes."""

    __slots__ = ("_exchange", "is_atomic")
    is_alone = True
    reads_first = True

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.is_atomic = bool(exchange.keys)

    async def _run(self, store: Store) -> Any:
        return await self._exchange.run(store)

    async def attempt(self, store: Store) -> AtomicPart | None:
        made = await self._exchange.attempt(store)
        return None if made is None else AtomicPart(made.steps, lambda replies: made.reply)

    @property
    def written(self) -> Sequence[str | bytes]:
        return self._exchange.keys

    @property
    def keys(self) -> Sequence[bytes]:
        return self._exchange.keys


class ForeignPlan(CommandPlan):
    """A command outside the language, for the engine."""

    __slots__ = ("_command", "_engine")
    is_alone = True
    is_atomic = False

    def __init__(self, command: RawCommand, engine: Store) -> None:
        self._command = command
        self._engine = engine

    async def _run(self, store: Store) -> Any:
        return (await self._engine.run_foreign([self._command]))[0]
