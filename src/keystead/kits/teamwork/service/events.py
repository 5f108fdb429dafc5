"""Events of a team, and who is notified about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from keystead.catalogue import Language
from keystead.errors import BadValue
from keystead.kits.camel_model import CamelModel
from keystead.kits.teamwork.models import NoticeArguments
from keystead.kits.teamwork.service.messages import message_of, title_of
from keystead.kits.teamwork.service.notice_rows import NewNotice
from keystead.kits.teamwork.service.notice_types import (
    ACTION_ASSIGNED,
    ASSIGNED,
    COMMENTED,
    DEADLINE,
    DEFECT_REGISTERED,
    DEPLOYED,
    DEPLOYMENT_FAILED,
    IDEA_ADOPTED,
    MENTIONED,
    STATUS_CHANGED,
    TEAM_INVITED,
)
from keystead.kits.teamwork.service.tables import ID_MAX_BYTES
from keystead.parts.tables import checked_name

# WORK_REQUEST, TECH_TASK, TEST_SCENARIO, DEFECT, DEPLOYMENT, MEETING_NOTE, PROJECT_IDEA, KNOWLEDGE_BASE or another.
RefType: TypeAlias = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,62}$")]

CLOSED: Final[Mapping[str, frozenset[str]]] = {
    "WORK_REQUEST": frozenset({"완료", "반려"}),
    "TECH_TASK": frozenset({"완료", "반려"}),
    "TEST_SCENARIO": frozenset({"통과", "실패", "보류"}),
    "DEFECT": frozenset({"완료", "재현불가", "보류"}),
    "DEPLOYMENT": frozenset({"완료", "실패", "롤백"}),
}
_DEPLOYMENT_TYPES: Final[Mapping[str, str]] = {"완료": DEPLOYED, "실패": DEPLOYMENT_FAILED}
_ADOPTED: Final = "채택"
_MENTION: Final = re.compile(r"@\[[^\]\n]{1,100}\]\((\d{1,18})\)")
_MENTIONS_MAX: Final = 50
_TEXT_MAX: Final = 500
_DAYS_MAX: Final = 4_000_000  # more than between any two dates

User: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]


def _check_name(text: str) -> str:
    """Refuse text that some database cannot store as a key."""
    try:
        checked_name(text, ID_MAX_BYTES)
    except BadValue as error:
        raise ValueError(str(error)) from None
    return text


RefId: TypeAlias = (
    Annotated[int, Field(ge=0, le=2**53)]
    | Annotated[str, Field(min_length=1, max_length=ID_MAX_BYTES), AfterValidator(_check_name)]
)
EventId: TypeAlias = Annotated[str, Field(min_length=1, max_length=180), AfterValidator(_check_name)]


class WorkItem(CamelModel, frozen=True, extra="forbid"):
    """The work item of an event. `ownerId` requested, reported or proposed it; `assigneeId` works on it, or manages it
    if it is a deployment."""

    ref_type: RefType
    ref_id: RefId
    title: str = Field(max_length=_TEXT_MAX)
    doc_no: str = Field("", max_length=32)
    status: str = Field("", max_length=64)
    owner_id: User | None = None
    assignee_id: User | None = None

    @property
    def display_name(self) -> str:
        """The document number, such as `WR-001`, or type and id."""
        return self.doc_no or f"{self.ref_type} {self.ref_id}"

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED.get(self.ref_type, ())


class _ItemEvent(CamelModel, frozen=True, extra="forbid"):
    id: EventId = Field(description="A unique id, for deduplication: use the same one if you report the event again.")
    item: WorkItem
    actor_id: User | None = Field(None, description="The user who did it.")


class Assigned(_ItemEvent):
    """A work item was assigned to a user."""

    kind: Literal["assigned"] = "assigned"


class StatusChanged(_ItemEvent):
    """The status of a work item changed. `item.status` is the new one."""

    kind: Literal["status-changed"] = "status-changed"
    before: str = Field(max_length=64)


class Commented(_ItemEvent):
    """A user commented on a work item; `@[name](id)` in the text mentions a user."""

    kind: Literal["commented"] = "commented"
    text: str = Field(max_length=100_000)


class DefectRegistered(_ItemEvent):
    """A user reported a defect."""

    kind: Literal["defect-registered"] = "defect-registered"


class Invited(_ItemEvent):
    """A user was invited to a team, or got an action item."""

    kind: Literal["team-invited", "action-assigned"]
    user_id: User


class DeadlineNear(_ItemEvent):
    """A work item is due in some days. A negative number means overdue."""

    kind: Literal["deadline-near"] = "deadline-near"
    days: int = Field(ge=-_DAYS_MAX, le=_DAYS_MAX)
    due: date | None = None


Event: TypeAlias = Annotated[
    Assigned | StatusChanged | Commented | DefectRegistered | Invited | DeadlineNear, Field(discriminator="kind")
]


def notices_for(event: Event, language: Language = "en", *, actor: str | None = None) -> list[NewNotice]:
    """The notices of an event: at most one for each user. You are never notified about your own actions.

    actor   the name of the user who did it, if known
    """
    found: dict[int, NewNotice] = {}
    item = event.item
    for user, kind, text in _recipients(event):
        if (user == event.actor_id and not isinstance(event, DeadlineNear)) or user in found:
            continue
        said = _arguments_of(event, kind, text, actor)
        title, message = title_of(kind, said, language), message_of(said, language)
        found[user] = NewNotice(user, kind, title, message, item.ref_type, str(item.ref_id), said)
    return list(found.values())


def _arguments_of(event: Event, kind: str, text: str, actor: str | None) -> NoticeArguments:
    item = event.item
    is_change = isinstance(event, StatusChanged) and kind != IDEA_ADOPTED
    return NoticeArguments(
        event=event.kind,
        doc=item.title if kind == TEAM_INVITED and item.title else item.display_name,
        item=item.title,
        actor=actor or None,
        assignee_id=item.assignee_id,
        before=event.before if isinstance(event, StatusChanged) and is_change else None,
        after=item.status if is_change else None,
        text=text or None,
        days=event.days if isinstance(event, DeadlineNear) else None,
        due=event.due if isinstance(event, DeadlineNear) else None,
    )


def _recipients(event: Event) -> Iterator[tuple[int, str, str]]:
    """Users, each with the type and text of the notice. If a user is repeated, the first one counts."""
    item = event.item
    if isinstance(event, Assigned):
        yield from _each(ASSIGNED, item.assignee_id)
    elif isinstance(event, StatusChanged):
        yield from _recipients_of_status(event)
    elif isinstance(event, Commented):
        text = event.text[:_TEXT_MAX]
        mentioned = list(dict.fromkeys(map(int, _MENTION.findall(event.text))))[:_MENTIONS_MAX]
        yield from ((user, MENTIONED, text) for user in mentioned if user > 0)
        yield from _each(COMMENTED, item.owner_id, item.assignee_id, text=text)
    elif isinstance(event, DefectRegistered):
        yield from _each(DEFECT_REGISTERED, item.assignee_id)
    elif isinstance(event, Invited):
        yield event.user_id, TEAM_INVITED if event.kind == "team-invited" else ACTION_ASSIGNED, ""
    else:
        yield from _each(DEADLINE, item.assignee_id)


def _recipients_of_status(event: StatusChanged) -> Iterator[tuple[int, str, str]]:
    item = event.item
    if event.before == item.status:
        return
    if item.ref_type == "DEPLOYMENT":
        yield from _each(_DEPLOYMENT_TYPES.get(item.status, STATUS_CHANGED), item.assignee_id)
    elif item.ref_type == "PROJECT_IDEA" and item.status == _ADOPTED:
        yield from _each(IDEA_ADOPTED, item.owner_id)
    else:
        yield from _each(STATUS_CHANGED, item.owner_id, item.assignee_id)


def _each(kind: str, *users: int | None, text: str = "") -> Iterator[tuple[int, str, str]]:
    yield from ((user, kind, text) for user in users if user is not None)
