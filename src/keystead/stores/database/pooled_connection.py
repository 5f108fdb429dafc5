"""What a connection pool is made of: batches, the groups in which they run, and connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from keystead.errors import CommandError
from keystead.stores.commands import Call
from keystead.stores.database.cached_tables import CachedTables
from keystead.stores.database.database_session import Session
from keystead.stores.sql import Interpreter
from keystead.stores.worker_thread import Done, WorkerThread

if TYPE_CHECKING:
    from keystead.stores.database.loop_reads import LoopRead

Job: TypeAlias = Callable[[Interpreter[CachedTables]], Any]


class PooledBatch:
    """Work that takes effect as a whole, and the future of its caller."""

    __slots__ = ("alone", "calls", "deadline", "future", "job", "keys", "snapshot", "timeless", "writes")

    def __init__(
        self,
        calls: Sequence[Call],
        job: Job,
        keys: Iterable[bytes],
        future: asyncio.Future[Any],
        deadline: float,
        *,
        writes: bool,
    ) -> None:
        self.calls = calls
        self.job = job
        self.keys = frozenset(keys)
        self.writes = writes
        self.future = future
        self.deadline = deadline
        self.alone = False  # whether it runs in a separate transaction
        self.snapshot = False  # whether its job sends several queries that must see one state
        self.timeless = False  # whether it needs the time only for a key that exists

    def result(self, interpreter: Interpreter[CachedTables]) -> Any:
        if self.future.done():
            return None
        try:
            return self.job(interpreter)
        except CommandError as error:
            return error


class BatchGroup:
    """Batches that share a transaction. Two threads change its stage, under a lock, so reported outcomes are true."""

    def __init__(self, batches: list[PooledBatch]) -> None:
        self.batches = batches
        self.writes = batches[0].writes
        self.read: LoopRead | None = None  # if the event loop reads for it
        self.stage: Literal["running", "committing", "given up"] = "running"
        self._lock = threading.Lock()

    def start_commit(self) -> bool:
        """In the thread of its connection: whether it may commit. From here on its outcome is unknown."""
        with self._lock:
            if self.stage == "running":
                self.stage = "committing"
            return self.stage == "committing"

    def give_up(self) -> bool:
        """In the event loop: whether it is certain not to take effect."""
        with self._lock:
            if self.stage == "running":
                self.stage = "given up"
            return self.stage == "given up"

    def restart(self) -> None:
        with self._lock:
            if self.stage == "committing":
                self.stage = "running"


class Abandoned(Exception):
    """The group was cancelled or timed out."""


class PooledConnection:
    """A thread, and its connection, if it has one."""

    __slots__ = ("_listener", "_loop", "_worker", "group", "session")

    def __init__(self, worker: WorkerThread, loop: asyncio.AbstractEventLoop) -> None:
        self.session: Session | None = None
        self.group: BatchGroup | None = None  # that runs there now
        self._worker = worker
        self._loop = loop
        self._listener = -1  # the file descriptor that the event loop watches

    def submit(self, job: Callable[[], Any], done: Done) -> None:
        """Run a job in the thread, to which the connection belongs meanwhile."""
        self.stop_listening()
        self._worker.submit(job, done)

    def listen(self, on_data: Callable[[PooledConnection], None]) -> bool:
        """Have the event loop call this when the server has sent something. False: this connection, or this event loop,
        cannot do it."""
        if self._listener < 0:
            descriptor = -1 if self.session is None else self.session.descriptor
            if descriptor < 0:
                return False
            try:
                self._loop.add_reader(descriptor, on_data, self)
            except (NotImplementedError, OSError):  # the proactor of Windows; a connection that was lost
                return False
            self._listener = descriptor
        return True

    def stop_listening(self) -> None:
        if self._listener >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._listener)
            self._listener = -1

    def stop(self) -> None:
        """End the thread after the submitted jobs."""
        self._worker.stop()

    def drop(self) -> None:
        """In its thread: close the connection."""
        session, self.session = self.session, None
        if session is not None:
            session.close()
