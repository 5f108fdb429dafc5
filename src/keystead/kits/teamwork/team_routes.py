"""The HTTP routes of teams: members, roles, invitations, settings and the Slack log."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Query
from fastapi.responses import Response
from pydantic import Field

from keystead.errors import BadCall, BadValue
from keystead.http.rate_limits import too_many_requests
from keystead.http.refusals import Refusal, statuses
from keystead.http.responses import json_response
from keystead.http.routing import KitRouter
from keystead.kits.camel_model import CamelBody, CamelModel
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
from keystead.kits.teamwork.who import Member, Service, Who
from keystead.kits.visit import Ok
from keystead.parts.limit import LimitReached
from keystead.schema.times import moment

STATUS: Final = statuses(
    {
        403: "FORBIDDEN",
        404: "NOT_FOUND",
        409: "ALREADY_IN_TEAM LAST_OWNER TOO_MANY_INVITATIONS PEOPLE_ELSEWHERE",
        410: "INVITATION_INVALID",
    }
)
_ATTEMPTS_MAX: Final = 100

DaysList = Annotated[list[Annotated[int, Field(ge=0, le=365)]], Field(min_length=1, max_length=20)]
UserId = Annotated[int, Field(ge=1, le=2**63 - 1)]


# --- request and response bodies -------------------------------------------------------------------------------


class NewTeamBody(CamelBody, extra="forbid"):
    name: str = Field(min_length=1, max_length=100)
    zone: str | None = Field(None, max_length=64)
    deadline_days: DaysList | None = None


class TeamBody(CamelBody, extra="forbid"):
    """The settings to change; omitted ones stay."""

    name: str | None = Field(None, min_length=1, max_length=100)
    zone: str | None = Field(None, max_length=64)
    deadline_days: DaysList | None = None


class MemberBody(CamelBody, extra="forbid"):
    """The fields to change; omitted ones stay. An empty `slackId` removes it."""

    team_role: TeamRole | None = None
    slack_id: str | None = Field(None, max_length=64)


class InviteBody(CamelBody, extra="forbid"):
    team_role: TeamRole = "MEMBER"
    user_id: UserId | None = Field(None, description="The only user who can accept it.")
    name: str = Field("", max_length=200, description="The invited person, shown in the list of invitations.")


class LinkBody(CamelBody, extra="forbid"):
    token: str = Field(min_length=1, max_length=200, description="The part of the link after `#invitation=`.")


class AcceptBody(CamelBody, extra="forbid"):
    token: str | None = Field(None, min_length=1, max_length=200)
    invitation: int | None = Field(None, ge=1, le=2**63 - 1, description="The id of a personal invitation.")


class TeamAnswer(CamelModel):
    id: int
    name: str
    zone: str
    deadline_days: list[int]
    today: str = Field(description="The current day in the time zone of the team.")


class MemberAnswer(CamelModel):
    id: int
    name: str
    email: str
    role: str
    team_role: str
    slack_id: str | None = None


class MembersAnswer(CamelModel):
    members: list[MemberAnswer]


class InvitationAnswer(CamelModel):
    id: int
    team: str = Field(description="The name of the team.")
    team_role: str
    user_id: int | None
    name: str
    invited_by: str = Field(description="The name of the inviter; empty for an operator.")
    expires_at: str


class InvitationsAnswer(CamelModel):
    invitations: list[InvitationAnswer]


class NewInvitationAnswer(InvitationAnswer):
    link: str = Field(description="Valid for one use. Only this response contains it.")


class AttemptAnswer(CamelModel):
    id: int
    notification_id: int
    user_id: int
    channel: str
    status: Literal["SENT", "FAILED"]
    error_message: str | None
    retry_count: int
    sent_at: str


class AttemptsAnswer(CamelModel):
    attempts: list[AttemptAnswer]


# --- the routes ------------------------------------------------------------------------------------------------


def add_team_routes(routes: KitRouter) -> None:
    add = routes.add
    add("POST /api/teams", _create, "Create a team and become its owner", TeamAnswer)
    base = "/api/team"
    add(f"GET {base}", _get_team, "Get my team and its settings", TeamAnswer)
    add(f"PATCH {base}", _change_team, "Change the settings of my team", TeamAnswer)
    add(f"GET {base}/members", _list_members, "List the members of my team", MembersAnswer)
    one = f"{base}/members/{{id}}"
    add(f"PATCH {one}", _change_member, "Change a member's role or Slack id", Ok)
    add(f"DELETE {one}", _remove, "Remove a member from my team", Ok)
    add(f"POST {base}/leave", _leave, "Leave my team", Ok)
    invitations = f"{base}/invitations"
    add(f"POST {invitations}", _invite, "Invite a person to my team", NewInvitationAnswer)
    add(f"GET {invitations}", _list_invitations, "List the open invitations of my team", InvitationsAnswer)
    add(f"DELETE {invitations}/{{id}}", _withdraw, "Withdraw an invitation", Ok)
    add("GET /api/invitations", _list_own_invitations, "List my invitations", InvitationsAnswer)
    add("POST /api/invitations/look", _preview_invitation, "Preview the invitation of a link", InvitationAnswer)
    add("POST /api/invitations/accept", _accept, "Accept an invitation", TeamAnswer)
    add(f"GET {base}/slack-log", _slack_log, "List the Slack messages of my team", AttemptsAnswer)


def refusal_of(error: Exception) -> Refusal | None:
    """The HTTP error for an error of the service; None: it is not a refusal."""
    match error:
        case TeamRefused(reason=reason):
            return Refusal(STATUS[reason], reason, str(error))
        case LimitReached():
            return too_many_requests(error)
        case BadValue() if not isinstance(error, BadCall):
            return Refusal(400, "BAD_REQUEST", str(error))
    return None


async def _create(who: Who, teamwork: Service, body: NewTeamBody) -> Response:
    user = user_of(who.access)
    await teamwork.limit.count("teams", str(user))
    team = await teamwork.create_team(body.name, owner=user, zone=body.zone, days=body.deadline_days)
    return json_response(await _show_team(teamwork, team))


async def _get_team(who: Member, teamwork: Service) -> Response:
    return json_response(await _own_team(teamwork, who.user.team_id))


async def _change_team(who: Member, teamwork: Service, body: TeamBody) -> Response:
    await teamwork.change_team(
        who.user.team_id,
        name=body.name,
        zone=body.zone,
        days=body.deadline_days,
        by=user_of(who.access),
        role=who.user.team_role,
    )
    return json_response(await _own_team(teamwork, who.user.team_id))


async def _list_members(who: Member, teamwork: Service) -> Response:
    teamwork.require_own_people()
    found = await teamwork.people.members(who.user.team_id)
    members = [MemberAnswer(id=user, **person.model_dump()) for user, person in found.items()]
    return json_response(MembersAnswer(members=members))


async def _change_member(who: Member, teamwork: Service, id: UserId, body: MemberBody) -> Response:
    await teamwork.change_member(
        who.user.team_id, id, role=body.team_role, slack_id=body.slack_id, by=user_of(who.access)
    )
    return json_response(Ok())


async def _remove(who: Member, teamwork: Service, id: UserId) -> Response:
    teamwork.require_own_people()
    await teamwork.teams.remove(who.user.team_id, id, by=user_of(who.access))
    return json_response(Ok())


async def _leave(who: Member, teamwork: Service) -> Response:
    user = user_of(who.access)
    teamwork.require_own_people()
    await teamwork.teams.remove(who.user.team_id, user, by=user)
    return json_response(Ok())


async def _invite(who: Member, teamwork: Service, body: InviteBody) -> Response:
    user = user_of(who.access)
    await teamwork.limit.count("teams", str(user))
    new = await teamwork.invite(who.user.team_id, role=body.team_role, user=body.user_id, name=body.name, by=user)
    shown = await _show_invitation(teamwork, new.invitation)
    link = invitation_link(teamwork.site.public_url, new.token)
    return json_response(NewInvitationAnswer(**shown.model_dump(), link=link))


async def _list_invitations(who: Member, teamwork: Service) -> Response:
    await teamwork.teams.require_lead(who.user.team_id, user_of(who.access))
    return await _show_invitations(teamwork, await teamwork.teams.invitations(who.user.team_id))


async def _withdraw(who: Member, teamwork: Service, id: UserId) -> Response:
    await teamwork.teams.withdraw(who.user.team_id, id, by=user_of(who.access))
    return json_response(Ok())


async def _list_own_invitations(who: Who, teamwork: Service) -> Response:
    return await _show_invitations(teamwork, await teamwork.teams.invitations_to(user_of(who.access)))


async def _preview_invitation(who: Who, teamwork: Service, body: LinkBody) -> Response:
    user = user_of(who.access)
    await teamwork.limit.count("teams", str(user))
    found = await teamwork.teams.find_invitation(body.token)
    if found is None or found.user not in (None, user):
        raise TeamRefused("INVITATION_INVALID")
    return json_response(await _show_invitation(teamwork, found))


async def _accept(who: Who, teamwork: Service, body: AcceptBody) -> Response:
    """Accept by the token of a link, or by the id of a personal invitation."""
    user = user_of(who.access)
    if (body.token is None) == (body.invitation is None):
        raise Refusal(400, "BAD_REQUEST", "Send the token of a link, or the id of an invitation.")
    await teamwork.limit.count("teams", str(user))
    teamwork.require_own_people()
    team = await teamwork.teams.accept(user, token=body.token, invitation=body.invitation)
    return json_response(await _show_team(teamwork, team))


async def _slack_log(
    who: Member,
    teamwork: Service,
    status: Literal["SENT", "FAILED"] | None = None,
    notice: Annotated[int | None, Query(alias="notificationId", ge=1, le=2**63 - 1)] = None,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Older than the attempt of this id.")] = None,
    size: Annotated[int, Query(ge=1, le=_ATTEMPTS_MAX)] = 20,
) -> Response:
    found = await teamwork.attempts_of_team(
        who.user.team_id,
        by=user_of(who.access),
        role=who.user.team_role,
        status=status,
        notice=notice,
        before=before,
        most=size,
    )
    return json_response(AttemptsAnswer(attempts=[_show_attempt(one) for one in found]))


# --- conversion to responses -----------------------------------------------------------------------------------


async def _own_team(teamwork: Teamwork, team: int) -> TeamAnswer:
    return await _show_team(teamwork, await teamwork.teams.find(team) or Team(team, ""))


async def _show_team(teamwork: Teamwork, team: Team) -> TeamAnswer:
    rules = await teamwork.deadlines.rules_of(team.id)
    today = teamwork.deadlines.today_in(rules.zone).isoformat()
    return TeamAnswer(id=team.id, name=team.name, zone=str(rules.zone), deadline_days=list(rules.days), today=today)


async def _show_invitations(teamwork: Teamwork, found: list[Invitation]) -> Response:
    return json_response(InvitationsAnswer(invitations=[await _show_invitation(teamwork, one) for one in found]))


async def _show_invitation(teamwork: Teamwork, one: Invitation) -> InvitationAnswer:
    team = await teamwork.teams.find(one.team)
    inviter = None if one.invited_by is None else await teamwork.people.find(one.invited_by)
    return InvitationAnswer(
        id=one.id,
        team="" if team is None else team.name,
        team_role=one.role,
        user_id=one.user,
        name=one.name,
        invited_by="" if inviter is None else inviter.name,
        expires_at=iso_time(one.expires_at_ms),
    )


def _show_attempt(one: Attempt) -> AttemptAnswer:
    return AttemptAnswer(
        id=one.id,
        notification_id=one.notice,
        user_id=one.user,
        channel=one.channel,
        status=one.status,
        error_message=one.error,
        retry_count=one.retries,
        sent_at=iso_time(one.sent_at_ms),
    )


def iso_time(ms: int) -> str:
    return moment(ms).strftime("%Y-%m-%dT%H:%M:%SZ")
