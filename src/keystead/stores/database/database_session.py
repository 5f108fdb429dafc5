"""One connection to a database server: statements in, results out, in one round trip."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from keystead.errors import StoreError


class Statement(NamedTuple):
    """SQL in the dialect of the server, and its parameters."""

    words: str
    parameters: Sequence[Any] = ()


class Result:
    """The result of a statement, with the interface of a sqlite3 cursor."""

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
    """The connection was lost. Uncommitted changes did not take effect."""


class Conflict(Exception):
    """A deadlock, a serialization failure, or a lock wait timeout: the transaction was rolled back."""


class StatementFailed(Exception):
    """The server rejected a statement. `error` is the error for the caller."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class NoSuchTable(Exception):
    """The tables do not exist yet."""


class Session(ABC):
    """Used by one thread at a time; only `sever` may come from another. Raises the errors above."""

    ids: list[int]  # reserved for new keys of this session
    descriptor: int = -1  # of its socket, if the event loop may `begin` and `receive`

    @abstractmethod
    def ask(self, statements: Sequence[Statement]) -> list[Result]:
        """The result of each, in order, in one round trip. After an error the remaining ones were not run."""

    def begin(self, statement: Statement) -> bool:
        """In the event loop: send one statement, without waiting. False: it cannot be sent like this."""
        return False

    def receive(self) -> Result | None:
        """In the event loop, when something has arrived: the result of this statement; None: it is not complete."""
        raise NotImplementedError

    @abstractmethod
    def roll_back(self) -> None:
        """Roll back the open transaction, if any. The session can be used again, or is lost."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def sever(self) -> None:
        """Cut the connection: a thread that waits in `ask` gets DatabaseConnectionLost immediately."""
