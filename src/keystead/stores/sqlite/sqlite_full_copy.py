"""Read and write whole keys of a SQLite file with few statements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from keystead.stores.command_options import UINT64_MAX
from keystead.stores.commands import entry_id, score
from keystead.stores.sql.key_tables import HASH, KIND_NAMES, KIND_NUMBERS, LIST, SET, STRING, ZSET
from keystead.stores.sql.stream_commands import pack_fields, unpack_fields
from keystead.stores.sqlite.bulk_insert import insert_rows
from keystead.stores.sqlite.sqlite_tables import SqliteTables
from keystead.stores.store_contract import WholeKey

KEYS_AT_ONCE: Final = 900  # a statement of an old SQLite has room for 999 parameters
ENTRIES_AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 4 << 20

_INSERT: Final = "INSERT INTO keys (id, key, kind, expires_at, size, value)"


def read(tables: SqliteTables, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]]:
    """See `Store.whole_keys`. `now_ms` of the tables decides which keys have expired."""
    found: list[WholeKey] = []
    left: list[bytes] = []
    entries, size_bytes = ENTRIES_AT_ONCE, BYTES_AT_ONCE
    rows = _rows(tables, "SELECT key, id, kind, expires_at, size, length(value) FROM keys WHERE key IN", keys)
    strings: list[bytes] = []
    for key, owner, kind, expires_at, size, length in rows:
        if expires_at is not None and expires_at <= tables.now_ms:
            continue
        if kind == STRING:
            size_bytes -= length or 0
            (strings if size_bytes >= 0 else left).append(key)
        else:
            entries -= size
            if entries < 0:
                left.append(key)
            else:
                found.append((key, KIND_NAMES[kind], expires_at, _parts(tables, key, owner, kind, size)))
    for key, expires_at, value in _rows(tables, "SELECT key, expires_at, value FROM keys WHERE key IN", strings):
        found.append((key, "string", expires_at, (value or b"",)))
    return found, left


def _rows(tables: SqliteTables, statement: str, keys: Sequence[bytes]) -> Any:
    return tables.execute(f"{statement} ({','.join('?' * len(keys))})", keys) if keys else ()


def _parts(tables: SqliteTables, key: bytes, owner: int, kind: int, size: int) -> list[bytes]:
    if kind == HASH:
        return list(chain.from_iterable(tables.fields(owner)))
    if kind == SET:
        return [member for member, _ in tables.fields(owner)]
    if kind == ZSET:
        members = tables.members(key, "owner = ?", (owner,), limit=size, offset=0)
        return [part for member, number in members for part in (repr(number).encode(), member)]
    if kind == LIST:
        return [item for (item,) in tables.execute("SELECT item FROM items WHERE owner = ? ORDER BY place", (owner,))]
    parts: list[bytes] = []
    for entry, body in tables.execute("SELECT entry, body FROM entries WHERE owner = ? ORDER BY entry", (owner,)):
        number, fields = int.from_bytes(entry, "big"), unpack_fields(body)
        parts += (b"%d-%d" % (number >> 64, number & UINT64_MAX), b"%d" % len(fields), *fields)
    return parts


def add(tables: SqliteTables, keys: Sequence[WholeKey]) -> list[bool]:
    """As `Store.add_whole_keys`. The caller opens and ends the transaction."""
    names = [key[0] for key in keys]
    held = dict(_rows(tables, "SELECT key, expires_at FROM keys WHERE key IN", names))
    # Nothing else inserts in this transaction. SQLite continues after the largest id.
    [[owner]] = tables.execute("SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'keys'")
    rows: list[tuple[Any, ...]] = []
    entries: dict[str, list[tuple[Any, ...]]] = {}
    done: list[bool] = []
    for key, kind, expires_at, parts in keys:
        if key in held:
            ends_at = held[key]
            if ends_at is None or ends_at > tables.now_ms:
                done.append(False)
                continue
            tables.delete(key)  # it has expired, and was not swept yet
        held[key] = None  # otherwise a second key of this name would overwrite it
        owner += 1
        if kind == "string":
            rows.append((owner, key, STRING, expires_at, 0, parts[0]))
        else:
            number = KIND_NUMBERS[kind]
            statement, own, last = _entries(number, parts)
            rows.append((owner, key, number, expires_at, len(own), last))
            entries.setdefault(statement, []).extend([(owner, *row) for row in own])
        done.append(True)
    insert_rows(tables.execute, _INSERT, rows)
    for statement, some in entries.items():
        insert_rows(tables.execute, statement, some)
    return done


def _entries(kind: int, parts: Sequence[bytes]) -> tuple[str, Sequence[tuple[Any, ...]], bytes | None]:
    """The INSERT statement for entries, its rows, and the last id of a stream."""
    if kind == HASH:
        fields = dict(zip(parts[::2], parts[1::2], strict=True))
        return "INSERT INTO fields (owner, field, value)", list(fields.items()), None
    if kind == SET:
        return "INSERT INTO fields (owner, field)", [(member,) for member in set(parts)], None
    if kind == ZSET:
        scores = {member: score(text) for text, member in zip(parts[::2], parts[1::2], strict=True)}
        return "INSERT INTO scored (owner, member, score)", list(scores.items()), None
    if kind == LIST:
        return "INSERT INTO items (owner, place, item)", list(enumerate(parts, 1)), None
    rows: list[tuple[Any, ...]] = []
    at = 0
    while at < len(parts):
        end = at + 2 + int(parts[at + 1])
        rows.append((entry_id(parts[at], 0).to_bytes(16, "big"), pack_fields(list(parts[at + 2 : end]))))
        at = end
    # A stream without entries is still a key; its next id is greater than 0-1, as on Redis.
    last = rows[-1][0] if rows else (1).to_bytes(16, "big")
    return "INSERT INTO entries (owner, entry, body)", rows, last
