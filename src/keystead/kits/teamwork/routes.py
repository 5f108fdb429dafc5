"""The HTTP routes of the teamwork kit."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import date
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from keystead.catalogue import Language, message
from keystead.http.bearer import retry_after_s
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import json_response
from keystead.http.routing import KitRouter
from keystead.http.server_sent_events import place_in
from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.kit import Example, Kit, Site
from keystead.kits.language import language_of
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import DashboardSummary, Deadline
from keystead.kits.teamwork.page import add_page_routes
from keystead.kits.teamwork.service import (
    TEAMWORK_TABLES,
    Count,
    Event,
    Load,
    Notice,
    Teamwork,
    TeamworkSettings,
    TooManyStreams,
    message_of,
    missing,
    open_teamwork,
    plain_message,
    ref_id_of,
    title_of,
    user_of,
)
from keystead.kits.teamwork.service.deadlines import FIRST_DAY, LAST_DAY
from keystead.kits.teamwork.service.tables import ID_MAX_BYTES
from keystead.kits.teamwork.stream import stream_notices
from keystead.kits.teamwork.team_routes import add_team_routes, iso_time, refusal_of
from keystead.kits.teamwork.who import Member, Service, Who, has_session, sign_in_check
from keystead.kits.visit import Ok
from keystead.parts.cache import LoadFailed

_PAGE_MAX: Final = 100
_LAST_PAGE: Final = 1_000_000

RefTypeOf = Annotated[str, Query(alias="refType", min_length=1, max_length=64)]
RefIdOf = Annotated[str, Query(alias="refId", min_length=1, max_length=200)]


# --- request and response bodies -------------------------------------------------------------------------------


class NoticeAnswer(CamelModel):
    id: int
    user_id: int
    type: str
    title: str = Field(description="In the requested language (`language` or `Accept-Language`).")
    message: str
    link: str = Field(description="The address of the work item.")
    ref_type: str
    ref_id: int | str
    is_read: bool
    slack_sent: bool
    created_at: str


class PageAnswer(CamelModel):
    items: list[NoticeAnswer]
    page: int
    size: int
    total: int


class UnreadAnswer(CamelModel):
    total: int
    work_request: int
    test_scenario: int
    defect: int
    others: int


class ReadAnswer(CamelModel):
    read: int = Field(description="How many were unread before.")


class Preferences(CamelModel):
    assign: bool
    comment: bool
    deadline: bool
    status: bool
    deploy: bool
    mention: bool


class PreferencesBody(CamelBody, extra="forbid"):
    """The preferences to change; omitted ones stay."""

    assign: bool | None = None
    comment: bool | None = None
    deadline: bool | None = None
    status: bool | None = None
    deploy: bool | None = None
    mention: bool | None = None


class EventAnswer(CamelModel):
    notices: int = Field(description="The number of new notices; 0 if the event was already reported.")


class DueBody(CamelBody, extra="forbid"):
    due: date
    title: str = Field(max_length=500)
    doc_no: str = Field("", max_length=32)
    assignee_id: int | None = Field(None, ge=1, le=2**63 - 1)


class DueAnswer(CamelModel):
    ref_type: str
    ref_id: int | str
    due: date
    title: str
    doc_no: str
    assignee_id: int | None
    days: int = Field(description="Days from today, in the time zone of the team; negative if overdue.")


class DueListAnswer(CamelModel):
    today: date = Field(description="The current day in the time zone of the team.")
    zone: str
    deadline_days: list[int] = Field(description="How many days before a deadline its assignee is notified.")
    items: list[DueAnswer]


class ZoneBody(CamelBody):
    zone: str = Field(max_length=64)


class MeAnswer(CamelModel):
    id: int
    name: str
    email: str
    role: str
    team_id: int
    team_role: str


# --- the routes ------------------------------------------------------------------------------------------------


def router() -> APIRouter:
    """All routes of the kit."""
    routes = KitRouter("teamwork", refusal_of)
    add = routes.add
    base = "/api/notifications"
    add(f"GET {base}", _list, "List my notices, newest first", PageAnswer)
    add(f"GET {base}/unread-counts", _count_unread, "Count my unread notices", UnreadAnswer)
    add(
        f"GET {base}/stream",
        _stream,
        "Stream my notices",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    add(f"GET {base}/preferences", _get_preferences, "Get my notification preferences", Preferences)
    add(f"PUT {base}/preferences", _set_preferences, "Change my notification preferences", Preferences)
    add(f"PATCH {base}/read-all", _read_all, "Mark all my notices as read", ReadAnswer)
    add(f"PATCH {base}/read-by-ref", _read_by_ref, "Mark the notices of a work item as read", ReadAnswer)
    add(f"GET {base}/{{id}}", _get, "Get one of my notices", NoticeAnswer)
    add(f"DELETE {base}/{{id}}", _delete, "Delete one of my notices", Ok)
    add(f"PATCH {base}/{{id}}/read", _read, "Mark a notice as read", ReadAnswer)
    add("POST /api/events", _report_event, "Report an event", EventAnswer)
    add("GET /api/deadlines", _list_deadlines, "List the deadlines of my team", DueListAnswer)
    one = "/api/deadlines/{refType}/{refId:path}"  # a path: an id may contain a slash
    add(f"PUT {one}", _set_deadline, "Add or move a deadline", Ok)
    add(f"DELETE {one}", _complete_deadline, "Complete a deadline", Ok)
    add("PUT /api/team/zone", _set_zone, "Set the time zone of my team", Ok)
    add("GET /api/dashboard/summary", _summary, "Summarize my open work", DashboardSummary)
    add("GET /api/me", _me, "Get my user and team", MeAnswer, operation_id="teamwork_me")
    add("POST /api/tokens/revoke", _revoke, "Revoke this token", Ok)
    add("POST /api/tokens/revoke-all", _revoke_all, "Revoke all my tokens", Ok)
    add_team_routes(routes)
    add_page_routes(routes)
    return routes


async def _language(
    request: Request,
    teamwork: Service,
    language: Annotated[Language | None, Query(description="The language of titles and texts.")] = None,
) -> Language:
    """The requested language (query or Accept-Language), or the default of the server."""
    accept = request.headers.get("accept-language", "")
    return language or (language_of(accept) if accept else teamwork.settings.language)


ReaderLanguage = Annotated[Language, Depends(_language)]


async def _list(
    who: Who,
    teamwork: Service,
    language: ReaderLanguage,
    read: bool | None = None,
    ref_type: Annotated[str | None, Query(alias="refType", min_length=1, max_length=64)] = None,
    ref_id: Annotated[str | None, Query(alias="refId", min_length=1, max_length=200)] = None,
    user_id: Annotated[int | None, Query(alias="userId")] = None,
    page: Annotated[int, Query(ge=0, le=_LAST_PAGE)] = 0,
    size: Annotated[int, Query(ge=1, le=_PAGE_MAX)] = 20,
) -> Response:
    user = user_of(who.access)
    if user_id is not None and user_id != user:
        raise Refusal(403, "FORBIDDEN", "You can only read your own notices.")
    found = await teamwork.notices.page(user, read=read, ref_type=ref_type, ref_id=ref_id, page=page, size=size)
    items = [_show_notice(teamwork, one, language) for one in found.notices]
    return json_response(PageAnswer(items=items, page=page, size=size, total=found.total))


async def _count_unread(who: Who, teamwork: Service) -> Response:
    counts = dict(await teamwork.notices.count_unread(user_of(who.access)))
    total = sum(counts.values())
    named = [counts.pop(kind, 0) for kind in ("WORK_REQUEST", "TEST_SCENARIO", "DEFECT")]
    return json_response(
        UnreadAnswer(
            total=total, work_request=named[0], test_scenario=named[1], defect=named[2], others=total - sum(named)
        )
    )


async def _stream(
    request: Request,
    who: Who,
    teamwork: Service,
    language: ReaderLanguage,
    last_event_id: Annotated[str | None, Header()] = None,
    last_seen: Annotated[str | None, Query(alias="lastEventId", max_length=20)] = None,
) -> Response:
    """Server-sent events: `notice`, `missed` if notices cannot be replayed, `bye` if the user has signed out."""
    is_signed_in = sign_in_check(request, who, teamwork)
    try:
        place = place_in(last_event_id or last_seen)
        events = await stream_notices(teamwork.streams, user_of(who.access), place, is_signed_in, language)
    except TooManyStreams as error:
        raise Refusal(429, "TOO_MANY_STREAMS", str(error), retry_after_s=30) from None
    headers = {**NO_STORE, "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _get_preferences(who: Who, teamwork: Service) -> Response:
    return json_response(Preferences(**await teamwork.notices.preferences(user_of(who.access))))


async def _set_preferences(who: Who, teamwork: Service, body: PreferencesBody) -> Response:
    changes = body.model_dump(exclude_none=True)
    return json_response(Preferences(**await teamwork.notices.set_preferences(user_of(who.access), changes)))


async def _get(who: Who, teamwork: Service, language: ReaderLanguage, id: int) -> Response:
    found = await teamwork.notices.find(user_of(who.access), id)
    if found is None:
        raise Refusal(404, "NOT_FOUND", "There is no such notice.")
    return json_response(_show_notice(teamwork, found, language))


async def _delete(who: Who, teamwork: Service, id: int) -> Response:
    if not await teamwork.delete(user_of(who.access), id):
        raise Refusal(404, "NOT_FOUND", "There is no such notice.")
    return json_response(Ok())


async def _read(who: Who, teamwork: Service, id: int) -> Response:
    user = user_of(who.access)
    count = await teamwork.mark_read(user, notice=id)
    if not count and await teamwork.notices.find(user, id) is None:
        raise Refusal(404, "NOT_FOUND", "There is no such notice.")
    return json_response(ReadAnswer(read=count))


async def _read_all(who: Who, teamwork: Service) -> Response:
    return json_response(ReadAnswer(read=await teamwork.mark_read(user_of(who.access))))


async def _read_by_ref(who: Who, teamwork: Service, ref_type: RefTypeOf, ref_id: RefIdOf) -> Response:
    count = await teamwork.mark_read(user_of(who.access), ref=(ref_type, ref_id))
    return json_response(ReadAnswer(read=count))


async def _report_event(request: Request, who: Member, teamwork: Service, body: Annotated[Event, Body()]) -> Response:
    """Only members of the caller's team are notified, and the caller is the actor."""
    _refuse_python_names(await request.json())
    user = user_of(who.access)
    await teamwork.limit.count("events", str(user))
    event = body.model_copy(update={"actor_id": user, "id": _own_id(user, body.id)})
    notices = await teamwork.tell(event, within=who.user.team_id)
    return json_response(EventAnswer(notices=len(notices)))


