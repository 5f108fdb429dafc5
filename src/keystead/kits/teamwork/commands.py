"""Manage teams: people, invitations, roles, time zones, deadlines, and the Slack log."""

from __future__ import annotations

import logging
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keystead.errors import BadValue, KeysteadError
from keystead.kits.kit_command import KitCommand, Shown
from keystead.parts.sanitize import visible
from keystead.schema.times import moment

if TYPE_CHECKING:
    from keystead.kits.teamwork.models import UserSession
    from keystead.kits.teamwork.service import Invitation, Team, Teamwork

_security = logging.getLogger("keystead.security")
_ROW_MAX = 1_000

TeamArgument = Annotated[int, typer.Argument(metavar="TEAM", help="The number of the team.", min=1)]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The number or the name of a member.")]
ZoneOption = Annotated[
    str | None, typer.Option("--zone", metavar="ZONE", help="The time zone, such as Asia/Seoul.", show_default=False)
]
DaysOption = Annotated[
    str | None,
    typer.Option(
        "--days",
        metavar="DAYS",
        help="How many days before a deadline its assignee is notified, such as 7,3.",
        show_default=False,
    ),
]
RoleOption = Annotated[str, typer.Option("--role", metavar="ROLE", help="OWNER, ADMIN or MEMBER.")]
LimitOption = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, max=1000, help="The most rows to show.")]


# --- teams and people --------------------------------------------------------------------------------------------


async def create_team(
    teamwork: Teamwork,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the team.")],
    zone: ZoneOption = None,
    days: DaysOption = None,
    owner: Annotated[
        int | None,
        typer.Option(metavar="USER", min=1, help="The owner: a user without a team.", show_default=False),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=1, help="Its number, if another program sets it.", show_default=False),
    ] = None,
) -> Shown:
    """Create a team.

    [bold]Examples[/bold]

      keystead teamwork create-team "Print shop" --zone Asia/Seoul --days 7,3
    """
    team = await teamwork.create_team(name, owner=owner, number=number, zone=zone, days=_parse_days(days))
    return await _show_team(teamwork, team, f"Invite people: keystead teamwork invite {team.id} --role OWNER")


async def teams(teamwork: Teamwork) -> Shown:
    """List the teams with their number of members."""
    found = await teamwork.teams.all()
    lines = [f"{team.id}  {team.name or '(no name)'}  {_count_people(count)}" for team, count in found]
    data = [{"id": team.id, "name": team.name, "members": count} for team, count in found]
    return Shown("\n".join(lines) or "there are no teams", data)


async def settings(
    teamwork: Teamwork,
    team: TeamArgument,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The new name.", show_default=False)] = None,
    zone: ZoneOption = None,
    days: DaysOption = None,
) -> Shown:
    """Show or change the settings of a team: its name, time zone, and deadline notices.

    [bold]Examples[/bold]

      keystead teamwork settings 1

      keystead teamwork settings 1 --zone Europe/Berlin --days 14,3,1
    """
    await _require_team(teamwork, team)
    await teamwork.change_team(team, name=name, zone=zone, days=_parse_days(days))
    return await _show_team(teamwork, await _require_team(teamwork, team))


async def members(teamwork: Teamwork, team: TeamArgument) -> Shown:
    """List the members of a team with their roles."""
    await _require_team(teamwork, team)
    found = await teamwork.people.members(team)
    lines = [_describe_person(user, person) for user, person in found.items()]
    data = [{"id": user, **person.model_dump()} for user, person in found.items()]
    return Shown("\n".join(lines) or "this team has no members", data)


async def add_person(
    teamwork: Teamwork,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Their name.")],
    email: Annotated[str, typer.Option(metavar="ADDRESS", help="Their e-mail address.", show_default=False)] = "",
    slack: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Their member id in Slack, such as U012ABCDE.", show_default=False),
    ] = None,
    team: Annotated[
        int | None, typer.Option(metavar="TEAM", min=1, help="The team that they join.", show_default=False)
    ] = None,
    role: RoleOption = "MEMBER",
) -> Shown:
    """Add a user who does not sign in, such as a program that reports events.

    Invite people by a link instead: they are added when they use it.

    [bold]Examples[/bold]

      keystead teamwork add-person "Build server" --team 1
    """
    teamwork.require_own_people()
    if team is not None:
        await _require_team(teamwork, team)
    user = await teamwork.people.add(name, email=email, slack_id=slack)
    if team is not None:
        new = await teamwork.teams.invite(team, role=role, user=user)
        await teamwork.teams.accept(user, invitation=new.invitation.id)
    return await _show_person(teamwork, user)


