"""`rate_limit`: refuse requests beyond a rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from keystead import Store, wait
from keystead.integrations.django.app_settings import store_url
from keystead.integrations.django.view_kinds import Named, View, bound_to, for_each_kind, result_of
from keystead.integrations.loop_stores import store_of_loop, synchronous_store
from keystead.parts.limit import Limits, Rate, RateLimit, Verdict, network_of
from keystead.schema import Bound, Family


def client_network(request: HttpRequest) -> str:
    """The client address of a request, in IPv6 its /64. Behind a proxy, set REMOTE_ADDR by a middleware you trust."""
    return network_of(request.META.get("REMOTE_ADDR", "")) or "unknown"


def rate_limit(
    family: Family[Any] | Bound[Any] | Limits, rate: str | Rate | None = None, *, client: Named = client_network
) -> Callable[[View], View]:
    """At most `rate` requests of a client reach the view: `@rate_limit(ShopKeys.searches)`.

    family   a family `Limited`, which has the rate; a Counter (fixed window) or a SortedSet (sliding window), with a
             `rate`; or a limit such as TokenBucket. With one placeholder
    client   who is counted together: by default the client address

    Further requests get 429 with `Retry-After`. While the store is down, requests get 503. One round trip.
    """

    def limit_on(store: Store) -> Limits:
        return family if isinstance(family, Limits) else RateLimit(bound_to(family, store), rate)

    def decorate(view: View) -> View:
        def limited(request: HttpRequest, *args: Any, **options: Any) -> Any:
            limit = synchronous_store(store_url()).bind(limit_on)
            return _refusal(wait(limit.hit(client(request)))) or view(request, *args, **options)

        async def limited_async(request: HttpRequest, *args: Any, **options: Any) -> Any:
            limit = (await store_of_loop(store_url())).bind(limit_on)
            refused = _refusal(await limit.hit(client(request)))
            return refused or await result_of(view(request, *args, **options))

        return for_each_kind(view, limited, limited_async)

    return decorate


def _refusal(verdict: Verdict) -> HttpResponse | None:
    if verdict:
        return None
    text, status = ("too many requests", 429) if not verdict.store_is_down else ("try again later", 503)
    response = HttpResponse(text, status=status, content_type="text/plain")
    if verdict.retry_after:
        response.headers["Retry-After"] = str(verdict.retry_after)
    return response
