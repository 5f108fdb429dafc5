"""The stores of a process of a web framework: one for all synchronous callers, and one for each event loop.

A store belongs to the event loop that opened it. Synchronous views share the store of `keystead.wait`. Asynchronous
views use the store of their own loop: it is opened by its first use and closed when the loop shuts down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

from keystead import Store, connect, wait

T = TypeVar("T")

_lock = threading.Lock()


class SharedStore:
    """A store, and what was made of it: keyspaces and parts, each once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._made: dict[Callable[[Store], Any], Any] = {}

    def bind(self, make: Callable[[Store], T]) -> T:
        """What `make` makes of this store, such as a keyspace. The same function gives the same object."""
        made: T | None = self._made.get(make)
        if made is None:
            made = self._made.setdefault(make, make(self.store))
        return made


class _Held(NamedTuple):
    shared: SharedStore
    generator: AsyncGenerator[SharedStore, None]  # if it were garbage-collected, the store would be closed


_synchronous: Final[dict[str, SharedStore]] = {}  # by URL; in a forked process, each opens anew
_of_loops: Final[dict[asyncio.AbstractEventLoop, dict[str, asyncio.Task[_Held]]]] = {}


def synchronous_store(url: str) -> SharedStore:
    """The store of this URL for synchronous callers, one in each process. Its first use opens it.

    Raises BadUrl or MissingExtra.
    """
    shared = _synchronous.get(url)
    if shared is None:
        made = SharedStore(connect(url))
        with _lock:  # threads that race get the same one
            shared = _synchronous.setdefault(url, made)
    return shared


async def store_of_loop(url: str) -> SharedStore:
    """The open store of this URL for the running event loop. Raises the error of `connect` or `open`.

    A failed opening is not remembered: the next call tries again.
    """
    loop = asyncio.get_running_loop()
    openings = _of_loops.get(loop)
    if openings is None:
        openings = _openings_of(loop)
    task = openings.get(url)
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = openings[url] = loop.create_task(_open(url))
    if task.done():
        return task.result().shared
    return (await asyncio.shield(task)).shared  # a cancelled caller does not stop the opening that others wait for


def wait_blocking(work: Awaitable[T]) -> T:
    """As `wait`, also within a running event loop, which it blocks for the round trip.

    For libraries that call synchronous code from asynchronous views. Another thread waits.
    """
    if asyncio._get_running_loop() is None:
        return wait(work)
    outcome: list[Any] = []
    thread = threading.Thread(target=_wait_into, args=(work, outcome), name="keystead-wait")
    thread.start()
    thread.join()
    result, error = outcome
    if error is not None:
        raise error
    return cast("T", result)


def _wait_into(work: Awaitable[Any], outcome: list[Any]) -> None:
    try:
        outcome += [wait(work), None]
    except BaseException as error:
        outcome += [None, error]


def _openings_of(loop: asyncio.AbstractEventLoop) -> dict[str, asyncio.Task[_Held]]:
    with _lock:
        for ended in [one for one in _of_loops if one.is_closed()]:  # without a shutdown: its stores warn
            del _of_loops[ended]
        return _of_loops.setdefault(loop, {})


async def _open(url: str) -> _Held:
    generator = _hold_open(url)
    return _Held(await anext(generator), generator)


async def _hold_open(url: str) -> AsyncGenerator[SharedStore, None]:
    """Yields the open store, once. The event loop closes its generators when it shuts down, and so the store.

    `asyncio.run`, `async_to_sync` and the ASGI servers all do that. No hook of Django runs in the loop at its end.
    """
    async with connect(url) as store:
        try:
            yield SharedStore(store)
        finally:
            with _lock:
                _of_loops.pop(asyncio.get_running_loop(), None)
