"""What all widget services share: create, find, change, upgrade and delete.

A delete marks the record (`ending`), which hides the widget from everybody at once. Its other keys follow, in steps
that are guarded by the mark, and the record goes last. Any caller that meets the mark, or the clean-up, can finish it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, ClassVar, Final, TypeVar

from keystead.errors import BadKey, Unreadable
from keystead.kits.widgets.models import LAYOUT, Hook, WidgetName, WidgetRecord
from keystead.kits.widgets.service.checks import (
    another,
    candidates,
    checked_id,
    checked_token,
    checked_url,
    is_derived,
    is_id,
)
from keystead.kits.widgets.service.hooks import HookChange
from keystead.kits.widgets.service.outcomes import Created, Deleted, Owner, Visitor
from keystead.kits.widgets.service.owner_token import OwnerToken, unquoted
from keystead.kits.widgets.service.ownership import OwnedRecords
from keystead.kits.widgets.service.records import Surroundings, Use, tries
from keystead.kits.widgets.service.refused import WidgetRefused, unknown, wrong
from keystead.schema import Bound, Operation, Steps, procedure
from keystead.schema.key import Key
from keystead.schema.kinds import Seen, SetKey, SortedSetKey, ValueKey
from keystead.schema.times import deadline_ms, moment

R = TypeVar("R", bound=WidgetRecord)
T = TypeVar("T")

_AT_ONCE: Final = 500  # keys that are deleted in one step
_PAGE: Final = 100  # widgets that are looked at together
_OTHER_IS_BACK: Final = "the record that the address led to is there by now"
_LEADS_ELSEWHERE: Final = "the address leads to another record by now"


class _Unset:
    """What is not said stays as it is; None takes it away."""


UNSET: Final = _Unset()


class Service(OwnedRecords[R]):
    """One of the services."""

    notes_use: ClassVar[bool] = True  # or nobody can say whether it is idle

    def __init__(self, given: Surroundings) -> None:
        super().__init__(given)
        index: Bound[SortedSetKey[str]] = getattr(self.keys, f"{self.name}s")
        self.index = index()

    # --- what each service says for itself ---------------------------------------------------------------------

    async def _upgrade_steps(self, record: R) -> list[Operation[Any]]:
        """What brings the other rows of a widget of an older layout up to date, but for its owner."""
        return []

    def _belongings(self, record: R) -> list[Key]:
        """The keys that belong to a widget, but for marks, its owner and the record itself."""
        raise NotImplementedError

    def _marks(self, id: str) -> tuple[SetKey[str] | SortedSetKey[str], Bound[ValueKey[Any]]] | None:
        """Who has a mark now, and the family of the marks; None: nobody ever has."""
        raise NotImplementedError

    async def _last_use(self, record: R) -> Use:
        """When visitors last used it."""
        raise NotImplementedError

    # --- creating ----------------------------------------------------------------------------------------------

    async def _create(
        self,
        url: Any,
        token: Any,
        visitor: Visitor,
        make: Callable[[dict[str, Any]], R],
        *,
        id: Any = None,
        webhook_url: Any = None,
        first: Callable[[str], list[Operation[Any]]] = lambda id: [],
    ) -> Created:
        page, secret = checked_url(url), checked_token(token)
        wanted = None if id is None else checked_id(id)
        hook = None if webhook_url is None else self._hooks.new(webhook_url)
        await self._limit.count("create", visitor.address)
        owner_token = OwnerToken(secret, visitor)
        created, is_new = await self._find_or_create(page, owner_token, wanted, make, hook, first)
        return Created(id=created.id, url=page, webhook_secret=hook.secret if hook is not None and is_new else None)

    async def _find_or_create(
        self,
        url: str,
        owner_token: OwnerToken,
        wanted: str | None,
        make: Callable[[dict[str, Any]], R],
        hook: Hook | None,
        first: Callable[[str], list[Operation[Any]]],
    ) -> tuple[R, bool]:
        """The record for a page, and whether it is new. Raises WidgetRefused where somebody else owns it."""
        address = self._urls(url)
        async for _ in tries(self.word):
            mapped = await address.see()
            before = None if mapped is None else await self._see(unquoted(mapped.value))
            there, free = before, ""
            if before is None or before.value.url != url:
                there, free = await self._place_for(url, wanted)
            if there is not None:
                if await self._reuse(there, mapped, owner_token):
                    return there.value, False
                continue
            created = moment(self.site.now_ms())
            record = make({"id": free, "url": url, "created": created, "webhook": hook, "layout": LAYOUT})
            done = await self._add(record, await owner_token.hashed(), first, mapped, before)
            if done:
                self.site.count("widgets", f"{self.name}-created", "ok")
                return record, True
            if done.stopped == _OTHER_IS_BACK and mapped is not None:
                await address.compare_and_set(record.id, mapped.value)
            elif done.stopped == _LEADS_ELSEWHERE:
                await self._undo(record)
        raise AssertionError  # pragma: no cover - the last of the tries raises

    async def _reuse(self, there: Seen[R], mapped: Seen[str] | None, owner_token: OwnerToken) -> bool:
        """Let a page have the record that is there already. False: it was deleted or changed meanwhile; look again.

        Raises WidgetRefused where somebody else owns it.
        """
        if there.value.ending is not None:
            await self._finish(there)
            return False
        try:
            await self._check_again(there.value.id, owner_token)
        except WidgetRefused as refused:
            if refused.reason != "NOT_FOUND":
                raise
            return False
        return (mapped is not None and mapped.value == there.value.id) or bool(await self._lead_to(there, mapped))

    @procedure(ordered="an address and an entry of the index that lead nowhere are put right by the next to come")
    def _add(
        self,
        record: R,
        token_hash: str,
        first: Callable[[str], list[Operation[Any]]],
        mapped: Seen[str] | None,
        before: Seen[R] | None,
    ) -> Steps[None]:
        """A record for a page, whose address has led elsewhere (`mapped`), and what stood there (`before`).

        Two may make one for this page under two ids. Each lets the address lead to their own before they look for the
        other's record, and writes their own before they look at the address: one of them notices.
        """
        id, address, other = record.id, self._urls(record.url), None if mapped is None else unquoted(mapped.value)
        return Steps(
            address.holds(mapped),
            address.set(id),
            *([self._records(other).holds(before).otherwise(_OTHER_IS_BACK)] if is_id(other) and other != id else []),
            self._list_record(record),
            self._records(id).alone.add(record).required(),
            self._owners(id).set(token_hash),
            *first(id),
            address.holds(id).otherwise(_LEADS_ELSEWHERE),
        )

    async def _place_for(self, url: str, wanted: str | None) -> tuple[Seen[R] | None, str]:
        """The record that this page has without an address that leads to it, or the id that it can have."""
        own = candidates(url)
        for id in own if wanted is None else [wanted]:
            there = await self._see(id)
            if there is None and id not in own and is_derived(id):
                # Or whoever is first could take the id that another page is known by already.
                raise wrong("id", "an id that ends like this one is made of the address of a page; choose another")
            if there is None or there.value.url == url or there.value.ending is not None:
                return there, id
        if wanted is not None:
            raise wrong("id", "this id is taken; choose another, or leave it out")
        return None, another(url)  # somebody has chosen all that this page would have had

    @procedure(ordered="what leads to a record that was deleted meanwhile is put right by the next to come")
    def _lead_to(self, there: Seen[R], mapped: Seen[str] | None) -> Steps[None]:
        """Let the address and the index lead to a record, if it is still there.

        Others may have made it just now, or a cluster was interrupted between the two.
        """
        record, address = there.value, self._urls(there.value.url)
        listed, mapping = self._list_record(record), address.set(record.id)
        return Steps(listed, address.holds(mapped), mapping, self._records(record.id).holds(there))

    async def _undo(self, record: R) -> None:
        """Delete a record that was just created and belongs to nobody."""
        seen = await self._see(record.id)
        if seen is not None and seen.value == record:
            await self._end(seen)

    def _list_record(self, record: R) -> Operation[Any]:
        return self.index.put({record.id: round(record.created.timestamp() * 1000)})

    # --- upgrading ---------------------------------------------------------------------------------------------

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

    @procedure(ordered="an entry of the index that leads nowhere is put right by the next to come")
    def _upgrade(self, seen: Seen[R], steps: Sequence[Operation[Any]]) -> Steps[None]:
        """The record in the layout of today, with these changes of its rows."""
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
        """Upgrade the rows of all widgets, also of those that no index names; how many were old."""
        found = 0
        async for key in self._records.scan():
            with suppress(WidgetRefused, Unreadable, BadKey):  # one that cannot be read keeps no other
                seen = await key.see()
                if seen is not None and seen.value.is_old:
                    found += await self._upgrade_record(seen) is not None
        return found

    async def _change(
        self,
        owner: Owner,
        visitor: Visitor,
        step: Callable[[Seen[R]], Awaitable[Sequence[Operation[Any]]]],
    ) -> R:
        """What an owner changes, in one atomic step. The new record, where a step writes it, is read again."""
        seen = await self._find_owned(owner, visitor)
        id = seen.value.id
        async for number in tries(self.word):
            if number:
                again = await self._see(id)
                if again is None or again.value.ending is not None or again.value.created != seen.value.created:
                    raise unknown(self.word)
                seen = again
            if await self._write(seen, await step(seen)):
                break
        self._forget(id)
        return (await self._load_known(id)).value

    def _hook_change(self, webhook_url: Any) -> HookChange[R]:
        """What is done to the webhook of a record. Raises WidgetRefused."""
        if webhook_url is UNSET:
            return HookChange()
        return HookChange(self._hooks.new(webhook_url) if webhook_url else None, changes=True)

    # --- deleting ----------------------------------------------------------------------------------------------

    async def delete(self, owner: Owner, *, visitor: Visitor) -> Deleted:
        """It is gone for everybody at once, and everything of it when this returns. Raises WidgetRefused."""
        try:
            seen = await self._find_owned(owner, visitor)
        except WidgetRefused as refused:
            if refused.reason == "NOT_FOUND":
                await self._finish_what_was_begun(owner)
            raise
        await self._end(seen)
        self.site.count("widgets", f"{self.name}-deleted", "ok")
        return Deleted(id=seen.value.id, message=f"the {self.word} and all that belonged to it is deleted")

    async def _end(self, seen: Seen[R]) -> None:
        id, created = seen.value.id, seen.value.created
        async for _ in tries(self.word):
            done = await self._mark_ending(seen)
            again = await self._see(id)
            if again is None or again.value.created != created:
                return None
            if done or again.value.ending is not None:
                return await self._finish(again)
            seen = again
        raise AssertionError  # pragma: no cover - the last of the tries raises

    @procedure(ordered="the clean-up finishes what is noted and marked, and takes back a note of what is not marked")
    def _mark_ending(self, seen: Seen[R], guards: Sequence[Operation[Any]] = ()) -> Steps[None]:
        """Mark a record that is to be deleted, and note its name: from now on it is gone for everybody."""
        last = seen.value.model_copy(update={"ending": secrets.token_urlsafe(8), "webhook": None})
        name, ending = WidgetName(self.name, last.id), self.keys.ending()
        # Once more after it: the clean-up may have come between, and taken the note back.
        return Steps(
            ending.add(name), self._records(last.id).holds(seen), *guards, self._write_record(last), ending.add(name)
        )

    async def there(self, id: str) -> R | None:
        """The record; None: there is none."""
        seen = await self._see(id)
        return None if seen is None or seen.value.ending is not None else seen.value

    async def end(self, id: str) -> R | None:
        """Delete it, whoever owns it. None: there is none."""
        seen = await self._see(id)
        if seen is None:
            return None
        await self._end(seen)
        self.site.count("widgets", f"{self.name}-deleted", "ok")
        return seen.value

    async def end_idle(self, id: str, before_ms: int, *, dry_run: bool = False) -> R | None:
        """Delete it if nobody has used it since. None: it is used, or gone.

        Who may interleave: a visitor. The step that marks it is guarded by the time of its last use.
        """
        seen = await self._see(id)
        if seen is None or seen.value.ending is not None:
            return None
        use = await self._last_use(seen.value)
        known = [at for at in (seen.value.created, seen.value.moved, use.at) if at is not None]
        if deadline_ms(max(known)) >= before_ms:
            return None
        if not dry_run:
            if not await self._mark_ending(seen, use.still()):
                return None
            await self.finish(id)
            self.site.count("widgets", f"{self.name}-deleted", "idle")
        return seen.value

    def walk(self, before_ms: float = inf) -> AsyncIterator[list[str]]:
        """The ids of all that were made before, some at a time, the oldest first."""
        return self.index.pages(before_ms, page=_PAGE)

    async def finish(self, id: str) -> bool:
        """Finish what was begun to be deleted. False: it is not being deleted."""
        seen = await self._see(id)
        if seen is not None and seen.value.ending is not None:
            await self._finish(seen)
        await self._remove_note(id)
        return seen is not None and seen.value.ending is not None

    async def _finish_what_was_begun(self, owner: Owner) -> None:
        id = owner.id if owner.url is None else await self._id_of(owner.url)
        if id is not None:
            await self.finish(id)

    async def _remove_note(self, id: str) -> None:
        """Take back the note of a delete, unless another one has begun meanwhile."""
        name = WidgetName(self.name, id)
        await self.keys.ending().remove(name)
        seen = await self._see(id)
        if seen is not None and seen.value.ending is not None:
            await self.keys.ending().add(name)

    async def _finish(self, seen: Seen[R]) -> None:
        """Delete all that belongs to a record that is ending, and then the record.

        Each step is guarded by the record. If another caller has finished and the page has a new widget, that one
        is not touched.
        """
        record, id = seen.value, seen.value.id
        self._forget(id)
        has_marks = self._marks(id)
        if has_marks is not None:
            marked, marks = has_marks
            for some in _chunks(await _all_of(marked), _AT_ONCE):
                gone = [marks(id, one).alone.delete() for one in some]
                if not await self._write(seen, [*gone, marked.remove(*some)]):
                    return
        for keys in _chunks([*self._belongings(record), self._owners(id)], _AT_ONCE):
            if not await self._write(seen, [key.alone.delete() for key in keys]):
                return
        if not await self._remove(seen, await self._urls(record.url).see()):
            # Another caller was faster, and the index entry just removed may belong to a widget created since.
            there = await self._see(id)
            if there is not None and there.value.ending is None:
                await self._lead_to(there, await self._urls(there.value.url).see())
        await self._remove_note(id)

    @procedure(ordered="the record goes last, and as long as it is marked, the clean-up finishes what is noted")
    def _remove(self, seen: Seen[R], mapped: Seen[str] | None) -> Steps[None]:
        """Take out what leads to a record that is ending, and the record."""
        id, address = seen.value.id, self._urls(seen.value.url)
        leads_here = mapped is not None and mapped.value == id
        return Steps(
            self.index.remove(id),
            *([address.holds(mapped), address.alone.delete()] if leads_here else []),
            self._records(id).holds(seen),
            *self._hooks.drop_events(self.name, id),
            self._records(id).alone.delete(),
            self.keys.ending().remove(WidgetName(self.name, id)),
        )


async def _all_of(marked: SetKey[str] | SortedSetKey[str]) -> list[str]:
    if isinstance(marked, SetKey):
        return list(await marked.members())
    return [one for one, _ in await marked.lowest(10**9)]


def _chunks(all: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    for at in range(0, len(all), size):
        yield all[at : at + size]
