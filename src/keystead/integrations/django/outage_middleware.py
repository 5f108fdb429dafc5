"""Middleware: a store outage is a 503 with `Retry-After`, not a 500."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponseBase

from keystead.integrations.outages import RETRY_AFTER_S, is_temporary


class StoreOutageMiddleware:
    """A store outage, in a view or while the session is saved, is a 503 with `Retry-After`. Put it first:

        MIDDLEWARE = ["keystead.integrations.django.StoreOutageMiddleware", ...]

    The page is that of `handler500`.
    """

    sync_capable: ClassVar = True
    async_capable: ClassVar = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if self._is_async:
            return self._respond_async(request)
        return _with_status(request, self._get_response(request))

    async def _respond_async(self, request: HttpRequest) -> HttpResponseBase:
        return _with_status(request, await self._get_response(request))


def _with_status(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if response.status_code == 500 and getattr(request, "_keystead_outage", False):
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _note_outage(request: HttpRequest | None = None, **_: Any) -> None:
    # Django turns an exception into a response at each middleware, so the outermost sees only the response.
    if request is not None and is_temporary(sys.exc_info()[1]):
        request._keystead_outage = True


got_request_exception.connect(_note_outage, dispatch_uid="keystead")
