"""How MySQL and MariaDB want to be asked."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

from keystead.stores.database.dialect import IDS_AT_ONCE, Dialect, NewRow
from keystead.stores.database.names import KEPT
from keystead.stores.database.session import Statement

# The rows of the table of locks: one for each number that a key may have, and two more.
KEY_LOCKS = 8_192
PUBLISH_LOCK, SWEEP_LOCK = KEY_LOCKS, KEY_LOCKS + 1
CHUNK_BYTES = 1 << 20  # of values in one statement, unless a single one is larger

NOW = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
_COLUMNS = {"fields": ("field", "value"), "scored": ("member", "score")}
_ROW = "`key`, rest, id, kind, expires_at, size, has_long"
_FLOAT, _INT = struct.Struct(">d"), struct.Struct(">q")
_MAGNITUDE = 2**63 - 1

T = TypeVar("T", bound=Sequence[Any])


def lock_number(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=4).digest(), "big") % KEY_LOCKS


def marks(count: int) -> str:
    return ", ".join("?" * count)


class MysqlDialect(Dialect):
    """A score stands in the table as a whole number that sorts as scores do: a DOUBLE here has no infinity."""

    prefix = "keystead_"
    key = "`key`"
    begin = Statement("START TRANSACTION READ WRITE")
    begin_reading: ClassVar[Sequence[Statement]] = (
        Statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
        Statement("START TRANSACTION READ ONLY"),
    )
    whole_member = f"(CASE WHEN rest IS NULL THEN member ELSE CONCAT(SUBSTRING(member, 1, {KEPT}), rest) END)"

    def placeholders(self, words: str) -> str:
        return words

    def coded(self, score: float) -> int:
        bits: int = _INT.unpack(_FLOAT.pack(score + 0.0))[0]  # there is one zero
        return bits if bits >= 0 else bits ^ _MAGNITUDE

    def decoded(self, held: float | int) -> float:
        bits = int(held)
        number: float = _FLOAT.unpack(_INT.pack(bits if bits >= 0 else bits ^ _MAGNITUDE))[0]
        return number

    def lock(self, keys: Sequence[bytes], *, publishes: bool) -> list[Statement]:
        numbers = {lock_number(key) for key in keys}
        if publishes:
            numbers.add(PUBLISH_LOCK)
        if not numbers:
            return []
        return [
            Statement(
                "SELECT n FROM keystead_locks FORCE INDEX (PRIMARY)"  # noqa: S608
                f" WHERE n IN ({marks(len(numbers))}) ORDER BY n FOR UPDATE",
                tuple(sorted(numbers)),
            )
        ]

    def lock_sweep(self) -> Statement:
        return Statement("SELECT n FROM keystead_locks WHERE n = ? FOR UPDATE SKIP LOCKED", (SWEEP_LOCK,))

    def allocate(self, blocks: int) -> list[Statement]:
        firsts = " UNION ALL ".join(f"SELECT LAST_INSERT_ID() - {IDS_AT_ONCE * (n + 1):d}" for n in range(blocks))
        return [
            Statement("UPDATE keystead_ids SET next = LAST_INSERT_ID(next + ?)", (IDS_AT_ONCE * blocks,)),
            Statement(firsts),
        ]

    def rows(self, with_value: Sequence[bytes], others: Sequence[bytes]) -> Statement:
        words = f"SELECT {NOW}, NULL, NULL, 0, 0, NULL, 0, 0, 0, NULL"
        for keys, rest in ((with_value, "1, value"), (others, "0, NULL")):
            if keys:
                words += (
                    f" UNION ALL SELECT {NOW}, {_ROW}, {rest} FROM keystead_keys WHERE `key` IN ({marks(len(keys))})"  # noqa: S608
                )
        return Statement(words, (*with_value, *others))

    def pairs(self, table: str, wanted: Sequence[tuple[bytes, bytes]]) -> Statement:
        name, value = _COLUMNS[table]
        selects, parameters = [], []
        for key, group in groupby(sorted(wanted), itemgetter(0)):
            texts = [text for _, text in group]
            selects.append(
                f"SELECT e.owner, e.{name}, e.{value} FROM keystead_keys k JOIN keystead_{table} e ON e.owner = k.id"  # noqa: S608
                f" WHERE k.`key` = ? AND e.{name} IN ({marks(len(texts))})"
            )
            parameters += [key, *texts]
        return Statement(" UNION ALL ".join(selects), parameters)

    def wholes(self, keys: Sequence[bytes]) -> Statement:
        return Statement(
            "SELECT e.owner, e.field, e.rest, e.value FROM keystead_keys k JOIN keystead_fields e ON e.owner = k.id"  # noqa: S608
            f" WHERE k.`key` IN ({marks(len(keys))})",
            tuple(keys),
        )

    def delete_rows(self, ids: Sequence[int]) -> list[Statement]:
        return [Statement(f"DELETE FROM keystead_keys WHERE id IN ({marks(len(ids))})", tuple(ids))]  # noqa: S608

    def insert_rows(self, rows: Sequence[NewRow]) -> list[Statement]:
        return [
            Statement(
                "INSERT INTO keystead_keys (id, `key`, rest, kind, expires_at, size, has_long, value) VALUES "  # noqa: S608
                + ", ".join([f"({marks(8)})"] * len(chunk)),
                [value for row in chunk for value in row],
            )
            for chunk in _chunks(rows)
        ]

    def update_rows(self, rows: Sequence[NewRow]) -> list[Statement]:
        return [
            Statement(
                "UPDATE keystead_keys SET expires_at = ?, size = ?, has_long = ? WHERE id = ?",
                (row.expires_at, row.size, row.long, row.id),
            )
            for row in rows
        ]

    def update_values(self, rows: Sequence[NewRow]) -> list[Statement]:
        return [
            Statement(
                "UPDATE keystead_keys SET expires_at = ?, size = ?, has_long = ?, value = ? WHERE id = ?",
                (row.expires_at, row.size, row.long, row.value, row.id),
            )
            for row in rows
        ]

    def put_entries(self, table: str, entries: Sequence[tuple[int, bytes, bytes | None, object]]) -> list[Statement]:
        name, value = _COLUMNS[table]
        return [
            Statement(
                f"INSERT INTO keystead_{table} (owner, {name}, rest, {value}) VALUES "  # noqa: S608 - constants
                + ", ".join([f"({marks(4)})"] * len(chunk))
                + f" ON DUPLICATE KEY UPDATE {value} = VALUES({value})",
                [part for entry in chunk for part in entry],
            )
            for chunk in _chunks(entries)
        ]

    def drop_entries(self, table: str, entries: Sequence[tuple[int, bytes]]) -> list[Statement]:
        name, _ = _COLUMNS[table]
        statements = []
        for owner, group in groupby(sorted(entries), itemgetter(0)):
            texts = [text for _, text in group]
            statements.append(
                Statement(
                    f"DELETE FROM keystead_{table} WHERE owner = ? AND {name} IN ({marks(len(texts))})",  # noqa: S608
                    (owner, *texts),
                )
            )
        return statements

    def publish(self, channel: bytes, data: bytes, number: int, now_ms: int) -> Statement:
        # Who publishes holds a lock until the commit, so the numbers of messages are in the order of their commits.
        return Statement(
            "INSERT INTO keystead_messages (channel, data, sent_at) VALUES (?, ?, ?)", (channel, data, now_ms)
        )

    def remove_oldest(self, table: str, key: str, where: str, limit: int, parameters: Sequence[object]) -> Statement:
        return Statement(
            f"DELETE FROM keystead_{table} WHERE {where} ORDER BY {key} LIMIT {limit:d}",  # noqa: S608 - constants
            tuple(parameters),
        )


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """The rows in parts that each fit a packet of the server, as long as each row does."""
    chunk: list[T] = []
    size = 0
    for row in rows:
        length = sum(len(value) for value in row if isinstance(value, bytes))
        if chunk and size + length > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += length
    if chunk:
        yield chunk
