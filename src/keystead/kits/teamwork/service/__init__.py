"""The teamwork service: users, teams, notices, deadlines and dashboards, without HTTP."""

from keystead.kits.teamwork.service.dashboard import Count, Work
from keystead.kits.teamwork.service.demo import PEOPLE as DEMO_PEOPLE
from keystead.kits.teamwork.service.demo import DemoEvent, DemoTeam, demo_person
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
from keystead.kits.teamwork.service.notice_rows import Notice
from keystead.kits.teamwork.service.notice_types import TYPES
from keystead.kits.teamwork.service.relay import ref_id_of
from keystead.kits.teamwork.service.settings import LIMITS, TeamworkSettings, missing
from keystead.kits.teamwork.service.slack import Attempt
from keystead.kits.teamwork.service.streams import TooManyStreams
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from keystead.kits.teamwork.service.teams import Invitation, Team, TeamRefused, TeamRole
from keystead.kits.teamwork.service.teamwork import Load, Teamwork, open_teamwork, user_of

__all__ = [
    "DEMO_PEOPLE",
    "LIMITS",
    "TEAMWORK_TABLES",
    "TYPES",
    "Assigned",
    "Attempt",
    "Commented",
    "Count",
    "DeadlineNear",
    "DefectRegistered",
    "DemoEvent",
    "DemoTeam",
    "Event",
    "Invitation",
    "Invited",
    "Load",
    "Notice",
    "StatusChanged",
    "Team",
    "TeamRefused",
    "TeamRole",
    "Teamwork",
    "TeamworkSettings",
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
