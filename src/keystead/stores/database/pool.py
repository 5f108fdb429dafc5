"""A connection pool: a bounded number of connections, each with a thread, and the groups of batches that run on them.

Batches that wait at the same moment share a transaction: writes with writes, reads with reads. A batch waits while
another batch of this process uses one of its keys, and never overtakes an earlier batch that shares a key with it. So
the writes of one process to a key happen in the order of the calls, and two connections of a process never wait for
each other.

Reads that need one statement use no thread where the session allows it, see `loop_reads`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

from keystead.errors import KeysteadError, StoreClosed, StoreError, StoreUnavailable
from keystead.stores.commands import Call
from keystead.stores.database.cached_tables import CachedTables
from keystead.stores.database.database_session import (
    Conflict,
    DatabaseConnectionLost,
    NoSuchTable,
    Session,
    StatementFailed,
)
from keystead.stores.database.dialect import Dialect
from keystead.stores.database.loop_reads import LoopRead
from keystead.stores.database.pooled_connection import Abandoned, BatchGroup, Job, PooledBatch, PooledConnection
from keystead.stores.sql import Interpreter
from keystead.stores.worker_thread import WorkerThread, ignore_result

GROUP_COMMANDS = 1_000  # a group holds no more than this, unless one batch alone does
TRIES = 8  # of one transaction after conflicts
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.4  # between two attempts to connect


class ConnectionPool:
    def __init__(
        self,
        connect: Callable[[], Session],
        dialect: Dialect,
        url: str,
        *,
        pool: int,
        timeout: float,
        connect_timeout: float,
        ahead_ms: Callable[[], int],
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._url = url
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._ahead_ms = ahead_ms
        self._size = pool
        self._loop = asyncio.get_running_loop()
        self._queue: deque[PooledBatch] = deque()
        self._connections: list[PooledConnection] = []
        self._idle: list[PooledConnection] = []
        self._dispatching = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_idle: asyncio.Future[None] | None = None
        self._down_since: float | None = None  # since when the server has been unreachable, on the loop's clock
        self._reason = ""
        self._again: asyncio.TimerHandle | None = None
        self._pause_s = FIRST_PAUSE_S

    def adopt(self, session: Session, worker: WorkerThread) -> None:
        """Add an open connection."""
        connection = PooledConnection(worker, self._loop)
        connection.session = session
        self._connections.append(connection)
        self._idle.append(connection)

    def submit(
        self,
        calls: Sequence[Call],
        job: Job,
        *,
        writes: bool,
        keys: Iterable[bytes] = (),
        snapshot: bool = False,
        timeless: bool = False,
    ) -> asyncio.Future[Any]:
        """Run a job on the data loaded for these calls and keys. The future completes with its commit."""
        future: asyncio.Future[Any] = self._loop.create_future()
        now = self._loop.time()
        if self._closed:
            future.set_exception(StoreClosed("the store is closed"))
        elif self._down_since is not None and now - self._down_since > self._connect_timeout:
            future.set_exception(StoreUnavailable(self._reason))
        else:
            wanted = keys if not writes else {*keys, *(key for call in calls for key in call.keys)}
            batch = PooledBatch(calls, job, wanted, future, now + self._timeout, writes=writes)
            batch.snapshot, batch.timeless = snapshot, timeless
            self._queue.append(batch)
            if self._timer is None:
                self._timer = self._loop.call_at(now + self._timeout, self._fail_overdue)
            self._schedule_dispatch()
        return future

    async def close(self) -> None:
        """Fail the waiting batches, wait for commits in progress, and close the connections."""
        self._closed = True
        for handle in (self._timer, self._again):
            if handle is not None:
                handle.cancel()
        for batch in self._queue:
            _fail(batch.future, StoreClosed("the store was closed before this finished"))
        self._queue.clear()
        try:
            if len(self._idle) < len(self._connections):
                self._all_idle = self._loop.create_future()
                async with asyncio.timeout(self._timeout):
                    await self._all_idle
        except TimeoutError:
            pass
        finally:
            for connection in self._connections:
                if connection.group is not None:
                    for batch in connection.group.batches:
                        outcome: Literal["not-sent", "unknown"] = (
                            "not-sent" if connection.group.give_up() else "unknown"
                        )
                        _fail(batch.future, StoreUnavailable("the store was closed while this was running", outcome))
                if connection.group is not None and connection.session is not None:
                    connection.session.sever()
            await self._drop_all()

    async def _drop_all(self) -> None:
        """Wait until the connections are closed, but not for one that hangs."""
        left, all_gone = len(self._connections), self._loop.create_future()

        def on_dropped(result: None, error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if not left and not all_gone.done():
                all_gone.set_result(None)

        for connection in self._connections:
            connection.submit(connection.drop, on_dropped)
            connection.stop()
        if left:
            await asyncio.wait({all_gone}, timeout=1.0)

    def abandon(self) -> None:
        """Close the connections without an event loop."""
        for connection in self._connections:
            connection.submit(connection.drop, ignore_result)
            connection.stop()

    # --- which batches run together ------------------------------------------------------------------------

    def _schedule_dispatch(self) -> None:
        """Dispatch one turn later, so that all tasks that are ready now share a group."""
        if not self._dispatching:
            self._dispatching = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = False
        while self._queue and self._down_since is None:
            connection = self._free_connection()
            if connection is None:
                return
            batches = self._next_group()
            if not batches:
                self._idle.append(connection)
                return
            group = connection.group = BatchGroup(batches)
            group.read = LoopRead.begin(connection, group, self._dialect, self._ahead_ms, self._on_data)
            if group.read is None:
                self._work_in_thread(connection, group)

    def _work_in_thread(self, connection: PooledConnection, group: BatchGroup) -> None:
        connection.submit(partial(self._work, connection, group), partial(self._finish, connection, group))

    def _free_connection(self) -> PooledConnection | None:
        if self._idle:
            return self._idle.pop()
        if len(self._connections) < self._size:
            connection = PooledConnection(WorkerThread(f"keystead-{len(self._connections)}", self._loop), self._loop)
            self._connections.append(connection)
            return connection
        return None

    def _next_group(self) -> list[PooledBatch]:
        """The first batch that may run now, and all that may run with it."""
        taken: set[bytes] = set()
        for connection in self._connections:
            if connection.group is not None:
                taken.update(*(batch.keys for batch in connection.group.batches))
        group: list[PooledBatch] = []
        left: deque[PooledBatch] = deque()
        commands = 0
        for batch in self._queue:
            if batch.future.done():
                continue
            joins = not group or (
                batch.writes == group[0].writes
                and not (batch.alone or group[0].alone)
                and commands + len(batch.calls) <= GROUP_COMMANDS
            )
            if not joins or not taken.isdisjoint(batch.keys):
                taken |= batch.keys
                left.append(batch)
            else:
                group.append(batch)
                commands += len(batch.calls)
        self._queue = left
        return group

    # --- in the thread of a connection ---------------------------------------------------------------------

    def _work(self, connection: PooledConnection, group: BatchGroup) -> list[Any]:
        """The result of each batch of the group. Raises StatementFailed if the outcome is unknown."""
        for attempt in range(TRIES):
            if group.stage == "given up":
                raise Abandoned
            if connection.session is None:
                connection.session = self._connect()
            session = connection.session
            try:
                return self._transact(session, group)
            except Conflict as conflict:
                session.roll_back()
                if attempt == TRIES - 1:
                    raise StatementFailed(
                        StoreUnavailable(f"{self._url}: {TRIES} transaction conflicts ({conflict}); try again")
                    ) from None
                group.restart()
                time.sleep(0.002 * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            except DatabaseConnectionLost as lost:
                connection.drop()
                if group.writes and group.stage == "committing":
                    raise StatementFailed(
                        StoreUnavailable(
                            f"{self._url} lost the connection during the commit ({lost}); it may have taken effect",
                            "unknown",
                        )
                    ) from None
                # Nothing took effect: retry on a new connection.
            except BaseException:
                session.roll_back()
                raise
        raise StatementFailed(
            StoreUnavailable(f"{self._url} lost the connection {TRIES} times; is something closing its connections?")
        )

    def _transact(self, session: Session, group: BatchGroup) -> list[Any]:
        tables = CachedTables(session, self._dialect, self._ahead_ms)
        interpreter = Interpreter(tables, lambda: tables.now_ms)
        calls = [call for batch in group.batches for call in batch.calls]
        keys = {key for batch in group.batches for key in batch.keys}
        more = any(batch.snapshot for batch in group.batches)
        timeless = len(group.batches) == 1 and group.batches[0].timeless
        tables.load(calls, keys, writes=group.writes, more=more, timeless=timeless)
        results = [batch.result(interpreter) for batch in group.batches]
        if not group.writes:
            session.roll_back()  # of a snapshot that is still open
        elif not group.start_commit():
            session.roll_back()
            raise Abandoned
        else:
            tables.commit()
        return results

    # --- back in the event loop ----------------------------------------------------------------------------

    def _on_data(self, connection: PooledConnection) -> None:
        """The server has answered a read that the event loop has sent, or closed a connection."""
        group, session = connection.group, connection.session
        if group is None or group.read is None or session is None:
            connection.stop_listening()
            return
        try:
            result = session.receive()
        except (Conflict, DatabaseConnectionLost, NoSuchTable, StatementFailed):
            self._work_in_thread(connection, group)  # which tries again, and says what is wrong
            return
        if result is None:
            return
        try:
            results = group.read.results_of(result)
        except Exception as error:
            self._finish(connection, group, None, error)
        else:
            self._finish(connection, group, results, None)

    def _finish(
        self, connection: PooledConnection, group: BatchGroup, results: list[Any] | None, error: BaseException | None
    ) -> None:
        self._release(connection)
        if error is None and results is not None:
            self._mark_up()
            for batch, result in zip(group.batches, results, strict=True):
                if isinstance(result, KeysteadError):
                    _fail(batch.future, result)
                elif not batch.future.done():
                    batch.future.set_result(result)
        elif isinstance(error, Abandoned):
            self._requeue(group)
        elif isinstance(error, StoreError) and connection.session is None:
            self._mark_down(error)
            self._requeue(group)
        elif len(group.batches) > 1 and not _is_unknown(error):
            # Nothing took effect. One batch may be at fault: each gets a separate group.
            for batch in group.batches:
                batch.alone = True
            self._requeue(group)
        else:
            for batch in group.batches:
                _fail(batch.future, self._explain(error))
        if self._queue and not self._closed:
            self._schedule_dispatch()

    def _release(self, connection: PooledConnection) -> None:
        connection.group = None
        self._idle.append(connection)
        if self._all_idle is not None and len(self._idle) == len(self._connections) and not self._all_idle.done():
            self._all_idle.set_result(None)

    def _explain(self, error: BaseException | None) -> BaseException:
        if isinstance(error, StatementFailed):
            return error.error
        if isinstance(error, NoSuchTable):
            return StoreUnavailable(f"the tables of {self._url} are missing ({error}); reopen the store to create them")
        return error or RuntimeError("the group has no results")

    def _requeue(self, group: BatchGroup) -> None:
        if self._closed:
            for batch in group.batches:
                _fail(batch.future, StoreClosed("the store was closed before this finished"))
        else:
            self._queue.extendleft(reversed(group.batches))
            self._fail_waiting()

    # --- server outages ------------------------------------------------------------------------------------

    def _mark_down(self, error: BaseException) -> None:
        self._reason = str(error)
        if self._down_since is None:
            self._down_since = self._loop.time()
            self._pause_s = FIRST_PAUSE_S
            self._loop.call_later(self._connect_timeout, self._fail_waiting)
        if self._again is None and not self._closed:
            pause = self._pause_s * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
            self._again = self._loop.call_later(pause, self._try_again)
            self._pause_s = min(self._pause_s * 1.5, LONGEST_PAUSE_S)

    def _try_again(self) -> None:
        self._again = None
        connection = self._free_connection()
        if connection is None:  # all are busy, and will notice
            self._again = self._loop.call_later(self._pause_s, self._try_again)
            return

        def after_attempt(result: None, error: BaseException | None) -> None:
            self._release(connection)
            if error is None:
                self._mark_up()
            else:
                self._mark_down(error)

        def attempt() -> None:
            connection.drop()
            connection.session = self._connect()

        connection.submit(attempt, after_attempt)

    def _mark_up(self) -> None:
        if self._down_since is not None:
            self._down_since = None
            self._reason = ""
        if self._queue and not self._closed:
            self._schedule_dispatch()

    def _fail_waiting(self) -> None:
        """Fail all waiting batches once the outage has lasted longer than `connect_timeout`."""
        since = self._down_since
        if since is not None and self._loop.time() - since >= self._connect_timeout:
            for batch in self._queue:
                _fail(batch.future, StoreUnavailable(self._reason))
            self._queue.clear()

    # --- deadlines -----------------------------------------------------------------------------------------

    def _fail_overdue(self) -> None:
        """Fail the batches whose deadline has passed, and set the timer for the next."""
        now = self._loop.time()
        self._timer = None
        for connection in self._connections:
            if connection.group is not None and any(
                batch.deadline <= now and not batch.future.done() for batch in connection.group.batches
            ):
                self._time_out(connection, connection.group, now)
        for batch in self._queue:
            if batch.deadline <= now:
                _fail(batch.future, StoreUnavailable(self._timeout_message()))
        waiting = [
            batch.deadline
            for batch in (
                *self._queue,
                *(b for connection in self._connections if connection.group for b in connection.group.batches),
            )
            if not batch.future.done()
        ]
        if waiting and not self._closed:
            self._timer = self._loop.call_at(min(waiting), self._fail_overdue)

    def _time_out(self, connection: PooledConnection, group: BatchGroup, now: float) -> None:
        """Fail the batches whose deadline has passed. A group that will not commit is retried with the others."""
        is_not_sent = not group.writes or group.give_up()
        for batch in group.batches:
            if batch.deadline <= now:
                _fail(batch.future, StoreUnavailable(self._timeout_message(), "not-sent" if is_not_sent else "unknown"))
        if not group.writes:
            group.give_up()
        if connection.session is not None:
            connection.session.sever()  # otherwise its thread would keep waiting

    def _timeout_message(self) -> str:
        return f"{self._url} did not answer within {self._timeout:g} s; it is slow, or others hold its locks"


def _is_unknown(error: BaseException | None) -> bool:
    return isinstance(error, StatementFailed) and getattr(error.error, "outcome", "") == "unknown"


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
