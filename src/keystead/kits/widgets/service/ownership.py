"""Ownership: the secret token of an owner, compared with its hash."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from keystead.kits.widgets.models import WidgetRecord
from keystead.kits.widgets.service.checks import candidates, checked_id, checked_url, could_be_token
from keystead.kits.widgets.service.outcomes import Owner, Visitor
from keystead.kits.widgets.service.owner_token import OwnerToken, unquoted
from keystead.kits.widgets.service.records import Records, Surroundings
from keystead.kits.widgets.service.refused import WidgetRefused, not_owner, unknown, wrong
from keystead.parts.digest import same
from keystead.parts.passwords import PasswordsBusy, hash_password, matches
from keystead.schema import Bound
from keystead.schema.kinds import Seen, ValueKey

R = TypeVar("R", bound=WidgetRecord)

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class OwnedRecords(Records[R]):
    """Records that their owners find by the address of a page, or by an id."""

    def __init__(self, given: Surroundings) -> None:
        super().__init__(given)
        self._urls: Bound[ValueKey[str]] = getattr(self.keys, f"{self.name}_url")
        self._owners: Bound[ValueKey[str]] = getattr(self.keys, f"{self.name}_owner")

    async def get(self, id: Any, *shown: Any, **more: Any) -> Any:
        """What everybody sees of it. Raises WidgetRefused where there is no such widget."""
        raise NotImplementedError

    async def _find_owned(self, owner: Owner, visitor: Visitor) -> Seen[R]:
        """The record, if the token is its owner's. Attempts are rate-limited. Raises WidgetRefused, LimitReached."""
        if (owner.url is None) == (owner.id is None):
            raise wrong("url", "say which one it is: by the url of its page, or by its id")
        page = None if owner.url is None else checked_url(owner.url)
        id = None if owner.id is None else checked_id(owner.id)
        await self._limit.count("owner", visitor.address)
        if page is not None:
            id = await self._id_of(page)
        seen = None if id is None else await self._see(id)
        if id is None or seen is None or seen.value.ending is not None:
            raise unknown(self.word)
        await self._check(id, owner.token)
        return seen

    async def _id_of(self, url: str) -> str | None:
        """The id that the address of a page leads to; None: to none."""
        mapped = await self._urls(url).get()
        # The system that the document describes writes some of them as JSON, and the longest addresses as they are.
        return unquoted(mapped) if mapped is not None else await self._unmapped_id(url)

    async def _unmapped_id(self, url: str) -> str | None:
        id = candidates(url)[0]
        return id if await self._has(id, url) else None

    async def get_as_owner(self, owner: Owner, *, visitor: Visitor, **shown: Any) -> Any:
        """What everybody sees of it, and what only its owner may know: where its events are told."""
        record = (await self._find_owned(owner, visitor)).value
        data: BaseModel = await self.get(record.id, **shown)
        return data.model_copy(update={"webhook_url": None if record.webhook is None else record.webhook.url})

    async def _check_again(self, id: str, owner_token: OwnerToken) -> None:
        """As `_check`, for a create, which could be used to guess tokens: it counts against the same rate limit.

        The widgets of one batch share one hash, which is compared once.
        """
        kept = await self._owners(id).get()
        if kept is None or kept not in owner_token.fits:
            await self._limit.count("owner", owner_token.visitor.address)
            await self._check(id, owner_token.token)
            owner_token.fits.add(kept or "")

    async def _check(self, id: str, token: str) -> None:
        """Raises WidgetRefused where this is not the owner's token, or it was deleted meanwhile."""
        kept = await self._owners(id).get()
        if kept is None:
            seen = await self._see(id)
            if seen is None or seen.value.ending is not None:
                raise unknown(self.word)
        try:
            if kept is None or not could_be_token(token) or not await self._fits(id, token, kept):
                self.site.count("widgets", f"{self.name}-owner", "refused")
                raise not_owner()
        except PasswordsBusy as busy:
            raise WidgetRefused("TRY_AGAIN", str(busy), retry_after_s=1) from None
        except ValueError:  # no hash of ours: whoever wrote it
            raise not_owner() from None

    async def _fits(self, id: str, token: str, kept: str) -> bool:
        """Whether this is the owner's token. Raises ValueError where what is kept is no hash.

        The document stores the SHA-256 of a token, which is fast to brute-force. The first correct token replaces it by
        a slow hash. If the widget is deleted meanwhile, there is nothing to replace.
        """
        plain = unquoted(kept)
        if not _SHA256.fullmatch(plain):
            return await matches(token, kept)
        if not same(sha256(token.encode()).hexdigest(), plain):
            return False
        await self._owners(id).compare_and_set(kept, await hash_password(token))
        return True

    async def _has(self, id: str, url: str) -> bool:
        """Whether there is a record of this id, and it is of this page."""
        seen = await self._see(id)
        return seen is not None and seen.value.url == url
