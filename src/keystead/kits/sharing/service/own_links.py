"""The links of a signed-in user: listing and extending them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from keystead.errors import BadKey, WrongKind
from keystead.kits.sharing.keys import REMEMBERED, SharingKeys
from keystead.kits.sharing.models import EdgeMeta, Link, PastLink
from keystead.kits.sharing.service.outcomes import OwnLink, SharingRefused, ended
from keystead.kits.sharing.service.quota import Quota
from keystead.parts.audit import Audit
from keystead.schema import Operation, Steps, attempts, procedure
from keystead.schema.kinds import Seen
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import deadline_ms, moment

_LISTED_MAX: Final = 500
REMEMBERED_MS: Final = duration_ms(REMEMBERED)


@dataclass(frozen=True)
class User:
    """A signed-in user: `id` for keys, `subject` for the audit log."""

    id: str
    subject: str


class OwnLinks:
    def __init__(self, keys: SharingKeys, quota: Quota, audit: Audit, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._quota = quota
        self._audit = audit
        self._now_ms = now_ms

    async def of(self, user: User) -> list[OwnLink]:
        """The active links of a user, latest expiry first. Removes missing links from the index."""
        index, now_ms = self._keys.links_of_user(user.id), self._now_ms()
        # Remove expired links first. A key of another type is left alone and lists nothing.
        with suppress(WrongKind):
            await index.remove_between(-math.inf, now_ms)
        ids = [id for id, _ in await index.highest(_LISTED_MAX).if_readable()]
        found = await asyncio.gather(*(self._own_link(id) for id in ids))
        gone = [id for id, link in zip(ids, found, strict=True) if link is None]
        if gone:
            await index.remove(*gone)
        return [link for link in found if link is not None]

    async def _own_link(self, id: str) -> OwnLink | None:
        """A link for its owner; None if it no longer exists."""
        try:
            self._keys.link(id)
        except BadKey:  # not written by this kit
            return None
        link, meta, downloads = await asyncio.gather(
            self._keys.link(id).get().if_readable(),
            self._keys.meta(id).get().if_readable(),
            self._keys.downloads(id).get().if_readable(),
        )
        if link is None:
            return None
        return OwnLink(
            id,
            link.display_name or "",
            link.short,
            deadline_ms(link.expires_at),
            downloads,
            link.max_downloads,
            link.ready,
            link.password is not None,
            None if meta is None or not link.ready else meta.size,
            link.receiver,
        )

    async def extend(self, id: str, expires_ms: int, *, who: str, where: str) -> None:
        """Extend a link. Raises SharingRefused: REVOKED, BAD_EXPIRY, NOT_READY or TRY_AGAIN."""
        async for _ in attempts("this link"):
            seen, meta, downloads = await asyncio.gather(
                self._keys.link(id).see(), self._keys.meta(id).see(), self._keys.downloads(id).get()
            )
            if seen is None:
                raise ended()
            await self._check_extension(seen.value, None if meta is None else meta.value, expires_ms)
            done = await self._write_extension(id, seen, meta, downloads, expires_ms, who, where)
            if not done:
                continue
            if done.value is not None and (latest_ms := deadline_ms(done.value.expires_at)) > expires_ms:
                await self._keys.run(*self._extend_references(id, seen.value, latest_ms))
            if meta is not None:
                await self._quota.renew(meta.value)
            return

    async def _check_extension(self, link: Link, meta: EdgeMeta | None, expires_ms: int) -> None:
        """Raises SharingRefused unless the link is active, uploaded, and expires earlier than `expires_ms`."""
        if expires_ms <= deadline_ms(link.expires_at):
            raise SharingRefused("BAD_EXPIRY", "the new expiry must be later; to shorten a link, end it")
        if not link.ready:
            raise SharingRefused("NOT_READY", "this file is still being uploaded; try again in a moment", retryAfter=5)
        is_alive = await self._keys.token(link.short_token).exists()
        if not is_alive or (meta is not None and deadline_ms(meta.expires_at) <= self._now_ms()):
            raise ended()

    @procedure(ordered="the file is never deleted before its link, and the next extension updates the rest")
    def _write_extension(
        self,
        id: str,
        seen: Seen[Link],
        meta: Seen[EdgeMeta] | None,
        downloads: int,
        until_ms: int,
        who: str,
        where: str,
    ) -> Steps[Link | None]:
        """Extend every key of a link. Returns the link as stored afterwards.

        In a cluster another extension may interleave: a later expiry is never replaced by an earlier one, and the last
        to finish updates the keys that refer to the link.
        """
        keys, until = self._keys, moment(until_ms)
        steps: list[Operation[Any]] = []
        if meta is not None:
            later = meta.value.model_copy(update={"expires_at": max(meta.value.expires_at, until)})
            steps.append(keys.meta(id).replace_seen(meta, later))
        steps.append(keys.link(id).replace_seen(seen, seen.value.model_copy(update={"expires_at": until})))
        # Otherwise the counter would expire at the old time, and the download limit would start again.
        counter = keys.downloads(id)
        if downloads:
            steps += [counter.holds(downloads), counter.set(downloads, expires_at=until_ms)]
        else:
            steps.append(counter.at_most(0))
        steps += self._extend_references(id, seen.value, until_ms)
        steps.append(self._audit.note("link-extended", who=who, what=id, where=where))
        latest = keys.link(id).get()
        return Steps(*steps, latest).giving(latest)

    def _extend_references(self, id: str, link: Link, until_ms: int) -> list[Operation[Any]]:
        """The operations that extend the keys that refer to a link."""
        keys, past = self._keys, PastLink(expires_at=moment(until_ms))
        return [
            keys.token(link.short_token).extend(until_ms),
            keys.past(link.short_token).set(past, forget_at=until_ms + REMEMBERED_MS),
            *([] if link.user_id is None else [keys.links_of_user(link.user_id).raise_to(id, until_ms)]),
        ]
