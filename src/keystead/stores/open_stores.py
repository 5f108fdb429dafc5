"""The open stores of this process: closed at exit, and opened anew in a forked process."""

from __future__ import annotations

import asyncio
import atexit
import os
import warnings
import weakref
from _thread import get_ident
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from keystead.errors import KeysteadError
from keystead.stores.synchronous import close_before, is_synchronous_loop, keep_for_parent
from keystead.stores.worker_thread import join_stopped

if TYPE_CHECKING:
    from keystead.stores.store_contract import Store

EXIT_WAITS_S = 1.0  # at most, for closing the connections of stores that were left open

_Opening: TypeAlias = Callable[[Any], Coroutine[Any, Any, None]]
_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def record_open(open_: _Opening) -> _Opening:
    """`open` of a store, which records the event loop."""

    @wraps(open_)
    async def open_here(store: Store) -> None:
        store._check_loop()
        await open_(store)
        store._opened_in, store._opened_thread = asyncio.get_running_loop(), get_ident()
        store._loop_runs = store._opened_in.is_running
        store._is_synchronous, store._was_closed = is_synchronous_loop(store._opened_in), False
        _open_stores.add(store)

    return open_here


def record_close(close: _Opening) -> _Opening:
    """`close` of a store, which forgets the event loop."""

    @wraps(close)
    async def close_here(store: Store) -> None:
        store._check_loop()
        try:
            await close(store)
        finally:
            store._opened_in, store._opened_thread, store._was_closed = None, 0, True
            _open_stores.discard(store)

    return close_here


def _disown_stores() -> None:
    """In a forked process, do not use, warn about or close the stores of the parent.

    The stores of synchronous callers start anew with their first use here.
    """
    for store in list(_open_stores):
        store._opened_thread = 0
        if store._is_synchronous and (remake := store.remake) is not None:
            keep_for_parent(dict(vars(store)))
            vars(store).clear()
            vars(store).update(vars(remake()), remake=remake)
    _open_stores.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_disown_stores)


async def _close_before_exit() -> None:
    """Close the stores of synchronous callers."""
    loop = asyncio.get_running_loop()
    for store in [store for store in _open_stores if store._opened_in is loop]:
        with suppress(KeysteadError):
            await store.close()


async def _close_before_fork() -> None:
    """Close those of them whose files must not be open in two processes. Their next use opens them, in each."""
    loop = asyncio.get_running_loop()
    for store in [store for store in _open_stores if store._opened_in is loop and store.closes_before_fork]:
        await store.close()
        store._was_closed = False


close_before("exit", _close_before_exit)
close_before("fork", _close_before_fork)


@atexit.register
def _close_at_exit() -> None:
    """Runs before modules and threads are torn down, while warnings and an orderly close still work."""
    left = [store for store in _open_stores if store._opened_in is not None]
    for store in left:
        with suppress(ResourceWarning):  # if warnings are errors, the exit continues
            store._leave()
    if left:
        # asyncio would repeat the warning for each of their connections.
        warnings.filterwarnings("ignore", "unclosed transport", ResourceWarning)
        join_stopped(EXIT_WAITS_S)
