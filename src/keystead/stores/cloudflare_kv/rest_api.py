"""Requests to Cloudflare's REST API: errors as ours, and retries where they are safe.

A request that was not accepted (429, or no connection) is sent again until the deadline, and so is a read that failed.
A write whose answer was lost is not: another process may have written the key since.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, TypeAlias

import httpx2

from keystead.errors import StoreClosed, StoreError, StoreRefused, StoreUnavailable
from keystead.stores.cloudflare_kv.cloudflare_settings import TOKEN_VARIABLE, CloudflareSettings

AT_ONCE = 6  # requests; Cloudflare allows 1,200 in five minutes
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)

Query: TypeAlias = dict[str, str | int]


class AnswerTooLarge(StoreError):
    """The values of one request exceed what Cloudflare answers with (413)."""


class CloudflareApi:
    def __init__(self, settings: CloudflareSettings) -> None:
        self._settings = settings
        self._base = settings.base
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._http: httpx2.AsyncClient | None = httpx2.AsyncClient(
            headers={"authorization": f"Bearer {settings.token}", "user-agent": "keystead"},
            timeout=httpx2.Timeout(settings.timeout, connect=settings.connect_timeout),
            follow_redirects=False,
        )

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        deadline: float,
        *,
        body: Any = None,
        writes: bool = False,
        query: Query | None = None,
    ) -> dict[str, Any]:
        """The answer to a request, a JSON object. Raises StoreUnavailable, StoreRefused or AnswerTooLarge."""
        answer = await self._send(method, path, deadline, body, writes, query or {})
        try:
            found = answer.json()
            if isinstance(found, dict) and found.get("success") is True:
                return found
        except (ValueError, RecursionError):
            pass
        raise self._unavailable("its answer is not one of Cloudflare's API; check the option api", writes)

    async def read_bytes(self, path: str, deadline: float) -> tuple[bytes, str | None] | None:
        """The body of an answer, and its header `expiration`; None: there is no such key."""
        try:
            answer = await self._send("GET", path, deadline, None, False, {})
        except _NotFound:
            return None
        return answer.content, answer.headers.get("expiration")

    async def _send(
        self, method: str, path: str, deadline: float, body: Any, writes: bool, query: Query
    ) -> httpx2.Response:
        loop = asyncio.get_running_loop()
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        unconnected_until = min(deadline, loop.time() + self._settings.connect_timeout)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._attempt(method, path, deadline, content, writes, query)
            except _Retryable as failed:
                # Spreads the retries of several processes.
                wait_s = max(pause_s, failed.after_s) * random.uniform(1.0, 1.25)  # noqa: S311
                if loop.time() + wait_s >= (deadline if failed.connected else unconnected_until):
                    raise failed.failure from None
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _attempt(
        self, method: str, path: str, deadline: float, content: bytes | None, writes: bool, query: Query
    ) -> httpx2.Response:
        """The answer, if it is a good one. Raises _Retryable if the request may be sent again."""
        try:
            answer = await self._request(method, path, deadline, content, query)
        except _UNSENT as error:
            unsent = self._unavailable(f"it is unreachable ({type(error).__name__})", False)
            raise _Retryable(unsent, connected=False) from None
        except (TimeoutError, httpx2.TransportError) as error:
            late = isinstance(error, TimeoutError | httpx2.TimeoutException)
            why = "it did not answer in time" if late else f"the connection failed ({type(error).__name__})"
            lost = self._unavailable(why, writes)
            raise (lost if writes else _Retryable(lost)) from None
        if answer.status_code < 300:
            return answer
        failure = self._failure(answer, writes)
        if answer.status_code == 429 or (answer.status_code >= 500 and not writes):
            raise _Retryable(failure, after_s=_retry_after_s(answer))
        raise failure

    async def _request(
        self, method: str, path: str, deadline: float, content: bytes | None, query: Query
    ) -> httpx2.Response:
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise httpx2.PoolTimeout("other requests took too long") from None
        try:
            if self._http is None:
                raise StoreClosed(f"{self._settings.url} was closed")
            headers = {} if content is None else {"content-type": "application/json"}
            # The library's timeout applies to each read, so a slow trickle of bytes never reaches it.
            async with asyncio.timeout_at(deadline):
                return await self._http.request(
                    method, f"{self._base}{path}", params=query or None, content=content, headers=headers
                )
        finally:
            self._slots.release()

    def _failure(self, answer: httpx2.Response, writes: bool) -> StoreError:
        status, said = answer.status_code, _message(answer)
        url = self._settings.url
        if status == 429:
            after = answer.headers.get("retry-after")
            when = f"; it asks to try again after {after[:20]} s" if after else ""
            return self._unavailable(f"it limits the rate of requests, or of writes to one key ({said}){when}", False)
        if status >= 500 or 300 <= status < 400:
            return self._unavailable(f"it answered with status {status} ({said})", writes)
        if status == 401 or (status == 400 and "Authorization" in said):
            return StoreRefused(f"{url}: Cloudflare rejects the token ({said}); check {TOKEN_VARIABLE} or the URL")
        if status == 403:
            return Forbidden(
                f"{url}: the token may not do this ({said}); it needs the permission Workers KV Storage, Edit"
            )
        if status == 404:
            return _NotFound(f"{url}: Cloudflare has no such account or namespace, or the token cannot see it ({said})")
        if status == 413:
            return AnswerTooLarge(f"{url}: the request or its answer is too large ({said})")
        return StoreRefused(f"{url}: Cloudflare refuses the request with status {status} ({said})")

    def _unavailable(self, why: str, writes: bool) -> StoreUnavailable:
        return StoreUnavailable(f"{self._settings.url} is unavailable: {why}", "unknown" if writes else "not-sent")


class _Retryable(Exception):
    """A request that may be sent again; `failure` is its error if it is not."""

    def __init__(self, failure: StoreError, *, after_s: float = 0.0, connected: bool = True) -> None:
        super().__init__()
        self.failure = failure
        self.after_s = after_s
        self.connected = connected


class Forbidden(StoreRefused):
    """The token lacks a permission (403)."""


class _NotFound(StoreRefused):
    """No such account, namespace or key (404)."""


def _retry_after_s(answer: httpx2.Response) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0.0


def _message(answer: httpx2.Response) -> str:
    """What Cloudflare says, on one line."""
    try:
        [first, *_] = answer.json()["errors"]
        text = f"{first['code']}: {first['message']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"status {answer.status_code}"
    return "".join(letter if letter.isprintable() else " " for letter in text)[:200]
