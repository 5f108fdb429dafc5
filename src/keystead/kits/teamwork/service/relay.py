"""The relay: publishes stored notices to the stream, exactly once and in order, across crashes and outages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from keystead.errors import CommandError, StoreClosed, StoreError
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Notification
from keystead.kits.teamwork.service.dashboard import Dashboard
from keystead.kits.teamwork.service.notice_rows import Notice
from keystead.kits.teamwork.service.notices import Notices, Unpublished
from keystead.parts.background_loop import BackgroundLoop
from keystead.parts.feed import Feed
from keystead.parts.outbox import Outbox
from keystead.schema import Operation
from keystead.schema.times import moment

_log = logging.getLogger("keystead.teamwork")

SLACK: Final = "slack"  # the topic of the outbox
_POLL_EVERY_S: Final = 1.0
_STUCK_POLLS: Final = 2
_READERS_AT_ONCE: Final = 200
_STOP_WITHIN_MS: Final = 5_000
_FIRST_TRY_S: Final = 0.1
_LONGEST_TRY_S: Final = 5.0


class Relay(BackgroundLoop[None]):
    """Publishes the notices that are in the table and not on the stream. Runs in every process until it is stopped.

    One atomic step publishes all waiting notices of a reader: it appends them to the reader's log, sends them to the
    channel and adds them to the outbox for Slack. Then the table records how far the stream is. **Who may interleave:**
    relays of other processes, and this one after a crash. All go through the places of a reader in the same order. The
    log refuses a place that it has, and with it the whole step. So each notice is on the stream once, in order, and
    handed on once, without a lock. While the store is down, notices wait in the table. A reader whose log cannot be
    written does not block other readers.

    If the log is ahead of the table, for example after a database was restored from a backup, the log starts over: new
    notices have the places of those that the table has lost. Readers get a `missed` event.

    outbox      the outbox for Slack, if any
    dashboard   each notice invalidates the cached summary of its reader

    Each process publishes its own notices immediately (`wake`), so that processes do not compete. If a process was
    killed, another one publishes its notices after two seconds without progress.
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
        super().__init__("relay of notices", "it starts over", _log, _STOP_WITHIN_MS, wait)
        self._keys = keys
        self._notices = notices
        self._feed = feed
        self._outbox = outbox
        self._dashboard = dashboard
        self._logged: set[int] = set()  # readers whose failure is logged
        self._own: dict[int, None] = {}  # readers with new notices from this process
        self._behind: dict[int, tuple[int, int]] = {}  # waiting reader -> last published place, polls without progress
        self._next_poll = 0.0

    def wake(self, users: Iterable[int]) -> None:
        """Publish new notices of these readers now."""
        self._own.update(dict.fromkeys(users))
        self._wake.set()

    async def publish_waiting(self) -> int:
        """Publish all waiting notices of every process. Returns how many this process published."""
        total, moved = 0, -1
        while moved:  # 0: other relays were faster, or publishing failed
            # Round-robin: a reader with very many notices does not delay the others.
            moved = await self._publish_in_batches([*await self._notices.behind()])
            total += moved
        return total

    async def _publish_of(self, users: Collection[int]) -> int:
        """Publish the oldest waiting notices of these readers. This process continues with readers who have more."""
        found = await self._notices.unpublished(users)
        counts = await asyncio.gather(*(self._try_publish(user, one) for user, one in found.items()))
        moved = (user for (user, one), count in zip(found.items(), counts, strict=True) if count and not one.is_all)
        self._own.update(dict.fromkeys(moved))
        return sum(counts)

    async def _publish_in_batches(self, users: Sequence[int]) -> int:
        batches = (users[first : first + _READERS_AT_ONCE] for first in range(0, len(users), _READERS_AT_ONCE))
        return sum([await self._publish_of(batch) for batch in batches])

    async def _publish_own(self) -> None:
        """Publish the notices of this process, for the readers who have waited longest."""
        users = [*islice(self._own, _READERS_AT_ONCE)]
        for user in users:  # before the read, so that a notice written meanwhile triggers another one
            del self._own[user]
        try:
            await self._publish_of(users)
        except BaseException:
            self._own.update(dict.fromkeys(users))
            raise

    async def _publish_abandoned(self) -> None:
        """Publish notices that a killed process left behind."""
        seen: dict[int, tuple[int, int]] = {}
        for user, place in (await self._notices.behind()).items():
            before, polls = self._behind.get(user, (-1, 0))
            seen[user] = (place, polls + 1 if place == before else 0)
        self._behind = seen
        stuck = [user for user, (_, polls) in seen.items() if polls >= _STUCK_POLLS and user not in self._own]
        stuck.reverse()  # a relay that works through the same readers is met only once
        await self._publish_in_batches(stuck)

    async def _try_publish(self, user: int, found: Unpublished) -> int:
        """Like `_publish`. Returns 0 if it fails for this reader only."""
        try:
            count = await self._publish(user, found)
        except Exception as error:
            if isinstance(error, StoreError | StoreClosed) and not isinstance(error, CommandError):
                raise
            if user not in self._logged:
                self._logged.add(user)
                _log.error("publishing notices to user %d failed: %s", user, getattr(error, "code", type(error)))
            return 0
        self._logged.discard(user)
        return count

    async def _publish(self, user: int, found: Unpublished) -> int:
        if not found.notices:  # all were deleted before they were published
            await self._notices.mark_published(user, found.up_to)
            return 0
        count = await self._put(user, found.notices)
        await self._invalidate_summaries(user)
        newest = found.notices[-1]
        if not await self._notices.mark_published(user, newest.place, event_id=newest.event_id):
            # The reader was erased meanwhile, and this write brought the log back.
            await self._keys.notice_log(user).delete()
        return count

    async def _invalidate_summaries(self, user: int) -> None:
        if self._dashboard is None:
            return
        try:
            await self._dashboard.changed(user)
        except StoreError as error:
            # Cache outages do not block notifications; entries expire.
            _log.info("a cached summary stays until it expires: %s", error)

    async def _put(self, user: int, notices: Sequence[Notice]) -> int:
        """Publish those that are not on the stream yet. Returns how many this process published."""
        log = self._keys.notice_log(user)
        messages = {notice.place: to_notification(notice) for notice in notices}
        if await self._feed.put(log, messages, *await self._operations(notices, messages)):
            return len(notices)
        # Another relay was faster. It may have published some of them, and is still working.
        last = await self._feed.last_place(log)
        logged = await self._feed.messages(log, notices[0].place, len(notices))
        for number, notice in enumerate(notices):
            if notice.place > last:
                return await self._put(user, notices[number:])
            if await self._is_from_before_restore(notice, messages[notice.place], logged.get(notice.place), last):
                _log.warning("the log of user %d is ahead of the database, and starts over", user)
                rest = notices[number:]
                own = {one.place: messages[one.place] for one in rest}
                return len(rest) if await self._feed.begin_anew(log, own, *await self._operations(rest, own)) else 0
        return 0

    async def _operations(
        self, notices: Sequence[Notice], messages: Mapping[int, Notification]
    ) -> list[Operation[Any]]:
        """The operations that share one step with the append to a reader's log."""
        user = notices[0].user
        channel = self._keys.notifications(user)
        operations: list[Operation[Any]] = [channel.publish(messages[notice.place]) for notice in notices]
        if self._outbox is not None:
            await self._outbox.announce(SLACK, str(user))
            for notice in notices:
                operations += self._outbox.add(SLACK, str(user), {"notice": notice.id, "user": user})
        return operations

    async def _is_from_before_restore(
        self, notice: Notice, message: Notification, found: Notification | None, last: int
    ) -> bool:
        """Whether the log holds another notice at this place, from before a restore."""
        if found is not None:
            return bool(_identity(found) != _identity(message))
        # The log has trimmed it. A log is never ahead of its own table.
        return last > (await self._notices.reach(notice.user)).newest

    async def _round(self) -> float:
        now = asyncio.get_running_loop().time
        try:
            while self._own or now() >= self._next_poll:
                if now() >= self._next_poll:
                    await self._publish_abandoned()
                    self._next_poll = now() + _POLL_EVERY_S
                if self._own:
                    await self._publish_own()
        except Exception as error:
            self._record_outage(error)
            return min(_FIRST_TRY_S * (1 << min(self._outages - 1, 10)), _LONGEST_TRY_S)
        self._record_recovery()
        return max(0.0, self._next_poll - now())


def _identity(message: Notification) -> Any:
    # Without the text, which another version may phrase differently.
    return message.model_dump(mode="json", include={"notification_id", "created_at"})


def to_notification(notice: Notice) -> Notification:
    """The published form of a notice."""
    return Notification(
        notification_id=notice.id,
        type=notice.type,
        title=notice.title,
        ref_type=notice.ref_type,
        ref_id=ref_id_of(notice.ref_id),
        created_at=moment(notice.created_at_ms),
        said=notice.said,
    )


def ref_id_of(text: str) -> int | str:
    """The id of a work item: a number if that is written in the same way, otherwise text."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 16 and (text == "0" or not text.startswith("0"))
    return int(text) if is_number else text
