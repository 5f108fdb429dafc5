"""A team at work: who is asking, what they are told, what is due, and what waits for them. It knows no HTTP."""

from keystead.kits.teamwork.service.dashboard import Count, Dashboard, Work
from keystead.kits.teamwork.service.deadlines import Deadlines, Due
from keystead.kits.teamwork.service.demo import PEOPLE as DEMO_PEOPLE
from keystead.kits.teamwork.service.demo import DemoPerson, DemoTeam, Happening, demo_person
from keystead.kits.teamwork.service.events import (
    Assigned,
    Commented,
    DeadlineNear,
    DefectRegistered,
    Event,
    Invited,
    StatusChanged,
    WorkItem,
)
from keystead.kits.teamwork.service.links import invitation_link
from keystead.kits.teamwork.service.messages import message_of, plain_message, title_of
from keystead.kits.teamwork.service.notices import PREFERENCES, TYPES, Notice, Notices, Page, Told
from keystead.kits.teamwork.service.people import People
from keystead.kits.teamwork.service.relay import Relay, ref_id_of
from keystead.kits.teamwork.service.settings import LIMITS, TeamworkSettings, missing
from keystead.kits.teamwork.service.slack import Attempt, Slack, SlackLog, SlackSender
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from keystead.kits.teamwork.service.teams import (
    LEADS,
    TEAM_ROLES,
    Invitation,
    NewInvitation,
    Team,
    TeamRefused,
    TeamRole,
    Teams,
)
from keystead.kits.teamwork.service.teamwork import Load, Teamwork, TooManyStreams, open_teamwork, user_of

__all__ = [
    "DEMO_PEOPLE",
    "LEADS",
    "LIMITS",
    "PREFERENCES",
    "TEAMWORK_TABLES",
    "TEAM_ROLES",
    "TYPES",
    "Assigned",
    "Attempt",
    "Commented",
    "Count",
    "Dashboard",
    "DeadlineNear",
    "Deadlines",
    "DefectRegistered",
    "DemoPerson",
    "DemoTeam",
    "Due",
    "Event",
    "Happening",
    "Invitation",
    "Invited",
    "Load",
    "NewInvitation",
    "Notice",
    "Notices",
    "Page",
    "People",
    "Relay",
    "Slack",
    "SlackLog",
    "SlackSender",
    "StatusChanged",
    "Team",
    "TeamRefused",
    "TeamRole",
    "Teams",
    "Teamwork",
    "TeamworkSettings",
    "Told",
    "TooManyStreams",
    "Work",
    "WorkItem",
    "demo_person",
    "invitation_link",
    "message_of",
    "missing",
    "open_teamwork",
    "plain_message",
    "ref_id_of",
    "title_of",
    "user_of",
]
