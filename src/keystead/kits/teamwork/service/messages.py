"""Titles and messages of notices, in the language of each reader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from keystead.catalogue import Catalogue, Language, message
from keystead.kits.language import Speaker
from keystead.kits.teamwork.models import NoticeArguments
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

CATALOGUE: Final = Catalogue(Path(__file__).parents[1])
# Titles with an actor. `who` is the reader: "you", or their name.
_TITLES_WITH_ACTOR: Final = {
    ASSIGNED: message("{actor} assigned {doc} to {who}"),
    STATUS_CHANGED: message("{actor} changed the status of {doc}"),
    DEFECT_REGISTERED: message("{actor} registered the defect {doc}"),
    COMMENTED: message("{actor} commented on {doc}"),
    DEPLOYED: message("{actor} deployed {doc}"),
    DEPLOYMENT_FAILED: message("{actor} reports that the deployment {doc} has failed"),
    TEAM_INVITED: message("{actor} invites {who} to the team {doc}"),
    IDEA_ADOPTED: message("{actor} adopted the idea {doc}"),
    ACTION_ASSIGNED: message("{actor} assigned an action item of {doc} to {who}"),
    MENTIONED: message("{actor} mentioned {who} in {doc}"),
}
_TITLES: Final = {
    ASSIGNED: message("{doc} was assigned to {who}"),
    STATUS_CHANGED: message("The status of {doc} has changed"),
    DEADLINE: message("{doc} is due soon"),
    DEFECT_REGISTERED: message("The defect {doc} was registered"),
    COMMENTED: message("A comment on {doc}"),
    DEPLOYED: message("{doc} was deployed"),
    DEPLOYMENT_FAILED: message("The deployment {doc} has failed"),
    TEAM_INVITED: message("An invitation to the team {doc} for {who}"),
    IDEA_ADOPTED: message("The idea {doc} was adopted"),
    ACTION_ASSIGNED: message("An action item of {doc} was assigned to {who}"),
    MENTIONED: message("A mention of {who} in {doc}"),
}
_OVERDUE: Final = message("{doc} is overdue")
_NAME: Final = message("{name}")
ASSIGNEE: Final = message("Assignee")
OPEN: Final = message("Open")

# Statuses are stored in Korean, as in the document.
STATUSES: Final = {
    "접수대기": message("waiting"),
    "검토중": message("in review"),
    "개발중": message("in development"),
    "테스트중": message("in test"),
    "완료": message("done"),
    "반려": message("rejected"),
    "작성중": message("draft"),
    "승인됨": message("approved"),
    "실행중": message("running"),
    "통과": message("passed"),
    "실패": message("failed"),
    "보류": message("on hold"),
    "접수": message("received"),
    "분석중": message("in analysis"),
    "수정중": message("being fixed"),
    "검증중": message("being verified"),
    "재현불가": message("not reproducible"),
    "대기": message("pending"),
    "진행중": message("in progress"),
    "롤백": message("rolled back"),
    "제안됨": message("proposed"),
    "채택": message("adopted"),
    "기각": message("dismissed"),
}
_STATUS_CHANGE: Final = re.compile(r"(\S+) → (\S+)$")
_MENTION: Final = re.compile(r"@\[([^\]\n]{1,100})\]\(\d{1,18}\)")


def speaker(language: Language) -> Speaker:
    return Speaker(language, CATALOGUE)


def title_of(kind: str, said: NoticeArguments, language: Language, name: str | None = None) -> str:
    """The title of a notice. A channel has many readers, so there `name` replaces "you"."""
    say = speaker(language)
    who = say("you") if name is None else say(_NAME, name=name)
    if kind == DEADLINE and said.days is not None and said.days < 0:
        form = _OVERDUE
    elif said.actor and kind in _TITLES_WITH_ACTOR:
        form = _TITLES_WITH_ACTOR[kind]
    else:
        form = _TITLES.get(kind, "{doc}")
    return say(form, actor=said.actor, doc=said.doc, who=who).strip()


def message_of(said: NoticeArguments, language: Language) -> str:
    """The text below the title."""
    if said.days is not None:
        return f"{_describe_due(said, said.days, speaker(language))}: {said.item}"
    if said.before is not None and said.after is not None:
        return f"{said.item}: {_name_status(said.before, language)} → {_name_status(said.after, language)}"
    return f"{said.item}: {_strip_ids(said.text)}" if said.text else said.item


def plain_message(message: str, language: Language) -> str:
    """The message of an old notice, stored without arguments: statuses are translated, and ids removed."""

    def translate(found: re.Match[str]) -> str:
        is_known = found[1] in STATUSES and found[2] in STATUSES
        return f"{_name_status(found[1], language)} → {_name_status(found[2], language)}" if is_known else found[0]

    return _STATUS_CHANGE.sub(translate, _strip_ids(message))


def _name_status(status: str, language: Language) -> str:
    return speaker(language)(STATUSES[status]) if status in STATUSES else status


def _strip_ids(text: str) -> str:
    """Replace mentions, `@[name](id)`, by `@name`."""
    return _MENTION.sub(r"@\1", text)


def _describe_due(said: NoticeArguments, days: int, say: Speaker) -> str:
    on = "" if said.due is None else f" ({said.due.isoformat()})"
    if days > 0:
        return say.plural("due in {count} day{on}", "due in {count} days{on}", days, on=on)
    if days < 0:
        return say.plural("overdue by {count} day{on}", "overdue by {count} days{on}", -days, on=on)
    return say("due today{on}", on=on)
