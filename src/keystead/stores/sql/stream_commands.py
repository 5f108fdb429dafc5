"""Streams, with the semantics of Redis. The row of the key has the last id, so that ids only grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.errors import BadArgument
from keystead.stores.command_options import UINT64_MAX
from keystead.stores.commands import Call, Reply
from keystead.stores.sql.key_tables import STREAM, KeyTables

if TYPE_CHECKING:
    from collections.abc import Callable

    from keystead.stores.command_options import XAddOptions, XRangeOptions


def _bytes(entry: int) -> bytes:
    """An id as bytes that sort in the order of ids."""
    return entry.to_bytes(16, "big")


def pack_fields(fields: list[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in fields)


def unpack_fields(body: bytes) -> list[bytes]:
    fields, at = [], 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        fields.append(body[at + 4 : end])
        at = end
    return fields


def _new_id(options: XAddOptions, last: int, now_ms: int) -> int:
    ms, sequence = options.entry_id
    if ms is None:
        return max(now_ms << 64, last + 1)
    if sequence is None:
        entry = last + 1 if ms == last >> 64 and last & UINT64_MAX < UINT64_MAX else ms << 64
    else:
        entry = ms << 64 | sequence
    if entry <= last:
        raise BadArgument("the id of a new entry must be greater than the last one of the stream")
    return entry


def xadd(tables: KeyTables, call: Call) -> Reply:
    key = call.args[0]
    options: XAddOptions = call.options
    row = tables.holding(key, STREAM)
    entry = _new_id(options, 0 if row is None else int.from_bytes(tables.value(key, row), "big"), tables.now_ms)
    owner, size = (tables.create(key, STREAM), 0) if row is None else (row.id, row.size)
    tables.later(
        "INSERT INTO entries (owner, entry, body) VALUES (?, ?, ?)",
        (owner, _bytes(entry), pack_fields(options.fields)),
    )
    tables.set_size(key, owner, size + 1, last=_bytes(entry))
    if options.max_len is not None:
        _trim(tables, key, owner, size + 1, options.max_len)
    return b"%d-%d" % (entry >> 64, entry & UINT64_MAX)


def _trim(tables: KeyTables, key: bytes, owner: int, size: int, max_len: int) -> int:
    surplus = size - max_len
    if surplus <= 0:
        return 0
    [last] = tables.execute(
        "SELECT entry FROM entries WHERE owner = ? ORDER BY entry LIMIT 1 OFFSET ?", (owner, surplus - 1)
    ).fetchone()
    tables.later("DELETE FROM entries WHERE owner = ? AND entry <= ?", (owner, last))
    tables.set_size(key, owner, max_len)
    return surplus


def xtrim(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], STREAM)
    return 0 if row is None else _trim(tables, call.args[0], row.id, row.size, call.options)


def xdel(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], STREAM)
    if row is None:
        return 0
    gone = sum(
        tables.execute("DELETE FROM entries WHERE owner = ? AND entry = ?", (row.id, _bytes(entry))).rowcount
        for entry in call.options
    )
    tables.set_size(call.args[0], row.id, row.size - gone)
    return gone


def xlen(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], STREAM)
    return 0 if row is None else row.size


def xrange(tables: KeyTables, call: Call) -> Reply:
    return _range(tables, call, "entry")


def xrevrange(tables: KeyTables, call: Call) -> Reply:
    return _range(tables, call, "entry DESC")


def _range(tables: KeyTables, call: Call, order: str) -> Reply:
    options: XRangeOptions = call.options
    row = tables.holding(call.args[0], STREAM)
    if row is None:
        return []
    if options.limit == 0:
        return None  # as Redis does
    if not 0 <= options.low <= options.high < 1 << 128:
        return []
    found = tables.execute(
        f"SELECT entry, body FROM entries WHERE owner = ? AND entry BETWEEN ? AND ? ORDER BY {order} LIMIT ?",  # noqa: S608
        (
            row.id,
            _bytes(options.low),
            _bytes(options.high),
            row.size if options.limit is None else min(options.limit, row.size),
        ),
    )
    ids = ((int.from_bytes(entry, "big"), body) for entry, body in found)
    return [[b"%d-%d" % (entry >> 64, entry & UINT64_MAX), unpack_fields(body)] for entry, body in ids]


HANDLERS: dict[str, Callable[[KeyTables, Call], Reply]] = {
    "XADD": xadd,
    "XTRIM": xtrim,
    "XDEL": xdel,
    "XLEN": xlen,
    "XRANGE": xrange,
    "XREVRANGE": xrevrange,
}
