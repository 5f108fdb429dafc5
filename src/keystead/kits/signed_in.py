"""FastAPI dependencies for the signed-in user, with CSRF protection, for routes of any kit.

    async def mine(user: CurrentUser) -> …:         # 401 if nobody is signed in
    async def add(user: CurrentUserIfAny) -> …:     # None if nobody is signed in

A write with the session cookie must come from a page of this site: by its `Origin` or `Referer`, or with the token of
`GET /api/auth/csrf` in the header `x-csrf-token`. A request with a bearer token needs neither.
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
    """The user of a request, by session cookie or bearer token; None if nobody is signed in.

    Raises Refusal for a cross-site write with a cookie, and for a token of this server that has expired or whose
    session has ended. Raises StoreError if the store is down.
    """
    user = await identify(connection)
    if user is not None and user.credential == "cookie" and not _is_safe(connection):
        refuse_forged(connection, connection.app.state.site)
    return user


async def require_signed_in(connection: HTTPConnection) -> SignedInUser:
    """As `signed_in`, but raises Refusal if nobody is signed in."""
    user = await signed_in(connection)
    if user is None:
        raise not_signed_in(connection)
    return user


CurrentUser: TypeAlias = Annotated[SignedInUser, Depends(require_signed_in)]
CurrentUserIfAny: TypeAlias = Annotated[SignedInUser | None, Depends(signed_in)]


def not_signed_in(connection: HTTPConnection, code: str = "NOT_SIGNED_IN") -> Refusal:
    """A 401 that says how to sign in."""
    if bearer_token(connection) is not None:
        return invalid_token()
    sign_in = sign_in_of(connection.scope)
    how = "Send the header Authorization: Bearer, and the token."
    if sign_in is not None:
        how = f"Sign in at {sign_in.page}, or send the header Authorization: Bearer, and a token of this server."
    return Refusal(401, code, how, headers=www_authenticate("api"), sign_in_helps=sign_in is not None)


def _is_safe(connection: HTTPConnection) -> bool:
    """Whether a request changes nothing. A WebSocket is not safe: any site can open one with the user's cookie."""
    return connection.scope["type"] == "http" and connection.scope["method"] in SAFE_METHODS
