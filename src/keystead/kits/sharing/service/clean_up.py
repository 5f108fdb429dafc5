"""The clean-up: what has expired goes, with its file. A file that will not go keeps its record, and is tried again."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from keystead.errors import BadArgument, BadKey, BadValue, Unreadable, WrongKind
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import Claim, EdgeMeta, Retry
from keystead.kits.sharing.service.place import Place, is_uploaded
from keystead.kits.sharing.service.quota import Quota
from keystead.parts.audit import Audit
from keystead.parts.blobs import Blobs, BlobUnavailable
from keystead.schema import Operation, Steps, listing, procedure
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.sharing")

_AT_ONCE: Final = 16
_TRIES: Final = 3
_PAUSE_S: Final = 0.1
_RETRY_MS: Final = 300_000
_CLAIM_MS: Final = 120_000  # how long a run may be at one upload
_RETRY_MAX_MS: Final = 6 * 3_600_000

Fate = Literal[
    "deleted",
    "deleted, no file",
    "missing meta",
    "waiting",
    "failed",
    "not followed",
    "another's",
    "done by another",
    "alive",
]
_SKIPPED: Final[frozenset[Fate]] = frozenset({"waiting", "failed", "not followed"})
_STAYS: Final[frozenset[Fate]] = _SKIPPED | {"another's"}


@dataclass
class Counts:
    """What a run of the clean-up did: `scanned` is `deleted` and `missing_meta` and `skipped` together.

    `not_found` of those deleted had no file any more; of those skipped, `errors` were tried in vain just now or cannot
    be read, and the others wait for their next try. What another run is at work on is counted there, and only there.
    """

    scanned: int = 0
    deleted: int = 0
    not_found: int = 0
    missing_meta: int = 0
    skipped: int = 0
    errors: int = 0
    untried: int = 0  # of those skipped
    retry_ms: int | None = None  # when the first of those that were left is to be tried again
    more: bool = False  # whether it stopped before everything was looked at

    def add(self, fate: Fate) -> None:
        if fate in ("another's", "done by another", "alive"):
            return
        self.scanned += 1
        self.deleted += fate in ("deleted", "deleted, no file")
        self.not_found += fate == "deleted, no file"
        self.missing_meta += fate == "missing meta"
        self.skipped += fate in _SKIPPED
        self.errors += fate in ("failed", "not followed")
        self.untried += fate in ("waiting", "not followed")


class CleanUp:
    """Deletes expired uploads: the file first, then everything that the store has of it, in one atomic step.

    So whatever interrupts it, a file is found again until it is gone; and any number may run at once.
    """

    def __init__(
        self,
        keys: SharingKeys,
        blobs: Blobs,
        place: Place,
        quota: Quota,
        audit: Audit,
        refusals: Audit,
        now_ms: Callable[[], int],
        batch: int,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._keys = keys
        self._blobs = blobs
        self._place = place
        self._quota = quota
        self._audit = audit
        self._refusals = refusals
        self._now_ms = now_ms
        self._batch = batch
        self._pause = pause

    async def run(self, limit: int | None = None, stop: Callable[[], bool] = lambda: False) -> Counts:
        """Delete what has expired by now, in batches, until nothing is left, or `limit` were tried, or `stop`.

        Raises FilesElsewhere where the files are in another place: none of them would be found, and all would be taken
        for deleted.
        """
        with suppress(BlobUnavailable):  # each file is tried, and keeps its record
            await self._place.check()
        counts, now_ms, stayed = Counts(), self._now_ms(), 0
        while True:
            size = self._batch if limit is None else min(self._batch, limit - counts.scanned + counts.untried)
            if size <= 0 or stop():
                counts.more = bool(await self._page(now_ms, stayed, 1))
                return counts
            page = await self._page(now_ms, stayed, size)
            if not page:
                return counts
            # Runs at the same moment go through a page in different orders, so that they share the work.
            random.shuffle(page)
            for fate in await self._all(page, counts):
                counts.add(fate)
                stayed += fate in _STAYS

    async def _page(self, now_ms: int, skip: int, size: int) -> list[str | None]:
        """The ids in the index that are to be gone, without the first that stayed there. None: no id of ours.

        Where another run takes one of those away, one is passed over, and is there for the next run.
        """
        index = self._keys.index()
        try:
            return [id for id, _ in await index.between(-math.inf, now_ms, limit=size, skip=skip)]
        except WrongKind:  # there is no index, and nothing to go by; what it should hold stays until there is one
            return []
        except Unreadable:  # one of them is no text: so one by one
            page: list[str | None] = []
        for place in range(skip, skip + size):
            try:
                found = await index.between(-math.inf, now_ms, limit=1, skip=place)
            except Unreadable:
                page.append(None)
            else:
                page += [id for id, _ in found]
        return page

    async def _all(self, page: list[str | None], counts: Counts) -> list[Fate]:
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def one(id: str | None) -> Fate:
            async with at_once:
                try:
                    return _not_followed("an id") if id is None else await self._take(id, counts)
                except (BadKey, BadValue, Unreadable) as error:
                    return _not_followed(error.code)

        # All of them come to their end before a failure does, so that nothing goes on unseen.
        fates = await asyncio.gather(*(one(id) for id in page), return_exceptions=True)
        for fate in fates:
            if isinstance(fate, BaseException):
                raise fate
        return [fate for fate in fates if not isinstance(fate, BaseException)]

    async def _take(self, id: str, counts: Counts) -> Fate:
        """Delete one upload that is to be gone by its place in the index, unless another run is at it."""
        claimed_until_ms = await self._claim(id)
        if claimed_until_ms is not None:
            counts.retry_ms = min(claimed_until_ms, counts.retry_ms or claimed_until_ms)
            return "another's"
        fate: Fate | None = None
        try:
            fate = await self._take_own(id, counts)
        finally:
            if fate not in ("deleted", "deleted, no file"):  # with those it is gone
                await self._keys.claim(id).delete()
        return fate

    async def _claim(self, id: str) -> int | None:
        """Take an upload to delete it; None: it is ours. Else until when it is another's, whose process may be dead."""
        key, now_ms = self._keys.claim(id), self._now_ms()
        until_ms = now_ms + _CLAIM_MS
        claim = Claim(until=moment(until_ms))
        if await key.add(claim):
            return None
        seen = await key.see().if_readable()
        if seen is not None and deadline_ms(seen.value.until) > now_ms:
            return deadline_ms(seen.value.until)
        return None if await self._keys.atomically(key.holds(seen), key.set(claim)) else until_ms

    async def _take_own(self, id: str, counts: Counts) -> Fate:
        keys = self._keys
        meta, retry, place = await asyncio.gather(keys.meta(id).get(), self._retry(id), keys.index().score(id))
        if meta is None:
            if place is None:
                return "done by another"
            # In a cluster another run may be just between the record and its place: it counts this upload.
            await self._pause(_PAUSE_S)
            member = id.encode()
            gone = await listing.remove_dead(keys.index, keys.index().key, member, [keys.meta(id).key])
            return "missing meta" if gone else "done by another"
        if deadline_ms(meta.expires_at) > self._now_ms():  # the index was wrong: it is put right
            await keys.meta(id).change(lambda one: one)
            return "alive"
        if meta.upload == "under way" and not await self._given_up(id):
            return "alive"
        if retry is not None and (next_ms := deadline_ms(retry.not_before)) > self._now_ms():
            counts.retry_ms = min(next_ms, counts.retry_ms or next_ms)
            return "waiting"
        fate = await self.remove(id, meta, retry)
        if fate == "failed":
            next_ms = self._now_ms() + _RETRY_MS
            counts.retry_ms = min(next_ms, counts.retry_ms or next_ms)
        return fate

    async def _given_up(self, id: str) -> bool:
        """Give up an upload whose process does not renew its lease. False: it does, or is complete by now.

        Of the clean-up and the end of an upload one comes first, and the other sees that.
        """

        def give_up(meta: EdgeMeta) -> EdgeMeta:
            if meta.upload is None or deadline_ms(meta.expires_at) > self._now_ms():
                raise _GoesOn
            return meta.model_copy(update={"upload": "given up"})

        try:
            return await self._keys.meta(id).change(give_up) is not None
        except _GoesOn:
            return False

    async def _retry(self, id: str) -> Retry | None:
        """When its file is to be tried again; a record of that which cannot be read holds nothing up."""
        return await self._keys.retry(id).get().if_readable()

    async def remove_now(self, id: str, meta: EdgeMeta) -> None:
        """Delete an upload whose link was ended; where the clean-up is at it, that does it."""
        if await self._claim(id) is None:
            try:
                await self.remove(id, meta)
            finally:
                await self._keys.claim(id).delete()

    async def remove(self, id: str, meta: EdgeMeta, retry: Retry | None = None) -> Fate:
        """Delete an upload, its file first."""
        if await self._is_anothers(id, meta):
            await self.take_back(id)
            return "missing meta"
        unusable = False
        try:
            was_there = await self._delete_file(meta.path)
        except BlobUnavailable as error:
            attempts = 1 if retry is None else retry.attempts + 1
            wait_ms = min(_RETRY_MS * 2 ** min(attempts - 1, 16), _RETRY_MAX_MS)
            keys, later = self._keys, Retry(attempts=attempts, not_before=moment(self._now_ms() + wait_ms))
            # Only while its record is there: another run may have had more luck.
            if not await keys.atomically(keys.meta(id).exists().required(), keys.retry(id).set(later)):
                return "done by another"
            why = "the file cannot be deleted just now"
            await self._refusals.note("file-kept", who="clean-up", what=id, why=why)
            _log.warning("a file cannot be deleted, it is tried again: %s", error)
            return "failed"
        except BadArgument:  # no path of ours, so no file of ours
            was_there, unusable = False, True
        if not await self._forget(id, meta, was_there=was_there, unusable=unusable):
            return "done by another"
        if unusable:
            return "missing meta"
        return "deleted" if was_there else "deleted, no file"

    @procedure(ordered="the next run finds the upload by its record, or by its place in the index, and does the rest")
    def _forget(self, id: str, meta: EdgeMeta, *, was_there: bool, unusable: bool) -> Steps[None]:
        """Delete all that the store has of an upload."""
        keys = self._keys
        return Steps(
            *([] if is_uploaded(meta.path) or unusable else [keys.gone(meta.path).set(id)]),
            *self._without_token(meta),
            *([keys.past(meta.short_token).delete()] if meta.upload and meta.short_token else ()),
            *([keys.file(meta.pathname).delete()] if meta.pathname else ()),
            keys.link(id).delete(),
            keys.retry(id).delete(),
            keys.claim(id).delete(),
            # The record before its place in the index: one without a place would never be found.
            keys.meta(id).alone.delete().otherwise("done by another"),
            keys.index().remove(id),
            *self._quota.release_of(meta),
            self._audit.note("link-deleted", who="clean-up", what=id, why="" if was_there else "the file was gone"),
        )

    def _without_token(self, meta: EdgeMeta) -> list[Operation[bool]]:
        """What deletes the short token of an upload; nothing where it names none that could be."""
        try:
            return [self._keys.token(meta.short_token).delete()] if meta.short_token else []
        except BadKey:
            return []

    async def take_back(self, id: str) -> None:
        """Remove the record of an upload that did not come about, and nothing else that it names."""
        keys = self._keys
        # With a path that no file can have: whatever it names is deleted with it, also by whoever finds it after us.
        await keys.meta(id).change(lambda one: EdgeMeta(id=id, blob_name=".", expires_at=one.expires_at))
        await keys.meta(id).consume()
        await keys.index().remove(id)

    async def _is_anothers(self, id: str, meta: EdgeMeta) -> bool:
        """Whether another upload has the file. That can be where a record and its claim are two steps, and whoever
        made the first died before the second was refused.
        """
        return meta.pathname is not None and await self._keys.file(meta.pathname).get().if_readable() not in (None, id)

    async def _delete_file(self, path: str) -> bool:
        """Whether it was there. Tried a few times, a little later each time. Raises BlobUnavailable."""
        for attempt in range(_TRIES - 1):
            try:
                return await self._blobs.delete(path)
            except BlobUnavailable:
                await self._pause(_PAUSE_S * 4**attempt)
        return await self._blobs.delete(path)


class _GoesOn(Exception):
    """An upload that is to be given up goes on."""


def _not_followed(what: str) -> Fate:
    """Somebody else wrote it, or a newer release. It stays, and holds nobody else up."""
    _log.error("the clean-up met what it cannot follow, %s; `keystead doctor sharing` shows it", what)
    return "not followed"
