"""Responses: a result or an error as JSON, text or picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi.responses import Response
from pydantic_core import to_json

from keystead.errors import Unreadable
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import RawResponse, raw_headers
from keystead.kits.widgets import pictures
from keystead.kits.widgets.routes.actions import Action
from keystead.kits.widgets.routes.requests import Format
from keystead.kits.widgets.service import WidgetRefused
from keystead.parts.limit import LimitReached
from keystead.schema.unreadable import log_unreadable

# The HTTP status of each reason of `WidgetRefused`.
STATUS: Final[Mapping[str, int]] = {
    "VALIDATION_ERROR": 400,
    "UNAUTHORIZED": 403,
    "NOT_FOUND": 404,
    "COOLDOWN": 429,
    "UNREADABLE": 409,
    "TRY_AGAIN": 503,
}

_CACHED: Final = {"cache-control": "public, max-age=60"}
_TEXT: Final = "text/plain; charset=utf-8"
_SVG: Final = "image/svg+xml"
_HEADERS: Final = {
    (kind, is_public): raw_headers(kind, _CACHED if is_public else NO_STORE)
    for kind in (_TEXT, _SVG)
    for is_public in (True, False)
}
# Errors of a picture that an `<img>` shows as an error picture. Image proxies, such as GitHub's, need a success status.
_SHOWN_AS_PICTURE: Final = frozenset({400, 404})


def respond(action: Action, format: Format, result: Any, given: Any) -> Response:
    """The response with the result of an action."""
    if format == "json" or action.view is None:
        content = result if action.is_public else {"success": True, **action.body(result, given)}
        return RawResponse(to_json(content, exclude_none=True))
    if format == "text":
        kind, text = _TEXT, action.view.text(result, given)
    else:
        kind, text = _SVG, action.view.picture(result, given, not action.is_public)
    return RawResponse(text.encode(), _HEADERS[kind, action.is_public])


def respond_with_error(refusal: Refusal, format: Format) -> Response:
    """The response to a refused request. Raises the refusal for JSON, which the server formats."""
    if format == "text":
        return Response(f"{refusal.sentence}\n", refusal.status, refusal.headers, _TEXT)
    if format == "image":
        status = 200 if refusal.status in _SHOWN_AS_PICTURE else refusal.status
        return Response(pictures.error(), status, refusal.headers, _SVG)
    raise refusal


def make_refusal(
    status: int, code: str, sentence: str, *, headers: Mapping[str, str] | None = None, **more: object
) -> Refusal:
    """A refusal with the fields of the original API, beside those that all refusals have."""
    more = {name: value for name, value in more.items() if value is not None}
    more |= {"success": False, "statusCode": status}
    return Refusal(status, code, sentence, headers=NO_STORE | dict(headers or {}), more=more)


def translate_error(error: WidgetRefused | Unreadable | LimitReached) -> Refusal:
    """The HTTP refusal for an error of the service."""
    if isinstance(error, Unreadable):
        log_unreadable(None, error)
        sentence = "the stored widget cannot be read; `keystead doctor` shows why"
        return make_refusal(STATUS["UNREADABLE"], "UNREADABLE", sentence)
    wait = error.retry_after_s
    headers = {} if wait is None else {"retry-after": str(wait)}
    if isinstance(error, LimitReached):
        return make_refusal(429, "RATE_LIMITED", str(error), headers=headers, retryAfter=wait)
    status, field = STATUS[error.reason], error.field
    return make_refusal(status, error.reason, str(error), headers=headers, field=field, retryAfter=wait)
