"""Bearer tokens on routes: a dependency of FastAPI that lets in who comes with a token that counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection

from keystead.kits.refusal import Refusal
from keystead.parts.admission import Admission, Admitted, Challenge, admit
from keystead.parts.admission.bearer import check_realm

T = TypeVar("T")

Chosen: TypeAlias = "Admission[T] | Callable[[HTTPConnection], Admission[T]]"


class BearerRefused(Refusal, HTTPException):
    """A request that is not let in. An HTTPException, too, so that any application of FastAPI answers it, whether it
    knows the shape of Keystead's errors or not; `WWW-Authenticate` and `Retry-After` are in either answer."""

    headers: dict[str, str]

    def __init__(self, challenge: Challenge) -> None:
        Refusal.__init__(self, challenge.status, challenge.code, challenge.sentence, headers=dict(challenge.headers))
        self.status_code = challenge.status
        self.detail = challenge.sentence


def bearer(admission: Chosen[T], *, realm: str = "api") -> Callable[[HTTPConnection], Awaitable[Admitted[T]]]:
    """A dependency: `who: Annotated[Admitted[User], Depends(bearer(admission))]`.

    admission   who is let in, or a function that finds it for a request, where it is made when the server starts
    realm       what the token is asked for, in the header `WWW-Authenticate`

    The route gets the claims (`who.claims`) and the user (`who.user`). Without a token that counts it is not called:
    401 with `WWW-Authenticate` as in RFC 6750; 503 with `Retry-After` while nobody can say whether it counts. The
    OpenAPI document says that the route takes a bearer token. A WebSocket is closed before it is accepted.
    """
    return _Bearer(admission, check_realm(realm))


class _Bearer(SecurityBase, Generic[T]):
    """What FastAPI calls, and reads for its document."""

    def __init__(self, admission: Chosen[T], realm: str) -> None:
        self.model = HTTPBearer(bearerFormat="JWT", description="An access token, until it expires or is revoked.")
        self.scheme_name = "bearer"
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
