"""The SQL dialect of a server."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from keystead.stores.database.database_session import Result, Statement

IDS_AT_ONCE = 1_000  # reserved per session, so that a new key needs no round trip

_TABLE = re.compile(r"\b(FROM|INTO|UPDATE|JOIN) (\w+)")


class NewRow(NamedTuple):
    id: int
    key: bytes  # its indexed name
    rest: bytes | None
    kind: int
    expires_at: int | None
    size: int
    long: int  # 1: a sorted set that has, or had, a member with a rest
    value: bytes | None


class Wanted(NamedTuple):
    """What is read before commands run. Keys, fields and members are indexed names."""

    with_value: Sequence[bytes] = ()  # keys
    others: Sequence[bytes] = ()  # keys whose value is not needed
    fields: Sequence[tuple[bytes, bytes]] = ()  # key, field
    members: Sequence[tuple[bytes, bytes]] = ()
    wholes: Sequence[bytes] = ()  # keys whose fields are all needed
    timeless: bool = False  # whether the time matters only for a key that exists


class StoredKey(NamedTuple):
    """The row of a key, as far as loaded."""

    id: int
    kind: int
    expires_at: int | None
    size: int
    long: int
    value: bytes | None
    loaded: bool  # whether `value` is its value

    def has_new_value(self, before: StoredKey) -> bool:
        return self.loaded and (not before.loaded or self.value != before.value)


class FoundKeys(NamedTuple):
    """What was found of it."""

    now_ms: int
    rows: list[tuple[bytes, StoredKey]]  # by name
    fields: list[tuple[int, bytes, bytes | None]]  # owner, name, value
    members: list[tuple[int, bytes, float]]
    wholes: list[tuple[int, bytes, bytes | None, bytes | None]]  # owner, name, rest, value


class Dialect(ABC):
    """The statements that `CachedTables` needs."""

    prefix: ClassVar[str]  # of every table
    key: ClassVar[str] = "key"  # the column of that name
    begin: ClassVar[Statement]
    begin_reading: ClassVar[Sequence[Statement]]  # one snapshot for all that follows
    commit: ClassVar[Statement] = Statement("COMMIT")
    whole_member: ClassVar[str]  # a member with its rest

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def translate(self, words: str) -> str:
        """A statement of the interpreter in this dialect."""
        found = self._known.get(words)
        if found is None:
            found = self._known[words] = self.placeholders(_TABLE.sub(rf"\1 {self.prefix}\2", words))
        return found

    @abstractmethod
    def placeholders(self, words: str) -> str:
        """The statement with the server's placeholders instead of question marks."""

    def encode_score(self, score: float) -> float | int:
        """A score as the table holds it."""
        return score

    def decode_score(self, held: float | int) -> float:
        return float(held)

    @abstractmethod
    def lock(self, keys: Sequence[bytes], *, publishes: bool) -> list[Statement]:
        """Exclude all other writers of these keys until the end of the transaction."""

    @abstractmethod
    def lock_sweep(self) -> Statement:
        """Selects one row if no other process is sweeping, and excludes others until the transaction ends."""

    @abstractmethod
    def allocate(self, blocks: int) -> list[Statement]:
        """The last of these selects the first id of each reserved block of IDS_AT_ONCE. Outside of a transaction."""

    @abstractmethod
    def look(self, wanted: Wanted) -> Statement:
        """Read all of it in one statement: it sees one state of the tables, so reading needs no transaction."""

    @abstractmethod
    def parse_found(self, result: Result, wanted: Wanted) -> FoundKeys: ...

    @abstractmethod
    def delete_rows(self, ids: Sequence[int]) -> list[Statement]: ...

    @abstractmethod
    def insert_rows(self, rows: Sequence[NewRow]) -> list[Statement]: ...

    @abstractmethod
    def update_rows(self, rows: Sequence[NewRow]) -> list[Statement]:
        """All but the value."""

    @abstractmethod
    def update_values(self, rows: Sequence[NewRow]) -> list[Statement]:
        """The value, too."""

    @abstractmethod
    def put_entries(self, table: str, entries: Sequence[tuple[int, bytes, bytes | None, object]]) -> list[Statement]:
        """Fields with values, or members with scores: owner, name, rest, value."""

    @abstractmethod
    def drop_entries(self, table: str, entries: Sequence[tuple[int, bytes]]) -> list[Statement]: ...

    @abstractmethod
    def publish(self, channel: bytes, data: bytes, number: int, now_ms: int) -> Statement:
        """A message that is sent with the commit. `number` is unique within a transaction."""

    @abstractmethod
    def remove_oldest(self, table: str, key: str, where: str, limit: int, parameters: Sequence[object]) -> Statement:
        """Delete up to `limit` rows that match a condition."""
