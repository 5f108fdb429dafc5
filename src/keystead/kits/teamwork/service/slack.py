"""Notices in Slack: by an incoming webhook or by a bot's token, and a log of every attempt."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx2
from sqlalchemy import Connection, delete, insert, select

from keystead.kits.teamwork.service.notices import (
    ASSIGNED,
    COMMENTED,
    DEADLINE,
    DEPLOYED,
    DEPLOYMENT_FAILED,
    IDEA_ADOPTED,
    MENTIONED,
    STATUS_CHANGED,
    Notice,
    Notices,
)
from keystead.kits.teamwork.service.tables import SLACK_LOG
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

# What Slack says of a message that it will never take. All else an operator can mend, or it passes.
_NEVER: Final = frozenset(
    {"invalid_blocks", "invalid_attachments", "msg_too_long", "no_text", "invalid_payload", "too_many_attachments"}
)


@dataclass(frozen=True)
class Slack:
    """Where notices go. Either a webhook's URL, or a bot's token with a channel.

    mention   the id in Slack of a user, so that they are named in the message; None: they have none there
    link      where a notice can be seen; "" without a link
    """

    webhook_url: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    channel: str = ""
    post_url: str = POST_URL
    mention: Callable[[int], str | None] = lambda user: None
    link: Callable[[Notice], str] = lambda notice: ""


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


class SlackSender:
    """Sends what the outbox gives it, and writes down each attempt.

    A message carries the id of its notice (`block_id`), which is the same each time it is sent. Slack answers 429 with
    how long to wait, which is obeyed; what it refuses for good is given up; all else is tried again.
    """

    def __init__(
        self, slack: Slack, notices: Notices, tables: Tables, http: httpx2.AsyncClient, now_ms: Callable[[], int]
    ) -> None:
        self._slack = slack
        self._notices = notices
        self._tables = tables
        self._http = http
        self._now_ms = now_ms

    async def send(self, message: OutboxMessage) -> None:
        """For `Outbox`. Raises DeliveryFailed or Undeliverable where Slack did not take it."""
        user, number = message.payload.get("user"), message.payload.get("notice")
        notice = await self._notices.find(user, number) if isinstance(user, int) and isinstance(number, int) else None
        if notice is None:
            return  # erased meanwhile: there is nothing left to tell of
        if notice.slack_sent:
            return
        payload = self.payload(notice)
        try:
            await self._post(payload)
        except (DeliveryFailed, Undeliverable) as error:
            await self._note(notice, payload, message.attempts, str(error))
            raise
        await self._note(notice, payload, message.attempts, None)
        await self._notices.sent_to_slack(notice.id)

    def payload(self, notice: Notice) -> dict[str, Any]:
        """What is posted: a coloured bar, the title, the text, and a button where there is something to open."""
        named = self._slack.mention(notice.user)
        title = _fitting(notice.title, _TITLE_MOST)
        head = f"*{title}*\n" + (f"<@{_escaped(named)}> " if named else "")
        text = head + _fitting(notice.message, _TEXT_MOST - len(head))
        blocks: list[dict[str, Any]] = [
            {
                "type": "section",
                "block_id": f"notice-{notice.id}",
                "text": {"type": "mrkdwn", "text": text},
            }
        ]
        link = self._slack.link(notice)
        if link:
            button = {"type": "button", "text": {"type": "plain_text", "text": "Open"}, "url": link}
            blocks.append({"type": "actions", "block_id": f"open-{notice.id}", "elements": [button]})
        made: dict[str, Any] = {
            "text": title,
            "attachments": [{"color": COLOURS.get(notice.type, OTHER_COLOUR), "blocks": blocks}],
        }
        return made if not self._slack.channel else {"channel": self._slack.channel, **made}

    # --- the log ---------------------------------------------------------------------------------------------

    async def attempts(self, *, notice: int | None = None, status: str | None = None, most: int = 100) -> list[Attempt]:
        """What was tried, the newest first."""
        asked = select(SLACK_LOG).order_by(SLACK_LOG.c.id.desc()).limit(most)
        if notice is not None:
            asked = asked.where(SLACK_LOG.c.notice_id == notice)
        if status is not None:
            asked = asked.where(SLACK_LOG.c.status == status)

        def work(connection: Connection) -> list[Attempt]:
            return [
                Attempt(
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
                for row in connection.execute(asked)
            ]

        return await self._tables.read(work)

    async def forget(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` attempts from before a moment; how many there were."""

        def work(connection: Connection) -> int:
            old = select(SLACK_LOG.c.id).where(SLACK_LOG.c.sent_at_ms < before_ms).limit(most)
            ids = [found for (found,) in connection.execute(old)]
            if ids:
                connection.execute(delete(SLACK_LOG).where(SLACK_LOG.c.id.in_(ids)))
            return len(ids)

        return await self._tables.write(work)

    async def _note(self, notice: Notice, payload: dict[str, Any], retries: int, error: str | None) -> None:
        row = {
            "notice_id": notice.id,
            "user_id": notice.user,
            "channel": self._slack.channel,
            "payload": json.dumps(payload, ensure_ascii=False),
            "status": "SENT" if error is None else "FAILED",
            "error": error,
            "retries": retries,
            "sent_at_ms": self._now_ms(),
        }
        await self._tables.write(lambda connection: connection.execute(insert(SLACK_LOG).values(**row)))

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


def _escaped(text: str) -> str:
    """Slack reads `<…>` as a link or a mention, and `&` as the beginning of an entity."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fitting(text: str, most: int) -> str:
    """A text as Slack reads it, of at most so many characters, and not cut within an entity."""
    escaped = _escaped(text)
    if len(escaped) <= most:
        return escaped
    cut = escaped[:most]
    begun = cut.rfind("&")
    return cut if begun < 0 or ";" in cut[begun:] else cut[:begun]
