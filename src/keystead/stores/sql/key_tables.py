"""The interface to the tables of a SQL store.

`keys` has a row for each key, with its kind, deadline and size; the value of a string is in it. The entries of a
collection are in a table for its kind, under the id of the key. Ids are never reused, so a large collection is deleted
by deleting its row, and its entries are removed later, in small steps.

The stores differ in `KeyTables`: SQLite queries its file on demand; a store on a server reads what a batch needs before
it runs, and writes the changes after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from keystead.errors import WrongKind
from keystead.stores.commands import Call

STRING, HASH, SET, ZSET, LIST, STREAM = range(1, 7)
KIND_NAMES = {STRING: "string", HASH: "hash", SET: "set", ZSET: "zset", LIST: "list", STREAM: "stream"}
KIND_NUMBERS = {name: number for number, name in KIND_NAMES.items()}
ENTRY_TABLES = {HASH: "fields", SET: "fields", ZSET: "scored", LIST: "items", STREAM: "entries"}

# Up to this many entries are deleted with their key; more are left to the sweep.
DELETE_AT_ONCE = 64


class KeyRow(NamedTuple):
    id: int
    kind: int
    expires_at: int | None
    size: int


class Rows(Protocol):
    """The result of a statement, such as a cursor of sqlite3."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Execute(Protocol):
    def __call__(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows: ...


class StringKeys(ABC):
    """Keys that hold strings. `now_ms` is set for each batch."""

    now_ms: int

    # --- whole keys ----------------------------------------------------------------------------------------

    @abstractmethod
    def live(self, key: bytes) -> KeyRow | None:
        """The row of a key that exists and has not expired."""

    def holding(self, key: bytes, kind: int) -> KeyRow | None:
        """The row of a live key of this kind; WrongKind if it is of another."""
        row = self.live(key)
        if row is not None and row.kind != kind:
            raise wrong_kind(row.kind, kind)
        return row

    @abstractmethod
    def value(self, key: bytes, row: KeyRow) -> bytes:
        """The value in the row itself: a string, or the last id of a stream. It may be large: loaded on demand."""

    @abstractmethod
    def string(self, key: bytes) -> bytes | None:
        """The string of a live key; WrongKind if it is of another kind."""

    @abstractmethod
    def put(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        """Set a string, whatever was there."""

    @abstractmethod
    def delete(self, key: bytes) -> bool:
        """Remove a key, expired or not; True if it existed and had not expired."""

    @abstractmethod
    def set_deadline(self, key: bytes, row: KeyRow, expires_at: int | None) -> None: ...

    @abstractmethod
    def set_value(self, key: bytes, row: KeyRow, value: bytes) -> None:
        """Change the value of a string, and keep its deadline."""

    # --- one atomic step -----------------------------------------------------------------------------------

    @abstractmethod
    def begin_step(self, calls: Sequence[Call]) -> None:
        """From here on, `undo_step` reverts everything that these calls do."""

    @abstractmethod
    def keep_step(self) -> None: ...

    @abstractmethod
    def undo_step(self) -> None: ...


class KeyTables(StringKeys):
    """One connection's view of the tables.

    Statements have `?` for each parameter, and use the table names above. `execute` returns its result immediately;
    `later` may be sent together with later statements.
    """

    execute: Execute
    later: Callable[[str, Sequence[Any]], object]
    wall_ms: Callable[[], int]
    published: bool

    # --- whole keys of any kind ----------------------------------------------------------------------------

    @abstractmethod
    def create(self, key: bytes, kind: int) -> int:
        """The id of a new row for a key that has none, or only an expired one."""

    @abstractmethod
    def set_size(self, key: bytes, owner: int, size: int, last: bytes | None = None) -> None:
        """Store the number of entries, and the id of a new entry of a stream."""

    def resize(self, key: bytes, owner: int, size: int) -> None:
        """`set_size`, but a collection without entries is deleted (a stream is not)."""
        if size:
            self.set_size(key, owner, size)
        else:
            self.delete(key)

    @abstractmethod
    def page(self, after: int, limit: int) -> list[tuple[int, bytes, int, int | None]]:
        """Rows in the order of their ids: id, key, kind and deadline of each."""

    @abstractmethod
    def count(self) -> int:
        """The number of live keys."""

    # --- fields of hashes, members of sets -----------------------------------------------------------------

    @abstractmethod
    def field(self, owner: int, field: bytes) -> tuple[bytes] | None:
        """The value of a field, in a tuple of one."""

    @abstractmethod
    def fields(self, owner: int) -> list[tuple[bytes, bytes]]: ...

    @abstractmethod
    def put_field(self, owner: int, field: bytes, value: bytes, *, new: bool | None = None) -> bool:
        """Set a field; True if it is new. `new`: whether it is, if the caller knows."""

    @abstractmethod
    def add_field(self, owner: int, field: bytes, value: bytes | None = None) -> bool:
        """Set a field if it does not exist; True if it did not."""

    @abstractmethod
    def drop_field(self, owner: int, field: bytes) -> bool:
        """Remove a field; True if it existed."""

    # --- members of sorted sets ----------------------------------------------------------------------------

    @abstractmethod
    def score(self, owner: int, member: bytes) -> float | None: ...

    @abstractmethod
    def put_score(self, key: bytes, owner: int, member: bytes, score: float, *, new: bool) -> None: ...

    @abstractmethod
    def drop_score(self, owner: int, member: bytes) -> bool: ...

    def members(
        self, key: bytes, where: str, parameters: Sequence[Any], *, limit: int, offset: int, reverse: bool = False
    ) -> list[tuple[bytes, float]]:
        """Members and scores that match a condition, ordered by score, then by the bytes of the member."""
        return self.execute(in_order(where, reverse), (*parameters, limit, offset)).fetchall()

    def encode_score(self, score: float) -> float | int:
        """A score as stored in the table; it sorts as scores do."""
        return score

    def member_of(self, key: bytes) -> str:
        """The SQL expression for a whole member of this sorted set."""
        return "member"

    # --- messages ------------------------------------------------------------------------------------------

    @abstractmethod
    def publish(self, channel: bytes, data: bytes) -> int:
        """Send a message with the commit; returns the number of subscribers in all processes."""


def wrong_kind(held: int, wanted: int) -> WrongKind:
    return WrongKind(f"the key holds a {KIND_NAMES[held]}, not a {KIND_NAMES[wanted]}")


def in_order(where: str, reverse: bool) -> str:
    order = "score DESC, member DESC" if reverse else "score, member"
    return f"SELECT member, score FROM scored WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608 - constants


def span(indexes: tuple[int, int], size: int) -> tuple[int, int]:
    """An index range of Redis (negative: from the end) as first place and count."""
    start, stop = indexes
    first = max(start + size if start < 0 else start, 0)
    last = min(stop + size if stop < 0 else stop, size - 1)
    return (first, last - first + 1) if first <= last else (0, 0)
