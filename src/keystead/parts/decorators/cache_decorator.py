"""`@cache`: keep the results of a function in a family `Cached`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import wraps
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from keystead.errors import BadDeclaration
from keystead.parts.cache import Cache, CacheResult, LoadFailed
from keystead.parts.decorators.call_keys import CallKeys
from keystead.schema import Bound
from keystead.schema.kinds import ValueKey
from keystead.schema.lifetime import After, duration_ms, in_words
from keystead.stores.synchronous import wait

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CachedCall(Protocol[P, R_co]):
    """A synchronous function with `@cache`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Drop the result of this call, for all processes. False: there was none."""

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function now, and keep its result."""


class AsyncCachedCall(Protocol[P, R_co]):
    """An asynchronous function with `@cache`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...
    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, bool]:
        """Drop the result of this call, for all processes. False: there was none."""

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call the function now, and keep its result."""


class _Decorator(Protocol):
    @overload  # a coroutine is a result, too, so the order decides
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncCachedCall[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> CachedCall[P, R]: ...


def cache(
    family: Bound[ValueKey[Any]],
    *,
    ttl: str | timedelta | None = None,
    key: Callable[..., Any] | None = None,
    store_down: Literal["load", "raise"] = "load",
) -> _Decorator:
    """Keep the results of a function, synchronous or asynchronous, in a family `Cached`:

        @cache(keys.report)                       # report = Cached("report:{id:int}", Report, lifetime=after("5m"))
        def load_report(id: int) -> Report: ...

    ttl          keep them for a shorter time than the family declares
    key          the key of a call, from some of its parameters: `key=lambda user: user.id`. By default the parameters
                 have the names of the placeholders
    store_down   policy for store outages: `load` calls the function, `raise` raises the store's error

    Concurrent calls for one key run the function once, across all processes (single flight). If the family declares
    `stale`, an expired result is returned at once while the function runs in the background, a synchronous one in
    another thread. What the function raises is raised, unless there is a stale copy; until `retry` is over the calls
    after it raise LoadFailed. None is kept for `nothing`. Raises BadDeclaration if the parameters do not fit the key.
    """
    entries = _with_ttl(family, ttl)

    def decorate(function: Callable[..., Any]) -> Any:
        made = _CachedFunction(entries, function, key, store_down)
        if inspect.iscoroutinefunction(function):
            return made.asynchronous()
        return made.synchronous()

    return cast("_Decorator", decorate)


def _with_ttl(family: Bound[ValueKey[Any]], ttl: str | timedelta | None) -> Bound[ValueKey[Any]]:
    if not isinstance(family, Bound):
        raise BadDeclaration("@cache takes a family of a keyspace, as in @cache(keys.report)")
    if ttl is None:
        return family
    ttl_ms, longest_ms = duration_ms(ttl, "ttl"), family.family.lifetime.longest_ms
    if longest_ms is not None and ttl_ms > longest_ms:
        raise BadDeclaration(
            f"{family.family.place}: ttl= is {in_words(ttl_ms)}, but its lifetime is {in_words(longest_ms)}; declare a "
            "longer lifetime"
        )
    return family.holding(family.family.codec, After(ttl_ms))


class _CachedFunction:
    """A function and its cache."""

    def __init__(
        self,
        entries: Bound[ValueKey[Any]],
        function: Callable[..., Any],
        key: Callable[..., Any] | None,
        store_down: Literal["load", "raise"],
    ) -> None:
        declared = entries.family
        self._entries = entries
        self._function = function
        self._store_down: Literal["load", "raise"] = store_down
        self._keys = CallKeys(declared.place, declared.pattern.names, function, key, is_whole=True)
        self._made: tuple[asyncio.AbstractEventLoop | None, Cache[Any]] = (None, self._new_cache())

    def _new_cache(self) -> Cache[Any]:
        return Cache(self._entries, store_down=self._store_down)

    @property
    def _cache(self) -> Cache[Any]:
        """The cache of the running event loop: loads are tasks, which another loop, or a forked process, cannot wait
        for."""
        loop = asyncio.get_running_loop()
        made_for, cache = self._made
        if made_for is not loop:
            cache = cache if made_for is None else self._new_cache()
            self._made = loop, cache
        return cache

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ValueKey[Any]:
        return self._entries(**self._keys.values(args, kwargs))

    async def _invalidate(self, key: ValueKey[Any]) -> bool:
        return await self._cache.invalidate(key)

    def asynchronous(self) -> Any:
        function = self._function

        @wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            key = self._key(args, kwargs)
            return await _value(self._cache.answer_soon(key, lambda: function(*args, **kwargs)))

        async def refresh(*args: Any, **kwargs: Any) -> Any:
            key = self._key(args, kwargs)
            return await _value(_loaded(self._cache.refresh(key, lambda: function(*args, **kwargs))))

        async def invalidate(*args: Any, **kwargs: Any) -> bool:
            return await self._invalidate(self._key(args, kwargs))

        return _with_methods(call, invalidate, refresh)

    def synchronous(self) -> Any:
        function = self._function

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            key = self._key(args, kwargs)

            def in_thread() -> Awaitable[Any]:
                return asyncio.to_thread(function, *args, **kwargs)

            return _LoadByCaller(lambda load: self._cache.answer_soon(key, load, in_thread)).run(
                lambda: function(*args, **kwargs)
            )

        def refresh(*args: Any, **kwargs: Any) -> Any:
            key = self._key(args, kwargs)
            return _LoadByCaller(lambda load: _loaded(self._cache.refresh(key, load))).run(
                lambda: function(*args, **kwargs)
            )

        def invalidate(*args: Any, **kwargs: Any) -> bool:
            return wait(self._invalidate(self._key(args, kwargs)))

        return _with_methods(call, invalidate, refresh)


def _with_methods(call: Any, invalidate: Any, refresh: Any) -> Any:
    call.invalidate, call.refresh = invalidate, refresh
    return call


async def _loaded(value: Awaitable[Any]) -> CacheResult[Any]:
    return CacheResult(await value, "loaded")


async def _value(answer: Awaitable[CacheResult[Any]]) -> Any:
    try:
        return (await answer).value
    except LoadFailed as error:
        cause = error.__cause__
        if cause is None:
            raise
    raise cause  # what the function raised here, as without a cache


class _LoadByCaller:
    """One call of a synchronous function, which runs in the thread of its caller.

    The cache calls `_load` in the event loop. The caller, which waits for the answer, is told to run the function, and
    hands the result over. So the function may use what belongs to its thread, such as a database connection.
    """

    def __init__(self, ask: Callable[[Callable[[], Awaitable[Any]]], Awaitable[CacheResult[Any]]]) -> None:
        self._ask = ask
        self._is_abandoned = False

    def run(self, function: Callable[[], Any]) -> Any:
        is_answered, value = wait(self._start())
        while not is_answered:
            try:
                value, error = function(), None
            except Exception as raised:
                value, error = None, raised
            except BaseException:  # Ctrl-C: those who wait for the same load get LoadFailed
                wait(self._abandon())
                raise
            is_answered, value = wait(self._hand_over(value, error))
        return value

    async def _start(self) -> tuple[bool, Any]:
        self._wanted = asyncio.Event()
        self._loaded: asyncio.Future[Any] | None = None
        self._answer = asyncio.ensure_future(_value(self._ask(self._load)))
        return await self._next()

    async def _load(self) -> Any:
        if self._is_abandoned:
            raise asyncio.CancelledError
        self._loaded = asyncio.get_running_loop().create_future()
        self._wanted.set()
        return await self._loaded

    async def _hand_over(self, value: Any, error: Exception | None) -> tuple[bool, Any]:
        self._wanted.clear()
        loaded = self._loaded
        if loaded is not None and not loaded.done():  # done: it took too long
            if error is None:
                loaded.set_result(value)
            elif isinstance(error, StopIteration):  # no future can hold it
                loaded.set_exception(RuntimeError("the function raised StopIteration"))
            else:
                loaded.set_exception(error)
        return await self._next()

    async def _next(self) -> tuple[bool, Any]:
        """The answer; or that the caller must run the function."""
        wanted = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait((self._answer, wanted), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._abandon()
            raise
        finally:
            wanted.cancel()
        if self._answer.done():
            return True, self._answer.result()
        return False, None

    async def _abandon(self) -> None:
        self._is_abandoned = True
        self._answer.cancel()
        if self._loaded is not None:
            self._loaded.cancel()