async def set_role(
    teamwork: Teamwork,
    team: TeamArgument,
    user: UserArgument,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="OWNER, ADMIN or MEMBER.")],
) -> Shown:
    """Change the role of a member."""
    number = await _find_member(teamwork, team, user)
    await teamwork.change_member(team, number, role=role)
    return await _show_person(teamwork, number)


async def set_slack(
    teamwork: Teamwork,
    team: TeamArgument,
    user: UserArgument,
    slack: Annotated[
        str,
        typer.Argument(metavar="ID", help='Their member id in Slack, such as U012ABCDE; "" removes it.'),
    ],
) -> Shown:
    """Set the Slack member id of a user, for mentions.

    Find it in the Slack profile of the member: More, Copy member ID.
    """
    number = await _find_member(teamwork, team, user)
    await teamwork.change_member(team, number, slack_id=slack)
    return await _show_person(teamwork, number)


async def remove(teamwork: Teamwork, team: TeamArgument, user: UserArgument) -> Shown:
    """Remove a member from a team. They keep their notices."""
    teamwork.require_own_people()
    number = await _find_member(teamwork, team, user)
    await teamwork.teams.remove(team, number)
    return Shown(f"user {number} was removed from team {team}", {"team": team, "user": number})


# --- invitations -------------------------------------------------------------------------------------------------


async def invite(
    teamwork: Teamwork,
    team: TeamArgument,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="The invited person, shown in the list.", show_default=False)
    ] = "",
    role: RoleOption = "MEMBER",
    user: Annotated[
        int | None,
        typer.Option(metavar="USER", min=1, help="The only user who can accept it.", show_default=False),
    ] = None,
) -> Shown:
    """Invite a person to a team by a link. The link is shown once, and works once.

    [bold]Examples[/bold]

      keystead teamwork invite 1 Mei --role ADMIN

      keystead teamwork invite 1 --user 42
    """
    from keystead.kits.teamwork.service import invitation_link

    await _require_team(teamwork, team)
    new = await teamwork.invite(team, role=role, user=user, name=name)
    link = invitation_link(teamwork.site.public_url, new.token)
    return Shown(
        link,
        {**_invitation_data(new.invitation), "link": link},
        note=f"The link is shown once, and works once, until {_moment(new.invitation.expires_at_ms)}. "
        f"To withdraw it: keystead teamwork withdraw {team} {new.invitation.id}",
    )


async def invitations(teamwork: Teamwork, team: TeamArgument) -> Shown:
    """List the open invitations of a team, without their links."""
    await _require_team(teamwork, team)
    found = await teamwork.teams.invitations(team)
    lines = [
        f"{one.id}  {one.role}  {one.name or ('anyone with the link' if one.user is None else f'user {one.user}')}"
        f"  until {_moment(one.expires_at_ms)}"
        for one in found
    ]
    return Shown("\n".join(lines) or "there are no open invitations", [_invitation_data(one) for one in found])


async def withdraw(
    teamwork: Teamwork,
    team: TeamArgument,
    invitation: Annotated[int, typer.Argument(metavar="ID", help="The number of the invitation.", min=1)],
) -> Shown:
    """Withdraw an invitation. Its link stops working."""
    await teamwork.teams.withdraw(team, invitation)
    return Shown(f"invitation {invitation} was withdrawn", {"team": team, "invitation": invitation})


async def token(
    teamwork: Teamwork, user: Annotated[int, typer.Argument(metavar="USER", help="The number of the user.", min=1)]
) -> Shown:
    """Issue an access token, for example for a program that reports events. It is shown once.

    The setting token_lifetime is its lifetime.
    """
    person = await _require_person(teamwork, user)
    new = teamwork.tokens.issue(str(user))
    _security.info("an operator issued an access token", extra={"event": "token-issued", "user": user})
    return Shown(
        new.token,
        {"token": new.token, "expiresAt": new.expires_at_ms, "user": user},
        note=f"For {person.name}, until {_moment(new.expires_at_ms)}.",
    )


