"""Open tables: transactions in threads, retried after a conflict or a lost connection."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Self, TypeVar

from sqlalchemy import Connection, Engine, delete, func, select
from sqlalchemy.exc import DBAPIError, StatementError

from keystead.errors import BadValue, Contended, KeysteadError, StoreClosed, StoreUnavailable
from keystead.parts.tables.changes import Belongings, TableSet, TableUpgrade, plan_upgrades, upgrade_all
from keystead.parts.tables.engines import READS, UPGRADE_S, TableLocation, place_of
from keystead.parts.tables.failures import in_words, is_conflict, is_lost
from keystead.stores.worker_thread import WorkerThread

T = TypeVar("T")

TRIES: Final = 10
GRACE_S: Final = 1.0  # beyond its timeout, for the result to arrive


def open_tables(url: str, *sets: TableSet) -> Tables:
    """Tables of these sets in the database of this URL, to be opened with `async with`.

    `sqlite:///tables.db`, `postgresql://user:password@host/database`, `mysql://…` and `mariadb://…` as for stores,
    with the same options, and `memory://`. Raises BadUrl or MissingExtra for an unusable URL.
    """
    return Tables(place_of(url), sets)


class Tables:
    """Created by `open_tables`. Tasks may share it; the URL's `pool` limits concurrent transactions.

    Opening creates the tables or upgrades them. A database error is a StoreError; its message contains no password and
    no value.
    """

    def __init__(self, place: TableLocation, sets: Sequence[TableSet]) -> None:
        self.url = place.url  # without the password
        self._place = place
        self._sets = tuple(sets)
        self._workers: list[WorkerThread] = []
        self._idle: list[WorkerThread] = []
        self._open = False

    def __repr__(self) -> str:
        return f"<tables in {self.url}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect and upgrade the tables to the version of this Keystead. Does nothing if they are open."""
        if self._open:
            return
        self._begin()
        try:
            await self._upgrade()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections. Waits for commits in progress, up to the timeout."""
        if not self._open:
            return
        self._open = False
        try:
            async with asyncio.timeout(self._place.timeout + GRACE_S):
                for _ in range(self._place.connections):
                    await self._free.acquire()
        except TimeoutError:
            pass
        finally:
            for worker in self._workers:
                worker.stop()
            self._workers, self._idle = [], []
            self._place.engine.dispose()

    async def upgrade(self, *, dry_run: bool = False) -> list[TableUpgrade]:
        """Upgrade the tables to the version of this Keystead, or only return the plan; one plan per set.

        For tables that are not open: opening them does the same. A dry run creates no file.
        """
        if dry_run and self._place.file is not None and not self._place.file.exists():
            return [TableUpgrade(one.name, 0, tuple(one.changes)) for one in self._sets]
        self._begin()
        try:
            if not dry_run:
                return await self._upgrade()
            return await self.read(lambda connection: plan_upgrades(connection, self._sets, self.url))
        finally:
            await self.close()

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run read-only `work` on a connection and return its result. It runs in a thread, maybe several times."""
        return await self._run(work, self._place.engine, self._place.timeout, writes=False)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction: all of it takes effect, or nothing.

        It runs in a thread, and is retried from the start after a conflict (a deadlock, a serialization failure, a busy
        file) or a connection lost before the commit, so it must change nothing but the database. Raises Contended at
        its time limit, and StoreUnavailable, whose `outcome` says whether it may have taken effect. Cancelling the
        caller before the commit changes nothing.
        """
        return await self._run(work, self._place.engine, self._place.timeout)

    async def ping(self) -> None:
        """Check that the database answers. Raises StoreError if it does not."""
        await self.read(lambda connection: connection.execute(select(1)).scalar())

    async def count_of(self, subject: str) -> dict[str, int]:
        """The number of rows that belong to a subject, such as `user:42`, by table; only tables that have some."""
        belongings = self._belongings(subject)

        def work(connection: Connection) -> dict[str, int]:
            counts = {
                one.name: connection.execute(select(func.count()).select_from(one).where(where)).scalar_one()
                for rows in belongings
                for one, where in rows
            }
            return {name: count for name, count in counts.items() if count}

        return await self.read(work)

    async def known_as(self, subject: str) -> list[str]:
        """The other identities of a subject in these tables."""

        def work(connection: Connection) -> list[str]:
            return [other for one in self._sets for other in one.known_as(connection, subject) if other != subject]

        return await self.read(work)

    async def erase(self, subject: str) -> dict[str, int]:
        """Delete all rows that belong to a subject, in one transaction; returns their number by table."""
        belongings = self._belongings(subject)

        def work(connection: Connection) -> dict[str, int]:
            counts: dict[str, int] = {}
            for rows in filter(None, belongings):
                # Lock the parent row first, so that no child rows are added while they are deleted. Without a parent
                # there are no children either, and rows added from now on come after this.
                last, where = rows[-1]
                held = connection.execute(select(*last.primary_key).where(where).with_for_update()).first()
                for one, where in rows:
                    if held is None and (one is last or one.foreign_keys):
                        continue
                    counts[one.name] = connection.execute(delete(one).where(where)).rowcount
            return {name: count for name, count in counts.items() if count}

        return await self.write(work)

    def _belongings(self, subject: str) -> list[Belongings]:
        kind, _, name = subject.partition(":")
        return [one.member_of[kind](name) for one in self._sets if kind in one.member_of]

    # --- in the event loop ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._free = asyncio.Semaphore(self._place.connections)
        self._open = True

    async def _upgrade(self) -> list[TableUpgrade]:
        plans = await self.read(lambda connection: plan_upgrades(connection, self._sets, self.url))
        if not any(plan.changes for plan in plans):
            return plans
        try:
            return await self._run(
                lambda connection: upgrade_all(connection, self._sets, self.url),
                self._place.upgrading,
                max(self._place.timeout, UPGRADE_S),
            )
        finally:
            if self._place.upgrading is not self._place.engine:
                self._place.upgrading.dispose()

    async def _run(self, work: Callable[[Connection], T], engine: Engine, limit_s: float, *, writes: bool = True) -> T:
        if not self._open:
            raise StoreClosed(f"the tables of {self.url} are not open; use `async with`")
        transaction = _Transaction()
        end = time.monotonic() + limit_s
        prepared = engine.execution_options(**{READS: not writes})
        try:
            async with asyncio.timeout(limit_s + GRACE_S):
                result: T = await self._in_thread(
                    lambda: self._transact(work, transaction, prepared, end, writes=writes)
                )
                return result
        except TimeoutError:
            outcome: Literal["not-sent", "unknown"] = "not-sent" if transaction.abandon() else "unknown"
            raise StoreUnavailable(f"{self.url} did not respond within {limit_s:g} seconds", outcome) from None
        except asyncio.CancelledError:
            transaction.abandon()
            raise

    async def _in_thread(self, job: Callable[[], Any]) -> Any:
        await self._free.acquire()
        if not self._open:
            self._free.release()
            raise StoreClosed(f"the tables of {self.url} were closed before this finished")
        if not self._idle:
            self._workers.append(WorkerThread(f"keystead-tables-{len(self._workers)}", asyncio.get_running_loop()))
            self._idle.append(self._workers[-1])
        worker = self._idle.pop()
        idle, free = self._idle, self._free  # of this opening: a hung thread may end after the next one
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: Any, error: BaseException | None) -> None:
            # Here, not in the caller: a cancelled caller leaves a thread that is still working.
            idle.append(worker)
            free.release()
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        worker.submit(job, done)
        return await future

    # --- in a thread ---------------------------------------------------------------------------------------

    def _transact(
        self, work: Callable[[Connection], T], transaction: _Transaction, engine: Engine, end: float, *, writes: bool
    ) -> T:
        conflicts = lost = 0
        while lost < TRIES:
            if transaction.is_abandoned:
                raise _Abandoned
            try:
                return _run_once(work, transaction, engine)
            except DBAPIError as error:
                if is_lost(error):
                    lost += 1
                    if writes and transaction.is_committing:
                        raise StoreUnavailable(
                            f"{self.url} lost the connection during the commit; it may have taken effect", "unknown"
                        ) from None
                elif not is_conflict(error):
                    raise in_words(error, self.url) from None
                else:
                    conflicts += 1
                    if time.monotonic() > end:
                        raise Contended(
                            f"{self.url}: the transaction conflicted with others {conflicts} times; "
                            "nothing was changed, try again"
                        ) from None
            transaction.restart()
            time.sleep(0.002 * 2 ** min(conflicts + lost, 6) * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
        raise StoreUnavailable(f"{self.url} lost the connection {TRIES} times; is something closing its connections?")


def _run_once(work: Callable[[Connection], T], transaction: _Transaction, engine: Engine) -> T:
    try:
        with engine.connect() as connection, connection.begin():
            result = work(connection)
            if not transaction.begin_commit():
                raise _Abandoned
        return result
    except OverflowError:
        raise BadValue("a number exceeds the 64 bits of a column") from None
    except DBAPIError:
        raise
    except StatementError as error:  # a value that its column has refused, wrapped in the statement
        raise (error.orig if isinstance(error.orig, KeysteadError) else error) from None


class _Abandoned(Exception):
    """The caller has stopped waiting."""


class _Transaction:
    """The stage of a transaction, shared by its thread and the event loop, so that both agree on its outcome."""

    def __init__(self) -> None:
        self._stage: Literal["running", "committing", "abandoned"] = "running"
        self._lock = threading.Lock()

    @property
    def is_committing(self) -> bool:
        return self._stage == "committing"

    @property
    def is_abandoned(self) -> bool:
        return self._stage == "abandoned"

    def begin_commit(self) -> bool:
        """In the thread: whether it may commit. From here on the outcome is unknown."""
        with self._lock:
            if self._stage == "running":
                self._stage = "committing"
            return self._stage == "committing"

    def abandon(self) -> bool:
        """In the event loop: stop waiting. True: it certainly does not take effect."""
        with self._lock:
            if self._stage == "running":
                self._stage = "abandoned"
            return self._stage == "abandoned"

    def restart(self) -> None:
        """In the thread: it was rolled back."""
        with self._lock:
            if self._stage == "committing":
                self._stage = "running"
