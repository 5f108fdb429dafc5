"""The service of the widgets kit: all kinds of widgets, webhooks and clean-up jobs."""

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
from keystead.kits.widgets.service.records import ServiceContext
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
_UPGRADE: Final = "40 3 1 * *"  # monthly: it scans the whole store, and widgets in use are upgraded anyway


class Widgets:
    """Counters, like buttons, rankings, boards and welcome cards."""

    def __init__(self, keys: WidgetKeys, settings: WidgetSettings, site: Site, sender: WebhookSender) -> None:
        if keys.ring is None:
            raise BadDeclaration("the widgets kit seals webhooks, so it needs a key ring: WidgetKeys(store, seal=…)")
        self.keys = keys
        self.settings = settings
        self.site = site
        outbox_keys = OutboxKeys(keys.store_of("default"), now_ms=site.now_ms)
        self.hooks = Hooks(outbox_keys, settings, site, sender, self._find)
        context = ServiceContext(
            keys=keys,
            settings=settings,
            site=site,
            limit=NamedLimits(keys.requests, LIMITS | settings.limits, site.now_ms),
            hooks=self.hooks,
            calendar=Calendar(settings.zone),
            # Derived from the oldest key, so that adding a key does not count today's visitors again.
            secret=keys.ring.derived("widget visitors")[0],
        )
        self.counters = Counters(context)
        self.likes = Likes(context)
        self.rankings = Rankings(context)
        self.boards = Boards(context)
        self.welcomes = Welcomes(context)
        self.services: Mapping[str, Service[Any]] = {
            service.name: service for service in (self.counters, self.likes, self.rankings, self.boards, self.welcomes)
        }
        self.admin = Admin(self.services, settings, site, context.limit)

    @property
    def jobs(self) -> list[Job]:
        return [
            Job("widgets.clean-up", _CLEAN_UP, self._clean_up, doc="Finishes interrupted deletes."),
            Job("widgets.upgrade", _UPGRADE, self._upgrade, doc="Upgrades widgets of an older layout."),
            Job("widgets.idle", _IDLE, self._delete_idle, doc="Deletes unused widgets."),
        ]

    async def clean_up(self) -> int:
        """Finish interrupted deletes. Returns how many there were."""
        finished = 0
        for name in await self.keys.ending().members().if_readable():
            service = self.services.get(name.service)
            if service is None:
                await self.keys.ending().remove(name)
                continue
            with suppress(WidgetRefused, Unreadable, BadKey):  # skip unreadable widgets
                finished += await service.finish_delete(name.id)
        return finished

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        return {"finished": await self.clean_up()}

    async def _upgrade(self, run: Run) -> Mapping[str, int | str]:
        return {"upgraded": sum([await service.upgrade_all() for service in self.services.values()])}

    async def _delete_idle(self, run: Run) -> Mapping[str, int | str]:
        cleaned = await self.admin.delete_idle()
        return {"deleted": cleaned.total_deleted, "unreadable": len(cleaned.errors)}

    async def _find(self, service: str, id: str) -> WidgetRecord | None:
        found = self.services.get(service)
        return None if found is None else await found.find(id)


@asynccontextmanager
async def open_widgets(keys: WidgetKeys, settings: WidgetSettings, site: Site) -> AsyncIterator[Widgets]:
    """Run the service, including webhook delivery."""
    sender = WebhookSender(allow_private=settings.private_webhooks, now_ms=site.now_ms)
    widgets = Widgets(keys, settings, site, sender)
    async with widgets.hooks.outbox:
        yield widgets
