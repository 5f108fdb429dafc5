"""Limits on routes: a dependency of FastAPI that counts a request, says what is left, and refuses with 429."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from fastapi import Request, Response

from keystead.kits.refusal import Refusal
from keystead.parts.limit import LimitReached, Limits, Verdict, network_of

Chosen: TypeAlias = Limits | Callable[[Request], Limits | None]


def limited(
    limit: Chosen, *, client: Callable[[Request], Any] | None = None, by: int = 1
) -> Callable[[Request, Response], Awaitable[Verdict | None]]:
    """A dependency: `@router.post("/reports", dependencies=[Depends(limited(limit))])`.

    limit    a limit, or a function that finds it for a request, where it is made when the server starts; None: there is
             none, every request is let through, and the result of the dependency is None
    client   who asks: the value of the placeholder of the limit's family, or a tuple of values; the address, and in
             IPv6 its network of 64 bits, if nothing is said
    by       as how many a request counts

    An answer that is let through carries the `RateLimit-*` headers, unless the route makes its `Response` itself: then
    the verdict, which is the result of the dependency, has them. One that is not is 429 RATE_LIMITED with
    `Retry-After`, in the shape of all errors; while the store is down and the limit denies, it is 503.
    """

    async def counted(request: Request, response: Response) -> Verdict | None:
        found = limit if isinstance(limit, Limits) else limit(request)
        if found is None:
            return None
        who = address_of(request) if client is None else client(request)
        verdict = await found.hit(*(who if isinstance(who, tuple) else (who,)), by=by)
        if not verdict:
            raise refused(verdict)
        response.headers.update(verdict.headers())
        return verdict

    return counted


def address_of(request: Request) -> str:
    """Who asks, by address; all who have none are one. Behind proxies it is the one that the trusted hops tell: see the
    setting `forwarded_allow`."""
    return network_of(request.client.host if request.client else "") or "unknown"


def refused(verdict: Verdict) -> Refusal:
    """What a client is told that a limit does not let through."""
    reached = LimitReached.of(verdict)
    headers = {"cache-control": "no-store", **verdict.headers()}
    if verdict.store_is_down:
        return Refusal(503, "STORE_UNAVAILABLE", str(reached), headers=headers)
    more = {} if verdict.retry_after is None else {"retryAfter": reached.retry_after_s}
    return Refusal(429, "RATE_LIMITED", str(reached), headers=headers, more=more)