def _refuse_python_names(body: dict[str, Any]) -> None:
    """The models also accept snake_case names, for Python code. JSON has camelCase names only."""
    if any("_" in name for name in (*body, *body["item"])):
        raise RequestValidationError([{"type": "extra_forbidden", "loc": ("body",), "msg": ""}])


def _own_id(user: int, given: str) -> str:
    """An event id in the namespace of the caller: it cannot suppress notices of colleagues or of the application."""
    event_id = f"api:{user}:{given}"
    if len(event_id.encode()) <= ID_MAX_BYTES:
        return event_id
    return f"api:{user}:sha256:{sha256(given.encode()).hexdigest()}"


async def _list_deadlines(
    who: Member,
    teamwork: Service,
    first: Annotated[date, Query(alias="from")] = FIRST_DAY,
    last: Annotated[date, Query(alias="to")] = LAST_DAY,
) -> Response:
    team = who.user.team_id
    rules = await teamwork.deadlines.rules_of(team)
    today = teamwork.deadlines.today_in(rules.zone)
    listed = await teamwork.deadlines.between(team, first, last)
    items = [
        DueAnswer(
            ref_type=one.ref.ref_type,
            ref_id=ref_id_of(one.ref.ref_id),
            due=one.due,
            title=one.title,
            doc_no=one.doc_no,
            assignee_id=one.assignee_id,
            days=(one.due - today).days,
        )
        for one in listed
    ]
    days = list(rules.days)
    return json_response(DueListAnswer(today=today, zone=str(rules.zone), deadline_days=days, items=items))


