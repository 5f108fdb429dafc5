"""Messages with PostgreSQL's LISTEN and NOTIFY, on a dedicated connection."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

import psycopg

from keystead.errors import KeysteadError, StoreError, StoreUnavailable
from keystead.stores.database.database_feed import DatabaseFeed, DatabaseSubscriber, Write
from keystead.stores.database.database_session import DatabaseConnectionLost, Statement, StatementFailed
from keystead.stores.postgres.postgres_dialect import channel_name
from keystead.stores.postgres.postgres_session import PostgresSession
from keystead.stores.worker_thread import WorkerThread


class PostgresFeed(DatabaseFeed):
    """`read` runs a job in a snapshot; it is needed for messages that are too long for a notification."""

    def __init__(self, write: Write, read: Write, connect: Callable[[], PostgresSession], url: str) -> None:
        super().__init__(write)
        self._read = read
        self._connect = connect
        self._url = url
        self._session: PostgresSession | None = None
        self._socket = -1  # its descriptor, which libpq no longer returns once the connection is lost
        self._worker: WorkerThread | None = None
        self._lock = asyncio.Lock()
        self._listening: Counter[str] = Counter()
        self._counted: set[DatabaseSubscriber] = set()  # whose channels are in it
        self._channels: dict[str, bytes] = {}
        self._waiting: deque[tuple[bytes, str]] = deque()
        self._delivering: asyncio.Task[None] | None = None

    async def listen(self, subscriber: DatabaseSubscriber) -> None:
        async with self._lock:
            new = [channel for channel in subscriber.channels if not self._listening[channel_name(channel)]]
            await self._say("LISTEN", new)
            for channel in subscriber.channels:
                self._channels[channel_name(channel)] = channel
                self._listening[channel_name(channel)] += 1
            self._counted.add(subscriber)

    def on_subscribed(self, subscriber: DatabaseSubscriber) -> None:
        """Nothing to do: its messages arrive already."""

    def wake(self) -> None:
        """Nothing to do: the server notifies the publisher, too."""

    async def on_unsubscribed(self, subscriber: DatabaseSubscriber) -> None:
        async with self._lock:
            if self._session is None:
                return
            unheard = []
            is_counted = subscriber in self._counted  # else it failed before, and others may still listen
            self._counted.discard(subscriber)
            for channel in subscriber.channels:
                name = channel_name(channel)
                self._listening[name] -= is_counted
                if self._listening[name] <= 0:
                    del self._listening[name]
                    unheard.append(channel)
            await self._say("UNLISTEN", unheard)
            if not self._listening:
                self._hang_up()

    async def _say(self, verb: str, channels: list[bytes]) -> None:
        """LISTEN or UNLISTEN, in the thread of the connection, which is opened if necessary."""
        if self._worker is None:
            self._worker = WorkerThread("keystead-listen", self._loop)
        worker, session = self._worker, self._session
        if session is not None:
            self._loop.remove_reader(self._socket)

        made: list[PostgresSession] = []  # to be closed here on failure

        def say() -> PostgresSession:
            speaking = session or self._connect()
            made[:] = [] if session is not None else [speaking]
            try:
                speaking.ask([Statement(f'{verb} "{channel_name(channel)}"') for channel in channels])
            except BaseException:
                let_go()
                raise
            return speaking

        def let_go() -> None:
            while made:
                made.pop().close()

        try:
            spoken = await worker.call(say)
            if self._worker is not worker:  # closed meanwhile
                let_go()
                raise StoreUnavailable(f"{self._url} was closed while subscribing")
            made.clear()
            self._session = spoken
        except asyncio.CancelledError:
            # The thread continues. When it is done, its new connection is closed; a shared one is read again after
            # `on_unsubscribed`, which follows.
            worker.submit(let_go, lambda result, error: None)
            raise
        except (DatabaseConnectionLost, StatementFailed, OSError) as error:
            self._fail_all(str(error))
            raise StoreUnavailable(f"{self._url} lost the connection while subscribing: {error}") from None
        except StoreError:
            self._fail_all("there is no connection")
            raise
        self._socket = self._session.libpq.socket
        self._loop.add_reader(self._socket, self._hear)
        self._loop.call_soon(self._hear)  # notifications that arrived with the reply

    def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._loop.remove_reader(self._socket)
            session.close()
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        self._listening.clear()
        self._counted.clear()
        self._channels.clear()

    def _fail_all(self, why: str) -> None:
        self._hang_up()
        self.lose(
            StoreUnavailable(
                f"messages may have been missed, because the connection to {self._url} was lost ({why}); subscribe "
                "again, and catch up from stored data"
            )
        )

    def close(self, error: StoreUnavailable) -> None:
        super().close(error)
        if self._delivering is not None:
            self._delivering.cancel()
        self._hang_up()

    # --- notifications -------------------------------------------------------------------------------------

    def _hear(self) -> None:
        session = self._session
        if session is None:
            return
        try:
            session.libpq.consume_input()
            while (notice := session.libpq.notifies()) is not None:
                channel = self._channels.get(notice.relname.decode())
                if channel is not None:
                    self._waiting.append((channel, notice.extra.decode()))
        except psycopg.Error as error:
            self._fail_all(" ".join(str(error).split()))
            return
        if self._waiting and (self._delivering is None or self._delivering.done()):
            if any("#" in text for _, text in self._waiting):
                self._delivering = asyncio.ensure_future(self._deliver_long())
            else:
                self._deliver_short()

    def _deliver_short(self) -> None:
        while self._waiting and "#" not in self._waiting[0][1]:
            channel, text = self._waiting.popleft()
            self.deliver(channel, b64decode(text.partition(":")[2]))

    async def _deliver_long(self) -> None:
        """Deliver messages in order; large ones have to be fetched first."""
        while self._waiting:
            self._deliver_short()
            if not self._waiting:
                return
            channel, text = self._waiting.popleft()
            number = int(text.partition("#")[2])
            found = None
            with suppress(KeysteadError):
                found = await self._read(
                    lambda interpreter: interpreter.tables.execute(
                        "SELECT data FROM messages WHERE id = ?",
                        (number,),  # noqa: B023 - it is awaited here
                    ).fetchone()
                )
            if found is None:
                self._fail_all("a long message could not be read")
                return
            self.deliver(channel, found[0])
