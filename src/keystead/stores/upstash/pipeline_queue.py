"""Callers that are ready at the same moment share one HTTP request to `/pipeline`."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from typing import Any, Final, NamedTuple

from keystead.errors import StoreClosed, StoreError, StoreRefused, StoreUnavailable
from keystead.stores.reconnecting_link import ConnectionLost
from keystead.stores.redis.reply_errors import ReplyError
from keystead.stores.upstash.http_client import HttpPool, Response, request_head
from keystead.stores.upstash.upstash_settings import UpstashSettings

MAX_COMMANDS: Final = 5_000  # in one request
MAX_REQUESTS: Final = 16  # at the same time; what is ready meanwhile shares the next one
_SYNC_TOKEN: Final = b"upstash-sync-token"


class Throttled(ConnectionLost):
    """The server asked to come back later. Nothing has run."""

    def __init__(self, reason: str, after_s: float) -> None:
        super().__init__(reason, False)
        self.after_s = after_s


class _Part(NamedTuple):
    """The commands of one caller."""

    payload: bytes  # commands as JSON, separated by commas
    size: int  # how many
    writes: bool
    future: asyncio.Future[list[Any]]


class PipelineQueue:
    """`requests` and `commands` count what was sent."""

    def __init__(self, settings: UpstashSettings) -> None:
        self.requests = 0
        self.commands = 0
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.pool = HttpPool(settings.address, settings.host, settings.port, settings.tls, settings.connect_timeout)
        self._waiting: deque[_Part] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._sync_token = b""
        self._sync_writes = False  # whether the request that the token came from wrote
        self._sync_at = 0  # how many requests had begun when the token was stored

    # --- for callers ---------------------------------------------------------------------------------------

    def send(self, payload: bytes, count: int, writes: bool) -> asyncio.Future[list[Any]]:
        """Send commands; the future gets a JSON object for each, or ConnectionLost, or StoreError."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreClosed("the store is closed"))
            return future
        if not self._waiting:
            # One turn later, so that all tasks that are ready now share one request.
            self._loop.call_soon(self._flush)
        self._waiting.append(_Part(payload, count, writes, future))
        return future

    def head(self, path: str, *headers: tuple[str, str]) -> bytes:
        """The head of a request, with the token."""
        settings = self._settings
        given = [("authorization", f"Bearer {settings.token}"), *headers]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        is_default = settings.port == (443 if settings.tls else 80)
        return request_head(settings.path + path, host if is_default else f"{host}:{settings.port}", given)

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        error = StoreClosed("the store was closed")
        while self._waiting:
            _fail([self._waiting.popleft()], error)
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.pool.close()

    # --- requests ------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        while self._waiting and len(self._tasks) < MAX_REQUESTS and not self._closed:
            task = self._loop.create_task(self._run(self._next_group()))
            self._tasks.add(task)
            task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._flush()

    def _next_group(self) -> list[_Part]:
        """The next callers, as many as fit into one request."""
        group = [self._waiting.popleft()]
        size, count = len(group[0].payload), group[0].size
        while self._waiting:
            part = self._waiting[0]
            size += len(part.payload) + 1
            count += part.size
            if size > self._settings.max_request_bytes or count > MAX_COMMANDS:
                break
            group.append(self._waiting.popleft())
        return group

    async def _run(self, group: list[_Part]) -> None:
        group = [part for part in group if not part.future.done()]  # a cancelled caller is not sent
        if not group:
            return
        try:
            results = await self._exchange(group)
        except _Rejected as rejected:
            if len(group) == 1:
                _fail(group, rejected.error)
            else:  # nothing has run, and the others are not to suffer for the one at fault
                for part in group:
                    await self._run([part])
        except asyncio.CancelledError:
            _fail(group, StoreClosed("the store was closed"))
            raise
        except (ConnectionLost, StoreError) as error:
            _fail(group, error)
        else:
            start = 0
            for part in group:
                if not part.future.done():
                    part.future.set_result(results[start : start + part.size])
                start += part.size

    async def _exchange(self, group: list[_Part]) -> list[Any]:
        self.requests += 1
        number = self.requests
        count = sum(part.size for part in group)
        self.commands += count
        body = b"[%b]" % b",".join([part.payload for part in group])
        headers = [("content-type", "application/json"), ("upstash-encoding", "base64")]
        if self._sync_token:
            headers.append(("upstash-sync-token", self._sync_token.decode("latin-1")))
        response = await self._post(self.head("/pipeline", *headers), body)
        self._note_sync_token(response, number, any(part.writes for part in group))
        return self._results(response, count)

    async def _post(self, head: bytes, body: bytes) -> Response:
        settings = self._settings
        sent = False
        try:
            async with asyncio.timeout(settings.timeout):
                connection = await self.pool.take()
                try:
                    sent = True
                    return await connection.request(head, body)
                except BaseException:
                    connection.close()
                    raise
                finally:
                    self.pool.give_back(connection)
        except TimeoutError:
            raise ConnectionLost(f"{settings.address} did not answer within {settings.timeout:g} s", sent) from None
        except ssl.SSLError as error:
            raise StoreRefused(f"no TLS connection to {settings.address}: {error.reason or error}") from None

    def _results(self, response: Response, count: int) -> list[Any]:
        address = self._settings.address
        try:
            content = json.loads(response.body)
        except ValueError:  # also a body that is not UTF-8
            content = None
        if response.status == 200:
            if isinstance(content, list) and len(content) == count and all(type(one) is dict for one in content):
                return content
            raise ConnectionLost(
                f"{address} answered something else than {count} replies; is it an Upstash REST API?", True
            )
        text = str(content["error"]) if isinstance(content, dict) and "error" in content else ""
        raise _failure(address, response, text)

    # --- read your writes ----------------------------------------------------------------------------------

    def _note_sync_token(self, response: Response, number: int, writes: bool) -> None:
        """Keep the token of the latest request, to be sent with the next: the server then answers no older state.

        Of requests that were under way together, one that wrote is preferred to one that only read: the token of the
        reader may be from before the write.
        """
        token = response.headers.get(_SYNC_TOKEN)
        if not token or response.status != 200:
            return
        began_later = number > self._sync_at
        if began_later or writes or not self._sync_writes:
            self._sync_token, self._sync_writes, self._sync_at = token, writes, self.requests


