"""The clock of a store: one for all processes that use it."""

from __future__ import annotations

from keystead.stores import Reply, Store


async def store_clock_ms(store: Store) -> int:
    """The clock of a store in ms since 1970. One round trip, which touches no key.

    Raises StoreUnavailable if the store does not answer, so it also serves as a health check.
    """
    return clock_ms(await store.run([("TIME",)]))


def clock_ms(replies: list[Reply]) -> int:
    """The time in the reply of TIME."""
    seconds, micros = replies[0]
    return int(seconds) * 1000 + int(micros) // 1000