# --- deadlines and Slack -----------------------------------------------------------------------------------------


async def add_deadline(
    teamwork: Teamwork,
    team: TeamArgument,
    item: Annotated[str, typer.Argument(metavar="TYPE:ID", help="The work item, such as WORK_REQUEST:101.")],
    due: Annotated[str, typer.Argument(metavar="DAY", help="The due day, such as 2026-03-03.")],
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The title of the work item.")],
    assignee: Annotated[
        str | None,
        typer.Option(metavar="USER", help="The assignee: the number or the name of a member.", show_default=False),
    ] = None,
    number: Annotated[
        str, typer.Option(metavar="NAME", help="The document number, such as WR-101.", show_default=False)
    ] = "",
) -> Shown:
    """Add or move a deadline of a team.

    [bold]Examples[/bold]

      keystead teamwork add-deadline 1 WORK_REQUEST:101 2026-03-03 "Print invoices" --assignee Mei
    """
    await _require_team(teamwork, team)
    who = None if assignee is None else await _find_member(teamwork, team, assignee)
    ref, day = _parse_ref(item), _parse_day(due)
    is_new = await teamwork.deadlines.register(team, ref, day, title=title, doc_no=number, assignee=who)
    return Shown(f"{item} is due on {due}", {"team": team, "item": item, "due": due, "new": is_new})


async def deadlines(teamwork: Teamwork, team: TeamArgument) -> Shown:
    """List the deadlines of a team, with the days left in its time zone."""
    await _require_team(teamwork, team)
    rules = await teamwork.deadlines.rules_of(team)
    today = teamwork.deadlines.today_in(rules.zone)
    found = await teamwork.deadlines.between(team)
    data = [
        {
            "item": f"{one.ref.ref_type}:{one.ref.ref_id}",
            "due": one.due.isoformat(),
            "days": (one.due - today).days,
            "title": one.title,
            "assignee": one.assignee_id,
        }
        for one in found
    ]
    lines = [
        # One line each, even if a title contains control characters.
        visible(f"{one['due']}  {one['item']}  {one['days']} days  {one['title']}", _ROW_MAX)
        + (f"  (user {one['assignee']})" if one["assignee"] else "")
        for one in data
    ]
    return Shown("\n".join(lines) or "there are no deadlines", {"today": today.isoformat(), "items": data})


async def done(
    teamwork: Teamwork,
    team: TeamArgument,
    item: Annotated[str, typer.Argument(metavar="TYPE:ID", help="The work item, such as WORK_REQUEST:101.")],
) -> Shown:
    """Complete a deadline of a team. The exit code is 1 if there is none."""
    is_done = await teamwork.deadlines.complete(team, _parse_ref(item))
    text = f"{item} is done" if is_done else f"there is no deadline of {item} in team {team}"
    return Shown(text, {"team": team, "item": item, "done": is_done}, code=0 if is_done else 1)


