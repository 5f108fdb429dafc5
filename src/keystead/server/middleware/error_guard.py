"""Unexpected errors: the client gets a response, and the log the traceback."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystead.http.refusals import code_of, refusal_with
from keystead.server.error_responses import error_response
from keystead.server.logs import log_failure
from keystead.server.route_table import template_of


class ErrorGuard:
    """Responds to an unexpected error with INTERNAL and the request id, under which the log has the traceback.

    A response that has begun is broken off, so that the client does not take it for complete.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            request_id = scope.get("state", {}).get("request_id", "")
            code = code_of(error)
            if code == "INTERNAL":
                log_failure(error, request_id=request_id, route=template_of(scope))
            if begun:
                raise BrokenOff from None
            sentence = f"Something went wrong; the log has details under the id {request_id}."
            refusal = refusal_with(code, sentence if code == "INTERNAL" else "")
            await error_response(scope, refusal)(scope, receive, send)


class BrokenOff(Exception):
    """A response failed after it had begun. The server closes the connection."""
