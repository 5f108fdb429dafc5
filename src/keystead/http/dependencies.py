"""FastAPI dependencies: bearer tokens and rate limits, for kits and for your own application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar

from fastapi import Request, Response
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection

from keystead.http.bearer import Challenge, admit, check_realm
from keystead.http.rate_limits import client_address, rate_limit_headers, too_many_requests
from keystead.http.refusals import Refusal
from keystead.parts.admission import Admission, Admitted
from keystead.parts.limit import LimitReached, Limits, Verdict

T = TypeVar("T")

ChosenAdmission: TypeAlias = "Admission[T] | Callable[[HTTPConnection], Admission[T]]"
ChosenLimit: TypeAlias = Limits | Callable[[Request], Limits | None]


class BearerRefused(Refusal, HTTPException):
    """A request that is not admitted. Also an HTTPException, so that any FastAPI application handles it;
    `WWW-Authenticate` and `Retry-After` are set either way."""

    headers: dict[str, str]

    def __init__(self, challenge: Challenge) -> None:
        Refusal.__init__(self, challenge.status, challenge.code, challenge.sentence, headers=challenge.headers)
        self.status_code = challenge.status
        self.detail = challenge.sentence


class BearerScheme(SecurityBase):
    """The OpenAPI entry of a route that takes a bearer token."""

    def __init__(self) -> None:
        self.model = HTTPBearer(bearerFormat="JWT", description="An access token, until it expires or is revoked.")
        self.scheme_name = "bearer"


def bearer(admission: ChosenAdmission[T], *, realm: str = "api") -> Callable[[HTTPConnection], Awaitable[Admitted[T]]]:
    """A dependency: `who: Annotated[Admitted[User], Depends(bearer(admission))]`.

    admission   the Admission, or a function of the request that returns it, if it is created at startup
    realm       the protection space named in the header `WWW-Authenticate`

    The route gets the claims (`who.claims`) and the user (`who.user`). Without a valid token it is not called: 401 with
    `WWW-Authenticate` as in RFC 6750, or 503 with `Retry-After` while the token cannot be checked. The OpenAPI document
    declares the bearer token. A WebSocket is closed before it is accepted.
    """
    return _Bearer(admission, check_realm(realm))


class _Bearer(BearerScheme, Generic[T]):
    def __init__(self, admission: ChosenAdmission[T], realm: str) -> None:
        super().__init__()
        self._admission = admission
        self._realm = realm

    async def __call__(self, request: HTTPConnection) -> Admitted[T]:
        admission = self._admission if isinstance(self._admission, Admission) else self._admission(request)
        client = request.client.host if request.client else None
        found = await admit(admission, request.headers.getlist("authorization"), realm=self._realm, client=client)
        if not isinstance(found, Challenge):
            return found
        if request.scope["type"] == "websocket":  # closed before it is accepted, which is a 403
            raise WebSocketException(1013 if found.status == 503 else 1008, found.code)
        raise BearerRefused(found)


def limited(
    limit: ChosenLimit, *, client: Callable[[Request], Any] | None = None, by: int = 1
) -> Callable[[Request, Response], Awaitable[Verdict | None]]:
    """A dependency: `@router.post("/reports", dependencies=[Depends(limited(limit))])`.

    limit    a limit, or a function of the request that returns it, if it is created at startup; if that returns None,
             every request passes, and the result of the dependency is None
    client   returns the value of the placeholder of the limit's family, or a tuple of values. Default: the client
             address, in IPv6 its /64 network
    by       how much a request counts

    An allowed request gets `RateLimit-*` headers in its response, unless the route creates its own `Response`: then add
    `rate_limit_headers(verdict)`, with the result of the dependency. Beyond the limit it is 429 RATE_LIMITED with
    `Retry-After`; 503 if the store is down and the limit denies then.
    """

    async def count(request: Request, response: Response) -> Verdict | None:
        found = limit if isinstance(limit, Limits) else limit(request)
        if found is None:
            return None
        who = client_address(request) if client is None else client(request)
        verdict = await found.hit(*(who if isinstance(who, tuple) else (who,)), by=by)
        if not verdict:
            raise too_many_requests(LimitReached.of(verdict))
        response.headers.update(rate_limit_headers(verdict))
        return verdict

    return count
