"""Webhooks: the events of a widget, told to an address of its owner's. They wait in the outbox until they are taken."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from keystead.kits.kit import Site
from keystead.kits.widgets.models import Hook, ServiceName, WidgetRecord
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.refused import WidgetRefused, wrong
from keystead.kits.widgets.service.settings import WidgetSettings
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxMessage, Undeliverable
from keystead.parts.webhook import BadWebhook, Webhook, WebhookSender, check_url, new_secret
from keystead.schema import Operation
from keystead.schema.times import moment

Find = Callable[[str, str], Awaitable[WidgetRecord | None]]

# What an event is in a sentence: for a channel of Discord or Slack.
_SENTENCES: Final[Mapping[str, str]] = {
    "counter.increment": "{newCount} visits",
    "like.toggle": "{newLikes} likes",
    "ranking.submit": "{name} has scored {score}",
    "bbs.post": "{author}: {message}",
    "bbs.edit": "{author} has changed a message: {message}",
    "bbs.delete": "a message was taken away",
}


class Hooks:
    """Tells events. `find` gives the record of a widget, by service and id: where its events go is not in a message."""

    def __init__(
        self, keys: OutboxKeys, settings: WidgetSettings, site: Site, sender: WebhookSender, find: Find
    ) -> None:
        self._settings = settings
        self._site = site
        self._sender = sender
        self._find = find
        self.outbox = Outbox(keys, self._send)

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

    def told(
        self, service: ServiceName, record: WidgetRecord, event: str, data: Mapping[str, Any]
    ) -> list[Operation[Any]]:
        """The operations that tell an event, for the step in which it happens; none: nobody wants to know."""
        if record.webhook is None or not self._settings.webhooks:
            return []
        payload = {
            "event": event,
            "timestamp": iso(moment(self._site.now_ms())),
            "serviceId": record.id,
            "url": record.url,
            "data": {name: value for name, value in data.items() if value is not None},
        }
        return self.outbox.add(service, record.id, payload)

    def dropped(self, service: ServiceName, id: str) -> list[Operation[Any]]:
        """The operations that drop all that was not told yet, for the step in which a widget is deleted."""
        return self.outbox.drop(service, id)

    async def _send(self, message: OutboxMessage) -> None:
        try:
            record = await self._find(message.topic, message.name)
        except WidgetRefused as refused:
            if refused.reason == "NOT_FOUND":
                raise Undeliverable("the widget is deleted") from None
            raise
        if record is None or record.webhook is None or not self._settings.webhooks:
            raise Undeliverable("nobody wants to know of it any more")
        body = json.dumps(message.payload | _said(message.payload), ensure_ascii=False, separators=(",", ":"))
        webhook = Webhook(record.webhook.url, record.webhook.secret)
        await self._sender.send(webhook, message.id, body.encode())


def _said(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The event as a sentence, under the names by which Discord and Slack take it, with nobody called by it."""
    sentence = _SENTENCES[payload["event"]].format_map(_Texts(payload["data"]))
    text = f"{payload['url']}: {sentence}"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"content": text[:1900], "text": escaped[:3000], "allowed_mentions": {"parse": []}}


class _Texts(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""
