"""One Redis or Valkey server, or the master that the sentinels name."""

from __future__ import annotations

import asyncio
import secrets
from _thread import get_ident
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Literal, TypeVar

from keystead.errors import (
    CommandError,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from keystead.stores.changed_keys import ChangedKeys
from keystead.stores.commands import Call, Command, Reply, read
from keystead.stores.near_reads import NearReads, dropping
from keystead.stores.reconnecting_link import ConnectionLost
from keystead.stores.redis.atomic_script import Script
from keystead.stores.redis.compiled_steps import CompiledScript, CompiledSteps
from keystead.stores.redis.compiled_store import CompiledStore, written_keys
from keystead.stores.redis.foreign_commands import run_foreign
from keystead.stores.redis.redis_connection import RedisConnection, call, pack_command
from keystead.stores.redis.redis_full_copy import WholeKeys
from keystead.stores.redis.redis_link import RedisLink, dial, sign_in
from keystead.stores.redis.redis_near_reads import RedisNearReads
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.reply_errors import ReplyError, refusal
from keystead.stores.redis.reply_shapes import SHAPES, is_transient
from keystead.stores.redis.script_runs import (
    PAUSE_S,
    Answer,
    Runnable,
    convert_reply,
    refuse_unsafe,
    run_script,
    to_retry,
)
from keystead.stores.redis.subscription import Listener, subscription
from keystead.stores.redis.tracked_keys import KeyListener, tracked_keys
from keystead.stores.store_contract import (
    Guarantees,
    Message,
    Outcome,
    Planned,
    Step,
    without_errors,
)

T = TypeVar("T")

OLDEST_VERSION = 7
MASTER_CHECK_S = 0.5  # how often to ask the sentinels for the master
MAX_BYTES = 512 * 1024 * 1024  # proto-max-bulk-len


class RedisStore(CompiledStore):
    def __init__(self, settings: RedisSettings) -> None:
        super().__init__()
        self.url = settings.url
        self.guarantees = Guarantees(durability="memory", key_max_bytes=MAX_BYTES, value_max_bytes=MAX_BYTES)
        self._settings = settings
        self._link: RedisLink | None = None
        self._listeners: set[Listener] = set()
        self._key_listeners: set[KeyListener] = set()
        self._watching: asyncio.Task[None] | None = None
        self._near: RedisNearReads | None = None  # from the first near read on

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._link is not None:
            return
        self._loop = asyncio.get_running_loop()
        link = RedisLink(self._settings, self._locate, self._greet_link)
        await link.open()
        try:
            connection = await link.wait_for_connection(self._loop.time() + self._settings.timeout)
            self.guarantees = replace(await stated_guarantees(connection, "any keys"), near="bounded")
        except BaseException:
            await link.close()
            raise
        self._link = link
        if self._settings.topology == "sentinel":
            self._watching = asyncio.create_task(self._watch(link))

    async def close(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            stopping: list[Listener | KeyListener] = [*self._listeners, *self._key_listeners]
            for listener in stopping:
                listener.stop(f"{self.url} was closed")
            link.stop()
            if self._near is not None:
                near, self._near = self._near, None
                await near.close()
            if self._watching is not None:
                self._watching.cancel()
                await asyncio.wait({self._watching})
            await link.close()

    async def _locate(self) -> RedisAddress:
        if self._settings.topology == "sentinel":
            return await master_of(self._settings)
        return self._settings.addresses[0]

    async def _watch(self, link: RedisLink) -> None:
        """Leave a master that was replaced while it was alive, or only suspended.

        It accepts writes for some ten more seconds, until the sentinels make it a replica: those writes would be lost.
        """
        while True:
            await asyncio.sleep(MASTER_CHECK_S)
            connection = link.connection
            if connection is None or connection.lost is not None:
                continue
            with suppress(StoreError):  # the next reconnect reports errors of the sentinels
                master = await self._locate()
                if master != connection.address:
                    link.drop(connection, f"{master} is the master now")
                if self._near is not None and self._near.address not in (None, master):
                    self._near.leave(f"{master} is the master now")

    async def _greet(self, connection: RedisConnection) -> None:
        settings = self._settings
        await sign_in(connection, settings.user, settings.password, settings.database)
        await require_writable(connection, b"keystead:probe:" + secrets.token_hex(8).encode())

    async def _greet_link(self, connection: RedisConnection) -> None:
        await self._greet(connection)
        self._leave_near(f"the store has connected to {connection.address} again")
        connection.on_end = self._leave_near

    def _leave_near(self, reason: str) -> None:
        """Copies never outlive the connection of other reads: after a fail-over, a name leads to another server."""
        if self._near is not None:
            self._near.leave(reason)

    # --- the four verbs ------------------------------------------------------------------------------------

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        link = self._link
        connection = None if link is None else link.connection
        if link is None or connection is None or connection.lost is not None or connection.congested is not None:
            return await super().run(commands)
        # The fast path, inlined: one more coroutine is a good part of the cost of a read.
        if get_ident() != self._opened_thread or not self._loop_runs():
            self._check_loop()
        given: list[Any] = commands if type(commands) is list else list(commands)
        try:
            # Typed reads pass a Call, which `read` would return unchanged.
            calls = [command if type(command) is Call else read(command) for command in given]
        except CommandError:
            return await super().run(given)
        if not calls:
            return []
        if self._near is not None and (written := [key for one in calls if one.spec.writes for key in one.keys]):
            return await dropping(self._near, written, super().run(given))
        now, payload = self._loop.time(), pack(calls)
        try:
            replies = await connection.send(payload, len(calls), now)
        except ConnectionLost as lost:
            return await self._ask_again(now, link, calls, payload, lost)
        for reply in replies:
            if type(reply) is ReplyError:
                return await self._finish_errors(now, link, connection, calls, replies)
        for place, call_ in enumerate(calls):
            shape = SHAPES.get(call_.spec.name)
            if shape is not None:
                replies[place] = shape(call_, replies[place])
        return replies

    def repeated(self, calls: list[Any]) -> Callable[[], Coroutine[Any, Any, list[Reply]]]:
        payload, count = pack(calls), len(calls)
        shapes = [(place, one, SHAPES[one.spec.name]) for place, one in enumerate(calls) if one.spec.name in SHAPES]

        async def read_again() -> list[Reply]:
            # As the fast path of `run`, without looking at the commands.
            link = self._link
            connection = None if link is None else link.connection
            if link is None or connection is None or connection.lost is not None or connection.congested is not None:
                return await self.run(calls)
            if get_ident() != self._opened_thread or not self._loop_runs():
                self._check_loop()
            now = self._loop.time()
            try:
                replies = await connection.send(payload, count, now)
            except ConnectionLost as lost:
                return await self._ask_again(now, link, calls, payload, lost)
            for reply in replies:
                if type(reply) is ReplyError:
                    return await self._finish_errors(now, link, connection, calls, replies)
            for place, call_, shape in shapes:
                replies[place] = shape(call_, replies[place])
            return replies

        return read_again

    async def _ask_again(
        self, began: float, link: RedisLink, calls: list[Call], payload: bytes, lost: ConnectionLost
    ) -> list[Reply]:
        return without_errors(await self._exchange_until(began + self._settings.timeout, link, calls, payload, lost))

    async def _finish_errors(
        self, began: float, link: RedisLink, connection: RedisConnection, calls: list[Call], replies: list[Any]
    ) -> list[Reply]:
        return without_errors(await self._finish(began + self._settings.timeout, link, connection, calls, replies))

    async def _replies(self, calls: list[Call]) -> list[Reply]:
        if self._link is None:
            raise self._closed_error()
        return await self._exchange_until(self._loop.time() + self._settings.timeout, self._link, calls, pack(calls))

    @property
    def near(self) -> NearReads | None:
        if get_ident() != self._opened_thread or not self._loop_runs():
            self._check_loop()
        if self._near is None and self._link is not None:
            self._near = RedisNearReads(self._settings, self._locate, self._greet, self.run)
        return self._near

    async def _run_compiled(
        self, compiled: CompiledSteps, arguments: Sequence[bytes], steps: Callable[[], Sequence[Step]]
    ) -> Outcome:
        link = self._link
        if link is None:
            raise self._closed_error()
        now, connection = self._loop.time(), link.connection
        answer: Answer | None = None
        if connection is not None and connection.lost is None and connection.congested is None:
            try:
                [reply] = await connection.send(compiled_request(connection, compiled, arguments), 1, now)
            except ConnectionLost as lost:
                answer = _answer(link, connection, lost.with_traceback(None))
            else:
                outcome = compiled.outcome(reply)
                if outcome is not None:
                    return outcome
                answer = _answer(link, connection, reply)
        return await run_on(link, CompiledScript(compiled, steps(), arguments), now + self._settings.timeout, answer)

    async def _exchange_until(
        self,
        deadline: float,
        link: RedisLink,
        calls: list[Call],
        payload: bytes,
        lost: ConnectionLost | None = None,
    ) -> list[Reply]:
        """Without a connection, or after it was lost: wait for one, and retry if that is safe."""
        while True:
            if lost is not None:
                if link is not self._link:
                    raise StoreClosed(f"{self.url} was closed")
                refuse_unsafe(lost, calls)
                if self._loop.time() >= deadline:
                    raise StoreUnavailable(str(lost))
            connection = await link.wait_for_connection(deadline)
            try:
                replies = await connection.send_until(deadline, payload, len(calls))
            except ConnectionLost as again:
                lost = again.with_traceback(None)  # its traceback would keep this frame and the payload in memory
                continue
            return await self._finish(deadline, link, connection, calls, replies)

    async def _finish(
        self, deadline: float, link: RedisLink, connection: RedisConnection, calls: list[Call], replies: list[Any]
    ) -> list[Reply]:
        """Convert the replies; retry the commands for which the server was unavailable."""
        while waiting := [i for i, reply in enumerate(replies) if is_transient(reply)]:
            demoted = "READONLY" in str(replies[waiting[0]])
            if demoted:
                link.drop(connection, "it is no longer the master")
            again = to_retry(calls, replies, waiting[0], demoted)
            if not again or self._loop.time() + PAUSE_S >= deadline:
                break
            await asyncio.sleep(PAUSE_S)
            try:
                connection = await link.wait_for_connection(deadline)
                retried = await connection.send_until(deadline, pack([calls[i] for i in again]), len(again))
            except (ConnectionLost, StoreUnavailable) as error:
                may_have_run = isinstance(error, ConnectionLost) and error.sent
                is_unknown = may_have_run and any(calls[i].spec.writes for i in again)
                for i in again:
                    replies[i] = StoreUnavailable(str(error), "unknown" if is_unknown else "not-sent")
                break
            for i, reply in zip(again, retried, strict=True):
                replies[i] = reply
        return [convert_reply(c, reply, connection.address) for c, reply in zip(calls, replies, strict=True)]

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        if self._link is None:
            raise self._closed_error()
        work = run_on(self._link, Script(steps), self._loop.time() + self._settings.timeout)
        if self._near is None:
            return await work
        return await dropping(self._near, written_keys(steps), work)

    async def _run_copy_script(self, script: WholeKeys) -> list[Any]:
        if self._link is None:
            raise self._closed_error()
        return await run_on(self._link, script, self._loop.time() + self._settings.timeout)

    @property
    def takes_foreign(self) -> bool:
        return True

    async def run_foreign(self, commands: Sequence[Sequence[str | bytes]], *, atomic: bool = False) -> list[Reply]:
        self._check_loop()
        if self._link is None:
            raise self._closed_error()
        work = run_foreign(self._link, commands, self._loop.time() + self._settings.timeout, atomic)
        near = self._near
        if near is None:
            return await work
        near.drop_all()  # nobody knows what they write
        try:
            return await work
        finally:
            near.drop_all()

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        cursor = b"0"
        while True:
            [(cursor, keys)] = await self.run([scan_command(cursor, pattern, kind, page)])
            yield list(dict.fromkeys(keys))
            if cursor == b"0":
                return

    @asynccontextmanager
    async def _subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[AsyncIterator[Message]]:
        if self._link is None:
            raise self._closed_error()
        async with subscription(self._settings, await self._locate(), channels, self._listeners) as mailbox:
            if self._link is None:
                raise StoreClosed(f"{self.url} was closed")
            yield mailbox

    @asynccontextmanager
    async def changed_keys(self, prefixes: Sequence[bytes] = (b"",)) -> AsyncIterator[AsyncIterator[ChangedKeys]]:
        self._check_loop()
        if self._opened_in is None:
            await self._open_on_use()
        if self._link is None:
            raise self._closed_error()
        address = await self._locate()
        async with tracked_keys(
            self._settings, [address], self._greet, prefixes, self._key_listeners, lambda: True
        ) as reports:
            yield reports


# --- shared by one server and a cluster ---------------------------------------------------------------------


def pack(calls: list[Call]) -> bytes:
    if len(calls) == 1:
        return calls[0].packed or _pack(calls[0])
    return b"".join([call.packed or _pack(call) for call in calls])


def _pack(call: Call) -> bytes:
    packed = pack_command((call.spec.name, *call.args))
    if call.packed is not None:
        call.packed = packed
    return packed


def compiled_request(connection: RedisConnection, compiled: CompiledSteps, arguments: Sequence[bytes]) -> bytes:
    """The request to send. The first one loads the script with EVAL.

    EVALSHA would fail on a server that lacks the script, and the retry would run after later requests.
    """
    if compiled.straight is None or compiled.digest in connection.scripts:
        return compiled.request(arguments)
    connection.scripts.add(compiled.digest)
    return pack_command((b"EVAL", compiled.text, *compiled.rest(arguments)))


def pack_script(script: Runnable[Any], by_text: bool) -> bytes:
    start = (b"EVAL", script.text) if by_text else (b"EVALSHA", script.digest)
    return pack_command((*start, *script.rest))


def _answer(link: RedisLink, connection: RedisConnection, reply: Any) -> Answer:
    return Answer(reply, connection.address, lambda: link.drop(connection, "it is no longer the master"))


async def run_on(link: RedisLink, script: Runnable[T], deadline: float, answer: Answer | None = None) -> T:
    """Run the script on this server; retry only if it did not run. `answer`: of a caller that has already sent it."""

    async def send(runnable: Runnable[T], by_text: bool) -> Answer:
        connection = await link.wait_for_connection(deadline)
        try:
            [reply] = await connection.send_until(deadline, pack_script(runnable, by_text), 1)
        except ConnectionLost as lost:
            return _answer(link, connection, lost.with_traceback(None))
        return _answer(link, connection, reply)

    return await run_script(send, script, deadline, answer)


async def require_writable(connection: RedisConnection, key: bytes) -> None:
    """Raise at the start if the server or its user is read-only, by deleting a key that does not exist."""
    [reply, seen] = await call(connection, ("DEL", key), ("EXISTS", key))
    if not isinstance(reply, ReplyError):
        return
    text = str(reply)
    if text.startswith("NOPERM"):
        # Not "key" alone: the message may contain the user's name, which may be keystead.
        if "access" in text and "key" in text.partition("access")[2] and isinstance(seen, ReplyError):
            return  # this user may write certain keys only, and the probe is not one of them
        raise StoreReadOnly(f"the user of {connection.address} may not write ({text}); grant it @write and its keys")
    raise refusal(connection.address, reply)


async def stated_guarantees(connection: RedisConnection, atomic: Literal["any keys", "one slot"]) -> Guarantees:
    """The guarantees that this server reports; if it reports none, the weaker one is assumed."""
    try:
        [info, sync] = await call(connection, ("INFO",), ("CONFIG", "GET", "appendfsync"))
    except ConnectionLost as lost:
        raise StoreUnavailable(str(lost)) from None
    text = "" if isinstance(info, ReplyError) else info.decode("utf-8", "replace")
    stated = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    version = stated.get("redis_version", "")
    if version and int(version.partition(".")[0]) < OLDEST_VERSION:
        raise StoreRefused(f"{connection.address} is Redis {version}; use Redis {OLDEST_VERSION} or later, or Valkey")
    durability: Literal["disk", "seconds", "memory"] = "memory"
    if stated.get("aof_enabled") == "1":
        durability = "disk" if isinstance(sync, list) and b"always" in sync else "seconds"
    evicts = stated.get("maxmemory", "1") != "0" and stated.get("maxmemory_policy") != "noeviction"
    return Guarantees(
        atomic=atomic,
        durability=durability,
        evicts=evicts,
        key_max_bytes=MAX_BYTES,
        value_max_bytes=MAX_BYTES,
    )


async def master_of(settings: RedisSettings) -> RedisAddress:
    """The address of the master according to the sentinels."""
    problems: list[str] = []
    for sentinel in settings.addresses:

        async def greet(connection: RedisConnection) -> None:
            await sign_in(connection, settings.sentinel_user, settings.sentinel_password)

        try:
            connection = await dial(settings, sentinel, greet)
        except StoreError as error:
            problems.append(str(error))
            continue
        try:
            [answer] = await call(connection, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", settings.service))
        except ConnectionLost as lost:
            problems.append(str(lost))
            continue
        finally:
            connection.close("it has answered")
        if isinstance(answer, list) and len(answer) == 2:
            return RedisAddress(answer[0].decode(), int(answer[1]))
        problems.append(f"{sentinel} does not know a master {settings.service!r}")
    raise StoreUnavailable(f"no sentinel names a master: {'; '.join(problems)}")


def scan_command(cursor: bytes, pattern: bytes, kind: str | None, page: int) -> tuple[str | bytes | int, ...]:
    of_kind = () if kind is None else ("TYPE", kind)
    return ("SCAN", cursor, "MATCH", pattern, "COUNT", page, *of_kind)
