"""A bounded number of connections, each with a thread, and the groups of batches that run on them.

Batches that wait at the same moment share a transaction: writes with writes, reads with reads. A batch waits while
another of this process has one of its keys, and never overtakes one that came before it with a key of its own. So
what one process writes to a key happens in the order in which it was asked for, and no two connections of a process
ever wait for each other.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from keystead.errors import CommandError, KeysteadError, StoreClosed, StoreError, StoreUnavailable
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
from keystead.stores.sql import Interpreter
from keystead.stores.worker_thread import WorkerThread

GROUP_COMMANDS = 1_000  # a group holds no more than this, unless one batch alone does
TRIES = 8  # of one transaction that meets conflicts
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.4  # between two attempts to connect

Job = Callable[[Interpreter[CachedTables]], Any]


class PooledBatch:
    """Work that is to take effect as a whole, and whoever waits for it."""

    __slots__ = ("alone", "calls", "deadline", "future", "job", "keys", "snapshot", "writes")

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
        self.alone = False  # whether it shares a transaction with no other
        self.snapshot = False  # whether its job asks more than once, and wants one state for all of it


class BatchGroup:
    """Batches that share a transaction. Its stage is changed by two threads, so that none is told what is not so."""

    def __init__(self, batches: list[PooledBatch]) -> None:
        self.batches = batches
        self.writes = batches[0].writes
        self.stage: Literal["running", "committing", "given up"] = "running"
        self._lock = threading.Lock()

    def commits(self) -> bool:
        """In the thread of its connection: whether it may commit. From here on its outcome is not known."""
        with self._lock:
            if self.stage == "running":
                self.stage = "committing"
            return self.stage == "committing"

    def gives_up(self) -> bool:
        """In the event loop: whether it will surely not take effect."""
        with self._lock:
            if self.stage == "running":
                self.stage = "given up"
            return self.stage == "given up"

    def begins_again(self) -> None:
        with self._lock:
            if self.stage == "committing":
                self.stage = "running"


class _GivenUp(Exception):
    """Nobody waits for the group any more, or its time is over."""


class PooledConnection:
    """A thread, and the connection that it has, if it has one."""

    __slots__ = ("group", "session", "worker")

    def __init__(self, worker: WorkerThread) -> None:
        self.worker = worker
        self.session: Session | None = None
        self.group: BatchGroup | None = None  # what runs there now

    def drop(self) -> None:
        """In its thread: let the connection go."""
        session, self.session = self.session, None
        if session is not None:
            session.close()


class Lanes:
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
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._queue: deque[PooledBatch] = deque()
        self._lanes: list[PooledConnection] = []
        self._idle: list[PooledConnection] = []
        self._dispatching = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_idle: asyncio.Future[None] | None = None
        self._down_since: float | None = None  # when the server could last not be reached, on the loop's clock
        self._reason = ""
        self._again: asyncio.TimerHandle | None = None
        self._pause_s = FIRST_PAUSE_S

    def adopt(self, session: Session, worker: WorkerThread) -> None:
        """A connection that is already there."""
        lane = PooledConnection(worker)
        lane.session = session
        self._lanes.append(lane)
        self._idle.append(lane)

    def submit(
        self,
        calls: Sequence[Call],
        job: Job,
        *,
        writes: bool,
        keys: Iterable[bytes] = (),
        snapshot: bool = False,
    ) -> asyncio.Future[Any]:
        """Run a job on what was loaded for these calls, and for these keys. The future ends with its commit."""
        future: asyncio.Future[Any] = self._loop.create_future()
        now = self._loop.time()
        if self._closed:
            future.set_exception(StoreClosed("the store is closed"))
        elif self._down_since is not None and now - self._down_since > self._connect_timeout:
            future.set_exception(StoreUnavailable(self._reason))
        else:
            wanted = keys if not writes else {*keys, *(key for call in calls for key in call.keys)}
            batch = PooledBatch(calls, job, wanted, future, now + self._timeout, writes=writes)
            batch.snapshot = snapshot
            self._queue.append(batch)
            if self._timer is None:
                self._timer = self._loop.call_at(now + self._timeout, self._overdue)
            self._soon()
        return future

    async def close(self) -> None:
        """End what waits with an error, wait for what is being committed, and let the connections go."""
        self._closed = True
        for handle in (self._timer, self._again):
            if handle is not None:
                handle.cancel()
        for batch in self._queue:
            _fail(batch.future, StoreClosed("the store was closed before this was done"))
        self._queue.clear()
        try:
            if len(self._idle) < len(self._lanes):
                self._all_idle = self._loop.create_future()
                async with asyncio.timeout(self._timeout):
                    await self._all_idle
        except TimeoutError:
            pass
        finally:
            for lane in self._lanes:
                if lane.group is not None:
                    for batch in lane.group.batches:
                        outcome: Literal["not-sent", "unknown"] = "not-sent" if lane.group.gives_up() else "unknown"
                        _fail(batch.future, StoreUnavailable("the store was closed while this was done", outcome))
                if lane.group is not None and lane.session is not None:
                    lane.session.sever()
            await self._drop_all()

    async def _drop_all(self) -> None:
        """Wait until the connections are closed, but not for one that hangs."""
        left, all_gone = len(self._lanes), self._loop.create_future()

        def dropped(result: None, error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if not left and not all_gone.done():
                all_gone.set_result(None)

        for lane in self._lanes:
            lane.worker.submit(lane.drop, dropped)
            lane.worker.stop()
        if left:
            await asyncio.wait({all_gone}, timeout=1.0)

    def abandon(self) -> None:
        """Without an event loop: let the connections go."""
        for lane in self._lanes:
            lane.worker.submit(lane.drop, _nobody_waits)
            lane.worker.stop()

    # --- which batches run together ------------------------------------------------------------------------

    def _soon(self) -> None:
        """One turn later, so that all tasks that are ready now come into one group."""
        if not self._dispatching:
            self._dispatching = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = False
        while self._queue and self._down_since is None:
            lane = self._free_lane()
            if lane is None:
                return
            batches = self._next_group()
            if not batches:
                self._idle.append(lane)
                return
            group = lane.group = BatchGroup(batches)
            lane.worker.submit(
                lambda lane=lane, group=group: self._work(lane, group),  # type: ignore[misc]
                lambda results, error, lane=lane, group=group: self._finish(lane, group, results, error),  # type: ignore[misc]
            )

    def _free_lane(self) -> PooledConnection | None:
        if self._idle:
            return self._idle.pop()
        if len(self._lanes) < self._pool:
            lane = PooledConnection(WorkerThread(f"keystead-{len(self._lanes)}", self._loop))
            self._lanes.append(lane)
            return lane
        return None

    def _next_group(self) -> list[PooledBatch]:
        """The first that may run now, and all that may run with it."""
        taken: set[bytes] = set()
        for lane in self._lanes:
            if lane.group is not None:
                taken.update(*(batch.keys for batch in lane.group.batches))
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

    # --- in the thread of a lane ---------------------------------------------------------------------------

    def _work(self, lane: PooledConnection, group: BatchGroup) -> list[Any]:
        """The result of each batch of the group. Raises StoreUnavailable where the outcome is not known."""
        for attempt in range(TRIES):
            if group.stage == "given up":
                raise _GivenUp
            if lane.session is None:
                lane.session = self._connect()
            session = lane.session
            try:
                return self._transact(session, group)
            except Conflict as conflict:
                session.roll_back()
                if attempt == TRIES - 1:
                    raise StatementFailed(
                        StoreUnavailable(f"{self._url}: others were in the way {TRIES} times ({conflict}); try again")
                    ) from None
                group.begins_again()
                time.sleep(0.002 * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - spreads them apart
            except DatabaseConnectionLost as lost:
                lane.drop()
                if group.writes and group.stage == "committing":
                    raise StatementFailed(
                        StoreUnavailable(
                            f"{self._url} was lost while this was written ({lost}); it may have taken effect", "unknown"
                        )
                    ) from None
                # Nothing of it took effect: it begins anew, on another connection.
            except BaseException:
                session.roll_back()
                raise
        raise StatementFailed(
            StoreUnavailable(f"{self._url} was lost {TRIES} times; is something ending its connections?")
        )

    def _transact(self, session: Session, group: BatchGroup) -> list[Any]:
        tables = CachedTables(session, self._dialect, self._ahead_ms)
        interpreter = Interpreter(tables, lambda: tables.now_ms)
        calls = [call for batch in group.batches for call in batch.calls]
        keys = {key for batch in group.batches for key in batch.keys}
        asks_more = any(batch.snapshot for batch in group.batches)
        tables.load(calls, keys, writes=group.writes, asks_more=asks_more)
        results = [_result(batch, interpreter) for batch in group.batches]
        if not group.writes:
            session.roll_back()  # of a snapshot that is still open
        elif not group.commits():
            session.roll_back()
            raise _GivenUp
        else:
            tables.commit()
        return results

    # --- back in the event loop ----------------------------------------------------------------------------

    def _finish(
        self, lane: PooledConnection, group: BatchGroup, results: list[Any] | None, error: BaseException | None
    ) -> None:
        self._freed(lane)
        if error is None and results is not None:
            self._reached()
            for batch, result in zip(group.batches, results, strict=True):
                if isinstance(result, KeysteadError):
                    _fail(batch.future, result)
                elif not batch.future.done():
                    batch.future.set_result(result)
        elif isinstance(error, _GivenUp):
            self._wait_again(group)
        elif isinstance(error, StoreError) and lane.session is None:
            self._not_reached(error)
            self._wait_again(group)
        elif len(group.batches) > 1 and not _is_unknown(error):
            # Nothing of the group took effect. One batch may be at fault: each gets a group of its own.
            for batch in group.batches:
                batch.alone = True
            self._wait_again(group)
        else:
            for batch in group.batches:
                _fail(batch.future, self._explained(error))
        if self._queue and not self._closed:
            self._soon()

    def _freed(self, lane: PooledConnection) -> None:
        lane.group = None
        self._idle.append(lane)
        if self._all_idle is not None and len(self._idle) == len(self._lanes) and not self._all_idle.done():
            self._all_idle.set_result(None)

    def _explained(self, error: BaseException | None) -> BaseException:
        if isinstance(error, StatementFailed):
            return error.error
        if isinstance(error, NoSuchTable):
            return StoreUnavailable(f"the tables of {self._url} are gone ({error}); open the store again to make them")
        return error or RuntimeError("the group has no results")

    def _wait_again(self, group: BatchGroup) -> None:
        if self._closed:
            for batch in group.batches:
                _fail(batch.future, StoreClosed("the store was closed before this was done"))
        else:
            self._queue.extendleft(reversed(group.batches))
            self._expire_waiting()

    # --- a server that is away -----------------------------------------------------------------------------

    def _not_reached(self, error: BaseException) -> None:
        self._reason = str(error)
        if self._down_since is None:
            self._down_since = self._loop.time()
            self._pause_s = FIRST_PAUSE_S
            self._loop.call_later(self._connect_timeout, self._expire_waiting)
        if self._again is None and not self._closed:
            pause = self._pause_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads clients apart
            self._again = self._loop.call_later(pause, self._try_again)
            self._pause_s = min(self._pause_s * 1.5, LONGEST_PAUSE_S)

    def _try_again(self) -> None:
        self._again = None
        lane = self._free_lane()
        if lane is None:  # the others will find out
            self._again = self._loop.call_later(self._pause_s, self._try_again)
            return

        def tried(result: None, error: BaseException | None) -> None:
            self._freed(lane)
            if error is None:
                self._reached()
            else:
                self._not_reached(error)

        def attempt() -> None:
            lane.drop()
            lane.session = self._connect()

        lane.worker.submit(attempt, tried)

    def _reached(self) -> None:
        if self._down_since is not None:
            self._down_since = None
            self._reason = ""
        if self._queue and not self._closed:
            self._soon()

    def _expire_waiting(self) -> None:
        """Where the server has been away for too long, nobody waits any longer."""
        since = self._down_since
        if since is not None and self._loop.time() - since >= self._connect_timeout:
            for batch in self._queue:
                _fail(batch.future, StoreUnavailable(self._reason))
            self._queue.clear()

    # --- deadlines -----------------------------------------------------------------------------------------

    def _overdue(self) -> None:
        """End the waiting of whoever has waited for too long, and set the clock for the next."""
        now = self._loop.time()
        self._timer = None
        for lane in self._lanes:
            if lane.group is not None and any(
                batch.deadline <= now and not batch.future.done() for batch in lane.group.batches
            ):
                self._end_waiting(lane, lane.group, now)
        for batch in self._queue:
            if batch.deadline <= now:
                _fail(batch.future, StoreUnavailable(self._late()))
        waiting = [
            batch.deadline
            for batch in (*self._queue, *(b for lane in self._lanes if lane.group for b in lane.group.batches))
            if not batch.future.done()
        ]
        if waiting and not self._closed:
            self._timer = self._loop.call_at(min(waiting), self._overdue)

    def _end_waiting(self, lane: PooledConnection, group: BatchGroup, now: float) -> None:
        """The batches whose time is over learn what is known of them; a group that cannot commit is begun anew."""
        surely_not = not group.writes or group.gives_up()
        for batch in group.batches:
            if batch.deadline <= now:
                _fail(batch.future, StoreUnavailable(self._late(), "not-sent" if surely_not else "unknown"))
        if not group.writes:
            group.gives_up()
        if lane.session is not None:
            lane.session.sever()  # or its thread would wait on

    def _late(self) -> str:
        return f"{self._url} did not answer within {self._timeout:g} s; it is slow, or others hold what this needs"


def _result(batch: PooledBatch, interpreter: Interpreter[CachedTables]) -> Any:
    if batch.future.done():
        return None
    try:
        return batch.job(interpreter)
    except CommandError as error:
        return error


def _is_unknown(error: BaseException | None) -> bool:
    return isinstance(error, StatementFailed) and getattr(error.error, "outcome", "") == "unknown"


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _nobody_waits(result: object, error: BaseException | None) -> None:
    """For what is done when the store is already gone."""
