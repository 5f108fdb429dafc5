"""Error responses: each has a status, a stable code for programs and a sentence for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from starlette.types import Message, Scope, Send

from keystead.errors import BadCall, BadKey, BadValue, Contended, StoreError, Unreadable

NO_STORE: Final = {"cache-control": "no-store"}
RETRY_AFTER_S: Final = 1

# A scope key: a second field name for the code in error bodies, for clients of other APIs.
CODE_ALIAS: Final = "keystead.code_alias"

# The codes of the library itself: status, sentence, and the heading of the error page.
CODES: Final = {
    "BAD_REQUEST": (400, "The request is invalid.", "That did not work."),
    "NOT_FOUND": (404, "There is nothing at this address.", "There is no such page."),
    "METHOD_NOT_ALLOWED": (405, "This address does not allow that method.", "That did not work."),
    "UNREADABLE": (
        409,
        "The stored data cannot be read and was left unchanged. The server's log names its family.",
        "This data cannot be read.",
    ),
    "TOO_LARGE": (413, "The request body is too large.", "That was too large."),
    "INTERNAL": (500, "Something went wrong.", "Something went wrong."),
    "CONTENDED": (503, "Too many concurrent changes; try again.", "Please try again."),
    "OVERLOADED": (503, "Too many requests in progress; try again in a moment.", "Please try again in a moment."),
    "STORE_UNAVAILABLE": (503, "The store does not answer; try again in a moment.", "Please try again in a moment."),
    "TIMEOUT": (504, "The request took too long and was cancelled.", "That took too long."),
}
_TEMPORARY: Final = frozenset(code for code, (status, _, _) in CODES.items() if status == 503)


def statuses(codes: Mapping[int, str]) -> dict[str, int]:
    """The status of each code: `statuses({404: "NOT_FOUND UNKNOWN_PROVIDER"})["NOT_FOUND"] == 404`."""
    return {code: status for status, text in codes.items() for code in text.split()}


class Refusal(Exception):
    """An error response, which is never cached.

    The server sends it as `{"ok": false, "error": sentence, "code": code}` with the fields of `more`, or as a page if
    the browser prefers HTML. The sentence contains no secret and does not reveal whether an id exists.

    retry_after_s   the header `Retry-After`. The 503 of `CODES` set it by default
    sign_in_helps   whether signing in would allow the request, so that the page links to it
    """

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
        retry_after_s: int | None = None,
        sign_in_helps: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.sentence = sentence
        if retry_after_s is None and code in _TEMPORARY:
            retry_after_s = RETRY_AFTER_S
        wait = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
        self.headers = {**NO_STORE, **wait, **(headers or {})}
        self.more = dict(more or {})
        self.sign_in_helps = sign_in_helps

    def body(self, alias: str | None = None) -> dict[str, object]:
        """The JSON body. `alias` is a second name for the code; `more` cannot replace the three standard fields."""
        beside = self.more if alias is None else {**self.more, alias: self.code}
        return {**beside, "ok": False, "error": self.sentence, "code": self.code}


def refusal_with(code: str, sentence: str = "", headers: Mapping[str, str] | None = None) -> Refusal:
    """The refusal with one of `CODES`."""
    status, own_sentence, _ = CODES[code]
    return Refusal(status, code, sentence or own_sentence, headers=headers)


def code_of(error: BaseException) -> str:
    """The code of `CODES` for an error that a route raised.

    A store that refuses the login or is full counts as unavailable; a wrong command is a bug of the program. Invalid
    keys and values come from the client.
    """
    if isinstance(error, Unreadable):
        return "UNREADABLE"
    if isinstance(error, BadKey | BadValue) and not isinstance(error, BadCall):
        return "BAD_REQUEST"
    if isinstance(error, Contended):
        return "CONTENDED"
    if isinstance(error, StoreError) and error.code.startswith("store"):
        return "STORE_UNAVAILABLE"
    return "INTERNAL"


async def send_refusal(
    scope: Scope, send: Send, refusal: Refusal, set_cookies: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send the refusal as JSON. A WebSocket is closed before it is accepted, which is a 403."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1013 if refusal.status == 503 else 1008, "reason": refusal.code})
        return
    body = json.dumps(refusal.body(), separators=(",", ":")).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    encoded = [*((name.encode(), value.encode("latin-1")) for name, value in headers.items()), *set_cookies]
    start: Message = {"type": "http.response.start", "status": refusal.status, "headers": encoded}
    await send(start)
    await send({"type": "http.response.body", "body": body})
