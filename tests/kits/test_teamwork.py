"""The key document of the teamwork kit: every command in the document, checked in the store."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import anyio
import pytest

from keystead import Store
from keystead.kits.teamwork import (
    DashboardSummary,
    Deadline,
    Notification,
    TeamworkKeys,
    UserSession,
    deadline_score,
)
from tests.kits.conftest import Raw, lifetimes, rows, rows_of
from tests.kits.writes import each_write

DOCUMENT = {
    "jwt:blacklist:{jti}": "Value",
    "session:user:{userId}": "Hash",
    "notifications:user:{userId}": "Channel",
    "deadlines:team:{teamId}": "SortedSet",
    "dashboard:summary:{userId}:{teamId}": "Hash",
}
USER = UserSession(name="김개발", email="dev@company.com", role="DEVELOPER", team_id=3, team_role="MEMBER")
NOTICE = Notification(
    notification_id=501,
    type="상태변경",
    title="WR-001 상태가 변경되었습니다",
    ref_type="WORK_REQUEST",
    ref_id=101,
    created_at=datetime(2026, 2, 23, 10, tzinfo=UTC),
)
SUMMARY = DashboardSummary(
    my_work_requests=12,
    my_tech_tasks=8,
    active_defects=5,
    upcoming_deployments=2,
    unread_notifications=3,
    computed_at=datetime(2026, 2, 23, 10, 5, tzinfo=UTC),
)


NEW = {
    "jwt:since:{userId}": "Value",
    "session:user:{userId}:mark": "Value",
    "dashboard:summary:{userId}:{teamId}:mark": "Value",
    "dashboard:teams:{userId}": "Set",
    "dashboard:users:{teamId}": "Set",
    "limits:requests:{name}:{window}:{client}": "Counter",
    "notifications:user:{userId}:log": "Log",
    "notifications:wakes:log": "Channel",
    "deadlines:item:{teamId}:{refType}:{refId}": "Hash",
    "deadlines:teams:all": "Set",
    "deadlines:found:{teamId}": "Hash",
    "team:settings:{teamId}": "Hash",
}


@pytest.fixture
def keys(store: Store) -> TeamworkKeys:
    return TeamworkKeys(store)


def test_every_row_of_the_document_is_a_family() -> None:
    assert rows_of(TeamworkKeys) == rows(DOCUMENT | NEW)


def test_the_lifetimes_are_those_of_the_document() -> None:
    found = lifetimes(TeamworkKeys)
    assert found.pop("notifications") == "never expires: messages are not stored"
    assert found == {
        "revoked_token": "until `expires_at`",
        "user_session": "30 minutes after the last use; touched at most once in 1 minute",
        "deadlines": "never expires: each deadline is removed when its work item is closed or deleted",
        "dashboard": "5 minutes",
        "tokens_since": "1 day",
        "user_session_mark": "10 seconds during a load, 5 seconds after a failure, 1 minute if there is nothing",
        "dashboard_mark": "10 seconds during a load, 2 seconds after a failure",
        "dashboard_users": "15 minutes after the last use; touched at most once in 1 minute",
        "dashboard_teams": "15 minutes after the last use; touched at most once in 1 minute",
        "notice_log": "7 days after the last use; touched at most once in 1 hour",
        "notice_wakes": "never expires: messages are not stored",
        "due_item": "never expires: deleted in one step with its deadline",
        "due_teams": "never expires: one member per team with deadlines",
        "due_found": "never expires: a field is removed when its deadline is gone",
        "team_settings": "never expires: deleted with the team",
        "requests": "1 minute 10 seconds",
    }


def test_keys_follow_the_naming_rule_of_the_document() -> None:
    assert TeamworkKeys.naming == "domain:entity:scope"
    for family in TeamworkKeys.families.values():
        domain, entity, *scope = family.pattern.display.split(":")
        assert domain.isalpha()
        assert entity.isalpha()
        assert scope


def test_revoked_tokens_are_durable() -> None:
    assert {name: family.role for name, family in TeamworkKeys.families.items() if family.role != "default"} == {
        "revoked_token": "durable",
        "tokens_since": "durable",
        "dashboard": "cache",
        "dashboard_mark": "cache",
        "dashboard_teams": "cache",
        "dashboard_users": "cache",
    }


async def test_a_logout_revokes_the_token_for_the_rest_of_its_time(keys: TeamworkKeys, raw: Raw) -> None:
    expires_at = datetime.now(UTC) + timedelta(seconds=3600)
    key = keys.revoked_token(jti="abc123xyz")
    async for verb in each_write(key, "1", expires_at=expires_at):
        assert await raw.ask("GET", "jwt:blacklist:abc123xyz") == b"1", verb
        assert await raw.lives("jwt:blacklist:abc123xyz", "1h"), verb
        assert await raw.ask("EXISTS", "jwt:blacklist:abc123xyz") == 1


async def test_the_session_of_a_user_is_the_hash_of_the_document(keys: TeamworkKeys, raw: Raw) -> None:
    await keys.user_session(userId=42).set(USER)
    assert await raw.ask("HGETALL", "session:user:42") == {
        b"name": "김개발".encode(),
        b"email": b"dev@company.com",
        b"role": b"DEVELOPER",
        b"teamId": b"3",
        b"teamRole": b"MEMBER",
    }
    assert await keys.user_session(userId=42).get() == USER


async def test_a_notice_is_published_as_in_the_document(keys: TeamworkKeys, store: Store) -> None:
    with anyio.fail_after(120):
        async with store.subscribe("notifications:user:42") as messages:
            await keys.notifications(userId=42).publish(NOTICE)
            async for message in messages:
                data = message.data
                break
    assert data.decode() == json.dumps(
        {
            "notificationId": 501,
            "type": "상태변경",
            "title": "WR-001 상태가 변경되었습니다",
            "refType": "WORK_REQUEST",
            "refId": 101,
            "createdAt": "2026-02-23T10:00:00Z",
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


async def test_a_notice_is_read_as_it_was_published(keys: TeamworkKeys) -> None:
    with anyio.fail_after(120):
        async with keys.notifications(userId=42).subscribe() as notices:
            await keys.notifications(userId=42).publish(NOTICE)
            async for notice in notices:
                assert notice == NOTICE
                break


async def test_deadlines_are_the_members_and_scores_of_the_document(keys: TeamworkKeys, raw: Raw) -> None:
    deadlines = keys.deadlines(teamId=3)
    await deadlines.put(
        {
            Deadline("WORK_REQUEST", "101"): deadline_score(date(2026, 3, 3)),
            Deadline("TECH_TASK", "21"): deadline_score(date(2026, 3, 4)),
            Deadline("TEST_SCENARIO", "17"): deadline_score(date(2026, 3, 5)),
            Deadline("DEFECT", "34"): deadline_score(date(2026, 3, 6)),
        }
    )
    assert await raw.ask("ZRANGE", "deadlines:team:3", 0, -1, "WITHSCORES") == [
        [b"WORK_REQUEST:101", 1772496000],
        [b"TECH_TASK:21", 1772582400],
        [b"TEST_SCENARIO:17", 1772668800],
        [b"DEFECT:34", 1772755200],
    ]
    await deadlines.put({Deadline("WORK_REQUEST", "101"): deadline_score(date(2026, 3, 7))})
    assert await raw.ask("ZSCORE", "deadlines:team:3", "WORK_REQUEST:101") == 1772841600
    assert await deadlines.count() == 4
    soon = await deadlines.between(deadline_score(date(2026, 3, 3)), deadline_score(date(2026, 3, 6)))
    assert [deadline for deadline, _ in soon] == [
        Deadline("TECH_TASK", "21"),
        Deadline("TEST_SCENARIO", "17"),
        Deadline("DEFECT", "34"),
    ]


def test_a_deadline_is_a_day_not_a_moment() -> None:
    with pytest.raises(TypeError):
        deadline_score(datetime(2026, 3, 3, 9, tzinfo=UTC))


async def test_a_dashboard_is_the_hash_of_the_document(keys: TeamworkKeys, raw: Raw) -> None:
    await keys.dashboard(userId=42, teamId=3).set(SUMMARY)
    assert await raw.ask("HGETALL", "dashboard:summary:42:3") == {
        b"myWorkRequests": b"12",
        b"myTechTasks": b"8",
        b"activeDefects": b"5",
        b"upcomingDeployments": b"2",
        b"unreadNotifications": b"3",
        b"computedAt": b"2026-02-23T10:05:00Z",
    }
    assert await keys.dashboard(userId=42, teamId=3).get() == SUMMARY
    assert await keys.dashboard(userId=42, teamId=3).delete() is True
    assert await raw.keys() == set()


async def test_a_time_of_another_zone_is_stored_in_whole_seconds_of_utc(keys: TeamworkKeys, raw: Raw) -> None:
    seoul = datetime.fromisoformat("2026-02-23T19:05:00.999+09:00")
    await keys.dashboard(userId=42, teamId=3).set(SUMMARY.model_copy(update={"computed_at": seoul}))
    assert await raw.ask("HGET", "dashboard:summary:42:3", "computedAt") == b"2026-02-23T10:05:00Z"


@pytest.mark.parametrize(
    ("name", "values", "value", "duration"),
    [
        ("user_session", (42,), USER, "1800s"),
        ("deadlines", (3,), Deadline("DEFECT", "34"), None),
        ("dashboard", (42, 3), SUMMARY, "300s"),
    ],
)
async def test_each_write_sets_the_lifetime_of_the_document(
    keys: TeamworkKeys, raw: Raw, name: str, values: tuple[int, ...], value: Any, duration: str | None
) -> None:
    key = getattr(keys, name)(*values)
    async for verb in each_write(key, value):
        assert await raw.lives(key.key, duration), verb


async def test_activity_renews_the_session(keys: TeamworkKeys, raw: Raw) -> None:
    key = keys.user_session(userId=42)
    await key.set(USER)
    await raw.ask("PEXPIRE", key.key, 60_000)  # as if 29 minutes had passed
    assert await key.use() == USER
    assert await raw.lives(key.key, "1800s")
