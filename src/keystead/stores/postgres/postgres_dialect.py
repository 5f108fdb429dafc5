"""The dialect of PostgreSQL. Lists are sent as arrays, so that a statement is the same for any number."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from typing import ClassVar

from keystead.stores.database.database_session import Result, Statement
from keystead.stores.database.dialect import Dialect, FoundKeys, NewRow, StoredKey, Wanted
from keystead.stores.database.hashed_names import KEPT
from keystead.stores.postgres.binary_values import Bytes, Floats, Ints

# More locks in one transaction might not fit the server's lock table: then the whole store is locked.
LOCKS = 200
# All programs on a database share its advisory locks: these two numbers are ours.
WHOLE, SWEEP = 0x4B53_5445_4144_0001, 0x4B53_5445_4144_0002
NOTIFY_BYTES = 5_900  # the payload of a notification is limited to 8,000 characters

_NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
# The type of a row of `look`, in its first column. The first row has the time instead of an id.
_TIME, _VALUED, _ROW, _FIELD, _MEMBER, _WHOLE = range(6)
_AT_FIRST = (
    f"{_TIME}::bigint, {_NOW}, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,"
    " NULL::bytea, NULL::float8"
)
_COLUMNS = {"fields": ("field", "value", "bytea"), "scored": ("member", "score", "float8")}


def lock_number(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


def channel_name(channel: bytes) -> str:
    """The name of a channel for LISTEN and NOTIFY, at most 63 characters."""
    return "keystead_" + sha256(channel).hexdigest()[:48]


class PostgresDialect(Dialect):
    prefix = "keystead."
    begin = Statement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    begin_reading: ClassVar[Sequence[Statement]] = (Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),)
    whole_member = f"(CASE WHEN rest IS NULL THEN member ELSE substring(member from 1 for {KEPT}) || rest END)"

    def placeholders(self, words: str) -> str:
        numbers = iter(range(1, 1_000))
        return re.sub(r"\?", lambda _: f"${next(numbers)}", words)

    def lock(self, keys: Sequence[bytes], *, publishes: bool) -> list[Statement]:
        if not keys:
            return []
        if len(keys) > LOCKS:
            return [Statement("SELECT pg_advisory_xact_lock($1)", (WHOLE,))]
        return [
            Statement(
                "SELECT pg_advisory_xact_lock_shared($1)"
                " UNION ALL SELECT pg_advisory_xact_lock(number) FROM unnest($2::bigint[]) AS number",
                (WHOLE, Ints(sorted({lock_number(key) for key in keys}))),
            ),
        ]

    def lock_sweep(self) -> Statement:
        return Statement("SELECT 1::bigint WHERE pg_try_advisory_xact_lock($1)", (SWEEP,))

    def allocate(self, blocks: int) -> list[Statement]:
        return [Statement("SELECT nextval('keystead.ids') FROM generate_series(1, $1::bigint)", (blocks,))]

    def look(self, wanted: Wanted) -> Statement:
        parts, parameters = [f"SELECT {_AT_FIRST}"], list[Bytes]()

        def array(values: Iterable[bytes]) -> str:
            parameters.append(Bytes(values))
            return f"${len(parameters)}::bytea[]"

        for keys, what, value in ((wanted.with_value, _VALUED, "k.value"), (wanted.others, _ROW, "NULL")):
            if keys:
                parts.append(
                    f"SELECT {what}, k.id, k.key, NULL, k.kind, k.expires_at, k.size, k.has_long, {value}, NULL"  # noqa: S608
                    f" FROM keystead.keys k WHERE k.key = ANY({array(keys)})"
                )
        for entries, table, what, values in (
            (wanted.fields, "fields", _FIELD, "e.value, NULL"),
            (wanted.members, "scored", _MEMBER, "NULL, e.score"),
        ):
            if entries:
                column = _COLUMNS[table][0]
                pairs = f"{array(key for key, _ in entries)}, {array(text for _, text in entries)}"
                parts.append(
                    f"SELECT {what}, e.owner, e.{column}, NULL, NULL, NULL, NULL, NULL, {values}"  # noqa: S608
                    f" FROM unnest({pairs}) AS w (key, name) JOIN keystead.keys k ON k.key = w.key"
                    f" JOIN keystead.{table} e ON e.owner = k.id AND e.{column} = w.name"
                )
        if wanted.wholes:
            parts.append(
                f"SELECT {_WHOLE}, e.owner, e.field, e.rest, NULL, NULL, NULL, NULL, e.value, NULL FROM keystead.keys k"  # noqa: S608
                f" JOIN keystead.fields e ON e.owner = k.id WHERE k.key = ANY({array(wanted.wholes)})"
            )
        return Statement(" UNION ALL ".join(parts), parameters)

    def parse_found(self, result: Result, wanted: Wanted) -> FoundKeys:
        found = FoundKeys(result.rows[0][1], [], [], [], [])
        for what, owner, name, rest, kind, expires_at, size, long, value, score in result.rows:
            if what in (_VALUED, _ROW):
                found.rows.append((name, StoredKey(owner, kind, expires_at, size, long, value, what == _VALUED)))
            elif what == _FIELD:
                found.fields.append((owner, name, value))
            elif what == _MEMBER:
                found.members.append((owner, name, score))
            elif what == _WHOLE:
                found.wholes.append((owner, name, rest, value))
        return found

    def delete_rows(self, ids: Sequence[int]) -> list[Statement]:
        return [Statement("DELETE FROM keystead.keys WHERE id = ANY($1::bigint[])", (Ints(ids),))]

    def insert_rows(self, rows: Sequence[NewRow]) -> list[Statement]:
        ids, keys, rests, kinds, deadlines, sizes, longs, values = zip(*rows, strict=True)
        return [
            Statement(
                "INSERT INTO keystead.keys (id, key, rest, kind, expires_at, size, has_long, value) SELECT * FROM"
                " unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[],"
                " $7::bigint[], $8::bytea[])",
                (
                    *(Ints(ids), Bytes(keys), Bytes(rests), Ints(kinds)),
                    *(Ints(deadlines), Ints(sizes), Ints(longs), Bytes(values)),
                ),
            )
        ]

    def update_rows(self, rows: Sequence[NewRow]) -> list[Statement]:
        return [
            Statement(
                "UPDATE keystead.keys k SET expires_at = n.at, size = n.size, has_long = n.has_long"
                " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS n (id, at, size, has_long)"
                " WHERE k.id = n.id",
                _changes(rows),
            )
        ]

    def update_values(self, rows: Sequence[NewRow]) -> list[Statement]:
        return [
            Statement(
                "UPDATE keystead.keys k SET expires_at = n.at, size = n.size, has_long = n.has_long, value = n.value"
                " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])"
                " AS n (id, at, size, has_long, value) WHERE k.id = n.id",
                (*_changes(rows), Bytes([row.value for row in rows])),
            )
        ]

    def put_entries(self, table: str, entries: Sequence[tuple[int, bytes, bytes | None, object]]) -> list[Statement]:
        name, value, kind = _COLUMNS[table]
        owners, names, rests, values = zip(*entries, strict=True)
        return [
            Statement(
                f"INSERT INTO keystead.{table} (owner, {name}, rest, {value}) SELECT * FROM"  # noqa: S608 - constants
                f" unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::{kind}[])"
                f" ON CONFLICT (owner, {name}) DO UPDATE SET {value} = excluded.{value}",
                (Ints(owners), Bytes(names), Bytes(rests), Floats(values) if kind == "float8" else Bytes(values)),
            )
        ]

    def drop_entries(self, table: str, entries: Sequence[tuple[int, bytes]]) -> list[Statement]:
        name, _, _ = _COLUMNS[table]
        return [
            Statement(
                f"DELETE FROM keystead.{table} e USING unnest($1::bigint[], $2::bytea[]) AS w (owner, name)"  # noqa: S608
                f" WHERE e.owner = w.owner AND e.{name} = w.name",
                (Ints([owner for owner, _ in entries]), Bytes([text for _, text in entries])),
            )
        ]

    def publish(self, channel: bytes, data: bytes, number: int, now_ms: int) -> Statement:
        # The number, because PostgreSQL delivers two equal messages of a transaction only once.
        if len(data) <= NOTIFY_BYTES:
            return Statement(
                "SELECT pg_notify($1::text, $2::text)", (channel_name(channel), f"{number}:{b64encode(data).decode()}")
            )
        return Statement(
            "WITH kept AS (INSERT INTO keystead.messages (channel, data, sent_at) VALUES ($1, $2, $3) RETURNING id)"
            " SELECT pg_notify($4::text, $5::text || id::text) FROM kept",
            (channel, data, now_ms, channel_name(channel), f"{number}#"),
        )

    def remove_oldest(self, table: str, key: str, where: str, limit: int, parameters: Sequence[object]) -> Statement:
        words = self.placeholders(where)
        return Statement(
            f"DELETE FROM keystead.{table} WHERE ctid IN (SELECT ctid FROM keystead.{table} WHERE {words}"  # noqa: S608
            f" ORDER BY {key} LIMIT {limit:d})",
            tuple(parameters),
        )


def _changes(rows: Sequence[NewRow]) -> tuple[Ints, ...]:
    return (
        Ints([row.id for row in rows]),
        Ints([row.expires_at for row in rows]),
        Ints([row.size for row in rows]),
        Ints([row.long for row in rows]),
    )
