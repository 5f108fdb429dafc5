"""Webhooks: the events of a widget, told to an address of its owner's. They wait in the outbox until they are taken."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, get_args

from keystead.kits.kit import Site
from keystead.kits.widgets.models import Hook, ServiceName, WidgetRecord
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.refused import WidgetRefused, wrong
from keystead.kits.widgets.service.settings import WidgetSettings
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxMessage, Undeliverable
from keystead.parts.webhook import BadWebhook, Webhook, WebhookSender, check_url, new_secret
from keystead.schema import Operation
from keystead.schema.times import moment

R = TypeVar("R", bound=WidgetRecord)

_MARKS = re.compile(r"[\\*_~`|>#\[\]()]")  # what Discord reads as more than text
_ADDRESS_MAX: Final = 200
_SENTENCE_MAX: Final = 900

Find = Callable[[str, str], Awaitable[WidgetRecord | None]]

# What an event is in a sentence: for a channel of Discord or Slack.
_SENTENCES: Final[Mapping[str, str]] = {
    "counter.increment": "{newCount} visits",
    "like.toggle": "{newLikes} likes",
    "ranking.submit": "{name} has scored {score}",
    "bbs.post": "{author}: {message}",
    "bbs.edit": "{author} has changed a message: {message}",
    "bbs.delete": "a message was taken away",
    "yokoso.update": "welcome: {message}",
}


@dataclass(frozen=True)
class HookChange(Generic[R]):
    """Another webhook, none any more, or the one that is there."""

    hook: Hook | None = None
    changes: bool = False

    @property
    def secret(self) -> str | None:
        """What is told once: the secret of a new one."""
        return None if self.hook is None else self.hook.secret

    def of(self, record: R) -> R:
        return record.model_copy(update={"webhook": self.hook}) if self.changes else record


class Hooks:
    """Tells events. `find` gives the record of a widget, by service and id: where its events go is not in a message."""

    def __init__(
        self, keys: OutboxKeys, settings: WidgetSettings, site: Site, sender: WebhookSender, find: Find
    ) -> None:
        self._settings = settings
        self._site = site
        self._sender = sender
        self._find = find
        self.outbox = Outbox(keys, self._send, topics=get_args(ServiceName))

    def new(self, url: Any) -> Hook:
        """A webhook with a secret of its own. Raises WidgetRefused where it may not lead there."""
        if not self._settings.webhooks:
            raise wrong("webhookUrl", "webhooks are switched off here")
        if not isinstance(url, str):
            raise wrong("webhookUrl", "webhookUrl is an address such as https://example.com/hook")
        try:
            check_url(url, allow_private=self._settings.private_webhooks)
        except BadWebhook as refused:
            raise wrong("webhookUrl", f"webhookUrl: {refused}") from None
        return Hook(url=url, secret=new_secret())

    async def announce(self, service: ServiceName, record: WidgetRecord) -> None:
        """Before a step in which something is told: in a cluster, what is to be delivered is found by this."""
        if record.webhook is not None:
            await self.outbox.announce(service, record.id)

    def make_event(
        self, service: ServiceName, record: WidgetRecord, event: str, data: Mapping[str, Any]
    ) -> list[Operation[Any]]:
        """The operations that tell an event, for the step in which it happens; none: nobody wants to know."""
        if record.webhook is None or not self._settings.webhooks:
            return []
        payload = {
            "of": iso(record.created),  # a page may have another by the time it is sent, which is none of its business
            "event": event,
            "timestamp": iso(moment(self._site.now_ms())),
            "serviceId": record.id,
            "url": record.url,
            "data": {name: value for name, value in data.items() if value is not None},
        }
        return self.outbox.add(service, record.id, payload)

    def drop_events(self, service: ServiceName, id: str) -> list[Operation[Any]]:
        """The operations that drop all that was not told yet, for the step in which a widget is deleted."""
        return self.outbox.drop(service, id)

    async def _send(self, message: OutboxMessage) -> None:
        try:
            record = await self._find(message.topic, message.name)
        except WidgetRefused as refused:
            if refused.reason == "NOT_FOUND":
                raise Undeliverable("the widget is deleted") from None
            raise
        told = dict(message.payload)
        is_its_own = record is not None and told.pop("of", None) == iso(record.created)
        if record is None or record.webhook is None or not is_its_own or not self._settings.webhooks:
            raise Undeliverable("nobody wants to know of it any more")
        body = json.dumps(told | _write_sentences(told), ensure_ascii=False, separators=(",", ":"))
        webhook = Webhook(record.webhook.url, record.webhook.secret)
        await self._sender.send(webhook, message.id, body.encode())


def _write_sentences(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The event as a sentence of one line, under the names by which Discord and Slack take it.

    What visitors wrote calls nobody, and is neither a heading nor a link there.
    """
    texts = _Texts({name: " ".join(str(value).split()) for name, value in payload["data"].items()})
    address, sentence = payload["url"][:_ADDRESS_MAX], _SENTENCES[payload["event"]].format_map(texts)[:_SENTENCE_MAX]
    for_slack = f"{address}: {sentence}".replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for_discord = f"{address}: {_MARKS.sub(_escape, sentence)}"
    return {"content": for_discord, "text": for_slack, "allowed_mentions": {"parse": []}}


def _escape(mark: re.Match[str]) -> str:
    return f"\\{mark[0]}"


class _Texts(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""
