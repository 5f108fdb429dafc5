"""Hashes, as Redis means them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.stores.commands import Call, Reply
from keystead.stores.sql.strings import added
from keystead.stores.sql.tables import HASH, Tables

if TYPE_CHECKING:
    from collections.abc import Callable

_PUT = (
    "INSERT INTO fields (owner, field, value) VALUES (?, ?, ?)"
    " ON CONFLICT (owner, field) DO UPDATE SET value = excluded.value"
)
_GET = "SELECT value FROM fields WHERE owner = ? AND field = ?"
_ADD = "INSERT INTO fields (owner, field, value) VALUES (?, ?, ?) ON CONFLICT (owner, field) DO NOTHING"


def _owner(tables: Tables, key: bytes) -> tuple[int, int]:
    """The id and size of the hash, which is created where it is missing."""
    row = tables.holding(key, HASH)
    return (tables.create(key, HASH), 0) if row is None else (row.id, row.size)


def hset(tables: Tables, call: Call) -> Reply:
    key, *pairs = call.args
    owner, size = _owner(tables, key)
    new = 0
    for at in range(0, len(pairs), 2):
        entry = (owner, pairs[at], pairs[at + 1])
        if (
            size == 0
            or tables.execute("UPDATE fields SET value = ?3 WHERE owner = ?1 AND field = ?2", entry).rowcount == 0
        ):
            tables.execute(_PUT, entry)
            new += 1
    if size == 0 and new > 1:
        new = len(set(pairs[::2]))  # a field may be named twice
    if new:
        tables.resize(owner, key, size + new)
    return new


def hsetnx(tables: Tables, call: Call) -> Reply:
    key, field, value = call.args
    owner, size = _owner(tables, key)
    new = tables.execute(_ADD, (owner, field, value)).rowcount
    if new:
        tables.resize(owner, key, size + 1)
    return new


def hget(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    found = None if row is None else tables.execute(_GET, (row.id, call.args[1])).fetchone()
    return None if found is None else found[0]


def hmget(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    if row is None:
        return [None] * (len(call.args) - 1)
    found = (tables.execute(_GET, (row.id, field)).fetchone() for field in call.args[1:])
    return [None if value is None else value[0] for value in found]


def hgetall(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    if row is None:
        return {}
    return dict(tables.execute("SELECT field, value FROM fields WHERE owner = ?", (row.id,)).fetchall())


def hdel(tables: Tables, call: Call) -> Reply:
    key, *fields = call.args
    row = tables.holding(key, HASH)
    return 0 if row is None else remove_fields(tables, key, row.id, row.size, fields)


def remove_fields(tables: Tables, key: bytes, owner: int, size: int, fields: list[bytes]) -> int:
    """Remove fields of a hash or members of a set; the key goes with the last."""
    gone = sum(
        tables.execute("DELETE FROM fields WHERE owner = ? AND field = ?", (owner, field)).rowcount for field in fields
    )
    if gone:
        tables.resize(owner, key, size - gone)
    return gone


def hlen(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    return 0 if row is None else row.size


def hexists(tables: Tables, call: Call) -> Reply:
    return int(hget(tables, call) is not None)


def hincrby(tables: Tables, call: Call) -> Reply:
    key, field, _ = call.args
    row = tables.holding(key, HASH)
    found = None if row is None else tables.execute(_GET, (row.id, field)).fetchone()
    total = added(None if found is None else found[0], call.options)
    owner = tables.create(key, HASH) if row is None else row.id
    tables.execute(_PUT, (owner, field, b"%d" % total))
    if found is None:
        tables.resize(owner, key, 1 if row is None else row.size + 1)
    return total


HANDLERS: dict[str, Callable[[Tables, Call], Reply]] = {
    "HSET": hset,
    "HSETNX": hsetnx,
    "HGET": hget,
    "HMGET": hmget,
    "HGETALL": hgetall,
    "HDEL": hdel,
    "HLEN": hlen,
    "HEXISTS": hexists,
    "HINCRBY": hincrby,
}
