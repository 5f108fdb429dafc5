"""Relations of the keys on a page: owners, targets and index entries, looked up in one batch per store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keystead.errors import WrongKind
from keystead.schema.doctor import relation_checks
from keystead.schema.doctor.contents import KindSuspicion
from keystead.schema.doctor.family_facts import Facts, entry_of, is_there
from keystead.schema.doctor.follow_up import FollowUp
from keystead.schema.doctor.key_state import KeyState
from keystead.schema.doctor.relation_checks import (
    LeadsNowhere,
    NotListed,
    Orphan,
    StoredAt,
    WrongScore,
    all_exist,
    is_missing,
    score_of,
)
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.listing import ListedEntry
from keystead.schema.pace import Pace
from keystead.stores import Store


class _Lookups:
    """Keys to look up, by store, each once."""

    def __init__(self) -> None:
        self.by_store: dict[int, tuple[Store, dict[str, None]]] = {}

    def add(self, store: Store, key: str) -> tuple[Store, str]:
        held = self.by_store.get(id(store))
        if held is None:
            held = self.by_store[id(store)] = (store, {})
        held[1][key] = None
        return store, key


class RelationExamination:
    def __init__(self, follow_up: FollowUp, pace: Pace) -> None:
        self._follow_up = follow_up
        self._pace = pace

    async def examine(self, looks: Sequence[tuple[KeyState, Facts]]) -> list[tuple[KeyState, Suspicion]]:
        """The suspicions about the relations of these keys."""
        lookups = _Lookups()
        owned: list[tuple[KeyState, Facts, list[StoredAt]]] = []
        leading: list[tuple[KeyState, Facts, Any, StoredAt]] = []
        listed: list[tuple[KeyState, ListedEntry, bool]] = []
        for number, (look, facts) in enumerate(looks):
            if facts.owners and (owners := facts.owner_keys(look.values)):
                owned.append((look, facts, [StoredAt(*lookups.add(*one)) for one in owners]))
            for relation in facts.leads_to:
                target = relation_checks.target(look, relation)
                if target is not None:
                    lookups.add(*target)
                    leading.append((look, facts, relation, target))
            for one in facts.listed:
                entry = entry_of(look, one)
                if entry is not None:
                    listed.append((look, entry, one.has_score))
            if self._pace.is_due_at(number):
                await self._pace.turn()
        missing = await self._missing(lookups)
        return [*_orphans(owned, missing), *_dangling(leading, missing), *await self._examine_listings(listed)]

    async def _missing(self, lookups: _Lookups) -> set[StoredAt]:
        """The keys that do not exist."""
        missing: set[StoredAt] = set()
        for store, names in lookups.by_store.values():
            if await all_exist(self._pace, store, [name.encode() for name in names]):
                continue
            replies = await self._pace.run(store, [("EXISTS", name) for name in names], len(names))
            missing.update(
                StoredAt(store, name) for name, reply in zip(names, replies, strict=True) if is_missing(reply)
            )
            await self._pace.turn()
        return missing

    async def _examine_listings(
        self, listed: Sequence[tuple[KeyState, ListedEntry, bool]]
    ) -> list[tuple[KeyState, Suspicion]]:
        """The suspicions about the index entries of these records. An index shares the store of its records."""
        found: list[tuple[KeyState, Suspicion]] = []
        if not listed:
            return found
        commands: list[Any] = [is_there(entry) for _, entry, _ in listed]
        replies = await self._pace.run(listed[0][0].store, commands, len(commands))
        for (look, entry, has_score), reply in zip(listed, replies, strict=True):
            is_wrong_kind = isinstance(reply, WrongKind)
            if is_wrong_kind and self._follow_up.limits is not None:
                # It is set aside first, so that the record can be listed in a new index.
                await self._follow_up.follow([[KindSuspicion(KeyState(entry.index, entry.key, {}, look.now_ms))]])
            if is_missing(reply) or is_wrong_kind:
                found.append((look, NotListed(look, entry)))
            elif has_score and (wanted := score_of(look, entry)) is not None and reply != wanted:
                found.append((look, WrongScore(look, entry, reply)))
        await self._pace.turn()
        return found


def _orphans(
    owned: Sequence[tuple[KeyState, Facts, list[StoredAt]]], missing: set[StoredAt]
) -> list[tuple[KeyState, Suspicion]]:
    found: list[tuple[KeyState, Suspicion]] = []
    for look, facts, owners in owned:
        if missing and all(one in missing for one in owners):
            found.append((look, Orphan(look, owners)))
        else:
            facts.intact["orphan"] += 1
    return found


def _dangling(
    leading: Sequence[tuple[KeyState, Facts, Any, StoredAt]], missing: set[StoredAt]
) -> list[tuple[KeyState, Suspicion]]:
    found: list[tuple[KeyState, Suspicion]] = []
    for look, facts, relation, target in leading:
        if target in missing:
            found.append((look, LeadsNowhere(look, relation, target)))
        else:
            facts.intact["leads-nowhere"] += 1
    return found
