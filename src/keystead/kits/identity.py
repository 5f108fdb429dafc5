"""The signed-in user of a request, by session cookie or bearer token. One kit signs users in; all kits use this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.types import Scope

_KNOWN: Final = "keystead.user"


@dataclass(frozen=True)
class SignedInUser:
    """A signed-in user.

    space        the identity space of the id: `login` for the login kit. Ids are unique only within a space
    id           the user's id in that space
    name         the display name
    credential   how the user was identified. Browsers attach cookies to requests of other sites too, but not tokens
    since        when the user signed in, if known: for actions that need a recent sign-in
    language     of pages, if the user chose one
    theme        of pages, if the user chose one
    """

    space: str
    id: str
    name: str
    credential: Literal["cookie", "token"]
    since: datetime | None = None
    language: str | None = None
    theme: str | None = None

    @property
    def subject(self) -> str:
        """The user's id, unique across all identity spaces, such as `login:42`: for owners, audit logs and
        `keystead erase`."""
        return f"{self.space}:{self.id}"


Identify: TypeAlias = Callable[[Any, HTTPConnection], Awaitable[SignedInUser | None]]
Remember: TypeAlias = Callable[[Any, HTTPConnection, Mapping[str, str]], Awaitable[None]]


@dataclass(frozen=True)
class SignIn:
    """How a kit signs users in: `Kit(…, sign_in=SignIn(identify))`.

    identify   called with the open service; returns the user of a request. None if it has no credential of this kit,
               or its session has ended. Raises Refusal for an invalid token of this kit, and StoreError
    remember   called with the open service and the `language` or `theme` that the signed-in user chose, for their
               account. May raise StoreError
    page       the sign-in page. It takes the path to return to: `/login?returnTo=/teamwork`
    account    the page of the signed-in user
    sign_out   the path that signs out, by a form post of this site
    """

    identify: Identify
    remember: Remember | None = None
    page: str = "/login"
    account: str = "/account"
    sign_out: str = "/api/auth/logout"


def sign_in_of(scope: Scope) -> SignIn | None:
    """How users sign in to this application; None if no running kit offers it."""
    kit = _find_sign_in_kit(scope)
    return None if kit is None else kit.sign_in


async def identify(connection: HTTPConnection) -> SignedInUser | None:
    """The user of a request; None if there is none. Looked up once per request.

    It does not check for cross-site requests: routes that change something use `keystead.kits.signed_in`.
    """
    scope = connection.scope
    if _KNOWN not in scope:
        scope[_KNOWN] = await identify_again(connection)
    known: SignedInUser | None = scope[_KNOWN]
    return known


def known_user(scope: Scope) -> SignedInUser | None:
    """The user of a request that was looked up already, as for every page; None otherwise."""
    known: SignedInUser | None = scope.get(_KNOWN)
    return known


async def remember(connection: HTTPConnection, chosen: Mapping[str, str]) -> None:
    """Store the `language` or `theme` that somebody chose with their account, if they are signed in."""
    user = await identify(connection)
    kit = _find_sign_in_kit(connection.scope)
    if kit is not None and kit.sign_in.remember is not None and user is not None and user.credential == "cookie":
        await kit.sign_in.remember(connection.scope["app"].state.kits[kit.name], connection, chosen)


async def identify_again(connection: HTTPConnection) -> SignedInUser | None:
    """As `identify`, but not cached: for long requests, such as streams, that may outlive their session."""
    kit = _find_sign_in_kit(connection.scope)
    if kit is None:
        return None
    found: SignedInUser | None = await kit.sign_in.identify(connection.scope["app"].state.kits[kit.name], connection)
    return found


@dataclass(frozen=True)
class PageHeader:
    """The signed-in user in the header of a page.

    user        None if nobody is signed in
    is_known    whether the user was looked up. If not, because the store is down, the page offers no sign-in
    sign_in     how to sign in and out
    return_to   the path that a sign-in returns to; "" if it cannot return here
    """

    user: SignedInUser | None
    is_known: bool
    sign_in: SignIn
    return_to: str

    @property
    def sign_in_url(self) -> str:
        return self.sign_in.page + (f"?returnTo={quote(self.return_to)}" if self.return_to else "")


def page_header(scope: Scope) -> PageHeader | None:
    """The user for the header of a page; None if no kit signs users in."""
    sign_in = sign_in_of(scope)
    if sign_in is None:
        return None
    path: str = scope.get("path", "")
    # A query may contain a secret, such as a share link, and must not end up in another URL.
    can_return = scope.get("method") in ("GET", "HEAD") and not scope.get("query_string") and _is_page(path, sign_in)
    return PageHeader(known_user(scope), _KNOWN in scope, sign_in, path if can_return else "")


def _is_page(path: str, sign_in: SignIn) -> bool:
    return path.isascii() and path != sign_in.page and path.partition("/")[2].partition("/")[0] != "api"


def set_user(scope: Scope, user: SignedInUser | None) -> None:
    """Change the user of a request after a sign-in or sign-out."""
    scope[_KNOWN] = user


def _find_sign_in_kit(scope: Scope) -> Any:
    state = getattr(scope.get("app"), "state", None)
    kits = getattr(state, "kits", {})
    running = getattr(state, "running", ())
    return next((kit for kit in running if kit.sign_in is not None and kit.name in kits), None)
