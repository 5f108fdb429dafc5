"""Lists, with the semantics of Redis. An item has a place; places are ordered, and may have gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.errors import BadArgument
from keystead.stores.commands import Call, Reply
from keystead.stores.sql.key_tables import LIST, KeyRow, KeyTables, span

if TYPE_CHECKING:
    from collections.abc import Callable


def lpush(tables: KeyTables, call: Call) -> Reply:
    return _push(tables, call, "min(place)", -1)


def rpush(tables: KeyTables, call: Call) -> Reply:
    return _push(tables, call, "max(place)", +1)


def _push(tables: KeyTables, call: Call, end: str, step: int) -> int:
    key, *items = call.args
    row = tables.holding(key, LIST)
    if row is None:
        owner, size, place = tables.create(key, LIST), 0, 0
    else:
        owner, size = row.id, row.size
        place = tables.execute(f"SELECT {end} FROM items WHERE owner = ?", (owner,)).fetchone()[0]  # noqa: S608
    for item in items:
        place += step
        tables.later("INSERT INTO items (owner, place, item) VALUES (?, ?, ?)", (owner, place, item))
    tables.resize(key, owner, size + len(items))
    return size + len(items)


def lpop(tables: KeyTables, call: Call) -> Reply:
    return _pop(tables, call, "place")


def rpop(tables: KeyTables, call: Call) -> Reply:
    return _pop(tables, call, "place DESC")


def _pop(tables: KeyTables, call: Call, order: str) -> Reply:
    key = call.args[0]
    row = tables.holding(key, LIST)
    if row is None:
        return None
    found = tables.execute(
        f"SELECT place, item FROM items WHERE owner = ? ORDER BY {order} LIMIT ?",  # noqa: S608
        (row.id, 1 if call.options is None else min(call.options, row.size)),
    ).fetchall()
    _remove(tables, key, row, [place for place, _ in found])
    return found[0][1] if call.options is None else [item for _, item in found]


def _remove(tables: KeyTables, key: bytes, row: KeyRow, places: list[int]) -> None:
    for place in places:
        tables.later("DELETE FROM items WHERE owner = ? AND place = ?", (row.id, place))
    if places:
        tables.resize(key, row.id, row.size - len(places))


def _slice(tables: KeyTables, row: KeyRow, first: int, count: int) -> list[tuple[int, bytes]]:
    """Places and items of an index range, read from the nearer end."""
    after = row.size - first - count
    order, offset = ("place", first) if first <= after else ("place DESC", after)
    found = tables.execute(
        f"SELECT place, item FROM items WHERE owner = ? ORDER BY {order} LIMIT ? OFFSET ?",  # noqa: S608
        (row.id, count, offset),
    ).fetchall()
    return found if first <= after else found[::-1]


def lrange(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], LIST)
    return [] if row is None else [item for _, item in _slice(tables, row, *span(call.options, row.size))]


def llen(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], LIST)
    return 0 if row is None else row.size


def ltrim(tables: KeyTables, call: Call) -> Reply:
    key = call.args[0]
    row = tables.holding(key, LIST)
    if row is None:
        return b"OK"
    first, count = span(call.options, row.size)
    if count == 0:
        tables.delete(key)
    elif count < row.size:
        [(low, _)] = _slice(tables, row, first, 1)
        [(high, _)] = _slice(tables, row, first + count - 1, 1)
        tables.later("DELETE FROM items WHERE owner = ? AND place < ?", (row.id, low))
        tables.later("DELETE FROM items WHERE owner = ? AND place > ?", (row.id, high))
        tables.resize(key, row.id, count)
    return b"OK"


def lrem(tables: KeyTables, call: Call) -> Reply:
    key, _, item = call.args
    row = tables.holding(key, LIST)
    if row is None:
        return 0
    count: int = call.options
    found = tables.execute(
        f"SELECT place FROM items WHERE owner = ? AND item = ? ORDER BY place {'DESC' if count < 0 else ''} LIMIT ?",  # noqa: S608
        (row.id, item, min(abs(count), row.size) or row.size),
    ).fetchall()
    _remove(tables, key, row, [place for [place] in found])
    return len(found)


def _at(tables: KeyTables, row: KeyRow | None, index: int) -> tuple[int, bytes] | None:
    if row is None or not -row.size <= index < row.size:
        return None
    return _slice(tables, row, index % row.size, 1)[0]


def lindex(tables: KeyTables, call: Call) -> Reply:
    found = _at(tables, tables.holding(call.args[0], LIST), call.options)
    return None if found is None else found[1]


def lset(tables: KeyTables, call: Call) -> Reply:
    key, _, item = call.args
    row = tables.holding(key, LIST)
    found = _at(tables, row, call.options)
    if row is None or found is None:
        raise BadArgument("there is no such list" if row is None else "the index is out of range")
    tables.later("UPDATE items SET item = ? WHERE owner = ? AND place = ?", (item, row.id, found[0]))
    return b"OK"


HANDLERS: dict[str, Callable[[KeyTables, Call], Reply]] = {
    "LPUSH": lpush,
    "RPUSH": rpush,
    "LPOP": lpop,
    "RPOP": rpop,
    "LRANGE": lrange,
    "LLEN": llen,
    "LTRIM": ltrim,
    "LREM": lrem,
    "LINDEX": lindex,
    "LSET": lset,
}
