"""Admin clean-up: delete any widget by id, by page URL, or because it is unused."""

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
from keystead.kits.widgets.service.checks import URL_MAX, check_id
from keystead.kits.widgets.service.outcomes import Cleaned, CleanedWidget, Visitor
from keystead.kits.widgets.service.refused import WidgetRefused, invalid
from keystead.kits.widgets.service.services import Service
from keystead.kits.widgets.service.settings import WidgetSettings
from keystead.parts.digest import same
from keystead.parts.limit import NamedLimits

_security = logging.getLogger("keystead.security")

_PATTERN: Final = re.compile(r"https://[^\s*/]+[^\s]*")
_DAY_MS: Final = timedelta(days=1) // timedelta(milliseconds=1)


class Admin:
    """Clean-up over HTTP. Each call needs the admin token of the settings; without one, all calls are refused."""

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
        """Delete the widgets with this id, of all services or of one."""
        await self._check(admin_token, visitor)
        id = check_id(target_id)
        if service is not None and service not in self._services:
            raise invalid("service", f"service must be one of {', '.join(self._services)}")
        wanted = self._services.values() if service is None else [self._services[service]]
        found = [(one, record) for one in wanted if (record := await _find_readable(one, id)) is not None]
        return await self._delete_all(found, dry_run)

    async def cleanup_by_url(
        self, admin_token: Any, *, visitor: Visitor, url_pattern: Any, dry_run: bool = False
    ) -> Cleaned:
        """Delete the widgets of one page, or of all pages that match a pattern; `*` matches any text."""
        await self._check(admin_token, visitor)
        if not isinstance(url_pattern, str) or len(url_pattern) > URL_MAX or not _PATTERN.fullmatch(url_pattern):
            raise invalid("urlPattern", "urlPattern must be a URL such as https://example.com/*; * matches any text")
        found = [
            (service, record)
            for service in self._services.values()
            async for record in _list_records(service)
            if _matches(record.url, url_pattern)
        ]
        return await self._delete_all(found, dry_run)

    async def auto_cleanup(self, admin_token: Any, *, visitor: Visitor, dry_run: bool = False) -> Cleaned:
        """Delete unused widgets, as the daily job does."""
        await self._check(admin_token, visitor)
        return await self.delete_idle(dry_run=dry_run)

    async def delete_idle(self, *, dry_run: bool = False) -> Cleaned:
        """Delete widgets that were not used for `idle_days`."""
        if not self._settings.idle_days:
            return _summarize([], [])
        before_ms = self._site.now_ms() - self._settings.idle_days * _DAY_MS
        deleted: list[tuple[str, WidgetRecord]] = []
        errors: list[str] = []
        for name, service in self._services.items():
            if not service.records_use:
                continue
            async for ids in service.list_ids(before_ms):
                deletes = (service.delete_if_idle(id, before_ms, dry_run=dry_run) for id in ids)
                for id, outcome in zip(ids, await asyncio.gather(*deletes, return_exceptions=True), strict=True):
                    if isinstance(outcome, WidgetRefused | Unreadable | BadKey):
                        errors.append(f"{name}:{id}: {outcome}")  # skip unreadable widgets
                    elif isinstance(outcome, BaseException):
                        raise outcome
                    elif outcome is not None:
                        deleted.append((name, outcome))
        return _summarize(deleted, errors)

    async def _check(self, admin_token: Any, visitor: Visitor) -> None:
        """Raises WidgetRefused for a wrong token, and LimitReached after too many attempts."""
        await self._limit.count("owner", visitor.address)
        expected = self._settings.admin_token
        if expected is None:
            raise WidgetRefused("UNAUTHORIZED", "the clean-up API is disabled; set ADMIN_CLEANUP_TOKEN to enable it")
        if not isinstance(admin_token, str) or not same(admin_token, expected.get_secret_value().strip()):
            _security.warning("a wrong admin token", extra={"event": "bad-admin-token", "client": visitor.address})
            raise WidgetRefused("UNAUTHORIZED", "this is not the admin token")

    async def _delete_all(self, found: list[tuple[Service[Any], WidgetRecord]], dry_run: bool) -> Cleaned:
        deleted = found if dry_run else [pair for pair in found if await pair[0].delete_any(pair[1].id) is not None]
        if deleted and not dry_run:
            _security.info("widgets deleted", extra={"event": "widgets-deleted", "count": len(deleted)})
        return _summarize([(service.name, record) for service, record in deleted], [])


def _matches(url: str, pattern: str) -> bool:
    """Whether a URL matches a pattern; `*` is any text. Linear time, however many stars the pattern has."""
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


async def _list_records(service: Service[Any]) -> AsyncIterator[WidgetRecord]:
    async for ids in service.list_ids():
        for record in await asyncio.gather(*(_find_readable(service, id) for id in ids)):
            if record is not None:
                yield record


async def _find_readable(service: Service[Any], id: str) -> WidgetRecord | None:
    try:
        record: WidgetRecord | None = await service.find(id)
    except (WidgetRefused, Unreadable, BadKey):
        return None
    return record


def _summarize(deleted: list[tuple[str, WidgetRecord]], errors: list[str]) -> Cleaned:
    return Cleaned(
        deleted_services=[CleanedWidget(type=name, id=record.id, url=record.url) for name, record in deleted],
        found_instances=list(dict.fromkeys(record.id for _, record in deleted)),
        deleted_keys=[f"{name}:{record.id}" for name, record in deleted],
        errors=errors,
        total_deleted=len(deleted),
    )
