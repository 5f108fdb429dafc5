"""Dependencies of FastAPI: bearer tokens and rate limits on routes of kits, and of your own application."""

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
    """A request that is not let in. An HTTPException, too, so that any application of FastAPI answers it, whether it
    knows the shape of Keystead's errors or not; `WWW-Authenticate` and `Retry-After` are in either answer."""

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

    admission   who is let in, or a function that finds it for a request, where it is made when the server starts
    realm       what the token is asked for, in the header `WWW-Authenticate`

    The route gets the claims (`who.claims`) and the user (`who.user`). Without a token that counts it is not called:
    401 with `WWW-Authenticate` as in RFC 6750; 503 with `Retry-After` while nobody can say whether it counts. The
    OpenAPI document says that the route takes a bearer token. A WebSocket is closed before it is accepted.
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
        if request.scope["type"] == "websocket":  # it is closed before it is accepted, which is a 403
            raise WebSocketException(1013 if found.status == 503 else 1008, found.code)
        raise BearerRefused(found)


def limited(
    limit: ChosenLimit, *, client: Callable[[Request], Any] | None = None, by: int = 1
) -> Callable[[Request, Response], Awaitable[Verdict | None]]:
    """A dependency: `@router.post("/reports", dependencies=[Depends(limited(limit))])`.

    limit    a limit, or a function that finds it for a request, where it is made when the server starts; None: there is
             none, every request is let through, and the result of the dependency is None
    client   who sends the request: the value of the placeholder of the limit's family, or a tuple of values; the
             address, and in IPv6 its network of 64 bits, if nothing is said
    by       as how many a request counts

    A response to a request that is let through carries the `RateLimit-*` headers, unless the route makes its
    `Response` itself: then it adds `rate_limit_headers(verdict)`, where the verdict is the result of the dependency.
    Beyond the limit it is 429 RATE_LIMITED with `Retry-After`; while the store is down and the limit denies, 503.
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
