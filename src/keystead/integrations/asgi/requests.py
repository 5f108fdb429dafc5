"""From a request to its session, with the type that the application declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel
from starlette.requests import HTTPConnection

from keystead.integrations.asgi.browser_session import BrowserSession

R = TypeVar("R", bound=BaseModel)


class HasScope(Protocol):
    """A request or a WebSocket of any ASGI framework."""

    @property
    def scope(self) -> Any: ...


def session_of(request: HasScope, model: type[R]) -> BrowserSession[R]:
    """The session of a request: what `request.state.session` is, and type checkers know what it holds.

    Raises LookupError where the middleware did not see the request, TypeError where sessions hold another model.
    """
    session = (request.scope.get("state") or {}).get("session")
    if not isinstance(session, BrowserSession):
        raise LookupError("this request has no session: add SessionMiddleware, or take its path out of skip")
    held = session.held
    if held is not None and not isinstance(held, model):
        raise TypeError(f"sessions hold {type(held).__name__} here, not {model.__name__}")
    return session


def require_session(model: type[R]) -> Callable[[HTTPConnection], BrowserSession[R]]:
    """For FastAPI: `session: Annotated[BrowserSession[Visit], Depends(require_session(Visit))]`.

    Nobody signed in: the route is not called, and the answer is a 401.
    """

    def required(request: HTTPConnection) -> BrowserSession[R]:
        session = session_of(request, model)
        session.require()
        return session

    return required
