"""Services whose widgets have a total: many of them are created, read and summed at once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from keystead.errors import Unreadable
from keystead.kits.widgets.models import WidgetRecord
from keystead.kits.widgets.service.checks import checked_id, checked_token, checked_url, is_id
from keystead.kits.widgets.service.outcomes import BatchItem, Created, Visitor
from keystead.kits.widgets.service.owner_token import OwnerToken
from keystead.kits.widgets.service.records import Surroundings
from keystead.kits.widgets.service.refused import wrong
from keystead.kits.widgets.service.services import Service
from keystead.schema import Bound, Operation
from keystead.schema.kinds import CounterKey

R = TypeVar("R", bound=WidgetRecord)

BATCH_CREATE_MAX: Final = 100
BATCH_GET_MAX: Final = 1000
_SUM_KEPT_MS: Final = 60_000
_SUMS_KEPT: Final = 100
_WALKED: Final = 5000  # entries of an index that are read at once


class TotalsService(Service[R]):
    """One of the services whose widgets have a total."""

    def __init__(self, given: Surroundings) -> None:
        super().__init__(given)
        self._sums: OrderedDict[str, tuple[int, int]] = OrderedDict()  # by prefix, and when it was found
        self._summing = asyncio.Lock()

    async def _create_all(
        self,
        token: Any,
        items: Sequence[BatchItem],
        visitor: Visitor,
        make: Callable[[dict[str, Any]], R],
        first: Callable[[str], list[Operation[Any]]],
    ) -> list[Created]:
        """One after the other: where one is refused, those before it are made. All of them are checked first."""
        if not 1 <= len(items) <= BATCH_CREATE_MAX:
            raise wrong("items", f"items are 1 to {BATCH_CREATE_MAX}, each with an id and a url")
        checked = [(checked_url(item.url), checked_id(item.id)) for item in items]
        if len({id for _, id in checked}) < len(checked) or len({url for url, _ in checked}) < len(checked):
            raise wrong("items", "each id and each url stands in items once")
        owner_token = OwnerToken(checked_token(token), visitor)
        await self._limit.count("create", visitor.address, by=len(checked))
        made = [await self._find_or_create(url, owner_token, id, make, None, first) for url, id in checked]
        return [Created(id=record.id, url=record.url) for record, _ in made]

    async def _get_totals(self, ids: Sequence[str], visitor: Visitor, totals: Bound[Any]) -> dict[str, int]:
        """The totals of these; 0: there is no such widget. One round trip."""
        if not 1 <= len(ids) <= BATCH_GET_MAX:
            raise wrong("ids", f"ids are 1 to {BATCH_GET_MAX}")
        wanted = [checked_id(id) for id in ids]
        await self._limit.count("read", visitor.address)
        return await self._totals(wanted, totals)

    async def _totals(self, ids: Sequence[str], totals: Bound[Any]) -> dict[str, int]:
        return dict(zip(ids, await self._numbers(totals, ids), strict=True))

    async def _numbers(self, counters: Bound[CounterKey], names: Sequence[Any]) -> list[int]:
        """What these counters hold. One round trip. One that cannot be read counts as 0, and hides no other."""
        if not names:
            return []
        try:
            return [number or 0 for number in await counters.get_all(*names)]
        except Unreadable:
            keys = (counters(*name) if isinstance(name, tuple) else counters(name) for name in names)
            return list(await self.keys.run(*(key.get().if_readable() for key in keys)))

    async def _sum(self, prefix: Any, visitor: Visitor, totals: Bound[Any]) -> int:
        """Of all whose ids begin so. It walks through the index, a page at a time: so one walk at a time in a process,
        and what it found is told for a while.
        """
        beginning = checked_id(prefix)
        await self._limit.count("create", visitor.address)  # it costs about as much
        async with self._summing:
            found = self._sums.get(beginning)
            if found is None or found[1] < self.site.now_ms() - _SUM_KEPT_MS:
                found = (await self._sum_totals(beginning, totals), self.site.now_ms())
                self._sums[beginning] = found
                if len(self._sums) > _SUMS_KEPT:
                    self._sums.popitem(last=False)
        return found[0]

    async def _sum_totals(self, beginning: str, totals: Bound[CounterKey]) -> int:
        found = 0
        async for ids in self.index.pages(page=_WALKED):
            found += sum(await self._numbers(totals, [id for id in ids if id.startswith(beginning) and is_id(id)]))
        return found
