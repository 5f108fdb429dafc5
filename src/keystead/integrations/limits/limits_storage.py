"""The storage classes of the `limits` library on any store of Keystead."""

from __future__ import annotations

from typing import Any, Final

from limits.aio.storage import MovingWindowSupport as AsyncMovingWindow
from limits.aio.storage import SlidingWindowCounterSupport as AsyncSlidingWindow
from limits.aio.storage import Storage as AsyncStorage
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage
from limits.storage.base import TimestampedSlidingWindow

from keystead.errors import BadUrl, StoreError
from keystead.integrations.limits.limits_counts import LimitsCounts
from keystead.integrations.loop_stores import store_of_loop, synchronous_store, wait_blocking
from keystead.stores.store_urls import SCHEMES

_SYNC: Final = "keystead+"
_ASYNC: Final = "async+keystead+"


class KeysteadStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """For `limits`, Flask-Limiter and slowapi: `keystead+redis://localhost:6379/0`, `keystead+sqlite:///limits.db`.

    After `keystead+` comes the URL of a store. All strategies: fixed window, moving window, sliding window counter; no
    limit is exceeded, however many requests arrive at once. Safe for threads and forked processes. With slowapi an
    asynchronous view blocks its event loop for the round trip, as with every storage.
    """

    STORAGE_SCHEME: list[str] | None = [_SYNC + scheme for scheme in SCHEMES]  # noqa: RUF012 - as limits has it

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions, **options)
        _refuse_options(options)
        self._url = uri.removeprefix(_SYNC)
        self._counts()  # a wrong URL is an error now

    @property
    def base_exceptions(self) -> type[Exception]:
        return StoreError

    def _counts(self) -> LimitsCounts:
        return synchronous_store(self._url).bind(LimitsCounts)

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return wait_blocking(self._counts().increment(key, expiry, amount))

    def get(self, key: str) -> int:
        return wait_blocking(self._counts().count(key))

    def get_expiry(self, key: str) -> float:
        return wait_blocking(self._counts().ends_at(key))

    def check(self) -> bool:
        try:
            return wait_blocking(self._counts().check())
        except StoreError:
            return False

    def reset(self) -> int:
        return wait_blocking(self._counts().reset())

    def clear(self, key: str) -> None:
        wait_blocking(self._counts().clear(key))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return wait_blocking(self._counts().acquire(key, limit, expiry, amount))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        return wait_blocking(self._counts().window(key, expiry))

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return wait_blocking(self._counts().acquire_counted(key, limit, expiry, amount))

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return wait_blocking(self._counts().counted(key, expiry))

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        wait_blocking(self._counts().clear_counted(key, expiry))


class AsyncKeysteadStorage(AsyncStorage, AsyncMovingWindow, AsyncSlidingWindow, TimestampedSlidingWindow):
    """The same for asynchronous programs: `async+keystead+redis://localhost:6379/0`.

    The store is opened by its first use, and closed when the event loop shuts down.
    """

    STORAGE_SCHEME: list[str] | None = [_ASYNC + scheme for scheme in SCHEMES]  # noqa: RUF012 - as limits has it

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions, **options)
        _refuse_options(options)
        self._url = uri.removeprefix(_ASYNC)

    @property
    def base_exceptions(self) -> type[Exception]:
        return StoreError

    async def _counts(self) -> LimitsCounts:
        return (await store_of_loop(self._url)).bind(LimitsCounts)

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        return await (await self._counts()).increment(key, expiry, amount)

    async def get(self, key: str) -> int:
        return await (await self._counts()).count(key)

    async def get_expiry(self, key: str) -> float:
        return await (await self._counts()).ends_at(key)

    async def check(self) -> bool:
        try:
            return await (await self._counts()).check()
        except StoreError:
            return False

    async def reset(self) -> int:
        return await (await self._counts()).reset()

    async def clear(self, key: str) -> None:
        await (await self._counts()).clear(key)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await (await self._counts()).acquire(key, limit, expiry, amount)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        return await (await self._counts()).window(key, expiry)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await (await self._counts()).acquire_counted(key, limit, expiry, amount)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return await (await self._counts()).counted(key, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        await (await self._counts()).clear_counted(key, expiry)


def _refuse_options(options: dict[str, Any]) -> None:
    if options:
        raise BadUrl(f"the storage has no option {min(options)!r}; put it into the URL, as in ?timeout=2s")
