"""Sets, as Redis means them. A member is a field without a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.stores.commands import Call, Reply
from keystead.stores.sql.hashes import remove_fields
from keystead.stores.sql.tables import SET, Tables

if TYPE_CHECKING:
    from collections.abc import Callable


def sadd(tables: Tables, call: Call) -> Reply:
    key, *members = call.args
    row = tables.holding(key, SET)
    owner, size = (tables.create(key, SET), 0) if row is None else (row.id, row.size)
    new = sum(
        tables.execute(
            "INSERT INTO fields (owner, field) VALUES (?, ?) ON CONFLICT (owner, field) DO NOTHING",
            (owner, member),
        ).rowcount
        for member in members
    )
    if new:
        tables.resize(owner, key, size + new)
    return new


def srem(tables: Tables, call: Call) -> Reply:
    key, *members = call.args
    row = tables.holding(key, SET)
    return 0 if row is None else remove_fields(tables, key, row.id, row.size, members)


def smembers(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], SET)
    if row is None:
        return set()
    return {member for [member] in tables.execute("SELECT field FROM fields WHERE owner = ?", (row.id,))}


def sismember(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], SET)
    if row is None:
        return 0
    found = tables.execute("SELECT 1 FROM fields WHERE owner = ? AND field = ?", (row.id, call.args[1])).fetchone()
    return int(found is not None)


def scard(tables: Tables, call: Call) -> Reply:
    row = tables.holding(call.args[0], SET)
    return 0 if row is None else row.size


HANDLERS: dict[str, Callable[[Tables, Call], Reply]] = {
    "SADD": sadd,
    "SREM": srem,
    "SMEMBERS": smembers,
    "SISMEMBER": sismember,
    "SCARD": scard,
}
