"""Services whose widgets have a total, with batch create, batch read and sums."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from keystead.errors import Unreadable
from keystead.kits.widgets.models import WidgetRecord
from keystead.kits.widgets.service.checks import check_id, check_page_url, check_token, is_id
from keystead.kits.widgets.service.hooks import HookChange
from keystead.kits.widgets.service.outcomes import BatchItem, Created, Owner, Visitor
from keystead.kits.widgets.service.owner_token import OwnerToken
from keystead.kits.widgets.service.records import LastUse, Operations, ServiceContext, read_last_use
from keystead.kits.widgets.service.refused import invalid
from keystead.kits.widgets.service.services import Service
from keystead.schema import Bound, Operation
from keystead.schema.kinds import CounterKey, Seen, ValueKey

R = TypeVar("R", bound=WidgetRecord)

BATCH_CREATE_MAX: Final = 100
BATCH_GET_MAX: Final = 1000
_SUM_TTL_MS: Final = 60_000
_SUMS_MAX: Final = 100
_PAGE: Final = 5000  # index entries read at once


class TotalsService(Service[R]):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._sums: OrderedDict[str, tuple[int, int]] = OrderedDict()  # sum and time, by prefix
        self._summing = asyncio.Lock()
        self._totals: Bound[CounterKey] = getattr(self.keys, f"{self.name}_total")
        self._last_uses: Bound[ValueKey[datetime]] = getattr(self.keys, f"{self.name}_last")

    def _zero_total(self, id: str) -> list[Operation[Any]]:
        return [self._totals(id).set(0)]

    async def batch_create(self, token: Any, items: Sequence[BatchItem], *, visitor: Visitor) -> list[Created]:
        """Create widgets one by one, after validating all of them. If one is refused, those before it remain."""
        if not 1 <= len(items) <= BATCH_CREATE_MAX:
            raise invalid("items", f"items must be 1 to {BATCH_CREATE_MAX} objects with id and url")
        checked = [(check_page_url(item.url), check_id(item.id)) for item in items]
        if len({id for _, id in checked}) < len(checked) or len({url for url, _ in checked}) < len(checked):
            raise invalid("items", "items must not contain an id or a url twice")
        owner_token = OwnerToken(check_token(token), visitor)
        await self._limit.count("create", visitor.address, by=len(checked))
        created = [await self._find_or_create(url, owner_token, id, self._zero_total) for url, id in checked]
        return [Created(id=record.id, url=record.url) for record, _ in created]

    async def batch_get(self, ids: Sequence[str], *, visitor: Visitor) -> dict[str, int]:
        """The totals of widgets by id; 0 for a missing one. One round trip."""
        if not 1 <= len(ids) <= BATCH_GET_MAX:
            raise invalid("ids", f"ids must be 1 to {BATCH_GET_MAX}")
        wanted = [check_id(id) for id in ids]
        await self._limit.count("read", visitor.address)
        return dict(zip(wanted, await self._read_counters(self._totals, wanted), strict=True))

    async def _read_counters(self, counters: Bound[CounterKey], names: Sequence[Any]) -> list[int]:
        """The values of counters, in one round trip. An unreadable one counts as 0."""
        if not names:
            return []
        try:
            return [number or 0 for number in await counters.get_all(*names)]
        except Unreadable:
            keys = (counters(*name) if isinstance(name, tuple) else counters(name) for name in names)
            return list(await self.keys.run(*(key.get().if_readable() for key in keys)))

    async def sum_by_prefix(self, prefix: Any, *, visitor: Visitor) -> int:
        """The sum over all ids with this prefix, up to a minute old.

        It reads the whole index. So a process computes one sum at a time, and caches the result.
        """
        prefix = check_id(prefix)
        await self._limit.count("create", visitor.address)  # it costs about as much
        async with self._summing:
            cached = self._sums.get(prefix)
            if cached is None or cached[1] < self.site.now_ms() - _SUM_TTL_MS:
                cached = (await self._sum_totals(prefix), self.site.now_ms())
                self._sums[prefix] = cached
                if len(self._sums) > _SUMS_MAX:
                    self._sums.popitem(last=False)
        return cached[0]

    async def _sum_totals(self, prefix: str) -> int:
        total = 0
        async for ids in self.index.pages(page=_PAGE):
            matching = [id for id in ids if id.startswith(prefix) and is_id(id)]
            total += sum(await self._read_counters(self._totals, matching))
        return total

    async def _update(
        self, owner: Owner, visitor: Visitor, total: int | None, change: HookChange[R], **fields: Any
    ) -> str:
        """Change the total, the webhook and fields of the record in one step. Returns the id."""

        async def step(seen: Seen[R]) -> Operations:
            record = change.apply_to(seen.value).model_copy(update=fields)
            return [
                *([] if record == seen.value else [self._write_record(record)]),
                *([] if total is None else [self._totals(record.id).set(total)]),
            ]

        return (await self._change(owner, visitor, step)).id

    def _upgrade_totals(self, id: str, total: int | None, last_use: datetime | None) -> list[Operation[Any]]:
        """The writes that move these fields of an old record to their own keys, unless those exist."""
        return [
            *([] if total is None else [self._totals(id).start_at(total)]),
            *([] if last_use is None else [self._last_uses(id).add(last_use)]),
        ]

    async def _last_use(self, record: R) -> LastUse:
        return await read_last_use(self._last_uses(record.id))
