"""Ownership: the secret token of an owner, compared with its stored hash."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from keystead.kits.widgets.models import WidgetRecord
from keystead.kits.widgets.service.checks import candidate_ids, check_id, check_page_url, is_token
from keystead.kits.widgets.service.outcomes import Owner, Visitor
from keystead.kits.widgets.service.owner_token import OwnerToken, strip_quotes
from keystead.kits.widgets.service.records import Records, ServiceContext
from keystead.kits.widgets.service.refused import invalid, not_found, not_owner, try_again
from keystead.parts.digest import same
from keystead.parts.passwords import PasswordsBusy, hash_password, matches
from keystead.schema import Bound
from keystead.schema.kinds import Seen, ValueKey

R = TypeVar("R", bound=WidgetRecord)

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class OwnedRecords(Records[R]):
    """Records that owners find by page URL or by id."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._urls: Bound[ValueKey[str]] = getattr(self.keys, f"{self.name}_url")
        self._owners: Bound[ValueKey[str]] = getattr(self.keys, f"{self.name}_owner")

    async def get(self, id: Any, *args: Any, **kwargs: Any) -> Any:
        """The public view of a widget. Raises WidgetRefused if there is no such widget."""
        raise NotImplementedError

    async def get_as_owner(self, owner: Owner, *, visitor: Visitor, **kwargs: Any) -> Any:
        """The public view, and the webhook URL, which only the owner may see."""
        record = (await self._find_owned(owner, visitor)).value
        data: BaseModel = await self.get(record.id, **kwargs)
        return data.model_copy(update={"webhook_url": None if record.webhook is None else record.webhook.url})

    async def _find_owned(self, owner: Owner, visitor: Visitor) -> Seen[R]:
        """The record, if the token is its owner's. Attempts are rate-limited. Raises WidgetRefused, LimitReached."""
        if (owner.url is None) == (owner.id is None):
            raise invalid("url", "name the widget by url or by id: one of them")
        page = None if owner.url is None else check_page_url(owner.url)
        id = None if owner.id is None else check_id(owner.id)
        await self._limit.count("owner", visitor.address)
        if page is not None:
            id = await self._id_of(page)
        if id is None:
            raise not_found(self.word)
        seen = await self._require(id)
        await self._check_owner(id, owner.token)
        return seen

    async def _id_of(self, url: str) -> str | None:
        """The id of the widget for a page URL, or None."""
        mapped = await self._urls(url).get()
        if mapped is not None:
            return strip_quotes(mapped)
        # The original system stores very long URLs under another key: look for the id that it derives.
        id = candidate_ids(url)[0]
        seen = await self._see(id)
        return id if seen is not None and seen.value.url == url else None

    async def _check_owner_of_existing(self, id: str, owner_token: OwnerToken) -> None:
        """As `_check_owner`, for a create, which could be used to guess tokens: it counts against the same rate limit.

        The widgets of one batch share one hash, which is compared once.
        """
        stored = await self._owners(id).get()
        if stored is None or stored not in owner_token.matching:
            await self._limit.count("owner", owner_token.visitor.address)
            await self._check_owner(id, owner_token.token)
            owner_token.matching.add(stored or "")

    async def _check_owner(self, id: str, token: str) -> None:
        """Raises WidgetRefused if this is not the owner token, or the widget was deleted meanwhile."""
        stored = await self._owners(id).get()
        if stored is None:
            await self._require(id)
        try:
            if stored is None or not is_token(token) or not await self._matches(id, token, stored):
                self.site.count("widgets", f"{self.name}-owner", "refused")
                raise not_owner()
        except PasswordsBusy as busy:
            raise try_again(str(busy)) from None
        except ValueError:  # not a hash
            raise not_owner() from None

    async def _matches(self, id: str, token: str, stored: str) -> bool:
        """Whether this is the owner token. Raises ValueError if the stored value is not a hash.

        The document stores the SHA-256 of a token, which is fast to brute-force. The first correct token replaces it by
        a slow hash. If the widget is deleted meanwhile, there is nothing to replace.
        """
        plain = strip_quotes(stored)
        if not _SHA256.fullmatch(plain):
            return await matches(token, stored)
        if not same(sha256(token.encode()).hexdigest(), plain):
            return False
        await self._owners(id).compare_and_set(stored, await hash_password(token))
        return True
