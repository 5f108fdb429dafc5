"""Strings and numbers, with the semantics of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.errors import NotANumber, StoredNotANumber, WrongKind
from keystead.stores.command_options import PLAIN_SET
from keystead.stores.commands import INT64_MAX, INT64_MIN, Call, Reply, integer
from keystead.stores.sql.key_tables import STRING, StringKeys, wrong_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from keystead.stores.command_options import GetExOptions, SetOptions


def get(tables: StringKeys, call: Call) -> Reply:
    return tables.string(call.args[0])


def mget(tables: StringKeys, call: Call) -> Reply:
    return [_string_or_none(tables, key) for key in call.args]


def _string_or_none(tables: StringKeys, key: bytes) -> bytes | None:
    """GET for each key, which finds a cached string in one search; a key of another kind counts as missing."""
    try:
        return tables.string(key)
    except WrongKind:
        return None


def set_(tables: StringKeys, call: Call) -> Reply:
    key, value = call.args[0], call.args[1]
    options: SetOptions = call.options
    if options is PLAIN_SET:
        tables.put(key, value, None)
        return b"OK"
    expires_at = options.deadline.at_ms(tables.now_ms) if options.deadline else None
    if not (options.only_if or options.get or options.keep_ttl):
        tables.put(key, value, expires_at)
        return b"OK"
    row = tables.live(key)
    if options.get and row is not None and row.kind != STRING:
        raise wrong_kind(row.kind, STRING)
    held = tables.value(key, row) if options.get and row is not None else None
    allowed = not options.only_if or (options.only_if == b"XX") == (row is not None)
    if allowed:
        tables.put(key, value, row.expires_at if options.keep_ttl and row is not None else expires_at)
    if options.get:
        return held
    return b"OK" if allowed else None


def getdel(tables: StringKeys, call: Call) -> Reply:
    key = call.args[0]
    row = tables.holding(key, STRING)
    if row is None:
        return None
    value = tables.value(key, row)
    tables.delete(key)
    return value


def getex(tables: StringKeys, call: Call) -> Reply:
    key = call.args[0]
    row = tables.holding(key, STRING)
    if row is None:
        return None
    options: GetExOptions = call.options
    if options.deadline is not None:
        tables.set_deadline(key, row, options.deadline.at_ms(tables.now_ms))
    elif options.persist:
        tables.set_deadline(key, row, None)
    return tables.value(key, row)


def add_amount(held: bytes | None, amount: int) -> int:
    """A stored number plus an amount, within 64 bits."""
    try:
        total = integer(b"0" if held is None else held) + amount
    except NotANumber:
        raise StoredNotANumber("the stored value is not an integer of 64 bits") from None
    if not INT64_MIN <= total <= INT64_MAX:
        raise NotANumber("the result would not fit 64 bits")
    return total


def incrby(tables: StringKeys, call: Call) -> Reply:
    key = call.args[0]
    row = tables.holding(key, STRING)
    total = add_amount(None if row is None else tables.value(key, row), call.options)
    if row is None:
        tables.put(key, b"%d" % total, None)
    else:
        tables.set_value(key, row, b"%d" % total)
    return total


HANDLERS: dict[str, Callable[[StringKeys, Call], Reply]] = {
    "GET": get,
    "MGET": mget,
    "SET": set_,
    "GETDEL": getdel,
    "GETEX": getex,
    "INCRBY": incrby,
    "DECRBY": incrby,
}
