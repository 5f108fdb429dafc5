"""Isolation between users and teams, and robustness against hostile input."""

import asyncio
from datetime import date
from typing import Any
from urllib.parse import quote

import pytest

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.kits.teamwork.models import Deadline, UserSession
from keystead.kits.teamwork.routes import teamwork_kit
from keystead.kits.teamwork.service import Assigned, TooManyStreams, WorkItem
from keystead.kits.teamwork.stream import stream_notices
from keystead.server import Settings, create_app
from tests.kits.teamwork.test_routes import ANN, BASE, BEN, CHO, ITEM, OUTSIDER, RING, Office, office
from tests.parts.sessions.conftest import Clock

__all__ = ["office"]

DUE = {"due": "2096-10-05", "title": "Print"}
ODD = [
    "x" * 10_240,
    "\0",
    "-1",
    str(2**80),
    "1.5",
    "9999-12-31",
    "😀" * 50,
    "é" * 150,
    "NaN",
    "9" * 5_000,
    "../x",
    "a:b",
]


async def test_an_event_id_of_one_user_cannot_suppress_notices_of_another(office: Office) -> None:
    assert await office.tell(1, by=CHO) == 1
    assert await office.tell(1, by=ANN) == 1  # a colleague used this id
    item = WorkItem(ref_type="DEFECT", ref_id=1, title="t", assignee_id=BEN)
    for given in (f"api:{CHO}:e9", "deadline:3:DEFECT:1:2096-10-05:D-3"):
        event = {"kind": "assigned", "id": given, "item": {**ITEM, "assigneeId": BEN}}
        assert (await office.http.post("/api/events", json=event, headers=office.token(CHO))).json() == {"notices": 1}
        assert len(await office.teamwork.tell(Assigned(id=given, item=item))) == 1


async def test_users_of_other_teams_are_not_notified_of_a_deadline(office: Office) -> None:
    for stranger, user in ((OUTSIDER, ANN), (BEN, ANN), (12345, ANN)):
        put = await office.http.put(
            "/api/deadlines/DEFECT/1", json={**DUE, "assigneeId": stranger}, headers=office.token(user)
        )
        assert put.status_code == (200 if stranger == BEN else 400)
    assert (await office.teamwork.deadlines.notify_due()).notified == 1
    assert (await office.get("/api/notifications", user=OUTSIDER))["total"] == 0


async def test_deadlines_of_another_team_cannot_be_read_or_completed(office: Office) -> None:
    assert (await office.http.put("/api/deadlines/DEFECT/1", json=DUE, headers=office.token(ANN))).status_code == 200
    assert (await office.get("/api/deadlines", user=OUTSIDER))["items"] == []
    assert (await office.http.delete("/api/deadlines/DEFECT/1", headers=office.token(OUTSIDER))).status_code == 404
    assert len((await office.get("/api/deadlines"))["items"]) == 1


async def test_unusual_text_causes_no_server_error_and_does_not_stop_jobs(office: Office) -> None:
    for word in ODD:
        text = quote(word, safe="")
        asked: list[tuple[str, str, Any]] = [
            *(("GET", f"/api/notifications?{name}={text}", None) for name in ("refType", "userId", "page", "size")),
            ("GET", f"/api/deadlines?from={text}", None),
            ("GET", f"/api/deadlines?to={text}", None),
            ("PATCH", f"/api/notifications/{text}/read", None),
            ("PATCH", f"/api/notifications/read-by-ref?refType={text}&refId={text}", None),
            ("PUT", f"/api/deadlines/DEFECT/{text}", {**DUE, "assigneeId": BEN}),
            ("PUT", f"/api/deadlines/DEFECT/{text}", {**DUE, "title": word, "docNo": word}),
            ("DELETE", f"/api/deadlines/DEFECT/{text}?x", None),
            ("PUT", "/api/team/zone", {"zone": word}),
            *(
                ("POST", "/api/events", {"kind": "assigned", "id": "i", "item": {**ITEM, "assigneeId": BEN}} | more)
                for more in ({"id": word}, {"item": {**ITEM, "assigneeId": BEN, "refId": word}}, {"actorId": word})
            ),
            ("POST", "/api/events", {"kind": "deadline-near", "id": word, "days": 10**400, "item": ITEM}),
        ]
        for method, path, body in asked:
            answer = await office.http.request(method, path, json=body, headers=office.token(ANN))
            assert answer.status_code < 500, (method, path[:80], answer.text)
    put = await office.http.put(
        "/api/deadlines/DEFECT/good", json={**DUE, "assigneeId": CHO}, headers=office.token(ANN)
    )
    assert put.status_code == 200
    assert (await office.teamwork.deadlines.notify_due()).failed == 0
    assert (await office.get("/api/notifications", user=CHO))["total"] == 1


