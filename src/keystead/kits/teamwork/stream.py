"""The notices of a user as server-sent events (SSE)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from keystead.catalogue import Language
from keystead.http.server_sent_events import event, heartbeat
from keystead.kits.teamwork.service.streams import NoticeStreams, SignedOut, SignInCheck, StreamItem, StreamStart
from keystead.parts.feed import Missed, Pause

_RETRY: Final = b"retry: 2000\n\n"


async def stream_notices(
    streams: NoticeStreams, user: int, after: int | None, is_signed_in: SignInCheck, language: Language | None = None
) -> AsyncGenerator[bytes, None]:
    """Like `NoticeStreams.follow`, encoded. Raises TooManyStreams before the first event."""
    return _encode_all(await streams.follow(user, after, is_signed_in, language))


async def _encode_all(items: AsyncGenerator[StreamItem, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(items):
        async for item in items:
            yield _encode(item)


def _encode(item: StreamItem) -> bytes:
    match item:
        case StreamStart(place, newest):
            return _RETRY + event("hello", f'{{"place": {newest}}}', place=place)
        case Missed(first):
            return event("missed", f'{{"first": {first}}}', place=first - 1)
        case Pause():
            return heartbeat()
        case SignedOut():
            return event("bye", "{}")
        case notices:
            return b"".join(event("notice", found.item.model_dump_json(), place=found.place) for found in notices)
