"""Events of a team, and who is notified about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from keystead.errors import BadValue
from keystead.kits.camel_model import CamelModel
from keystead.kits.language import Language
from keystead.kits.teamwork.models import Said
from keystead.kits.teamwork.service.messages import message_of, title_of
from keystead.kits.teamwork.service.notice_rows import Told
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

# WORK_REQUEST, TECH_TASK, TEST_SCENARIO, DEFECT, DEPLOYMENT, MEETING_NOTE, PROJECT_IDEA, KNOWLEDGE_BASE, or your own.
RefType: TypeAlias = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,62}$")]

# The statuses in which nothing more is to be done, and so nothing is due.
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
_MENTIONS_MOST: Final = 50
_TEXT_MOST: Final = 500
_DAYS_MOST: Final = 4_000_000  # from the first day that can be written to the last

User: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]


def _check_name(text: str) -> str:
    """Refuse a text that some database cannot store as a key."""
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
    """What an event is about. `ownerId` has asked for it, reported it or proposed it; `assigneeId` works on it, and
    manages it where it is a deployment."""

    ref_type: RefType
    ref_id: RefId
    title: str = Field(max_length=_TEXT_MOST)
    doc_no: str = Field("", max_length=32)
    status: str = Field("", max_length=64)
    owner_id: User | None = None
    assignee_id: User | None = None

    @property
    def called(self) -> str:
        """As people call it: `WR-001`."""
        return self.doc_no or f"{self.ref_type} {self.ref_id}"

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED.get(self.ref_type, ())


class _OfItem(CamelModel, frozen=True, extra="forbid"):
    id: EventId = Field(description="The same each time that it is told of.")
    item: WorkItem
    actor_id: User | None = Field(None, description="Who did it.")


class Assigned(_OfItem):
    """Somebody was given a work item."""

    kind: Literal["assigned"] = "assigned"


class StatusChanged(_OfItem):
    """A work item has another status: `item.status` is the new one."""

    kind: Literal["status-changed"] = "status-changed"
    before: str = Field(max_length=64)


class Commented(_OfItem):
    """Somebody wrote a comment; `@[name](id)` in it mentions a user."""

    kind: Literal["commented"] = "commented"
    text: str = Field(max_length=100_000)


class DefectRegistered(_OfItem):
    """Somebody reported a defect."""

    kind: Literal["defect-registered"] = "defect-registered"


class Invited(_OfItem):
    """Somebody was asked into a team, or given an action item."""

    kind: Literal["team-invited", "action-assigned"]
    user_id: User


class DeadlineNear(_OfItem):
    """A work item is due in so many days; a number below 0: it was due so many days ago."""

    kind: Literal["deadline-near"] = "deadline-near"
    days: int = Field(ge=-_DAYS_MOST, le=_DAYS_MOST)
    due: date | None = None


Event: TypeAlias = Annotated[
    Assigned | StatusChanged | Commented | DefectRegistered | Invited | DeadlineNear, Field(discriminator="kind")
]


def told_by(event: Event, language: Language = "en", *, actor: str | None = None) -> list[Told]:
    """The notices of an event: at most one for each user. You are never notified about your own actions.

    actor   the name of who did it, where it is known
    """
    found: dict[int, Told] = {}
    item = event.item
    for user, kind, text in _recipients(event):
        if (user == event.actor_id and not isinstance(event, DeadlineNear)) or user in found:
            continue
        said = _make_said(event, kind, text, actor)
        words = title_of(kind, said, language), message_of(said, language)
        found[user] = Told(user, kind, *words, item.ref_type, str(item.ref_id), said)
    return list(found.values())


def _make_said(event: Event, kind: str, text: str, actor: str | None) -> Said:
    item = event.item
    is_change = isinstance(event, StatusChanged) and kind != IDEA_ADOPTED
    return Said(
        event=event.kind,
        doc=item.title if kind == TEAM_INVITED and item.title else item.called,
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
    """Users, each with the type of the notice and the text. For a repeated user, the first one counts."""
    item = event.item
    if isinstance(event, Assigned):
        yield from _each(ASSIGNED, item.assignee_id)
    elif isinstance(event, StatusChanged):
        yield from _recipients_of_status(event)
    elif isinstance(event, Commented):
        text = event.text[:_TEXT_MOST]
        mentioned = list(dict.fromkeys(map(int, _MENTION.findall(event.text))))[:_MENTIONS_MOST]
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
