"""Litestar's `Store` on any store of Keystead."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from litestar.stores.base import NamespacedStore

from keystead import Keyspace, Store, Value, until
from keystead.integrations.loop_stores import SharedStore, store_of_loop
from keystead.schema.kinds import ValueKey

_NEVER_MS: Final = 100 * 365 * 86_400_000  # of an entry without `expires_in`: a hundred years
_AT_ONCE: Final = 500


class LitestarKeys(Keyspace):
    """The entries of Litestar's stores."""

    entry = Value(
        "litestar:{namespace}:{name<=200}",
        bytes,
        lifetime=until("expiry"),
        doc="an entry, by its namespace, of which the parts are joined by slashes, and its name",
    )


class KeysteadStore(NamespacedStore):
    """A store for Litestar: `Litestar(stores={"sessions": KeysteadStore("redis://localhost:6379/0", "sessions")})`.

    store       the URL of a store, which is opened by its first use and closed when the event loop shuts down; or an
                open store
    namespace   entries of different namespaces never meet; `delete_all` deletes those of this one and of its children

    With `renew_for`, `get` extends an entry only while it is there: an entry that is deleted meanwhile stays deleted.
    """

    __slots__ = ("_namespace", "_shared", "_url")

    def __init__(self, store: str | Store, namespace: str = "app") -> None:
        self._url = store if isinstance(store, str) else ""
        self._shared = None if isinstance(store, str) else SharedStore(store)
        self._namespace = quote(namespace, safe="")

    @property
    def namespace(self) -> str:
        """The escaped names from the outermost one on, joined by slashes."""
        return self._namespace

    def with_namespace(self, namespace: str) -> KeysteadStore:
        """A child namespace: `delete_all` of this one includes it, nothing else does."""
        child = KeysteadStore(self._url)
        child._shared = self._shared
        child._namespace = f"{self._namespace}/{quote(namespace, safe='')}"
        return child

    async def _keys(self) -> LitestarKeys:
        return (self._shared or await store_of_loop(self._url)).bind(LitestarKeys)

    async def _entry(self, key: str) -> ValueKey[bytes]:
        return (await self._keys()).entry(self._namespace, key)

    async def set(self, key: str, value: str | bytes, expires_in: int | timedelta | None = None) -> None:
        """One round trip. An entry that expires in no time at all is deleted."""
        entry, lasting_ms = await self._entry(key), _ms(expires_in)
        data = value.encode() if isinstance(value, str) else value
        await (entry.lasting(lasting_ms).set(data) if lasting_ms > 0 else entry.delete())

    async def get(self, key: str, renew_for: int | timedelta | None = None) -> bytes | None:
        """One round trip; with `renew_for` a second one, if the entry expires at all."""
        entry = await self._entry(key)
        if renew_for is None:
            return await entry.get()
        value, left_ms = await (await self._keys()).run(entry.get(), entry.left_ms())
        if value is not None and _expires(left_ms):
            await entry.lasting(max(1, _ms(renew_for))).touch()
        return value

    async def delete(self, key: str) -> None:
        await (await self._entry(key)).delete()

    async def delete_all(self) -> None:
        """Delete the entries of this namespace and of its children. It scans the keys in small steps."""
        keys = await self._keys()
        page: list[Any] = []
        async for entry in keys.entry.scan(_AT_ONCE):
            named = entry.values["namespace"]
            if named == self._namespace or named.startswith(f"{self._namespace}/"):
                page.append(entry.delete())
            if len(page) == _AT_ONCE:
                await keys.run(*page)
                page = []
        if page:
            await keys.run(*page)

    async def exists(self, key: str) -> bool:
        return await (await self._entry(key)).exists()

    async def expires_in(self, key: str) -> int | None:
        """In seconds; -1: never. None: there is no such entry."""
        left_ms = await (await self._entry(key)).left_ms()
        if left_ms < 0:
            return None
        return left_ms // 1000 if _expires(left_ms) else -1


def _ms(duration: float | timedelta | None) -> int:
    if duration is None:
        return _NEVER_MS
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return min(_NEVER_MS // 2, math.ceil(seconds * 1000))


def _expires(left_ms: int) -> bool:
    return 0 <= left_ms <= _NEVER_MS // 2
