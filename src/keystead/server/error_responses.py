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

from keystead.errors import KeysteadError, Unreadable
from keystead.http.accept import prefers_html
from keystead.http.pages import PAGE_HEADERS
from keystead.http.refusals import CODE_ALIAS, CODES, Refusal, code_of, refusal_with
from keystead.kits.identity import page_header
from keystead.schema.unreadable import log_unreadable
from keystead.server.page_templates import TEMPLATES
from keystead.server.route_table import allowed_methods

_BY_STATUS: Final = {status: code for code, (status, _, _) in CODES.items() if status not in (409, 503)}
_SUBJECT: Final = re.compile(r"^[A-Z]\w+ should")  # how sentences of Pydantic begin: "Input should", "String should"
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
    """A body that is larger than is allowed. An HTTPException, because FastAPI makes a 400 of any other error that
    comes up while it reads a body."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(413)
        sentence = f"The body of the request is too large; at most {max_bytes:,} bytes are taken."
        self.refusal = refusal_with("TOO_LARGE", sentence, {"connection": "close"})


# For `responses=` of a route: any status that it does not name itself.
ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"model": ErrorAnswer, "description": "Something is wrong; `code` and `error` say what."}
}


def error_response(scope: Scope, refusal: Refusal) -> Response:
    """The refusal as JSON, or as HTML where the client prefers that. The path is not repeated in it, so nobody can put
    words into the page's mouth."""
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
    heading = CODES[refusal.code][2] if refusal.code in CODES else "That did not work."
    if refusal.status == 401:
        heading = "You are not signed in." if refusal.sign_in_helps else "A key or a token is needed here."
    sentence = refusal.sentence[:1].upper() + refusal.sentence[1:] + ("" if refusal.sentence.endswith(".") else ".")
    header = page_header(scope)
    can_sign_in = refusal.sign_in_helps and header is not None and header.user is None
    page = TEMPLATES.get_template("error.html").render(
        heading=heading, sentence=sentence, code=refusal.code, header=header, can_sign_in=can_sign_in
    )
    return HTMLResponse(page, refusal.status, headers=PAGE_HEADERS)


async def respond_to_error(request: Request, error: Exception) -> Response:
    """The response to an error of a route. Raises an error that nothing here expects: the request layer answers it."""
    for kind, respond in _RESPONSES:
        if isinstance(error, kind):
            return await respond(request, error)
    raise error


def add_error_responses(app: FastAPI) -> None:
    """Give every error of a route its response. The request layer answers all others."""
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
    """Says which field is wrong and how; what was sent is not repeated."""
    if not isinstance(error, RequestValidationError):
        raise error
    sentence = "; ".join(dict.fromkeys(map(_wrong_field, error.errors())))
    return error_response(request.scope, refusal_with("BAD_REQUEST", sentence))


def _wrong_field(wrong: Mapping[str, Any]) -> str:
    place, *path = wrong["loc"]
    where = _PLACES.get(str(place), str(place))
    if wrong["type"] == "json_invalid":
        return "the body is not JSON"
    said = str(wrong["msg"]).removeprefix("Value error, ")
    # Only sentences that Pydantic makes of the declaration are passed on; others may quote what was sent.
    if wrong["type"] in ("value_error", "assertion_error", "union_tag_invalid", "enum"):
        said = "is not valid"
    elif wrong["type"] == "extra_forbidden":
        return f"{where} has a field that is not known"
    said = _SUBJECT.sub("should", said).replace("Field required", "is missing", 1)
    # A name that the declaration has; keys of what was sent are left out where they could be anything.
    # Parts that are not field names, such as `function-after[check(), str]`, are internal.
    name = ".".join(str(part) for part in path if isinstance(part, int) or _NAME.fullmatch(part))
    return f"{name} in {where} {_lower(said)}" if name else f"{where} {_lower(said)}"


def _lower(said: str) -> str:
    return said[:1].lower() + said[1:]


async def _refusal(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return error_response(request.scope, error)


async def _keystead_error(request: Request, error: Exception) -> Response:
    code = code_of(error)
    if isinstance(error, Unreadable):
        log_unreadable(None, error)
    if code == "INTERNAL":
        raise error  # the request layer logs and answers it
    request.scope["keystead.problem"] = getattr(error, "code", "")
    return error_response(request.scope, refusal_with(code))


# By class, as FastAPI looks them up: none of them is another's subclass, but for refusals that are both.
_RESPONSES: Final[tuple[tuple[type[Exception], Callable[[Request, Exception], Awaitable[Response]]], ...]] = (
    (Refusal, _refusal),
    (HTTPException, _http_error),
    (RequestValidationError, _bad_request),
    (KeysteadError, _keystead_error),
)