RefType = Annotated[str, Path(alias="refType", pattern=r"^[A-Z][A-Z0-9_]{0,62}$")]
RefId = Annotated[str, Path(alias="refId", min_length=1, max_length=200)]


async def _set_deadline(who: Member, teamwork: Service, ref_type: RefType, ref_id: RefId, body: DueBody) -> Response:
    await teamwork.limit.count("deadlines", str(user_of(who.access)))
    if body.assignee_id is not None and not await teamwork.of_team(who.user.team_id, {body.assignee_id}):
        raise Refusal(400, "BAD_REQUEST", "The assignee is not in your team.")
    await teamwork.deadlines.register(
        who.user.team_id,
        Deadline(ref_type, ref_id),
        body.due,
        title=body.title,
        doc_no=body.doc_no,
        assignee=body.assignee_id,
    )
    return json_response(Ok())


async def _complete_deadline(who: Member, teamwork: Service, ref_type: RefType, ref_id: RefId) -> Response:
    await teamwork.limit.count("deadlines", str(user_of(who.access)))
    if not await teamwork.deadlines.complete(who.user.team_id, Deadline(ref_type, ref_id)):
        raise Refusal(404, "NOT_FOUND", "There is no such deadline.")
    return json_response(Ok())


async def _set_zone(who: Member, teamwork: Service, body: ZoneBody) -> Response:
    await teamwork.change_team(who.user.team_id, zone=body.zone, by=user_of(who.access), role=who.user.team_role)
    return json_response(Ok())


