"""The notices of a user as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from keystead.http.server_sent_events import event, heartbeat
from keystead.kits.language import Language
from keystead.kits.teamwork.service.streams import Began, Followed, NoticeStreams, SignedOut, Still
from keystead.parts.feed import Missed, Pause

_RETRY: Final = b"retry: 2000\n\n"


async def stream_notices(
    streams: NoticeStreams, user: int, after: int | None, still: Still, language: Language | None = None
) -> AsyncGenerator[bytes, None]:
    """As `NoticeStreams.follow`, encoded. Raises TooManyStreams at once."""
    return _encode_all(await streams.follow(user, after, still, language))


async def _encode_all(followed: AsyncGenerator[Followed, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(followed):
        async for one in followed:
            yield _encode(one)


def _encode(one: Followed) -> bytes:
    match one:
        case Began(place, newest):
            return _RETRY + event("hello", f'{{"place": {newest}}}', place=place)
        case Missed(first):
            return event("missed", f'{{"first": {first}}}', place=first - 1)
        case Pause():
            return heartbeat()
        case SignedOut():
            return event("bye", "{}")
        case notices:
            return b"".join(event("notice", found.item.model_dump_json(), place=found.place) for found in notices)
