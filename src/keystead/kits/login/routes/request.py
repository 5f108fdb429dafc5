"""Requests to the login kit: cookies, client, and the HTTP responses for refusals."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Final

from fastapi import Depends, Path, Request
from fastapi.responses import Response
from pydantic.alias_generators import to_camel

from keystead.catalogue import Catalogue, message
from keystead.errors import CapReached
from keystead.http.cookies import Cookie
from keystead.http.rate_limits import too_many_requests
from keystead.http.refusals import Refusal, statuses
from keystead.kits.kit import service_of
from keystead.kits.login.service import Login, LoginRefused, Visitor
from keystead.kits.visit import Visit
from keystead.parts.limit import LimitReached

STATUS: Final = statuses(
    {
        400: "BAD_RETURN_TO BAD_CALLBACK STATE_INVALID STATE_REQUIRED",
        401: (
            "PROVIDER_REFUSED CLAIM_TOKEN_REQUIRED NOT_LOGGED_IN SESSION_EVICTED SESSION_REVOKED "
            "SESSION_EXPIRED INVALID_TOKEN INVALID_REFRESH_TOKEN"
        ),
        403: "CODE_WRONG CLAIM_TOKEN_WRONG LOGIN_AGAIN",
        404: "UNKNOWN_PROVIDER NOT_FOUND",
        409: "CONFIRMATION_REQUIRED ALREADY_CLAIMED",
        410: "NOT_CLAIMABLE SESSION_ENDED",
        502: "PROVIDER_UNAVAILABLE",
        503: "TRY_AGAIN",
    }
)
# A new sign-in may succeed.
_START_AGAIN: Final = frozenset({"STATE_INVALID", "PROVIDER_UNAVAILABLE"})


def refusal_of(error: Exception) -> Refusal | None:
    """The HTTP refusal for an error of the service; None for any other error."""
    match error:
        case LoginRefused(reason=reason):
            status = STATUS[reason]
            helps = status == 401 or reason in _START_AGAIN
            wait_s = 1 if reason == "TRY_AGAIN" else None
            more = {to_camel(name): value for name, value in error.more.items()}
            return Refusal(status, reason, str(error), more=more, retry_after_s=wait_s, sign_in_helps=helps)
        case LimitReached():
            return too_many_requests(error)
        case CapReached():
            return Refusal(409, "TOO_MANY_SESSIONS", str(error))
    return None


# What people read about a refusal, by its code.
_SENTENCES: Final = {
    "STATE_INVALID": message("This sign-in has expired or was not started here. Start again."),
    "UNKNOWN_PROVIDER": message("This sign-in provider is not available here."),
    "TRY_AGAIN": message("This sign-in could not be started. Try again."),
    "BAD_CALLBACK": message("The response of the provider is incomplete. Start again."),
    "CODE_WRONG": message("That is not the code in your app. You were not signed in. Start again in the app."),
    "PROVIDER_REFUSED": message("The provider did not confirm this sign-in. Start again."),
    "PROVIDER_UNAVAILABLE": message("The provider is not responding. Try again later."),
    "RATE_LIMITED": message("Too many requests from your network. Wait a minute, then try again."),
}


class LoginVisit(Visit):
    catalogue = Catalogue(FilePath(__file__).parents[1])

    def __init__(self, request: Request, login: Login) -> None:
        super().__init__(request, login.site)
        secure = login.site.secure
        self.login = login
        self.sid, self.browser = Cookie("sid", secure), Cookie("d_login", secure)
        self.bridge = Cookie("d_pwa_bridge", secure)
        self.token = self.read(self.sid)

    @property
    def session_seconds(self) -> int:
        return self.login.settings.policy.absolute_ms // 1000

    @property
    def visitor(self) -> Visitor:
        return Visitor(self.address, self.request.headers.get("user-agent", ""))

    def problem(self, refusal: Refusal) -> Response:
        """The error page of a refusal, in the browser's language. Raises it for programs, or if it has no page."""
        is_browser = "text/html" in self.request.headers.get("accept", "") and not self.wants_json
        if not is_browser or refusal.code not in _SENTENCES:
            raise refusal
        sentence = self.say(_SENTENCES[refusal.code])
        response = self.page("login/refused.html", status=refusal.status, sentence=sentence, return_to=None)
        response.headers.update(refusal.headers or {})
        return response

    async def count(self, name: str) -> None:
        await self.login.limit.count(name, self.address)


async def _visit(request: Request, login: Annotated[Login, Depends(service_of("login"))]) -> LoginVisit:
    return LoginVisit(request, login)  # from a coroutine: FastAPI calls anything else in another thread


Visiting = Annotated[LoginVisit, Depends(_visit)]
ProviderName = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$", description="discord, github, google, …")]
