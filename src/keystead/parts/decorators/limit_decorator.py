"""`@rate_limit`: refuse calls of a function beyond a rate."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from keystead.parts.decorators.call_keys import CallKeys
from keystead.parts.limit import LimitReached, Limits, Rate, RateLimit, WhenDown
from keystead.schema import Bound
from keystead.stores.synchronous import wait

P = ParamSpec("P")
R = TypeVar("R")


def rate_limit(
    family: Bound[Any] | Limits,
    rate: str | Rate | None = None,
    *,
    key: Callable[..., Any] | None = None,
    by: int = 1,
    when_down: WhenDown = "deny",
    refused: Callable[[LimitReached], Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Count each call of a function, synchronous or asynchronous, and refuse those beyond the limit:

        @rate_limit(keys.logins)                        # logins = Limited("limit:login:{user}", "10/minute")
        def log_in(user: str, password: str) -> bool: ...

    family      a family `Limited`, which has the rate; a Counter or SortedSet with a `rate`; or a limit such as
                TokenBucket
    key         the client of a call, from some of its parameters: `key=lambda request: request.client.host`. By default
                the parameters have the names of the placeholders
    by          what a call costs
    when_down   policy for store outages: `deny`, `allow` or `raise`
    refused     makes the result of a refused call from the error, such as a response with status 429

    A refused call raises LimitReached, with `retry_after_s`, and does not run. One round trip for each call.
    """
    limit = family if isinstance(family, Limits) else RateLimit(family, rate, when_down=when_down)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        place, names = limit.family.family.place, limit.family.family.pattern.names
        keys = CallKeys(place, names, function, key)

        def client(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
            values = keys.values(args, kwargs)
            return [values[name] for name in names]

        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                verdict = await limit.hit(*client(args, kwargs), by=by)
                return await function(*args, **kwargs) if verdict else _refuse(LimitReached.of(verdict))

            return cast("Callable[P, R]", call_async)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            verdict = wait(limit.hit(*client(args, kwargs), by=by))
            return function(*args, **kwargs) if verdict else _refuse(LimitReached.of(verdict))

        return call

    def _refuse(error: LimitReached) -> Any:
        if refused is None:
            raise error
        return refused(error)

    return decorate
