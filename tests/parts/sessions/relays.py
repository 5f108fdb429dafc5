"""Stores that forward everything to a real one, and watch, stop or order the calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from keystead import Store
from keystead.stores import Command, Message, Outcome, Reply, Step
from keystead.stores.redis.cluster_nodes import slot_of
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from keystead.stores.store_contract import Planned


class Relay(Store):
    """Forwards each call. `log` has the commands of each."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.url = inner.url
        self.guarantees = inner.guarantees
        self.log: list[list[Any]] = []

    async def before(self) -> None:
        """Called before each forwarded call."""

    async def after(self) -> None:
        """Called after each forwarded call."""

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        await self.before()
        self.log.append(list(commands))
        try:
            return await self._inner.run(commands)
        finally:
            await self.after()

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        await self.before()
        self.log.append(list(steps))
        try:
            return await self._inner.atomically(steps)
        finally:
            await self.after()

    def scan(self, *args: Any, **options: Any) -> AsyncIterator[list[bytes]]:
        return self._inner.scan(*args, **options)

    async def open(self) -> None:
        raise AssertionError("the store within is open already")

    async def close(self) -> None:
        raise AssertionError("the store within is not its own")

    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        raise AssertionError("scan is passed on")

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        raise AssertionError("nobody subscribes here")

    def _replies(self, calls: Any) -> list[Reply]:
        raise AssertionError("run is passed on")

    async def _atomically(self, steps: Any) -> Outcome:
        raise AssertionError("atomically is passed on")


class Slots(SqliteStore):
    """A store in memory in which one step spans the keys of one slot only, as in a cluster."""

    def __init__(self) -> None:
        super().__init__(MEMORY)
        self.guarantees = replace(self.guarantees, atomic="one slot")

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        keys = {key for step in steps for key in step.call.keys}
        assert len({slot_of(key) for key in keys}) <= 1, f"{keys} are in different slots"
        return await super()._atomically(steps)


class Killed(BaseException):
    """The program ended here: nothing catches this."""


class Mortal(Relay):
    """Forwards this many commands, and then the program is dead. A batch is forwarded one command at a time."""

    def __init__(self, inner: Store, lives: int) -> None:
        super().__init__(inner)
        self._lives = lives

    async def before(self) -> None:
        if self._lives == 0:
            raise Killed
        self._lives -= 1

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        return [(await super(Mortal, self).run([command]))[0] for command in commands]


# --- interleavings of two programs -----------------------------------------------------------------------------

Actor = Literal["a", "b"]
ACTOR: ContextVar[Actor] = ContextVar("actor")


class Gated(Relay):
    """Each call of the two programs waits until it is released; other calls are forwarded immediately."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.waiting: dict[Actor, deque[asyncio.Future[None]]] = {"a": deque(), "b": deque()}
        self.under_way: dict[Actor, int] = {"a": 0, "b": 0}
        self.moved = asyncio.Event()

    async def before(self) -> None:
        actor = ACTOR.get(None)
        if actor is None:
            return
        gate = asyncio.get_running_loop().create_future()
        self.waiting[actor].append(gate)
        self.moved.set()
        await gate
        self.under_way[actor] += 1

    async def after(self) -> None:
        actor = ACTOR.get(None)
        if actor is not None:
            self.under_way[actor] -= 1
            self.moved.set()

    def let_through(self, actor: Actor) -> None:
        self.waiting[actor].popleft().set_result(None)


async def in_order(
    gated: Gated, programs: dict[Actor, Callable[[], Awaitable[Any]]], first: Sequence[Actor]
) -> tuple[list[tuple[Actor, bool]], dict[Actor, Any]]:
    """Run two programs at once, one call to the store at a time: first in this order, then `a` before `b`.

    The order that it became, each turn with whether the other one could have had it, and what both returned.
    """
    tasks: dict[Actor, asyncio.Task[Any]] = {}

    async def as_actor(actor: Actor) -> Any:
        ACTOR.set(actor)
        return await programs[actor]()

    for actor in ("a", "b"):
        tasks[actor] = asyncio.create_task(as_actor(actor))
        tasks[actor].add_done_callback(lambda _: gated.moved.set())

    async def settled() -> list[Actor]:
        """The programs that wait for their turn, once all wait or are done."""
        while True:
            gated.moved.clear()
            if all(
                task.done() or (gated.waiting[actor] and not gated.under_way[actor]) for actor, task in tasks.items()
            ):
                return [actor for actor, task in tasks.items() if not task.done()]
            async with asyncio.timeout(60):
                await gated.moved.wait()

    order: list[tuple[Actor, bool]] = []
    while ready := await settled():
        wanted = first[len(order)] if len(order) < len(first) else ready[0]
        chosen = wanted if wanted in ready else ready[0]
        order.append((chosen, len(ready) == 2))
        gated.let_through(chosen)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return order, {actor: task.result() for actor, task in tasks.items()}


async def every_order(
    one: Callable[[Sequence[Actor]], Awaitable[list[tuple[Actor, bool]]]], *, switches: int | None = None
) -> int:
    """Call `one` with a prefix of each possible interleaving of two programs; returns their number.

    `one` runs both from the start, and returns the order that it became. `switches`: only the orders in which the turn
    goes over from one to the other so often at most, for programs of many steps.
    """
    count = 0
    beginnings: list[list[Actor]] = [[]]
    while beginnings:
        first = beginnings.pop()
        order = await one(first)
        count += 1
        for turn in range(len(first), len(order)):
            chosen, could_be_other = order[turn]
            if could_be_other:
                other: Actor = "b" if chosen == "a" else "a"
                beginning = [*(actor for actor, _ in order[:turn]), other]
                turns = sum(one != next_one for one, next_one in pairwise(beginning))
                if switches is None or turns <= switches:
                    beginnings.append(beginning)
    return count
