"""One Redis or Valkey server, or the master that the sentinels name."""

from __future__ import annotations

import asyncio
import secrets
from _thread import get_ident
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from keystead.errors import (
    CommandError,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from keystead.stores.commands import Call, Command, Reply, read
from keystead.stores.redis import redis_full_copy
from keystead.stores.redis.atomic_script import Script
from keystead.stores.redis.compiled_steps import CompiledCache, CompiledScript, CompiledSteps, compile_steps, shape_of
from keystead.stores.redis.redis_connection import RedisConnection, RedisConnectionLost, ReplyError, call, pack_command
from keystead.stores.redis.redis_link import RedisLink, dial, refusal, sign_in
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.reply_shapes import SHAPES, error_of, is_transient
from keystead.stores.redis.subscription import Listener, subscription
from keystead.stores.store_contract import (
    Guarantees,
    Message,
    Outcome,
    Planned,
    Step,
    Store,
    WholeKey,
    without_errors,
)

OLDEST_VERSION = 7
LOOK_EVERY_S = 0.5  # whether the sentinels have named another master
PAUSE_S = 0.02  # before asking again a server that cannot serve now
MAX_BYTES = 512 * 1024 * 1024  # proto-max-bulk-len


class RedisStore(Store):
    def __init__(self, settings: RedisSettings) -> None:
        self.url = settings.url
        self.guarantees = Guarantees(durability="memory", key_max_bytes=MAX_BYTES, value_max_bytes=MAX_BYTES)
        self._settings = settings
        self._link: RedisLink | None = None
        self._listeners: set[Listener] = set()
        self._watching: asyncio.Task[None] | None = None
        self._compiled = CompiledCache()

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._link is not None:
            return
        self._loop = asyncio.get_running_loop()
        link = RedisLink(self._settings, self._locate, self._greet)
        await link.open()
        try:
            connection = await link.connected(self._loop.time() + self._settings.timeout)
            self.guarantees = await stated_guarantees(connection, "any keys")
        except BaseException:
            await link.close()
            raise
        self._link = link
        if self._settings.topology == "sentinel":
            self._watching = asyncio.create_task(self._watch(link))

    async def close(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            for listener in self._listeners:
                listener.stop(f"{self.url} was closed")
            link.stop()
            if self._watching is not None:
                self._watching.cancel()
                await asyncio.wait({self._watching})
            await link.close()

    async def _locate(self) -> RedisAddress:
        if self._settings.topology == "sentinel":
            return await master_of(self._settings)
        return self._settings.addresses[0]

    async def _watch(self, link: RedisLink) -> None:
        """Leave a master that was replaced while it lived, or only slept.

        It takes writes for some ten seconds more, until the sentinels make it follow the new one: those would be lost.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            connection = link.connection
            if connection is None or connection.lost is not None:
                continue
            with suppress(StoreError):  # whoever needs a new connection says what is wrong with the sentinels
                master = await self._locate()
                if master != connection.address:
                    link.drop(connection, f"{master} is the master now")

    async def _greet(self, connection: RedisConnection) -> None:
        settings = self._settings
        await sign_in(connection, settings.user, settings.password, settings.database)
        await require_writable(connection, b"keystead:probe:" + secrets.token_hex(8).encode())

    # --- the four verbs ------------------------------------------------------------------------------------

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        link = self._link
        connection = None if link is None else link.connection
        if link is None or connection is None or connection.lost is not None or connection.congested is not None:
            return await super().run(commands)
        # The way of most calls, without passing it on: a coroutine more is a good part of what a read costs.
        if get_ident() != self._opened_thread or not self._loop_runs():
            self._check_loop()
        given: list[Any] = commands if type(commands) is list else list(commands)
        try:
            # A typed read comes as a Call: what `read` would say of it, without calling that.
            calls = [command if type(command) is Call else read(command) for command in given]
        except CommandError:
            return await super().run(given)
        if not calls:
            return []
        now, payload = self._loop.time(), pack(calls)
        try:
            replies = await connection.send(payload, len(calls), now)
        except RedisConnectionLost as lost:
            deadline = now + self._settings.timeout
            return without_errors(await self._exchange_until(deadline, link, calls, payload, lost))
        for call_, reply in zip(calls, replies):  # noqa: B905 - a reply for each, and strict is slow
            if type(reply) is ReplyError or call_.spec.name in SHAPES:
                deadline = now + self._settings.timeout
                return without_errors(await self._mend(deadline, link, connection, calls, replies))
        return replies

    async def _replies(self, calls: list[Call]) -> list[Reply]:
        if self._link is None:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        return await self._exchange_until(self._loop.time() + self._settings.timeout, self._link, calls, pack(calls))

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        asked = shape_of(steps)
        compiled = None if asked is None else self._compiled.get(asked[0])
        if asked is None or compiled is None:
            return await super().atomically(steps)
        self._check_loop()
        return await self._run_compiled(compiled, asked[1], lambda: steps)

    def prepared(
        self, make: Callable[..., Sequence[Step]], arguments: int
    ) -> Callable[..., Coroutine[Any, Any, Outcome]]:
        compiled = compile_steps(make, arguments)
        if compiled is None:
            return super().prepared(make, arguments)

        async def ask(*given: bytes) -> Outcome:
            self._check_loop()
            if not compiled.fits(given):
                return await self.atomically(make(*given))
            return await self._run_compiled(compiled, given, lambda: make(*given))

        return ask

    async def _run_compiled(
        self, compiled: CompiledSteps, arguments: Sequence[bytes], steps: Callable[[], Sequence[Step]]
    ) -> Outcome:
        link = self._link
        if link is None:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        now, connection = self._loop.time(), link.connection
        answer: _Answer | None = None
        if connection is not None and connection.lost is None and connection.congested is None:
            try:
                [reply] = await connection.send(compiled.request_for(connection, arguments), 1, now)
            except RedisConnectionLost as lost:
                answer = connection, lost.with_traceback(None)
            else:
                outcome = compiled.outcome(reply)
                if outcome is not None:
                    return outcome
                answer = connection, reply
        return await run_script(
            link, CompiledScript(compiled, steps(), arguments), now + self._settings.timeout, answer
        )

    async def _exchange_until(
        self,
        deadline: float,
        link: RedisLink,
        calls: list[Call],
        payload: bytes,
        lost: RedisConnectionLost | None = None,
    ) -> list[Reply]:
        """Where there is no connection, or no longer: wait for one, and ask again if that is safe."""
        while True:
            if lost is not None:
                if link is not self._link:
                    raise StoreClosed(f"{self.url} was closed")
                refuse_unsafe(lost, calls)
                if self._loop.time() >= deadline:
                    raise StoreUnavailable(str(lost))
            connection = await link.connected(deadline)
            try:
                replies = await connection.send_until(deadline, payload, len(calls))
            except RedisConnectionLost as again:
                lost = again.with_traceback(None)  # which leads back here, and would keep the payload in memory
                continue
            return await self._mend(deadline, link, connection, calls, replies)

    async def _mend(
        self, deadline: float, link: RedisLink, connection: RedisConnection, calls: list[Call], replies: list[Any]
    ) -> list[Reply]:
        """Shape the replies; where the server could not serve now, ask again for what did not run."""
        while waiting := [i for i, reply in enumerate(replies) if is_transient(reply)]:
            first = waiting[0]
            demoted = "READONLY" in str(replies[first])
            if demoted:
                link.drop(connection, "it is no longer the master")
            # The order of a batch holds: all from the first that did not run is asked again, and nothing where a
            # later write did run. A server that is no longer the master answers reads with what may be old.
            again = [i for i, call in enumerate(calls) if i >= first or (demoted and not call.spec.writes)]
            overtaken = any(
                calls[i].spec.writes and type(replies[i]) is not ReplyError for i in range(first, len(calls))
            )
            if overtaken or self._loop.time() + PAUSE_S >= deadline:
                break
            await asyncio.sleep(PAUSE_S)
            try:
                connection = await link.connected(deadline)
                some = await connection.send_until(deadline, pack([calls[i] for i in again]), len(again))
            except (RedisConnectionLost, StoreUnavailable) as error:
                if isinstance(error, RedisConnectionLost) and error.sent and any(calls[i].spec.writes for i in again):
                    outcome: Literal["unknown", "not-sent"] = "unknown"
                else:
                    outcome = "not-sent"
                for i in again:
                    replies[i] = StoreUnavailable(str(error), outcome)
                break
            for i, reply in zip(again, some, strict=True):
                replies[i] = reply
        return [shaped(c, reply, connection.address) for c, reply in zip(calls, replies, strict=True)]

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        if self._link is None:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        return await run_script(self._link, Script(steps), self._loop.time() + self._settings.timeout)

    async def whole_keys(self, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]]:
        found: list[WholeKey] = []
        left: list[bytes] = []
        while keys:
            some = keys[: redis_full_copy.KEYS_AT_ONCE]
            replies = await self._script(redis_full_copy.WholeKeys.read(some))
            redis_full_copy.shaped(some, replies, found, left)
            keys = keys[len(replies) :]
        return found, left

    async def add_whole_keys(self, keys: Sequence[WholeKey]) -> list[bool]:
        done: list[bool] = []
        for some in redis_full_copy.in_steps(keys):
            done += map(bool, await self._script(redis_full_copy.WholeKeys.add(some)))
        return done

    async def _script(self, script: redis_full_copy.WholeKeys) -> list[Any]:
        if self._link is None:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        return await run_script(self._link, script, self._loop.time() + self._settings.timeout)

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
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        async with subscription(self._settings, await self._locate(), channels, self._listeners) as mailbox:
            if self._link is None:
                raise StoreClosed(f"{self.url} was closed")
            yield mailbox


# --- what one server and a cluster share --------------------------------------------------------------------


def pack(calls: list[Call]) -> bytes:
    if len(calls) == 1:
        return calls[0].packed or _pack(calls[0])
    return b"".join([call.packed or _pack(call) for call in calls])


def _pack(call: Call) -> bytes:
    packed = pack_command((call.spec.name, *call.args))
    if call.packed is not None:
        call.packed = packed
    return packed


def shaped(call: Call, reply: Any, address: RedisAddress) -> Reply:
    if type(reply) is ReplyError:
        return error_of(call, reply, address)
    shape = None if isinstance(reply, StoreError) else SHAPES.get(call.spec.name)
    return reply if shape is None else shape(call, reply)


def refuse_unsafe(lost: RedisConnectionLost, calls: list[Call]) -> None:
    """Raise where asking again could do a thing twice."""
    if lost.sent and any(call.spec.writes for call in calls):
        raise StoreUnavailable(f"{lost}; what was being written may or may not have been", "unknown") from None


# What came back, and from where; or that nothing will.
_Answer: TypeAlias = tuple[RedisConnection, Any]


T = TypeVar("T")


class Runnable(Protocol[T]):
    """What `run_script` needs to know of a script. `otherwise` is to be run where this one leaves all undone."""

    @property
    def reads_only(self) -> bool: ...
    @property
    def otherwise(self) -> Runnable[T] | None: ...
    @property
    def by_digest(self) -> bytes: ...
    @property
    def by_text(self) -> bytes: ...
    @property
    def blamed(self) -> Call:
        """The command that an error of the whole is said to be of."""

    def failure(self, reply: Any) -> ReplyError | None: ...
    def outcome(self, reply: list[Any], address: RedisAddress) -> T: ...


async def run_script(link: RedisLink, script: Runnable[T], deadline: float, answer: _Answer | None = None) -> T:
    """Run it where the link leads, again only if it did not run there. `answer`: of one who has sent it already."""
    loop = asyncio.get_running_loop()
    payload = b"" if answer else script.by_digest
    while True:
        connection, reply = answer or await _sent(link, payload, deadline)
        answer = None
        if isinstance(reply, RedisConnectionLost):
            if reply.sent and not script.reads_only:
                raise StoreUnavailable(f"{reply}; what was being written may or may not have been", "unknown")
            if loop.time() >= deadline:
                raise StoreUnavailable(str(reply))
            payload = payload or script.by_digest
            continue
        reply = script.failure(reply) or reply
        if isinstance(reply, list):
            return script.outcome(reply, connection.address)
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
            payload = script.by_text  # a new server, or one that was restarted: this also makes it known there
        elif is_transient(reply) and loop.time() + PAUSE_S < deadline:
            if str(reply).startswith("READONLY"):
                link.drop(connection, "it is no longer the master")
            payload = payload or script.by_digest
            await asyncio.sleep(PAUSE_S)
        elif script.otherwise is not None:
            script = script.otherwise
            payload = script.by_digest
        else:
            raise error_of(script.blamed, reply, connection.address)


async def _sent(link: RedisLink, payload: bytes, deadline: float) -> _Answer:
    connection = await link.connected(deadline)
    try:
        [reply] = await connection.send_until(deadline, payload, 1)
    except RedisConnectionLost as lost:
        return connection, lost.with_traceback(None)
    return connection, reply


async def require_writable(connection: RedisConnection, key: bytes) -> None:
    """Say at the start that a server or its user is read-only, by removing a key that nobody has."""
    [reply, seen] = await call(connection, ("DEL", key), ("EXISTS", key))
    if not isinstance(reply, ReplyError):
        return
    text = str(reply)
    if text.startswith("NOPERM"):
        # Not "key" alone: the sentence may hold the name of the user, which may be keystead.
        if "access" in text and "key" in text.partition("access")[2] and isinstance(seen, ReplyError):
            return  # this user has keys of its own, and the probe is none of them
        raise StoreReadOnly(
            f"the user of {connection.address} may not write ({text}); give it the rights of @write and its keys"
        )
    raise refusal(connection.address, reply)


async def stated_guarantees(connection: RedisConnection, atomic: Literal["any keys", "one slot"]) -> Guarantees:
    """What this server says of itself; where it does not say, the weaker is assumed."""
    try:
        [info, sync] = await call(connection, ("INFO",), ("CONFIG", "GET", "appendfsync"))
    except RedisConnectionLost as lost:
        raise StoreUnavailable(str(lost)) from None
    text = "" if isinstance(info, ReplyError) else info.decode("utf-8", "replace")
    said = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    version = said.get("redis_version", "")
    if version and int(version.partition(".")[0]) < OLDEST_VERSION:
        raise StoreRefused(
            f"{connection.address} is Redis {version}; Keystead needs Redis {OLDEST_VERSION} or later, or Valkey"
        )
    durability: Literal["disk", "seconds", "memory"] = "memory"
    if said.get("aof_enabled") == "1":
        durability = "disk" if isinstance(sync, list) and b"always" in sync else "seconds"
    evicts = said.get("maxmemory", "1") != "0" and said.get("maxmemory_policy") != "noeviction"
    return Guarantees(
        atomic=atomic,
        durability=durability,
        evicts=evicts,
        key_max_bytes=MAX_BYTES,
        value_max_bytes=MAX_BYTES,
    )


async def master_of(settings: RedisSettings) -> RedisAddress:
    """Where the sentinels say that the master is."""
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
        except RedisConnectionLost as lost:
            problems.append(str(lost))
            continue
        finally:
            connection.close("it was asked")
        if isinstance(answer, list) and len(answer) == 2:
            return RedisAddress(answer[0].decode(), int(answer[1]))
        problems.append(f"{sentinel} knows no master {settings.service!r}")
    raise StoreUnavailable(f"no sentinel names a master: {'; '.join(problems)}")


def scan_command(cursor: bytes, pattern: bytes, kind: str | None, page: int) -> tuple[str | bytes | int, ...]:
    of_kind = () if kind is None else ("TYPE", kind)
    return ("SCAN", cursor, "MATCH", pattern, "COUNT", page, *of_kind)
