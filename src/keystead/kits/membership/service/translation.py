"""Translation: requests of members passed on to a service that the operator chose, and counted against their quota."""

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
class Translated:
    """What the service answered, byte by byte, what it cost, and how the member stands after it."""

    body: bytes
    tokens: int
    status: Status


class Translation:
    """Made by `Members`. A request is passed on only for who has tokens left, and its answer only when it is counted.

    Who may interleave: other requests of the same member. Each asks before it is passed on, and is counted after: what
    they use together beyond the quota counts against the month, which is then exceeded. The limit `translate` bounds
    how many that can be.
    """

    def __init__(
        self, members: Members, settings: MembershipSettings, http: httpx2.AsyncClient, limit: Limits | None
    ) -> None:
        self._members = members
        self._settings = settings
        self._http = http
        self._limit = limit
        self._timeout_s = duration_ms(settings.translate_timeout) / 1000
        self._running: set[asyncio.Task[Translated]] = set()

    async def translate(self, bearer: str, body: bytes) -> Translated:
        """Pass the JSON object of a member on, and count what it cost.

        Whoever asked may leave: what was passed on is counted all the same. Raises MembershipRefused.
        """
        if self._settings.translate_url is None:
            raise MembershipRefused(
                "NOT_IMPLEMENTED", "nothing translates here: translate_url is not set", is_retryable=False
            )
        who = await self._members.entitled(bearer)
        await self._members.refuse_impatient(self._limit, "translate", who.named.user)
        if not _is_object(body):
            raise MembershipRefused("VALIDATION_ERROR", "the body is not a JSON object", is_retryable=False)
        await self._refuse_without_tokens(who)
        task = asyncio.create_task(self._passed_on(self._settings.translate_url, who, body))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait until all that was passed on is counted, though not for long: a server that stops is waited for, too."""
        if not self._running:
            return
        _, left = await asyncio.wait(self._running, timeout=_FINISH_S)
        for task in left:
            task.cancel()
        if left:
            _log.warning("membership: %d translations were broken off, and are not counted", len(left))
            await asyncio.wait(left)

    def _ended(self, task: asyncio.Task[Translated]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits is told; where nobody does any more, asyncio need not warn of it

    async def _refuse_without_tokens(self, who: Entitled) -> None:
        status = await self._members.usage.status_of(who.named.user, who.plan)
        if not status.is_exceeded or status.has_bonus_tokens:
            return
        if who.plan == "Free":
            raise MembershipRefused(
                "PLAN_NOT_SUPPORTED", "this needs a paid plan, or bonus tokens", status=status, is_retryable=False
            )
        wait_s = self._members.usage.month_ends_s() - self._members.keys.now_ms() // 1000
        raise MembershipRefused(
            "QUOTA_EXCEEDED",
            "this month's tokens are used up; the next month begins with new ones",
            retry_after_s=wait_s,
            status=status,
            is_retryable=False,
        )

    async def _passed_on(self, url: str, who: Entitled, body: bytes) -> Translated:
        answer = await self._post(url, body)
        tokens = _tokens_in(answer, self._settings.translate_tokens)
        if tokens is None:
            _log.error("membership: the answer of translate_url does not say how many tokens it used: translate_tokens")
            raise MembershipRefused("API_ERROR", "the service answered without saying what it cost", is_retryable=False)
        # The id is made here: one that a client chose would let it use for nothing.
        await self._members.usage.record_usage(who, f"translate:{uuid4()}", tokens)
        return Translated(answer, tokens, await self._members.usage.status_of(who.named.user, who.plan))

    async def _post(self, url: str, body: bytes) -> bytes:
        """What the service answers. Nothing of the request goes along but its body."""
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        if self._settings.translate_key is not None:
            name, key = self._settings.translate_header, self._settings.translate_key.get_secret_value()
            headers[name] = f"Bearer {key}" if name.lower() == "authorization" else key
        try:
            async with asyncio.timeout(self._timeout_s):
                async with self._http.stream(
                    "POST", url, content=body, headers=headers, follow_redirects=False, timeout=self._timeout_s
                ) as answer:
                    told = await _read(answer)
                    self._refuse_failure(answer)
                    return told
        # `from None`: the library's errors carry the request, and with it the key.
        except (TimeoutError, httpx2.TimeoutException):
            raise MembershipRefused("TIMEOUT", "the service took too long; try again", is_retryable=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            _log.warning("membership: translate_url cannot be reached (%s)", type(error).__name__)
            raise MembershipRefused(
                "NETWORK_ERROR", "the service cannot be reached; try again", is_retryable=True
            ) from None

    def _refuse_failure(self, answer: httpx2.Response) -> None:
        """Raises MembershipRefused where the service says no. Its own words are not repeated."""
        status = answer.status_code
        if status == 200:
            return
        _log.warning("membership: translate_url answered with status %d", status)
        if status in (400, 413, 422):
            raise MembershipRefused("VALIDATION_ERROR", "the service does not take this request", is_retryable=False)
        if status == 402:
            raise MembershipRefused("PAYMENT_REQUIRED", "the service wants to be paid first", is_retryable=False)
        if status == 429:
            wait_s = pause_s(answer.headers.get("retry-after"), self._members.keys.now_ms())
            raise MembershipRefused(
                "RATE_LIMITED", "the service is asked too often; try again", retry_after_s=wait_s, is_retryable=True
            )
        raise MembershipRefused("API_ERROR", "the service could not do this", is_retryable=status >= 500)


async def _read(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > ANSWER_MAX_BYTES:
            raise MembershipRefused("API_ERROR", "the service answered with too much", is_retryable=False)
    return bytes(body)


def _is_object(body: bytes) -> bool:
    return isinstance(_json(body), dict)


def _tokens_in(answer: bytes, path: str) -> int | None:
    """The number of tokens under names divided by dots; None: there is none."""
    found = _json(answer)
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found if type(found) is int and 0 <= found <= MOST_TOKENS else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
