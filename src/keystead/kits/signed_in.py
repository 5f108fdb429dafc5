"""Who a request is from, for routes: dependencies of FastAPI for any kit.

    async def mine(user: CurrentUser) -> …:         # 401 where nobody is signed in
    async def add(user: CurrentUserIfAny) -> …:     # None where nobody is

Whoever the cookie names may change something only where a page of this site makes the request: it says so by `Origin`
(or `Referer`), or sends the token of `GET /api/auth/csrf` in the header `x-csrf-token`. A bearer token needs neither.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Depends
from starlette.requests import HTTPConnection

from keystead.http.bearer import bearer_token, invalid_token, www_authenticate
from keystead.http.csrf import SAFE_METHODS
from keystead.http.refusals import Refusal
from keystead.kits.identity import SignedInUser, identify, sign_in_of
from keystead.kits.visit import refuse_forged


async def signed_in(connection: HTTPConnection) -> SignedInUser | None:
    """Who a request is from, by session cookie or bearer token; None if nobody is signed in.

    Raises Refusal for a write by cookie that no page of this site makes, and for a token of this server that has
    expired or whose session has ended; StoreError while nobody can say.
    """
    user = await identify(connection)
    if user is not None and user.credential == "cookie" and not _is_safe(connection):
        refuse_forged(connection, connection.app.state.site)
    return user


async def require_signed_in(connection: HTTPConnection) -> SignedInUser:
    """As `signed_in`, but raises Refusal if nobody is."""
    user = await signed_in(connection)
    if user is None:
        raise not_signed_in(connection)
    return user


CurrentUser: TypeAlias = Annotated[SignedInUser, Depends(require_signed_in)]
CurrentUserIfAny: TypeAlias = Annotated[SignedInUser | None, Depends(signed_in)]


def not_signed_in(connection: HTTPConnection, code: str = "NOT_SIGNED_IN") -> Refusal:
    """The answer to a request that is not signed in: 401, and what to do."""
    if bearer_token(connection) is not None:
        return invalid_token()
    sign_in = sign_in_of(connection.scope)
    how = "Send the header Authorization: Bearer, and the token."
    if sign_in is not None:
        how = f"Sign in at {sign_in.page}, or send the header Authorization: Bearer, and a token of this server."
    return Refusal(401, code, how, headers=www_authenticate("api"), sign_in_helps=sign_in is not None)


def _is_safe(connection: HTTPConnection) -> bool:
    """A WebSocket is none: any site can open one, and the browser sends the cookie with it."""
    return connection.scope["type"] == "http" and connection.scope["method"] in SAFE_METHODS
