"""Routes without a session: health, signing keys, crash reports and the page to try the kit."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Body, Depends, Request
from fastapi.responses import JSONResponse, Response

from keystead.catalogue import Catalogue
from keystead.http.dependencies import limited
from keystead.http.rate_limits import client_address, rate_limit_headers
from keystead.http.refusals import Refusal
from keystead.http.responses import json_response
from keystead.kits.membership.routes.account import format_time
from keystead.kits.membership.routes.bodies import DoneAnswer, HealthAnswer
from keystead.kits.membership.routes.request import Serving
from keystead.kits.membership.service import TRY_PATH
from keystead.kits.visit import Visit
from keystead.parts.limit import Limits, Verdict


def _find_limit(name: Literal["webhooks", "sign_ins", "crash_reports"]) -> Callable[[Request], Limits | None]:
    def find(request: Request) -> Limits | None:
        limit: Limits | None = getattr(request.app.state.kits["membership"], name)
        return limit

    return find


def _count_by(name: str) -> Callable[[Request], str]:
    """The counter's name for a client. Limits that share a family need distinct names."""
    return lambda request: f"{name}:{client_address(request)}"


def _client_ip(request: Request) -> str:
    """The client's IP address. Clients without one share a counter."""
    try:
        return str(ip_address(client_address(request)))
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - not bound to


SIGN_INS = Depends(limited(_find_limit("sign_ins"), client=_count_by("sign-in")))
WEBHOOKS = Depends(limited(_find_limit("webhooks"), client=_count_by("webhook")))
CrashReportVerdict = Annotated[Verdict | None, Depends(limited(_find_limit("crash_reports"), client=_client_ip))]


async def health(members: Serving) -> Response:
    environment = "development" if members.site.development else "production"
    return json_response(HealthAnswer(timestamp=format_time(members.keys.now_ms()), environment=environment))


async def jwks(members: Serving) -> Response:
    return JSONResponse(members.signing.jwks(), headers={"cache-control": "public, max-age=300"})


async def crash_report(
    members: Serving, verdict: CrashReportVerdict, body: Annotated[dict[str, Any], Body()]
) -> Response:
    is_new = await members.crash_report(body)
    done = DoneAnswer(message="report stored" if is_new else "this report was already submitted")
    return json_response(done, headers=None if verdict is None else rate_limit_headers(verdict))


class _TryVisit(Visit):
    catalogue = Catalogue(Path(__file__).parents[1])


async def try_page(request: Request, members: Serving) -> Response:
    """The page to try the kit. 404 unless there is a stand-in for the provider."""
    stand_in = members.provider.stand_in
    if stand_in is None:
        raise Refusal(404, "NOT_FOUND", "There is nothing at this address.")
    visit = _TryVisit(request, members.site)
    if visit.home is not None:
        return visit.redirect_to(visit.home)
    return visit.page(
        "membership/try.html",
        scripts=True,
        public_url=members.site.public_url,
        provider=stand_in.provider,
        pledges=stand_in.page,
        path=TRY_PATH,
    )
