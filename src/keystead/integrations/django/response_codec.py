"""Responses in Django's cache, as the cache middleware stores them: class, status, headers, cookies and content."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from django import http
from django.http import HttpResponse, HttpResponseBase
from django.template.response import SimpleTemplateResponse, TemplateResponse

# By the name in the store. Nothing else is created by reading.
_CLASSES: Final[dict[str, type[HttpResponse]]] = {
    one.__name__: one
    for one in (
        HttpResponse,
        http.HttpResponseRedirect,
        http.HttpResponsePermanentRedirect,
        http.HttpResponseNotModified,
        http.HttpResponseBadRequest,
        http.HttpResponseForbidden,
        http.HttpResponseNotFound,
        http.HttpResponseNotAllowed,
        http.HttpResponseGone,
        http.HttpResponseServerError,
        http.JsonResponse,
        SimpleTemplateResponse,
        TemplateResponse,
    )
}
_NAMES: Final = {one: name for name, one in _CLASSES.items()}


def pack_response(response: HttpResponseBase, refuse: Callable[[str], Exception]) -> dict[str, Any]:
    """What a client receives of this response, as JSON. Raises what `refuse` makes of the end of a sentence.

    A response of a class of your own is stored as the nearest of Django's classes.
    """
    if not isinstance(response, HttpResponse):
        raise refuse("is a streaming response, which cannot be cached; return an HttpResponse")
    if not getattr(response, "is_rendered", True):
        raise refuse("is a template response that was not rendered yet; call render() first")
    return {
        "class": next(_NAMES[one] for one in type(response).__mro__ if one in _NAMES),
        "status": response.status_code,
        "reason": response.reason_phrase,
        "charset": response.charset,
        "headers": [list(pair) for pair in response.headers.items()],
        "cookies": [_pack_cookie(morsel) for morsel in response.cookies.values()],
        "content": base64.b64encode(response.content).decode(),
    }


def unpack_response(packed: dict[str, Any]) -> HttpResponse:
    """The response. As with pickle, one from a template has its content, but not its template and context."""
    class_: Any = _CLASSES[packed["class"]]
    response = class_.__new__(class_)
    HttpResponse.__init__(
        response,
        content=base64.b64decode(packed["content"], validate=True),
        status=packed["status"],
        reason=packed["reason"],
        charset=packed["charset"],
        headers=dict(packed["headers"]),
    )
    if isinstance(response, SimpleTemplateResponse):
        response._is_rendered = True
    if "Content-Type" not in dict(packed["headers"]):
        del response.headers["Content-Type"]
    for name, value, coded, attributes in packed["cookies"]:
        response.cookies[name] = value
        morsel = response.cookies[name]
        morsel.set(name, value, coded)
        morsel.update(attributes)
    return response


def _pack_cookie(morsel: Any) -> list[Any]:
    return [morsel.key, morsel.value, morsel.coded_value, {name: one for name, one in morsel.items() if one != ""}]
