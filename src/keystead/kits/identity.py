"""Who a request is from, by session cookie or bearer token: one kit signs people in, all others ask here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.types import Scope

_KNOWN: Final = "keystead.user"


@dataclass(frozen=True)
class SignedInUser:
    """Somebody who is signed in.

    space        whose ids these are: `login` for those of the login kit. The same id in another space is somebody else
    id           their id in that space
    name         what to call them on a page
    credential   how they showed who they are. A browser sends the cookie by itself, also when a page of another site
                 makes the request; a token it does not
    """

    space: str
    id: str
    name: str
    credential: Literal["cookie", "token"]

    @property
    def subject(self) -> str:
        """The user in one text, unique across all identity spaces, such as `login:42`: for an owner, an audit log, and
        `keystead erase`."""
        return f"{self.space}:{self.id}"


Identify: TypeAlias = Callable[[Any, HTTPConnection], Awaitable[SignedInUser | None]]


@dataclass(frozen=True)
class SignIn:
    """What a kit provides that signs people in: `Kit(…, sign_in=SignIn(identify))`.

    identify   who a request is from, of the open service. None: it has no credential of this kit, or one of a session
               that has ended. Raises Refusal for a token of this kit that does not count, and StoreError
    page       where people sign in. It takes the path to return to: `/login?returnTo=/teamwork`
    account    the page of whoever is signed in
    sign_out   takes a form that a page of this site posts, and ends the session
    """

    identify: Identify
    page: str = "/login"
    account: str = "/account"
    sign_out: str = "/api/auth/logout"


def sign_in_of(scope: Scope) -> SignIn | None:
    """How people sign in to the application of a request; None if no kit offers it."""
    kit = _signing_in(scope)
    return None if kit is None else kit.sign_in


async def identify(connection: HTTPConnection) -> SignedInUser | None:
    """Who a request is from; None if nobody is signed in. Looked up once for each request.

    It does not look at where the request comes from: whatever changes something asks `keystead.kits.signed_in`.
    """
    scope = connection.scope
    if _KNOWN not in scope:
        scope[_KNOWN] = await identify_again(connection)
    known: SignedInUser | None = scope[_KNOWN]
    return known


async def identify_again(connection: HTTPConnection) -> SignedInUser | None:
    """As `identify`, but looked up again: for a long request, such as a stream, that may outlive its session."""
    kit = _signing_in(connection.scope)
    if kit is None:
        return None
    found: SignedInUser | None = await kit.sign_in.identify(connection.scope["app"].state.kits[kit.name], connection)
    return found


@dataclass(frozen=True)
class PageHeader:
    """The signed-in user in the header of a page.

    user        who that is; None: nobody
    is_known    whether it is known. While the store is away, a page asks nobody to sign in
    sign_in     how to sign in and out
    return_to   the path that a sign-in comes back to; "": none that could be
    """

    user: SignedInUser | None
    is_known: bool
    sign_in: SignIn
    return_to: str

    @property
    def sign_in_url(self) -> str:
        return self.sign_in.page + (f"?returnTo={quote(self.return_to)}" if self.return_to else "")


def page_header(scope: Scope) -> PageHeader | None:
    """For the header of a page, if the user was looked up; None if nobody can sign in here."""
    sign_in = sign_in_of(scope)
    if sign_in is None:
        return None
    path: str = scope.get("path", "")
    # A query may hold what opens something, such as a share link, and belongs into no other address.
    can_return = scope.get("method") in ("GET", "HEAD") and not scope.get("query_string") and _is_page(path, sign_in)
    return PageHeader(scope.get(_KNOWN), _KNOWN in scope, sign_in, path if can_return else "")


def _is_page(path: str, sign_in: SignIn) -> bool:
    return path.isascii() and path != sign_in.page and path.partition("/")[2].partition("/")[0] != "api"


def set_user(scope: Scope, user: SignedInUser | None) -> None:
    """From here on the request is from somebody else: they have just signed in, or out."""
    scope[_KNOWN] = user


def _signing_in(scope: Scope) -> Any:
    state = getattr(scope.get("app"), "state", None)
    kits = getattr(state, "kits", {})
    running = getattr(state, "running", ())
    return next((kit for kit in running if kit.sign_in is not None and kit.name in kits), None)
