"""Decorators of views: a rate limit, and a cache in which concurrent misses run the view once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, TypeAlias

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import has_vary_header

from keystead import Cache, RateLimit, Store, wait
from keystead.errors import BadDeclaration, StoreError
from keystead.integrations.django.app_settings import store_url
from keystead.integrations.django.cache_keys import CachedValue
from keystead.integrations.django.value_codec import CACHED_NONE
from keystead.integrations.loop_stores import SharedStore, store_of_loop, synchronous_store
from keystead.parts.cache import LoadFailed
from keystead.parts.limit import Verdict, network_of
from keystead.schema import Bound, Family

View: TypeAlias = Callable[..., Any]
Named: TypeAlias = Callable[[HttpRequest], str]


def client_network(request: HttpRequest) -> str:
    """The client address of a request, in IPv6 its /64. Behind a proxy, set REMOTE_ADDR by a middleware you trust."""
    return network_of(request.META.get("REMOTE_ADDR", "")) or "unknown"


def full_path(request: HttpRequest) -> str:
    return str(request.get_full_path())


# --- rate limit ----------------------------------------------------------------------------------------------


def rate_limit(family: Family[Any], rate: str, *, client: Named = client_network) -> Callable[[View], View]:
    """At most `rate` requests of a client reach the view: `@rate_limit(ShopKeys.searches, "10/minute")`.

    family   a Counter (fixed window) or a SortedSet (sliding window) of a keyspace, with one placeholder
    client   who is counted together: by default the client address

    Further requests get 429 with `Retry-After`. While the store is down, requests get 503. One round trip.
    """

    def limit_on(store: Store) -> RateLimit:
        return RateLimit(_bound(family, store), rate)

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):

            @wraps(view)
            async def limited_async(request: HttpRequest, *args: Any, **options: Any) -> Any:
                limit = (await store_of_loop(store_url())).bind(limit_on)
                refused = _refusal(await limit.hit(client(request)))
                return refused or await view(request, *args, **options)

            return limited_async

        @wraps(view)
        def limited(request: HttpRequest, *args: Any, **options: Any) -> Any:
            limit = synchronous_store(store_url()).bind(limit_on)
            return _refusal(wait(limit.hit(client(request)))) or view(request, *args, **options)

        return limited

    return decorate


def _refusal(verdict: Verdict) -> HttpResponse | None:
    if verdict:
        return None
    text, status = ("too many requests", 429) if not verdict.store_is_down else ("try again later", 503)
    response = HttpResponse(text, status=status, content_type="text/plain")
    if verdict.retry_after:
        response.headers["Retry-After"] = str(verdict.retry_after)
    return response


# --- single flight -------------------------------------------------------------------------------------------


def cached_view(pages: CachedValue, marks: Family[Any], *, key: Named = full_path) -> Callable[[View], View]:
    """Cache a page that is the same for everybody. Concurrent misses run the view once, across all processes.

        class ShopKeys(Keyspace):
            pages = CachedValue("shop:page:{path<=200}", lifetime=after("5m"))
            page_marks = LoadMarkers("shop:page:{path<=200}:mark")

        @cached_view(ShopKeys.pages, ShopKeys.page_marks)

    key   what distinguishes pages: by default path and query

    Only GET and HEAD are cached, and only responses of status 200 that neither set cookies, nor used the session, nor
    vary by cookie, nor say that they are private. Others are returned, and not stored. If the view of another request
    fails, this request runs the view itself.
    """

    def cache_on(store: Store) -> tuple[Bound[Any], Cache[Any]]:
        entries = _bound(pages, store)
        return entries, Cache(entries, entries.related(marks))

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):

            @wraps(view)
            async def cached_async(request: HttpRequest, *args: Any, **options: Any) -> Any:
                if request.method not in _CACHEABLE:
                    return await view(request, *args, **options)
                entries, cache = (await store_of_loop(store_url())).bind(cache_on)
                own: list[Any] = []

                async def load() -> Any:
                    own.append(await view(request, *args, **options))
                    return _storable(request, own[0])

                try:
                    found = await cache.get(entries(key(request)), load)
                except LoadFailed:
                    found = None
                return own[0] if own else found if _is_response(found) else await view(request, *args, **options)

            return cached_async

        @wraps(view)
        def cached(request: HttpRequest, *args: Any, **options: Any) -> Any:
            if request.method not in _CACHEABLE:
                return view(request, *args, **options)
            flight = _ViewFlight(lambda: view(request, *args, **options), lambda page: _storable(request, page))
            return flight.run(synchronous_store(store_url()), cache_on, key(request))

        return cached

    return decorate


_CACHEABLE: Final = ("GET", "HEAD")


class _ViewFlight:
    """One request for a cached page, in synchronous code.

    The cache calls its loader in the event loop, but a view must run in the thread of its request, which has the
    database connection. So on a miss another thread waits for the cache, and this one runs the view when asked.
    """

    def __init__(self, view: Callable[[], Any], storable: Callable[[Any], Any]) -> None:
        self._view, self._storable = view, storable
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def run(self, shared: SharedStore, cache_on: Callable[[Store], Any], name: str) -> Any:
        entries, cache = shared.bind(cache_on)
        try:
            look = wait(cache.look(entries(name)))
        except StoreError:  # a cache outage does not stop the page
            return self._view()
        if _is_response(look.value):
            return look.value
        threading.Thread(target=self._wait_for, args=(cache, entries(name)), name="keystead-page", daemon=True).start()
        kind, given = self._messages.get()
        if kind == "done":
            return given if _is_response(given) else self._view()
        page = None
        try:
            page = self._view()
            return page
        finally:  # also if the view fails: others must not wait for it
            given(None if page is None else self._storable(page))
            self._messages.get()

    def _wait_for(self, cache: Cache[Any], entry: Any) -> None:
        async def load() -> Any:
            loop = asyncio.get_running_loop()
            page: asyncio.Future[Any] = loop.create_future()

            def give(result: Any) -> None:
                loop.call_soon_threadsafe(_settle, page, result)

            self._messages.put(("load", give))
            return await page

        found = None
        try:
            found = wait(cache.get(entry, load))
        except Exception:  # the request runs the view itself, whatever is wrong with the cache
            found = None
        finally:
            self._messages.put(("done", found))


def _settle(page: asyncio.Future[Any], result: Any) -> None:
    if not page.done():  # the load may have been stopped meanwhile
        page.set_result(result)


def _is_response(found: Any) -> bool:
    return found is not CACHED_NONE and isinstance(found, HttpResponseBase)


def _storable(request: HttpRequest, page: Any) -> Any:
    """The page, rendered; None if it is not for everybody."""
    if not isinstance(page, HttpResponse) or page.status_code != 200 or page.cookies:
        return None
    control = page.headers.get("Cache-Control", "").lower()
    if "private" in control or "no-store" in control or has_vary_header(page, "Cookie"):
        return None
    session = getattr(request, "session", None)
    if getattr(session, "accessed", False) or request.META.get("CSRF_COOKIE_NEEDS_UPDATE"):
        return None
    return page if getattr(page, "is_rendered", True) else None


def _bound(family: Family[Any], store: Store) -> Bound[Any]:
    keyspace = family.keyspace
    if keyspace is None:
        raise BadDeclaration("declare this family in a keyspace, as in ShopKeys.pages")
    return keyspace(store).bound(family)
