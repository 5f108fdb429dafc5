"""Notices in Slack: by an incoming webhook or by a bot's token, and a log of every attempt."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import httpx2
from sqlalchemy import Connection, Row, delete, insert, select

from keystead.errors import StoreError
from keystead.kits.language import Language
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service.messages import ASSIGNEE, OPEN, message_of, title_of
from keystead.kits.teamwork.service.notice_rows import Notice
from keystead.kits.teamwork.service.notice_types import (
    ASSIGNED,
    COMMENTED,
    DEADLINE,
    DEPLOYED,
    DEPLOYMENT_FAILED,
    IDEA_ADOPTED,
    MENTIONED,
    STATUS_CHANGED,
)
from keystead.kits.teamwork.service.notices import Notices
from keystead.kits.teamwork.service.tables import SLACK_LOG
from keystead.parts.cache import LoadFailed
from keystead.parts.outbox import DeliveryFailed, OutboxMessage, Undeliverable
from keystead.parts.tables import Tables

POST_URL: Final = "https://slack.com/api/chat.postMessage"
COLOURS: Final[Mapping[str, str]] = {
    ASSIGNED: "#4A90D9",
    STATUS_CHANGED: "#F5A623",
    DEPLOYED: "#27AE60",
    DEPLOYMENT_FAILED: "#E74C3C",
    IDEA_ADOPTED: "#9B59B6",
    DEADLINE: "#E67E22",
    COMMENTED: "#3498DB",
    MENTIONED: "#1ABC9C",
}
OTHER_COLOUR: Final = "#868E96"
_LONGEST_ANSWER: Final = 64 * 1024
_LONGEST_WORD: Final = 64
_TEXT_MOST: Final = 3_000  # what is longer Slack never takes
_TITLE_MOST: Final = 600
_NAME_MOST: Final = 200
_LINK_MOST: Final = 3_000

# What Slack says of a message that it will never take. All else an operator can mend, or it passes.
_NEVER: Final = frozenset(
    {"invalid_blocks", "invalid_attachments", "msg_too_long", "no_text", "invalid_payload", "too_many_attachments"}
)


@dataclass(frozen=True)
class Slack:
    """Where notices go. Either a webhook's URL, or a bot's token with a channel."""

    webhook_url: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    channel: str = ""
    post_url: str = POST_URL
    language: Language = "en"  # a channel has many readers


@dataclass(frozen=True)
class Attempt:
    """One attempt to tell Slack of a notice."""

    id: int
    notice: int
    user: int
    channel: str
    status: Literal["SENT", "FAILED"]
    error: str | None
    retries: int
    sent_at_ms: int
    payload: dict[str, Any]


class SlackLog:
    """The log of all attempts to tell Slack. It is there, and forgets, whether Slack is configured or not."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def attempts(
        self,
        *,
        notice: int | None = None,
        status: str | None = None,
        users: Collection[int] | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> list[Attempt]:
        """What was tried, the newest first: all, or of one notice, with one outcome, to some users, before an id."""
        asked = select(SLACK_LOG).order_by(SLACK_LOG.c.id.desc()).limit(most)
        if notice is not None:
            asked = asked.where(SLACK_LOG.c.notice_id == notice)
        if status is not None:
            asked = asked.where(SLACK_LOG.c.status == status)
        if users is not None:
            asked = asked.where(SLACK_LOG.c.user_id.in_(list(users)))
        if before is not None:
            asked = asked.where(SLACK_LOG.c.id < before)
        return await self._tables.read(lambda connection: [_attempt(row) for row in connection.execute(asked)])

    async def forget(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` attempts from before a moment; how many there were."""

        def work(connection: Connection) -> int:
            old = select(SLACK_LOG.c.id).where(SLACK_LOG.c.sent_at_ms < before_ms).limit(most)
            ids = [found for (found,) in connection.execute(old)]
            if ids:
                connection.execute(delete(SLACK_LOG).where(SLACK_LOG.c.id.in_(ids)))
            return len(ids)

        return await self._tables.write(work)

    async def note(
        self, notice: Notice, payload: dict[str, Any], *, channel: str, retries: int, error: str | None, at_ms: int
    ) -> None:
        """Write down an attempt; without an error it was sent."""
        row = {
            "notice_id": notice.id,
            "user_id": notice.user,
            "channel": channel,
            "payload": json.dumps(payload, ensure_ascii=False),
            "status": "SENT" if error is None else "FAILED",
            "error": error,
            "retries": retries,
            "sent_at_ms": at_ms,
        }
        await self._tables.write(lambda connection: connection.execute(insert(SLACK_LOG).values(**row)))


def _attempt(row: Row[Any]) -> Attempt:
    return Attempt(
        row.id,
        row.notice_id,
        row.user_id,
        row.channel,
        row.status,
        row.error,
        row.retries,
        row.sent_at_ms,
        json.loads(row.payload),
    )


class _Called(NamedTuple):
    """Somebody, as they are called in a title, and as Slack mentions them."""

    name: str
    mention: str
    is_member: bool = False  # of the workspace, as far as is known


class SlackSender:
    """Sends what the outbox gives it, and writes down each attempt.

    person   who somebody is: what they are called, and by which id they are mentioned; None: nobody knows
    link     where the item of a notice can be seen; "" without a link

    A message carries the id of its notice (`block_id`), which is the same each time it is sent. Slack answers 429 with
    how long to wait, which is obeyed; what it refuses for good is given up; all else is tried again.
    """

    def __init__(
        self,
        slack: Slack,
        notices: Notices,
        log: SlackLog,
        http: httpx2.AsyncClient,
        now_ms: Callable[[], int],
        *,
        person: Callable[[int], Awaitable[UserSession | None]] | None = None,
        link: Callable[[Notice], str] = lambda notice: "",
    ) -> None:
        self._slack = slack
        self._notices = notices
        self._log = log
        self._http = http
        self._now_ms = now_ms
        self._person = person
        self._link = link

    async def send(self, message: OutboxMessage) -> None:
        """For `Outbox`. Raises DeliveryFailed or Undeliverable where Slack did not take it."""
        user, number = message.payload.get("user"), message.payload.get("notice")
        notice = await self._notices.find(user, number) if isinstance(user, int) and isinstance(number, int) else None
        if notice is None:
            return  # erased meanwhile: there is nothing left to tell of
        if notice.slack_sent:
            return
        payload = await self.payload(notice)
        note = partial(self._log.note, notice, payload, channel=self._slack.channel, retries=message.attempts)
        try:
            await self._post(payload)
        except (DeliveryFailed, Undeliverable) as error:
            await note(error=str(error), at_ms=self._now_ms())
            raise
        await note(error=None, at_ms=self._now_ms())
        await self._notices.sent_to_slack(notice.id)

    async def payload(self, notice: Notice) -> dict[str, Any]:
        """What is posted: a coloured bar, the title, who is told of it and the text, and a button that opens the item.

        Whom it concerns is mentioned by their id in Slack where it is known, and named otherwise.
        """
        language, said = self._slack.language, notice.said
        reader = await self._find_name(notice.user)
        title = notice.title if said is None else title_of(notice.type, said, language, reader.name or None)
        message = notice.message if said is None else message_of(said, language)
        title = _truncate(title, _TITLE_MOST)
        head = f"*{title}*\n" + (f"{reader.mention}{' ' if reader.is_member else ': '}" if reader.mention else "")
        foot = ""
        if said is not None and said.assignee_id is not None and said.assignee_id != notice.user:
            assignee = await self._find_name(said.assignee_id)
            foot = f"\n{ASSIGNEE[language]}: {assignee.mention}" if assignee.mention else ""
        text = head + _truncate(message, _TEXT_MOST - len(head) - len(foot)) + foot
        section = {"type": "section", "block_id": f"notice-{notice.id}", "text": {"type": "mrkdwn", "text": text}}
        blocks: list[dict[str, Any]] = [section]
        link = self._link(notice)
        if link and len(link) <= _LINK_MOST:
            button = {"type": "button", "text": {"type": "plain_text", "text": OPEN[language]}, "url": link}
            blocks.append({"type": "actions", "block_id": f"open-{notice.id}", "elements": [button]})
        made: dict[str, Any] = {
            "text": title,
            "attachments": [{"color": COLOURS.get(notice.type, OTHER_COLOUR), "blocks": blocks}],
        }
        return made if not self._slack.channel else {"channel": self._slack.channel, **made}

    async def _find_name(self, user: int) -> _Called:
        try:
            person = None if self._person is None else await self._person(user)
        except (StoreError, LoadFailed):
            person = None  # a message that names nobody is better than none
        if person is None:
            return _Called("", "")
        if person.slack_id:
            return _Called(person.name, f"<@{_escape(person.slack_id)}>", is_member=True)
        return _Called(person.name, _truncate(person.name, _NAME_MOST))

    # --- the wire --------------------------------------------------------------------------------------------

    async def _post(self, payload: dict[str, Any]) -> None:
        headers = {"authorization": f"Bearer {self._slack.token}"} if self._slack.token else {}
        try:
            url = httpx2.URL(self._slack.post_url if self._slack.token else self._slack.webhook_url)
            # The path of a webhook is its secret, and the client logs the address that it is given.
            shown, target = url.copy_with(path="/", query=None, fragment=None), {"target": url.raw_path}
            asked = self._http.stream("POST", shown, json=payload, headers=headers, extensions=target)
            async with asked as answer:
                body = b""
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > _LONGEST_ANSWER:
                        break
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            # Its own words may hold the URL, which is a secret.
            raise DeliveryFailed(f"Slack cannot be reached ({type(error).__name__})") from None
        self._judge(answer.status_code, answer.headers.get("retry-after", ""), body)

    def _judge(self, status: int, asked: str, body: bytes) -> None:
        if status == 429:
            seconds = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 7 else 1
            raise DeliveryFailed("Slack says that this was too much at once", seconds * 1000)
        word = _word_of(body) if self._slack.token else body.decode("utf-8", "replace")[:_LONGEST_WORD]
        if status == 200 and (not self._slack.token or not word):
            return
        said = f"Slack answered {status}" + (f", {word}" if word.isprintable() and word else "")
        if word in _NEVER:
            raise Undeliverable(said)
        raise DeliveryFailed(said)


def _word_of(body: bytes) -> str:
    """What the API of Slack says is wrong; "" where nothing is."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return "what is no JSON"
    if isinstance(told, dict) and told.get("ok") is True:
        return ""
    error = told.get("error") if isinstance(told, dict) else None
    return error[:_LONGEST_WORD] if isinstance(error, str) and error else "without a reason"


def _escape(text: str) -> str:
    """Slack reads `<…>` as a link or a mention, and `&` as the beginning of an entity."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _truncate(text: str, most: int) -> str:
    """A text as Slack reads it, of at most so many characters, and not cut within an entity."""
    escaped = _escape(text)
    if len(escaped) <= most:
        return escaped
    cut = escaped[:most]
    begun = cut.rfind("&")
    return cut if begun < 0 or ";" in cut[begun:] else cut[:begun]
