"""From the table to the stream: what is written is published, once and in order, whatever dies or is away meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from keystead.errors import CommandError, StoreClosed, StoreError
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
    is needed. While the store is away, notices wait in the table. A reader whose log cannot be written to holds up
    no other.

    Where the log is ahead of the table, as after a database came back from a backup, the log begins anew: notices that
    are new have the places of those that the table has forgotten. Readers are told that they may have missed some.

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
        self._complained: set[int] = set()

    def wake(self) -> None:
        """There is something new in the table. Other processes see it at their next look."""
        self._woken.set()

    async def publish_waiting(self) -> int:
        """One round: all that waits now; how many notices this was."""
        total = moved = after = 0
        while True:
            # Each in turn: whoever has very many keeps nobody waiting.
            readers = await self._notices.waiting(after=after, most=_READERS_AT_ONCE)
            if not readers and not moved:
                return total  # all of it, or others were faster
            counts = await asyncio.gather(*map(self._published, readers))
            moved = moved + sum(counts) if readers else 0
            total += sum(counts)
            after = readers[-1] if readers else 0

    async def _published(self, user: int) -> int:
        """What `_publish` does; 0 where it cannot be done for this reader alone."""
        try:
            count = await self._publish(user)
        except Exception as error:
            if isinstance(error, StoreError | StoreClosed) and not isinstance(error, CommandError):
                raise
            if user not in self._complained:
                self._complained.add(user)
                _log.error("notices to user %d cannot be published: %s", user, getattr(error, "code", type(error)))
            return 0
        self._complained.discard(user)
        return count

    async def _publish(self, user: int) -> int:
        found = await self._notices.unpublished(user)
        for notice in found:
            await self._put(notice)
        if not found:
            return 0
        await self._drop_summaries(user)
        newest = found[-1]
        if not await self._notices.published(user, newest.place, event_id=newest.event_id):
            # They were erased while this was under way, and it came back by that.
            await self._keys.notice_log(user).delete()
        return len(found)

    async def _drop_summaries(self, user: int) -> None:
        if self._dashboard is None:
            return
        try:
            await self._dashboard.changed(user)
        except StoreError as error:
            # A cache that is away holds up no notice; what it keeps ends by itself.
            _log.info("the summary of a user stays for its lifetime: %s", error)

    async def _put(self, notice: Notice) -> None:
        keys, user = self._keys, notice.user
        shown = shown_as(notice)
        more: list[Any] = [keys.notifications(user).publish(shown)]
        if self._outbox is not None:
            await self._outbox.announce(SLACK, str(user))
            more += self._outbox.add(SLACK, str(user), {"notice": notice.id, "user": user})
        log = keys.notice_log(user)
        if await self._feed.put(log, notice.place, shown, *more):
            return
        if await self._is_of_another_past(notice, shown):
            _log.warning("the log of user %d is ahead of the database, and begins anew", user)
            await self._feed.begin_anew(log, notice.place, shown, *more)

    async def _is_of_another_past(self, notice: Notice, shown: Notification) -> bool:
        """Whether what the log has at the place of a notice is not this notice, put before."""
        log = self._keys.notice_log(notice.user)
        found = await self._feed.at(log, notice.place)
        if found is not None:
            return found.model_dump(mode="json") != shown.model_dump(mode="json")
        # It is not in the log any more, which is never ahead of its table.
        return await self._feed.last_place(log) > await self._notices.newest_place(notice.user)

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
