"""What comes of a login: it goes on, it succeeds, it must be confirmed, or it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from keystead.errors import KeysteadError
from keystead.kits.login.models import LoginContext, Session
from keystead.parts.sessions import Gone, Live


class LoginRefused(KeysteadError):
    """A login, or what comes after it, is refused. `reason` is a stable word; `more` is told beside the sentence."""

    code = "login-refused"

    def __init__(self, reason: str, sentence: str, **more: object) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.more = more


@dataclass(frozen=True)
class Visitor:
    """Who asks, as far as a request tells: the address, and what the browser says of itself."""

    where: str = ""
    agent: str = ""


UNKNOWN_VISITOR: Final = Visitor()


@dataclass(frozen=True)
class Started:
    """A login under way. `browser` and `claim` are secrets for cookies of the browser in which it began.

    `code` is for an installed app, which shows it while it waits.
    """

    authorize_url: str
    app_authorize_url: str | None
    state: str = field(repr=False)
    browser: str = field(repr=False)
    claim: str | None = field(repr=False)
    code: str | None = None


@dataclass(frozen=True)
class Finished:
    """A login that succeeded. `token` is for the cookie; None: this browser gets none, the installed app claims it."""

    token: str | None = field(repr=False)
    session: Session
    context: LoginContext
    return_to: str


@dataclass(frozen=True)
class Unconfirmed:
    """A login that came back to a browser that does not have its cookie: only its user can say that it is theirs."""

    confirm: str = field(repr=False)
    browser: str = field(repr=False)
    name: str
    context: LoginContext
    codes: Sequence[str] = ()  # of which the user must find the one that the app shows


@dataclass(frozen=True)
class Full:
    """A login of a user who has as many sessions as they may: it waits until they have chosen one to end."""

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
    """Why somebody is not logged in, as far as whoever holds the token may know."""
    match gone.reason:
        case "evicted":
            return LoginRefused("SESSION_EVICTED", "you were signed out, because you signed in on another device")
        case "revoked":
            return LoginRefused("SESSION_REVOKED", "this session was ended; sign in again")
        case "expired":
            return LoginRefused("SESSION_EXPIRED", "this session has expired; sign in again")
        case _:
            return LoginRefused("NOT_LOGGED_IN", "sign in first")
