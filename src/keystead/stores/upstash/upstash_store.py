"""A Redis database of Upstash, or of any server of its REST API."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

from keystead.errors import (
    BadArgument,
    CommandError,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from keystead.stores.commands import TABLE, Call, Reply
from keystead.stores.near_reads import NearReads, dropping
from keystead.stores.reconnecting_link import FIRST_PAUSE_S, LONGEST_PAUSE_S, ConnectionLost, unknown_write
from keystead.stores.redis.atomic_script import Script
from keystead.stores.redis.compiled_steps import CompiledScript, CompiledSteps
from keystead.stores.redis.compiled_store import CompiledStore, written_keys
from keystead.stores.redis.redis_full_copy import WholeKeys
from keystead.stores.redis.reply_errors import ReplyError
from keystead.stores.redis.reply_shapes import is_transient
from keystead.stores.redis.script_runs import PAUSE_S, Answer, Runnable, convert_reply, run_script, to_retry
from keystead.stores.store_contract import Guarantees, Message, Outcome, Planned, Step
from keystead.stores.upstash.pipeline_queue import MAX_COMMANDS, PipelineQueue, RequestRefused, Throttled
from keystead.stores.upstash.rest_encoding import RestEncoding, carried
from keystead.stores.upstash.upstash_near_reads import UpstashNearReads
from keystead.stores.upstash.upstash_settings import UpstashSettings
from keystead.stores.upstash.upstash_subscription import Subscription

T = TypeVar("T")
RETRIES: Final = 2  # of reads whose reply was lost; each is billed
_ECHO: Final = "keystead"
_KEY_MAX_BYTES: Final = 64 << 10
_ROOM_BYTES: Final = 2 * _KEY_MAX_BYTES + (32 << 10)  # of a request, for everything but the value


class UpstashStore(CompiledStore):
    """`requests` and `commands` count the HTTP calls and the commands in them, since commands are billed."""

    def __init__(self, settings: UpstashSettings) -> None:
        super().__init__()
        self.url = settings.url
        # Bytes that are not printable take two each.
        largest = (settings.max_request_bytes - _ROOM_BYTES) // 2
        self.guarantees = Guarantees(
            durability=settings.durability,
            evicts=settings.evicts,
            billed=True,
            near="bounded",
            key_max_bytes=_KEY_MAX_BYTES,
            value_max_bytes=largest,
            step_max_bytes=largest,
        )
        self._settings = settings
        self._copy_bytes = settings.max_request_bytes // 2 - _ROOM_BYTES
        self._queue: PipelineQueue | None = None
        self._near: UpstashNearReads | None = None  # from the first near read on
        self._encoding = RestEncoding(settings.max_request_bytes, settings.read_only)
        self._known_scripts: set[str] = set()  # digests of the scripts that the server has
        self._subscriptions: set[Subscription] = set()
        self._unreachable_since: float | None = None

    @classmethod
    def of(cls, url: str) -> Self:
        return cls(UpstashSettings.of(url))

    @property
    def requests(self) -> int:
        return 0 if self._queue is None else self._queue.requests

    @property
    def commands(self) -> int:
        return 0 if self._queue is None else self._queue.commands

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._queue is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._unreachable_since = None
        self._queue = queue = PipelineQueue(self._settings)
        try:
            await self._greet(queue)
        except BaseException:
            self._queue = None
            await queue.close()
            raise

    async def _greet(self, queue: PipelineQueue) -> None:
        """Check the token and how replies are encoded, and that the token may write: by deleting nothing."""
        address = self._settings.address
        probe = f"keystead:probe:{secrets.token_hex(8)}"
        second = f'["EXISTS","{probe}"]' if self._settings.read_only else f'["DEL","{probe}"]'
        payload = f'["ECHO","{_ECHO}"],{second}'.encode()
        try:
            [echo, written] = await queue.send(payload, 2, False)
        except ConnectionLost as lost:
            raise StoreUnavailable(f"{lost}; is it running, and is this its URL?") from None
        except RequestRefused as refused:
            raise StoreRefused(f"{address} refused the first request: {refused.reply}") from None
        self._encoding.base64 = echo.get("result") != _ECHO
        reply = self._encoding.reply(None, written)
        if isinstance(reply, ReplyError):
            if str(reply).startswith("NOPERM"):
                raise StoreReadOnly(
                    f"the token of {address} may only read; use the token that may write, or open the store with"
                    " ?read_only=yes"
                )
            raise self._convert(Call(TABLE["DEL"], [probe.encode()], None), reply)

    async def close(self) -> None:
        if self._queue is not None:
            queue, self._queue, self._near = self._queue, None, None
            for subscription in list(self._subscriptions):
                subscription.fail(f"{self.url} was closed")
            await queue.close()

    def _abandon(self) -> None:
        if self._queue is not None:
            self._queue.pool.close()

    # --- the four verbs ------------------------------------------------------------------------------------

    async def _replies(self, calls: list[Call]) -> list[Reply]:
        if self._near is not None and (written := [key for one in calls if one.spec.writes for key in one.keys]):
            return await dropping(self._near, written, self._replies_now(calls))
        return await self._replies_now(calls)

    async def _replies_now(self, calls: list[Call]) -> list[Reply]:
        queue = self._open_queue()
        deadline = self._loop.time() + self._settings.timeout
        payloads = [self._payload(call) for call in calls]
        replies: list[Any] = [payload if isinstance(payload, CommandError) else None for payload in payloads]
        places = [place for place, payload in enumerate(payloads) if not isinstance(payload, CommandError)]
        for some in self._split(places, payloads):
            # One after the other: the order of a batch holds, and none is sent after a failure.
            found = await self._run_chunk(queue, deadline, [calls[i] for i in some], [payloads[i] for i in some])  # type: ignore[misc]
            for place, reply in zip(some, found, strict=True):
                replies[place] = reply
            if isinstance(found[0], StoreUnavailable):
                self._give_up(replies, some[-1], found[0])
                break
        return replies

    def _payload(self, call: Call) -> bytes | CommandError:
        if self._settings.read_only and call.spec.writes:
            raise self._read_only_error()
        try:
            return self._encoding.command(call)
        except CommandError as error:
            return error

    def _read_only_error(self) -> StoreReadOnly:
        return StoreReadOnly(f"{self.url} was opened with read_only=yes, so it takes no writes")

    def _split(self, places: list[int], payloads: Sequence[Any]) -> Iterator[list[int]]:
        """Split a batch into parts that fit into a request each."""
        some: list[int] = []
        size = 0
        for place in places:
            size += len(payloads[place]) + 1
            if some and (size > self._settings.max_request_bytes or len(some) == MAX_COMMANDS):
                yield some
                some, size = [], len(payloads[place]) + 1
            some.append(place)
        if some:
            yield some

    def _give_up(self, replies: list[Any], last: int, error: StoreUnavailable) -> None:
        """The rest of a batch was not sent."""
        for place in range(last + 1, len(replies)):
            if replies[place] is None:
                replies[place] = StoreUnavailable(f"{error}; this command was not sent")

    async def _run_chunk(
        self, queue: PipelineQueue, deadline: float, calls: list[Call], payloads: list[bytes]
    ) -> list[Reply]:
        """The replies to calls that fit into one request, with an error in place of each failure."""
        try:
            replies = await self._exchange(queue, deadline, calls, payloads)
            while waiting := [place for place, reply in enumerate(replies) if is_transient(reply)]:
                again = to_retry(calls, replies, waiting[0], False)
                if not again or self._loop.time() + PAUSE_S >= deadline:
                    break
                await asyncio.sleep(PAUSE_S)
                some = await self._exchange(queue, deadline, [calls[i] for i in again], [payloads[i] for i in again])
                for place, reply in zip(again, some, strict=True):
                    replies[place] = reply
        except RequestRefused as refused:
            replies = [refused.reply] * len(calls)
        except StoreUnavailable as error:
            return [StoreUnavailable(str(error), error.outcome) for _ in calls]
        return [self._convert(call, reply) for call, reply in zip(calls, replies, strict=True)]

    async def _exchange(
        self, queue: PipelineQueue, deadline: float, calls: list[Call], payloads: list[bytes]
    ) -> list[Any]:
        writes = any(call.spec.writes for call in calls)
        results = await self._send(queue, deadline, b",".join(payloads), len(calls), writes)
        return [self._read_reply(call, one, not writes) for call, one in zip(calls, results, strict=True)]

    def _read_reply(self, call: Call | None, result: Any, reads_only: bool) -> Any:
        try:
            return self._encoding.reply(call, result)
        except ValueError as error:
            problem = f"{self._settings.address} answered something that cannot be read ({error})"
            raise (StoreUnavailable(problem) if reads_only else unknown_write(problem)) from None

    def _convert(self, call: Call, reply: Any) -> Reply:
        if type(reply) is ReplyError:
            text = str(reply)
            if "max request size" in text:
                return call.blame(
                    BadArgument("the request or its reply is larger than the plan of this database allows")
                )
            if "limit exceeded" in text:
                return StoreUnavailable(f"{self._settings.address}: {text.removeprefix('ERR ')}")
            if text.startswith("NOPERM"):
                return StoreRefused(f"the token of {self._settings.address} does not permit {call.spec.name}: {text}")
        return convert_reply(call, reply, self._settings.address)

    async def _send(self, queue: PipelineQueue, deadline: float, body: bytes, count: int, writes: bool) -> list[Any]:
        """Send commands, and again if that is safe: nothing was sent, or they only read. Raises StoreUnavailable."""
        pause, attempts = FIRST_PAUSE_S, 0
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    results = await queue.send(body, count, writes)
                self._unreachable_since = None
                return results
            except TimeoutError:
                lost = ConnectionLost(f"{self._settings.address} did not answer in time", True)
                self._refuse_retry(lost, writes)
                raise StoreUnavailable(str(lost)) from None
            except ConnectionLost as error:
                lost = error
            self._refuse_retry(lost, writes)
            attempts += lost.sent
            pause = max(pause, lost.after_s if isinstance(lost, Throttled) else 0.0)
            if attempts > RETRIES or self._loop.time() + pause >= self._patience(lost, deadline):
                raise StoreUnavailable(str(lost)) from None
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_S)
            if queue is not self._queue:
                raise StoreClosed(f"{self.url} was closed")

    def _refuse_retry(self, lost: ConnectionLost, writes: bool) -> None:
        if lost.sent and writes:
            raise unknown_write(lost) from None

    def _patience(self, lost: ConnectionLost, deadline: float) -> float:
        """Until when to retry. A server that cannot be reached does not block its callers for long."""
        if lost.sent or isinstance(lost, Throttled):
            return deadline
        if self._unreachable_since is None:
            self._unreachable_since = self._loop.time()
        return min(deadline, self._unreachable_since + self._settings.connect_timeout)

    @property
    def near(self) -> NearReads | None:
        self._check_loop()
        if self._near is None and self._queue is not None:
            self._near = UpstashNearReads(self.run)
        return self._near

    # --- atomic steps --------------------------------------------------------------------------------------

    async def _run_compiled(
        self, compiled: CompiledSteps, arguments: Sequence[bytes], steps: Callable[[], Sequence[Step]]
    ) -> Outcome:
        return await self._run_script(CompiledScript(compiled, steps(), arguments))

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        work = self._run_script(Script(steps))
        if self._near is None:
            return await work
        return await dropping(self._near, written_keys(steps), work)

    async def _run_script(self, script: Runnable[T]) -> T:
        queue = self._open_queue()
        deadline = self._loop.time() + self._settings.timeout
        if self._settings.read_only and not script.reads_only:
            raise self._read_only_error()

        async def send(runnable: Runnable[T], by_text: bool) -> Answer:
            digest = carried(runnable.text, False).digest
            # The first call has the text, so that not every new store sends a call in vain.
            by_text = by_text or digest not in self._known_scripts
            body = self._encoding.script(runnable.text, runnable.rest, by_text, runnable.error_call)
            try:
                [result] = await self._send(queue, deadline, body, 1, not runnable.reads_only)
            except RequestRefused as refused:
                raise self._error(runnable.error_call, refused.reply) from None
            reply = self._read_reply(None, result, runnable.reads_only)
            if by_text and not isinstance(reply, ReplyError):
                self._known_scripts.add(digest)
            if isinstance(reply, ReplyError) and not str(reply).startswith("NOSCRIPT"):
                error = self._error(runnable.error_call, reply)
                is_limit = isinstance(error, StoreUnavailable) and not is_transient(reply)
                if is_limit or ("NOPERM" in str(reply) and "eval" in str(reply).lower()):
                    raise error  # another script would fail in the same way
            return Answer(reply, self._settings.address, lambda: None)

        return await run_script(send, script, deadline)

    def _error(self, call: Call, reply: ReplyError) -> StoreError:
        error: StoreError = self._convert(call, reply)
        return error

    # --- whole keys, scans and messages --------------------------------------------------------------------

    async def _run_copy_script(self, script: WholeKeys) -> list[Any]:
        self._check_loop()
        return await self._run_script(script)

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        cursor = b"0"
        of_kind = () if kind is None else ("TYPE", kind)
        while True:
            [(cursor, keys)] = await self.run([("SCAN", cursor, "MATCH", pattern, "COUNT", page, *of_kind)])
            yield list(dict.fromkeys(keys))
            if cursor == b"0":
                return

    @asynccontextmanager
    async def _subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[AsyncIterator[Message]]:
        subscription = Subscription(self._open_queue(), self._settings, channels)
        self._subscriptions.add(subscription)
        try:
            yield await subscription.begin()
        finally:
            self._subscriptions.discard(subscription)
            await subscription.end()

    def _open_queue(self) -> PipelineQueue:
        if self._queue is None:
            raise self._closed_error()
        return self._queue
