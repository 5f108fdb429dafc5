"""What is said when something is wrong: one shape for programs, one page for browsers, and never a stack trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from keystead.errors import BadCall, BadKey, BadValue, Contended, KeysteadError, StoreError, Unreadable
from keystead.kits.identity import page_header
from keystead.kits.refusal import CODE_ALIAS, Refusal
from keystead.schema.unreadable import log_unreadable
from keystead.server.page_policy import PAGE_HEADERS
from keystead.server.page_templates import TEMPLATES
from keystead.server.route_table import allowed_methods

RETRY_AFTER_SECONDS: Final = 1

# Every code that the server itself answers with: its status, what it says, and the heading of its page.
CODES: Final = {
    "BAD_REQUEST": (400, "The request is not what this address takes.", "That did not work."),
    "NOT_FOUND": (404, "There is nothing at this address.", "There is no such page."),
    "METHOD_NOT_ALLOWED": (405, "This address does not take that method.", "That did not work."),
    "UNREADABLE": (
        409,
        "The stored data cannot be read and was left unchanged. The server's log names its family.",
        "This cannot be read.",
    ),
    "TOO_LARGE": (413, "The body of the request is too large.", "That was too large."),
    "INTERNAL": (500, "Something went wrong here.", "Something went wrong."),
    "CONTENDED": (503, "Too many changed the same thing at once; try again.", "Please try again."),
    "STORE_UNAVAILABLE": (503, "The store does not answer; try again in a moment.", "Please try again in a moment."),
    "TIMEOUT": (504, "This took too long and was given up.", "That took too long."),
}
_BY_STATUS: Final = {status: code for code, (status, _, _) in CODES.items() if status not in (409, 503)}
# Of these the server knows that it is worth coming again in a moment. A kit says itself when to come again, if ever.
_SOON_OVER: Final = frozenset(code for code, (status, _, _) in CODES.items() if status == 503)
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
    """Every answer that is no success. `code` is for programs and never changes; `error` is a sentence for people."""

    ok: Literal[False] = False
    error: str
    code: str


class TooLarge(HTTPException):
    """A body that is larger than is allowed. An HTTPException, because FastAPI makes a 400 of any other error that
    comes up while it reads a body."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(413)
        self.sentence = f"The body of the request is too large; at most {max_bytes:,} bytes are taken."


# For `responses=` of a route: any status that it does not name itself.
ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"model": ErrorAnswer, "description": "Something is wrong; `code` and `error` say what."}
}


def error_answer(
    scope: Scope,
    code: str,
    sentence: str = "",
    *,
    status: int = 0,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, object] | None = None,
    sign_in_helps: bool = False,
) -> Response:
    """The answer, as HTML where the client likes that better than JSON. The path is not repeated in it, so nobody can
    put words into the page's mouth."""
    own_status, own_sentence, heading = CODES.get(code, (400, "", "That did not work."))
    if status == 401:
        heading = "You are not signed in." if sign_in_helps else "A key or a token is needed here."
    status, sentence = status or own_status, sentence or own_sentence
    answer: Response
    if prefers_html(Headers(scope=scope).get("accept", "")):
        said = sentence[:1].upper() + sentence[1:] + ("" if sentence.endswith(".") else ".")
        header = page_header(scope)
        can_sign_in = sign_in_helps and header is not None and header.user is None
        page = TEMPLATES.get_template("error.html").render(
            heading=heading, sentence=said, code=code, header=header, can_sign_in=can_sign_in
        )
        answer = HTMLResponse(page, status, headers=PAGE_HEADERS)
    else:
        # The shape is the server's: what a kit adds stands beside it, also a name of its own for the code.
        beside = {**(more or {}), **({scope[CODE_ALIAS]: code} if CODE_ALIAS in scope else {})}
        answer = JSONResponse({**beside, "ok": False, "error": sentence, "code": code}, status)
    answer.headers["cache-control"] = "no-store"
    answer.headers["vary"] = "accept"
    if code in _SOON_OVER:
        answer.headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    for name, value in (headers or {}).items():
        answer.headers[name] = value
    return answer


def prefers_html(accept: str) -> bool:
    """Whether HTML is named there and liked better than JSON: a browser's header, and not `*/*`."""
    html = json = anything = None
    for entry in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        liked = _quality(parameters)
        if kind == "text/html":
            html = max(html or 0.0, liked)
        elif kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
            json = max(json or 0.0, liked)
        elif kind in ("*/*", "application/*"):
            anything = max(anything or 0.0, liked)
    if not html:
        return False
    # Where only `*/*` stands for JSON, HTML that is named is meant first.
    return html > json if json is not None else html >= (anything or 0.0)


def _quality(parameters: list[str]) -> float:
    for one in parameters:
        if one.startswith("q="):
            try:
                return min(max(float(one[2:]), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0


def add_error_answers(app: FastAPI) -> None:
    """Give every error of a route its answer. What no handler knows reaches the `Guard` middleware."""
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(KeysteadError, _keystead_error)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 405:
        allowed = ", ".join(allowed_methods(request.app, request.scope))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": allowed})
        return error_answer(request.scope, "METHOD_NOT_ALLOWED", headers={"allow": allowed})
    if isinstance(error, TooLarge):
        return error_answer(request.scope, "TOO_LARGE", error.sentence, headers={"connection": "close"})
    code = _BY_STATUS.get(error.status_code, "BAD_REQUEST" if error.status_code < 500 else "INTERNAL")
    return error_answer(request.scope, code, status=error.status_code, headers=error.headers)


async def _bad_request(request: Request, error: Exception) -> Response:
    """Says which field is wrong and how; what was sent is not repeated."""
    if not isinstance(error, RequestValidationError):
        raise error
    return error_answer(request.scope, "BAD_REQUEST", "; ".join(dict.fromkeys(map(_wrong_field, error.errors()))))


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
    # What is no name of a field, as `function-after[check(), str]`, is the program's own affair.
    name = ".".join(str(part) for part in path if isinstance(part, int) or _NAME.fullmatch(part))
    return f"{name} in {where} {_lower(said)}" if name else f"{where} {_lower(said)}"


def _lower(said: str) -> str:
    return said[:1].lower() + said[1:]


async def _refusal(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return error_answer(
        request.scope,
        error.code,
        error.sentence,
        status=error.status,
        headers=error.headers,
        more=error.more,
        sign_in_helps=error.sign_in_helps,
    )


async def _keystead_error(request: Request, error: Exception) -> Response:
    code = code_of(error)
    if isinstance(error, Unreadable):
        log_unreadable(None, error)
    if code == "INTERNAL":
        raise error  # the Guard logs it, and answers
    request.scope["keystead.problem"] = getattr(error, "code", "")
    return error_answer(request.scope, code)


def code_of(error: BaseException) -> str:
    """The code that an error of a route is answered with. A store that does not let us in, or is full, is one that
    cannot be used just now; that a command was wrong is a fault of the program. What cannot become a key or a value
    was sent by the client; what cannot be read is neither's fault."""
    if isinstance(error, Unreadable):
        return "UNREADABLE"
    if isinstance(error, BadKey | BadValue) and not isinstance(error, BadCall):
        return "BAD_REQUEST"
    if isinstance(error, Contended):
        return "CONTENDED"
    if isinstance(error, StoreError) and error.code.startswith("store"):
        return "STORE_UNAVAILABLE"
    return "INTERNAL"
