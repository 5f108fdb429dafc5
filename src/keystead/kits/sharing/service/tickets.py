"""Tickets: one download of a file each, which may break off and be taken up again."""

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
_ALIVE_MS: Final = 30_000  # a stream that sends nothing for so long has broken off
_NOTED_EVERY_MS: Final = 5_000
# What was sent when a connection broke may not have arrived: it lay in buffers on its way. So much of it is sent again,
# but never more than half of the file.
_LOST_MAX_BYTES: Final = 16 * 1024 * 1024
_MOST_PARTS: Final = 64  # of one download that are apart from each other
USED_UP: Final = "used as often as it may be"


@dataclass(frozen=True)
class Range:
    """What is asked for: from `start` to `end`, both included; without a start, the last `end` bytes.

    A part is only of the file with the tag `only_of`; of any other the whole is meant.
    """

    start: int | None = None
    end: int | None = None
    only_of: str | None = None


class Tickets:
    """Gives tickets for files that are kept here, and the files for tickets."""

    def __init__(self, keys: SharingKeys, blobs: Blobs, uses: Audit, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._blobs = blobs
        self._uses = uses
        self._now_ms = now_ms

    async def issue(self, id: str, path: str, name: str) -> str:
        """A ticket for the file of a link that is alive. Nothing is counted yet. Raises SharingRefused: REVOKED."""
        secret = secrets.token_urlsafe(32)
        ticket = self._keys.ticket(id, digest(secret)).set(Ticket(id=id, path=path, name=name))
        if not await self._keys.atomically(self._keys.link(id).exists().required(), ticket):
            raise ended()
        return f"{id}.{secret}"

    def link_of(self, ticket: str) -> str | None:
        """The id of the link that a ticket is for; None: it is no ticket. It may be over."""
        found = _TICKET.fullmatch(ticket)
        return None if found is None else found[1]

    async def download(self, ticket: str, asked: Range, *, where: str, looking: bool = False) -> Download:
        """The file of a ticket, or a part of it. Who is only looking gets no bytes of it, and nothing is counted.

        The first bytes that go out count as a download of the link, in one step. After that the ticket gives the rest:
        what was sent is not sent again, but for what may have been lost when a connection broke.

        Raises SharingRefused: GONE, USED_UP, EXPIRED or REVOKED; RANGE where there is no such part; TRY_AGAIN where it
        is on its way right now.
        """
        named = _TICKET.fullmatch(ticket)
        if named is None:
            raise _gone()
        key = self._keys.ticket(named[1], digest(named[2]))
        seen, link = await asyncio.gather(key.see(), self._keys.link(named[1]).exists())
        if seen is None or not link:
            raise _gone()
        path, name = seen.value.path, seen.value.name
        size = await self._blobs.size(path)
        if size is None:
            raise _gone()
        # A path is that of one upload, which never changes: so it tells whether the rest is of the same file.
        tag = digest(path)[:22]
        start, end = (None, None) if asked.only_of not in (None, tag) else (asked.start, asked.end)
        first, last = _part_of(size, start, end)
        is_part = start is not None or end is not None
        if looking:
            return Download(name, size, first, last + 1 - first, is_part, tag, _nothing())
        try:
            body = await _begun(self._blobs.read(path, first, last + 1))
        except BlobGone:
            raise _gone() from None
        try:
            stream = await self._begin(key, (first, last + 1), size, where)
        except BaseException:
            await body.aclose()
            raise
        following = _Following(self, key, stream, first, last + 1, size)
        return Download(name, size, first, last + 1 - first, is_part, tag, following.follow(body))

    async def _begin(self, key: ValueKey[Ticket], part: tuple[int, int], size: int, where: str) -> str:
        """Take a part of the file for a stream of one's own, and count the download if it is the first of its ticket.

        Two may ask at the same moment, or the link may be extended: all is written only where the ticket and the link
        are still as they were read.
        """
        id = key.values["id"]
        async for _ in attempts("this download"):
            seen, link = await asyncio.gather(key.see(), self._keys.link(id).see())
            if seen is None:
                raise _gone()
            if link is None:
                raise ended()
            stream = secrets.token_urlsafe(9)
            done = await self._start(key, seen, self._taken(seen.value, stream, part, size), id, link, where)
            if done.stopped == USED_UP:
                raise used_up()
            if done:
                return stream
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    @procedure(ordered="a download that is counted is missing in the log of uses")
    def _start(
        self, key: ValueKey[Ticket], seen: Seen[Ticket], taken: Ticket, id: str, link: Seen[Link], where: str
    ) -> Steps[None]:
        """Begin a stream of a ticket, only where ticket and link are as they were read."""
        counted: list[Operation[Any]] = []
        if not seen.value.is_counted:
            counted = self.count(id, link.value)
            counted.append(self._uses.note("link-downloaded", who="receiver", what=id, where=where))
        return Steps(self._keys.link(id).holds(link), key.replace_seen(seen, taken), *counted)

    def count(self, id: str, link: Link) -> list[Operation[Any]]:
        """What counts a use of a link, and stops the step that it is in where there were as many as there may be."""
        try:
            increment = self._keys.downloads(id).increment(expires_at=link.expires_at)
        except BadValue:  # it expires at this moment
            raise expired(deadline_ms(link.expires_at)) from None
        if link.max_downloads is None:
            return [increment]
        return [self._keys.downloads(id).at_most(link.max_downloads - 1).otherwise(USED_UP), increment]

    def _taken(self, ticket: Ticket, stream: str, part: tuple[int, int], size: int) -> Ticket:
        """The ticket with a new stream for this part. Raises SharingRefused where it was sent, or is on its way."""
        now_ms = self._now_ms()
        broken = [name for name, one in ticket.streams.items() if deadline_ms(one.alive_until) <= now_ms]
        for name in broken:
            ticket = _ended_stream(ticket, name, ticket.streams[name].sent, size)
        start, end = part
        if any(start < sent_to and sent_from < end for sent_from, sent_to in ticket.sent):
            raise _gone()
        under_way = [one for one in ticket.streams.values() if start < one.end and one.start < end]
        if under_way:
            first_ms = max(deadline_ms(one.alive_until) for one in under_way)
            raise _busy(max(1, -(-(first_ms - now_ms) // 1000)))
        if len(ticket.sent) + len(ticket.streams) >= _MOST_PARTS:
            raise _gone()
        alive_until = moment(now_ms + _ALIVE_MS)
        new = Stream(start=start, end=end, sent=start, alive_until=alive_until)
        return ticket.model_copy(update={"is_counted": True, "streams": {**ticket.streams, stream: new}})

    async def note_progress(self, key: ValueKey[Ticket], stream: str, sent: int) -> bool:
        """Write down how far a stream is. False: it counts as broken off, and another one has taken its place."""
        alive_until = moment(self._now_ms() + _ALIVE_MS)

        def further(ticket: Ticket) -> Ticket:
            if stream not in ticket.streams:
                raise _TakenOver
            one = ticket.streams[stream].model_copy(update={"sent": sent, "alive_until": alive_until})
            return ticket.model_copy(update={"streams": {**ticket.streams, stream: one}})

        try:
            return await key.change(further) is not None
        except _TakenOver:
            return False

    async def note_end(self, key: ValueKey[Ticket], stream: str, sent: int, size: int) -> None:
        """Write down where a stream ended. A ticket whose file went out whole is over."""

        def without(ticket: Ticket) -> Ticket:
            return _ended_stream(ticket, stream, sent, size) if stream in ticket.streams else ticket

        try:
            ticket = await key.change(without)
            if ticket is not None and ticket.sent == [(0, size)]:
                await key.delete()
        except KeysteadError as error:  # its stream then counts as broken off, a little later
            _log.warning("how a download ended cannot be written down: %s", error)

    def is_due(self, noted_ms: int) -> bool:
        return self._now_ms() - noted_ms >= _NOTED_EVERY_MS

    @property
    def now_ms(self) -> int:
        return self._now_ms()


class _TakenOver(Exception):
    """A stream that was silent for too long, whose part of the file another one sends."""


class _Following:
    """A body on its way, which is written down as it goes."""

    def __init__(self, tickets: Tickets, key: ValueKey[Ticket], stream: str, start: int, end: int, size: int) -> None:
        self._tickets = tickets
        self._key = key
        self._stream = stream
        self._sent, self._end, self._size = start, end, size

    async def follow(self, body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        noted_ms = self._tickets.now_ms
        try:
            async with aclosing(body):
                async for piece in body:
                    yield piece
                    self._sent += len(piece)  # who asks for the next one has taken this one
                    if self._sent < self._end and self._tickets.is_due(noted_ms):
                        noted_ms = self._tickets.now_ms
                        if not await self._tickets.note_progress(self._key, self._stream, self._sent):
                            raise ConnectionAbortedError("another request has taken this download over")
        finally:
            # Also where the receiver went away, which cancels this.
            await asyncio.shield(self._tickets.note_end(self._key, self._stream, self._sent, self._size))


def _ended_stream(ticket: Ticket, name: str, sent: int, size: int) -> Ticket:
    """The ticket without this stream, of which all up to `sent` was sent."""
    one = ticket.streams[name]
    if sent < one.end:
        sent = max(one.start, sent - min(_LOST_MAX_BYTES, size // 2))
    others = {other: stream for other, stream in ticket.streams.items() if other != name}
    parts = _joined([*ticket.sent, (one.start, sent)]) if one.start < sent else ticket.sent
    return ticket.model_copy(update={"streams": others, "sent": parts})


def _joined(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same parts in order, those that touch as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _part_of(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """The first and the last byte of a part of a file."""
    if start is None and end is not None:
        start, end = max(0, size - end), None
    first, last = start or 0, min(size - 1, size - 1 if end is None else end)
    if not 0 <= first <= last:
        raise SharingRefused("RANGE", "there is no such part of this file", size=size)
    return first, last


def _gone() -> SharingRefused:
    return SharingRefused("GONE", "this download is over; open the link again")


def _busy(seconds: int) -> SharingRefused:
    sentence = "this part of the file is on its way already; wait until that has ended"
    return SharingRefused("TRY_AGAIN", sentence, retryAfter=seconds)


async def _nothing() -> AsyncGenerator[bytes, None]:
    for piece in tuple[bytes]():
        yield piece


async def _begun(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same stream, after its first piece was there: what is not there is known before anything is answered."""
    try:
        first = await anext(body)
    except StopAsyncIteration:
        first = b""

    async def whole() -> AsyncGenerator[bytes, None]:
        yield first
        async for piece in body:
            yield piece

    return whole()
