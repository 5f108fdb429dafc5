"""Decorators of Flask views: a rate limit, and a cache in which concurrent misses run the view once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast
from urllib.parse import quote

from flask import Response, copy_current_request_context, current_app, request
from flask.globals import request_ctx
from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from keystead.integrations.cached_page import CachedPage, Variants
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
    """Path and query, escaped, so that no two addresses are the same text."""
    path = quote(request.path, safe="/:@!$&'()*+,;=~")
    query = quote(request.query_string, safe="%/:@!$&'()*+,;=~?[]")
    return f"{path}?{query}" if query else path


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


def cached_view(
    family: Bound[ValueKey[CachedPage]], *, key: Callable[[], str] = full_path, vary: Sequence[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache a page that is the same for everybody. Concurrent misses run the view once, across all processes:

        @app.get("/products")
        @cached_view(keys.page)       # page = Cached("shop:page:{path<=200}", CachedPage, lifetime=after("5m"))

    key    what distinguishes the pages of a host, by default path and query. Host and scheme are in the key anyway
    vary   request headers that the page depends on, such as `Accept-Language`: each combination is a page of its own

    Only GET is cached, and only responses of status 200 that neither set cookies, nor used the session, nor vary by
    headers that are not in `vary`, nor say that they are private. Others are returned, and not stored. Requests with
    `Authorization` are never answered from the cache. If the family declares `stale`, an expired page is returned at
    once while the view runs in another thread. While the store is down, the view runs.
    """
    variants = Variants(vary)

    @decorators.cache(family, key=lambda page: page)
    def load(page: str, work: _ViewRun) -> CachedPage | None:
        return work.run()

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        @wraps(view)
        def cached(*args: P.args, **kwargs: P.kwargs) -> Any:
            run_view = current_app.ensure_sync(view)
            if request.method != "GET" or "Authorization" in request.headers or request.remote_user:
                return run_view(*args, **kwargs)
            work = _ViewRun(lambda: run_view(*args, **kwargs), variants)
            headers = [request.headers.get(name) for name in variants.names]
            try:
                page = load(variants.key(_address(key()), [request.scheme], headers), work)
            except LoadFailed:  # that of another request
                page = None
            if work.has_run:
                return work.result()
            if page is None:
                return run_view(*args, **kwargs)
            return current_app.response_class(page.body, headers=page.headers)

        return cast("Callable[P, R]", cached)

    return decorate


def _address(path: str) -> str:
    return request.host + quote(request.root_path, safe="/") + path


class _ViewRun:
    """One run of a view, and what became of it."""

    def __init__(self, view: Callable[[], Any], variants: Variants) -> None:
        self._view = view
        self._variants = variants
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
        if response.status_code != 200 or response.is_streamed or _used_session():
            return None
        headers = list(response.headers.items())
        return CachedPage.of(headers, response.get_data()) if self._variants.may_share(headers) else None

    def result(self) -> Response:
        if self._error is not None:
            raise self._error
        return cast("Response", self._response)


def _used_session() -> bool:
    context = vars(request_ctx._get_current_object())  # type: ignore[attr-defined]  # reading `.session` counts as use
    opened = context.get("_session", context.get("session"))
    return opened.is_loaded if isinstance(opened, FlaskSession) else bool(opened is not None and opened.accessed)
