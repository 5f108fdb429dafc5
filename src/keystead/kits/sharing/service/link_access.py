"""Access to links: by token, with a password, or as the owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import Link
from keystead.kits.sharing.service.names import check_url
from keystead.kits.sharing.service.outcomes import SharingRefused, ended, expired
from keystead.kits.sharing.service.own_links import User
from keystead.kits.sharing.service.sealed_links import Payload, SealedLinks
from keystead.kits.sharing.service.settings import SharingSettings
from keystead.parts.digest import digest, same
from keystead.parts.limit import client_of
from keystead.parts.passwords import is_password, matches
from keystead.schema.times import deadline_ms

_SHORT = re.compile(r"[A-Za-z0-9_-]{10}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")  # an owner key
_PASSWORD_TRIES: Final = 10  # per client and hour
_PASSWORD_TRIES_TOTAL: Final = 100


class LinkAccess:
    """Finds links by token or id, and checks permissions."""

    def __init__(
        self, keys: SharingKeys, links: SealedLinks, settings: SharingSettings, now_ms: Callable[[], int]
    ) -> None:
        self._keys = keys
        self._links = links
        self._settings = settings
        self._now_ms = now_ms

    async def open(self, token: str | None) -> Payload:
        """The payload of a short or sealed token. Its URL is checked again. Raises SharingRefused."""
        if not token:
            raise SharingRefused("TOKEN_REQUIRED", "the link has no token; ask the sender for the complete link")
        if _SHORT.fullmatch(token):
            named = digest(token)
            sealed = await self._keys.token(named).get().if_readable()
            if sealed is None:
                past = await self._keys.past(named).get().if_readable()
                if past is not None and deadline_ms(past.expires_at) <= self._now_ms():
                    raise expired(deadline_ms(past.expires_at))
                raise SharingRefused("TOKEN_NOT_FOUND", "this link does not exist or was ended")
            payload = self._links.open(sealed)
            if payload.s is None or not same(payload.s, named):
                raise SharingRefused("INVALID_PAYLOAD", "this link was altered; ask for a new one")
        else:
            payload = self._links.open(token)
        if payload.exp <= self._now_ms() and not await self._is_extended(payload):
            raise expired(payload.exp)
        if payload.u is not None:
            check_url(payload.u, self._settings.allowed_hosts)
        return payload

    async def _is_extended(self, payload: Payload) -> bool:
        """Whether the link was extended beyond the expiry in its sealed token."""
        if payload.id is None:
            return False
        link = await self._keys.link(payload.id).get().if_readable()
        return link is not None and deadline_ms(link.expires_at) > self._now_ms()

    async def find(self, payload: Payload) -> Link | None:
        """The record of a link; None for a link sealed by another system, which has none. Raises SharingRefused."""
        if payload.id is None:
            return None
        link = await self._keys.link(payload.id).get().if_readable()
        if link is None:
            raise ended()
        if payload.s is None or not same(payload.s, link.short_token):
            raise SharingRefused("INVALID_PAYLOAD", "this link was altered; ask for a new one")
        return link

    async def check_password(self, id: str, hashed: str, given: str | None, where: str) -> None:
        if not given:
            raise SharingRefused("PASSWORD_REQUIRED", "this link requires a password")
        # Count each guess before comparing it: concurrent guesses cannot exceed the limit.
        # Count only while the link exists: a deleted link leaves no counters behind.
        keys, client = self._keys, client_of(where)
        own, total = keys.guesses(id, client), keys.wrong_passwords(id)
        done = await keys.atomically(keys.link(id).exists().required(), own.increment(), total.increment())
        if not done:
            raise ended()
        if done.values[1] > _PASSWORD_TRIES or done.values[2] > _PASSWORD_TRIES_TOTAL:
            raise SharingRefused("TOO_MANY_GUESSES", "too many wrong passwords; wait an hour", retryAfter=3600)
        if not is_password(given) or not await matches(given, hashed):
            raise SharingRefused("PASSWORD_WRONG", "wrong password")
        await keys.atomically(keys.link(id).exists().required(), own.delete(), total.decrement())

    async def find_owned(self, id: str, owner_key: str | None, user: User | None = None) -> Link:
        """The link, for its owner. Raises NOT_OWNER for unknown ids, too, so that links cannot be probed."""
        link = None
        if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", id):
            link = await self._keys.link(id).get().if_readable()
        if link is None:
            raise _not_owner()
        self.check_owner(link, owner_key, user)
        return link

    def check_owner(self, link: Link, owner_key: str | None, user: User | None = None) -> None:
        if user is not None and link.user_id is not None and same(user.id, link.user_id):
            return
        if owner_key is None or not _SECRET.fullmatch(owner_key) or not same(digest(owner_key), link.owner):
            raise _not_owner()


def _not_owner() -> SharingRefused:
    return SharingRefused("NOT_OWNER", "this owner key does not match the link, or the link does not exist")
