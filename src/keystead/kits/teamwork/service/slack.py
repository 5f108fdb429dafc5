"""Posts notices to Slack, by an incoming webhook or a bot token, and logs every attempt."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import httpx2
from sqlalchemy import Connection, Row, delete, insert, select

from keystead.catalogue import Language
from keystead.errors import StoreError
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service.messages import ASSIGNEE, OPEN, message_of, speaker, title_of
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
_RESPONSE_MAX_BYTES: Final = 64 * 1024
_ERROR_MAX: Final = 64
_TEXT_MAX: Final = 3_000  # Slack refuses longer text
_TITLE_MAX: Final = 600
_NAME_MAX: Final = 200
_LINK_MAX: Final = 3_000

# Permanent errors of Slack about a message. Others are transient, or an operator can fix them.
_PERMANENT: Final = frozenset(
    {"invalid_blocks", "invalid_attachments", "msg_too_long", "no_text", "invalid_payload", "too_many_attachments"}
)


@dataclass(frozen=True)
class Slack:
    """The destination of notices: a webhook URL, or a bot token with a channel."""

    webhook_url: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    channel: str = ""
    post_url: str = POST_URL
    language: Language = "en"  # a channel has many readers


@dataclass(frozen=True)
class Attempt:
    """One attempt to post a notice to Slack."""

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
    """The log of all attempts to post to Slack. It exists, and is cleaned up, even while Slack is off."""

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
        """Attempts, newest first, filtered by notice, status, users, or ids below `before`."""
        query = select(SLACK_LOG).order_by(SLACK_LOG.c.id.desc()).limit(most)
        if notice is not None:
            query = query.where(SLACK_LOG.c.notice_id == notice)
        if status is not None:
            query = query.where(SLACK_LOG.c.status == status)
        if users is not None:
            query = query.where(SLACK_LOG.c.user_id.in_(list(users)))
        if before is not None:
            query = query.where(SLACK_LOG.c.id < before)
        return await self._tables.read(lambda connection: [_attempt(row) for row in connection.execute(query)])

    async def delete_old(self, before_ms: int, *, most: int = 1_000) -> int:
        """Delete up to `most` attempts from before a moment. Returns their number."""

        def work(connection: Connection) -> int:
            old = select(SLACK_LOG.c.id).where(SLACK_LOG.c.sent_at_ms < before_ms).limit(most)
            ids = [found for (found,) in connection.execute(old)]
            if ids:
                connection.execute(delete(SLACK_LOG).where(SLACK_LOG.c.id.in_(ids)))
            return len(ids)

        return await self._tables.write(work)

    async def add(
        self, notice: Notice, payload: dict[str, Any], *, channel: str, retries: int, error: str | None, at_ms: int
    ) -> None:
        """Log an attempt; without an error it was sent."""
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


class _Mention(NamedTuple):
    """The name of a user for titles, and their mention for Slack."""

    name: str
    mention: str
    is_member: bool = False  # has a Slack member id


class SlackSender:
    """Posts messages from the outbox to Slack, and logs each attempt.

    person   returns a user, for their name and Slack id; None: unknown
    link     the address of a notice's work item; "": no link

    A message carries the id of its notice (`block_id`), which is the same for each attempt. The Retry-After of a 429 is
    obeyed, permanent errors give the message up, and all others are retried.
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
        """The `send` of an `Outbox`. Raises DeliveryFailed or Undeliverable if Slack did not accept the message."""
        user, number = message.payload.get("user"), message.payload.get("notice")
        notice = await self._notices.find(user, number) if isinstance(user, int) and isinstance(number, int) else None
        if notice is None or notice.slack_sent:  # None: deleted meanwhile
            return
        payload = await self.payload(notice)
        log = partial(self._log.add, notice, payload, channel=self._slack.channel, retries=message.attempts)
        try:
            await self._post(payload)
        except (DeliveryFailed, Undeliverable) as error:
            await log(error=str(error), at_ms=self._now_ms())
            raise
        await log(error=None, at_ms=self._now_ms())
        await self._notices.mark_sent_to_slack(notice.id)

    async def payload(self, notice: Notice) -> dict[str, Any]:
        """The message: a coloured bar, the title, reader and text, and a button that opens the work item.

        Users are mentioned by their Slack id, or by name if it is unknown.
        """
        language, said = self._slack.language, notice.said
        reader = await self._find_mention(notice.user)
        title = notice.title if said is None else title_of(notice.type, said, language, reader.name or None)
        message = notice.message if said is None else message_of(said, language)
        title = _truncate(title, _TITLE_MAX)
        head = f"*{title}*\n" + (f"{reader.mention}{' ' if reader.is_member else ': '}" if reader.mention else "")
        foot = ""
        if said is not None and said.assignee_id is not None and said.assignee_id != notice.user:
            assignee = await self._find_mention(said.assignee_id)
            foot = f"\n{speaker(language)(ASSIGNEE)}: {assignee.mention}" if assignee.mention else ""
        text = head + _truncate(message, _TEXT_MAX - len(head) - len(foot)) + foot
        section = {"type": "section", "block_id": f"notice-{notice.id}", "text": {"type": "mrkdwn", "text": text}}
        blocks: list[dict[str, Any]] = [section]
        link = self._link(notice)
        if link and len(link) <= _LINK_MAX:
            button = {"type": "button", "text": {"type": "plain_text", "text": speaker(language)(OPEN)}, "url": link}
            blocks.append({"type": "actions", "block_id": f"open-{notice.id}", "elements": [button]})
        payload: dict[str, Any] = {
            "text": title,
            "attachments": [{"color": COLOURS.get(notice.type, OTHER_COLOUR), "blocks": blocks}],
        }
        return payload if not self._slack.channel else {"channel": self._slack.channel, **payload}

    async def _find_mention(self, user: int) -> _Mention:
        try:
            person = None if self._person is None else await self._person(user)
        except (StoreError, LoadFailed):
            person = None  # a message without names is better than none
        if person is None:
            return _Mention("", "")
        if person.slack_id:
            return _Mention(person.name, f"<@{_escape(person.slack_id)}>", is_member=True)
        return _Mention(person.name, _truncate(person.name, _NAME_MAX))

    # --- HTTP ------------------------------------------------------------------------------------------------

    async def _post(self, payload: dict[str, Any]) -> None:
        headers = {"authorization": f"Bearer {self._slack.token}"} if self._slack.token else {}
        try:
            url = httpx2.URL(self._slack.post_url if self._slack.token else self._slack.webhook_url)
            # The path of a webhook is a secret, and the client logs the URL that it is given.
            logged, target = url.copy_with(path="/", query=None, fragment=None), {"target": url.raw_path}
            request = self._http.stream("POST", logged, json=payload, headers=headers, extensions=target)
            async with request as response:
                body = b""
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _RESPONSE_MAX_BYTES:
                        break
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            # Only the class: the message may contain the URL, which is a secret.
            raise DeliveryFailed(f"Slack cannot be reached ({type(error).__name__})") from None
        self._check_response(response.status_code, response.headers.get("retry-after", ""), body)

    def _check_response(self, status: int, retry_after: str, body: bytes) -> None:
        if status == 429:
            is_number = retry_after.isascii() and retry_after.isdecimal() and len(retry_after) < 7
            raise DeliveryFailed("Slack rate limit reached", (int(retry_after) if is_number else 1) * 1000)
        error = _error_in(body) if self._slack.token else body.decode("utf-8", "replace")[:_ERROR_MAX]
        if status == 200 and (not self._slack.token or not error):
            return
        message = f"Slack responded {status}" + (f", {error}" if error.isprintable() and error else "")
        if error in _PERMANENT:
            raise Undeliverable(message)
        raise DeliveryFailed(message)


def _error_in(body: bytes) -> str:
    """The error in a response of the Slack API; "": success."""
    try:
        result = json.loads(body)
    except (ValueError, RecursionError):
        return "not JSON"
    if isinstance(result, dict) and result.get("ok") is True:
        return ""
    error = result.get("error") if isinstance(result, dict) else None
    return error[:_ERROR_MAX] if isinstance(error, str) and error else "without a reason"


def _escape(text: str) -> str:
    """Slack reads `<…>` as a link or a mention, and `&` as the start of an entity."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _truncate(text: str, most: int) -> str:
    """Escaped text of at most `most` characters, not cut within an entity."""
    escaped = _escape(text)
    if len(escaped) <= most:
        return escaped
    cut = escaped[:most]
    entity = cut.rfind("&")
    return cut if entity < 0 or ";" in cut[entity:] else cut[:entity]
