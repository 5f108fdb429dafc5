"""The links of a user who is signed in: which there are, and how they are extended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from keystead.errors import BadKey, WrongKind
from keystead.kits.sharing.keys import REMEMBERED, SharingKeys
from keystead.kits.sharing.models import PastLink
from keystead.kits.sharing.service.outcomes import OwnLink, SharingRefused, ended
from keystead.kits.sharing.service.quota import Quota
from keystead.kits.sharing.service.steps import as_one, in_one_step
from keystead.parts.audit import Audit
from keystead.schema import Operation
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import deadline_ms, moment

_LISTED_MAX: Final = 500
_TRIES: Final = 20
REMEMBERED_MS: Final = duration_ms(REMEMBERED)


@dataclass(frozen=True)
class User:
    """Somebody who is signed in: `id` names them among all users, `subject` in the audit log."""

    id: str
    subject: str


class OwnLinks:
    """Lists the links of a user, and lets a link live longer."""

    def __init__(self, keys: SharingKeys, quota: Quota, audit: Audit, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._quota = quota
        self._audit = audit
        self._now_ms = now_ms

    async def of(self, user: User) -> list[OwnLink]:
        """The links of a user that are alive, those that expire last first. What is not there any more is forgotten."""
        index, now_ms = self._keys.links_of_user(user.id), self._now_ms()
        # What has expired goes first. What is no index stays as it is, and lists nothing.
        with suppress(WrongKind):
            await index.remove_between(-math.inf, now_ms)
        ids = [id for id, _ in await index.highest(_LISTED_MAX).if_readable()]
        found = await asyncio.gather(*(self._own_link(id) for id in ids))
        gone = [id for id, link in zip(ids, found, strict=True) if link is None]
        if gone:
            await index.remove(*gone)
        return [link for link in found if link is not None]

    async def _own_link(self, id: str) -> OwnLink | None:
        """A link for its owner; None: it is not there any more."""
        try:
            self._keys.link(id)
        except BadKey:  # somebody else wrote it
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
        """Let a link live so long. Raises SharingRefused: REVOKED, BAD_EXPIRY, NOT_READY or TRY_AGAIN."""
        for _ in range(_TRIES):
            if await self._extended(id, expires_ms, who, where):
                return
        raise SharingRefused("TRY_AGAIN", "too many changed this link at once; try again")

    async def _extended(self, id: str, expires_ms: int, who: str, where: str) -> bool:
        """Let all that there is of a link live so long, in one step. False: somebody came between.

        In a cluster the file's record is first, so that it is never deleted before its link. Another extension may
        interleave there: a later expiry is never replaced by an earlier one, and the last to finish brings the token
        and the list of links up to the link.
        """
        keys, expires_at = self._keys, moment(expires_ms)
        seen, meta, downloads = await asyncio.gather(keys.link(id).see(), keys.meta(id).see(), keys.downloads(id).get())
        if seen is None:
            raise ended()
        link = seen.value
        if expires_ms <= deadline_ms(link.expires_at):
            raise SharingRefused("BAD_EXPIRY", "a link can be extended only; end it, if it is to be gone sooner")
        if not link.ready:
            raise SharingRefused("NOT_READY", "this file is still being uploaded; try again in a moment", retryAfter=5)
        sealed = await keys.token(link.short_token).get()
        if sealed is None or (meta is not None and deadline_ms(meta.value.expires_at) <= self._now_ms()):
            raise ended()

        def of_link() -> list[Operation[Any]]:
            longer = link.model_copy(update={"expires_at": expires_at})
            steps: list[Operation[Any]] = [keys.link(id).holds(seen), keys.link(id).replace(longer)]
            # Or its downloads would be forgotten when it would have expired, and it could be used as often again.
            if not downloads:
                return [*steps, keys.downloads(id).at_most(0)]
            return [
                *steps,
                keys.downloads(id).holds(downloads),
                keys.downloads(id).set(downloads, expires_at=expires_ms),
            ]

        def beside(until_ms: int) -> list[Operation[Any]]:
            past = PastLink(expires_at=moment(until_ms))
            return [
                keys.token(link.short_token).replace(sealed, expires_at=until_ms),
                keys.past(link.short_token).set(past, forget_at=until_ms + REMEMBERED_MS),
                *([] if link.user_id is None else [keys.links_of_user(link.user_id).raise_to(id, until_ms)]),
            ]

        note = partial(self._audit.note, "link-extended", who=who, what=id, where=where)

        if in_one_step(keys):
            of_meta: list[Operation[Any]] = []
            if meta is not None:
                later = meta.value.model_copy(update={"expires_at": expires_at})
                of_meta = [keys.meta(id).holds(meta), keys.meta(id).replace(later)]
            if not await keys.atomically(*of_meta, *of_link(), *beside(expires_ms), note()):
                return False
        else:
            if meta is not None:
                await keys.meta(id).change(
                    lambda one: one.model_copy(update={"expires_at": max(one.expires_at, expires_at)})
                )
            if not await keys.atomically(*of_link()):
                return False
            await as_one(keys, *beside(expires_ms), note())
            longer = await keys.link(id).get()
            if longer is not None and longer.expires_at > expires_at:
                await as_one(keys, *beside(deadline_ms(longer.expires_at)))
        if meta is not None:
            await self._quota.renew(meta.value)
        return True
