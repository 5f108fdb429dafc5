"""The page of the teamwork kit, and the routes of its demo team (development only)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import Field

from keystead.catalogue import Language
from keystead.http.refusals import Refusal
from keystead.http.responses import json_response
from keystead.http.routing import KitRouter
from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.identity import identify
from keystead.kits.teamwork.service import (
    DEMO_PEOPLE,
    DemoEvent,
    DemoTeam,
    demo_person,
    user_of,
)
from keystead.kits.teamwork.service.messages import CATALOGUE
from keystead.kits.teamwork.service.people import NO_TEAM
from keystead.kits.teamwork.who import Member, Service, Who
from keystead.kits.visit import Ok, Visit


async def _demo(teamwork: Service) -> DemoTeam:
    """The demo team; 404 if there is none."""
    if teamwork.demo is None:
        raise Refusal(404, "NOT_FOUND", "There is nothing at this address.")
    return teamwork.demo


Demo = Annotated[DemoTeam, Depends(_demo)]


class SignInBody(CamelBody, extra="forbid"):
    person: int


class SignedInAnswer(CamelModel):
    token: str
    expires_at: int = Field(description="In ms since 1970.")


class DemoEventBody(CamelBody, extra="forbid"):
    what: DemoEvent
    to: int | None = None
    language: Language = "en"


class FillBody(CamelBody, extra="forbid"):
    language: Language = "en"


class DemoEventAnswer(Ok):
    notices: int


def add_page_routes(routes: KitRouter) -> None:
    routes.add("GET /teamwork", _page)
    for name, route in (("sign-in", _sign_in), ("events", _trigger), ("deadlines", _fill_calendar), ("join", _join)):
        routes.add(f"POST /api/teamwork/demo/{name}", route)


class _PageVisit(Visit):
    catalogue = CATALOGUE


async def _page(request: Request, teamwork: Service) -> Response:
    """The page: live notices, deadlines and the dashboard. It loads its data from the other routes."""
    visit = _PageVisit(request, teamwork.site)
    if visit.home is not None:
        return visit.redirect_to(visit.home)
    people = DEMO_PEOPLE if teamwork.demo is not None else ()
    user = await identify(request) if teamwork.accepts_sign_ins else None
    return visit.page(
        "teamwork/teamwork.html",
        scripts=True,
        people=[{"id": one.id, "name": one.name, "role": one.role} for one in people],
        accepts_sign_ins=teamwork.accepts_sign_ins,
        is_signed_in=user is not None,
    )


async def _sign_in(request: Request, teamwork: Service, demo: Demo, body: SignInBody) -> Response:
    Visit(request, teamwork.site).refuse_cross_site()
    person = demo_person(body.person)
    if person is None:
        raise Refusal(404, "NOT_FOUND", "The demo team has no member with this number.")
    new = await demo.sign_in(person)
    return json_response(SignedInAnswer(token=new.token, expires_at=new.expires_at_ms))


async def _trigger(who: Member, demo: Demo, body: DemoEventBody) -> Response:
    to = user_of(who.access) if body.to is None else body.to
    notices = await demo.trigger(body.what, to, who.user.team_id, body.language)
    return json_response(DemoEventAnswer(notices=len(notices)))


async def _fill_calendar(who: Member, demo: Demo, body: FillBody) -> Response:
    return json_response(DemoEventAnswer(notices=await demo.fill_calendar(who.user.team_id, body.language)))


async def _join(who: Who, demo: Demo) -> Response:
    """Add a signed-in user without a team to the demo team."""
    if who.user.team_id != NO_TEAM:
        raise Refusal(409, "IN_A_TEAM", "You are already in a team.")
    await demo.join(user_of(who.access), who.user)
    return json_response(Ok())