class _Rejected(Exception):
    """The request as a whole was refused, and nothing of it has run."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class RequestRefused(StoreError):
    """The server refused the request of one caller. `reply`: its error."""

    def __init__(self, reply: ReplyError) -> None:
        super().__init__(str(reply))
        self.reply = reply


def _failure(address: str, response: Response, text: str) -> Exception:
    """The error of a response other than 200."""
    status = response.status
    shown = f": {text}" if text else ""
    if status in (401, 403):
        return StoreRefused(
            f"{address} denies access; check that the token of the URL belongs to this database and was not reset"
        )
    if status == 429:
        after = response.headers.get(b"retry-after", b"")
        return Throttled(f"{address} limits the rate of requests{shown}", float(after) if after.isdigit() else 0.0)
    if status == 413 or (status == 400 and text):
        return _Rejected(RequestRefused(ReplyError(text or "ERR max request size exceeded")))
    if status >= 500:
        return ConnectionLost(f"{address} answered {status}{shown}", True)
    return StoreRefused(f"{address} answered {status}{shown}; check that the URL is that of an Upstash REST API")


def _fail(parts: list[_Part], error: Exception) -> None:
    for part in parts:
        if not part.future.done():
            part.future.set_exception(_copy(error))
            part.future.exception()  # avoids asyncio's "never retrieved" warning for callers that are gone


def _copy(error: Exception) -> Exception:
    """Each caller has its own, since each attaches its replies and traceback."""
    match error:
        case Throttled():
            return Throttled(str(error), error.after_s)
        case ConnectionLost():
            return ConnectionLost(str(error), error.sent)
        case RequestRefused():
            return RequestRefused(error.reply)
        case StoreUnavailable():
            return StoreUnavailable(str(error), error.outcome)
    return type(error)(*error.args)
