"""Uploads that are under way: how many there may be, what keeps them alive, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from keystead.errors import BadValue, KeysteadError
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import EdgeMeta, Link
from keystead.kits.sharing.service.outcomes import Issued, SharingRefused
from keystead.kits.sharing.service.quota import Quota
from keystead.parts.limit import client_of
from keystead.schema import Steps, attempts, procedure
from keystead.schema.kinds import Seen
from keystead.schema.times import moment

_log = logging.getLogger("keystead.sharing")

# While a file is uploaded, its process renews its record, piece by piece. Where it died, the clean-up takes the upload.
LEASE_MS: Final = 180_000
_RENEWED_EVERY_MS: Final = 45_000
_STALLED_S: Final = 30  # how long one may be silent
_AT_ONCE: Final = 64  # in a process
_OF_ONE: Final = 8  # client


class Uploads:
    """The uploads of this process."""

    def __init__(self, keys: SharingKeys, quota: Quota, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._quota = quota
        self._now_ms = now_ms
        self._by_client: Counter[str] = Counter()
        self._waits: set[asyncio.Timeout] = set()  # for their next piece
        self._is_stopping = False

    def stop(self) -> None:
        """Give up the uploads that are under way, at once: the process is about to end, and would leave them half."""
        self._is_stopping = True
        for wait in self._waits:
            with suppress(RuntimeError):  # it has ended already
                wait.reschedule(asyncio.get_running_loop().time())

    @contextmanager
    def room(self, where: str) -> Iterator[None]:
        """A place for an upload. Raises SharingRefused where there are too many at once, of all or of one client."""
        client = client_of(where)
        if self._is_stopping:
            raise _stopping()
        if self._by_client.total() >= _AT_ONCE or self._by_client[client] >= _OF_ONE:
            raise SharingRefused("TRY_AGAIN", "too many uploads at once; try again when another has ended")
        self._by_client[client] += 1
        try:
            yield
        finally:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    async def flowing(self, body: AsyncIterable[bytes], id: str) -> AsyncIterator[bytes]:
        """The same stream, as long as it does not stop and nobody ends it. Raises SharingRefused."""
        pieces, renewed_ms = aiter(body), self._now_ms()
        while True:
            if self._is_stopping:
                raise _stopping()
            wait = asyncio.timeout(_STALLED_S)
            try:
                async with wait:
                    self._waits.add(wait)
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if self._is_stopping:
                    raise _stopping() from None
                raise SharingRefused("STALLED", "this upload came to a standstill; try again") from None
            finally:
                self._waits.discard(wait)
            if self._now_ms() - renewed_ms >= _RENEWED_EVERY_MS:
                renewed_ms = self._now_ms()
                if not await self._renewed(id):
                    raise ended_meanwhile()
            yield piece

    async def _renewed(self, id: str) -> bool:
        """Renew the lease of an upload. False: it was given up, or ended. A store that is away is no reason to stop."""
        lease_end = moment(self._now_ms() + LEASE_MS)

        def renew(meta: EdgeMeta) -> EdgeMeta:
            return meta.model_copy(update={"expires_at": lease_end}) if meta.upload == "under way" else meta

        try:
            meta = await self._keys.meta(id).change(renew)
        except KeysteadError as error:
            _log.warning("the lease of an upload cannot be renewed: %s", error)
            return True
        return meta is not None and meta.upload == "under way"

    async def made_ready(self, issued: Issued, size: int) -> bool:
        """Open the link of an upload that is complete. False: it was given up or ended; of that and this, one comes
        first.
        """
        async for _ in attempts("this upload"):
            meta, link = await asyncio.gather(self._keys.meta(issued.id).see(), self._keys.link(issued.id).see())
            if meta is None or link is None or meta.value.upload != "under way":
                return False
            try:
                if await self._complete(issued, meta, link, size):
                    return True
            except BadValue:  # it expires at this moment
                return False
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    @procedure(ordered="the lease of the upload runs out, and the clean-up deletes it")
    def _complete(self, issued: Issued, meta: Seen[EdgeMeta], link: Seen[Link], size: int) -> Steps[None]:
        """Open a link, let the record of its file expire with it, and give back what was reserved for more bytes."""
        keys, was = self._keys, meta.value
        done = was.model_copy(update={"expires_at": moment(issued.expires_ms), "upload": None, "size": size})
        return Steps(
            keys.link(issued.id).replace_seen(link, link.value.model_copy(update={"ready": True})),
            keys.meta(issued.id).replace_seen(meta, done),
            *self._quota.release(was.charged_to, (was.size or 0) - size),
        )


def ended_meanwhile() -> SharingRefused:
    return SharingRefused("REVOKED", "this link was ended, or has expired, while its file was uploaded")


def _stopping() -> SharingRefused:
    return SharingRefused("TRY_AGAIN", "this server is about to stop, and nothing of the file was kept; try again")
