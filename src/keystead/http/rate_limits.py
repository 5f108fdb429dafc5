"""Rate limits over HTTP: 429, `Retry-After` and the `RateLimit-*` headers."""

from __future__ import annotations

import time

from starlette.requests import HTTPConnection

from keystead.http.refusals import Refusal, refusal_with
from keystead.parts.limit import LimitReached, Verdict, network_of


def rate_limit_headers(verdict: Verdict, *, x_ratelimit: bool = False, now_s: float | None = None) -> dict[str, str]:
    """The response headers, by lower-case name.

    `ratelimit-policy` and `ratelimit` follow draft-ietf-httpapi-ratelimit-headers-10; `ratelimit-limit`, `-remaining`
    and `-reset` its drafts up to 06, which most clients read. `retry-after` (RFC 9110) is set only if the request was
    refused and can be retried. `x_ratelimit` adds the `x-ratelimit-*` headers of older APIs, whose reset is in seconds
    since 1970. While the store of the limit is down, only `retry-after` is set.
    """
    retry_after = verdict.retry_after
    wait = {"retry-after": str(max(1, retry_after))} if retry_after and not verdict.allowed else {}
    if verdict.store_is_down:
        return wait
    each = verdict.each or (verdict,)
    headers = {
        "ratelimit-policy": ", ".join(f'"{one.name}";q={one.limit};w={one.window}' for one in each),
        "ratelimit": ", ".join(f'"{one.name}";r={one.remaining};t={one.reset}' for one in each),
        "ratelimit-limit": str(verdict.limit),
        "ratelimit-remaining": str(verdict.remaining),
        "ratelimit-reset": str(verdict.reset),
    }
    if x_ratelimit:
        resets_s = int((time.time() if now_s is None else now_s) + verdict.reset)
        headers |= x_ratelimit_headers(verdict.limit, verdict.remaining, resets_s)
    return headers | wait


def x_ratelimit_headers(limit: int, remaining: int, resets_s: int) -> dict[str, str]:
    """`resets_s` is in seconds since 1970."""
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-reset": str(resets_s),
    }


def too_many_requests(reached: LimitReached) -> Refusal:
    """429 RATE_LIMITED; 503 if the store of the limit is down, because the remaining budget is unknown."""
    verdict, wait_s = reached.verdict, reached.retry_after_s
    headers = {"retry-after": str(wait_s)} if verdict is None else rate_limit_headers(verdict)
    if verdict is not None and verdict.store_is_down:
        return refusal_with("STORE_UNAVAILABLE", str(reached), headers)
    return Refusal(
        429,
        "RATE_LIMITED",
        str(reached),
        headers=headers,
        more={"retryAfter": wait_s} if "retry-after" in headers else {},
    )


def client_address(connection: HTTPConnection) -> str:
    """The client address of a request, in IPv6 its /64 network; `unknown` if it has no address.

    Behind trusted proxies it is the forwarded address: see the setting `forwarded_allow`.
    """
    return network_of(connection.client.host if connection.client else "") or "unknown"
