"""Decorators of Flask views: a rate limit, and a cache in which concurrent misses run the view once."""

from __future__ import annotations

import threading
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from flask import Response, copy_current_request_context, current_app, request
from flask.globals import request_ctx
from pydantic import BaseModel
from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from keystead.integrations.flask.flask_session import FlaskSession
from keystead.parts import decorators
from keystead.parts.cache import LoadFailed
from keystead.parts.limit import LimitReached, Limits, Rate, network_of
from keystead.schema import Bound
from keystead.schema.kinds import ValueKey

P = ParamSpec("P")
R = TypeVar("R")


def client_address() -> str:
    """The client address of this request, in IPv6 its /64. Behind a proxy, use Werkzeug's ProxyFix."""
    return network_of(request.remote_addr or "") or "unknown"


def full_path() -> str:
    return request.full_path.removesuffix("?")


# --- rate limit ----------------------------------------------------------------------------------------------


def rate_limit(
    family: Bound[Any] | Limits, rate: str | Rate | None = None, *, client: Callable[[], str] = client_address
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Count each request of a client, and refuse those beyond the limit:

        @app.get("/search")
        @rate_limit(keys.searches)             # searches = Limited("shop:searches:{client}", "10/minute")

    family   a family `Limited`, which has the rate, or a limit such as TokenBucket; with one placeholder
    client   who is counted together: by default the client address

    Further requests are aborted with 429 and `Retry-After`; while the store is down, with 503. One round trip.
    """

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        @decorators.rate_limit(family, rate, key=lambda: client(), refused=_abort)
        def count() -> None:
            """Counted by being called."""

        @wraps(view)
        def limited(*args: P.args, **kwargs: P.kwargs) -> Any:
            count()
            return current_app.ensure_sync(view)(*args, **kwargs)

        return cast("Callable[P, R]", limited)

    return decorate


def _abort(error: LimitReached) -> None:
    is_down = error.verdict is not None and error.verdict.store_is_down
    refusal = ServiceUnavailable if is_down else TooManyRequests
    raise refusal(retry_after=error.retry_after_s)


# --- single flight -------------------------------------------------------------------------------------------


class CachedPage(BaseModel):
    """A response that is the same for everybody, as it is stored: `Cached("page:{path<=200}", CachedPage, …)`."""

    headers: list[tuple[str, str]]
    text: str = ""
    base64: str = ""

    @classmethod
    def of(cls, response: Response) -> CachedPage:
        body = response.get_data()
        headers = [(name, value) for name, value in response.headers.items() if name.lower() != "content-length"]
        try:
            return cls(headers=headers, text=body.decode())
        except UnicodeDecodeError:
            return cls(headers=headers, base64=b64encode(body).decode())

    def response(self) -> Response:
        body = b64decode(self.base64) if self.base64 else self.text
        return current_app.response_class(body, headers=self.headers)


def cached_view(
    family: Bound[ValueKey[CachedPage]], *, key: Callable[[], str] = full_path
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache a page that is the same for everybody. Concurrent misses run the view once, across all processes:

        @app.get("/products")
        @cached_view(keys.page)       # page = Cached("shop:page:{path<=200}", CachedPage, lifetime=after("5m"))

    key   what distinguishes pages: by default path and query

    Only GET is cached, and only responses of status 200 that neither set cookies, nor used the session, nor vary by
    cookie, nor say that they are private. Others are returned, and not stored. If the family declares `stale`, an
    expired page is returned at once while the view runs in another thread. While the store is down, the view runs.
    """

    @decorators.cache(family, key=lambda path: path)
    def load(path: str, work: _ViewRun) -> CachedPage | None:
        return work.run()

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        @wraps(view)
        def cached(*args: P.args, **kwargs: P.kwargs) -> Any:
            run_view = current_app.ensure_sync(view)
            if request.method != "GET":
                return run_view(*args, **kwargs)
            work = _ViewRun(lambda: run_view(*args, **kwargs))
            try:
                page = load(key(), work)
            except LoadFailed:  # that of another request
                page = None
            if work.has_run:
                return work.result()
            return run_view(*args, **kwargs) if page is None else page.response()

        return cast("Callable[P, R]", cached)

    return decorate


class _ViewRun:
    """One run of a view, and what became of it."""

    def __init__(self, view: Callable[[], Any]) -> None:
        self._view = view
        self._in_background = copy_current_request_context(self._page)
        self._thread = threading.get_ident()
        self._response: Response | None = None
        self._error: Exception | None = None

    @property
    def has_run(self) -> bool:
        return self._response is not None or self._error is not None

    def run(self) -> CachedPage | None:
        """The page, if it may be stored. None if the view failed: others run it themselves."""
        if threading.get_ident() != self._thread:  # a stale page was returned; a failure keeps that
            return self._in_background()
        try:
            return self._page(self)
        except Exception as error:
            self._error = error
            return None

    def _page(self, own: _ViewRun | None = None) -> CachedPage | None:
        response = current_app.make_response(self._view())
        if own is not None:
            own._response = response
        return CachedPage.of(response) if _is_for_everybody(response) else None

    def result(self) -> Response:
        if self._error is not None:
            raise self._error
        return cast("Response", self._response)


def _is_for_everybody(response: Response) -> bool:
    if response.status_code != 200 or response.is_streamed or "Set-Cookie" in response.headers:
        return False
    control = response.cache_control
    return not (control.private or control.no_store or "cookie" in response.vary or _used_session())


def _used_session() -> bool:
    context = vars(request_ctx._get_current_object())  # type: ignore[attr-defined]  # reading `.session` counts as use
    opened = context.get("_session", context.get("session"))
    return opened.is_loaded if isinstance(opened, FlaskSession) else bool(opened is not None and opened.accessed)
