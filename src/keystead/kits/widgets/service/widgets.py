"""The open service of the kit: all kinds of widgets, what is told of them, and the clean-up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from keystead.errors import BadDeclaration, BadKey, Unreadable
from keystead.kits.kit import Site
from keystead.kits.widgets.keys import WidgetKeys
from keystead.kits.widgets.models import WidgetRecord
from keystead.kits.widgets.service.admin import Admin
from keystead.kits.widgets.service.boards import Boards
from keystead.kits.widgets.service.counters import Counters
from keystead.kits.widgets.service.days import Calendar
from keystead.kits.widgets.service.hooks import Hooks
from keystead.kits.widgets.service.likes import Likes
from keystead.kits.widgets.service.rankings import Rankings
from keystead.kits.widgets.service.records import Surroundings
from keystead.kits.widgets.service.refused import WidgetRefused
from keystead.kits.widgets.service.services import Service
from keystead.kits.widgets.service.settings import LIMITS, WidgetSettings
from keystead.kits.widgets.service.welcomes import Welcomes
from keystead.parts.limit import NamedLimits
from keystead.parts.outbox import OutboxKeys
from keystead.parts.schedule import Job, Run
from keystead.parts.webhook import WebhookSender

_CLEAN_UP: Final = "*/5 * * * *"
_IDLE: Final = "20 4 * * *"  # in UTC
_UPGRADE: Final = (
    "40 3 1 * *"  # once a month: it walks through the whole store, and rows that are used are upgraded anyway
)


class Widgets:
    """Counters, like buttons, rankings, boards and welcome cards."""

    def __init__(self, keys: WidgetKeys, settings: WidgetSettings, site: Site, sender: WebhookSender) -> None:
        if keys.ring is None:
            raise BadDeclaration("the widgets kit seals webhooks, so it needs keys: WidgetKeys(store, seal=…)")
        self.keys = keys
        self.settings = settings
        self.site = site
        outbox_keys = OutboxKeys(keys.store_of("default"), now_ms=site.now_ms)
        self.hooks = Hooks(outbox_keys, settings, site, sender, self._record)
        given = Surroundings(
            keys=keys,
            settings=settings,
            site=site,
            limit=NamedLimits(keys.requests, LIMITS | settings.limits, site.now_ms),
            hooks=self.hooks,
            calendar=Calendar(settings.zone),
            # Of the oldest key: a new one must not make strangers of those who were counted today.
            secret=keys.ring.derived("widget visitors")[0],
        )
        self.counters = Counters(given)
        self.likes = Likes(given)
        self.rankings = Rankings(given)
        self.boards = Boards(given)
        self.welcomes = Welcomes(given)
        self.services: Mapping[str, Service[Any]] = {
            one.name: one for one in (self.counters, self.likes, self.rankings, self.boards, self.welcomes)
        }
        self.admin = Admin(self.services, settings, site, given.limit)

    @property
    def jobs(self) -> list[Job]:
        return [
            Job("widgets.clean-up", _CLEAN_UP, self._clean_up, doc="Finishes deletes that were interrupted."),
            Job("widgets.upgrade", _UPGRADE, self._upgrade, doc="Upgrades the rows of widgets that moved here."),
            Job("widgets.idle", _IDLE, self._delete_idle, doc="Deletes widgets that nobody has used for long."),
        ]

    async def clean_up(self) -> int:
        """Finish what is being deleted; how many there were."""
        finished = 0
        for name in await self.keys.ending().members().if_readable():
            service = self.services.get(name.service)
            if service is None:
                await self.keys.ending().remove(name)
                continue
            with suppress(WidgetRefused, Unreadable, BadKey):  # one that cannot be read keeps no other waiting
                finished += await service.finish(name.id)
        return finished

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        return {"finished": await self.clean_up()}

    async def _upgrade(self, run: Run) -> Mapping[str, int | str]:
        return {"upgraded": sum([await service.upgrade_all() for service in self.services.values()])}

    async def _delete_idle(self, run: Run) -> Mapping[str, int | str]:
        cleaned = await self.admin.delete_idle()
        return {"deleted": cleaned.total_deleted, "unreadable": len(cleaned.errors)}

    async def _record(self, service: str, id: str) -> WidgetRecord | None:
        found = self.services.get(service)
        return None if found is None else await found.record(id)


@asynccontextmanager
async def open_widgets(keys: WidgetKeys, settings: WidgetSettings, site: Site) -> AsyncIterator[Widgets]:
    """The service, which delivers events meanwhile."""
    sender = WebhookSender(allow_private=settings.private_webhooks, now_ms=site.now_ms)
    widgets = Widgets(keys, settings, site, sender)
    async with widgets.hooks.outbox:
        yield widgets
