"""Sets, with the semantics of Redis. A member is a field without a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.stores.commands import Call, Reply
from keystead.stores.sql.hash_commands import remove_fields
from keystead.stores.sql.key_tables import SET, KeyTables

if TYPE_CHECKING:
    from collections.abc import Callable


def sadd(tables: KeyTables, call: Call) -> Reply:
    key, *members = call.args
    row = tables.holding(key, SET)
    owner, size = (tables.create(key, SET), 0) if row is None else (row.id, row.size)
    new = sum(tables.add_field(owner, member) for member in members)
    if new:
        tables.resize(key, owner, size + new)
    return new


def srem(tables: KeyTables, call: Call) -> Reply:
    key, *members = call.args
    row = tables.holding(key, SET)
    return 0 if row is None else remove_fields(tables, key, row.id, row.size, members)


def smembers(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], SET)
    return set() if row is None else {member for member, _ in tables.fields(row.id)}


def sismember(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], SET)
    return int(row is not None and tables.field(row.id, call.args[1]) is not None)


def scard(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], SET)
    return 0 if row is None else row.size


HANDLERS: dict[str, Callable[[KeyTables, Call], Reply]] = {
    "SADD": sadd,
    "SREM": srem,
    "SMEMBERS": smembers,
    "SISMEMBER": sismember,
    "SCARD": scard,
}
