"""Bearer token middleware: it authenticates every request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from starlette.types import Receive, Scope, Send

from keystead.errors import BadDeclaration
from keystead.http.bearer import Challenge, admit, check_realm
from keystead.http.refusals import send_refusal
from keystead.integrations.asgi.requests import HasScope
from keystead.integrations.asgi.types import App
from keystead.parts.admission import Admission, Admitted

T = TypeVar("T")

Chosen: TypeAlias = "Admission[T] | Callable[[Scope], Admission[T]]"


class BearerMiddleware(Generic[T]):
    """Admits requests with a valid token: `request.state.admitted` is an `Admitted`, with claims and user.

        app.add_middleware(BearerMiddleware, admission=lambda scope: scope["app"].state.admission, skip=["/login"])

    admission   the Admission, or a function of the scope that returns it, if it is created at startup
    realm       the protection space named in the header `WWW-Authenticate`
    required    whether a request without a token is refused. If false, its `admitted` is None. An invalid token is
                always refused
    skip        paths that need no token, each with everything below it: `/login` does not include `/login-as`. Their
                requests have no `admitted`

    Refused requests do not reach the application: 401 with `WWW-Authenticate` as in RFC 6750, or 503 with `Retry-After`
    while the token cannot be checked. A WebSocket is closed before it is accepted.
    """

    def __init__(
        self,
        app: App,
        *,
        admission: Chosen[T],
        realm: str = "api",
        required: bool = True,
        skip: Sequence[str] = (),
    ) -> None:
        self.app = app
        self._admission = admission
        self._realm = check_realm(realm)
        self._required = required
        if isinstance(skip, str) or not all(path.startswith("/") for path in skip):
            raise BadDeclaration(f'skip takes paths, as in skip=["/login"], not {skip!r}')
        self._skip = frozenset(path.rstrip("/") for path in skip)
        self._below = tuple(f"{path}/" for path in self._skip)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._skips(scope["path"]):
            return await self.app(scope, receive, send)
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        admission = self._admission if isinstance(self._admission, Admission) else self._admission(scope)
        client = scope.get("client")
        found = await admit(admission, given, realm=self._realm, client=client[0] if client else None)
        if isinstance(found, Challenge) and (found.came or self._required):
            return await send_refusal(scope, send, found.refusal())
        scope.setdefault("state", {})["admitted"] = found if isinstance(found, Admitted) else None
        return await self.app(scope, receive, send)

    def _skips(self, path: str) -> bool:
        return path in self._skip or path.startswith(self._below)


def admitted_of(request: HasScope, user: type[T]) -> Admitted[T]:
    """`request.state.admitted`, typed with the class of the user.

    Raises LookupError if the middleware admitted no user, TypeError if users are of another class.
    """
    found: Any = (request.scope.get("state") or {}).get("admitted")
    if not isinstance(found, Admitted):
        raise LookupError(
            "no user was admitted here: add BearerMiddleware with required=True, or remove the path from skip"
        )
    if not isinstance(found.user, user):
        raise TypeError(f"users are {type(found.user).__name__} here, not {user.__name__}")
    return found
