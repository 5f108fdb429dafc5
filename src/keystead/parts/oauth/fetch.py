"""One HTTP request to a provider: bounded in time and size, no redirect followed, JSON out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import httpx2

from keystead.parts.oauth.oauth_errors import BadAnswer, ProviderRefused, ProviderUnavailable, error_word

MAX_ANSWER_BYTES: Final = 256 * 1024
_TRY_LATER = frozenset({408, 425, 429})


class Endpoints:
    """Sends requests to one provider, and turns responses into JSON or a typed error.

    Secrets travel in headers and forms only, never in a URL: HTTP libraries and proxies write URLs to logs.
    """

    def __init__(self, provider: str, http: httpx2.AsyncClient, timeout_s: float) -> None:
        self._provider = provider
        self._http = http
        self._timeout_s = timeout_s

    async def get(self, what: str, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON object at a URL. `what` names the endpoint in errors."""
        return self._object(what, *await self._send(what, "GET", url, headers, None))

    async def post(self, what: str, url: str, headers: Mapping[str, str], form: Mapping[str, str]) -> dict[str, Any]:
        """POST a form, and parse the JSON object in the response."""
        return self._object(what, *await self._send(what, "POST", url, headers, form))

    async def post_and_check(self, what: str, url: str, headers: Mapping[str, str], form: Mapping[str, str]) -> None:
        """POST a form; only the status of the response matters."""
        status, body = await self._send(what, "POST", url, headers, form)
        if not 200 <= status < 300:
            raise self._failure(what, status, _json(body))

    async def _send(
        self, what: str, method: str, url: str, headers: Mapping[str, str] | None, form: Mapping[str, str] | None
    ) -> tuple[int, bytes]:
        # Not compressed: a decompression bomb would bypass the size limit.
        sent = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": "keystead",
            **(headers or {}),
        }
        try:
            # The library's timeout applies to each read, so a slow trickle of bytes never reaches it.
            async with asyncio.timeout(self._timeout_s):
                async with self._http.stream(
                    method, url, headers=sent, data=form, follow_redirects=False, timeout=self._timeout_s
                ) as answer:
                    return answer.status_code, await self._body(what, answer)
        # `from None`: library errors carry the request, and with it secrets.
        except (TimeoutError, httpx2.TimeoutException):
            sentence = f"its {what} did not respond within {self._timeout_s:g} seconds"
            raise ProviderUnavailable(self._provider, sentence) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            sentence = f"its {what} is unreachable ({type(error).__name__})"
            raise ProviderUnavailable(self._provider, sentence) from None

    async def _body(self, what: str, answer: httpx2.Response) -> bytes:
        if answer.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise BadAnswer(self._provider, f"its {what} sent a compressed response, which was not requested")
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise BadAnswer(self._provider, f"its {what} sent more than {MAX_ANSWER_BYTES:,} bytes")
        return bytes(body)

    def _object(self, what: str, status: int, body: bytes) -> dict[str, Any]:
        answer = _json(body)
        # Some providers (GitHub) report errors with status 200.
        if status != 200 or (answer is not None and "error" in answer):
            raise self._failure(what, status, answer)
        if answer is None:
            raise BadAnswer(self._provider, f"its {what} did not respond with a JSON object")
        return answer

    def _failure(self, what: str, status: int, answer: dict[str, Any] | None) -> Exception:
        word = error_word((answer or {}).get("error"))
        if status >= 500 or status in _TRY_LATER or word in ("server_error", "temporarily_unavailable"):
            return ProviderUnavailable(self._provider, f"its {what} is unavailable (status {status})")
        if 300 <= status < 400:
            return BadAnswer(self._provider, f"its {what} responded with a redirect (status {status})")
        return ProviderRefused(self._provider, f"its {what} refused the request (status {status})", word)


def _json(body: bytes) -> dict[str, Any] | None:
    """Parse a JSON object. None: it is not one."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
