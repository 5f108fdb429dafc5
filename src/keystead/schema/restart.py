"""Restart of a lifetime by hand, and its undo, which yields to every write since."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from keystead.errors import BadCall, Unreadable
from keystead.schema import listing
from keystead.schema.clock import store_clock_ms
from keystead.schema.contention import attempts
from keystead.schema.doctor.guarded_changes import StoreGuard, change
from keystead.schema.family import Bound
from keystead.schema.pace import replies_of
from keystead.stores import Command, Required, still

_NO_DEADLINE: Final = -1
_NO_KEY: Final = -2


class Restart(NamedTuple):
    """The deadlines of a key before and after, in ms since 1970; -1: it had none."""

    before_ms: int
    after_ms: int


async def restart_lifetime(bound: Bound[Any], key: str) -> Restart | None:
    """Give a key its longest declared lifetime from now on; None: there is no such key. Its index entries follow.

    The deadline is compared and written in one atomic step, so `before_ms` is exactly what it replaced.
    """
    longest_ms = bound.family.lifetime.longest_ms
    if longest_ms is None:
        raise BadCall(f"{bound.family.place} has no lifetime that can start again")
    async for _ in attempts(bound.family.place):
        before_ms = await _deadline_ms(bound, key)
        if before_ms == _NO_KEY:
            return None
        after_ms = await store_clock_ms(bound.store) + longest_ms
        if await _write(bound, key, before_ms, ("PEXPIREAT", key, after_ms)):
            await _relist(bound, key, longest_ms)
            return Restart(before_ms, after_ms)
    raise AssertionError  # pragma: no cover - the last attempt raises Contended


async def undo_restart(bound: Bound[Any], key: str, done: Restart) -> bool:
    """Put the former deadline back. False: the deadline is another now, or the former one is over; nothing was done.

    So a record that was renewed, or deleted and created again, keeps the lifetime that it got since.
    """
    if done.before_ms == _NO_DEADLINE:
        return await _write(bound, key, done.after_ms, ("PERSIST", key))
    left_ms = done.before_ms - await store_clock_ms(bound.store)
    if left_ms <= 0 or not await _write(bound, key, done.after_ms, ("PEXPIREAT", key, done.before_ms)):
        return False
    await _relist(bound, key, left_ms)
    return True


async def _deadline_ms(bound: Bound[Any], key: str) -> int:
    [found] = await bound.store.run([("PEXPIRETIME", key)])
    return int(found)


async def _write(bound: Bound[Any], key: str, expected_ms: int, command: Command) -> bool:
    """Change the deadline, if it is still the expected one."""
    guard = StoreGuard(bound.store, still(("PEXPIRETIME", key), expected_ms))
    return await change(bound.store, [guard], [Required(command)])


async def _relist(bound: Bound[Any], key: str, left_ms: int) -> None:
    """Write its index entries for this lifetime: an index lives as long as its records, or is sorted by deadline."""
    if not bound.family.listed_in:
        return
    [raw] = await replies_of(bound.store, [bound.family.read_command(key)])
    try:
        value = bound.family.value_of(raw, key, bound.ring)
    except Unreadable:
        return
    if value is not None:
        await listing.relist(bound.lasting(left_ms), key, value)
