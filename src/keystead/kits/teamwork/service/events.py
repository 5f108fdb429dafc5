"""What happens in a team, and who is told of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from keystead.errors import BadValue
from keystead.kits.teamwork.service.notices import (
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
    Told,
)
from keystead.kits.teamwork.service.tables import ID_MAX_BYTES
from keystead.parts.tables import checked_name

Language: TypeAlias = Literal["en", "ja", "ko"]
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


def _kept(text: str) -> str:
    """A text that every database can keep as a key."""
    try:
        checked_name(text, ID_MAX_BYTES)
    except BadValue as error:
        raise ValueError(str(error)) from None
    return text


RefId: TypeAlias = (
    Annotated[int, Field(ge=0, le=2**53)]
    | Annotated[str, Field(min_length=1, max_length=ID_MAX_BYTES), AfterValidator(_kept)]
)
EventId: TypeAlias = Annotated[str, Field(min_length=1, max_length=180), AfterValidator(_kept)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkItem(_Frozen):
    """What an event is about. `ownerId` has asked for it, reported it or proposed it; `assigneeId` works on it, and
    manages it where it is a deployment."""

    refType: RefType  # noqa: N815 - names as they are published
    refId: RefId  # noqa: N815
    title: str = Field(max_length=_TEXT_MOST)
    docNo: str = Field("", max_length=32)  # noqa: N815
    status: str = Field("", max_length=64)
    ownerId: User | None = None  # noqa: N815
    assigneeId: User | None = None  # noqa: N815

    @property
    def called(self) -> str:
        """As people call it: `WR-001`."""
        return self.docNo or f"{self.refType} {self.refId}"

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED.get(self.refType, ())


class _OfItem(_Frozen):
    id: EventId = Field(description="The same each time that it is told of.")
    item: WorkItem
    actorId: User | None = Field(None, description="Who did it.")  # noqa: N815


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
    userId: User  # noqa: N815


class DeadlineNear(_OfItem):
    """A work item is due in so many days; a number below 0: it was due so many days ago."""

    kind: Literal["deadline-near"] = "deadline-near"
    days: int = Field(ge=-_DAYS_MOST, le=_DAYS_MOST)


Event: TypeAlias = Annotated[
    Assigned | StatusChanged | Commented | DefectRegistered | Invited | DeadlineNear, Field(discriminator="kind")
]


def told_by(event: Event, language: Language = "en") -> list[Told]:
    """Who is told what of an event. Each user once; nobody of what they did themselves."""
    found: dict[int, Told] = {}
    for user, kind, more in _recipients(event):
        if user == event.actorId and not isinstance(event, DeadlineNear):
            continue
        if user not in found:
            title, message = _words(kind, event, more, language)
            item = event.item
            found[user] = Told(user, kind, title, message, item.refType, str(item.refId))
    return list(found.values())


def _recipients(event: Event) -> Iterator[tuple[int, str, str]]:
    """Users, each with the type of the notice and what stands in it; of one who comes twice, the first counts."""
    item = event.item
    if isinstance(event, Assigned):
        yield from _each(ASSIGNED, item.assigneeId)
    elif isinstance(event, StatusChanged):
        yield from _of_status(event)
    elif isinstance(event, Commented):
        text = event.text[:_TEXT_MOST]
        mentioned = list(dict.fromkeys(map(int, _MENTION.findall(event.text))))[:_MENTIONS_MOST]
        yield from ((user, MENTIONED, text) for user in mentioned if user > 0)
        yield from _each(COMMENTED, item.ownerId, item.assigneeId, more=text)
    elif isinstance(event, DefectRegistered):
        yield from _each(DEFECT_REGISTERED, item.assigneeId)
    elif isinstance(event, Invited):
        yield event.userId, TEAM_INVITED if event.kind == "team-invited" else ACTION_ASSIGNED, ""
    else:
        yield from _each(DEADLINE, item.assigneeId, more=str(event.days))


def _of_status(event: StatusChanged) -> Iterator[tuple[int, str, str]]:
    item, change = event.item, f"{event.before} → {event.item.status}"
    if event.before == item.status:
        return
    if item.refType == "DEPLOYMENT":
        yield from _each(_DEPLOYMENT_TYPES.get(item.status, STATUS_CHANGED), item.assigneeId, more=change)
    elif item.refType == "PROJECT_IDEA" and item.status == _ADOPTED:
        yield from _each(IDEA_ADOPTED, item.ownerId)
    else:
        yield from _each(STATUS_CHANGED, item.ownerId, item.assigneeId, more=change)


def _each(kind: str, *users: int | None, more: str = "") -> Iterator[tuple[int, str, str]]:
    yield from ((user, kind, more) for user in users if user is not None)


# --- words ---------------------------------------------------------------------------------------------------------

_TITLES: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        ASSIGNED: "{doc} was assigned to you",
        STATUS_CHANGED: "The status of {doc} has changed",
        DEADLINE: "{doc} is due soon",
        DEFECT_REGISTERED: "The defect {doc} was registered",
        COMMENTED: "A comment on {doc}",
        DEPLOYED: "{doc} was deployed",
        DEPLOYMENT_FAILED: "The deployment {doc} has failed",
        TEAM_INVITED: "You are invited to a team",
        IDEA_ADOPTED: "The idea {doc} was adopted",
        ACTION_ASSIGNED: "An action item of {doc} was assigned to you",
        MENTIONED: "You are mentioned in {doc}",
    },
    "ja": {
        ASSIGNED: "{doc} の担当になりました",
        STATUS_CHANGED: "{doc} の状態が変わりました",
        DEADLINE: "{doc} の期限が近づいています",
        DEFECT_REGISTERED: "不具合 {doc} が登録されました",
        COMMENTED: "{doc} にコメントがあります",
        DEPLOYED: "{doc} をデプロイしました",
        DEPLOYMENT_FAILED: "{doc} のデプロイに失敗しました",
        TEAM_INVITED: "チームに招待されました",
        IDEA_ADOPTED: "アイデア {doc} が採用されました",
        ACTION_ASSIGNED: "{doc} のアクションアイテムの担当になりました",
        MENTIONED: "{doc} であなたの名前が挙がりました",
    },
    "ko": {
        ASSIGNED: "{doc} 담당자로 배정되었습니다",
        STATUS_CHANGED: "{doc} 상태가 변경되었습니다",
        DEADLINE: "{doc} 마감이 다가옵니다",
        DEFECT_REGISTERED: "결함 {doc}이(가) 등록되었습니다",
        COMMENTED: "{doc}에 댓글이 등록되었습니다",
        DEPLOYED: "{doc} 배포가 완료되었습니다",
        DEPLOYMENT_FAILED: "{doc} 배포에 실패했습니다",
        TEAM_INVITED: "팀에 초대되었습니다",
        IDEA_ADOPTED: "아이디어 {doc}이(가) 채택되었습니다",
        ACTION_ASSIGNED: "{doc}의 액션 아이템이 배정되었습니다",
        MENTIONED: "{doc}에서 회원님을 언급했습니다",
    },
}
_DAYS: Final[Mapping[Language, tuple[str, str, str]]] = {  # ahead, today, past
    "en": ("due in {n} day{s}: {title}", "due today: {title}", "overdue for {n} day{s}: {title}"),
    "ja": ("あと {n} 日: {title}", "今日が期限: {title}", "期限を {n} 日過ぎています: {title}"),
    "ko": ("{n}일 남음: {title}", "오늘 마감: {title}", "마감 {n}일 지남: {title}"),
}
_OVERDUE: Final[Mapping[Language, str]] = {
    "en": "{doc} is overdue",
    "ja": "{doc} は期限を過ぎています",
    "ko": "{doc} 마감이 지났습니다",
}


def _words(kind: str, event: Event, more: str, language: Language) -> tuple[str, str]:
    item = event.item
    title = _TITLES[language][kind].format(doc=item.called)
    if isinstance(event, DeadlineNear):
        ahead, today, past = _DAYS[language]
        form = ahead if event.days > 0 else past if event.days < 0 else today
        if event.days < 0:
            title = _OVERDUE[language].format(doc=item.called)
        days = abs(event.days)
        return title, form.format(n=days, s="" if days == 1 else "s", title=item.title)
    return title, f"{item.title}: {more}" if more else item.title
