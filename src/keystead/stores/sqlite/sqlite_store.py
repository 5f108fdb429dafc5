"""The embedded store: `sqlite:///path` and `memory://`.

Reads run in the caller's thread, on a separate connection: they see the last commit and never wait for writers.
Writes share commits (`group_commit`). Threads: one commits, one runs checkpoints, one runs large reads.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import chain
from typing import Any

from keystead.errors import StoreUnavailable
from keystead.stores import durations
from keystead.stores.atomic_steps import PlanTemplate
from keystead.stores.commands import Call, Reply
from keystead.stores.globs import compile_glob, key_after_prefix, literal_prefix
from keystead.stores.near_reads import NearReads
from keystead.stores.sql.key_tables import KIND_NUMBERS
from keystead.stores.sqlite import sqlite_full_copy, sqlite_sweep
from keystead.stores.sqlite.compiled_strings import CompiledStrings
from keystead.stores.sqlite.database_file import connect, explain, is_locked, prepare
from keystead.stores.sqlite.group_commit import CALLS_A_TURN, INLINE_COMMANDS, GroupCommit, InlineCommit, Work
from keystead.stores.sqlite.snapshot import Snapshot
from keystead.stores.sqlite.sqlite_feed import SqliteFeed
from keystead.stores.sqlite.sqlite_interpreter import SqliteInterpreter
from keystead.stores.sqlite.sqlite_near_reads import SqliteNearReads
from keystead.stores.sqlite.sqlite_tables import SqliteTables, TooWide
from keystead.stores.store_contract import Guarantees, Message, Outcome, Planned, Store, WholeKey
from keystead.stores.worker_thread import WorkerThread, ignore_result

MEMORY = ":memory:"
SWEEP_EVERY_S = 1.0
SWEEP_TRIES_S = 0.02
CHECKPOINT_ROWS, CHECKPOINT_BYTES = 16_000, 16 << 20  # written between two checkpoints, at most
SWEEP_CHECKPOINT_ROWS = 2_000  # during a sweep, whose rows are scattered: large checkpoints delay other syncs
CHECKPOINT_FRAMES = 8_000  # a longer log is restarted: overwriting it syncs faster than extending it
HEAVY_ARGUMENTS, HEAVY_BYTES = 64, 1 << 16
_POPS = frozenset({"LPOP", "RPOP", "ZPOPMIN"})
MAPPED_BYTES = 1 << 30


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteStore(Store):
    """`timeout`: how long a write may wait for the disk and for other processes. `clock`: for tests."""

    def __init__(self, path: str, *, timeout: float | None = None, clock: Callable[[], int] = wall_ms) -> None:
        self.path = path
        self._file = path if path == MEMORY else os.path.abspath(path)  # the program may change its working directory
        self.url = "memory://" if path == MEMORY else f"sqlite:///{path}"
        self.guarantees = Guarantees(
            durability="memory" if path == MEMORY else "disk", near="exact", value_max_bytes=900_000_000
        )
        self._timeout = durations.TIMEOUT_S if timeout is None else timeout
        self._clock = clock
        self._open = False
        self._reads = 0
        self._written_bytes = 0
        # SQLite keeps its locks by process: a connection that came through a fork would break them for both.
        self.closes_before_fork = path != MEMORY

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        """`Store.open`. Opening an open store does nothing."""
        if self._open:
            return
        self._loop = asyncio.get_running_loop()
        wait_ms = int(self._timeout * 1000)
        self._memory = self.path == MEMORY
        if self._memory:
            self._writer = self._reader = prepare(MEMORY, wait_ms)
        else:
            self._committer = WorkerThread("keystead-commit", self._loop)
            writer: sqlite3.Connection | None = None
            try:
                self._writer = writer = await self._committer.call(lambda: prepare(self._file, wait_ms))
                self._reader = self._open_reader()
                # With a memory map, one key of a large file is found a third faster: no system call per page. For many
                # keys a map is slow: at each commit of another connection SQLite drops all of it, and every page faults
                # again. So large reads use a connection without one.
                self._reader.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
            except BaseException as error:
                if writer is not None:
                    writer.close()
                self._committer.stop()
                raise (explain(error, self.path) if isinstance(error, sqlite3.Error) else error) from None
        self._writing = SqliteInterpreter(SqliteTables(self._writer, wall_ms), self._clock)
        self._commits: GroupCommit | InlineCommit
        if self._memory:
            self._commits = InlineCommit(self._writer, self._writing, after_commit=self._after_commit)
        else:
            self._commits = GroupCommit(
                self._writer,
                self._writing,
                self.path,
                self._committer,
                self._loop,
                timeout=self._timeout,
                before_group=self._before_group,
                after_commit=self._after_commit,
            )
        self._reading = (
            self._writing if self._memory else SqliteInterpreter(SqliteTables(self._reader, wall_ms), self._clock)
        )
        self._snapshot = Snapshot(self._reader, self._loop)
        self._wide: tuple[WorkerThread, sqlite3.Connection, SqliteInterpreter] | None = None
        self._checkpointer: tuple[WorkerThread, sqlite3.Connection] | None = None
        self._checkpointing = False
        self._checkpointed_rows = self._written_bytes = 0
        self._feed = SqliteFeed(
            self._loop, self._reading.tables, self._writing.tables, self._change, shared=not self._memory
        )
        self._near = SqliteNearReads(self.run, self.version, self._clock)
        self._own_commits = 0  # the version of a database in memory
        self._sweep_limit = 64
        self._open = True
        self._sweep_timer = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._sweep_timer.cancel()
        self._feed.close(StoreUnavailable("the store was closed"))
        if self._memory:
            self._writer.close()
            return
        # The writer last: the last connection to a file checkpoints and removes the log.
        helpers = [(helper[0], helper[1]) for helper in (self._wide, self._checkpointer) if helper is not None]
        helpers.append((self._committer, self._writer))
        try:
            await self._commits.close()
        finally:
            self._snapshot.release()
            self._reader.close()
            try:
                async with asyncio.timeout(self._timeout):
                    for worker, connection in helpers:
                        await worker.call(connection.close)
            except TimeoutError:
                pass  # the disk hangs; do not wait for the threads
            finally:
                for worker, _ in helpers:
                    worker.stop()

    def _abandon(self) -> None:
        self._open = False
        self._reader.close()
        if not self._memory:
            for helper in ((self._committer, self._writer), self._wide, self._checkpointer):
                if helper is not None:
                    helper[0].submit(helper[1].close, ignore_result)
                    helper[0].stop()

    def _open_reader(self, *, wait_ms: int = 0) -> sqlite3.Connection:
        connection = connect(self._file, wait_ms=wait_ms)
        connection.execute("PRAGMA query_only = ON")
        return connection

    # --- the four verbs ------------------------------------------------------------------------------------

    def _replies(self, calls: list[Call]) -> list[Reply] | Awaitable[list[Reply]]:
        writes = heavy = False
        for call in calls:
            if call.spec.writes:
                writes = True
                heavy = self._weigh(call) or heavy
        if writes:
            return self._change(calls, heavy)
        self._reads += 1
        if not self._open or self._memory or self._reads % CALLS_A_TURN == 0:
            return self._read_later(calls)
        return self._fast_replies(calls) or self._read(lambda reading: reading.replies(calls))

    def _fast_replies(self, calls: list[Call]) -> list[Reply] | None:
        """The replies of fast reads; None: they need a thread."""
        try:
            self._snapshot.hold()
            return self._reading.narrow_replies(calls)
        except (TooWide, sqlite3.Error):  # explained if it occurs again
            return None

    async def _read_later(self, calls: list[Call]) -> list[Reply]:
        """`_replies` of reads, after other tasks had a turn."""
        await asyncio.sleep(0)
        if self._open and self._memory:
            return self._reading.replies(calls)
        replies = self._fast_replies(calls) if self._open else None
        if replies is None:
            replies = await self._read(lambda reading: reading.replies(calls))
        return replies

    @property
    def runs_are_isolated(self) -> bool:
        return True

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        writes = [self._weigh(step.call) for step in steps if step.call.spec.writes]
        if writes:
            heavy = len(steps) > INLINE_COMMANDS or any(writes)
            outcome: Outcome = await self._change(lambda: self._writing.atomically(steps), heavy)
        else:
            outcome = await self._read(lambda reading: reading.atomically(steps))
        return outcome

    def _prepared(self, template: PlanTemplate) -> Callable[..., Coroutine[Any, Any, Outcome]]:
        is_own = type(self)._atomically is SqliteStore._atomically
        if not (is_own and CompiledStrings.fits(template) and len(template.steps) <= INLINE_COMMANDS):
            return super()._prepared(template)
        compiled = CompiledStrings(template)

        async def run_compiled(*given: bytes) -> Outcome:
            self._check_loop()
            if self._opened_in is None:
                await self._open_on_use()
            size = sum(map(len, given))
            self._written_bytes += size
            outcome: Outcome = await self._change(
                lambda: self._writing.run_compiled(compiled, given), size > HEAVY_BYTES
            )
            return outcome

        return run_compiled

    @property
    def near(self) -> NearReads | None:
        self._check_loop()
        return self._near if self._open else None

    def version(self) -> int | None:
        """The version of the database: reads of this turn see it or a later one."""
        if not self._open:
            return None
        return self._own_commits if self._memory else self._snapshot.version()

    async def whole_keys(self, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]]:
        found: list[WholeKey] = []
        left: list[bytes] = []
        for at in range(0, len(keys), sqlite_full_copy.KEYS_AT_ONCE):
            some = keys[at : at + sqlite_full_copy.KEYS_AT_ONCE]
            more, rest = await self._read(lambda reading: reading.whole_keys(some))  # noqa: B023
            found += more
            left += rest
        return found, left

    async def add_whole_keys(self, keys: Sequence[WholeKey]) -> list[bool]:
        done: list[bool] = []
        for at in range(0, len(keys), sqlite_full_copy.KEYS_AT_ONCE):
            some = keys[at : at + sqlite_full_copy.KEYS_AT_ONCE]
            self._written_bytes += sum(map(len, chain.from_iterable([key[3] for key in some])))
            done += await self._change(lambda: self._writing.add_whole_keys(some), heavy=True)  # noqa: B023
        return done

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        """In key order. A pattern with a literal prefix reads only the keys with that prefix."""
        glob, prefix = compile_glob(pattern), literal_prefix(pattern)
        after, inclusive = prefix, True
        while True:
            rows = await self._read(lambda reading: _page(reading, after, inclusive, prefix, page))  # noqa: B023
            now_ms = self._clock()
            yield [
                key
                for key, number, expires_at in rows
                if (expires_at is None or expires_at > now_ms)
                and (kind is None or number == KIND_NUMBERS[kind])
                and glob.fullmatch(key)
            ]
            if len(rows) < page:
                return
            after, inclusive = rows[-1][0], False

    @asynccontextmanager
    async def _subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[AsyncIterator[Message]]:
        if not self._open:
            raise self._closed_error()
        async with self._feed.subscribe(channels) as mailbox:
            yield mailbox

    # --- reading and writing -------------------------------------------------------------------------------

    def _weigh(self, call: Call) -> bool:
        """Whether a write is too slow for the event loop. Also counts the bytes that go into the log."""
        args, spec = call.args, call.spec
        size = sum(map(len, args))
        self._written_bytes += size
        if size > HEAVY_BYTES or spec.wide or len(args) > HEAVY_ARGUMENTS:
            return True
        return spec.name in _POPS and len(args) + (call.options or 0) > HEAVY_ARGUMENTS

    async def _read(self, job: Callable[[SqliteInterpreter], Any]) -> Any:
        """A read that may take long: in its own thread, on its own connection, in one snapshot."""
        if not self._open:
            raise self._closed_error()
        if self._memory:
            await asyncio.sleep(0)
            try:
                return job(self._reading)
            finally:
                self._reading.forget()

        def in_one_snapshot() -> Any:
            connection.execute("BEGIN")
            try:
                return job(reading)
            finally:
                reading.forget()
                connection.execute("ROLLBACK")

        try:
            if self._wide is None:
                connection = self._open_reader(wait_ms=int(self._timeout * 1000))
                reading = SqliteInterpreter(SqliteTables(connection, wall_ms), self._clock)
                self._wide = WorkerThread("keystead-read", self._loop), connection, reading
            worker, connection, reading = self._wide
            async with asyncio.timeout(self._timeout):
                return await worker.call(in_one_snapshot)
        except sqlite3.Error as error:
            raise explain(error, self.path) from None
        except TimeoutError:
            raise StoreUnavailable(f"{self.url} did not answer a read within {self._timeout:g} s") from None

    def _change(self, work: Work, heavy: bool = False) -> asyncio.Future[Any]:
        """Run work in a write transaction; the future completes with its commit."""
        if self._open:
            return self._commits.submit(work, heavy=heavy)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(self._closed_error())
        return future

    def _before_group(self) -> None:
        """Before each group."""
        self._snapshot.release()

    def _after_commit(self) -> None:
        """After each commit, before its callers continue."""
        if not self._open:  # closed while the disk hung
            return
        self._own_commits += 1
        self._snapshot.release()
        if self._writing.tables.published:
            self._writing.tables.published = False
            self._feed.wake()
        if not self._memory and (
            self._writer.total_changes - self._checkpointed_rows > CHECKPOINT_ROWS
            or self._written_bytes > CHECKPOINT_BYTES
        ):
            self._checkpoint()

    # --- housekeeping --------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Check every second; while there is something to remove, run one small step after another."""
        if self._checkpointing:  # the disk is busy enough
            self._sweep_timer = self._loop.call_later(0.005, self._sweep)
            return
        try:
            due = sqlite_sweep.is_due(self._reading.tables, self._clock())
        except sqlite3.Error:
            due = False
        if not due:
            if not self._memory and self._writer.total_changes != self._checkpointed_rows:
                self._checkpoint()
            self._sweep_timer = self._loop.call_later(SWEEP_EVERY_S, self._sweep)
        else:
            self._commits.run_between_groups(self._sweep_step).add_done_callback(
                lambda future: self._after_sweep(
                    not future.cancelled() and future.exception() is None and future.result()
                )
            )

    def _sweep_step(self) -> bool:
        """In the worker, between two groups. While another process writes it tries briefly, and again soon."""
        began = time.perf_counter()
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.Error as error:
                if not is_locked(error):
                    raise
                if time.perf_counter() - began > SWEEP_TRIES_S:
                    return True
            time.sleep(0.0005)
        began = time.perf_counter()
        try:
            more = sqlite_sweep.sweep(self._writing.tables, self._clock(), self._sweep_limit)
            self._writer.execute("COMMIT")
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        self._sweep_limit = sqlite_sweep.next_limit(self._sweep_limit, time.perf_counter() - began)
        return more

    def _after_sweep(self, more: bool) -> None:
        if not self._open:
            return
        self._after_commit()
        if not self._memory and self._writer.total_changes - self._checkpointed_rows > SWEEP_CHECKPOINT_ROWS:
            self._checkpoint()
        # A pause as long as a step leaves the disk to other callers.
        self._sweep_timer = self._loop.call_later(0.005 if more else SWEEP_EVERY_S, self._sweep)

    def _checkpoint(self) -> None:
        """Checkpoint the log concurrently with writers. SQLite's automatic checkpoint stalls a commit."""
        if self._checkpointing or not self._open:
            return
        self._checkpointed_rows, self._written_bytes = self._writer.total_changes, 0
        try:
            if self._checkpointer is None:
                connection = connect(self._file)
                self._checkpointer = WorkerThread("keystead-checkpoint", self._loop), connection
        except (sqlite3.Error, RuntimeError):  # no file handle or thread left: a later commit tries again
            return
        self._checkpointing = True
        worker, connection = self._checkpointer
        worker.submit(lambda: _run_checkpoint(connection), self._after_checkpoint)

    def _after_checkpoint(self, log: tuple[int, int] | None, error: BaseException | None) -> None:
        self._checkpointing = False
        if error is None and log is not None and log[0] > CHECKPOINT_FRAMES and self._open:
            # Writers never paused, so the log could not restart: make a pause.
            self._commits.run_between_groups(lambda: _run_checkpoint(self._writer)).add_done_callback(self._restart_log)

    def _restart_log(self, moved: asyncio.Future[tuple[int, int]]) -> None:
        """Between two groups, after a complete checkpoint, while this process does not read from the log."""
        if moved.cancelled() or moved.exception() is not None or not self._open:
            return
        frames, done = moved.result()
        if frames == done:
            self._snapshot.release()
            with suppress(sqlite3.Error):  # another process reads from it: next time
                self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


def _run_checkpoint(connection: sqlite3.Connection) -> tuple[int, int]:
    """The number of frames in the log, and how many of them are checkpointed."""
    _, frames, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(frames), int(done)


def _page(
    reading: SqliteInterpreter, after: bytes, inclusive: bool, prefix: bytes, page: int
) -> list[tuple[bytes, int, int | None]]:
    beyond = key_after_prefix(prefix)
    upper, bounds = ("", (after, page)) if beyond is None else ("AND key < ?", (after, beyond, page))
    return reading.tables.execute(
        f"SELECT key, kind, expires_at FROM keys WHERE key {'>=' if inclusive else '>'} ? {upper} ORDER BY key LIMIT ?",  # noqa: S608
        bounds,
    ).fetchall()
