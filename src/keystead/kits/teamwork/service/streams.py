"""Notice streams: the notices of one user as they arrive, until the user signs out."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, NamedTuple, TypeAlias

from keystead.catalogue import Language
from keystead.errors import KeysteadError, StoreClosed, StoreError, Unreadable
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Notification
from keystead.kits.teamwork.service.messages import title_of
from keystead.kits.teamwork.service.notices import Notices
from keystead.parts.cache import LoadFailed
from keystead.parts.feed import Feed, FeedItem, Missed, Pause

_log = logging.getLogger("keystead.teamwork")

# A sign-out ends a stream after at most the sum of both: a check that is not due yet, and then a silent stream.
_CHECK_EVERY_MS: Final = 5_000
PAUSE_S: Final = 10.0
_HOLD_S: Final = 1.0

SignInCheck: TypeAlias = Callable[[], Awaitable[bool | None]]


class TooManyStreams(KeysteadError):
    """A user has as many open streams as the settings allow."""

    code = "too-many-streams"


class StreamStart(NamedTuple):
    """The stream starts after `place`. `newest` is the newest notice that is known to be published."""

    place: int
    newest: int


class SignedOut(NamedTuple):
    """The user has signed out. The stream ends."""


StreamItem: TypeAlias = StreamStart | Missed | Pause | SignedOut | list[FeedItem[Notification]]


class NoticeStreams:
    """Streams of notices, at most `per_user` for each user in this process."""

    def __init__(self, keys: TeamworkKeys, notices: Notices, feed: Feed[Notification], per_user: int) -> None:
        self._keys = keys
        self._notices = notices
        self._feed = feed
        self._per_user = per_user
        self._open: Counter[int] = Counter()  # streams, by user

    async def follow(
        self, user: int, after: int | None, is_signed_in: SignInCheck, language: Language | None = None
    ) -> AsyncGenerator[StreamItem, None]:
        """The notices of a user after a place, or from now on. Raises TooManyStreams before the first item.

        is_signed_in   checked at each pause. False ends the stream. None means that it cannot be checked now: the
                       stream stays open and sends no notices.
        language       of the titles; None: the server's
        """
        items = self._follow_counted(user, after, is_signed_in, language)
        first = await anext(items)  # counts the stream now; its generator uncounts it, however it ends
        return _join(first, items)

    async def _follow_counted(
        self, user: int, after: int | None, is_signed_in: SignInCheck, language: Language | None
    ) -> AsyncGenerator[StreamItem, None]:
        if self._open[user] >= self._per_user:
            raise TooManyStreams(f"at most {self._per_user} streams can be open; close one")
        self._open[user] += 1
        try:
            # A notice is in the table before the log, and publishing progress is recorded after it. So readers saw
            # nothing beyond `newest`, and at least `published` is on the stream. Only the log itself knows its end.
            reach = await self._notices.reach(user)
            is_known = after is not None and after <= reach.newest
            place = after if after is not None and is_known else await self._end_of_stream(user, reach.published)
            yield StreamStart(place, max(place, reach.published))
            if after is not None and not is_known:  # the database was restored from a backup, or the place is made up
                yield Missed(place + 1)
            async with aclosing(self._follow_checked(user, place, reach.published, is_signed_in, language)) as items:
                async for item in items:
                    yield item
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    async def _end_of_stream(self, user: int, published: int) -> int:
        return max(published, await self._feed.last_place(self._keys.notice_log(user)))

    async def _follow_checked(
        self, user: int, after: int, last: int, is_signed_in: SignInCheck, language: Language | None
    ) -> AsyncGenerator[StreamItem, None]:
        checked_ms = self._keys.now_ms()

        async def was_lost(first: int, last: int) -> bool:
            return await self._notices.has_between(user, first, last)

        async for found in self._feed.follow(self._keys.notice_log(user), after=after, last=last, was_lost=was_lost):
            if isinstance(found, Missed | Pause):
                yield found
            else:
                yield [FeedItem(one.place, _translate(one.item, language)) for one in found]
            if isinstance(found, Pause) or self._keys.now_ms() - checked_ms >= _CHECK_EVERY_MS:
                while (signed_in := await is_signed_in()) is None and not self._feed.is_closing:
                    yield Pause()
                    await asyncio.sleep(_HOLD_S)
                checked_ms = self._keys.now_ms()
                if not signed_in:
                    if signed_in is False:
                        yield SignedOut()
                    return


def _translate(notice: Notification, language: Language | None) -> Notification:
    """A notice with its title in a language, without the arguments of the title."""
    if language is None or notice.said is None:
        return notice
    title = title_of(notice.type, notice.said, language)
    return notice.model_copy(update={"title": title, "said": None})


async def _join(first: StreamItem, rest: AsyncGenerator[StreamItem, None]) -> AsyncGenerator[StreamItem, None]:
    async with aclosing(rest):
        yield first
        try:
            async for item in rest:
                yield item
        except (StoreError, StoreClosed, LoadFailed, Unreadable) as error:
            _log.info("a stream ends, and its client reconnects: %s", error)
