"""Entries of sets, sorted sets, lists and logs: unreadable ones, old ones, and index entries whose record is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from keystead.errors import WrongKind
from keystead.schema.chunked_reading import SMALL, Pages, can_be_read, read_entry, value_of
from keystead.schema.doctor.contents import ClosedEntries, UnreadableEntries, old_entries, reason_to_leave
from keystead.schema.doctor.family_facts import Facts
from keystead.schema.doctor.follow_up import FollowUp
from keystead.schema.doctor.key_state import KeyState
from keystead.schema.doctor.relation_checks import DeadEntry, NamedEntry, all_exist, has_expired
from keystead.schema.doctor.report import add_count, tally
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.pace import Pace
from keystead.stores import Command


class _IndexEntry(NamedTuple):
    """An entry of an index whose record has to be looked up."""

    look: KeyState
    named: NamedEntry


@dataclass(slots=True)
class _Sorted:
    """One page of entries by what is to be done with them."""

    readable: list[Any] = field(default_factory=list)
    unreadable: list[Any] = field(default_factory=list)
    problem: str = ""  # of the first that is unreadable
    closed: dict[str, tuple[list[Any], str]] = field(default_factory=dict)  # by the reason why they are left alone


class EntryExamination:
    def __init__(self, follow_up: FollowUp, pace: Pace) -> None:
        self._follow_up = follow_up
        self._report = follow_up.report
        self._pace = pace

    async def examine(self, looks: Sequence[tuple[KeyState, Facts]]) -> None:
        """Examine the entries of these keys. Index entries of small keys are looked up together."""
        index_entries: list[_IndexEntry] = []
        for look, facts in looks:
            if look.entries is not None and look.size <= SMALL:
                await self._examine_page(look, facts, look.entries, index_entries)
            elif can_be_read(facts.kind, look.size):
                await self._examine_pages(look, facts)
            else:
                tally(self._report.not_read, look.bound.family)
        await self._remove_dead(index_entries)

    async def _examine_pages(self, look: KeyState, facts: Facts) -> None:
        pages = Pages(look.bound, look.key)
        try:
            async for entries in pages:
                index_entries: list[_IndexEntry] = []
                removed = await self._examine_page(look, facts, entries, index_entries)
                pages.removed = removed + await self._remove_dead(index_entries)
        except WrongKind:
            return  # it was replaced meanwhile

    async def _examine_page(
        self, look: KeyState, facts: Facts, entries: list[Any], index_entries: list[_IndexEntry]
    ) -> int:
        """How many of these entries were removed. Those of an index that can be followed join `index_entries`."""
        facts.entries += len(entries)
        page = await self._sort(look, facts, entries, index_entries)
        removed = 0
        if page.closed:
            closed: list[Suspicion] = [
                ClosedEntries(look, some, problem, why) for why, (some, problem) in page.closed.items()
            ]
            await self._follow_up.follow([closed])
        bad = page.unreadable
        if bad and await self._follow_up.follow([[UnreadableEntries(look, bad, page.problem)]]):
            removed = len(bad)
        if facts.is_sealed and page.readable:
            add_count(self._report.opened, facts.name, sum(map(_has_seal, page.readable)))
            old = old_entries(look, page.readable)
            if old is not None:
                await self._follow_up.follow([[old]])
        return removed

    async def _sort(
        self, look: KeyState, facts: Facts, entries: list[Any], index_entries: list[_IndexEntry]
    ) -> _Sorted:
        page = _Sorted()
        for number, entry in enumerate(entries):
            member, problem = read_entry(look.bound, look.key, entry)
            if problem is not None:
                self._report.count_unopened(problem, facts.name)
                if why := reason_to_leave(problem, *value_of(look.bound.family, entry)):
                    page.closed.setdefault(why, ([], problem))[0].append(entry)
                    continue
                page.unreadable.append(entry)
                page.problem = page.problem or problem
                continue
            page.readable.append(entry)
            if facts.is_index and (named := _keys_named_by(look, facts, entry, member)) is not None:
                index_entries.append(_IndexEntry(look, named))
            if self._pace.is_due_at(number):
                await self._pace.turn()
        return page

    async def _remove_dead(self, entries: Sequence[_IndexEntry]) -> int:
        """How many index entries were removed because the record they name is gone."""
        removed = 0
        for some in self._pace.pieces(entries):
            dead = [DeadEntry(one.look, *one.named) for one in await self._without_record(some)]
            if dead:
                removed += await self._follow_up.follow([[one] for one in dead])
            await self._pace.turn()
        return removed

    async def _without_record(self, entries: Sequence[_IndexEntry]) -> list[_IndexEntry]:
        """The entries, all of one store, that do not name an existing key."""
        store = entries[0].look.store
        names = [name.encode() for one in entries for name in one.named.names]
        if all(len(one.named.names) == 1 for one in entries) and await all_exist(self._pace, store, names):
            return []
        commands: list[Command] = [("EXISTS", *one.named.names) for one in entries if one.named.names]
        replies = iter(await self._pace.run(store, commands, len(entries)))
        return [one for one in entries if not one.named.names or not next(replies)]


def _keys_named_by(look: KeyState, facts: Facts, entry: Any, member: Any) -> NamedEntry | None:
    """What an index entry names; None if that cannot be determined, or if its deadline is over."""
    if facts.kind != "zset":
        return facts.keys_named_by(look, entry, member)
    named = facts.keys_named_by(look, entry[0], member)
    return None if named is None or has_expired(look, entry[1]) else named


def _has_seal(entry: Any) -> bool:
    """Whether an entry of any kind holds a sealed text."""
    if isinstance(entry, bytes):
        return b"sealed." in entry
    return isinstance(entry, list | tuple) and any(map(_has_seal, entry))
