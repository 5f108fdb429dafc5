"""Recipients and texts of events, as in the document's own system."""

from datetime import date
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from keystead.kits.teamwork.models import NoticeArguments
from keystead.kits.teamwork.service.events import (
    Assigned,
    Commented,
    DeadlineNear,
    Event,
    Invited,
    RefType,
    StatusChanged,
    WorkItem,
    notices_for,
)
from keystead.kits.teamwork.service.messages import message_of, plain_message, title_of
from keystead.kits.teamwork.service.notice_types import TYPES

OWNER, ASSIGNEE, OTHER = 1, 2, 3


def item(ref_type: RefType = "WORK_REQUEST", status: str = "개발중", **more: Any) -> WorkItem:
    given = {"doc_no": "WR-001", "title": "Print", "owner_id": OWNER, "assignee_id": ASSIGNEE, **more}
    return WorkItem(ref_type=ref_type, ref_id=101, status=status, **given)


def who(event: Event) -> list[tuple[int, str]]:
    return [(one.user, one.type) for one in notices_for(event)]


def test_an_assignment_notifies_the_new_assignee() -> None:
    assert who(Assigned(id="e", item=item())) == [(ASSIGNEE, "담당자배정")]
    assert who(Assigned(id="e", item=item(), actor_id=ASSIGNEE)) == []
    assert who(Assigned(id="e", item=item(assignee_id=None))) == []


def test_a_changed_status_notifies_owner_and_assignee_once_each() -> None:
    assert who(StatusChanged(id="e", item=item(), before="접수대기")) == [(OWNER, "상태변경"), (ASSIGNEE, "상태변경")]
    assert who(StatusChanged(id="e", item=item(assignee_id=OWNER), before="접수대기")) == [(OWNER, "상태변경")]
    assert who(StatusChanged(id="e", item=item(), before="개발중")) == []


@pytest.mark.parametrize(("status", "kind"), [("완료", "배포완료"), ("실패", "배포실패"), ("진행중", "상태변경")])
def test_a_deployment_notifies_its_manager(status: str, kind: str) -> None:
    assert who(StatusChanged(id="e", item=item("DEPLOYMENT", status), before="대기")) == [(ASSIGNEE, kind)]


def test_an_adopted_idea_notifies_its_proposer() -> None:
    assert who(StatusChanged(id="e", item=item("PROJECT_IDEA", "채택"), before="제안됨")) == [(OWNER, "아이디어채택")]


def test_a_mention_notifies_the_mentioned_user_but_not_the_author() -> None:
    text = f"@[Kim]({OTHER}) and @[me](9) and @[Kim]({OTHER}), @[nobody](0), @[no](x), @[{'x' * 200}](7)"
    event = Commented(id="e", item=item(), actor_id=9, text=text)
    assert who(event) == [(OTHER, "멘션"), (OWNER, "댓글등록"), (ASSIGNEE, "댓글등록")]
    many = Commented(id="e", item=item(), text="".join(f"@[a]({number})" for number in range(100, 400)))
    assert len(notices_for(many)) == 52


def test_texts_are_in_the_requested_language() -> None:
    event = StatusChanged(id="e", item=item(), before="접수대기")
    assert notices_for(event, "ko")[0].title == "WR-001 상태가 변경되었습니다"
    assert notices_for(event, "ko")[0].message == "Print: 접수대기 → 개발중"
    assert notices_for(event, "en")[0].message == "Print: waiting → in development"
    for days, title, said in (
        (3, "WR-001 is due soon", "due in 3 days (2026-03-03): Print"),
        (1, "WR-001 is due soon", "due in 1 day (2026-03-03): Print"),
        (0, "WR-001 is due soon", "due today (2026-03-03): Print"),
        (-2, "WR-001 is overdue", "overdue by 2 days (2026-03-03): Print"),
    ):
        [one] = notices_for(DeadlineNear(id="e", item=item(), days=days, due=date(2026, 3, 3)))
        assert (one.title, one.message) == (title, said)


def test_a_title_names_the_actor() -> None:
    event = Assigned(id="e", item=item(), actor_id=OTHER)
    titles = [notices_for(event, language, actor="Ann")[0].title for language in ("en", "ja", "ko")]
    assert titles == [
        "Ann assigned WR-001 to you",
        "Ann さんがあなたを WR-001 の担当にしました",
        "Ann님이 회원님을 WR-001 담당자로 배정했습니다",
    ]
    assert notices_for(event)[0].title == "WR-001 was assigned to you"  # the actor has no known name
    [hostile] = notices_for(Assigned(id="e", item=item(doc_no="{actor}"), actor_id=OTHER), actor="{doc}{0}")
    assert hostile.title == "{doc}{0} assigned {actor} to you"


def test_stored_arguments_give_the_same_texts_in_any_language() -> None:
    event = Commented(id="e", item=item(), actor_id=9, text=f"@[Kim]({OTHER}) look")
    for language in ("en", "ja", "ko"):
        for one in notices_for(event, language, actor="Ann"):
            assert one.said is not None
            kept = NoticeArguments.model_validate_json(one.said.model_dump_json())
            assert (title_of(one.type, kept, language), message_of(kept, language)) == (one.title, one.message)
    assert notices_for(event)[0].message == "Print: @Kim look"
    assert plain_message("Print: 검토중 → 개발중", "en") == "Print: in review → in development"
    assert plain_message("Print: x → y", "ja") == "Print: x → y"


def test_every_type_has_texts_in_every_language() -> None:
    seen = set()
    for language in ("en", "ja", "ko"):
        for event in (
            Assigned(id="e", item=item()),
            Invited(kind="team-invited", id="e", item=item(), user_id=4),
            Invited(kind="action-assigned", id="e", item=item(), user_id=4),
            DeadlineNear(id="e", item=item(), days=1),
            Commented(id="e", item=item(), text=f"@[a]({OTHER})"),
            StatusChanged(id="e", item=item(), before=""),
            StatusChanged(id="e", item=item("DEPLOYMENT", "완료"), before=""),
            StatusChanged(id="e", item=item("DEPLOYMENT", "실패"), before=""),
            StatusChanged(id="e", item=item("PROJECT_IDEA", "채택"), before=""),
            EVENTS.validate_python({"kind": "defect-registered", "id": "e", "item": item("DEFECT")}),
        ):
            told = notices_for(event, language, actor="Ann")
            seen |= {one.type for one in told}
            known = [one.title for one in told if one.type != "마감임박"]
            assert [title for title in known if "Ann" not in title] == []
            assert [one.title for one in notices_for(event, language) if "None" in one.title] == []
    assert seen == set(TYPES)


EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "assigned", "id": "", "item": {}},
        {"kind": "none", "id": "e", "item": {}},
        {"kind": "assigned", "id": "e", "item": {"refType": "WORK_REQUEST", "refId": -1, "title": "x"}},
        {"kind": "assigned", "id": "e", "item": {"refType": "other", "refId": 1, "title": "x"}},
        {"kind": "assigned", "id": "e", "item": {"refType": "DEFECT", "refId": 1, "title": "x", "assigneeId": 0}},
    ],
)
def test_invalid_events_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EVENTS.validate_python(wrong)


def test_an_item_is_closed_by_its_status() -> None:
    assert item("DEFECT", "재현불가").is_closed
    assert not item("DEFECT", "수정중").is_closed
    assert not item("KNOWLEDGE_BASE", "완료").is_closed
