"""What the middleware itself answers with: `{"ok": false, "error": …, "code": …}`, as Keystead's own server does."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from keystead.integrations.asgi.types import Header, Message, Scope, Send

RETRY_AFTER_S: Final = 1


class Answer(NamedTuple):
    status: int
    code: str
    sentence: str

    def messages(self, more: list[Header]) -> tuple[Message, Message]:
        """The answer in ASGI's own messages, with these further headers. A 503 says when to try again."""
        says_when = any(name == b"retry-after" for name, _ in more)
        body = json.dumps({"ok": False, "error": self.sentence, "code": self.code}, separators=(",", ":")).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            *([(b"retry-after", b"%d" % RETRY_AFTER_S)] if self.status == 503 and not says_when else []),
            *more,
        ]
        start: Message = {"type": "http.response.start", "status": self.status, "headers": headers}
        return start, {"type": "http.response.body", "body": body}


SIGNED_OUT: Final = Answer(401, "SIGNED_OUT", "You are not signed in, or no longer.")
CSRF: Final = Answer(403, "CSRF", "The request does not show that it comes from this site; load the page again.")
CROSS_SITE: Final = Answer(403, "CSRF", "The request comes from another site.")
BODY_TOO_LARGE: Final = Answer(
    403, "CSRF", "The body is too large to look for the field csrf in it; send the token in the header x-csrf-token."
)
STORE_UNAVAILABLE: Final = Answer(503, "STORE_UNAVAILABLE", "The store does not answer; try again in a moment.")
UNREADABLE: Final = Answer(409, "UNREADABLE", "What is stored of this session cannot be read, and was left as it is.")
CONTENDED: Final = Answer(503, "CONTENDED", "Too many changed the same session at once; try again.")


async def refuse(scope: Scope, send: Send, answer: Answer, more: list[Header] | None = None) -> None:
    """Answer the request instead of the application. A WebSocket is closed before it is accepted, which is a 403."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1013 if answer.status == 503 else 1008, "reason": answer.code})
        return
    for message in answer.messages(more or []):
        await send(message)
