"""The HTTP routes of the kit."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest
from fastapi import FastAPI

from keystead.kits.teamwork.commands import deadlines
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.routes import KIT
from keystead.kits.teamwork.service import Teamwork
from keystead.kits.teamwork.service.slack import Slack, SlackSender
from keystead.kits.teamwork.stream import stream_notices
from keystead.server import Settings, create_app
from tests.parts.sessions.conftest import Clock

BASE = "http://127.0.0.1:8713"
RING = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
ANN, BEN, CHO, OUTSIDER = 42, 7, 8, 99
ITEM = {"refType": "WORK_REQUEST", "refId": 101, "title": "Print", "docNo": "WR-001", "status": "개발중"}


class Office:
    """The application, with users of two teams."""

    def __init__(self, app: FastAPI, clock: Clock) -> None:
        self.app = app
        self.clock = clock
        transport = httpx2.ASGITransport(app, client=("192.0.2.7", 50_000))
        self.http = httpx2.AsyncClient(transport=transport, base_url=BASE)

    @property
    def teamwork(self) -> Teamwork:
        found: Teamwork = self.app.state.kits["teamwork"]
        return found

    def token(self, user: int = ANN) -> dict[str, str]:
        return {"authorization": f"Bearer {self.teamwork.tokens.issue(str(user)).token}"}

    async def tell(self, number: int, by: int = ANN, **more: Any) -> int:
        event = {"kind": "assigned", "id": f"e{number}", "item": {**ITEM, "assigneeId": BEN, **more}}
        answer = await self.http.post("/api/events", json=event, headers=self.token(by))
        assert answer.status_code == 200, answer.text
        found: int = answer.json()["notices"]
        return found

    async def get(self, path: str, user: int = BEN) -> Any:
        answer = await self.http.get(path, headers=self.token(user))
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    clock = Clock(4_000_017_600_000)  # 2096-10-02 at noon
    settings = Settings(store="memory://", public_url=BASE, seal_keys=RING)
    app = create_app(settings, [KIT], now_ms=clock)
    async with app.router.lifespan_context(app):
        made = Office(app, clock)
        for user, team, role in ((ANN, 3, "OWNER"), (BEN, 3, "MEMBER"), (CHO, 3, "MEMBER"), (OUTSIDER, 4, "OWNER")):
            person = UserSession(name=f"u{user}", email="u@example.com", role="DEVELOPER", team_id=team, team_role=role)
            await made.teamwork.people.save(user, person)
        async with made.http:
            yield made


async def test_notices_are_listed_counted_and_read(office: Office) -> None:
    assert [await office.tell(1), await office.tell(1), await office.tell(2, refType="DEFECT")] == [1, 0, 1]
    page = await office.get("/api/notifications?size=1")
    assert (page["total"], page["page"], page["size"]) == (2, 0, 1)
    [newest] = page["items"]
    assert newest.pop("id") > 0
    assert newest == {
        "userId": BEN,
        "type": "담당자배정",
        "title": "u42 assigned WR-001 to you",
        "message": "Print",
        "link": f"{BASE}/teamwork?refType=DEFECT&refId=101",
        "refType": "DEFECT",
        "refId": 101,
        "isRead": False,
        "slackSent": False,
        "createdAt": "2096-10-02T12:00:00Z",
    }
    counts = {"total": 2, "workRequest": 1, "testScenario": 0, "defect": 1, "others": 0}
    assert await office.get("/api/notifications/unread-counts") == counts
    [older] = (await office.get("/api/notifications?page=1&size=1"))["items"]
    read = await office.http.patch(f"/api/notifications/{older['id']}/read", headers=office.token(BEN))
    assert read.json() == {"read": 1}
    foreign = await office.http.patch(f"/api/notifications/{older['id']}/read", headers=office.token(CHO))
    assert foreign.status_code == 404
    assert (await office.get("/api/notifications?read=false"))["total"] == 1
    by_ref = "/api/notifications/read-by-ref?refType=DEFECT&refId=101"
    assert (await office.http.patch(by_ref, headers=office.token(BEN))).json() == {"read": 1}
    assert (await office.http.patch("/api/notifications/read-all", headers=office.token(BEN))).json() == {"read": 0}
    other = await office.http.get(f"/api/notifications?userId={ANN}", headers=office.token(BEN))
    assert other.status_code == 403


async def test_only_members_of_the_callers_team_are_notified(office: Office) -> None:
    assert await office.tell(1, by=OUTSIDER) == 0
    assert await office.tell(1, assigneeId=OUTSIDER) == 0
    assert await office.tell(1) == 1  # another team used this id, which has no effect here


async def test_users_of_other_teams_are_not_mentioned_in_slack(office: Office) -> None:
    teamwork = office.teamwork
    await teamwork.people.set_slack_id(OUTSIDER, "U0OUTSIDER")
    sender = SlackSender(
        Slack(webhook_url="https://hooks.slack.com/x"),
        teamwork.notices,
        teamwork.slack_log,
        office.http,
        office.clock,
        person=teamwork.person,
    )
    for number, (assignee, is_named) in enumerate([(CHO, True), (OUTSIDER, False)]):
        item = {**ITEM, "ownerId": BEN, "assigneeId": assignee}
        event = {"kind": "commented", "id": f"c{number}", "item": item, "text": "look"}
        told = await office.http.post("/api/events", json=event, headers=office.token(ANN))
        assert told.status_code == 200, told.text
        newest = (await teamwork.notices.page(BEN)).notices[0]
        text = json.dumps(await sender.payload(newest))
        assert ("Assignee: u8" in text) is is_named
        assert "u99" not in text
        assert "U0OUTSIDER" not in text


async def test_preferences_can_be_changed(office: Office) -> None:
    assert all((await office.get("/api/notifications/preferences")).values())
    wanted = await office.http.put("/api/notifications/preferences", json={"assign": False}, headers=office.token(BEN))
    assert wanted.json() == {
        "assign": False,
        "comment": True,
        "deadline": True,
        "status": True,
        "deploy": True,
        "mention": True,
    }
    put = await office.http.put("/api/notifications/preferences", json={"assign": None}, headers=office.token(BEN))
    assert put.json()["assign"] is False
    assert await office.tell(1) == 0
    wrong = await office.http.put("/api/notifications/preferences", json={"all": 1}, headers=office.token(BEN))
    assert wrong.status_code == 400


async def test_a_notice_is_read_in_the_language_of_its_reader(office: Office) -> None:
    await office.tell(1)
    [listed] = (await office.get("/api/notifications"))["items"]
    path = f"/api/notifications/{listed['id']}"
    for asked, title in (
        ({}, "u42 assigned WR-001 to you"),
        ({"accept-language": "ko-KR,en;q=0.5"}, "u42님이 회원님을 WR-001 담당자로 배정했습니다"),
        ({"accept-language": "ja"}, "u42 さんがあなたを WR-001 の担当にしました"),
    ):
        one = await office.http.get(path, headers={**office.token(BEN), **asked})
        assert one.json()["title"] == title
    korean = await office.http.get(f"{path}?language=ko", headers={**office.token(BEN), "accept-language": "ja"})
    assert korean.json()["title"].endswith("배정했습니다")
    await office.teamwork.relay.publish_waiting()  # type: ignore[union-attr]
    events = await stream_notices(office.teamwork.streams, BEN, 0, _always, "ja")
    await anext(events)
    assert "u42 さんがあなたを" in (await anext(events)).decode()
    await events.aclose()


async def test_a_notice_is_read_and_deleted_only_by_its_reader(office: Office) -> None:
    await office.tell(1)
    await office.tell(2)
    await office.teamwork.relay.publish_waiting()  # type: ignore[union-attr]
    assert (await office.get("/api/dashboard/summary"))["unreadNotifications"] == 2
    [newest, _] = (await office.get("/api/notifications"))["items"]
    path = f"/api/notifications/{newest['id']}"
    assert await office.get(path) == newest
    for method in ("GET", "DELETE"):
        foreign = await office.http.request(method, path, headers=office.token(CHO))
        assert (foreign.status_code, foreign.json()["code"]) == (404, "NOT_FOUND")
    assert (await office.http.delete(path, headers=office.token(BEN))).json() == {"ok": True}
    for method in ("GET", "DELETE"):
        assert (await office.http.request(method, path, headers=office.token(BEN))).status_code == 404
    assert (await office.get("/api/notifications"))["total"] == 1
    assert (await office.get("/api/notifications/unread-counts"))["total"] == 1
    assert (await office.get("/api/dashboard/summary"))["unreadNotifications"] == 1
    assert await office.tell(2) == 0  # the repeated event is deduplicated


async def test_old_notices_attempts_and_invitations_are_deleted_also_while_slack_is_off(office: Office) -> None:
    teamwork = office.teamwork
    assert teamwork.slack is None
    await office.tell(1)
    [notice] = (await teamwork.notices.page(BEN)).notices
    at_ms = office.clock()
    await teamwork.slack_log.add(notice, {}, channel="", retries=0, error="away", at_ms=at_ms)
    await teamwork.relay.publish_waiting()  # type: ignore[union-attr]
    await teamwork.invite(3, by=ANN)
    clean = next(job for job in teamwork.jobs if job.name == "teamwork.clean-up")
    for days, left in ((8, (1, 1)), (82, (1, 1)), (1, (0, 1)), (89, (0, 1)), (1, (0, 0))):
        office.clock.pass_ms(days * 86_400_000)
        await clean.run(None)  # type: ignore[arg-type]
        attempts = len(await teamwork.slack_log.attempts())
        assert (attempts, (await teamwork.notices.page(BEN)).total) == left, days
    assert await teamwork.teams.delete_expired() == 0


@pytest.mark.parametrize("ref_id", ["a/b", "/", "a//b/", "/read", "x/y/z", "100%", "a%2Fb", "한/글", "?", "#"])
async def test_an_id_with_a_slash_works_in_every_route(office: Office, ref_id: str) -> None:
    path = f"/api/deadlines/DEFECT/{quote(ref_id, safe='')}"
    body = {"due": "2096-10-05", "title": "Print", "assigneeId": BEN}
    assert (await office.http.put(path, json=body, headers=office.token(ANN))).status_code == 200
    assert [one["refId"] for one in (await office.get("/api/deadlines"))["items"]] == [ref_id]
    await office.teamwork.deadlines.notify_due()
    asked = {"refType": "DEFECT", "refId": ref_id}
    listed = await office.http.get("/api/notifications", params=asked, headers=office.token(BEN))
    [notice] = listed.json()["items"]
    assert (notice["refId"], parse_qs(urlsplit(notice["link"]).query)["refId"]) == (ref_id, [ref_id])
    read = await office.http.patch("/api/notifications/read-by-ref", params=asked, headers=office.token(BEN))
    assert read.json() == {"read": 1}
    assert (await office.http.delete(path, headers=office.token(ANN))).status_code == 200
    assert (await office.get("/api/deadlines"))["items"] == []


async def test_json_has_camel_case_names_only(office: Office) -> None:
    event = {"kind": "assigned", "id": "e", "item": ITEM}
    for wrong in ({**event, "actor_id": BEN}, {**event, "item": {**ITEM, "assignee_id": BEN}}):
        refused = await office.http.post("/api/events", json=wrong, headers=office.token(ANN))
        assert (refused.status_code, refused.json()["error"]) == (400, "the body has an unknown field")


async def test_errors_of_a_deadline_show_no_internals(office: Office) -> None:
    early = await office.http.get("/api/deadlines?from=0001-01-01", headers=office.token(ANN))
    assert (early.status_code, early.json()["error"]) == (
        400,
        "a deadline must be a day from 1970-01-01 on, not 0001-01-01",
    )
    body = {"due": "2096-10-05", "title": "Print"}
    nul = await office.http.put("/api/deadlines/DEFECT/a%00b", json=body, headers=office.token(ANN))
    said = "refId of a deadline: a name contains a NUL character; remove it"
    assert (nul.status_code, nul.json()["error"]) == (400, said)


async def test_the_deadlines_command_prints_one_line_each(office: Office) -> None:
    body = {"due": "2096-10-05", "title": "Print\n2096-10-02  DEFECT:1  0 days  forged", "assigneeId": BEN}
    put = await office.http.put("/api/deadlines/DEFECT/7", json=body, headers=office.token(ANN))
    assert put.status_code == 200, put.text
    [line] = (await deadlines(office.teamwork, 3)).text.splitlines()
    assert line.endswith(f"(user {BEN})")


async def test_deadlines_and_the_summary_that_counts_them(office: Office) -> None:
    assert (await office.get("/api/dashboard/summary"))["myWorkRequests"] == 0
    body = {"due": "2096-10-05", "title": "Print", "docNo": "WR-001", "assigneeId": BEN}
    put = await office.http.put("/api/deadlines/WORK_REQUEST/101", json=body, headers=office.token(ANN))
    assert put.status_code == 200, put.text
    assert (await office.get("/api/dashboard/summary"))["myWorkRequests"] == 1
    due = await office.get("/api/deadlines?from=2096-10-01&to=2096-10-31")
    assert (due["today"], due["zone"]) == ("2096-10-02", "UTC")
    [item] = due["items"]
    assert (item["refType"], item["refId"], item["due"], item["days"]) == ("WORK_REQUEST", 101, "2096-10-05", 3)
    await office.teamwork.deadlines.notify_due()
    assert [one["type"] for one in (await office.get("/api/notifications"))["items"]] == ["마감임박"]
    await office.teamwork.relay.publish_waiting()  # type: ignore[union-attr]
    assert (await office.get("/api/dashboard/summary"))["unreadNotifications"] == 1
    for status in (200, 404):
        done = await office.http.delete("/api/deadlines/WORK_REQUEST/101", headers=office.token(ANN))
        assert done.status_code == status
    assert (await office.get("/api/dashboard/summary"))["myWorkRequests"] == 0
    zone = {"zone": "Asia/Seoul"}
    assert (await office.http.put("/api/team/zone", json=zone, headers=office.token(BEN))).status_code == 403
    assert (await office.http.put("/api/team/zone", json=zone, headers=office.token(ANN))).status_code == 200
    assert (await office.get("/api/deadlines"))["zone"] == "Asia/Seoul"
    wrong = await office.http.put("/api/team/zone", json={"zone": "Mars"}, headers=office.token(ANN))
    assert (wrong.status_code, "Europe/Berlin" in wrong.json()["error"]) == (400, True)
    early = await office.http.get("/api/deadlines?from=1900-01-01", headers=office.token(ANN))
    assert early.status_code == 400


async def test_a_revoked_token_is_refused_from_the_next_request_on(office: Office) -> None:
    one, other = office.token(BEN), office.token(BEN)
    assert (await office.http.get("/api/me", headers=one)).json()["teamId"] == 3
    assert (await office.http.post("/api/tokens/revoke", headers=one)).status_code == 200
    refused = await office.http.get("/api/me", headers=one)
    assert refused.status_code == 401
    assert "invalid_token" in refused.headers["www-authenticate"]
    office.clock.pass_ms(5)
    assert (await office.http.post("/api/tokens/revoke-all", headers=other)).status_code == 200
    assert (await office.http.get("/api/me", headers=other)).status_code == 401
    assert (await office.http.get("/api/notifications")).status_code == 401


async def test_a_stream_replays_missed_notices_and_sends_new_ones(office: Office) -> None:
    for number in range(3):
        await office.tell(number)
    await office.teamwork.relay.publish_waiting()  # type: ignore[union-attr]
    events = await stream_notices(office.teamwork.streams, BEN, 1, _always)
    assert await anext(events) == b'retry: 2000\n\nid: 1\nevent: hello\ndata: {"place": 3}\n\n'
    replayed = (await anext(events)).decode()
    assert [line for line in replayed.splitlines() if line.startswith("id:")] == ["id: 2", "id: 3"]
    first = json.loads(replayed.splitlines()[2].removeprefix("data: "))
    assert (first["type"], first["refId"]) == ("담당자배정", 101)
    await office.tell(9)
    assert (await anext(events)).startswith(b"id: 4\nevent: notice\n")
    await events.aclose()


async def _always() -> bool:
    return True
