"""What all widget services share: create, find, change, upgrade and delete.

A delete first marks the record (`ending`), which hides the widget immediately. Its other keys are deleted next, in
steps that are guarded by the mark, and the record last. Any caller that meets the mark, or the clean-up job, can finish
an interrupted delete.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from keystead.errors import BadKey, Unreadable
from keystead.kits.widgets.models import LAYOUT, WidgetName, WidgetRecord
from keystead.kits.widgets.service.checks import (
    candidate_ids,
    check_id,
    check_page_url,
    check_token,
    is_derived_id,
    is_id,
    make_random_id,
)
from keystead.kits.widgets.service.hooks import HookChange
from keystead.kits.widgets.service.outcomes import Created, Deleted, Owner, Visitor
from keystead.kits.widgets.service.owner_token import OwnerToken, strip_quotes
from keystead.kits.widgets.service.ownership import OwnedRecords
from keystead.kits.widgets.service.records import Guards, LastUse, Operations, ServiceContext, tries
from keystead.kits.widgets.service.refused import WidgetRefused, invalid, not_found
from keystead.schema import Bound, Operation, Steps, procedure
from keystead.schema.key import Key
from keystead.schema.kinds import Seen, SetKey, SortedSetKey, ValueKey
from keystead.schema.times import deadline_ms, moment

R = TypeVar("R", bound=WidgetRecord)
T = TypeVar("T")
FirstWrites: TypeAlias = Callable[[str], list[Operation[Any]]]  # what a new widget needs beside its record, by id

_DELETE_BATCH: Final = 500  # keys deleted in one step
_PAGE: Final = 100  # ids read at once
_OTHER_IS_BACK: Final = "the record that the URL led to exists again"
_LEADS_ELSEWHERE: Final = "the URL leads to another record by now"


class _Unset:
    """A parameter that was not given: the value stays. None removes it."""


UNSET: Final = _Unset()


class Service(OwnedRecords[R]):
    """One of the services."""

    record_type: type[R]
    records_use: ClassVar[bool] = True  # False: there is no telling whether a widget is idle

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        index: Bound[SortedSetKey[str]] = getattr(self.keys, f"{self.name}s")
        self.index = index()

    # --- for each service to implement -------------------------------------------------------------------------

    async def _upgrade_steps(self, record: R) -> list[Operation[Any]]:
        """The writes that upgrade the other keys of a widget, except for its owner."""
        return []

    def _owned_keys(self, record: R) -> list[Key]:
        """The keys of a widget, except for markers, its owner and the record."""
        raise NotImplementedError

    def _markers(self, id: str) -> tuple[SetKey[str] | SortedSetKey[str], Bound[ValueKey[Any]]] | None:
        """The set of visitors with a marker, and the family of the markers; None: there are no markers."""
        raise NotImplementedError

    async def _last_use(self, record: R) -> LastUse:
        raise NotImplementedError

    # --- create ------------------------------------------------------------------------------------------------

    async def _create(
        self,
        url: Any,
        token: Any,
        visitor: Visitor,
        *,
        id: Any = None,
        webhook_url: Any = None,
        first: FirstWrites = lambda id: [],
        **fields: Any,
    ) -> Created:
        """Create a widget whose record has these fields."""
        page, secret = check_page_url(url), check_token(token)
        wanted = None if id is None else check_id(id)
        hook = None if webhook_url is None else self._hooks.new(webhook_url)
        await self._limit.count("create", visitor.address)
        owner_token = OwnerToken(secret, visitor)
        record, is_new = await self._find_or_create(page, owner_token, wanted, first, webhook=hook, **fields)
        return Created(id=record.id, url=page, webhook_secret=hook.secret if hook is not None and is_new else None)

    async def _find_or_create(
        self, url: str, owner_token: OwnerToken, wanted: str | None, first: FirstWrites, **fields: Any
    ) -> tuple[R, bool]:
        """The record for a page, and whether it is new. Raises WidgetRefused if somebody else owns it."""
        page_id = self._urls(url)
        async for _ in tries(self.word):
            mapped = await page_id.see()
            before = None if mapped is None else await self._see(strip_quotes(mapped.value))
            existing, free_id = before, ""
            if before is None or before.value.url != url:
                existing, free_id = await self._find_unlinked(url, wanted)
            if existing is not None:
                if await self._reuse(existing, mapped, owner_token):
                    return existing.value, False
                continue
            created = moment(self.site.now_ms())
            record = self.record_type(id=free_id, url=url, created=created, layout=LAYOUT, **fields)
            done = await self._add(record, await owner_token.hash(), first, mapped, before)
            if done:
                self.site.count("widgets", f"{self.name}-created", "ok")
                return record, True
            if done.stopped == _OTHER_IS_BACK and mapped is not None:
                await page_id.compare_and_set(record.id, mapped.value)
            elif done.stopped == _LEADS_ELSEWHERE:
                await self._undo_create(record)
        raise AssertionError  # pragma: no cover - the last of the tries raises

    async def _reuse(self, existing: Seen[R], mapped: Seen[str] | None, owner_token: OwnerToken) -> bool:
        """Link a page to its existing record. False: it was deleted or changed meanwhile; try again.

        Raises WidgetRefused if somebody else owns it.
        """
        if existing.value.ending is not None:
            await self._finish_record(existing)
            return False
        try:
            await self._check_owner_of_existing(existing.value.id, owner_token)
        except WidgetRefused as refused:
            if refused.reason != "NOT_FOUND":
                raise
            return False
        return (mapped is not None and mapped.value == existing.value.id) or bool(await self._link(existing, mapped))

    @procedure(ordered="the next caller repairs a URL or an index entry that leads nowhere")
    def _add(
        self, record: R, token_hash: str, first: FirstWrites, mapped: Seen[str] | None, before: Seen[R] | None
    ) -> Steps[None]:
        """A record for a page whose URL led elsewhere (`mapped`), to the record `before`.

        Two callers may create one for the same page under two ids. Each links the URL to its own id before it looks for
        the other's record, and writes its own record before it looks at the URL again: so one of them notices.
        """
        id, page_id, other = record.id, self._urls(record.url), None if mapped is None else strip_quotes(mapped.value)
        return Steps(
            page_id.holds(mapped),
            page_id.set(id),
            *([self._records(other).holds(before).otherwise(_OTHER_IS_BACK)] if is_id(other) and other != id else []),
            self._list_record(record),
            self._records(id).alone.add(record).required(),
            self._owners(id).set(token_hash),
            *first(id),
            page_id.holds(id).otherwise(_LEADS_ELSEWHERE),
        )

    async def _find_unlinked(self, url: str, wanted: str | None) -> tuple[Seen[R] | None, str]:
        """The record of a page that its URL key does not lead to, or a free id."""
        own = candidate_ids(url)
        for id in own if wanted is None else [wanted]:
            existing = await self._see(id)
            if existing is None and id not in own and is_derived_id(id):
                # Otherwise the first caller could take the id that another page will get.
                raise invalid("id", "an id of this form is derived from the URL of a page; choose another")
            if existing is None or existing.value.url == url or existing.value.ending is not None:
                return existing, id
        if wanted is not None:
            raise invalid("id", "this id is taken; choose another, or leave it out")
        return None, make_random_id(url)  # all ids derived from this URL are taken

    @procedure(ordered="the next caller repairs what leads to a record that was deleted meanwhile")
    def _link(self, existing: Seen[R], mapped: Seen[str] | None) -> Steps[None]:
        """Let the URL and the index lead to a record, if it still exists.

        Another caller may have created it just now, or a cluster was interrupted between the two.
        """
        record, page_id = existing.value, self._urls(existing.value.url)
        listed, linked = self._list_record(record), page_id.set(record.id)
        return Steps(listed, page_id.holds(mapped), linked, self._records(record.id).holds(existing))

    async def _undo_create(self, record: R) -> None:
        """Delete a record that was just created, and that no URL leads to."""
        seen = await self._see(record.id)
        if seen is not None and seen.value == record:
            await self._delete_record(seen)

    def _list_record(self, record: R) -> Operation[Any]:
        return self.index.put({record.id: round(record.created.timestamp() * 1000)})

    # --- upgrade -----------------------------------------------------------------------------------------------

    async def _upgrade_record(self, seen: Seen[R]) -> Seen[R] | None:
        """Who may interleave: another process that upgrades it, or its owner. The guard on the record stops both."""
        async for _ in tries(self.word):
            steps = await self._upgrade_steps(seen.value)
            done = await self._upgrade(seen, steps)
            again = await self._records(seen.value.id).see()
            if again is None or not again.value.is_old:
                if done:
                    self.site.count("widgets", f"{self.name}-upgraded", "ok")
                return again
            seen = again
        raise AssertionError  # pragma: no cover - the last of the tries raises

    @procedure(ordered="the next caller repairs an index entry that leads nowhere")
    def _upgrade(self, seen: Seen[R], steps: Operations) -> Steps[None]:
        """Write the record in the current layout, together with these steps."""
        record = seen.value
        update = {**dict.fromkeys(record.old_fields), "layout": LAYOUT, "moved": moment(self.site.now_ms())}
        return Steps(
            self._list_record(record),
            self._records(record.id).holds(seen),
            *steps,
            *([] if record.owner is None else [self._owners(record.id).add(record.owner)]),
            self._write_record(record.model_copy(update=update)),
        )

    async def upgrade_all(self) -> int:
        """Upgrade all widgets, also those that no index lists. Returns how many were old."""
        upgraded = 0
        async for key in self._records.scan():
            with suppress(WidgetRefused, Unreadable, BadKey):  # skip unreadable widgets
                seen = await key.see()
                if seen is not None and seen.value.is_old:
                    upgraded += await self._upgrade_record(seen) is not None
        return upgraded

    # --- change ------------------------------------------------------------------------------------------------

    async def _change(self, owner: Owner, visitor: Visitor, step: Callable[[Seen[R]], Awaitable[Operations]]) -> R:
        """Apply a change of the owner in one atomic step; on conflict, `step` runs again. Returns the new record."""
        seen = await self._find_owned(owner, visitor)
        id, created = seen.value.id, seen.value.created
        async for number in tries(self.word):
            if number:
                seen = await self._require(id)
                if seen.value.created != created:
                    raise not_found(self.word)
            if await self._write(seen, await step(seen)):
                break
        self._forget(id)
        return (await self._load_cached(id)).value

    def _hook_change(self, webhook_url: Any) -> HookChange[R]:
        """The change of a webhook that `webhook_url` asks for. Raises WidgetRefused."""
        if webhook_url is UNSET:
            return HookChange()
        return HookChange(self._hooks.new(webhook_url) if webhook_url else None, is_change=True)

    # --- delete ------------------------------------------------------------------------------------------------

    async def delete(self, owner: Owner, *, visitor: Visitor) -> Deleted:
        """Delete a widget: hidden immediately, and all its keys deleted on return. Raises WidgetRefused."""
        try:
            seen = await self._find_owned(owner, visitor)
        except WidgetRefused as refused:
            if refused.reason == "NOT_FOUND":
                await self._finish_interrupted(owner)
            raise
        await self._delete_record(seen)
        self.site.count("widgets", f"{self.name}-deleted", "ok")
        return Deleted(id=seen.value.id, message=f"the {self.word} is deleted, with all its data")

    async def delete_any(self, id: str) -> R | None:
        """Delete a widget without its owner token. None: there is none."""
        seen = await self._see(id)
        if seen is None:
            return None
        await self._delete_record(seen)
        self.site.count("widgets", f"{self.name}-deleted", "ok")
        return seen.value

    async def delete_if_idle(self, id: str, before_ms: int, *, dry_run: bool = False) -> R | None:
        """Delete a widget that was not used since `before_ms`. None: it was used, or does not exist.

        Who may interleave: a visitor. The step that marks the record is guarded by the time of the last use.
        """
        seen = await self._see_live(id)
        if seen is None:
            return None
        use = await self._last_use(seen.value)
        known = [at for at in (seen.value.created, seen.value.moved, use.at) if at is not None]
        if deadline_ms(max(known)) >= before_ms:
            return None
        if not dry_run:
            if not await self._mark_ending(seen, use.guards()):
                return None
            await self.finish_delete(id)
            self.site.count("widgets", f"{self.name}-deleted", "idle")
        return seen.value

    def list_ids(self, before_ms: float = inf) -> AsyncIterator[list[str]]:
        """The ids of all widgets that were created before, in pages, oldest first."""
        return self.index.pages(before_ms, page=_PAGE)

    async def _delete_record(self, seen: Seen[R]) -> None:
        id, created = seen.value.id, seen.value.created
        async for _ in tries(self.word):
            done = await self._mark_ending(seen)
            again = await self._see(id)
            if again is None or again.value.created != created:
                return None
            if done or again.value.ending is not None:
                return await self._finish_record(again)
            seen = again
        raise AssertionError  # pragma: no cover - the last of the tries raises

    @procedure(ordered="the clean-up finishes what is listed and marked, and removes what is listed but not marked")
    def _mark_ending(self, seen: Seen[R], guards: Guards = ()) -> Steps[None]:
        """Mark a record for deletion, which hides it immediately, and list it for the clean-up."""
        marked = seen.value.model_copy(update={"ending": secrets.token_urlsafe(8), "webhook": None})
        name, ending, record = WidgetName(self.name, marked.id), self.keys.ending(), self._records(marked.id)
        # It is listed again after the mark: the clean-up may have interleaved, and removed the unmarked name.
        return Steps(ending.add(name), record.holds(seen), *guards, self._write_record(marked), ending.add(name))

    async def finish_delete(self, id: str) -> bool:
        """Finish an interrupted delete. False: the widget is not being deleted."""
        seen = await self._see(id)
        is_ending = seen is not None and seen.value.ending is not None
        if seen is not None and is_ending:
            await self._finish_record(seen)
        await self._unlist_ending(id)
        return is_ending

    async def _finish_interrupted(self, owner: Owner) -> None:
        id = owner.id if owner.url is None else await self._id_of(owner.url)
        if id is not None:
            await self.finish_delete(id)

    async def _unlist_ending(self, id: str) -> None:
        """Remove a widget from the list of deletes, unless another delete has begun meanwhile."""
        name = WidgetName(self.name, id)
        await self.keys.ending().remove(name)
        seen = await self._see(id)
        if seen is not None and seen.value.ending is not None:
            await self.keys.ending().add(name)

    async def _finish_record(self, seen: Seen[R]) -> None:
        """Delete all keys of a marked record, and then the record.

        Each step is guarded by the record. If another caller has finished and the page has a new widget, that one
        is not touched.
        """
        record, id = seen.value, seen.value.id
        self._forget(id)
        if (found := self._markers(id)) is not None:
            visitors, markers = found
            for hashes in chunks(await _members_of(visitors), _DELETE_BATCH):
                deletes = [markers(id, user_hash).alone.delete() for user_hash in hashes]
                if not await self._write(seen, [*deletes, visitors.remove(*hashes)]):
                    return
        for keys in chunks([*self._owned_keys(record), self._owners(id)], _DELETE_BATCH):
            if not await self._write(seen, [key.alone.delete() for key in keys]):
                return
        if not await self._remove(seen, await self._urls(record.url).see()):
            # Another caller was faster, and the index entry just removed may belong to a widget created since.
            existing = await self._see_live(id)
            if existing is not None:
                await self._link(existing, await self._urls(existing.value.url).see())
        await self._unlist_ending(id)

    @procedure(ordered="the record is deleted last, and while it is marked, the clean-up finishes what is listed")
    def _remove(self, seen: Seen[R], mapped: Seen[str] | None) -> Steps[None]:
        """Delete a marked record, and what leads to it."""
        id, page_id = seen.value.id, self._urls(seen.value.url)
        leads_here = mapped is not None and mapped.value == id
        return Steps(
            self.index.remove(id),
            *([page_id.holds(mapped), page_id.alone.delete()] if leads_here else []),
            self._records(id).holds(seen),
            *self._hooks.outbox.drop(self.name, id),
            self._records(id).alone.delete(),
            self.keys.ending().remove(WidgetName(self.name, id)),
        )


async def _members_of(visitors: SetKey[str] | SortedSetKey[str]) -> list[str]:
    if isinstance(visitors, SetKey):
        return list(await visitors.members())
    return [user_hash for user_hash, _ in await visitors.lowest(10**9)]


def chunks(all: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    for at in range(0, len(all), size):
        yield all[at : at + size]
