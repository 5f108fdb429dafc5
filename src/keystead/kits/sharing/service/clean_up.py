"""The clean-up job: deletes expired uploads. A file that cannot be deleted keeps its record and is retried."""

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

_CONCURRENCY: Final = 16
_TRIES: Final = 3
_PAUSE_S: Final = 0.1
_RETRY_MS: Final = 300_000
_CLAIM_MS: Final = 120_000  # how long a run may take for one upload
_RETRY_MAX_MS: Final = 6 * 3_600_000

Fate = Literal[
    "deleted",
    "deleted, no file",
    "missing meta",
    "waiting",
    "failed",
    "unreadable",
    "claimed",  # by another run
    "done",  # by another run
    "active",
]
_SKIPPED: Final[frozenset[Fate]] = frozenset({"waiting", "failed", "unreadable"})
_REMAINING: Final[frozenset[Fate]] = _SKIPPED | {"claimed"}  # still in the index


@dataclass
class Counts:
    """The results of a run: `scanned` is the sum of `deleted`, `missing_meta` and `skipped`.

    `not_found` of the deleted uploads had no file. Of those skipped, `errors` failed just now or are unreadable; the
    others wait for their next attempt. Uploads claimed by another run are counted only there.
    """

    scanned: int = 0
    deleted: int = 0
    not_found: int = 0
    missing_meta: int = 0
    skipped: int = 0
    errors: int = 0
    untried: int = 0  # skipped without an attempt
    retry_ms: int | None = None  # the earliest next attempt
    more: bool = False  # whether the run stopped before it had examined everything

    def add(self, fate: Fate) -> None:
        if fate in ("claimed", "done", "active"):
            return
        self.scanned += 1
        self.deleted += fate in ("deleted", "deleted, no file")
        self.not_found += fate == "deleted, no file"
        self.missing_meta += fate == "missing meta"
        self.skipped += fate in _SKIPPED
        self.errors += fate in ("failed", "unreadable")
        self.untried += fate in ("waiting", "unreadable")

    def as_dict(self) -> dict[str, int | str]:
        """The counts under the names of the document."""
        return {
            "scanned": self.scanned,
            "deleted": self.deleted,
            "notFound": self.not_found,
            "missingMeta": self.missing_meta,
            "skipped": self.skipped,
            "errors": self.errors,
        }


