"""HEAD is GET without the body, on every route."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """HEAD runs the route as GET and drops the body, so routes need no code for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                if message.get("more_body", False):
                    return
                message = {"type": "http.response.body", "body": b""}
            elif message["type"] == "http.response.pathsend":
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        # Without extensions, so that the server does not send a file itself.
        # Routes with side effects on GET can recognize HEAD by `keystead.head`.
        asked = {**scope, "method": "GET", "extensions": {}, "keystead.head": True}
        try:
            await self._app(asked, receive, send_without_body)
        finally:
            for name in ("route", "endpoint", "keystead.template", "keystead.problem"):
                if name in asked:
                    scope[name] = asked[name]