async def test_an_invalid_deadline_blocks_no_other(office: Office) -> None:
    deadlines, keys = office.teamwork.deadlines, office.teamwork.keys
    soon = date(2096, 10, 5)
    for team in (2, 3, 5):
        await deadlines.register(team, Deadline("DEFECT", "1"), soon, title="Print", assignee=BEN)
    # From another program: a title that is too long for an event, and an invalid record.
    await keys.due_item(3, "DEFECT", "0").put({"title": "x" * 600, "docNo": "", "due": soon, "assigneeId": BEN})
    await keys.deadlines(3).put({Deadline("DEFECT", "0"): 4_000_233_600})
    await keys.deadlines.store.run([("HDEL", keys.due_item(2, "DEFECT", "1").key, "title")])
    await deadlines.register(6, Deadline("DEFECT", "1"), soon, title="Print", assignee=BEN)
    await keys.deadlines.store.run([("ZADD", keys.deadlines(6).key, 4_000_233_600, "what is no member")])
    done = await deadlines.notify_due()
    assert (done.teams, done.notified, done.failed) == (5, 3, 3)  # one team has members but no deadlines
    await keys.deadlines.store.run([("ZADD", keys.deadlines(3).key, 4_000_233_600, "what is no member")])
    assert len((await office.get("/api/deadlines"))["items"]) == 2
    assert (await office.get("/api/dashboard/summary"))["activeDefects"] == 2


@pytest.mark.matrix
async def test_jobs_on_two_machines_notify_each_of_many_deadlines_once(office: Office) -> None:
    deadlines = office.teamwork.deadlines
    for number in range(520):
        await deadlines.register(3, Deadline("DEFECT", str(number)), date(2096, 10, 5), title="t", assignee=BEN)
    await asyncio.gather(deadlines.notify_due(), deadlines.notify_due())
    assert (await deadlines.notify_due()).notified == 0
    listed = await office.get("/api/notifications?size=1")
    assert listed["total"] == 520


async def test_every_change_that_a_summary_counts_is_seen_by_the_next_read(office: Office) -> None:
    async def counted() -> tuple[int, int]:
        found = await office.get("/api/dashboard/summary")
        return found["activeDefects"], found["unreadNotifications"]

    deadlines, relay = office.teamwork.deadlines, office.teamwork.relay
    assert relay is not None
    assert await counted() == (0, 0)
    ref = Deadline("DEFECT", "1")
    await deadlines.register(3, ref, date(2096, 10, 5), title="t", assignee=BEN)
    assert await counted() == (1, 0)
    await office.tell(1)
    await relay.publish_waiting()
    assert await counted() == (1, 1)
    assert await office.teamwork.mark_read(BEN) == 1
    assert await counted() == (1, 0)
    await deadlines.complete(3, ref)
    assert await counted() == (0, 0)
    deployment = Deadline("DEPLOYMENT", "1")
    await deadlines.register(3, deployment, date(2096, 10, 1), title="t")
    assert (await office.get("/api/dashboard/summary"))["upcomingDeployments"] == 0
    assert await deadlines.move(3, deployment, date(2096, 10, 3))
    assert (await office.get("/api/dashboard/summary"))["upcomingDeployments"] == 1


async def test_a_user_moved_to_another_team_is_in_it_from_the_next_request_on(office: Office) -> None:
    assert (await office.get("/api/me"))["teamId"] == 3
    moved = UserSession(name="Ben", email="u@example.com", role="DEVELOPER", team_id=4, team_role="MEMBER")
    await office.teamwork.people.save(BEN, moved)
    assert (await office.get("/api/me"))["teamId"] == 4
    hired = office.token(1000)
    assert (await office.http.get("/api/me", headers=hired)).status_code == 401
    await office.teamwork.people.save(1000, moved)
    assert (await office.http.get("/api/me", headers=hired)).status_code == 200


@pytest.mark.parametrize("wrong", [("DEFECT", "x\0"), ("DEFECT", "é" * 150), ("defect", "1"), ("DEFECT", "")])
async def test_a_deadline_that_no_notice_could_contain_is_refused(office: Office, wrong: tuple[str, str]) -> None:
    with pytest.raises(KeysteadError):
        await office.teamwork.deadlines.register(3, Deadline(*wrong), date(2096, 10, 5), title="t", assignee=BEN)


