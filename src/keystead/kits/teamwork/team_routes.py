"""The routes of teams: create one, invite people, say what they may, leave, and how the team works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from keystead.errors import BadValue
from keystead.kits.refusal import Refusal
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service import (
    Attempt,
    Invitation,
    Team,
    TeamRefused,
    TeamRole,
    Teamwork,
    invitation_link,
    user_of,
)
from keystead.kits.teamwork.who import Member, Serving, Who
from keystead.kits.visit import NO_STORE, too_often
from keystead.parts.limit import LimitReached
from keystead.schema.times import moment

# What each refusal of the service is in HTTP.
STATUS: Final[Mapping[str, int]] = {
    "NO_TEAM": 403,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "ALREADY_IN_TEAM": 409,
    "LAST_OWNER": 409,
    "INVITATION_INVALID": 410,
    "TOO_MANY_INVITATIONS": 409,
    "PEOPLE_ELSEWHERE": 409,
}
_ATTEMPTS_MOST: Final = 100

DaysList = Annotated[list[Annotated[int, Field(ge=0, le=365)]], Field(min_length=1, max_length=20)]
UserId = Annotated[int, Field(ge=1, le=2**63 - 1)]


# --- what is sent and answered ---------------------------------------------------------------------------------


class _Body(BaseModel):
    model_config = {"extra": "forbid"}


class NewTeamBody(_Body):
    name: str = Field(min_length=1, max_length=100)
    zone: str | None = Field(None, max_length=64)
    deadlineDays: DaysList | None = None  # noqa: N815 - names as in the document


class TeamBody(_Body):
    """What is to be changed; what is left out stays."""

    name: str | None = Field(None, min_length=1, max_length=100)
    zone: str | None = Field(None, max_length=64)
    deadlineDays: DaysList | None = None  # noqa: N815


class MemberBody(_Body):
    """What is to be changed; what is left out stays. An empty `slackId` takes it out."""

    teamRole: TeamRole | None = None  # noqa: N815
    slackId: str | None = Field(None, max_length=64)  # noqa: N815


class InviteBody(_Body):
    teamRole: TeamRole = "MEMBER"  # noqa: N815
    userId: UserId | None = Field(None, description="A user of this server, who alone may use it.")  # noqa: N815
    name: str = Field("", max_length=200, description="Whom it is for, for the list of invitations.")


class LinkBody(_Body):
    token: str = Field(min_length=1, max_length=200, description="What stands after `#invitation=` in the link.")


class AcceptBody(_Body):
    token: str | None = Field(None, min_length=1, max_length=200)
    invitation: int | None = Field(None, ge=1, le=2**63 - 1, description="The id of one that is for me alone.")


class TeamAnswer(BaseModel):
    id: int
    name: str
    zone: str
    deadlineDays: list[int]  # noqa: N815
    today: str = Field(description="What day it is in the zone of the team.")


class MemberAnswer(BaseModel):
    id: int
    name: str
    email: str
    role: str
    teamRole: str  # noqa: N815
    slackId: str | None  # noqa: N815


class MembersAnswer(BaseModel):
    members: list[MemberAnswer]


class InvitationAnswer(BaseModel):
    id: int
    team: str = Field(description="What the team is called.")
    teamRole: str  # noqa: N815
    userId: int | None  # noqa: N815
    name: str
    invitedBy: str = Field(description="The name of who invites; empty: an operator.")  # noqa: N815
    expiresAt: str  # noqa: N815


class InvitationsAnswer(BaseModel):
    invitations: list[InvitationAnswer]


class NewInvitationAnswer(InvitationAnswer):
    link: str = Field(description="It can be used once, and is told once.")


class AttemptAnswer(BaseModel):
    id: int
    notificationId: int  # noqa: N815
    userId: int  # noqa: N815
    channel: str
    status: Literal["SENT", "FAILED"]
    errorMessage: str | None  # noqa: N815
    retryCount: int  # noqa: N815
    sentAt: str  # noqa: N815


class AttemptsAnswer(BaseModel):
    attempts: list[AttemptAnswer]


class DoneAnswer(BaseModel):
    ok: Literal[True] = True


# --- the routes ------------------------------------------------------------------------------------------------


def add_team_routes(routes: APIRouter) -> None:
    add = routes.add_api_route
    add("/api/teams", _create, methods=["POST"], response_model=TeamAnswer, summary="Create a team, and own it")
    base = "/api/team"
    add(base, _team, methods=["GET"], response_model=TeamAnswer, summary="My team, and how it works")
    add(base, _change, methods=["PATCH"], response_model=TeamAnswer, summary="Change how my team works")
    add(f"{base}/members", _members, methods=["GET"], response_model=MembersAnswer, summary="Who is in my team")
    one = f"{base}/members/{{id}}"
    add(one, _change_member, methods=["PATCH"], response_model=DoneAnswer, summary="Change what somebody may do")
    add(one, _remove, methods=["DELETE"], response_model=DoneAnswer, summary="Take somebody out of my team")
    add(f"{base}/leave", _leave, methods=["POST"], response_model=DoneAnswer, summary="Leave my team")
    invitations = f"{base}/invitations"
    add(invitations, _invite, methods=["POST"], response_model=NewInvitationAnswer, summary="Invite somebody")
    add(invitations, _listed, methods=["GET"], response_model=InvitationsAnswer, summary="Invitations that are open")
    add(f"{invitations}/{{id}}", _withdraw, methods=["DELETE"], response_model=DoneAnswer, summary="End an invitation")
    add("/api/invitations", _mine, methods=["GET"], response_model=InvitationsAnswer, summary="Invitations for me")
    add(
        "/api/invitations/look",
        _look,
        methods=["POST"],
        response_model=InvitationAnswer,
        summary="What a link invites to",
    )
    add("/api/invitations/accept", _accept, methods=["POST"], response_model=TeamAnswer, summary="Join a team")
    add(
        f"{base}/slack-log",
        _slack_log,
        methods=["GET"],
        response_model=AttemptsAnswer,
        summary="What was sent to Slack for my team",
    )


@asynccontextmanager
async def refusals() -> AsyncIterator[None]:
    """Turns what the service refuses into what the server answers."""
    try:
        yield
    except TeamRefused as refused:
        raise Refusal(STATUS[refused.reason], refused.reason, str(refused), headers=NO_STORE) from None
    except BadValue as error:
        raise Refusal(400, "BAD_REQUEST", str(error)) from None
    except LimitReached as reached:
        raise too_often(reached) from None


async def _create(who: Who, teamwork: Serving, body: NewTeamBody) -> Response:
    user = user_of(who.access)
    async with refusals():
        await teamwork.limit.count("teams", str(user))
        team = await teamwork.create_team(body.name, owner=user, zone=body.zone, days=body.deadlineDays)
    return _answer(await _shown_team(teamwork, team))


async def _team(who: Member, teamwork: Serving) -> Response:
    return _answer(await _own_team(teamwork, who.user.teamId))


async def _change(who: Member, teamwork: Serving, body: TeamBody) -> Response:
    async with refusals():
        await teamwork.change_team(
            who.user.teamId,
            name=body.name,
            zone=body.zone,
            days=body.deadlineDays,
            by=user_of(who.access),
            role=who.user.teamRole,
        )
    return _answer(await _own_team(teamwork, who.user.teamId))


async def _members(who: Member, teamwork: Serving) -> Response:
    async with refusals():
        teamwork.require_own_people()
        found = await teamwork.people.members(who.user.teamId)
    return _answer(MembersAnswer(members=[_shown_member(user, person) for user, person in found.items()]))


async def _change_member(who: Member, teamwork: Serving, id: UserId, body: MemberBody) -> Response:
    async with refusals():
        await teamwork.change_member(
            who.user.teamId, id, role=body.teamRole, slack_id=body.slackId, by=user_of(who.access)
        )
    return _answer(DoneAnswer())


async def _remove(who: Member, teamwork: Serving, id: UserId) -> Response:
    async with refusals():
        teamwork.require_own_people()
        await teamwork.teams.remove(who.user.teamId, id, by=user_of(who.access))
    return _answer(DoneAnswer())


async def _leave(who: Member, teamwork: Serving) -> Response:
    user = user_of(who.access)
    async with refusals():
        teamwork.require_own_people()
        await teamwork.teams.remove(who.user.teamId, user, by=user)
    return _answer(DoneAnswer())


async def _invite(who: Member, teamwork: Serving, body: InviteBody) -> Response:
    user = user_of(who.access)
    async with refusals():
        await teamwork.limit.count("teams", str(user))
        new = await teamwork.invite(who.user.teamId, role=body.teamRole, user=body.userId, name=body.name, by=user)
    shown = await _shown_invitation(teamwork, new.invitation)
    link = invitation_link(teamwork.site.public_url, new.token)
    return _answer(NewInvitationAnswer(**shown.model_dump(), link=link))


async def _listed(who: Member, teamwork: Serving) -> Response:
    async with refusals():
        await teamwork.teams.require_lead(who.user.teamId, user_of(who.access))
    return await _invitations(teamwork, await teamwork.teams.invitations(who.user.teamId))


async def _withdraw(who: Member, teamwork: Serving, id: UserId) -> Response:
    async with refusals():
        await teamwork.teams.withdraw(who.user.teamId, id, by=user_of(who.access))
    return _answer(DoneAnswer())


async def _mine(who: Who, teamwork: Serving) -> Response:
    return await _invitations(teamwork, await teamwork.teams.invitations_to(user_of(who.access)))


async def _look(who: Who, teamwork: Serving, body: LinkBody) -> Response:
    user = user_of(who.access)
    async with refusals():
        await teamwork.limit.count("teams", str(user))
        found = await teamwork.teams.look(body.token)
        if found is None or found.user not in (None, user):
            raise TeamRefused("INVITATION_INVALID")
    return _answer(await _shown_invitation(teamwork, found))


async def _accept(who: Who, teamwork: Serving, body: AcceptBody) -> Response:
    """By the secret of a link, or by the id of an invitation that is for me alone."""
    user = user_of(who.access)
    if (body.token is None) == (body.invitation is None):
        raise Refusal(400, "BAD_REQUEST", "Send the token of a link, or the id of an invitation.")
    async with refusals():
        await teamwork.limit.count("teams", str(user))
        teamwork.require_own_people()
        team = await teamwork.teams.accept(user, token=body.token, invitation=body.invitation)
    return _answer(await _shown_team(teamwork, team))


async def _slack_log(
    who: Member,
    teamwork: Serving,
    status: Literal["SENT", "FAILED"] | None = None,
    notice: Annotated[int | None, Query(alias="notificationId", ge=1, le=2**63 - 1)] = None,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Older than the attempt of this id.")] = None,
    size: Annotated[int, Query(ge=1, le=_ATTEMPTS_MOST)] = 20,
) -> Response:
    async with refusals():
        found = await teamwork.attempts_of_team(
            who.user.teamId,
            by=user_of(who.access),
            role=who.user.teamRole,
            status=status,
            notice=notice,
            before=before,
            most=size,
        )
    return _answer(AttemptsAnswer(attempts=[_shown_attempt(one) for one in found]))


# --- what is shown ---------------------------------------------------------------------------------------------


async def _own_team(teamwork: Teamwork, team: int) -> TeamAnswer:
    return await _shown_team(teamwork, await teamwork.teams.find(team) or Team(team, ""))


async def _shown_team(teamwork: Teamwork, team: Team) -> TeamAnswer:
    rules = await teamwork.deadlines.rules_of(team.id)
    today = teamwork.deadlines.today_in(rules.zone).isoformat()
    return TeamAnswer(id=team.id, name=team.name, zone=str(rules.zone), deadlineDays=list(rules.days), today=today)


async def _invitations(teamwork: Teamwork, found: list[Invitation]) -> Response:
    return _answer(InvitationsAnswer(invitations=[await _shown_invitation(teamwork, one) for one in found]))


async def _shown_invitation(teamwork: Teamwork, one: Invitation) -> InvitationAnswer:
    team = await teamwork.teams.find(one.team)
    inviter = None if one.invited_by is None else await teamwork.people.find(one.invited_by)
    return InvitationAnswer(
        id=one.id,
        team="" if team is None else team.name,
        teamRole=one.role,
        userId=one.user,
        name=one.name,
        invitedBy="" if inviter is None else inviter.name,
        expiresAt=_moment(one.expires_at_ms),
    )


def _shown_member(user: int, person: UserSession) -> MemberAnswer:
    return MemberAnswer(
        id=user,
        name=person.name,
        email=person.email,
        role=person.role,
        teamRole=person.teamRole,
        slackId=person.slackId,
    )


def _shown_attempt(one: Attempt) -> AttemptAnswer:
    return AttemptAnswer(
        id=one.id,
        notificationId=one.notice,
        userId=one.user,
        channel=one.channel,
        status=one.status,
        errorMessage=one.error,
        retryCount=one.retries,
        sentAt=_moment(one.sent_at_ms),
    )


def _moment(ms: int) -> str:
    return moment(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def _answer(body: BaseModel) -> Response:
    return JSONResponse(body.model_dump(mode="json"), headers=NO_STORE)
