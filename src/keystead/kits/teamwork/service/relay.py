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
_LOOK_EVERY_S: Final = 1.0
_STUCK_LOOKS: Final = 2
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
    notices have the places of those that the table has lost. Readers are told that they may have missed some.

    outbox      without it nothing goes to Slack
    dashboard   each notice invalidates the cached summary of its reader

    A process publishes its own notices at once (`wake`), so that processes do not compete. If a process was killed, its
    notices are published by another that has seen no progress for two seconds.
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
        self._own: dict[int, None] = {}  # readers with new notices from this process
        self._behind: dict[
            int, tuple[int, int]
        ] = {}  # by waiting reader: how far the stream is, and for how many looks
        self._next_look = 0.0

    def wake(self, users: Iterable[int]) -> None:
        """There is something new in the table for these readers."""
        self._own.update(dict.fromkeys(users))
        self._wake.set()

    async def publish_waiting(self) -> int:
        """Publish all waiting notices of every process. Returns how many this process published."""
        total, moved = 0, -1
        while moved:  # 0: other relays were faster, or publishing failed
            # Round-robin: a reader with very many notices does not delay the others.
            moved = await self._publish_in_portions([*await self._notices.behind()])
            total += moved
        return total

    async def _publish_of(self, users: Collection[int]) -> int:
        """Publish the oldest waiting notices of these readers. This process goes on with readers who have more."""
        found = await self._notices.unpublished(users)
        counts = await asyncio.gather(*(self._try_publish(user, one) for user, one in found.items()))
        moved = (user for (user, one), count in zip(found.items(), counts, strict=True) if count and not one.is_all)
        self._own.update(dict.fromkeys(moved))
        return sum(counts)

    async def _publish_in_portions(self, users: Sequence[int]) -> int:
        portions = (users[first : first + _READERS_AT_ONCE] for first in range(0, len(users), _READERS_AT_ONCE))
        return sum([await self._publish_of(portion) for portion in portions])

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

    async def _publish_left(self) -> None:
        """Publish notices that another process left behind."""
        seen: dict[int, tuple[int, int]] = {}
        for user, place in (await self._notices.behind()).items():
            before, looks = self._behind.get(user, (-1, 0))
            seen[user] = (place, looks + 1 if place == before else 0)
        self._behind = seen
        stuck = [user for user, (_, looks) in seen.items() if looks >= _STUCK_LOOKS and user not in self._own]
        stuck.reverse()  # a relay that works on the same readers is met only once
        await self._publish_in_portions(stuck)

    async def _try_publish(self, user: int, found: Unpublished) -> int:
        """As `_publish`. Returns 0 if it fails for this reader alone."""
        try:
            count = await self._publish(user, found)
        except Exception as error:
            if isinstance(error, StoreError | StoreClosed) and not isinstance(error, CommandError):
                raise
            if user not in self._complained:
                self._complained.add(user)
                _log.error("notices to user %d cannot be published: %s", user, getattr(error, "code", type(error)))
            return 0
        self._complained.discard(user)
        return count

    async def _publish(self, user: int, found: Unpublished) -> int:
        if not found.notices:  # all were deleted before they were published
            await self._notices.published(user, found.up_to)
            return 0
        count = await self._put(user, found.notices)
        await self._drop_summaries(user)
        newest = found.notices[-1]
        if not await self._notices.published(user, newest.place, event_id=newest.event_id):
            # The reader was erased meanwhile, and this write brought the log back.
            await self._keys.notice_log(user).delete()
        return count

    async def _drop_summaries(self, user: int) -> None:
        if self._dashboard is None:
            return
        try:
            await self._dashboard.changed(user)
        except StoreError as error:
            # Cache outages do not block notifications; entries expire.
            _log.info("the summary of a user stays for its lifetime: %s", error)

    async def _put(self, user: int, notices: Sequence[Notice]) -> int:
        """Publish those that are not on the stream yet. Returns how many this process published."""
        log = self._keys.notice_log(user)
        shown = {notice.place: shown_as(notice) for notice in notices}
        if await self._feed.put(log, shown, *await self._more(notices, shown)):
            return len(notices)
        # Another relay was faster. It may have published some of them, and is still working.
        last = await self._feed.last_place(log)
        there = await self._feed.messages(log, notices[0].place, len(notices))
        for number, notice in enumerate(notices):
            if notice.place > last:
                return await self._put(user, notices[number:])
            if await self._is_of_another_past(notice, shown[notice.place], there.get(notice.place), last):
                _log.warning("the log of user %d is ahead of the database, and begins anew", user)
                rest = notices[number:]
                own = {one.place: shown[one.place] for one in rest}
                return len(rest) if await self._feed.begin_anew(log, own, *await self._more(rest, own)) else 0
        return 0

    async def _more(self, notices: Sequence[Notice], shown: Mapping[int, Notification]) -> list[Operation[Any]]:
        """The operations that share one step with the append to a reader's log."""
        user = notices[0].user
        channel = self._keys.notifications(user)
        more: list[Operation[Any]] = [channel.publish(shown[notice.place]) for notice in notices]
        if self._outbox is not None:
            await self._outbox.announce(SLACK, str(user))
            for notice in notices:
                more += self._outbox.add(SLACK, str(user), {"notice": notice.id, "user": user})
        return more

    async def _is_of_another_past(
        self, notice: Notice, shown: Notification, found: Notification | None, last: int
    ) -> bool:
        """Whether the log holds another notice at this place, from before a restore."""
        if found is not None:
            return bool(_identity(found) != _identity(shown))
        # The log has trimmed it. A log is never ahead of its own table.
        return last > (await self._notices.reach(notice.user)).newest

    async def _round(self) -> float:
        now = asyncio.get_running_loop().time
        try:
            while self._own or now() >= self._next_look:
                if now() >= self._next_look:
                    await self._publish_left()
                    self._next_look = now() + _LOOK_EVERY_S
                if self._own:
                    await self._publish_own()
        except Exception as error:
            self._record_outage(error)
            return min(_FIRST_TRY_S * (1 << min(self._outages - 1, 10)), _LONGEST_TRY_S)
        self._record_recovery()
        return max(0.0, self._next_look - now())


def _identity(shown: Notification) -> Any:
    # Without the words, which another version may phrase differently.
    return shown.model_dump(mode="json", include={"notification_id", "created_at"})


def shown_as(notice: Notice) -> Notification:
    """A notice as it is published."""
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
    """A number where it is one and would be written in the same way; the text as it is otherwise."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 16 and (text == "0" or not text.startswith("0"))
    return int(text) if is_number else text
