"""One connection to a database server, as the rest sees it: statements in, results out, in one round trip."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from keystead.errors import StoreError


class Statement(NamedTuple):
    """Words in the dialect of the server, and the parameters that go with them."""

    words: str
    parameters: Sequence[Any] = ()


class Result:
    """What a statement gave, in the form that sqlite3 gives it."""

    __slots__ = ("rowcount", "rows")

    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self.rows = rows
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[Any]:
        return self.rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


class DatabaseConnectionLost(Exception):
    """The connection is gone. Whatever was not committed did not take effect."""


class Conflict(Exception):
    """A deadlock, a serialization failure, or a lock that others hold for too long: the transaction did not happen."""


class StatementFailed(Exception):
    """The server will not do this. `error` says why, in a sentence."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class NoSuchTable(Exception):
    """The tables are not there yet."""


class Session(ABC):
    """Used by one thread at a time; only `sever` may come from another. Raises the errors above."""

    ids: list[int]  # that nobody has been given, and that this session may give to new keys

    @abstractmethod
    def ask(self, statements: Sequence[Statement]) -> list[Result]:
        """The result of each, in order, all sent together. After an error the rest of them were not run."""

    @abstractmethod
    def roll_back(self) -> None:
        """End the transaction that is open, if one is. The session can be used again, or is lost."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def sever(self) -> None:
        """Cut the connection, so that whoever waits for the server in `ask` gets ConnectionLost at once."""
