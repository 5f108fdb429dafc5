"""`/subscribe/channel`: messages of channels as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from keystead.errors import StoreError
from keystead.gateway.permissions import Permission
from keystead.gateway.rest_replies import error_text
from keystead.gateway.rest_requests import RestError
from keystead.http.server_sent_events import HEARTBEAT
from keystead.stores import Message, Store

HEARTBEAT_EVERY_S: Final = 15.0
# A stream ends at most this long after its token was revoked.
CHECK_TOKEN_EVERY_S: Final = 5.0
_HEADERS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


async def stream_messages(
    store: Store,
    segments: Sequence[bytes],
    permission: Permission,
    is_allowed: Callable[[], Awaitable[bool]],
    stopping: asyncio.Event,
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Send `subscribe,CHANNEL,COUNT`, then `message,CHANNEL,DATA` for each message, until either side ends it.

    is_allowed   whether the token still has this permission; asked while the stream lasts
    """
    channels = [unquote_to_bytes(segment) for segment in segments]
    for channel in channels:
        refused = permission.refuse_channel(channel)
        if refused is not None:
            raise RestError(400, error_text(refused))
    try:
        names = [channel.decode() for channel in channels]
    except UnicodeDecodeError:
        raise RestError(400, "ERR the name of a channel must be UTF-8") from None
    async with store.subscribe(*names) as messages:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        begun = b"".join(_event(b"subscribe", name, b"%d" % count) for count, name in enumerate(channels, 1))
        await send({"type": "http.response.body", "body": begun, "more_body": True})
        sending = asyncio.create_task(_send_messages(messages, send))
        ends = [asyncio.create_task(one) for one in (stopping.wait(), _disconnect(receive), _revocation(is_allowed))]
        try:
            await asyncio.wait({sending, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *ends):
                task.cancel()
            await asyncio.gather(sending, *ends, return_exceptions=True)
    with suppress(Exception):  # the client may be gone
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_messages(
    messages: AsyncIterator[Message], send: Callable[[MutableMapping[str, Any]], Awaitable[None]]
) -> None:
    upcoming = asyncio.ensure_future(anext(messages))
    try:
        while True:
            done, _ = await asyncio.wait({upcoming}, timeout=HEARTBEAT_EVERY_S)
            if not done:
                await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
                continue
            try:
                message = upcoming.result()
            except StopAsyncIteration:
                return
            except StoreError as error:
                # Messages may have been missed: the client has to subscribe again.
                text = f"event: error\ndata: {error_text(error)}\n\n".encode()
                await send({"type": "http.response.body", "body": text, "more_body": True})
                return
            body = _event(b"message", message.channel.encode(), message.data)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            upcoming = asyncio.ensure_future(anext(messages))
    finally:
        upcoming.cancel()


async def _revocation(is_allowed: Callable[[], Awaitable[bool]]) -> None:
    while True:
        await asyncio.sleep(CHECK_TOKEN_EVERY_S)
        with suppress(StoreError):  # of the store of the tokens: the stream goes on, as it began
            if not await is_allowed():
                return


async def _disconnect(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(kind: bytes, channel: bytes, data: bytes) -> bytes:
    """An event; a message of several lines has several `data:` lines."""
    text = b",".join((kind, channel, data))
    return b"".join(b"data: %s\n" % line for line in text.split(b"\n")) + b"\n"
