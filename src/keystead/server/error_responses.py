"""Error responses: one JSON shape for programs, one page for browsers, never a stack trace."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from keystead.catalogue import message
from keystead.errors import KeysteadError, Unreadable
from keystead.http.accept import prefers_html
from keystead.http.pages import PAGE_HEADERS
from keystead.http.refusals import CODE_ALIAS, CODES, Refusal, code_of, refusal_with
from keystead.schema.unreadable import log_unreadable
from keystead.server.page_frame import GUIDE, page_frame
from keystead.server.page_templates import render
from keystead.server.route_table import allowed_methods

_BY_STATUS: Final = {status: code for code, (status, _, _) in CODES.items() if status not in (409, 503)}
_SUBJECT: Final = re.compile(r"^[A-Z]\w+ should")  # Pydantic's messages begin with "Input should", "String should"
_NAME: Final = re.compile(r"[\w-]+")
_PLACES: Final = {
    "body": "the body",
    "query": "the query",
    "path": "the address",
    "header": "a header",
    "cookie": "a cookie",
}


class ErrorAnswer(BaseModel):
    """Every error response. `code` is for programs and never changes; `error` is a sentence for people."""

    ok: Literal[False] = False
    error: str
    code: str


class TooLarge(HTTPException):
    """The request body is too large. An HTTPException, because FastAPI turns any other error while reading a body into
    a 400."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(413)
        sentence = f"The request body is too large; at most {max_bytes:,} bytes are accepted."
        self.refusal = refusal_with("TOO_LARGE", sentence, {"connection": "close"})


# For `responses=` of a route: any status that it does not name itself.
ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"model": ErrorAnswer, "description": "An error; `code` and `error` describe it."}
}


def error_response(scope: Scope, refusal: Refusal) -> Response:
    """The refusal as JSON, or as HTML if the client prefers that. It does not repeat the path: links could otherwise
    put text on our page."""
    response: Response
    if prefers_html(Headers(scope=scope).get("accept", "")):
        response = _error_page(scope, refusal)
    else:
        response = JSONResponse(refusal.body(scope.get(CODE_ALIAS)), refusal.status)
    response.headers["vary"] = "accept"
    for name, value in refusal.headers.items():
        response.headers[name] = value
    return response


def _error_page(scope: Scope, refusal: Refusal) -> Response:
    frame = page_frame(scope)
    say, header = frame.say, frame.header
    heading = CODES[refusal.code][2] if refusal.code in CODES else "That did not work."
    if refusal.status == 401:
        heading = _NOT_SIGNED_IN if refusal.sign_in_helps else _NEEDS_TOKEN
    sentence = refusal.sentence[:1].upper() + refusal.sentence[1:] + ("" if refusal.sentence.endswith(".") else ".")
    if refusal.code == "NOT_FOUND" and sentence == CODES["NOT_FOUND"][1]:
        sentence = _MISTYPED
    elif refusal.code == "INTERNAL":
        sentence = _FAILED  # the page shows the request id below
    # Sentences of kits for programs are in English only: a page in another language shows them as details.
    is_known = say.knows(sentence)
    has_guide = any(link.path == GUIDE for link in frame.links)
    page = render(
        "error.html",
        scope,
        heading=say(heading),
        sentence=say(sentence) if is_known else say(_general_sentence(refusal)),
        detail="" if is_known else sentence,
        status=refusal.status,
        code=refusal.code,
        explained_at=f"{GUIDE}reference/http.html#{refusal.code}" if has_guide and refusal.code in CODES else "",
        request_id=scope.get("state", {}).get("request_id", ""),
        can_sign_in=refusal.sign_in_helps and header is not None and header.user is None,
        has_guide=has_guide,
        can_retry=refusal.status >= 500 and frame.here != "/",
    )
    return HTMLResponse(page, refusal.status, headers=PAGE_HEADERS)


_MISTYPED: Final = message("The address may be mistyped, or the page may have been removed.")
_NOT_SIGNED_IN: Final = message("You are not signed in.")
_NEEDS_TOKEN: Final = message("This needs a key or a token.")
_SIGN_IN: Final = message("Sign in, then open the page again.")
_REFUSED: Final = message("The server refused this request. The reason, as programs get it:")
_FAILED: Final = message("The server could not do this now. Try again in a moment.")


def _general_sentence(refusal: Refusal) -> str:
    if refusal.sign_in_helps:
        return _SIGN_IN
    return _FAILED if refusal.status >= 500 else _REFUSED


async def respond_to_error(request: Request, error: Exception) -> Response:
    """The response to an error of a route. Raises an error that nothing here expects: the request layer answers it."""
    for kind, respond in _RESPONSES:
        if isinstance(error, kind):
            return await respond(request, error)
    raise error


def add_error_responses(app: FastAPI) -> None:
    """Add handlers for the errors of routes. The request layer handles all others."""
    for kind, respond in _RESPONSES:
        app.add_exception_handler(kind, respond)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 405:
        allowed = ", ".join(allowed_methods(request.app, request.scope))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": allowed})
        return error_response(request.scope, refusal_with("METHOD_NOT_ALLOWED", headers={"allow": allowed}))
    if isinstance(error, TooLarge):
        return error_response(request.scope, error.refusal)
    code = _BY_STATUS.get(error.status_code, "BAD_REQUEST" if error.status_code < 500 else "INTERNAL")
    return error_response(request.scope, Refusal(error.status_code, code, CODES[code][1], headers=error.headers))


async def _bad_request(request: Request, error: Exception) -> Response:
    """Name the wrong field and the reason, without repeating the input."""
    if not isinstance(error, RequestValidationError):
        raise error
    sentence = "; ".join(dict.fromkeys(map(_wrong_field, error.errors())))
    return error_response(request.scope, refusal_with("BAD_REQUEST", sentence))


def _wrong_field(wrong: Mapping[str, Any]) -> str:
    place, *path = wrong["loc"]
    where = _PLACES.get(str(place), str(place))
    if wrong["type"] == "json_invalid":
        return "the body is not JSON"
    reason = str(wrong["msg"]).removeprefix("Value error, ")
    # Only messages that Pydantic derives from the declaration are passed on; others may quote the input.
    if wrong["type"] in ("value_error", "assertion_error", "union_tag_invalid", "enum"):
        reason = "is not valid"
    elif wrong["type"] == "extra_forbidden":
        return f"{where} has an unknown field"
    reason = _SUBJECT.sub("should", reason).replace("Field required", "is missing", 1)
    reason = reason[:1].lower() + reason[1:]
    # Parts that are not field names, such as `function-after[check(), str]`, are internal.
    name = ".".join(str(part) for part in path if isinstance(part, int) or _NAME.fullmatch(part))
    return f"{name} in {where} {reason}" if name else f"{where} {reason}"


async def _refusal(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return error_response(request.scope, error)


async def _keystead_error(request: Request, error: Exception) -> Response:
    code = code_of(error)
    if isinstance(error, Unreadable):
        log_unreadable(None, error)
    if code == "INTERNAL":
        raise error  # the request layer logs it and responds
    request.scope["keystead.problem"] = getattr(error, "code", "")
    return error_response(request.scope, refusal_with(code))


# By class, as FastAPI looks them up: none of them is another's subclass, but for refusals that are both.
_RESPONSES: Final[tuple[tuple[type[Exception], Callable[[Request, Exception], Awaitable[Response]]], ...]] = (
    (Refusal, _refusal),
    (HTTPException, _http_error),
    (RequestValidationError, _bad_request),
    (KeysteadError, _keystead_error),
)
