"""Download tickets: each is good for one download, which can be resumed."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from keystead.errors import BadValue, KeysteadError
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import Link, Stream, Ticket
from keystead.kits.sharing.service.outcomes import Download, SharingRefused, ended, expired, used_up
from keystead.parts.audit import Audit
from keystead.parts.blobs import BlobGone, Blobs
from keystead.parts.digest import digest
from keystead.schema import Operation, Steps, attempts, procedure
from keystead.schema.kinds import Seen, ValueKey
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.sharing")

_TICKET = re.compile(r"([A-Za-z0-9_-]{1,20})\.([A-Za-z0-9_-]{43})")
_ALIVE_MS: Final = 30_000  # a stream that sends nothing for this long counts as interrupted
_RECORD_EVERY_MS: Final = 5_000
# Bytes sent before a connection broke may have been lost in buffers. This many are sent again, but never more than half
# of the file.
_LOST_MAX_BYTES: Final = 16 * 1024 * 1024
# Once the receiver is gone, the server takes chunks as fast as they come, until it learns of that. At this rate (about
# 1 Gbit/s) a busy server has an eighth of a second to learn of it before it takes more than is sent again.
_MAX_BYTES_PER_S: Final = 8 * _LOST_MAX_BYTES
_UNPACED_BYTES: Final = _LOST_MAX_BYTES // 4
_MAX_RANGES: Final = 64  # disjoint byte ranges of one download
USED_UP: Final = "download limit reached"


@dataclass(frozen=True)
class Range:
    """A requested byte range: from `start` to `end`, inclusive; without a start, the last `end` bytes.

    It applies only if the file has the tag `only_of` (If-Range); otherwise the whole file is sent.
    """

    start: int | None = None
    end: int | None = None
    only_of: str | None = None


class Tickets:
    """Issues tickets for uploaded files, and serves the files of tickets."""

    def __init__(self, keys: SharingKeys, blobs: Blobs, uses: Audit, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._blobs = blobs
        self._uses = uses
        self._now_ms = now_ms

    async def issue(self, id: str, path: str, name: str) -> str:
        """A ticket for the file of an active link. Nothing is counted yet. Raises SharingRefused: REVOKED."""
        secret = secrets.token_urlsafe(32)
        ticket = self._keys.ticket(id, digest(secret)).set(Ticket(id=id, path=path, name=name))
        if not await self._keys.atomically(self._keys.link(id).exists().required(), ticket):
            raise ended()
        return f"{id}.{secret}"

    def link_of(self, ticket: str) -> str | None:
        """The id of the link of a ticket, even if the ticket is used up; None if this is not a ticket."""
        found = _TICKET.fullmatch(ticket)
        return None if found is None else found[1]

    async def download(self, ticket: str, requested: Range, *, where: str, head_only: bool = False) -> Download:
        """The file of a ticket, or a part of it. With `head_only`, the body is empty and nothing is counted.

        The first bytes sent count as a download of the link, in one atomic step. After that the ticket delivers the
        rest: nothing is sent twice, except what may have been lost when a connection broke.

        Raises SharingRefused: GONE, USED_UP, EXPIRED or REVOKED; RANGE for an invalid range; TRY_AGAIN if the range is
        being sent right now.
        """
        parsed = _TICKET.fullmatch(ticket)
        if parsed is None:
            raise _gone()
        key = self._keys.ticket(parsed[1], digest(parsed[2]))
        seen, has_link = await asyncio.gather(key.see(), self._keys.link(parsed[1]).exists())
        if seen is None or not has_link:
            raise _gone()
        path, name = seen.value.path, seen.value.name
        size = await self._blobs.size(path)
        if size is None:
            raise _gone()
        # A path belongs to one upload, which never changes, so it can serve as the ETag.
        tag = digest(path)[:22]
        start, end = (None, None) if requested.only_of not in (None, tag) else (requested.start, requested.end)
        first, last = _byte_range(size, start, end)
        is_part = start is not None or end is not None
        if head_only:
            return Download(name, size, first, last + 1 - first, is_part, tag, _empty_body())
        try:
            body = await _read_ahead(self._blobs.read(path, first, last + 1))
        except BlobGone:
            raise _gone() from None
        try:
            stream = await self._open_stream(key, (first, last + 1), size, where)
        except BaseException:
            await body.aclose()
            raise
        tracked = _TrackedBody(self, key, stream, first, last + 1, size)
        return Download(name, size, first, last + 1 - first, is_part, tag, tracked.send(body))

    async def _open_stream(self, key: ValueKey[Ticket], part: tuple[int, int], size: int, where: str) -> str:
        """Claim a byte range for a new stream, and count the download if it is the first stream of its ticket.

        Concurrent requests or an extension of the link may interleave: everything is written only if the ticket and
        the link are unchanged since they were read.
        """
        id = key.values["id"]
        async for _ in attempts("this download"):
            seen, link = await asyncio.gather(key.see(), self._keys.link(id).see())
            if seen is None:
                raise _gone()
            if link is None:
                raise ended()
            stream = secrets.token_urlsafe(9)
            done = await self._write_stream(
                key, seen, self._add_stream(seen.value, stream, part, size), id, link, where
            )
            if done.stopped == USED_UP:
                raise used_up()
            if done:
                return stream
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    @procedure(ordered="a counted download is missing in the log of uses")
    def _write_stream(
        self, key: ValueKey[Ticket], seen: Seen[Ticket], changed: Ticket, id: str, link: Seen[Link], where: str
    ) -> Steps[None]:
        """Store a new stream of a ticket, only if ticket and link are unchanged since they were read."""
        counted: list[Operation[Any]] = []
        if not seen.value.is_counted:
            counted = self.count(id, link.value)
            counted.append(self._uses.note("link-downloaded", who="receiver", what=id, where=where))
        return Steps(self._keys.link(id).holds(link), key.replace_seen(seen, changed), *counted)

    def count(self, id: str, link: Link) -> list[Operation[Any]]:
        """The operations that count a use of a link, and stop their step with USED_UP at the download limit."""
        try:
            increment = self._keys.downloads(id).increment(expires_at=link.expires_at)
        except BadValue:  # it is just expiring
            raise expired(deadline_ms(link.expires_at)) from None
        if link.max_downloads is None:
            return [increment]
        return [self._keys.downloads(id).at_most(link.max_downloads - 1).otherwise(USED_UP), increment]

    def _add_stream(self, ticket: Ticket, stream: str, part: tuple[int, int], size: int) -> Ticket:
        """The ticket with a new stream for a byte range. Raises SharingRefused if it was sent or is being sent."""
        now_ms = self._now_ms()
        interrupted = [name for name, one in ticket.streams.items() if deadline_ms(one.alive_until) <= now_ms]
        for name in interrupted:
            ticket = _close_stream(ticket, name, ticket.streams[name].sent, size)
        start, end = part
        if any(start < sent_to and sent_from < end for sent_from, sent_to in ticket.sent):
            raise _gone()
        overlapping = [one for one in ticket.streams.values() if start < one.end and one.start < end]
        if overlapping:
            free_ms = max(deadline_ms(one.alive_until) for one in overlapping)
            raise _busy(max(1, -(-(free_ms - now_ms) // 1000)))
        if len(ticket.sent) + len(ticket.streams) >= _MAX_RANGES:
            raise _gone()
        alive_until = moment(now_ms + _ALIVE_MS)
        new = Stream(start=start, end=end, sent=start, alive_until=alive_until)
        return ticket.model_copy(update={"is_counted": True, "streams": {**ticket.streams, stream: new}})

    async def record_progress(self, key: ValueKey[Ticket], stream: str, sent: int) -> bool:
        """Record the position of a stream. False if it counted as interrupted and another stream has replaced it."""
        alive_until = moment(self._now_ms() + _ALIVE_MS)

        def advance(ticket: Ticket) -> Ticket:
            if stream not in ticket.streams:
                raise _TakenOver
            one = ticket.streams[stream].model_copy(update={"sent": sent, "alive_until": alive_until})
            return ticket.model_copy(update={"streams": {**ticket.streams, stream: one}})

        try:
            return await key.change(advance) is not None
        except _TakenOver:
            return False

    async def record_end(self, key: ValueKey[Ticket], stream: str, sent: int, size: int) -> None:
        """Record where a stream ended. Deletes the ticket once the whole file was sent."""

        def close(ticket: Ticket) -> Ticket:
            return _close_stream(ticket, stream, sent, size) if stream in ticket.streams else ticket

        try:
            ticket = await key.change(close)
            if ticket is not None and ticket.sent == [(0, size)]:
                await key.delete()
        except KeysteadError as error:  # the stream counts as interrupted a little later
            _log.warning("could not record the end of a download: %s", error)

    def is_due(self, recorded_ms: int) -> bool:
        return self._now_ms() - recorded_ms >= _RECORD_EVERY_MS

    @property
    def now_ms(self) -> int:
        return self._now_ms()


class _TakenOver(Exception):
    """Another stream has taken over the byte range of one that was silent for too long."""


class _TrackedBody:
    """A body whose progress is recorded while it is sent."""

    def __init__(self, tickets: Tickets, key: ValueKey[Ticket], stream: str, start: int, end: int, size: int) -> None:
        self._tickets = tickets
        self._key = key
        self._stream = stream
        self._sent, self._end, self._size = start, end, size

    async def send(self, body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        recorded_ms = self._tickets.now_ms
        loop, start = asyncio.get_running_loop(), self._sent
        began = loop.time()
        try:
            async with aclosing(body):
                async for chunk in body:
                    yield chunk
                    self._sent += len(chunk)  # the consumer resumes after it has taken the chunk
                    ahead_s = (self._sent - start - _UNPACED_BYTES) / _MAX_BYTES_PER_S - (loop.time() - began)
                    await asyncio.sleep(max(0.0, ahead_s))
                    if self._sent < self._end and self._tickets.is_due(recorded_ms):
                        recorded_ms = self._tickets.now_ms
                        if not await self._tickets.record_progress(self._key, self._stream, self._sent):
                            raise ConnectionAbortedError("another request has taken this download over")
        finally:
            # Also when the receiver disconnects, which cancels this.
            await asyncio.shield(self._tickets.record_end(self._key, self._stream, self._sent, self._size))


def _close_stream(ticket: Ticket, name: str, sent: int, size: int) -> Ticket:
    """The ticket without this stream, which was sent up to `sent`."""
    one = ticket.streams[name]
    if sent < one.end:
        sent = max(one.start, sent - min(_LOST_MAX_BYTES, size // 2))
    others = {other: stream for other, stream in ticket.streams.items() if other != name}
    parts = _merge_ranges([*ticket.sent, (one.start, sent)]) if one.start < sent else ticket.sent
    return ticket.model_copy(update={"streams": others, "sent": parts})


def _merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges sorted, with adjacent and overlapping ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _byte_range(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """The first and last byte of a requested range. Raises SharingRefused: RANGE."""
    if start is None and end is not None:
        start, end = max(0, size - end), None
    first, last = start or 0, min(size - 1, size - 1 if end is None else end)
    if not 0 <= first <= last:
        raise SharingRefused("RANGE", "this range is not in the file", size=size)
    return first, last


def _gone() -> SharingRefused:
    return SharingRefused("GONE", "this download is over; open the link again")


def _busy(seconds: int) -> SharingRefused:
    sentence = "this part of the file is already being sent; wait until that has ended"
    return SharingRefused("TRY_AGAIN", sentence, retryAfter=seconds)


async def _empty_body() -> AsyncGenerator[bytes, None]:
    for chunk in tuple[bytes]():
        yield chunk


async def _read_ahead(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same stream, with its first chunk already read: a missing file is detected before the response starts."""
    try:
        first = await anext(body)
    except StopAsyncIteration:
        first = b""

    async def whole() -> AsyncGenerator[bytes, None]:
        yield first
        async for chunk in body:
            yield chunk

    return whole()
