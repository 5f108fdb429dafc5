"""Typed access to the session of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

from pydantic import BaseModel
from starlette.requests import HTTPConnection

from keystead.integrations.asgi.browser_session import BrowserSession
from keystead.integrations.asgi.request_session import REQUEST_SESSION, RequestSession

R = TypeVar("R", bound=BaseModel)


class HasScope(Protocol):
    """A request or a WebSocket of any ASGI framework."""

    @property
    def scope(self) -> Any: ...


@overload
def session_of(request: HasScope) -> RequestSession: ...
@overload
def session_of(request: HasScope, model: type[R]) -> BrowserSession[R]: ...


def session_of(request: HasScope, model: type[R] | None = None) -> RequestSession | BrowserSession[R]:
    """`request.session` of `RequestSessionMiddleware`, with its methods; with a model, `request.state.session` of
    `SessionMiddleware`, typed with the model of its data.

    Raises LookupError if the middleware did not handle the request, TypeError if sessions have another model.
    """
    if model is None:
        found = request.scope.get(REQUEST_SESSION)
        if not isinstance(found, RequestSession):
            raise LookupError("this request has no session: add RequestSessionMiddleware, or remove its path from skip")
        return found
    session = (request.scope.get("state") or {}).get("session")
    if not isinstance(session, BrowserSession):
        raise LookupError("this request has no session: add SessionMiddleware, or remove its path from skip")
    held = session.model
    if held is not None and held is not model and not issubclass(held, model):
        raise TypeError(f"sessions hold {held.__name__} here, not {model.__name__}")
    return session


def request_session(request: HTTPConnection) -> RequestSession:
    """For FastAPI: `session: Annotated[RequestSession, Depends(request_session)]`, which is `request.session`."""
    return session_of(request)


def require_session(model: type[R]) -> Callable[[HTTPConnection], BrowserSession[R]]:
    """For FastAPI: `session: Annotated[BrowserSession[Visit], Depends(require_session(Visit))]`.

    If no user is signed in, the route is not called, and the response is a 401.
    """

    def require(request: HTTPConnection) -> BrowserSession[R]:
        session = session_of(request, model)
        session.require()
        return session

    return require
