"""Hashes, with the semantics of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.stores.commands import Call, Reply
from keystead.stores.sql.key_tables import HASH, KeyTables
from keystead.stores.sql.string_commands import add_amount

if TYPE_CHECKING:
    from collections.abc import Callable


def _owner(tables: KeyTables, key: bytes) -> tuple[int, int]:
    """The id and size of the hash, which is created if it does not exist."""
    row = tables.holding(key, HASH)
    return (tables.create(key, HASH), 0) if row is None else (row.id, row.size)


def hset(tables: KeyTables, call: Call) -> Reply:
    key, *pairs = call.args
    owner, size = _owner(tables, key)
    hint = True if size == 0 else None
    new = sum(tables.put_field(owner, pairs[at], pairs[at + 1], new=hint) for at in range(0, len(pairs), 2))
    if size == 0 and new > 1:
        new = len(set(pairs[::2]))  # a field may be named twice
    if new:
        tables.resize(key, owner, size + new)
    return new


def hsetnx(tables: KeyTables, call: Call) -> Reply:
    key, field, value = call.args
    owner, size = _owner(tables, key)
    new = tables.add_field(owner, field, value)
    if new:
        tables.resize(key, owner, size + 1)
    return int(new)


def hget(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    found = None if row is None else tables.field(row.id, call.args[1])
    return None if found is None else found[0]


def hmget(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    if row is None:
        return [None] * (len(call.args) - 1)
    found = (tables.field(row.id, field) for field in call.args[1:])
    return [None if value is None else value[0] for value in found]


def hgetall(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    return {} if row is None else dict(tables.fields(row.id))


def hdel(tables: KeyTables, call: Call) -> Reply:
    key, *fields = call.args
    row = tables.holding(key, HASH)
    return 0 if row is None else remove_fields(tables, key, row.id, row.size, fields)


def remove_fields(tables: KeyTables, key: bytes, owner: int, size: int, fields: list[bytes]) -> int:
    """Remove fields of a hash or members of a set; the key is deleted with the last."""
    gone = sum(tables.drop_field(owner, field) for field in fields)
    if gone:
        tables.resize(key, owner, size - gone)
    return gone


def hlen(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], HASH)
    return 0 if row is None else row.size


def hexists(tables: KeyTables, call: Call) -> Reply:
    return int(hget(tables, call) is not None)


def hincrby(tables: KeyTables, call: Call) -> Reply:
    key, field, _ = call.args
    row = tables.holding(key, HASH)
    found = None if row is None else tables.field(row.id, field)
    total = add_amount(None if found is None else found[0], call.options)
    owner = tables.create(key, HASH) if row is None else row.id
    tables.put_field(owner, field, b"%d" % total, new=found is None)
    if found is None:
        tables.resize(key, owner, 1 if row is None else row.size + 1)
    return total


HANDLERS: dict[str, Callable[[KeyTables, Call], Reply]] = {
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