async def test_the_rate_limit_of_one_user_does_not_affect_others(office: Office) -> None:
    event = {"kind": "assigned", "id": "e", "item": {**ITEM, "assigneeId": BEN}}
    ann, cho = office.token(ANN), office.token(CHO)
    said = [(await office.http.post("/api/events", json=event, headers=ann)).status_code for _ in range(121)]
    assert (said.count(200), said[-1]) == (120, 429)
    held = await office.http.post("/api/events", json=event, headers=ann)
    assert (held.json()["code"], int(held.headers["retry-after"]) <= 60) == ("RATE_LIMITED", True)
    assert (await office.http.post("/api/events", json=event, headers=cho)).status_code == 200
    assert (await office.http.put("/api/deadlines/DEFECT/1", json=DUE, headers=ann)).status_code == 200
    office.clock.pass_ms(60_000)
    assert (await office.http.post("/api/events", json=event, headers=ann)).status_code == 200


async def test_concurrently_opened_streams_are_counted(office: Office) -> None:
    async def still() -> bool:
        return True

    opened = await asyncio.gather(
        *(stream_notices(office.teamwork.streams, BEN, None, still) for _ in range(30)), return_exceptions=True
    )
    streams = [one for one in opened if not isinstance(one, BaseException)]
    assert len(streams) == 8
    assert {type(one) for one in opened if isinstance(one, BaseException)} == {TooManyStreams}
    for one in streams:
        assert (await anext(one)).startswith(b"retry:")
        await one.aclose()
    again = await stream_notices(office.teamwork.streams, BEN, None, still)
    await again.aclose()


async def test_a_revoked_token_ends_its_stream_in_time_during_a_burst(office: Office) -> None:
    ended_ms, heard_ms = office.clock(), 0

    async def still() -> bool:
        return office.clock() <= ended_ms

    stream = await stream_notices(office.teamwork.streams, BEN, None, still)
    await anext(stream)
    for number in range(10):
        office.clock.pass_ms(4_900)
        await office.tell(number)
        if b"bye" in await anext(stream):
            break
        heard_ms = office.clock() - ended_ms
    assert heard_ms <= 15_000
    assert [one async for one in stream] == []


async def test_a_stream_waits_while_its_token_cannot_be_checked(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keystead.kits.teamwork.service.streams._HOLD_S", 0)
    answers: list[bool | None] = [None, None, True, None, False]

    async def still() -> bool | None:
        return answers.pop(0)

    stream = await stream_notices(office.teamwork.streams, BEN, None, still)
    await anext(stream)
    heard: list[bytes] = []
    for number in range(2):
        assert await office.tell(number) == 1
        office.clock.pass_ms(5_000)
        while b"event" not in (one := await anext(stream)):
            heard.append(one)
        assert b"event: notice" in one
    assert heard == [b": still here\n\n"] * 2
    office.clock.pass_ms(5_000)
    assert [one async for one in stream] == [b": still here\n\n", b"event: bye\ndata: {}\n\n"]


async def test_during_an_outage_a_stream_ends_without_an_error(office: Office) -> None:
    async def still() -> bool:
        raise StoreUnavailable("it is away")

    stream = await stream_notices(office.teamwork.streams, BEN, None, still)
    await anext(stream)
    assert await office.tell(1) == 1
    assert b"event: notice" in await anext(stream)
    office.clock.pass_ms(60_000)
    assert [one async for one in stream] == []


async def test_an_application_with_its_own_users_decides_who_is_in_a_team() -> None:
    async def load(user: int) -> UserSession | None:
        team = {ANN: 3, BEN: 3, OUTSIDER: 4}.get(user)
        if team is None:
            return None
        return UserSession(name="u", email="u@example.com", role="DEVELOPER", team_id=team, team_role="MEMBER")

    settings = Settings(store="memory://", public_url=BASE, seal_keys=RING)
    clock = Clock(4_000_017_600_000)
    app = create_app(settings, [teamwork_kit(load=load)], now_ms=clock)
    async with app.router.lifespan_context(app):
        office = Office(app, clock)
        async with office.http:
            assert [await office.tell(1), await office.tell(2, assigneeId=OUTSIDER)] == [1, 0]
            for assignee, status in ((BEN, 200), (OUTSIDER, 400), (12345, 400)):
                body = {**DUE, "assigneeId": assignee}
                put = await office.http.put("/api/deadlines/DEFECT/1", json=body, headers=office.token(ANN))
                assert put.status_code == status
