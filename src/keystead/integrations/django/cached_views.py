"""`cached_view`: a cache of pages in which concurrent misses run the view once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse
from django.utils import timezone, translation

from keystead import Store
from keystead.integrations.cached_page import CachedPage, Variants
from keystead.integrations.django.app_settings import store_url
from keystead.integrations.django.view_kinds import Named, View, bound_to, for_each_kind, result_of
from keystead.integrations.loop_stores import store_of_loop, synchronous_store
from keystead.parts import decorators
from keystead.parts.cache import LoadFailed
from keystead.schema import Bound, Family


def full_path(request: HttpRequest) -> str:
    return str(request.get_full_path())


def cached_view(
    family: Family[Any] | Bound[Any], *, key: Named = full_path, vary: Sequence[str] = ()
) -> Callable[[View], View]:
    """Cache a page that is the same for everybody. Concurrent misses run the view once, across all processes.

        class ShopKeys(Keyspace):
            page = Cached("shop:page:{path<=200}", CachedPage, lifetime=after("5m"))

        @cached_view(ShopKeys.page)

    key    what distinguishes the pages of a host, by default path and query. Host, scheme, language and time zone are
           in the key anyway
    vary   request headers that the page depends on, such as `Accept`: each combination is a page of its own

    Only GET is cached, and only responses of status 200 that neither set cookies, nor used the session or messages, nor
    vary by headers that are not in `vary`, nor say that they are private. Others are returned, and not stored. Requests
    with `Authorization` are never answered from the cache. If the view of another request fails, this request runs the
    view itself. If the family declares `stale`, an expired page is returned at once while the view runs in the
    background. While the store is down, the view runs.

    Template responses are rendered here, before `process_template_response` of middleware sees them.
    """
    pages = _Pages(family, key, Variants(vary))

    def decorate(view: View) -> View:
        def cached(request: HttpRequest, *args: Any, **options: Any) -> Any:
            return pages.respond(request, lambda: view(request, *args, **options))

        async def cached_async(request: HttpRequest, *args: Any, **options: Any) -> Any:
            return await pages.respond_async(request, lambda: view(request, *args, **options))

        return for_each_kind(view, cached, cached_async)

    return decorate


class _Pages:
    """The cached pages of one `cached_view`."""

    def __init__(self, family: Family[Any] | Bound[Any], key: Named, variants: Variants) -> None:
        self._family, self._key, self._variants = family, key, variants
        self._loader_on, self._async_loader_on = self._make_loader, self._make_async_loader  # one object each, to bind

    def _make_loader(self, store: Store) -> Callable[[str, _ViewRun], CachedPage | None]:
        @decorators.cache(bound_to(self._family, store), key=lambda page: page)
        def load(page: str, run: _ViewRun) -> CachedPage | None:
            return run.run()

        return load

    def _make_async_loader(self, store: Store) -> Callable[[str, _ViewRun], Any]:
        @decorators.cache(bound_to(self._family, store), key=lambda page: page)
        async def load(page: str, run: _ViewRun) -> CachedPage | None:
            return await run.run_async()

        return load

    def respond(self, request: HttpRequest, view: Callable[[], Any]) -> Any:
        if not _may_be_cached(request):
            return view()
        run = _ViewRun(request, view, self._variants)
        load = synchronous_store(store_url()).bind(self._loader_on)
        try:
            page = load(self._name(request), run)
        except LoadFailed:  # that of another request
            page = None
        if run.has_run:
            return run.result()
        return view() if page is None else _response_of(page)

    async def respond_async(self, request: HttpRequest, view: Callable[[], Any]) -> Any:
        if not _may_be_cached(request):
            return await result_of(view())
        run = _ViewRun(request, view, self._variants)
        load = (await store_of_loop(store_url())).bind(self._async_loader_on)
        try:
            page = await load(self._name(request), run)
        except LoadFailed:  # that of another request
            page = None
        run.is_answered = True
        if run.has_run:
            return run.result()
        return await result_of(view()) if page is None else _response_of(page)

    def _name(self, request: HttpRequest) -> str:
        parts = [request.scheme]
        if settings.USE_I18N:
            parts.append(translation.get_language() or "")
        if settings.USE_TZ:
            parts.append(timezone.get_current_timezone_name())
        headers = [request.headers.get(name) for name in self._variants.names]
        return self._variants.key(request.get_host() + self._key(request), parts, headers)


def _may_be_cached(request: HttpRequest) -> bool:
    known_user = request.META.get("HTTP_AUTHORIZATION") or request.META.get("REMOTE_USER")
    return request.method == "GET" and not known_user


def _response_of(page: CachedPage) -> HttpResponse:
    return HttpResponse(page.body, headers=dict(page.headers))


class _ViewRun:
    """One run of a view, and what became of it."""

    def __init__(self, request: HttpRequest, view: Callable[[], Any], variants: Variants) -> None:
        self._request, self._view, self._variants = request, view, variants
        self._thread = threading.get_ident()
        self._language, self._timezone = translation.get_language(), timezone.get_current_timezone()
        self._response: Any = None
        self._error: Exception | None = None
        self.has_run = False  # for this request
        self.is_answered = False

    def run(self) -> CachedPage | None:
        """The page, if it may be stored. None if the view failed: others run it themselves."""
        if threading.get_ident() != self._thread:  # a stale page was returned; a failure keeps that
            return self._run_in_background()
        self.has_run = True
        try:
            self._response = self._view()
            _render(self._response)
        except Exception as error:
            self._error = error
            return None
        return self._page_of(self._response)

    def _run_in_background(self) -> CachedPage | None:
        try:
            with translation.override(self._language), timezone.override(self._timezone):
                response = self._view()
                _render(response)
                return self._page_of(response)
        finally:
            connections.close_all()  # those of this thread

    async def run_async(self) -> CachedPage | None:
        if self.is_answered:
            return self._page_of(await self._respond_async())
        self.has_run = True
        try:
            self._response = await self._respond_async()
        except Exception as error:
            self._error = error
            return None
        return self._page_of(self._response)

    async def _respond_async(self) -> Any:
        response = await result_of(self._view())
        if isinstance(response, SimpleTemplateResponse):
            await sync_to_async(_render)(response)  # it may read the database
        return response

    def _page_of(self, response: Any) -> CachedPage | None:
        if not isinstance(response, HttpResponse) or response.status_code != 200 or response.cookies:
            return None
        headers = list(response.headers.items())
        if _used_session(self._request) or not self._variants.may_share(headers):
            return None
        return CachedPage.of(headers, response.content)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._response


def _render(response: Any) -> None:
    if isinstance(response, SimpleTemplateResponse):
        response.render()


def _used_session(request: HttpRequest) -> bool:
    """Whether the view used what belongs to one visitor: the session, messages, or a CSRF token."""
    messages = getattr(request, "_messages", None)
    return bool(
        getattr(getattr(request, "session", None), "accessed", False)
        or getattr(messages, "used", False)
        or getattr(messages, "added_new", False)
        or request.META.get("CSRF_COOKIE_NEEDS_UPDATE")
    )