async def _summary(who: Member, teamwork: Service) -> Response:
    try:
        found = await teamwork.dashboard.summary(user_of(who.access), who.user.team_id)
    except LoadFailed as failed:
        sentence = "The summary is not available right now; try again."
        raise Refusal(503, "UNAVAILABLE", sentence, retry_after_s=retry_after_s(failed)) from None
    return json_response(found)


async def _me(who: Who) -> Response:
    return json_response(MeAnswer(id=user_of(who.access), **who.user.model_dump()))


async def _revoke(who: Who, teamwork: Service) -> Response:
    _refuse_session(who)
    await teamwork.tokens.revoke(who.access)
    return json_response(Ok())


async def _revoke_all(who: Who, teamwork: Service) -> Response:
    _refuse_session(who)
    await teamwork.tokens.revoke_all(who.sub)
    return json_response(Ok())


def _refuse_session(who: Who) -> None:
    """Sessions of this server are ended by its own logout route."""
    if has_session(who):
        raise Refusal(409, "NO_TEAMWORK_TOKEN", "You are signed in by a session; sign out by POST /api/auth/logout.")


def _show_notice(teamwork: Teamwork, notice: Notice, language: Language) -> NoticeAnswer:
    said = notice.said
    return NoticeAnswer(
        id=notice.id,
        user_id=notice.user,
        type=notice.type,
        title=notice.title if said is None else title_of(notice.type, said, language),
        message=plain_message(notice.message, language) if said is None else message_of(said, language),
        link=teamwork.link(notice),
        ref_type=notice.ref_type,
        ref_id=ref_id_of(notice.ref_id),
        is_read=notice.is_read,
        slack_sent=notice.slack_sent,
        created_at=iso_time(notice.created_at_ms),
    )


def teamwork_kit(*, load: Load | None = None, count: Count | None = None) -> Kit:
    """The kit with your own users and work: `KIT = teamwork_kit(load=find_user, count=count_work)`.

    load    returns a user by id, or None; the default is the kit's own table of people
    count   counts the work of a user in a team; the default counts deadlines
    """

    def service(keys: TeamworkKeys, settings: TeamworkSettings, site: Site) -> AbstractAsyncContextManager[Any]:
        return open_teamwork(keys, settings, site, load=load, count=count)

    return Kit(
        name="teamwork",
        doc=message("A team at work: revocable tokens, real-time notices, deadlines and dashboards."),
        keyspace=TeamworkKeys,
        settings=TeamworkSettings,
        router=router,
        service=service,
        missing=missing,
        examples=(
            Example(
                message("Notices, deadlines and dashboard"),
                "/teamwork",
                message("Sign in as a team member and watch them arrive."),
            ),
        ),
        streams=("/api/notifications/stream",),
        jobs=lambda teamwork: teamwork.jobs,
        stop=lambda teamwork: teamwork.feed.stop(),
        tables=TEAMWORK_TABLES,
        signs=True,
        commands="keystead.kits.teamwork.commands:COMMANDS",
    )


KIT: Final = teamwork_kit()
