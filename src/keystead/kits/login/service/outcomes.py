"""Outcomes of a sign-in: started, finished, unconfirmed, full, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from keystead.errors import KeysteadError
from keystead.kits.login.models import LoginContext, Session
from keystead.parts.sessions import Gone, Live


class LoginRefused(KeysteadError):
    """A request of the login kit is refused. `reason` is a stable code; `more` has further fields of the response."""

    code = "login-refused"

    def __init__(self, reason: str, sentence: str, **more: object) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.more = more


@dataclass(frozen=True)
class Visitor:
    """The client of a request: its address and its User-Agent header."""

    where: str = ""
    agent: str = ""


UNKNOWN_VISITOR: Final = Visitor()


@dataclass(frozen=True)
class Started:
    """A sign-in in progress. `browser` and `claim` are secrets for cookies of the browser that started it; an installed
    app shows `code` while it waits."""

    authorize_url: str
    app_authorize_url: str | None
    state: str = field(repr=False)
    browser: str = field(repr=False)
    claim: str | None = field(repr=False)
    code: str | None = None


@dataclass(frozen=True)
class Finished:
    """A successful sign-in. `token` is for the cookie; None if the installed app claims the session instead."""

    token: str | None = field(repr=False)
    session: Session
    context: LoginContext
    return_to: str


@dataclass(frozen=True)
class Unconfirmed:
    """A sign-in that returned to a browser without its cookie: the user has to confirm it."""

    confirm: str = field(repr=False)
    browser: str = field(repr=False)
    name: str
    context: LoginContext
    codes: Sequence[str] = ()  # the user must select the one that the app shows


@dataclass(frozen=True)
class Full:
    """A sign-in of a user at their session cap: it waits until they choose a session to end."""

    confirm: str = field(repr=False)
    browser: str = field(repr=False)
    name: str
    sessions: Sequence[Live[Session]]


@dataclass(frozen=True)
class TokenPair:
    """Tokens for a program."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in_s: int


def not_logged_in(gone: Gone) -> LoginRefused:
    """The refusal for a session that is gone, with as much detail as the holder of its token may know."""
    match gone.reason:
        case "evicted":
            return LoginRefused("SESSION_EVICTED", "you were signed out because you signed in on another device")
        case "revoked":
            return LoginRefused("SESSION_REVOKED", "this session was ended; sign in again")
        case "expired":
            return LoginRefused("SESSION_EXPIRED", "this session has expired; sign in again")
        case _:
            return LoginRefused("NOT_LOGGED_IN", "sign in first")