class CleanUp:
    """Deletes expired uploads: the file first, then all its keys in one atomic step.

    So an interrupted run loses no file: the next one finds it again. Concurrent runs are safe.
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
        """Delete expired uploads in batches, until none is left, `limit` were attempted, or `stop` returns true.

        Raises FilesElsewhere if the files are at another location: all of them would look deleted.
        """
        with suppress(BlobUnavailable):  # each file is attempted and keeps its record
            await self._place.check()
        counts, now_ms, remaining = Counts(), self._now_ms(), 0
        while True:
            size = self._batch if limit is None else min(self._batch, limit - counts.scanned + counts.untried)
            if size <= 0 or stop():
                counts.more = bool(await self._next_page(now_ms, remaining, 1))
                return counts
            page = await self._next_page(now_ms, remaining, size)
            if not page:
                return counts
            # Concurrent runs process a page in different orders, so that they share the work.
            random.shuffle(page)
            for fate in await self._process_page(page, counts):
                counts.add(fate)
                remaining += fate in _REMAINING

    async def _next_page(self, now_ms: int, skip: int, size: int) -> list[str | None]:
        """The next expired ids in the index, after the first `skip` that remain there. None for an unreadable id.

        If another run removes one of the skipped ids, an id is missed here and left to the next run.
        """
        index = self._keys.index()
        try:
            return [id for id, _ in await index.between(-math.inf, now_ms, limit=size, skip=skip)]
        except WrongKind:  # the key is not an index; uploads stay until it is repaired
            return []
        except Unreadable:  # a member is not text: read them one by one
            page: list[str | None] = []
        for position in range(skip, skip + size):
            try:
                found = await index.between(-math.inf, now_ms, limit=1, skip=position)
            except Unreadable:
                page.append(None)
            else:
                page += [id for id, _ in found]
        return page

    async def _process_page(self, page: list[str | None], counts: Counts) -> list[Fate]:
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(id: str | None) -> Fate:
            async with slots:
                try:
                    return _skip_unreadable("an id") if id is None else await self._process(id, counts)
                except (BadKey, BadValue, Unreadable) as error:
                    return _skip_unreadable(error.code)

        # Let all of them finish before raising a failure, so that no task is left running.
        fates = await asyncio.gather(*(one(id) for id in page), return_exceptions=True)
        for fate in fates:
            if isinstance(fate, BaseException):
                raise fate
        return [fate for fate in fates if not isinstance(fate, BaseException)]

    async def _process(self, id: str, counts: Counts) -> Fate:
        """Delete one upload that has expired by the index, unless another run has claimed it."""
        claimed_until_ms = await self._claim(id)
        if claimed_until_ms is not None:
            counts.retry_ms = min(claimed_until_ms, counts.retry_ms or claimed_until_ms)
            return "claimed"
        fate: Fate | None = None
        try:
            fate = await self._process_claimed(id, counts)
        finally:
            if fate not in ("deleted", "deleted, no file"):  # which also deleted the claim
                await self._keys.claim(id).delete()
        return fate

    async def _claim(self, id: str) -> int | None:
        """Claim an upload. None if the claim is ours; otherwise when the claim of the other run expires."""
        key, now_ms = self._keys.claim(id), self._now_ms()
        until_ms = now_ms + _CLAIM_MS
        claim = Claim(until=moment(until_ms))
        if await key.add(claim):
            return None
        seen = await key.see().if_readable()
        if seen is not None and deadline_ms(seen.value.until) > now_ms:
            return deadline_ms(seen.value.until)
        return None if await self._keys.atomically(key.holds(seen), key.set(claim)) else until_ms

    async def _process_claimed(self, id: str, counts: Counts) -> Fate:
        keys = self._keys
        meta, retry, score = await asyncio.gather(keys.meta(id).get(), self._load_retry(id), keys.index().score(id))
        if meta is None:
            if score is None:
                return "done"
            # In a cluster another run may be between deleting the record and the index entry: it counts this upload.
            await self._pause(_PAUSE_S)
            member = id.encode()
            removed = await listing.remove_dead(keys.index, keys.index().key, member, [keys.meta(id).key])
            return "missing meta" if removed else "done"
        if deadline_ms(meta.expires_at) > self._now_ms():  # the index was wrong: writing the record corrects it
            await keys.meta(id).change(lambda one: one)
            return "active"
        if meta.upload == "under way" and not await self._abandon(id):
            return "active"
        if retry is not None and (next_ms := deadline_ms(retry.not_before)) > self._now_ms():
            counts.retry_ms = min(next_ms, counts.retry_ms or next_ms)
            return "waiting"
        fate = await self.remove(id, meta, retry)
        if fate == "failed":
            next_ms = self._now_ms() + _RETRY_MS
            counts.retry_ms = min(next_ms, counts.retry_ms or next_ms)
        return fate

    async def _load_retry(self, id: str) -> Retry | None:
        return await self._keys.retry(id).get().if_readable()  # an unreadable record delays nothing

    async def _abandon(self, id: str) -> bool:
        """Mark an upload whose lease has expired as abandoned. False if it was renewed or completed meanwhile.

        Closes the race with `Uploads.finish`: one of the two changes the record first, and the other sees it.
        """

        def mark(meta: EdgeMeta) -> EdgeMeta:
            if meta.upload is None or deadline_ms(meta.expires_at) > self._now_ms():
                raise _StillActive
            return meta.model_copy(update={"upload": "given up"})

        try:
            return await self._keys.meta(id).change(mark) is not None
        except _StillActive:
            return False

    async def remove_now(self, id: str, meta: EdgeMeta) -> None:
        """Delete an upload whose link was ended, unless a clean-up run has claimed it."""
        if await self._claim(id) is None:
            try:
                await self.remove(id, meta)
            finally:
                await self._keys.claim(id).delete()

    async def remove(self, id: str, meta: EdgeMeta, retry: Retry | None = None) -> Fate:
        """Delete an upload, its file first."""
        if await self._has_other_owner(id, meta):
            await self._discard_record(id)
            return "missing meta"
        unusable = False
        try:
            was_there = await self._delete_file(meta.path)
        except BlobUnavailable as error:
            attempts = 1 if retry is None else retry.attempts + 1
            wait_ms = min(_RETRY_MS * 2 ** min(attempts - 1, 16), _RETRY_MAX_MS)
            keys, later = self._keys, Retry(attempts=attempts, not_before=moment(self._now_ms() + wait_ms))
            # Only while its record exists: another run may have succeeded.
            if not await keys.atomically(keys.meta(id).exists().required(), keys.retry(id).set(later)):
                return "done"
            why = "the file could not be deleted"
            await self._refusals.note("file-kept", who="clean-up", what=id, why=why)
            _log.warning("could not delete a file, will retry: %s", error)
            return "failed"
        except BadArgument:  # not one of our paths, so not one of our files
            was_there, unusable = False, True
        if not await self._forget(id, meta, was_there=was_there, unusable=unusable):
            return "done"
        if unusable:
            return "missing meta"
        return "deleted" if was_there else "deleted, no file"

    @procedure(ordered="the next run finds the upload by its record or index entry, and does the rest")
    def _forget(self, id: str, meta: EdgeMeta, *, was_there: bool, unusable: bool) -> Steps[None]:
        """Delete all keys of an upload."""
        keys = self._keys
        return Steps(
            *([] if is_uploaded(meta.path) or unusable else [keys.gone(meta.path).set(id)]),
            *self._delete_token(meta),
            *([keys.past(meta.short_token).delete()] if meta.upload and meta.short_token else ()),
            *([keys.file(meta.pathname).delete()] if meta.pathname else ()),
            keys.link(id).delete(),
            keys.retry(id).delete(),
            keys.claim(id).delete(),
            # The record before its index entry: a record without an entry would never be found.
            keys.meta(id).alone.delete().otherwise("done"),
            keys.index().remove(id),
            *self._quota.release(meta.charged_to, meta.size or 0),  # older uploads have no size
            self._audit.note("link-deleted", who="clean-up", what=id, why="" if was_there else "the file was gone"),
        )

    def _delete_token(self, meta: EdgeMeta) -> list[Operation[bool]]:
        """The operation that deletes the short token of an upload; none if it has no valid one."""
        try:
            return [self._keys.token(meta.short_token).delete()] if meta.short_token else []
        except BadKey:
            return []

    async def _discard_record(self, id: str) -> None:
        """Delete the record of an upload that was never created, and nothing that it refers to."""
        keys = self._keys
        # Deleting a record deletes what it refers to, also in a later run. So first give it a path no file can have.
        await keys.meta(id).change(lambda one: EdgeMeta(id=id, blob_name=".", expires_at=one.expires_at))
        await keys.meta(id).consume()
        await keys.index().remove(id)

    async def _has_other_owner(self, id: str, meta: EdgeMeta) -> bool:
        """Whether another upload owns the file. Possible if record and path claim are two steps, and the process died
        before the second was refused.
        """
        return meta.pathname is not None and await self._keys.file(meta.pathname).get().if_readable() not in (None, id)

    async def _delete_file(self, path: str) -> bool:
        """Delete a file, with a few retries. Returns whether it existed. Raises BlobUnavailable."""
        for attempt in range(_TRIES - 1):
            try:
                return await self._blobs.delete(path)
            except BlobUnavailable:
                await self._pause(_PAUSE_S * 4**attempt)
        return await self._blobs.delete(path)


class _StillActive(Exception):
    """An upload to abandon is still active."""


def _skip_unreadable(what: str) -> Fate:
    """Skip an entry that another program or a newer release wrote. It does not block others."""
    _log.error("the clean-up cannot read an entry, %s; `keystead doctor sharing` shows it", what)
    return "unreadable"
