"""The values of the teamwork kit, with the names that their fields have in the store."""

# ruff: noqa: N815 - fields are named as they are stored

from datetime import date
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from keystead.schema import IsoSeconds, OmittedIfNone


class UserSession(BaseModel):
    """Who a user is and which team they work in, for each request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    email: str
    role: str
    """what they do: `DEVELOPER`"""
    teamId: int = Field(lt=2**63)
    """0: they are in no team"""
    teamRole: str
    """what they may do in the team: `MEMBER`"""
    slackId: OmittedIfNone[str] = None
    """by which id they are mentioned in Slack: `U012ABCDE`"""


class Said(BaseModel):
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
    assigneeId: OmittedIfNone[int] = None
    """who works on it"""
    before: OmittedIfNone[str] = None
    after: OmittedIfNone[str] = None
    """its statuses"""
    text: OmittedIfNone[str] = None
    """what was written"""
    days: OmittedIfNone[int] = None
    """in how many days it is due"""
    due: OmittedIfNone[date] = None


class Notification(BaseModel):
    """A notice to a user about something that happened, as it is shown at once."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    notificationId: int
    type: str
    """what kind of thing happened"""
    title: str
    refType: str
    """to what kind of work item: `WORK_REQUEST`"""
    refId: int | str
    """its number, or whatever names it"""
    createdAt: IsoSeconds
    said: OmittedIfNone[Said] = None
    """the same as `title`, for words in another language"""


class Deadline(NamedTuple):
    """What is due: one work item, by its kind and its number, or whatever names it."""

    ref_type: str
    ref_id: str


class DueItem(BaseModel):
    """What is told of a work item that is due."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    title: str
    docNo: str
    """as people call it: `WR-001`"""
    due: date
    assigneeId: int | None = None
    told: str | None = None
    """for which day, mark and assignee it was told of last"""


class TeamSettings(BaseModel):
    """How a team works. What is not there is as the settings of the server say."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    zone: str | None = None
    """its time zone: `Asia/Seoul`"""
    deadlineDays: str | None = None
    """how many days before a deadline its assignee is told: `7,3`"""


class DashboardSummary(BaseModel):
    """What waits for a user in a team, counted."""

    myWorkRequests: int
    myTechTasks: int
    activeDefects: int
    upcomingDeployments: int
    unreadNotifications: int
    computedAt: IsoSeconds
