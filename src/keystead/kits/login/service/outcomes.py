"""What comes of a login: it goes on, it succeeds, it must be confirmed, or it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from keystead.errors import KeysteadError
from keystead.kits.login.models import LoginContext, Session
from keystead.parts.sessions import Gone


class LoginRefused(KeysteadError):
    """A login, or what comes after it, is refused. `reason` is a stable word; `more` is told beside the sentence."""

    code = "login-refused"

    def __init__(self, reason: str, sentence: str, **more: object) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.more = more


@dataclass(frozen=True)
class Started:
    """A login under way. `browser` and `claim` are secrets for cookies of the browser in which it began."""

    authorize_url: str
    app_authorize_url: str | None
    state: str = field(repr=False)
    browser: str = field(repr=False)
    claim: str | None = field(repr=False)


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


def not_logged_in(gone: Gone) -> LoginRefused:
    """Why somebody is not logged in, as far as whoever holds the token may know."""
    match gone.reason:
        case "evicted":
            return LoginRefused("SESSION_EVICTED", "you were logged out, because you logged in on another device")
        case "revoked":
            return LoginRefused("SESSION_REVOKED", "this session was ended; log in again")
        case "expired":
            return LoginRefused("SESSION_EXPIRED", "this session has expired; log in again")
        case _:
            return LoginRefused("NOT_LOGGED_IN", "log in first")
