"""Like buttons: each visitor likes a page once a day, and may take it back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, get_args

from keystead.kits.widgets.models import Icon, LikeRecord
from keystead.kits.widgets.service.checks import LARGEST, whole
from keystead.kits.widgets.service.days import Day, iso
from keystead.kits.widgets.service.outcomes import BatchItem, Created, LikeData, Owner, Visitor
from keystead.kits.widgets.service.records import Guards, Use, last_use, tries
from keystead.kits.widgets.service.refused import WidgetRefused, wrong
from keystead.kits.widgets.service.services import UNSET
from keystead.kits.widgets.service.totals import TotalsService
from keystead.schema import Bound, Operation, Steps, procedure
from keystead.schema.key import Key
from keystead.schema.kinds import Seen, SetKey, ValueKey
from keystead.schema.times import moment

ICONS: Final[tuple[Icon, ...]] = get_args(Icon)


class Likes(TotalsService[LikeRecord]):
    name = "like"
    word = "like button"

    async def create(
        self, url: Any, token: Any, *, visitor: Visitor, id: Any = None, icon: Any = None, webhook_url: Any = None
    ) -> Created:
        """A like button for a page; the one that is there, for whoever has its token."""
        shown = None if icon is None else _icon(icon)
        return await self._create(
            url,
            token,
            visitor,
            lambda values: LikeRecord(**values, icon=shown),
            id=id,
            webhook_url=webhook_url,
            first=self._at_zero,
        )

    def _at_zero(self, id: str) -> list[Operation[Any]]:
        return [self.keys.like_total(id).set(0)]

    async def toggle(self, id: Any, visitor: Visitor) -> LikeData:
        """Like the page, or take it back. The total is never below zero. Two round trips, the second one atomic.

        Who may come between: others who toggle, the owner who sets the total or deletes the button. The mark that was
        read, the total where it goes down, and the record are all held in the step that writes.
        """
        limit: str | None = "write"
        async with self._turn(id):
            async for _ in tries(self.word):
                seen, day = await self._load_for_visitor(id, limit, visitor), self._today
                mark = self._mark(id, visitor, day)
                state, before = await self.keys.run(mark.see(), self.keys.like_total(id).get())
                step = partial(self._toggle, record=seen.value, mark=mark, state=state, before=before, day=day)
                done = await self._run_guarded(seen, limit, visitor, step)
                limit = None  # it is counted
                likes = not (state is not None and state.value)
                is_full = likes and before >= LARGEST
                if done or is_full:
                    self.site.count("widgets", "like", "liked" if likes else "taken-back")
                    break
        return await self.get(id, visitor, counted=True)

    @procedure
    def _toggle(
        self, guards: Guards, record: LikeRecord, mark: ValueKey[bool], state: Seen[bool] | None, before: int, day: Day
    ) -> Steps[None]:
        """Like the page where the mark that was read does not say so, and take it back where it does."""
        id, likes, now_ms = record.id, not (state is not None and state.value), self.site.now_ms()
        total = self.keys.like_total(id)
        after = before + 1 if likes else max(before - 1, 0)
        counts = {"previousLikes": before, "newLikes": after, "userAction": "like" if likes else "unlike"}
        told = self._hooks.make_event(self.name, record, "like.toggle", counts)
        return Steps(
            *guards,
            mark.holds(state),
            # More likes may come at any time; what goes down must not go below zero, and what is told must be true.
            self._is(total, before) if told or not likes else total.at_most(LARGEST - 1),
            mark.set(likes, end_of_day=day.mark_ends_ms(now_ms)),
            *([total.increment(after - before)] if after != before else []),
            self.keys.like_last(id).set(moment(now_ms)),
            *told,
        )

    async def get(self, id: Any, visitor: Visitor | None = None, *, counted: bool = False) -> LikeData:
        """The total, and whether this visitor likes the page today. One round trip."""

        def operations() -> list[Operation[Any]]:
            reads: list[Operation[Any]] = [self.keys.like_total(id).get(), self.keys.like_last(id).get()]
            return reads if visitor is None else [*reads, self._mark(id, visitor, self._today).get()]

        record, (total, last, *liked) = await self._read(id, None if counted else visitor, operations)
        return LikeData(
            id=record.id,
            url=record.url,
            total=total,
            user_liked=bool(liked and liked[0]),
            icon=record.icon or "heart",
            last_like=iso(last),
        )

    async def shown(self, id: Any, visitor: Visitor | None = None) -> int:
        """The total; 0: there is no such button."""
        try:
            return (await self.get(id, visitor)).total
        except WidgetRefused as refused:
            if refused.reason == "NOT_FOUND":
                return 0
            raise

    async def set(self, owner: Owner, value: Any, *, visitor: Visitor) -> LikeData:
        """Write the total. Who likes the page today goes on doing so, and can take it back."""
        number = whole("value", value)

        async def step(seen: Seen[LikeRecord]) -> Sequence[Operation[Any]]:
            return [self.keys.like_total(seen.value.id).set(number)]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def update_settings(
        self, owner: Owner, *, visitor: Visitor, webhook_url: Any = UNSET, icon: Any = UNSET, value: Any = UNSET
    ) -> LikeData:
        """Change what is given, in one step."""
        number = None if value is UNSET else whole("value", value)
        shown = {} if icon is UNSET else {"icon": None if icon is None else _icon(icon)}
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[LikeRecord]) -> Sequence[Operation[Any]]:
            writes: list[Operation[Any]] = [self._write_record(change.of(seen.value).model_copy(update=shown))]
            return writes if number is None else [*writes, self.keys.like_total(seen.value.id).set(number)]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhook_secret": change.secret})

    async def batch_create(self, token: Any, items: Sequence[BatchItem], *, visitor: Visitor) -> list[Created]:
        return await self._create_all(token, items, visitor, lambda values: LikeRecord(**values), self._at_zero)

    async def batch_get(self, ids: Sequence[str], *, visitor: Visitor) -> dict[str, int]:
        return await self._get_totals(ids, visitor, self.keys.like_total)

    async def sum_by_prefix(self, prefix: Any, *, visitor: Visitor) -> int:
        return await self._sum(prefix, visitor, self.keys.like_total)

    async def _upgrade_steps(self, record: LikeRecord) -> list[Operation[Any]]:
        steps: list[Operation[Any]] = []
        if record.total_likes is not None:
            steps.append(self.keys.like_total(record.id).start_at(record.total_likes))
        if record.last_like is not None:
            steps.append(self.keys.like_last(record.id).add(record.last_like))
        return steps

    @property
    def _today(self) -> Day:
        return self._calendar.day(self.site.now_ms())

    def _mark(self, id: str, visitor: Visitor, day: Day) -> ValueKey[bool]:
        return self.keys.like_user(id, self._visitor_hash(id, visitor, str(day.date)))

    async def _last_use(self, record: LikeRecord) -> Use:
        return await last_use(self.keys.like_last(record.id))

    def _belongings(self, record: LikeRecord) -> list[Key]:
        keys, id = self.keys, record.id
        return [keys.like_total(id), keys.like_last(id), keys.like_users(id)]

    def _marks(self, id: str) -> tuple[SetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.like_users(id), self.keys.like_user


def _icon(given: Any) -> Icon:
    if given not in ICONS:
        raise wrong("icon", f"icon is one of {', '.join(ICONS)}")
    found: Icon = given
    return found
