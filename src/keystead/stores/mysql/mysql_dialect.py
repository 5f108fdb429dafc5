"""The dialect of MySQL and MariaDB."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

from keystead.stores.database.database_session import Result, Statement
from keystead.stores.database.dialect import IDS_AT_ONCE, Dialect, FoundKeys, NewRow, StoredKey, Wanted
from keystead.stores.database.hashed_names import KEPT

# The rows of the table of locks: one for each number that a key may have, and two more.
KEY_LOCKS = 8_192
PUBLISH_LOCK, SWEEP_LOCK = KEY_LOCKS, KEY_LOCKS + 1
CHUNK_BYTES = 1 << 20  # of values in one statement, unless a single one is larger

NOW = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
_COLUMNS = {"fields": ("field", "value"), "scored": ("member", "score")}
# What a row of `look` is about, as the first of its numbers.
_TIME, _VALUED, _ROW, _FIELD, _MEMBER, _WHOLE = range(6)
_NEVER = -(2**63)  # stands for no deadline: a list of numbers in a text has no NULL
_ONE = f"SELECT {NOW}, k.id, k.kind, k.expires_at, k.size, k.has_long,"
_NUMBERS = f"id, kind, IFNULL(expires_at, {_NEVER}), size, has_long"
_FLOAT, _INT = struct.Struct(">d"), struct.Struct(">q")
_MAGNITUDE = 2**63 - 1

T = TypeVar("T", bound=Sequence[Any])


def lock_number(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=4).digest(), "big") % KEY_LOCKS


def marks(count: int) -> str:
    return ", ".join("?" * count)


class MysqlDialect(Dialect):
    """Scores are stored as integers that sort as scores do, because a DOUBLE here has no infinity."""

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

    def encode_score(self, score: float) -> int:
        bits: int = _INT.unpack(_FLOAT.pack(score + 0.0))[0]  # there is one zero
        return bits if bits >= 0 else bits ^ _MAGNITUDE

    def decode_score(self, held: float | int) -> float:
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
            # Into a variable, so that there is no result set to read. The index is read in its order.
            Statement(
                "SELECT COUNT(*) INTO @keystead_locked FROM keystead_locks FORCE INDEX (PRIMARY)"  # noqa: S608
                f" WHERE n IN ({marks(len(numbers))}) FOR UPDATE",
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

    def look(self, wanted: Wanted) -> Statement:
        """In three or four columns: the server takes longer for the definition of a column than for its data.

        The first column has numbers: the type of the row, the owner, and the rest. One value, or one field, is read
        without a union, in two thirds of the time.
        """
        if _is_one_value(wanted):
            return Statement(f"{_ONE} value FROM keystead_keys k WHERE k.`key` = ?", wanted.with_value)
        if _is_one_field(wanted):
            [(key, field)] = wanted.fields
            return Statement(
                f"{_ONE} e.value, e.owner FROM keystead_keys k LEFT JOIN keystead_fields e"
                " ON e.owner = k.id AND e.field = ? WHERE k.`key` = ?",
                (field, key),
            )
        extra = ", NULL" if wanted.wholes else ""
        parts, parameters = [f"SELECT CONCAT_WS(' ', {_TIME}, {NOW}), NULL, NULL{extra}"], list[bytes]()
        for keys, what, value in ((wanted.with_value, _VALUED, "value"), (wanted.others, _ROW, "NULL")):
            if keys:
                parts.append(
                    f"SELECT CONCAT_WS(' ', {what}, {_NUMBERS}), `key`, {value}{extra} FROM keystead_keys"  # noqa: S608
                    f" WHERE `key` IN ({marks(len(keys))})"
                )
                parameters += keys
        for entries, table, numbers, value in (
            (wanted.fields, "fields", f"{_FIELD}, e.owner", "e.value"),
            (wanted.members, "scored", f"{_MEMBER}, e.owner, e.score", "NULL"),
        ):
            name, _ = _COLUMNS[table]
            for keys, texts in _together(entries):
                # One name of many keys, or many names of one key: either way the primary key finds each row.
                parts.append(
                    f"SELECT CONCAT_WS(' ', {numbers}), e.{name}, {value}{extra}"  # noqa: S608
                    f" FROM keystead_keys k STRAIGHT_JOIN keystead_{table} e ON e.owner = k.id"
                    f" WHERE k.`key` {_is_in(keys)} AND e.{name} {_is_in(texts)}"
                )
                parameters += [*keys, *texts]
        if wanted.wholes:
            parts.append(
                f"SELECT CONCAT_WS(' ', {_WHOLE}, e.owner), e.field, e.value, e.rest FROM keystead_keys k"  # noqa: S608
                f" JOIN keystead_fields e ON e.owner = k.id WHERE k.`key` IN ({marks(len(wanted.wholes))})"
            )
            parameters += wanted.wholes
        return Statement(" UNION ALL ".join(parts), parameters)

    def parse_found(self, result: Result, wanted: Wanted) -> FoundKeys:
        if _is_one_value(wanted) or _is_one_field(wanted):
            return _parse_one(result, wanted)
        found = FoundKeys(int(result.rows[0][0].split()[1]), [], [], [], [])
        for numbers, name, value, *rest in result.rows:
            what, owner, *others = map(int, numbers.split())
            if what in (_VALUED, _ROW):
                kind, at, size, long = others
                held = StoredKey(owner, kind, None if at == _NEVER else at, size, long, value, what == _VALUED)
                found.rows.append((name, held))
            elif what == _FIELD:
                found.fields.append((owner, name, value))
            elif what == _MEMBER:
                found.members.append((owner, name, self.decode_score(others[0])))
            elif what == _WHOLE:
                found.wholes.append((owner, name, rest[0], value))
        return found

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
        # Publishers hold a lock until the commit, so message numbers are in commit order.
        return Statement(
            "INSERT INTO keystead_messages (channel, data, sent_at) VALUES (?, ?, ?)", (channel, data, now_ms)
        )

    def remove_oldest(self, table: str, key: str, where: str, limit: int, parameters: Sequence[object]) -> Statement:
        return Statement(
            f"DELETE FROM keystead_{table} WHERE {where} ORDER BY {key} LIMIT {limit:d}",  # noqa: S608 - constants
            tuple(parameters),
        )


def _is_one_value(wanted: Wanted) -> bool:
    others = wanted.others or wanted.fields or wanted.members or wanted.wholes
    return wanted.timeless and len(wanted.with_value) == 1 and not others


def _is_one_field(wanted: Wanted) -> bool:
    others = wanted.with_value or wanted.members or wanted.wholes
    return wanted.timeless and len(wanted.fields) == len(wanted.others) == 1 and not others


def _parse_one(result: Result, wanted: Wanted) -> FoundKeys:
    found = FoundKeys(0, [], [], [], [])
    if (row := result.fetchone()) is None:
        return found
    now_ms, owner, kind, expires_at, size, long, value, *of_field = row
    if of_field:
        [(key, field)] = wanted.fields
        if of_field[0] is not None:
            found.fields.append((owner, field, value))
        held = StoredKey(owner, kind, expires_at, size, long, None, False)
    else:
        [key] = wanted.with_value
        held = StoredKey(owner, kind, expires_at, size, long, value, True)
    found.rows.append((key, held))
    return found._replace(now_ms=now_ms)


def _is_in(values: Sequence[bytes]) -> str:
    return "= ?" if len(values) == 1 else f"IN ({marks(len(values))})"


def _together(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Group the pairs so that each group has a single key or a single text, in as few groups as possible."""
    texts_of: dict[bytes, list[bytes]] = {}
    for key, text in pairs:
        texts_of.setdefault(key, []).append(text)
    keys_of: dict[bytes, list[bytes]] = {}
    for key, texts in texts_of.items():
        if len(texts) == 1:
            keys_of.setdefault(texts[0], []).append(key)
        else:
            yield [key], texts
    for text, keys in keys_of.items():
        yield keys, [text]


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """The rows in chunks that fit a packet of the server, as long as each row does."""
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
