"""Identifies the user of a request, for all kits: by session cookie or by the access token of a program."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

from starlette.requests import HTTPConnection

from keystead.http.bearer import bearer_token, invalid_token
from keystead.http.cookies import Cookie
from keystead.kits.identity import SignedInUser, SignIn
from keystead.kits.login.models import Session
from keystead.kits.login.service import Login, LoginRefused
from keystead.parts.sessions import Gone, Live

SPACE: Final = "login"


async def live_session(login: Login, connection: HTTPConnection) -> Live[Session] | Gone:
    """The session of a request. A bearer token takes precedence over a cookie, which browsers send unasked.

    Raises Refusal if the token was issued by this kit and is no longer valid.
    """
    token = bearer_token(connection)
    if token is None:
        return await login.read_session(Cookie("sid", login.site.secure).find(connection.headers))
    try:
        live = await login.read_session_by_token(token)
    except LoginRefused:
        raise invalid_token() from None
    return Gone("unknown") if live is None else live


async def identify(login: Login, connection: HTTPConnection) -> SignedInUser | None:
    live = await live_session(login, connection)
    if not live:
        return None
    credential: Final = "cookie" if bearer_token(connection) is None else "token"
    return user_of(live.session, credential, live.session.created_at)


def user_of(session: Session, credential: Literal["cookie", "token"], since: datetime | None = None) -> SignedInUser:
    return SignedInUser(SPACE, session.uid, session.name, credential, since, session.language, session.theme)


async def remember(login: Login, connection: HTTPConnection, chosen: Mapping[str, str]) -> None:
    await login.remember(Cookie("sid", login.site.secure).find(connection.headers), chosen)


SIGN_IN: Final = SignIn(identify, remember)
