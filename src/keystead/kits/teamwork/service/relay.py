"""From the table to the stream: what is written is published, once and in order, whatever dies or is away meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Notification
from keystead.kits.teamwork.service.dashboard import Dashboard
from keystead.kits.teamwork.service.notices import Notice, Notices
from keystead.parts.feed import Feed
from keystead.parts.outbox import Outbox
from keystead.parts.rounds import Rounds
from keystead.schema.times import moment

_log = logging.getLogger("keystead.teamwork")

SLACK: Final = "slack"  # the topic of the outbox
_LOOK_EVERY_S: Final = 2.0
_READERS_AT_ONCE: Final = 16
_STOP_WITHIN_MS: Final = 5_000
_FIRST_TRY_S: Final = 0.1
_LONGEST_TRY_S: Final = 5.0


class Relay(Rounds[None]):
    """Publishes what the table holds and the stream does not, in every process, until it is stopped.

    For each notice, in one atomic step: it is put into its reader's log, sent to its channel, and given to the outbox
    for Slack. Then the table is told how far the stream is. **Who may interleave:** relays of other processes, and this
    one itself after a crash. They go through the places of a reader in the same order; the log refuses a place that it
    has, and with it the whole step; so each notice is on the stream once and in order, and handed on once, and no lock
    is needed. While the store is away, notices wait in the table.

    outbox      without it nothing goes to Slack
    dashboard   what is counted for a reader is dropped with each of their notices
    """

    def __init__(
        self,
        keys: TeamworkKeys,
        notices: Notices,
        feed: Feed[Notification],
        outbox: Outbox | None = None,
        *,
        dashboard: Dashboard | None = None,
        wait: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        super().__init__("relay of notices", "it is begun again", _log, _STOP_WITHIN_MS, wait)
        self._keys = keys
        self._notices = notices
        self._feed = feed
        self._outbox = outbox
        self._dashboard = dashboard

    def wake(self) -> None:
        """There is something new in the table. Other processes see it at their next look."""
        self._woken.set()

    async def publish_waiting(self) -> int:
        """One round: all that waits now; how many notices this was."""
        total = 0
        while readers := await self._notices.waiting(most=_READERS_AT_ONCE):
            counts = await asyncio.gather(*map(self._publish, readers))
            total += sum(counts)
            if not any(counts):
                break  # others were faster
        return total

    async def _publish(self, user: int) -> int:
        found = await self._notices.unpublished(user)
        for notice in found:
            await self._put(notice)
        if found:
            if self._dashboard is not None:
                await self._dashboard.changed(user)
            await self._notices.published(user, found[-1].place)
        return len(found)

    async def _put(self, notice: Notice) -> None:
        keys, user = self._keys, notice.user
        shown = shown_as(notice)
        more: list[Any] = [keys.notifications(user).publish(shown)]
        if self._outbox is not None:
            await self._outbox.announce(SLACK, str(user))
            more += self._outbox.add(SLACK, str(user), {"notice": notice.id, "user": user})
        await self._feed.put(keys.notice_log(user), notice.place, shown, *more)

    async def _round(self) -> float:
        try:
            await self.publish_waiting()
        except Exception as error:
            self._is_away(error)
            return min(_FIRST_TRY_S * (1 << min(self._away - 1, 10)), _LONGEST_TRY_S)
        self._is_back()
        return _LOOK_EVERY_S


def shown_as(notice: Notice) -> Notification:
    """A notice as it is published."""
    return Notification(
        notificationId=notice.id,
        type=notice.type,
        title=notice.title,
        refType=notice.ref_type,
        refId=ref_id_of(notice.ref_id),
        createdAt=moment(notice.created_at_ms),
    )


def ref_id_of(text: str) -> int | str:
    """A number where it is one and would be written in the same way; the text as it is otherwise."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 16 and (text == "0" or not text.startswith("0"))
    return int(text) if is_number else text
