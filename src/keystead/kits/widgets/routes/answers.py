"""What is answered: an outcome as JSON, as text or as a picture, and a refusal in the same form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi.responses import Response
from pydantic_core import to_json

from keystead.errors import Unreadable
from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.widgets import pictures
from keystead.kits.widgets.routes.actions import Format
from keystead.kits.widgets.routes.asked import Asked
from keystead.kits.widgets.routes.parameters import refusal
from keystead.kits.widgets.service import WidgetRefused
from keystead.parts.limit import LimitReached
from keystead.schema.unreadable import log_unreadable

# What each refusal of the service is in HTTP.
STATUS: Final[Mapping[str, int]] = {
    "VALIDATION_ERROR": 400,
    "UNAUTHORIZED": 403,
    "NOT_FOUND": 404,
    "COOLDOWN": 429,
    "UNREADABLE": 409,
    "TRY_AGAIN": 503,
}

_SHOWN_FOR: Final = {"cache-control": "public, max-age=60"}
_TEXT: Final = "text/plain; charset=utf-8"
_SVG: Final = "image/svg+xml"
# What an `<img>` on somebody's page got wrong is shown there as a picture that says so. Proxies of pictures, such as
# the one of GitHub, show a picture only where the status is a success.
_SHOWN_AS_PICTURE: Final = frozenset({400, 404})


def answer(asked: Asked, outcome: Any) -> Response:
    """What came of an action, in the form that was asked for."""
    action = asked.action
    if asked.format == "json" or action.view is None:
        told = outcome if action.display else {"success": True, **action.answer(outcome, asked.given)}
        return Response(to_json(told, exclude_none=True), media_type="application/json", headers=NO_STORE)
    headers = _SHOWN_FOR if action.display else NO_STORE
    if asked.format == "text":
        return Response(action.view.text(outcome, asked.given), media_type=_TEXT, headers=headers)
    return Response(action.view.picture(outcome, asked.given, not action.display), media_type=_SVG, headers=headers)


def refused(refusal: Refusal, wanted: Format) -> Response:
    """A refusal in the form that was asked for. Raises it where that is JSON: the server writes it."""
    if wanted == "text":
        return Response(f"{refusal.sentence}\n", refusal.status, refusal.headers, _TEXT)
    if wanted == "image":
        status = 200 if refusal.status in _SHOWN_AS_PICTURE else refusal.status
        return Response(pictures.error(), status, refusal.headers, _SVG)
    raise refusal


@asynccontextmanager
async def refusals() -> AsyncIterator[None]:
    """Turns what the service refuses into what the server answers."""
    try:
        yield
    except WidgetRefused as said:
        wait = said.more.get("retryAfter") or (1 if said.reason == "TRY_AGAIN" else None)
        headers = {"retry-after": str(wait)} if wait else {}
        raise refusal(STATUS[said.reason], said.reason, str(said), headers=headers, more=said.more) from None
    except Unreadable as unreadable:
        log_unreadable(None, unreadable)
        sentence = "what is stored of this cannot be read; `keystead doctor` shows it"
        raise refusal(STATUS["UNREADABLE"], "UNREADABLE", sentence) from None
    except LimitReached as reached:
        wait = reached.retry_after_s
        headers = {"retry-after": str(wait)}
        raise refusal(429, "RATE_LIMITED", str(reached), headers=headers, more={"retryAfter": wait}) from None
