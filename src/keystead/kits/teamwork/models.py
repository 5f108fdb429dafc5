"""The values of the teamwork kit, with the names that their fields have in the store."""

from datetime import date
from typing import NamedTuple

from pydantic import ConfigDict, Field

from keystead.kits.camel_model import CamelModel
from keystead.schema import IsoSeconds, OmittedIfNone


class UserSession(CamelModel):
    """Who a user is and which team they work in, for each request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    email: str
    role: str
    """what they do: `DEVELOPER`"""
    team_id: int = Field(lt=2**63)
    """0: they are in no team"""
    team_role: str
    """what they may do in the team: `MEMBER`"""
    slack_id: OmittedIfNone[str] = None
    """by which id they are mentioned in Slack: `U012ABCDE`"""


class Said(CamelModel):
    """What a notice says: an event with its arguments, for the words of any language."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    event: str
    """what happened: `status-changed`"""
    doc: str
    """to what, as people call it: `WR-001`"""
    item: str = ""
    """its title"""
    actor: OmittedIfNone[str] = None
    """the name of who did it"""
    assignee_id: OmittedIfNone[int] = None
    """who works on it"""
    before: OmittedIfNone[str] = None
    after: OmittedIfNone[str] = None
    """its statuses"""
    text: OmittedIfNone[str] = None
    """what was written"""
    days: OmittedIfNone[int] = None
    """in how many days it is due"""
    due: OmittedIfNone[date] = None


class Notification(CamelModel):
    """A notice to a user about something that happened, as it is shown at once."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    notification_id: int
    type: str
    """what kind of thing happened"""
    title: str
    ref_type: str
    """to what kind of work item: `WORK_REQUEST`"""
    ref_id: int | str
    """its number, or whatever names it"""
    created_at: IsoSeconds
    said: OmittedIfNone[Said] = None
    """the same as `title`, for words in another language"""


class Deadline(NamedTuple):
    """What is due: one work item, by its kind and its number, or whatever names it."""

    ref_type: str
    ref_id: str


class DueItem(CamelModel):
    """What is told of a work item that is due."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    title: str
    doc_no: str
    """as people call it: `WR-001`"""
    due: date
    assignee_id: int | None = None
    told: str | None = None
    """for which day, mark and assignee it was told of last"""


class TeamSettings(CamelModel):
    """How a team works. What is not there is as the settings of the server say."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    zone: str | None = None
    """its time zone: `Asia/Seoul`"""
    deadline_days: str | None = None
    """how many days before a deadline its assignee is told: `7,3`"""


class DashboardSummary(CamelModel):
    """What waits for a user in a team, counted."""

    my_work_requests: int
    my_tech_tasks: int
    active_defects: int
    upcoming_deployments: int
    unread_notifications: int
    computed_at: IsoSeconds
