"""The operations of Django's cache on one store. `KeysteadCache` calls them, synchronously or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from keystead import Store, never
from keystead.errors import NotANumber, Unreadable
from keystead.integrations.django.cache_keys import DjangoCacheKeys
from keystead.integrations.django.value_codec import CACHED_NONE
from keystead.schema import Operation
from keystead.schema.kinds import ValueKey
from keystead.schema.kinds.counter import CounterKey
from keystead.schema.operation import combine
from keystead.schema.unreadable import log_unreadable

Entry: TypeAlias = ValueKey[Any]

MISSING: Final = object()
_CLEAR_AT_ONCE = 500
_LARGEST = 2**63 - 1


class CacheEntries:
    """The entries of a cache in one store. Timeouts are in ms; 0: already expired.

    Each method is one round trip and atomic for each key, unless it says otherwise. An entry that is unreadable counts
    as missing, and is logged. Raises BadValue, before anything is sent, for a value that cannot be stored.
    """

    def __init__(self, store: Store) -> None:
        self.keys = DjangoCacheKeys(store)
        keeps = never("an increment keeps the deadline")
        self._numbers = {
            bound.family: bound.holding(bound.family.codec, keeps) for bound in (self.keys.entry, self.keys.made)
        }

    async def get(self, entry: Entry) -> Any:
        """The value, or MISSING."""
        try:
            return _value_of(await entry.get())
        except Unreadable:  # it was logged
            return MISSING

    async def get_many(self, entries: Sequence[Entry]) -> list[Any]:
        """The values, in order; MISSING for each that is not there. One round trip."""
        if not entries:
            return []
        found = await self.keys.run_each(*[entry.get() for entry in entries])
        for one in found:
            if isinstance(one, Unreadable):
                log_unreadable(self.keys.entry.store, one)
            elif isinstance(one, BaseException):
                raise one
        return [MISSING if isinstance(one, Unreadable) else _value_of(one) for one in found]

    async def set_many(self, values: Sequence[tuple[Entry, Any]], timeout_ms: int) -> None:
        """One round trip."""
        if timeout_ms <= 0:
            for entry, value in values:
                entry.as_seen(value)  # refuses what cannot be stored
            await self.delete_many([entry for entry, _ in values])
        elif values:
            writes: list[Operation[Any]] = [entry.lasting(timeout_ms).set(value) for entry, value in values]
            await self.keys.run(*writes)

    async def add(self, entry: Entry, value: Any, timeout_ms: int) -> bool:
        """Whether there was no entry. Of several callers one gets True."""
        if timeout_ms <= 0:
            entry.as_seen(value)
            return not await entry.exists()
        return await entry.lasting(timeout_ms).add(value)

    async def touch(self, entry: Entry, timeout_ms: int) -> bool:
        """Whether there was an entry."""
        if timeout_ms <= 0:
            return await entry.delete()
        return await entry.lasting(timeout_ms).touch()

    async def delete_many(self, entries: Sequence[Entry]) -> list[bool]:
        return list(await self.keys.run(*[entry.delete() for entry in entries])) if entries else []

    async def exists(self, entry: Entry) -> bool:
        return await entry.exists()

    async def increment(self, entry: Entry, by: Any) -> Any:
        """The new value, or MISSING. It keeps its deadline.

        One round trip for 64-bit integers; several, with optimistic locking, for other numbers. Raises TypeError if the
        entry is not a number.
        """
        if type(by) is int and -_LARGEST <= by <= _LARGEST:
            number = CounterKey(self._numbers[entry.bound.family], entry.key)
            steps: list[Operation[Any]] = [entry.exists().required(), number.increment(by)]
            # An error is a result here, so that it is not logged: a float is no defect.
            [done] = await self.keys.run_each(combine("incr", steps, lambda _, total: total, stopped=MISSING))
            if not isinstance(done, NotANumber):  # which is also an integer that leaves 64 bits
                if isinstance(done, BaseException):
                    raise done
                return done
        try:
            changed = await entry.change(lambda value: _add(value, by))
        except Unreadable as error:
            log_unreadable(entry.bound.store, error)
            return MISSING
        return MISSING if changed is None else changed

    async def clear(self, prefix: str | None) -> None:
        """Delete the entries of this key prefix, of all versions; None: those without a prefix.

        It scans the keys in small steps, so other callers are served meanwhile.
        """
        for bound in (self.keys.entry, self.keys.made):
            page: list[Entry] = []
            async for entry in bound.scan(_CLEAR_AT_ONCE, prefix=prefix):
                page.append(entry)
                if len(page) == _CLEAR_AT_ONCE:
                    await self.delete_many(page)
                    page.clear()
            await self.delete_many(page)


def _value_of(found: Any) -> Any:
    if found is None:
        return MISSING
    return None if found is CACHED_NONE else found


def _add(value: Any, by: Any) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("this entry of the cache is not a number; only a number can be increased")
    return value + by
