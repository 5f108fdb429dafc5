"""Translation proxy: forwards requests of members to a configured service, and charges their quota."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import httpx2

from keystead.kits.membership.service.ledger import MOST_TOKENS
from keystead.kits.membership.service.ledger_records import Status
from keystead.kits.membership.service.outcomes import Entitled, MembershipRefused
from keystead.kits.membership.service.patreon import pause_s
from keystead.schema.lifetime import duration_ms

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members
    from keystead.kits.membership.service.settings import MembershipSettings
    from keystead.parts.limit import Limits

ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
_FINISH_S: Final = 4  # less than `stop_timeout`

_log = logging.getLogger("keystead.membership")


@dataclass(frozen=True)
class TranslationResult:
    """The response body of the service, the tokens it used, and the member's usage after it."""

    body: bytes
    tokens: int
    status: Status


class Translation:
    """Created by `Members`. Forwards a request only if the member has tokens left, and answers only once it is charged.

    Race: concurrent requests of one member are checked before and charged after the request, so together they may
    exceed the quota. The excess counts against the month, and the limit `translate` bounds it.
    """

    def __init__(
        self, members: Members, settings: MembershipSettings, http: httpx2.AsyncClient, limit: Limits | None
    ) -> None:
        self._members = members
        self._settings = settings
        self._http = http
        self._limit = limit
        self._timeout_s = duration_ms(settings.translate_timeout) / 1000
        self._running: set[asyncio.Task[TranslationResult]] = set()

    async def translate(self, bearer: str, body: bytes) -> TranslationResult:
        """Forward a JSON object, and charge the tokens it used, even if the client disconnects meanwhile.

        Raises MembershipRefused.
        """
        if self._settings.translate_url is None:
            raise MembershipRefused(
                "NOT_IMPLEMENTED", "translation is not configured: set translate_url", is_retryable=False
            )
        who = await self._members.entitled(bearer)
        await self._members.enforce_limit(self._limit, "translate", who.session.user)
        if not isinstance(_parse_json(body), dict):
            raise MembershipRefused("VALIDATION_ERROR", "the body is not a JSON object", is_retryable=False)
        await self._refuse_without_tokens(who)
        task = asyncio.create_task(self._forward(self._settings.translate_url, who, body))
        self._running.add(task)
        task.add_done_callback(self._discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait a few seconds for running translations to be charged, then cancel the rest."""
        if not self._running:
            return
        _, left = await asyncio.wait(self._running, timeout=_FINISH_S)
        for task in left:
            task.cancel()
        if left:
            _log.warning("membership: %d translations cancelled and not charged", len(left))
            await asyncio.wait(left)

    def _discard(self, task: asyncio.Task[TranslationResult]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # avoids asyncio's "never retrieved" warning if the client is gone

    async def _refuse_without_tokens(self, who: Entitled) -> None:
        status = await self._members.usage.status_of(who.session.user, who.plan)
        if not status.is_exceeded or status.has_bonus_tokens:
            return
        if who.plan == "Free":
            raise MembershipRefused(
                "PLAN_NOT_SUPPORTED", "this needs a paid plan or bonus tokens", status=status, is_retryable=False
            )
        wait_s = self._members.usage.month_ends_s() - self._members.keys.now_ms() // 1000
        raise MembershipRefused(
            "QUOTA_EXCEEDED",
            "this month's quota is exhausted; it resets next month",
            retry_after_s=wait_s,
            status=status,
            is_retryable=False,
        )

    async def _forward(self, url: str, who: Entitled, body: bytes) -> TranslationResult:
        answer = await self._post(url, body)
        tokens = _read_token_count(answer, self._settings.translate_tokens)
        if tokens is None:
            _log.error("membership: no token count in the response of translate_url; check translate_tokens")
            raise MembershipRefused("API_ERROR", "the service did not report the tokens it used", is_retryable=False)
        # The server makes the id: a client that chose it could reuse one and pay nothing.
        await self._members.record_usage(who, f"translate:{uuid4()}", tokens)
        return TranslationResult(answer, tokens, await self._members.usage.status_of(who.session.user, who.plan))

    async def _post(self, url: str, body: bytes) -> bytes:
        """Post to the service, and return its response. Only the body of the member's request is forwarded."""
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        if self._settings.translate_key is not None:
            name, key = self._settings.translate_header, self._settings.translate_key.get_secret_value()
            headers[name] = f"Bearer {key}" if name.lower() == "authorization" else key
        try:
            async with asyncio.timeout(self._timeout_s):
                async with self._http.stream(
                    "POST", url, content=body, headers=headers, follow_redirects=False, timeout=self._timeout_s
                ) as answer:
                    content = await _read_limited(answer)
                    self._refuse_failure(answer)
                    return content
        # `from None`: the library's errors contain the request, and with it the key.
        except (TimeoutError, httpx2.TimeoutException):
            raise MembershipRefused("TIMEOUT", "the service timed out; try again", is_retryable=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            _log.warning("membership: translate_url cannot be reached (%s)", type(error).__name__)
            raise MembershipRefused(
                "NETWORK_ERROR", "the service cannot be reached; try again", is_retryable=True
            ) from None

    def _refuse_failure(self, answer: httpx2.Response) -> None:
        """Raises MembershipRefused unless the service answered 200. Does not repeat its message."""
        status = answer.status_code
        if status == 200:
            return
        _log.warning("membership: translate_url answered with status %d", status)
        if status in (400, 413, 422):
            raise MembershipRefused("VALIDATION_ERROR", "the service rejected this request", is_retryable=False)
        if status == 402:
            raise MembershipRefused("PAYMENT_REQUIRED", "the service requires payment", is_retryable=False)
        if status == 429:
            wait_s = pause_s(answer.headers.get("retry-after"), self._members.keys.now_ms())
            raise MembershipRefused(
                "RATE_LIMITED", "the service is rate limited; try again", retry_after_s=wait_s, is_retryable=True
            )
        raise MembershipRefused("API_ERROR", "the service failed", is_retryable=status >= 500)


async def _read_limited(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > ANSWER_MAX_BYTES:
            raise MembershipRefused("API_ERROR", "the response of the service is too large", is_retryable=False)
    return bytes(body)


def _read_token_count(answer: bytes, path: str) -> int | None:
    """The number of tokens at a dotted path; None if absent or invalid."""
    found = _parse_json(answer)
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found if type(found) is int and 0 <= found <= MOST_TOKENS else None


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
