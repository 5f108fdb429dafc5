"""What whoever runs the server can do with any widget: delete it, by id, by address, or because nobody uses it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Final

from keystead.errors import BadKey, Unreadable
from keystead.kits.kit import Site
from keystead.kits.widgets.models import WidgetRecord
from keystead.kits.widgets.service.checks import URL_MAX, checked_id
from keystead.kits.widgets.service.outcomes import Cleaned, CleanedWidget, Visitor
from keystead.kits.widgets.service.refused import WidgetRefused, wrong
from keystead.kits.widgets.service.services import Service
from keystead.kits.widgets.service.settings import WidgetSettings
from keystead.parts.digest import same
from keystead.parts.limit import NamedLimits

_security = logging.getLogger("keystead.security")

_PATTERN: Final = re.compile(r"https://[^\s*/]+[^\s]*")
_DAY_MS: Final = timedelta(days=1) // timedelta(milliseconds=1)


class Admin:
    """The clean-up from outside. Each call shows the secret of the settings; without one there, nobody has it."""

    def __init__(
        self, services: Mapping[str, Service[Any]], settings: WidgetSettings, site: Site, limit: NamedLimits
    ) -> None:
        self._services = services
        self._settings = settings
        self._site = site
        self._limit = limit

    async def cleanup(
        self, admin_token: Any, *, visitor: Visitor, target_id: Any, service: Any = None, dry_run: bool = False
    ) -> Cleaned:
        """Delete the widgets of this id: all of them, or that of one service."""
        await self._check(admin_token, visitor)
        id = checked_id(target_id)
        if service is not None and service not in self._services:
            raise wrong("service", f"service is one of {', '.join(self._services)}")
        asked = self._services.values() if service is None else [self._services[service]]
        found = [(one, record) for one in asked if (record := await _readable(one.there(id))) is not None]
        return await self._delete_all(found, dry_run)

    async def cleanup_by_url(
        self, admin_token: Any, *, visitor: Visitor, url_pattern: Any, dry_run: bool = False
    ) -> Cleaned:
        """Delete the widgets of pages: of one address, or of all that a pattern fits, in which `*` is any text."""
        await self._check(admin_token, visitor)
        if not isinstance(url_pattern, str) or len(url_pattern) > URL_MAX or not _PATTERN.fullmatch(url_pattern):
            raise wrong("urlPattern", "urlPattern is an address such as https://example.com/*, with * for any text")
        found = [
            (service, record)
            for service in self._services.values()
            async for record in _all(service)
            if _fits(record.url, url_pattern)
        ]
        return await self._delete_all(found, dry_run)

    async def auto_cleanup(self, admin_token: Any, *, visitor: Visitor, dry_run: bool = False) -> Cleaned:
        """Delete what nobody uses, as the job does every day."""
        await self._check(admin_token, visitor)
        return await self.delete_idle(dry_run=dry_run)

    async def delete_idle(self, *, dry_run: bool = False) -> Cleaned:
        """Delete what nobody has used for as long as the settings say."""
        if not self._settings.idle_days:
            return _summarize([], [])
        before_ms = self._site.now_ms() - self._settings.idle_days * _DAY_MS
        ended: list[tuple[str, WidgetRecord]] = []
        errors: list[str] = []
        for name, service in self._services.items():
            if not service.notes_use:
                continue
            async for ids in service.walk(before_ms):
                ends = (service.end_idle(id, before_ms, dry_run=dry_run) for id in ids)
                for id, outcome in zip(ids, await asyncio.gather(*ends, return_exceptions=True), strict=True):
                    if isinstance(outcome, WidgetRefused | Unreadable | BadKey):
                        errors.append(f"{name}:{id}: {outcome}")  # one that cannot be read keeps no other
                    elif isinstance(outcome, BaseException):
                        raise outcome
                    elif outcome is not None:
                        ended.append((name, outcome))
        return _summarize(ended, errors)

    async def _check(self, admin_token: Any, visitor: Visitor) -> None:
        """Raises WidgetRefused where this is not the secret, and LimitReached for whoever guesses."""
        await self._limit.count("owner", visitor.address)
        known = self._settings.admin_token
        if known is None:
            raise WidgetRefused("UNAUTHORIZED", "this is switched off here: set ADMIN_CLEANUP_TOKEN to use it")
        if not isinstance(admin_token, str) or not same(admin_token, known.get_secret_value().strip()):
            _security.warning("a wrong admin token", extra={"event": "bad-admin-token", "client": visitor.address})
            raise WidgetRefused("UNAUTHORIZED", "this is not the admin token")

    async def _delete_all(self, found: list[tuple[Service[Any], WidgetRecord]], dry_run: bool) -> Cleaned:
        ended = found if dry_run else [pair for pair in found if await pair[0].end(pair[1].id) is not None]
        if ended and not dry_run:
            _security.info("widgets deleted", extra={"event": "widgets-deleted", "count": len(ended)})
        return _summarize([(service.name, record) for service, record in ended], [])


def _fits(url: str, pattern: str) -> bool:
    """Whether a pattern fits, in which `*` is any text. It takes no longer for a pattern of many stars."""
    first, *rest = pattern.split("*")
    if not rest:
        return url == pattern
    *middle, last = rest
    at = len(first)
    if not url.startswith(first) or len(url) < at + len(last) or not url.endswith(last):
        return False
    for part in middle:
        found = url.find(part, at, len(url) - len(last))
        if found < 0:
            return False
        at = found + len(part)
    return True


async def _all(service: Service[Any]) -> AsyncIterator[WidgetRecord]:
    async for ids in service.walk():
        for record in await asyncio.gather(*(_readable(service.there(id)) for id in ids)):
            if record is not None:
                yield record


async def _readable(asked: Any) -> WidgetRecord | None:
    try:
        record: WidgetRecord | None = await asked
    except (WidgetRefused, Unreadable, BadKey):
        return None
    return record


def _summarize(ended: list[tuple[str, WidgetRecord]], errors: list[str]) -> Cleaned:
    return Cleaned(
        deleted_services=[CleanedWidget(type=name, id=record.id, url=record.url) for name, record in ended],
        found_instances=list(dict.fromkeys(record.id for _, record in ended)),
        deleted_keys=[f"{name}:{record.id}" for name, record in ended],
        errors=errors,
        total_deleted=len(ended),
    )
