"""The time limit of requests."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystead.http.refusals import refusal_with
from keystead.server.error_responses import error_response


class TimeLimit:
    """Cancels a request that takes too long, and responds with TIMEOUT.

    The limit does not apply to an event stream (`text/event-stream`) that has begun. Other long routes lift it with
    `request.state.time_limit.reschedule(None)`.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                if Headers(raw=message.get("headers", [])).get("content-type", "").startswith("text/event-stream"):
                    limit.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(self._seconds) as limit:
                scope.setdefault("state", {})["time_limit"] = limit
                await self._app(scope, receive, send_and_note)
        except TimeoutError:
            if not limit.expired() or begun:
                raise
            await error_response(scope, refusal_with("TIMEOUT"))(scope, receive, send)
