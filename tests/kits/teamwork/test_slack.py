"""Notices in Slack: at least once, with a stable id, and a log of all attempts."""

import html
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from keystead import connect
from keystead.kits.teamwork.models import NoticeArguments, UserSession
from keystead.kits.teamwork.service.notice_rows import NewNotice, Notice
from keystead.kits.teamwork.service.notice_types import ASSIGNED, STATUS_CHANGED, TEAM_INVITED
from keystead.kits.teamwork.service.notices import Notices
from keystead.kits.teamwork.service.slack import Slack, SlackLog, SlackSender
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from keystead.parts.outbox import DeliveryCounts, Outbox, OutboxKeys
from keystead.parts.tables import Tables, open_tables
from tests.every_database import database_url, mariadb_server, on_databases, postgres_server
from tests.parts.oauth.stand_in import StandIn, answer, stand_in
from tests.parts.sessions.conftest import Clock

__all__ = ["database_url", "mariadb_server", "postgres_server"]

HOOK, POST = "/services/T0/B0/secret", "/api/chat.postMessage"


@pytest.fixture
async def slack() -> AsyncIterator[StandIn]:
    async with stand_in() as server:
        yield server


@pytest.fixture
async def tables(database_url: str) -> AsyncIterator[Tables]:
    async with open_tables(database_url, TEAMWORK_TABLES) as opened:
        yield opened


class Office:
    """A sender with its outbox, on a store in memory."""

    def __init__(
        self, slack: Slack, tables: Tables, http: httpx2.AsyncClient, store: Any, clock: Clock, **more: Any
    ) -> None:
        self.notices = Notices(tables)
        self.log = SlackLog(tables)
        self.sender = SlackSender(slack, self.notices, self.log, http, clock, **more)
        self.keys = OutboxKeys(store, now_ms=clock)
        self.outbox = Outbox(self.keys, self.sender.send)
        self.clock = clock

    async def tell(self, number: int, kind: str = ASSIGNED, message: str = "Print") -> Notice:
        told = NewNotice(42, kind, f"WR-{number}", message, "WORK_REQUEST", "101")
        [notice] = await self.notices.write(f"e{number}", [told], self.clock())
        await self.keys.atomically(*self.outbox.add("slack", "42", {"notice": notice.id, "user": 42}))
        return notice

    async def deliver(self) -> DeliveryCounts:
        return await self.outbox.deliver_due()


