"""Models of the teamwork kit, with the field names that they have in the store."""

from datetime import date
from typing import NamedTuple

from pydantic import ConfigDict, Field

from keystead.kits.camel_model import CamelModel
from keystead.schema import IsoSeconds, OmittedIfNone


class UserSession(CamelModel):
    """A user and their team."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    email: str
    role: str
    """their job: `DEVELOPER`"""
    team_id: int = Field(lt=2**63)
    """0: no team"""
    team_role: str
    """their permissions in the team: `MEMBER`"""
    slack_id: OmittedIfNone[str] = None
    """their member id in Slack, for mentions: `U012ABCDE`"""


class NoticeArguments(CamelModel):
    """The content of a notice as an event with arguments, to be translated."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    event: str
    """the event: `status-changed`"""
    doc: str
    """the document number of the work item: `WR-001`"""
    item: str = ""
    """the title of the work item"""
    actor: OmittedIfNone[str] = None
    """the name of the user who did it"""
    assignee_id: OmittedIfNone[int] = None
    before: OmittedIfNone[str] = None
    """the status before"""
    after: OmittedIfNone[str] = None
    """the status after"""
    text: OmittedIfNone[str] = None
    """the text of a comment"""
    days: OmittedIfNone[int] = None
    """days until the deadline"""
    due: OmittedIfNone[date] = None


class Notification(CamelModel):
    """A notice to a user, as it is published."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    notification_id: int
    type: str
    """the type of the notice"""
    title: str
    ref_type: str
    """the type of the work item: `WORK_REQUEST`"""
    ref_id: int | str
    """the id of the work item"""
    created_at: IsoSeconds
    said: OmittedIfNone[NoticeArguments] = None
    """the arguments of `title`, to be translated"""


class Deadline(NamedTuple):
    """The work item that a deadline belongs to, by type and id."""

    ref_type: str
    ref_id: str


class DueItem(CamelModel):
    """A work item with a deadline."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    title: str
    doc_no: str
    """the document number: `WR-001`"""
    due: date
    assignee_id: int | None = None
    told: str | None = None
    """day, mark and assignee of the last notice"""


class TeamSettings(CamelModel):
    """Settings of a team. The server's settings are the defaults."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    zone: str | None = None
    """the time zone: `Asia/Seoul`"""
    deadline_days: str | None = None
    """how many days before a deadline its assignee is notified: `7,3`"""


class DashboardSummary(CamelModel):
    """Counts of a user's open work in a team."""

    my_work_requests: int
    my_tech_tasks: int
    active_defects: int
    upcoming_deployments: int
    unread_notifications: int
    computed_at: IsoSeconds
