"""Django's cache on any store of Keystead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.core.cache.backends.base import (
    DEFAULT_TIMEOUT,
    BaseCache,
    InvalidCacheBackendError,
    InvalidCacheKey,
    default_key_func,
)

from keystead import wait
from keystead.integrations.django.cache_entries import MISSING, CacheEntries, Entry
from keystead.integrations.django.cache_keys import NEVER_MS
from keystead.integrations.loop_stores import store_of_loop, synchronous_store, wait_blocking

_OPTIONS: Final = frozenset({"MAX_ENTRIES", "CULL_FREQUENCY"})


class KeysteadCache(BaseCache):  # type: ignore[misc]  # Django has no types
    """A cache backend, for `CACHES`: `{"BACKEND": "keystead.integrations.django.KeysteadCache", "LOCATION": …}`.

    LOCATION     the URL of a store: `redis://localhost:6379/0`, `sqlite:///cache.db`
    TIMEOUT, KEY_PREFIX, VERSION, KEY_FUNCTION   as Django documents them. MAX_ENTRIES and CULL_FREQUENCY have no
                 effect: entries expire in the store

    `add`, `incr`, `decr` and `touch` are atomic. `get_many`, `set_many` and `delete_many` are one round trip. `clear`
    deletes only the entries of its KEY_PREFIX. Values are stored as JSON, never as pickle; `BadValue` is raised for a
    type that cannot be stored. Any number of threads may use it, and forked processes.
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        unknown = set(params.get("OPTIONS") or {}) - _OPTIONS
        # Raised by its first use, because Django makes each cache before it checks the settings.
        self.problem = f"KeysteadCache has no option {min(unknown)!r}; put it into LOCATION" if unknown else None
        self._location = location
        self._prefix = str(self.key_prefix) or None

    # --- where entries are ---------------------------------------------------------------------------------

    @property
    def _url(self) -> str:
        if self.problem is not None:
            raise InvalidCacheBackendError(self.problem)
        return self._location

    def _here(self) -> CacheEntries:
        """The entries, for synchronous callers."""
        return synchronous_store(self._url).bind(CacheEntries)

    async def _in_loop(self) -> CacheEntries:
        """The entries, in the store of the running event loop."""
        return (await store_of_loop(self._url)).bind(CacheEntries)

    def _entry(self, entries: CacheEntries, key: Any, version: Any) -> Entry:
        """The entry of a key of Django. Raises InvalidCacheKey for an empty one."""
        made = self.make_and_validate_key(key, version=version)
        if str(key if self._has_default_keys else made) == "":
            raise InvalidCacheKey("a cache key needs at least one character")
        if self._has_default_keys:
            return entries.keys.entry(str(self.version if version is None else version), str(key), self._prefix)
        return entries.keys.made(made, self._prefix)

    @property
    def _has_default_keys(self) -> bool:
        return self.key_func is default_key_func and type(self).make_key is BaseCache.make_key

    def _ms(self, timeout: Any) -> int:
        """A timeout of Django in ms; at most 0: already expired."""
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return NEVER_MS if timeout is None else min(NEVER_MS, math.ceil(timeout * 1000))

    # --- each operation, for both kinds of callers ---------------------------------------------------------

    def get(self, key: Any, default: Any = None, version: Any = None) -> Any:
        return wait(self._get(self._here(), key, default, version))

    async def aget(self, key: Any, default: Any = None, version: Any = None) -> Any:
        return await self._get(await self._in_loop(), key, default, version)

    async def _get(self, entries: CacheEntries, key: Any, default: Any, version: Any) -> Any:
        value = await entries.get(self._entry(entries, key, version))
        return default if value is MISSING else value

    def get_many(self, keys: Iterable[Any], version: Any = None) -> dict[Any, Any]:
        """One round trip."""
        return wait(self._get_many(self._here(), keys, version))

    async def aget_many(self, keys: Iterable[Any], version: Any = None) -> dict[Any, Any]:
        return await self._get_many(await self._in_loop(), keys, version)

    async def _get_many(self, entries: CacheEntries, keys: Iterable[Any], version: Any) -> dict[Any, Any]:
        wanted = list(keys)
        values = await entries.get_many([self._entry(entries, key, version) for key in wanted])
        return {key: value for key, value in zip(wanted, values, strict=True) if value is not MISSING}

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> None:
        wait(self._set_many(self._here(), {key: value}, timeout, version))

    async def aset(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> None:
        await self._set_many(await self._in_loop(), {key: value}, timeout, version)

    def set_many(self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> list[Any]:
        """One round trip. The list of keys that failed is always empty: a failure raises."""
        return wait(self._set_many(self._here(), data, timeout, version))

    async def aset_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: Any = None
    ) -> list[Any]:
        return await self._set_many(await self._in_loop(), data, timeout, version)

    async def _set_many(self, entries: CacheEntries, data: Mapping[Any, Any], timeout: Any, version: Any) -> list[Any]:
        values = [(self._entry(entries, key, version), value) for key, value in data.items()]
        await entries.set_many(values, self._ms(timeout))
        return []

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return wait(self._add(self._here(), key, value, timeout, version))

    async def aadd(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return await self._add(await self._in_loop(), key, value, timeout, version)

    async def _add(self, entries: CacheEntries, key: Any, value: Any, timeout: Any, version: Any) -> bool:
        return await entries.add(self._entry(entries, key, version), value, self._ms(timeout))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return wait(self._touch(self._here(), key, timeout, version))

    async def atouch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return await self._touch(await self._in_loop(), key, timeout, version)

    async def _touch(self, entries: CacheEntries, key: Any, timeout: Any, version: Any) -> bool:
        return await entries.touch(self._entry(entries, key, version), self._ms(timeout))

    def delete(self, key: Any, version: Any = None) -> bool:
        return any(wait(self._delete_many(self._here(), [key], version)))

    async def adelete(self, key: Any, version: Any = None) -> bool:
        return any(await self._delete_many(await self._in_loop(), [key], version))

    def delete_many(self, keys: Iterable[Any], version: Any = None) -> None:
        """One round trip."""
        wait(self._delete_many(self._here(), keys, version))

    async def adelete_many(self, keys: Iterable[Any], version: Any = None) -> None:
        await self._delete_many(await self._in_loop(), keys, version)

    async def _delete_many(self, entries: CacheEntries, keys: Iterable[Any], version: Any) -> list[bool]:
        return await entries.delete_many([self._entry(entries, key, version) for key in keys])

    def has_key(self, key: Any, version: Any = None) -> bool:
        return wait(self._has_key(self._here(), key, version))

    async def ahas_key(self, key: Any, version: Any = None) -> bool:
        return await self._has_key(await self._in_loop(), key, version)

    async def _has_key(self, entries: CacheEntries, key: Any, version: Any) -> bool:
        return await entries.exists(self._entry(entries, key, version))

    def __contains__(self, key: Any) -> bool:
        # There is no asynchronous `in`, and Django's own `cached_db` sessions use this one in asynchronous code.
        return wait_blocking(self._has_key(self._here(), key, None))

    def incr(self, key: Any, delta: Any = 1, version: Any = None) -> Any:
        """Atomic, and the timeout stays. Raises ValueError if there is no entry, TypeError if it is not a number."""
        return wait(self._incr(self._here(), key, delta, version))

    async def aincr(self, key: Any, delta: Any = 1, version: Any = None) -> Any:
        return await self._incr(await self._in_loop(), key, delta, version)

    async def _incr(self, entries: CacheEntries, key: Any, delta: Any, version: Any) -> Any:
        value = await entries.increment(self._entry(entries, key, version), delta)
        if value is MISSING:
            raise ValueError(f"there is no key {key!r} in the cache")
        return value

    def clear(self) -> None:
        """Delete every entry of this KEY_PREFIX, of all versions. Nothing else in the store is touched."""
        wait(self._here().clear(self._prefix))

    async def aclear(self) -> None:
        await (await self._in_loop()).clear(self._prefix)