@pytest.fixture
async def office(slack: StandIn, tables: Tables, request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    by_token = Slack(token="xoxb-secret", channel="C1", post_url=slack.url + POST)
    by_hook = Slack(webhook_url=slack.url + HOOK)
    more: dict[str, Any] = {"person": _person, "link": lambda one: f"https://x.example/{one.id}"}
    chosen, known = (by_hook, more) if "webhook" in request.node.name else (by_token, {})
    async with httpx2.AsyncClient(trust_env=False) as http, connect("memory://") as store:
        yield Office(chosen, tables, http, store, Clock(), **known)


async def _person(user: int) -> UserSession | None:
    """Mei has a Slack id, Ann has none, and there are no other users."""
    if user not in (42, 7):
        return None
    name, slack_id = {42: ("Mei", "U7"), 7: ("Ann <b>", None)}[user]
    return UserSession(name=name, email="", role="", team_id=3, team_role="MEMBER", slack_id=slack_id)


def posted(slack: StandIn, path: str) -> list[dict[str, Any]]:
    return [json.loads(sent.partition("\r\n\r\n")[2]) for asked, sent in slack.asked if asked == path]


@on_databases()
async def test_each_notice_is_posted_by_a_bot_and_logged(office: Office, slack: StandIn) -> None:
    slack.answers[POST] = answer({"ok": True, "ts": "1.2"})
    notice = await office.tell(1, message="a < b & <!channel>")
    assert await office.deliver() == DeliveryCounts(1, 0, 0)
    [sent] = posted(slack, POST)
    assert sent["channel"] == "C1"
    [bar] = sent["attachments"]
    assert bar["color"] == "#4A90D9"
    assert bar["blocks"][0]["block_id"] == f"notice-{notice.id}"
    assert bar["blocks"][0]["text"]["text"] == "*WR-1*\na &lt; b &amp; &lt;!channel&gt;"
    assert "authorization: bearer xoxb-secret" in slack.asked[0][1].lower()
    [attempt] = await office.log.attempts(notice=notice.id)
    assert (attempt.status, attempt.error, attempt.retries, attempt.payload) == ("SENT", None, 0, sent)
    found = await office.notices.find(42, notice.id)
    assert found is not None
    assert found.slack_sent


@on_databases("memory")
async def test_429_is_obeyed_and_500_is_retried_in_order(office: Office, slack: StandIn) -> None:
    answers = [
        answer({}, 429, "retry-after: 30\r\n"),
        answer(b"oops", 500),
        answer({"ok": False, "error": "ratelimited"}),
    ]
    slack.answers[POST] = lambda: answers.pop(0) if answers else answer({"ok": True})
    first, second = await office.tell(1), await office.tell(2)
    assert await office.deliver() == DeliveryCounts(0, 1, 0)
    assert await office.deliver() == DeliveryCounts(0, 0, 0)  # it waits for its retry
    for _ in range(2):
        office.clock.pass_ms(600_000)
        assert await office.deliver() == DeliveryCounts(0, 1, 0)
    office.clock.pass_ms(600_000)
    assert await office.deliver() == DeliveryCounts(2, 0, 0)
    names = [sent["attachments"][0]["blocks"][0]["block_id"] for sent in posted(slack, POST)]
    assert names == [f"notice-{first.id}"] * 4 + [f"notice-{second.id}"]
    tried = [(one.status, one.error, one.retries) for one in reversed(await office.log.attempts(notice=first.id))]
    assert tried == [
        ("FAILED", "Slack rate limit reached", 0),
        ("FAILED", "Slack responded 500, not JSON", 1),
        ("FAILED", "Slack responded 200, ratelimited", 2),
        ("SENT", None, 3),
    ]
    assert [one.notice for one in await office.log.attempts(status="SENT")] == [second.id, first.id]


@on_databases("memory")
@pytest.mark.parametrize("mark", ["&", "<", "x", "é", "😀"])
async def test_text_is_truncated_for_slack_but_not_within_an_entity(office: Office, slack: StandIn, mark: str) -> None:
    told = NewNotice(42, ASSIGNED, mark * 500, mark * 5_000, "WORK_REQUEST", "101")
    [notice] = await office.notices.write("long", [told], office.clock())
    text = (await office.sender.payload(notice))["attachments"][0]["blocks"][0]["text"]["text"]
    assert 2_900 < len(text) <= 3_000
    shown = html.unescape(text).replace("\n", "").replace("*", "")
    assert set(shown) == {mark}


@on_databases("memory")
async def test_a_permanent_error_of_slack_gives_up_only_that_message(office: Office, slack: StandIn) -> None:
    answers = [answer({"ok": False, "error": "invalid_blocks"})]
    slack.answers[POST] = lambda: answers.pop(0) if answers else answer({"ok": True})
    await office.tell(1)
    await office.tell(2)
    assert await office.deliver() == DeliveryCounts(1, 1, 1)  # a given-up failure counts as both


@on_databases("memory")
async def test_a_webhook_message_has_a_name_and_a_button(office: Office, slack: StandIn) -> None:
    slack.answers[HOOK] = answer(b"ok")
    notice = await office.tell(1, TEAM_INVITED)
    assert await office.deliver() == DeliveryCounts(1, 0, 0)
    [sent] = posted(slack, HOOK)
    assert "channel" not in sent
    section, actions = sent["attachments"][0]["blocks"]
    assert sent["attachments"][0]["color"] == "#868E96"
    assert section["text"]["text"] == "*WR-1*\n<@U7> Print"
    assert actions["elements"][0]["url"] == f"https://x.example/{notice.id}"


@on_databases("memory")
async def test_a_webhook_message_names_actor_and_assignee_and_links_to_the_item(office: Office, slack: StandIn) -> None:
    async def text(user: int, kind: str, **said: Any) -> tuple[str, str]:
        words = NoticeArguments(event="e", doc="WR-1", item="Print", actor="Ben", **said)
        [notice] = await office.notices.write(f"{user}{kind}", [NewNotice(user, kind, "", "", "DEFECT", "1", words)], 1)
        [bar] = (await office.sender.payload(notice))["attachments"]
        assert bar["blocks"][1]["elements"][0]["url"] == f"https://x.example/{notice.id}"
        head, _, rest = bar["blocks"][0]["text"]["text"].partition("\n")
        return head, rest

    assert await text(42, ASSIGNED, assignee_id=42) == ("*Ben assigned WR-1 to Mei*", "<@U7> Print")
    assert await text(7, ASSIGNED, assignee_id=7) == (
        "*Ben assigned WR-1 to Ann &lt;b&gt;*",
        "Ann &lt;b&gt;: Print",
    )
    changed = await text(7, STATUS_CHANGED, assignee_id=42, before="검토중", after="개발중")
    assert changed == (
        "*Ben changed the status of WR-1*",
        "Ann &lt;b&gt;: Print: in review → in development\nAssignee: <@U7>",
    )
    assert await text(99, ASSIGNED, assignee_id=99) == ("*Ben assigned WR-1 to you*", "Print")


@on_databases("memory")
async def test_errors_do_not_contain_the_webhook_url(office: Office, slack: StandIn) -> None:
    slack.answers[HOOK] = answer(b"no_service", 404)
    await office.tell(1)
    await office.deliver()
    [attempt] = await office.log.attempts()
    assert attempt.error == "Slack responded 404, no_service"
    state = await office.outbox.state("slack", "42")
    assert "secret" not in repr((attempt, state, office.sender._slack))


@on_databases("memory")
@pytest.mark.parametrize("by", ["webhook", "token"])
async def test_debug_logs_contain_no_secret(
    office: Office, slack: StandIn, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    slack.answers[HOOK], slack.answers[POST] = answer(b"ok"), answer({"ok": True})
    await office.tell(1)
    assert await office.deliver() == DeliveryCounts(1, 0, 0)
    assert len(slack.asked) == 1
    assert "secret" not in caplog.text


@on_databases("memory")
@pytest.mark.parametrize(
    ("said", "wait_ms"),
    [
        (answer({}, 429), 1_000),
        (answer({}, 429, "retry-after: -5\r\n"), 1_000),
        (answer({}, 429, "retry-after: Wed, 21 Oct 2099 07:28:00 GMT\r\n"), 1_000),
        (answer({}, 429, "retry-after: 999999\r\n"), 3_600_000),
        (answer({}, 429, "retry-after: 99999999999999999999\r\n"), 1_000),
        (answer(b"", 302, "location: http://127.0.0.1:9/\r\n"), 0),
        (answer({"ok": "yes"}), 0),
        (answer(b"[" * 100_000), 0),
    ],
)
async def test_any_response_of_slack_is_retried_with_back_off(
    office: Office, slack: StandIn, said: Any, wait_ms: int
) -> None:
    answers = [said]
    slack.answers[POST] = lambda: answers.pop(0) if answers else answer({"ok": True})
    await office.tell(1)
    assert await office.deliver() == DeliveryCounts(0, 1, 0)
    trouble = (await office.outbox.state("slack", "42")).trouble
    assert trouble is not None
    assert [one.status for one in await office.log.attempts()] == ["FAILED"]
    assert office.clock() + max(1, wait_ms) <= trouble.next_ms <= office.clock() + 3_600_000
    office.clock.now_ms = trouble.next_ms + 1
    assert await office.deliver() == DeliveryCounts(1, 0, 0)


@on_databases("memory")
async def test_sent_and_deleted_notices_are_not_posted_again(office: Office, slack: StandIn, tables: Tables) -> None:
    slack.answers[POST] = answer({"ok": True})
    notice = await office.tell(1)
    await office.notices.mark_sent_to_slack(notice.id)
    await office.tell(2)
    await tables.erase("teamwork:42")
    assert await office.deliver() == DeliveryCounts(2, 0, 0)
    assert posted(slack, POST) == []


@on_databases()
async def test_old_attempts_are_deleted_in_batches(office: Office, slack: StandIn) -> None:
    slack.answers[POST] = answer({"ok": True})
    for number in range(5):
        await office.tell(number)
    await office.deliver()
    now_ms = office.clock()
    assert await office.log.delete_old(now_ms) == 0
    assert await office.log.delete_old(now_ms + 1, most=3) == 3
    assert await office.log.delete_old(now_ms + 1, most=3) == 2
