"""The page of the teamwork kit, and what it asks for in development: a demo team in which things happen."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import Field

from keystead.http.refusals import Refusal
from keystead.http.responses import json_response
from keystead.http.routing import KitRouter
from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.identity import identify
from keystead.kits.language import Language
from keystead.kits.teamwork.service import (
    DEMO_PEOPLE,
    DemoTeam,
    Happening,
    demo_person,
    user_of,
)
from keystead.kits.teamwork.service.people import NO_TEAM
from keystead.kits.teamwork.who import Member, Serving, Who
from keystead.kits.visit import Visit


async def _demo(teamwork: Serving) -> DemoTeam:
    """The demo team. Where there is none, these addresses are like any other at which there is nothing."""
    if teamwork.demo is None:
        raise Refusal(404, "NOT_FOUND", "There is nothing at this address.")
    return teamwork.demo


Demo = Annotated[DemoTeam, Depends(_demo)]


class SignInBody(CamelBody, extra="forbid"):
    person: int


class SignedInAnswer(CamelModel):
    token: str
    expires_at: int = Field(description="In ms since 1970.")


class HappenBody(CamelBody, extra="forbid"):
    what: Happening
    to: int | None = None
    language: Language = "en"


class FillBody(CamelBody, extra="forbid"):
    language: Language = "en"


class HappenedAnswer(CamelModel):
    ok: Literal[True] = True
    notices: int


class JoinedAnswer(CamelModel):
    ok: Literal[True] = True


def add_page_routes(routes: KitRouter) -> None:
    """The page, and what is there in development only."""
    routes.add("GET /teamwork", _page)
    for name, route in (("sign-in", _sign_in), ("events", _happen), ("deadlines", _fill), ("join", _join)):
        routes.add(f"POST /api/teamwork/demo/{name}", route)


async def _page(request: Request, teamwork: Serving) -> Response:
    """What a user sees: notices as they come, deadlines, and what waits. It asks the other routes for all of it."""
    visit = Visit(request, teamwork.site)
    if visit.home is not None:
        return visit.goes_on(visit.home)
    people = DEMO_PEOPLE if teamwork.demo is not None else ()
    user = await identify(request) if teamwork.takes_identities else None
    return visit.page(
        "teamwork/teamwork.html",
        scripts=True,
        language=visit.say.language,
        people=[{"id": one.id, "name": one.name, "role": one.role} for one in people],
        takes_signed_in=teamwork.takes_identities,
        is_signed_in=user is not None,
    )


async def _sign_in(request: Request, teamwork: Serving, demo: Demo, body: SignInBody) -> Response:
    Visit(request, teamwork.site).refuse_cross_site()
    person = demo_person(body.person)
    if person is None:
        raise Refusal(404, "NOT_FOUND", "There is nobody of this number in the demo team.")
    new = await demo.sign_in(person)
    return json_response(SignedInAnswer(token=new.token, expires_at=new.expires_at_ms))


async def _happen(who: Member, demo: Demo, body: HappenBody) -> Response:
    to = user_of(who.access) if body.to is None else body.to
    written = await demo.happen(body.what, to, who.user.team_id, body.language)
    return json_response(HappenedAnswer(notices=len(written)))


async def _fill(who: Member, demo: Demo, body: FillBody) -> Response:
    return json_response(HappenedAnswer(notices=await demo.fill_calendar(who.user.team_id, body.language)))


async def _join(who: Who, demo: Demo) -> Response:
    """Somebody who is signed in, and in no team, joins the demo team."""
    if who.user.team_id != NO_TEAM:
        raise Refusal(409, "IN_A_TEAM", "You are in a team already.")
    await demo.join(user_of(who.access), who.user)
    return json_response(JoinedAnswer())
