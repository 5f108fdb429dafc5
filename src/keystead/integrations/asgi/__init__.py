"""Sessions and bearer tokens for Starlette, FastAPI, Litestar and any other ASGI application."""

from keystead.extras import from_extra

with from_extra("asgi", "keystead.integrations.asgi"):
    from keystead.integrations.asgi.bearer_middleware import BearerMiddleware, admitted_of
    from keystead.integrations.asgi.browser_session import BrowserSession, SignedOut
    from keystead.integrations.asgi.flash_messages import Flash, flash, take_flashes
    from keystead.integrations.asgi.keys import SessionKeys, session_keys
    from keystead.integrations.asgi.middleware import SessionMiddleware
    from keystead.integrations.asgi.request_middleware import LitestarSessions, RequestSessionMiddleware
    from keystead.integrations.asgi.request_session import RequestSession
    from keystead.integrations.asgi.requests import request_session, require_session, session_of

__all__ = [
    "BearerMiddleware",
    "BrowserSession",
    "Flash",
    "LitestarSessions",
    "RequestSession",
    "RequestSessionMiddleware",
    "SessionKeys",
    "SessionMiddleware",
    "SignedOut",
    "admitted_of",
    "flash",
    "request_session",
    "require_session",
    "session_keys",
    "session_of",
    "take_flashes",
]
