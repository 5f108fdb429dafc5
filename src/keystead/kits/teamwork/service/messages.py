"""Titles and messages of notices, in the language of each reader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from keystead.kits.language import Language
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

# Titles with an actor. `who` is the reader: "you", or their name.
_TITLES_WITH_ACTOR: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        ASSIGNED: "{actor} assigned {doc} to {who}",
        STATUS_CHANGED: "{actor} changed the status of {doc}",
        DEFECT_REGISTERED: "{actor} registered the defect {doc}",
        COMMENTED: "{actor} commented on {doc}",
        DEPLOYED: "{actor} deployed {doc}",
        DEPLOYMENT_FAILED: "{actor} reports that the deployment {doc} has failed",
        TEAM_INVITED: "{actor} invites {who} to the team {doc}",
        IDEA_ADOPTED: "{actor} adopted the idea {doc}",
        ACTION_ASSIGNED: "{actor} assigned an action item of {doc} to {who}",
        MENTIONED: "{actor} mentioned {who} in {doc}",
    },
    "ja": {
        ASSIGNED: "{actor} さんが{who}を {doc} の担当にしました",
        STATUS_CHANGED: "{actor} さんが {doc} の状態を変更しました",
        DEFECT_REGISTERED: "{actor} さんが不具合 {doc} を登録しました",
        COMMENTED: "{actor} さんが {doc} にコメントしました",
        DEPLOYED: "{actor} さんが {doc} をデプロイしました",
        DEPLOYMENT_FAILED: "{actor} さんが {doc} のデプロイの失敗を報告しました",
        TEAM_INVITED: "{actor} さんが{who}をチーム {doc} に招待しました",
        IDEA_ADOPTED: "{actor} さんがアイデア {doc} を採用しました",
        ACTION_ASSIGNED: "{actor} さんが{who}を {doc} のアクションアイテムの担当にしました",
        MENTIONED: "{actor} さんが {doc} で{who}にメンションしました",
    },
    "ko": {
        ASSIGNED: "{actor}님이 {who}을 {doc} 담당자로 배정했습니다",
        STATUS_CHANGED: "{actor}님이 {doc} 상태를 변경했습니다",
        DEFECT_REGISTERED: "{actor}님이 결함 {doc}을(를) 등록했습니다",
        COMMENTED: "{actor}님이 {doc}에 댓글을 남겼습니다",
        DEPLOYED: "{actor}님이 {doc} 배포를 완료했습니다",
        DEPLOYMENT_FAILED: "{actor}님이 {doc} 배포 실패를 알렸습니다",
        TEAM_INVITED: "{actor}님이 {who}을 {doc} 팀에 초대했습니다",
        IDEA_ADOPTED: "{actor}님이 아이디어 {doc}을(를) 채택했습니다",
        ACTION_ASSIGNED: "{actor}님이 {who}에게 {doc}의 액션 아이템을 배정했습니다",
        MENTIONED: "{actor}님이 {doc}에서 {who}을 언급했습니다",
    },
}
_TITLES: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        ASSIGNED: "{doc} was assigned to {who}",
        STATUS_CHANGED: "The status of {doc} has changed",
        DEADLINE: "{doc} is due soon",
        DEFECT_REGISTERED: "The defect {doc} was registered",
        COMMENTED: "A comment on {doc}",
        DEPLOYED: "{doc} was deployed",
        DEPLOYMENT_FAILED: "The deployment {doc} has failed",
        TEAM_INVITED: "An invitation to the team {doc} for {who}",
        IDEA_ADOPTED: "The idea {doc} was adopted",
        ACTION_ASSIGNED: "An action item of {doc} was assigned to {who}",
        MENTIONED: "A mention of {who} in {doc}",
    },
    "ja": {
        ASSIGNED: "{who}が {doc} の担当になりました",
        STATUS_CHANGED: "{doc} の状態が変わりました",
        DEADLINE: "{doc} の期限が近づいています",
        DEFECT_REGISTERED: "不具合 {doc} が登録されました",
        COMMENTED: "{doc} にコメントがあります",
        DEPLOYED: "{doc} がデプロイされました",
        DEPLOYMENT_FAILED: "{doc} のデプロイに失敗しました",
        TEAM_INVITED: "{who}はチーム {doc} に招待されました",
        IDEA_ADOPTED: "アイデア {doc} が採用されました",
        ACTION_ASSIGNED: "{who}が {doc} のアクションアイテムの担当になりました",
        MENTIONED: "{doc} で{who}にメンションがありました",
    },
    "ko": {
        ASSIGNED: "{who}이 {doc} 담당자로 배정되었습니다",
        STATUS_CHANGED: "{doc} 상태가 변경되었습니다",
        DEADLINE: "{doc} 마감이 다가옵니다",
        DEFECT_REGISTERED: "결함 {doc}이(가) 등록되었습니다",
        COMMENTED: "{doc}에 댓글이 등록되었습니다",
        DEPLOYED: "{doc} 배포가 완료되었습니다",
        DEPLOYMENT_FAILED: "{doc} 배포에 실패했습니다",
        TEAM_INVITED: "{who}이 {doc} 팀에 초대되었습니다",
        IDEA_ADOPTED: "아이디어 {doc}이(가) 채택되었습니다",
        ACTION_ASSIGNED: "{doc}의 액션 아이템이 {who}에게 배정되었습니다",
        MENTIONED: "{doc}에서 {who}이 언급되었습니다",
    },
}
_OVERDUE: Final[Mapping[Language, str]] = {
    "en": "{doc} is overdue",
    "ja": "{doc} は期限を過ぎています",
    "ko": "{doc} 마감이 지났습니다",
}
_DAYS: Final[Mapping[Language, tuple[str, str, str]]] = {  # ahead, today, past
    "en": ("due in {n} day{s}{on}", "due today{on}", "overdue by {n} day{s}{on}"),
    "ja": ("あと {n} 日{on}", "今日が期限{on}", "期限を {n} 日過ぎています{on}"),
    "ko": ("{n}일 남음{on}", "오늘 마감{on}", "마감 {n}일 지남{on}"),
}
_YOU: Final[Mapping[Language, str]] = {"en": "you", "ja": "あなた", "ko": "회원님"}
_NAME: Final[Mapping[Language, str]] = {"en": "{name}", "ja": " {name} さん", "ko": "{name}님"}
ASSIGNEE: Final[Mapping[Language, str]] = {"en": "Assignee", "ja": "担当", "ko": "담당자"}
OPEN: Final[Mapping[Language, str]] = {"en": "Open", "ja": "開く", "ko": "열기"}

# Statuses are stored in Korean, as in the document.
STATUSES: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "접수대기": "waiting",
        "검토중": "in review",
        "개발중": "in development",
        "테스트중": "in test",
        "완료": "done",
        "반려": "rejected",
        "작성중": "draft",
        "승인됨": "approved",
        "실행중": "running",
        "통과": "passed",
        "실패": "failed",
        "보류": "on hold",
        "접수": "received",
        "분석중": "in analysis",
        "수정중": "being fixed",
        "검증중": "being verified",
        "재현불가": "not reproducible",
        "대기": "waiting",
        "진행중": "in progress",
        "롤백": "rolled back",
        "제안됨": "proposed",
        "채택": "adopted",
        "기각": "dismissed",
    },
    "ja": {
        "접수대기": "受付待ち",
        "검토중": "検討中",
        "개발중": "開発中",
        "테스트중": "テスト中",
        "완료": "完了",
        "반려": "差し戻し",
        "작성중": "作成中",
        "승인됨": "承認済み",
        "실행중": "実行中",
        "통과": "合格",
        "실패": "失敗",
        "보류": "保留",
        "접수": "受付",
        "분석중": "分析中",
        "수정중": "修正中",
        "검증중": "検証中",
        "재현불가": "再現不可",
        "대기": "待機",
        "진행중": "進行中",
        "롤백": "ロールバック",
        "제안됨": "提案済み",
        "채택": "採用",
        "기각": "却下",
    },
    "ko": {},
}
_STATUS_CHANGE: Final = re.compile(r"(\S+) → (\S+)$")
_MENTION: Final = re.compile(r"@\[([^\]\n]{1,100})\]\(\d{1,18}\)")


def title_of(kind: str, said: NoticeArguments, language: Language, name: str | None = None) -> str:
    """The title of a notice. A channel has many readers, so there `name` replaces "you"."""
    who = _YOU[language] if name is None else _NAME[language].format(name=name)
    if kind == DEADLINE and said.days is not None and said.days < 0:
        form = _OVERDUE[language]
    elif said.actor and kind in _TITLES_WITH_ACTOR[language]:
        form = _TITLES_WITH_ACTOR[language][kind]
    else:
        form = _TITLES[language].get(kind, "{doc}")
    return form.format(actor=said.actor, doc=said.doc, who=who).strip()


def message_of(said: NoticeArguments, language: Language) -> str:
    """The text below the title."""
    if said.days is not None:
        return f"{_describe_due(said, said.days, language)}: {said.item}"
    if said.before is not None and said.after is not None:
        names = STATUSES[language]
        return f"{said.item}: {names.get(said.before, said.before)} → {names.get(said.after, said.after)}"
    return f"{said.item}: {_strip_ids(said.text)}" if said.text else said.item


def plain_message(message: str, language: Language) -> str:
    """The message of an old notice, stored without arguments: statuses are translated, and ids removed."""
    names = STATUSES[language]

    def translate(found: re.Match[str]) -> str:
        before, after = names.get(found[1]), names.get(found[2])
        return f"{before} → {after}" if before and after else found[0]

    return _STATUS_CHANGE.sub(translate, _strip_ids(message))


def _strip_ids(text: str) -> str:
    """Replace mentions, `@[name](id)`, by `@name`."""
    return _MENTION.sub(r"@\1", text)


def _describe_due(said: NoticeArguments, days: int, language: Language) -> str:
    ahead, today, past = _DAYS[language]
    form = ahead if days > 0 else past if days < 0 else today
    on = "" if said.due is None else f" ({said.due.isoformat()})"
    return form.format(n=abs(days), s="" if abs(days) == 1 else "s", on=on)
