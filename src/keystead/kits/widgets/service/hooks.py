"""Webhooks: events of a widget, delivered to a URL of its owner through the outbox."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, get_args

from keystead.kits.kit import Site
from keystead.kits.widgets.models import Hook, ServiceName, WidgetRecord
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.refused import invalid
from keystead.kits.widgets.service.settings import WidgetSettings
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxMessage, Undeliverable
from keystead.parts.webhook import BadWebhook, Webhook, WebhookSender, check_url, new_secret
from keystead.schema import Operation
from keystead.schema.times import moment

R = TypeVar("R", bound=WidgetRecord)

_MARKDOWN = re.compile(r"[\\*_~`|>#\[\]()]")  # Discord's markup
_URL_MAX: Final = 200
_SENTENCE_MAX: Final = 900

Find = Callable[[str, str], Awaitable[WidgetRecord | None]]

# Each event as a sentence, for a Discord or Slack channel.
_SENTENCES: Final[Mapping[str, str]] = {
    "counter.increment": "{newCount} visits",
    "like.toggle": "{newLikes} likes",
    "ranking.submit": "{name} scored {score}",
    "bbs.post": "{author}: {message}",
    "bbs.edit": "{author} edited a message: {message}",
    "bbs.delete": "a message was deleted",
    "yokoso.update": "welcome: {message}",
}


@dataclass(frozen=True)
class HookChange(Generic[R]):
    """A new webhook, its removal (None), or no change."""

    hook: Hook | None = None
    is_change: bool = False

    @property
    def secret(self) -> str | None:
        """The signing secret of a new webhook, which is shown only once."""
        return None if self.hook is None else self.hook.secret

    def apply_to(self, record: R) -> R:
        return record.model_copy(update={"webhook": self.hook}) if self.is_change else record


class Hooks:
    """Delivers events. `find` returns the record of a widget by service and id; queued messages contain no secrets."""

    def __init__(
        self, keys: OutboxKeys, settings: WidgetSettings, site: Site, sender: WebhookSender, find: Find
    ) -> None:
        self._settings = settings
        self._site = site
        self._sender = sender
        self._find = find
        self.outbox = Outbox(keys, self._send, topics=get_args(ServiceName))

    def new(self, url: Any) -> Hook:
        """A webhook with a new secret. Raises WidgetRefused for a URL that is not allowed."""
        if not self._settings.webhooks:
            raise invalid("webhookUrl", "webhooks are disabled here")
        if not isinstance(url, str):
            raise invalid("webhookUrl", "webhookUrl must be a URL, such as https://example.com/hook")
        try:
            check_url(url, allow_private=self._settings.private_webhooks)
        except BadWebhook as refused:
            raise invalid("webhookUrl", f"webhookUrl: {refused}") from None
        return Hook(url=url, secret=new_secret())

    async def announce(self, service: ServiceName, record: WidgetRecord) -> None:
        """Call before a step that queues an event: a cluster finds the events to deliver by this."""
        if record.webhook is not None:
            await self.outbox.announce(service, record.id)

    def make_event(
        self, service: ServiceName, record: WidgetRecord, event: str, data: Mapping[str, Any]
    ) -> list[Operation[Any]]:
        """The operations that queue an event, for the step that causes it; empty without a webhook."""
        if record.webhook is None or not self._settings.webhooks:
            return []
        payload = {
            "of": iso(record.created),  # a widget created again meanwhile must not get this event
            "event": event,
            "timestamp": iso(moment(self._site.now_ms())),
            "serviceId": record.id,
            "url": record.url,
            "data": {name: value for name, value in data.items() if value is not None},
        }
        return self.outbox.add(service, record.id, payload)

    async def _send(self, message: OutboxMessage) -> None:
        payload = dict(message.payload)
        created = payload.pop("of", None)
        record = await self._find(message.topic, message.name)
        if record is None or created != iso(record.created):
            raise Undeliverable("the widget is deleted")
        if record.webhook is None or not self._settings.webhooks:
            raise Undeliverable("the widget has no webhook any more")
        body = json.dumps(payload | _write_sentences(payload), ensure_ascii=False, separators=(",", ":"))
        webhook = Webhook(record.webhook.url, record.webhook.secret)
        await self._sender.send(webhook, message.id, body.encode())


def _write_sentences(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The event as a one-line sentence, in the fields that Discord and Slack read.

    Visitor text cannot mention anyone, and is shown without headings or links.
    """
    texts = defaultdict(str, {name: " ".join(str(value).split()) for name, value in payload["data"].items()})
    url, sentence = payload["url"][:_URL_MAX], _SENTENCES[payload["event"]].format_map(texts)[:_SENTENCE_MAX]
    for_slack = f"{url}: {sentence}".replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for_discord = f"{url}: " + _MARKDOWN.sub(r"\\\g<0>", sentence)
    return {"content": for_discord, "text": for_slack, "allowed_mentions": {"parse": []}}
