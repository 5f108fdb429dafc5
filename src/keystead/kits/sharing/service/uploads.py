"""Uploads in progress: concurrency limits, leases, and completion."""

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

# The process renews the lease while a file is uploaded. If it dies, the clean-up deletes the upload.
LEASE_MS: Final = 180_000
_RENEW_EVERY_MS: Final = 45_000
_STALLED_S: Final = 30  # maximum time without data
_MAX_UPLOADS: Final = 64  # per process
_MAX_PER_CLIENT: Final = 8


class Uploads:
    """The uploads of this process."""

    def __init__(self, keys: SharingKeys, quota: Quota, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._quota = quota
        self._now_ms = now_ms
        self._by_client: Counter[str] = Counter()
        self._waits: set[asyncio.Timeout] = set()  # for the next chunk of each upload
        self._is_stopping = False

    def stop(self) -> None:
        """Abort all uploads in progress, because the process is about to stop."""
        self._is_stopping = True
        for wait in self._waits:
            with suppress(RuntimeError):  # already ended
                wait.reschedule(asyncio.get_running_loop().time())

    @contextmanager
    def reserve_slot(self, where: str) -> Iterator[None]:
        """Count an upload while it runs. Raises SharingRefused if the process or the client has too many."""
        client = client_of(where)
        if self._is_stopping:
            raise _stopping()
        if self._by_client.total() >= _MAX_UPLOADS or self._by_client[client] >= _MAX_PER_CLIENT:
            raise SharingRefused("TRY_AGAIN", "too many concurrent uploads; try again when another has finished")
        self._by_client[client] += 1
        try:
            yield
        finally:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    async def watch(self, body: AsyncIterable[bytes], id: str) -> AsyncIterator[bytes]:
        """Pass a body on and renew its lease. Raises SharingRefused if it stalls or its link is ended."""
        chunks, renewed_ms = aiter(body), self._now_ms()
        while True:
            if self._is_stopping:
                raise _stopping()
            wait = asyncio.timeout(_STALLED_S)
            try:
                async with wait:
                    self._waits.add(wait)
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if self._is_stopping:
                    raise _stopping() from None
                raise SharingRefused("STALLED", "this upload stalled; try again") from None
            finally:
                self._waits.discard(wait)
            if self._now_ms() - renewed_ms >= _RENEW_EVERY_MS:
                renewed_ms = self._now_ms()
                if not await self._renew_lease(id):
                    raise ended_during_upload()
            yield chunk

    async def _renew_lease(self, id: str) -> bool:
        """Renew the lease of an upload. False if it was abandoned or ended. A store outage does not stop the upload."""
        lease_end = moment(self._now_ms() + LEASE_MS)

        def renew(meta: EdgeMeta) -> EdgeMeta:
            return meta.model_copy(update={"expires_at": lease_end}) if meta.upload == "under way" else meta

        try:
            meta = await self._keys.meta(id).change(renew)
        except KeysteadError as error:
            _log.warning("could not renew the lease of an upload: %s", error)
            return True
        return meta is not None and meta.upload == "under way"

    async def finish(self, issued: Issued, size: int) -> bool:
        """Activate the link of a completed upload. False if the upload was abandoned or ended first."""
        async for _ in attempts("this upload"):
            meta, link = await asyncio.gather(self._keys.meta(issued.id).see(), self._keys.link(issued.id).see())
            if meta is None or link is None or meta.value.upload != "under way":
                return False
            try:
                if await self._complete(issued, meta, link, size):
                    return True
            except BadValue:  # it is just expiring
                return False
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    @procedure(ordered="the lease of the upload expires, and the clean-up deletes it")
    def _complete(self, issued: Issued, meta: Seen[EdgeMeta], link: Seen[Link], size: int) -> Steps[None]:
        """Activate a link, align the expiry of its record, and release the unused part of the reserved quota."""
        keys, was = self._keys, meta.value
        done = was.model_copy(update={"expires_at": moment(issued.expires_ms), "upload": None, "size": size})
        return Steps(
            keys.link(issued.id).replace_seen(link, link.value.model_copy(update={"ready": True})),
            keys.meta(issued.id).replace_seen(meta, done),
            *self._quota.release(was.charged_to, (was.size or 0) - size),
        )


def ended_during_upload() -> SharingRefused:
    return SharingRefused("REVOKED", "this link was ended or has expired during the upload")


def _stopping() -> SharingRefused:
    return SharingRefused("TRY_AGAIN", "this server is stopping, and the file was not stored; try again")
