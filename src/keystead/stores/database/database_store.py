"""The base class of stores on a database server."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.stores.commands import Call, Reply
from keystead.stores.database import database_sweep
from keystead.stores.database.cached_tables import CachedTables
from keystead.stores.database.database_feed import DatabaseFeed
from keystead.stores.database.database_schema import Schema, SchemaUpgrade
from keystead.stores.database.database_session import (
    Conflict,
    DatabaseConnectionLost,
    NoSuchTable,
    Session,
    StatementFailed,
)
from keystead.stores.database.database_settings import DatabaseSettings
from keystead.stores.database.dialect import Dialect
from keystead.stores.database.hashed_names import KEPT, text_of
from keystead.stores.database.pool import ConnectionPool
from keystead.stores.database.pooled_connection import Job
from keystead.stores.globs import compile_glob, key_after_prefix, literal_prefix
from keystead.stores.sql import Interpreter
from keystead.stores.sql.key_tables import KIND_NUMBERS
from keystead.stores.store_contract import Guarantees, Message, Outcome, Planned, Store
from keystead.stores.worker_thread import WorkerThread, ignore_result

SWEEP_EVERY_S, SWEEP_PAUSE_S = 1.0, 0.01
# Reads whose reply does not depend on the time if there is no such key.
_TIMELESS = frozenset({"GET", "HGET", "HEXISTS", "EXISTS", "PTTL"})


class DatabaseStore(Store):
    """`ahead_ms`: for tests, how far the clock of the store is ahead of the server's."""

    dialect: ClassVar[type[Dialect]]
    schema: Schema

    def __init__(self, settings: DatabaseSettings, *, ahead_ms: Callable[[], int] = lambda: 0) -> None:
        self.settings = settings
        self.url = settings.url
        self.guarantees = Guarantees(durability="memory", value_max_bytes=self.value_max_bytes)
        self._ahead_ms = ahead_ms
        self._dialect = self.dialect()
        self._open = False

    value_max_bytes: ClassVar[int]

    # --- server-specific -----------------------------------------------------------------------------------

    @abstractmethod
    def connect(self) -> Session:
        """A new connection. Raises StoreError."""

    @abstractmethod
    def read_guarantees(self, session: Session) -> Guarantees:
        """The guarantees of this server, from its configuration."""

    @abstractmethod
    def feed(self) -> DatabaseFeed: ...

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        """`Store.open`. Opening an open store does nothing."""
        if self._open:
            return
        self._loop = asyncio.get_running_loop()
        worker = WorkerThread("keystead-0", self._loop)
        opening = _Opening(self)
        session: Session | None = None
        try:
            async with asyncio.timeout(self.settings.connect_timeout + self.settings.timeout):
                session = await worker.call(opening.run)
        except TimeoutError:
            raise StoreUnavailable(f"{self.url} did not answer in time") from None
        except (DatabaseConnectionLost, Conflict) as error:
            raise StoreUnavailable(f"{self.url} lost the connection while it was opened: {error}") from None
        except NoSuchTable as error:
            raise StoreUnavailable(f"the tables of {self.url} cannot be created: {error}") from None
        except StatementFailed as failed:
            raise failed.error from None
        finally:
            if session is None:  # the thread closes what it opens
                worker.submit(opening.drop, ignore_result)
                worker.stop()
        self._pool = ConnectionPool(
            self.connect,
            self._dialect,
            self.url,
            pool=self.settings.pool,
            timeout=self.settings.timeout,
            connect_timeout=self.settings.connect_timeout,
            ahead_ms=self._ahead_ms,
        )
        self._pool.adopt(session, worker)
        self._feed = self.feed()
        self._open = True
        self._sweeping: asyncio.Task[None] = asyncio.ensure_future(self._sweep())

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._sweeping.cancel()
        self._feed.close(StoreUnavailable("the store was closed"))
        await self._pool.close()

    def _abandon(self) -> None:
        self._open = False
        self._pool.abandon()

    async def upgrade(self, *, dry_run: bool = False) -> SchemaUpgrade:
        """Upgrade the tables to the version of this Keystead, or only plan it (`dry_run`). The store is not open."""
        worker = WorkerThread("keystead-upgrade", asyncio.get_running_loop())

        def job() -> SchemaUpgrade:
            session = self.connect()
            try:
                schema = self.schema
                return schema.plan(session, self.url) if dry_run else schema.upgrade(session, self.url)
            finally:
                session.close()

        try:
            plan: SchemaUpgrade = await worker.call(job)
            return plan
        except StatementFailed as failed:
            raise failed.error from None
        except NoSuchTable as error:
            raise StoreUnavailable(f"the tables of {self.url} cannot be created: {error}") from None
        except (DatabaseConnectionLost, Conflict) as error:
            raise StoreUnavailable(f"{self.url} lost the connection during the upgrade: {error}", "unknown") from None
        finally:
            worker.stop()

    # --- the four verbs ------------------------------------------------------------------------------------

    def _replies(self, calls: list[Call]) -> Awaitable[list[Reply]]:
        timeless = all(call.spec.name in _TIMELESS for call in calls)
        writes = not timeless and any(call.spec.writes for call in calls)
        return self._submit(calls, lambda interpreter: interpreter.replies(calls), writes=writes, timeless=timeless)

    @property
    def runs_are_isolated(self) -> bool:
        return True

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        calls = [step.call for step in steps]
        writes = any(call.spec.writes for call in calls)
        outcome: Outcome = await self._submit(calls, lambda interpreter: interpreter.atomically(steps), writes=writes)
        return outcome

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        """In key order, page by page. A pattern with a literal prefix reads only the keys with that prefix."""
        glob, prefix = compile_glob(pattern), literal_prefix(pattern)[:KEPT]
        after, inclusive = prefix, True
        while True:
            rows, now_ms = await self.read(
                lambda interpreter: self._page(interpreter, after, inclusive, prefix, page)  # noqa: B023
            )
            yield [
                key
                for name, rest, number, expires_at in rows
                if (expires_at is None or expires_at > now_ms)
                and (kind is None or number == KIND_NUMBERS[kind])
                and glob.fullmatch(key := text_of(name, rest))
            ]
            if len(rows) < page:
                return
            after, inclusive = rows[-1][0], False

    def _page(
        self, interpreter: Interpreter[CachedTables], after: bytes, inclusive: bool, prefix: bytes, page: int
    ) -> tuple[list[tuple[bytes, bytes | None, int, int | None]], int]:
        key, beyond = self._dialect.key, key_after_prefix(prefix)
        upper, bounds = ("", (after, page)) if beyond is None else (f"AND {key} < ?", (after, beyond, page))
        rows = interpreter.tables.execute(
            f"SELECT {key}, rest, kind, expires_at FROM keys WHERE {key} {'>=' if inclusive else '>'} ? {upper}"  # noqa: S608
            f" ORDER BY {key} LIMIT ?",
            bounds,
        ).fetchall()
        return rows, interpreter.tables.now_ms

    @asynccontextmanager
    async def _subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[AsyncIterator[Message]]:
        if not self._open:
            raise self._closed_error()
        async with self._feed.subscribe(channels) as mailbox:
            yield mailbox

    # --- reading and writing -------------------------------------------------------------------------------

    def read(self, job: Job, *, snapshot: bool = False) -> Awaitable[Any]:
        """Run a job that only reads; in one `snapshot` if it sends several queries."""
        return self._submit([], job, writes=False, snapshot=snapshot)

    def write(self, job: Job) -> Awaitable[Any]:
        """Run a job that changes no keys, in a write transaction."""
        return self._submit([], job, writes=True)

    def _submit(
        self,
        calls: list[Call],
        job: Job,
        *,
        writes: bool,
        keys: list[bytes] | None = None,
        snapshot: bool = False,
        timeless: bool = False,
    ) -> Awaitable[Any]:
        if not self._open:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(self._closed_error())
            return future
        done = self._pool.submit(calls, job, writes=writes, keys=keys or (), snapshot=snapshot, timeless=timeless)
        if writes and any(call.spec.name == "PUBLISH" for call in calls):
            done.add_done_callback(self._wake_if_done)
        return done

    def _wake_if_done(self, done: asyncio.Future[Any]) -> None:
        if self._open and not done.cancelled() and done.exception() is None:
            self._feed.wake()

    # --- housekeeping --------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Check every second; while there is something to remove, run one small step after another."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            more = True
            while more:
                try:
                    more = await self._sweep_step()
                except KeysteadError:  # after an outage, the next sweep continues
                    more = False
                await asyncio.sleep(SWEEP_PAUSE_S if more else 0)

    async def _sweep_step(self) -> bool:
        """True if there may be more to remove."""
        dead, others = await self.read(
            lambda interpreter: database_sweep.dead_keys(interpreter, self._dialect), snapshot=True
        )
        buried = 0
        if dead:
            buried = await self._submit(
                [], lambda interpreter: database_sweep.bury(interpreter, dead), writes=True, keys=dead
            )
        more = bool(others) and await self.write(
            lambda interpreter: database_sweep.remove_others(interpreter, self._dialect)
        )
        return bool(buried and len(dead) == database_sweep.KEYS_AT_ONCE) or bool(more)


class _Opening:
    """Opens the first connection in a thread. `drop` closes it if the caller gave up."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._session: Session | None = None

    def run(self) -> Session:
        store = self._store
        session = self._session = store.connect()
        store.schema.upgrade(session, store.url)
        store.guarantees = store.read_guarantees(session)
        # Detects a read-only server at the start, not at the first write.
        CachedTables(session, store.dialect(), lambda: 0).take_ids()
        return session

    def drop(self) -> None:
        if self._session is not None:
            self._session.close()