async def slack_log(
    teamwork: Teamwork,
    team: Annotated[
        int | None, typer.Option(metavar="TEAM", min=1, help="Only of this team.", show_default=False)
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", metavar="", help="Only failed attempts.")] = False,
    limit: LimitOption = 20,
) -> Shown:
    """Show the attempts to post to Slack, newest first: time, status, notice, user and error.

    They are kept for 90 days (keep_slack_log), also while Slack is off.

    [bold]Examples[/bold]

      keystead teamwork slack-log --failed
    """
    status = "FAILED" if failed else None
    if team is None:
        found = await teamwork.slack_log.attempts(status=status, most=limit)
    else:
        found = await teamwork.attempts_of_team(team, status=status, most=limit)
    lines = [
        f"{_moment(one.sent_at_ms)}  {one.status}  notice {one.notice}  user {one.user}"
        + (f"  {one.error}" if one.error else "")
        for one in found
    ]
    data = [
        {
            "id": one.id,
            "notice": one.notice,
            "user": one.user,
            "channel": one.channel,
            "status": one.status,
            "error": one.error,
            "retries": one.retries,
            "sent": _moment(one.sent_at_ms),
            "payload": one.payload,
        }
        for one in found
    ]
    off = "" if teamwork.slack is not None else "Slack is not configured; set slack_webhook_url or slack_token."
    return Shown("\n".join(lines) or "nothing has been sent to Slack yet", data, note=off)


COMMANDS: tuple[KitCommand, ...] = (
    create_team,
    teams,
    settings,
    members,
    invite,
    invitations,
    withdraw,
    add_person,
    set_role,
    set_slack,
    remove,
    token,
    add_deadline,
    deadlines,
    done,
    slack_log,
)


# --- lookups and formatting --------------------------------------------------------------------------------------


class NoSuchTeam(KeysteadError):
    """There is no team, or no user, with this number."""

    code = "no-such-team"


async def _require_team(teamwork: Teamwork, team: int) -> Team:
    from keystead.kits.teamwork.service import Team

    found = await teamwork.teams.find(team)
    if found is None and team in await teamwork.keys.due_teams().members().if_readable():
        return Team(team, "")  # an application manages its people
    if found is None:
        raise NoSuchTeam(f"there is no team {team}; `keystead teamwork teams` lists them")
    return found


async def _find_member(teamwork: Teamwork, team: int, text: str) -> int:
    """The number of a member, given by number or name.

    Numbers come first: people choose their names, and a name may be another member's number.
    """
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
    if await teamwork.of_team(team, {number}):
        return number
    people = await teamwork.people.members(team)
    named = [user for user, person in people.items() if person.name == text]
    if len(named) > 1:
        raise NoSuchTeam(f"team {team} has several members named {text}: use one of {', '.join(map(str, named))}")
    if not named:
        raise NoSuchTeam(f"there is no {text} in team {team}; `keystead teamwork members {team}` lists them")
    return named[0]


async def _require_person(teamwork: Teamwork, user: int) -> UserSession:
    found = await teamwork.person(user)
    if found is None:
        raise NoSuchTeam(f"there is no user {user}; `keystead teamwork members TEAM` lists those of a team")
    return found


async def _show_person(teamwork: Teamwork, user: int) -> Shown:
    person = await _require_person(teamwork, user)
    return Shown(_describe_person(user, person), {"id": user, **person.model_dump()})


async def _show_team(teamwork: Teamwork, team: Team, note: str = "") -> Shown:
    rules = await teamwork.deadlines.rules_of(team.id)
    today = teamwork.deadlines.today_in(rules.zone).isoformat()
    days = ", ".join(map(str, reversed(rules.days)))
    title = f"team {team.id}" + (f", {team.name}" if team.name else "")
    text = f"{title}: {rules.zone}, where it is {today}; notified {days} days before a deadline"
    data = {"id": team.id, "name": team.name, "zone": str(rules.zone), "days": list(rules.days), "today": today}
    return Shown(text, data, note=note)


def _describe_person(user: int, person: UserSession) -> str:
    details = [person.team_role or "no team", person.email, f"Slack {person.slack_id}" if person.slack_id else ""]
    return f"{user}  {person.name}  " + "  ".join(one for one in details if one)


def _invitation_data(one: Invitation) -> dict[str, Any]:
    return {
        "id": one.id,
        "team": one.team,
        "role": one.role,
        "user": one.user,
        "name": one.name,
        "expires": _moment(one.expires_at_ms),
    }


def _count_people(count: int) -> str:
    return "1 person" if count == 1 else f"{count:,} people"


def _parse_days(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise BadValue("--days must be a list of whole numbers, such as 7,3") from None


def _parse_ref(text: str) -> Any:
    from keystead.kits.teamwork.models import Deadline

    kind, separator, number = text.partition(":")
    if not separator or not number:
        raise BadValue("write a work item as TYPE:ID, such as WORK_REQUEST:101")
    return Deadline(kind, number)


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadValue("write a day as YYYY-MM-DD, such as 2026-03-03") from None


def _moment(ms: int) -> str:
    return f"{moment(ms):%Y-%m-%d %H:%M} UTC"
