"""Strings and numbers, as Redis means them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.errors import NotANumber
from keystead.stores.commands import INT64_MAX, INT64_MIN, PLAIN_SET, Call, Reply, integer
from keystead.stores.sql.tables import STRING, Tables, wrong_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from keystead.stores.commands import GetExOptions, SetOptions


# The plus keeps SQLite from searching by key: the id finds the row, the rest makes sure of it.
_KNOWN = "SELECT expires_at, value FROM keys WHERE id = ? AND +key = ? AND kind = 1"
# Of a key that does not expire, and shall not: SQLite need not look at the index of deadlines.
_CHANGE_LASTING = "UPDATE keys SET value = ? WHERE id = ? AND +key = ? AND kind = 1 AND expires_at IS NULL"
_CHANGE_KNOWN = "UPDATE keys SET value = ?, expires_at = ? WHERE id = ? AND +key = ? AND kind = 1"


def get(tables: Tables, call: Call) -> Reply:
    # The hottest read of all: the row is looked at here, not through `holding`.
    key = call.args[0]
    known = tables.string_ids.get(key)
    if known is not None:
        found = tables.execute(_KNOWN, (known, key)).fetchone()
        if found is not None:
            expires_at, value = found
            return value if expires_at is None or expires_at > tables.now_ms else None
    row = tables.holding(key, STRING)
    if row is None:
        return None
    tables.remember(key, row.id)
    return tables.value(row)


def mget(tables: Tables, call: Call) -> Reply:
    rows = (tables.live(key) for key in call.args)
    return [tables.value(row) if row is not None and row.kind == STRING else None for row in rows]


_PUT = (
    "INSERT INTO keys (key, kind, value, expires_at) VALUES (?, 1, ?, ?) ON CONFLICT (key) DO UPDATE"
    " SET value = excluded.value, expires_at = excluded.expires_at WHERE kind = 1 RETURNING id"
)


def put(tables: Tables, key: bytes, value: bytes, expires_at: int | None) -> None:
    """Set a string, whatever was there."""
    known = tables.string_ids.get(key)
    if known is not None:
        if expires_at is None and tables.execute(_CHANGE_LASTING, (value, known, key)).rowcount:
            return
        if tables.execute(_CHANGE_KNOWN, (value, expires_at, known, key)).rowcount:
            return
    found = tables.execute(_PUT, (key, value, expires_at)).fetchone()
    # Nothing is found where a collection is in its place.
    tables.remember(key, tables.create(key, STRING, value, expires_at) if found is None else found[0])


def change_lasting(tables: Tables, changes: list[tuple[bytes, int, bytes]]) -> int:
    """Give strings that do not expire new values (each with its id and key); how many were found."""
    return tables.executemany(_CHANGE_LASTING, changes).rowcount


def set_(tables: Tables, call: Call) -> Reply:
    key, value = call.args[0], call.args[1]
    options: SetOptions = call.options
    if options is PLAIN_SET:
        put(tables, key, value, None)
        return b"OK"
    expires_at = options.deadline.at_ms(tables.now_ms) if options.deadline else None
    if not (options.only_if or options.get or options.keep_ttl):
        put(tables, key, value, expires_at)
        return b"OK"
    row = tables.live(key)
    if options.get and row is not None and row.kind != STRING:
        raise wrong_kind(row.kind, STRING)
    held = tables.value(row) if options.get and row is not None else None
    allowed = not options.only_if or (options.only_if == b"XX") == (row is not None)
    if allowed:
        put(tables, key, value, row.expires_at if options.keep_ttl and row is not None else expires_at)
    if options.get:
        return held
    return b"OK" if allowed else None


def getdel(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], STRING)
    if row is None:
        return None
    value = tables.value(row)
    tables.delete(call.args[0])
    return value


def getex(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], STRING)
    if row is None:
        return None
    options: GetExOptions = call.options
    if options.deadline is not None:
        tables.set_deadline(row.id, options.deadline.at_ms(tables.now_ms))
    elif options.persist:
        tables.set_deadline(row.id, None)
    return tables.value(row)


def added(held: bytes | None, amount: int) -> int:
    """A stored number plus an amount, within 64 bits."""
    try:
        total = integer(b"0" if held is None else held) + amount
    except NotANumber:
        raise NotANumber("the stored value is not an integer of 64 bits") from None
    if not INT64_MIN <= total <= INT64_MAX:
        raise NotANumber("the result would not fit 64 bits")
    return total


def incrby(tables: Tables, call: Call) -> Reply:
    key = call.args[0]
    row = tables.holding(key, STRING)
    total = added(None if row is None else tables.value(row), call.options)
    if row is None:
        put(tables, key, b"%d" % total, None)
    else:
        tables.execute("UPDATE keys SET value = ? WHERE id = ?", (b"%d" % total, row.id))
    return total


HANDLERS: dict[str, Callable[[Tables, Call], Reply]] = {
    "GET": get,
    "MGET": mget,
    "SET": set_,
    "GETDEL": getdel,
    "GETEX": getex,
    "INCRBY": incrby,
    "DECRBY": incrby,
}
