"""Like buttons: each visitor can like a page once a day, and unlike it."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, get_args

from keystead.kits.widgets.models import Icon, LikeRecord
from keystead.kits.widgets.service.checks import LARGEST, check_number
from keystead.kits.widgets.service.days import Day, iso
from keystead.kits.widgets.service.outcomes import Created, LikeData, Owner, Visitor
from keystead.kits.widgets.service.records import Guards, tries
from keystead.kits.widgets.service.refused import invalid
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
    record_type = LikeRecord

    async def create(
        self, url: Any, token: Any, *, visitor: Visitor, id: Any = None, icon: Any = None, webhook_url: Any = None
    ) -> Created:
        """Create the like button of a page, or return the existing one if the token is its owner's."""
        icon = None if icon is None else _check_icon(icon)
        return await self._create(
            url, token, visitor, id=id, webhook_url=webhook_url, first=self._zero_total, icon=icon
        )

    async def toggle(self, id: Any, visitor: Visitor) -> LikeData:
        """Like the page, or unlike it. The total is never below zero. Two round trips, the second one atomic.

        Who may interleave: other visitors, or the owner who sets the total or deletes the button. The write is guarded
        by the marker, by the record, and by the total if it goes down.
        """
        limit: str | None = "write"
        async with self._lock(id):
            async for _ in tries(self.word):
                seen, day = await self._load_for_visitor(id, limit, visitor), self._today
                marker = self._marker(id, visitor, day)
                state, before = await self.keys.run(marker.see(), self.keys.like_total(id).get())
                step = partial(self._toggle, record=seen.value, marker=marker, state=state, before=before, day=day)
                done = await self._run_guarded(seen, limit, visitor, step)
                limit = None  # counted
                likes = not (state is not None and state.value)
                is_full = likes and before >= LARGEST
                if done or is_full:
                    self.site.count("widgets", "like", "liked" if likes else "taken-back")
                    break
        return await self.get(id, visitor, counted=True)

    @procedure
    def _toggle(
        self,
        guards: Guards,
        record: LikeRecord,
        marker: ValueKey[bool],
        state: Seen[bool] | None,
        before: int,
        day: Day,
    ) -> Steps[None]:
        """Like the page, or unlike it if the marker says that the visitor likes it."""
        id, likes, now_ms = record.id, not (state is not None and state.value), self.site.now_ms()
        total = self.keys.like_total(id)
        after = before + 1 if likes else max(before - 1, 0)
        counts = {"previousLikes": before, "newLikes": after, "userAction": "like" if likes else "unlike"}
        event = self._hooks.make_event(self.name, record, "like.toggle", counts)
        return Steps(
            *guards,
            marker.holds(state),
            # Other likes may interleave, unless the total goes down, which must not fall below zero, or is in an event.
            self._equals(total, before) if event or not likes else total.at_most(LARGEST - 1),
            marker.set(likes, end_of_day=day.marker_ends_ms(now_ms)),
            *([total.increment(after - before)] if after != before else []),
            self.keys.like_last(id).set(moment(now_ms)),
            *event,
        )

    async def get(self, id: Any, visitor: Visitor | None = None, *, counted: bool = False) -> LikeData:
        """The total, and whether this visitor likes the page today. One round trip. `counted`: already rate-limited."""

        def operations() -> list[Operation[Any]]:
            reads: list[Operation[Any]] = [self.keys.like_total(id).get(), self.keys.like_last(id).get()]
            return reads if visitor is None else [*reads, self._marker(id, visitor, self._today).get()]

        record, (total, last, *liked) = await self._read(id, None if counted else visitor, operations)
        return LikeData(
            id=record.id,
            url=record.url,
            total=total,
            user_liked=bool(liked and liked[0]),
            icon=record.icon or "heart",
            last_like=iso(last),
        )

    async def set(self, owner: Owner, value: Any, *, visitor: Visitor) -> LikeData:
        """Set the total. Visitors who like the page today can still unlike it."""
        return await self.update_settings(owner, visitor=visitor, value=value)

    async def update_settings(
        self, owner: Owner, *, visitor: Visitor, webhook_url: Any = UNSET, icon: Any = UNSET, value: Any = UNSET
    ) -> LikeData:
        """Change the given settings in one step."""
        number = None if value is UNSET else check_number("value", value)
        fields = {} if icon is UNSET else {"icon": None if icon is None else _check_icon(icon)}
        change = self._hook_change(webhook_url)
        data = await self.get(await self._update(owner, visitor, number, change, **fields))
        return data.model_copy(update={"webhook_secret": change.secret})

    async def _upgrade_steps(self, record: LikeRecord) -> list[Operation[Any]]:
        return self._upgrade_totals(record.id, record.total_likes, record.last_like)

    @property
    def _today(self) -> Day:
        return self._calendar.day(self.site.now_ms())

    def _marker(self, id: str, visitor: Visitor, day: Day) -> ValueKey[bool]:
        return self.keys.like_user(id, self._visitor_hash(id, visitor, str(day.date)))

    def _owned_keys(self, record: LikeRecord) -> list[Key]:
        keys, id = self.keys, record.id
        return [keys.like_total(id), keys.like_last(id), keys.like_users(id)]

    def _markers(self, id: str) -> tuple[SetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.like_users(id), self.keys.like_user


def _check_icon(given: Any) -> Icon:
    if given not in ICONS:
        raise invalid("icon", f"icon must be one of {', '.join(ICONS)}")
    icon: Icon = given
    return icon
