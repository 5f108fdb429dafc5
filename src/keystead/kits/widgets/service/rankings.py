"""Rankings: names by their best scores, up to a maximum number of entries.

Stored scores are the submitted numbers, so that other programs can read them. Of equal scores the earlier ranks higher:
each entry also has a turn, the number of its submission. Every change of the scores increments that sequence and is
guarded by it (optimistic locking), so what was read to decide on a change is still true when it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from math import floor, inf
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from keystead.kits.widgets.models import RankingDetail, RankingEntry, RankingMeta, RankingRecord, SortOrder
from keystead.kits.widgets.service.checks import check_id, check_number, check_text, refuse_spam
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.nicknames import nickname
from keystead.kits.widgets.service.outcomes import Created, Entry, Owner, RankingData, Visitor
from keystead.kits.widgets.service.records import Guards, LastUse, Operations, read_last_use, tries
from keystead.kits.widgets.service.refused import WidgetRefused, invalid
from keystead.kits.widgets.service.services import UNSET, Service, chunks
from keystead.schema import Bound, Operation, Steps, procedure
from keystead.schema.key import Key
from keystead.schema.kinds import Seen, SortedSetKey, ValueKey
from keystead.schema.times import moment

NAME_MAX: Final = 50
TITLE_MAX: Final = 50
DESCRIPTION_MAX: Final = 200
DISPLAY_MAX: Final = 100
MAX_ENTRIES: Final = 10_000
DEFAULT_ENTRIES: Final = 10
SHOWN: Final = 10
SHOWN_MAX: Final = 100
COOLDOWN_S: Final = 60
ORDERS: Final[tuple[SortOrder, ...]] = get_args(SortOrder)

_WRITE_BATCH: Final = 2000  # entries written by one command
_FEW: Final = 200  # up to so many entries of one score, their turns are read one by one; for more, all turns are read

_Scored: TypeAlias = tuple[RankingEntry, float]


class Rankings(Service[RankingRecord]):
    name = "ranking"
    word = "ranking"
    record_type = RankingRecord

    async def create(
        self,
        url: Any,
        token: Any,
        *,
        visitor: Visitor,
        title: Any = None,
        description: Any = None,
        max_entries: Any = DEFAULT_ENTRIES,
        sort_order: Any = "desc",
        webhook_url: Any = None,
        id: Any = None,
    ) -> Created:
        """Create the ranking of a page, or return the existing one if the token is its owner's."""
        fields, meta = _check_settings(max_entries, sort_order), RankingMeta(**_check_meta(title, description))
        return await self._create(
            url,
            token,
            visitor,
            id=id,
            webhook_url=webhook_url,
            first=lambda new: [self.keys.ranking_meta(new).set(meta)],
            **fields,
        )

    async def submit(
        self, id: Any, visitor: Visitor, name: Any = UNSET, score: Any = None, display_score: Any = None
    ) -> RankingData:
        """Submit a score. It replaces a worse score of the same name, and starts a cooldown of 60 seconds. Without a
        name, the visitor gets a nickname.

        Two round trips, the second one atomic, and three to read the result. Equal scores, at the end that is cut off
        or beside the new one, take one or two more.
        """
        checked = nickname(self._visitor_hash(check_id(id), visitor)) if name is UNSET else self._check_name(name)
        sent = _Submission(_member(checked), check_number("score", score), self._check_display(display_score))
        limit: str | None = "write"
        async with self._lock(id):
            async for _ in tries(self.word):
                seen = await self._load_for_visitor(id, limit, visitor)
                standing = await self._find_standing(seen.value, sent.member)
                improved = standing.is_improved_by(sent.score)
                cut = await self._cut_for_one_more(standing) if improved else []
                step = partial(self._submit, visitor=visitor, sent=sent, standing=standing, cut=cut)
                done = await self._run_guarded(seen, limit, visitor, step)
                limit = None  # counted
                if done.stopped == "ranking_submit":
                    raise await self._cooldown(self._marker(id, visitor), COOLDOWN_S, "you have just sent a score")
                if done:
                    break
        self.site.count("widgets", "score", "better" if improved else "not-better")
        data = await self.get(id)
        score = sent.score if improved else standing.own
        rank = None if score is None else await self._rank(seen.value, sent.member, score, improved)
        return data.model_copy(update={"improved": improved, "rank": rank})

    @procedure
    def _submit(
        self, guards: Guards, visitor: Visitor, sent: _Submission, standing: _Standing, cut: Sequence[RankingEntry]
    ) -> Steps[None]:
        """Write a score if it improves the standing that was read. The sequence guards against other changes."""
        record, keys, at = standing.record, self.keys, moment(self.site.now_ms())
        id, counter = record.id, keys.ranking_sequence(record.id)
        unchanged, marker = self._equals(counter, standing.sequence), self._marker(id, visitor)
        if not standing.is_improved_by(sent.score):
            return Steps(*guards, unchanged, marker.holds(None))
        data = {"name": sent.member.name, "score": sent.score, "displayScore": sent.display}
        event = self._hooks.make_event(self.name, record, "ranking.submit", data)
        return Steps(
            *guards,
            unchanged,
            marker.add(at),
            counter.increment(),
            *self._remove_entries(id, cut),
            *self._put_entry(id, sent, standing.sequence + 1),
            keys.ranking_last(id).set(at),
            *event,
        )

    def _put_entry(self, id: str, sent: _Submission, turn: int) -> list[Operation[Any]]:
        detail = RankingDetail(display_score=sent.display, at=moment(self.site.now_ms()))
        return [
            self.keys.ranking_scores(id).put({sent.member: sent.score}),
            self.keys.ranking_turns(id).put({sent.member: turn}),
            self.keys.ranking_details(id).put({sent.member.unique_id: detail}),
        ]

    def _remove_entries(self, id: str, members: Sequence[RankingEntry]) -> list[Operation[Any]]:
        keys = self.keys
        writes: list[Operation[Any]] = []
        for some in chunks(members, _WRITE_BATCH):
            writes += [keys.ranking_scores(id).remove(*some), keys.ranking_turns(id).remove(*some)]
            writes.append(keys.ranking_details(id).remove(*(member.unique_id for member in some)))
        return writes

    async def get(self, id: Any, limit: Any = SHOWN, visitor: Visitor | None = None) -> RankingData:
        """The best entries in order. Two round trips, and one or two more for equal scores."""
        count = check_number("limit", limit, 1, SHOWN_MAX)

        def operations() -> list[Operation[Any]]:
            keys, scores = self.keys, self.keys.ranking_scores(id)
            # Only the record says which end is the best. One more than is shown, as it may equal the last.
            return [
                keys.ranking_meta(id).get(),
                scores.count(),
                keys.ranking_last(id).get(),
                scores.highest(count + 1),
                scores.lowest(count + 1),
            ]

        record, (meta, total, last, highest, lowest) = await self._read(id, visitor, operations)
        found = highest if record.sort_order == "desc" else lowest
        best = await self._order_ties(id, found, count)
        ids = [member.unique_id for member, _ in best]
        details = await self.keys.ranking_details(id).fields(*ids) if ids else {}
        return RankingData(
            id=record.id,
            url=record.url,
            title=None if meta is None else meta.title,
            description=None if meta is None else meta.description,
            entries=[
                Entry(rank=rank, name=member.name, score=floor(score), display_score=_display_score(details, member))
                for rank, (member, score) in enumerate(best, 1)
            ],
            total_entries=total,
            max_entries=record.max_entries,
            sort_order=record.sort_order,
            last_submit=iso(last),
        )

    async def update(
        self, owner: Owner, name: Any, score: Any, display_score: Any = None, *, visitor: Visitor
    ) -> RankingData:
        """Set the score of a name, better or worse. An entry that would be cut off immediately is not written."""
        sent = _Submission(
            _member(self._check_name(name)), check_number("score", score), self._check_display(display_score)
        )

        async def step(seen: Seen[RankingRecord]) -> Operations:
            id, counter = seen.value.id, self.keys.ranking_sequence(seen.value.id)
            standing = await self._find_standing(seen.value, sent.member)
            if standing.own is None and not standing.is_improved_by(sent.score):
                return [self._equals(counter, standing.sequence)]
            return [
                self._equals(counter, standing.sequence),
                counter.increment(),
                *self._remove_entries(id, await self._cut_for_one_more(standing)),
                *self._put_entry(id, sent, standing.sequence + 1),
            ]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def remove(self, owner: Owner, name: Any, *, visitor: Visitor) -> RankingData:
        """Remove an entry. Raises WidgetRefused if there is no such name."""
        member = _member(check_text("name", name, 1, NAME_MAX))

        async def step(seen: Seen[RankingRecord]) -> Operations:
            id = seen.value.id
            scores, counter = self.keys.ranking_scores(id), self.keys.ranking_sequence(id)
            number, score = await self.keys.run(counter.get(), scores.score(member))
            if score is None:
                raise WidgetRefused("NOT_FOUND", "there is no entry with this name")
            return [self._equals(counter, number), counter.increment(), *self._remove_entries(id, [member])]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def clear(self, owner: Owner, *, visitor: Visitor) -> RankingData:
        """Remove all entries."""

        async def step(seen: Seen[RankingRecord]) -> Operations:
            id = seen.value.id
            return [
                self.keys.ranking_sequence(id).increment(),
                self.keys.ranking_scores(id).delete(),
                self.keys.ranking_turns(id).delete(),
                self.keys.ranking_details(id).delete(),
            ]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def update_settings(
        self,
        owner: Owner,
        *,
        visitor: Visitor,
        title: Any = UNSET,
        description: Any = UNSET,
        max_entries: Any = UNSET,
        sort_order: Any = UNSET,
        webhook_url: Any = UNSET,
    ) -> RankingData:
        """Change the given settings in one step. A lower maximum removes the worst entries."""
        meta_update, update = _check_meta(title, description), _check_settings(max_entries, sort_order)
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[RankingRecord]) -> Operations:
            id = seen.value.id
            record = change.apply_to(seen.value).model_copy(update=update)
            meta = self.keys.ranking_meta(id)
            old = await meta.see()
            writes: list[Operation[Any]] = []
            if update:
                counter, scores = self.keys.ranking_sequence(id), self.keys.ranking_scores(id)
                number, total = await self.keys.run(counter.get(), scores.count())
                cut = await self._worst(record, total - record.max_entries)
                writes += [self._equals(counter, number), counter.increment(), *self._remove_entries(id, cut)]
            if meta_update:
                new = (old.value if old else RankingMeta()).model_copy(update=meta_update)
                writes += [meta.holds(old), meta.set(new)]
            return [*writes, self._write_record(record)]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhook_secret": change.secret})

    def _check_name(self, given: Any) -> str:
        name = check_text("name", given, 1, NAME_MAX)
        refuse_spam(self.settings, "name", name)
        return name

    def _check_display(self, given: Any) -> str | None:
        if given is None:
            return None
        display = check_text("displayScore", given, 1, DISPLAY_MAX)
        refuse_spam(self.settings, "displayScore", display)
        return display

    def _marker(self, id: str, visitor: Visitor) -> ValueKey[datetime]:
        return self.keys.ranking_submit(id, self._visitor_hash(id, visitor))

    async def _find_standing(self, record: RankingRecord, member: RankingEntry) -> _Standing:
        """What a new score of this name competes with. One round trip."""
        scores = self.keys.ranking_scores(record.id)
        worst = scores.lowest(1) if record.sort_order == "desc" else scores.highest(1)
        sequence, own, count, last = await self.keys.run(
            self.keys.ranking_sequence(record.id).get(), scores.score(member), scores.count(), worst
        )
        return _Standing(record, sequence, own, count, last[0][1] if last else None)

    async def _cut_for_one_more(self, standing: _Standing) -> list[RankingEntry]:
        """The entries that a new score pushes out: none if its name has an entry, or if there is room."""
        new = 1 if standing.own is None else 0
        return await self._worst(standing.record, standing.entries + new - standing.record.max_entries)

    async def _worst(self, record: RankingRecord, number: int) -> list[RankingEntry]:
        """The last entries of the ranking; of equal scores, the latest."""
        if number <= 0:
            return []
        scores = self.keys.ranking_scores(record.id)
        found = await (scores.lowest(number + 1) if record.sort_order == "desc" else scores.highest(number + 1))
        worst = await self._order_ties(record.id, found, number, latest_first=True)
        return [member for member, _ in worst]

    async def _order_ties(
        self, id: str, found: list[_Scored], number: int, *, latest_first: bool = False
    ) -> list[_Scored]:
        """The first `number` entries from one end, with equal scores in the order of their turns.

        The store sorts equal scores by name. So if the cut falls between equal scores, which the one more entry in
        `found` reveals, all entries of that score are read.
        """
        ends = found[:number]
        split = found[number][1] if len(found) > number and found[number][1] == ends[-1][1] else None
        by_score: dict[float, list[RankingEntry]] = {}
        for member, score in ends:
            by_score.setdefault(score, []).append(member)
        if split is not None:
            by_score[split] = await self._members_with(id, split)
        ordered = await asyncio.gather(*(self._sort_by_turn(id, members) for members in by_score.values()))
        placed = [
            (member, score)
            for score, members in zip(by_score, ordered, strict=True)
            for member in (reversed(members) if latest_first else members)
        ]
        return placed[:number]

    async def _members_with(self, id: str, score: float) -> list[RankingEntry]:
        return [member for member, _ in await self.keys.ranking_scores(id).between(score, score).if_readable()]

    async def _sort_by_turn(self, id: str, members: list[RankingEntry]) -> list[RankingEntry]:
        """Members of one score, the earliest first. Entries of other programs have no turn, and come before."""
        if len(members) <= 1:
            return members
        turns = self.keys.ranking_turns(id)
        if len(members) <= _FEW:
            found = await self.keys.run(*(turns.score(member) for member in members))
            known = dict(zip(members, found, strict=True))
        else:
            known = dict(await turns.lowest(MAX_ENTRIES).if_readable())
        return sorted(members, key=lambda member: known.get(member) or 0)

    async def _rank(self, record: RankingRecord, member: RankingEntry, score: float, is_new: bool) -> int | None:
        """The rank of an entry; None: it is gone by now. A new one is the last of its score."""
        scores = self.keys.ranking_scores(record.id)
        not_worse = (score, inf) if record.sort_order == "desc" else (-inf, score)
        own, count, equal = await self.keys.run(
            scores.score(member), scores.count_between(*not_worse), scores.count_between(score, score)
        )
        if own != score:
            return None
        if equal == 1 or is_new:
            return count
        members = await self._sort_by_turn(record.id, await self._members_with(record.id, score))
        return count - len(members) + members.index(member) + 1 if member in members else None

    async def _upgrade_steps(self, record: RankingRecord) -> list[Operation[Any]]:
        """Scores of the first layout have the turn as a fraction, or are as the document writes them, with members of
        other forms. Each entry keeps its rank; of several with one name, the best remains.

        The sequence guards the step: if a score is submitted meanwhile, nothing is written.
        """
        id, scores, counter = record.id, self.keys.ranking_scores(record.id), self.keys.ranking_sequence(record.id)
        number, found, details = await self.keys.run(
            counter.get(), scores.see_lowest(10**9), self.keys.ranking_details(id).get().if_readable()
        )
        placed: dict[RankingEntry, float] = {}
        for seen, score in reversed(found) if record.sort_order == "desc" else found:
            member = _member(_name_of(seen))
            if member not in placed and len(placed) < record.max_entries:
                placed[member] = (
                    floor(score) if number else float(score)
                )  # a fraction is a turn only if there is a sequence
        steps: list[Operation[Any]] = [self._equals(counter, number)]
        if record.last_submit is not None:
            steps.append(self.keys.ranking_last(id).add(record.last_submit))
        if found:
            renumber = counter.set(max(number, len(placed)) + 1)
            steps += [scores.delete(), self.keys.ranking_turns(id).delete(), renumber]
        listed = list(enumerate(placed, 1))
        for some in chunks(listed, _WRITE_BATCH):
            steps += [
                scores.put({member: placed[member] for _, member in some}),
                self.keys.ranking_turns(id).put({member: turn for turn, member in some}),
            ]
        remaining = {member.unique_id for member in placed}
        if removed := [unique_id for unique_id in details or {} if unique_id not in remaining]:
            steps.append(self.keys.ranking_details(id).remove(*removed))
        return steps

    async def _last_use(self, record: RankingRecord) -> LastUse:
        return await read_last_use(self.keys.ranking_last(record.id))

    def _owned_keys(self, record: RankingRecord) -> list[Key]:
        keys, id = self.keys, record.id
        families = (
            keys.ranking_scores,
            keys.ranking_turns,
            keys.ranking_details,
            keys.ranking_sequence,
            keys.ranking_last,
            keys.ranking_meta,
            keys.ranking_submitters,
        )
        return [family(id) for family in families]

    def _markers(self, id: str) -> tuple[SortedSetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.ranking_submitters(id), self.keys.ranking_submit


class _Submission(NamedTuple):
    member: RankingEntry
    score: int
    display: str | None


class _Standing(NamedTuple):
    """What a submission competes with."""

    record: RankingRecord
    sequence: int
    own: float | None  # the score of its name
    entries: int
    worst: float | None

    def is_improved_by(self, score: int) -> bool:
        """Whether a score beats that of its name, or else the worst of a full ranking. An equal score does not."""
        is_full = self.own is None and self.entries >= self.record.max_entries
        beaten = self.worst if is_full else self.own
        if beaten is None:
            return True
        return score > beaten if self.record.sort_order == "desc" else score < beaten


def _name_of(seen: Seen[RankingEntry | None]) -> str:
    """The name in a member: in our format, as `{name}:{unique_id}` without escapes, or the name alone."""
    if seen.value is not None:
        return seen.value.name
    text = seen.stored.decode("utf-8", "replace")
    return text.rpartition(":")[0] or text


def _member(name: str) -> RankingEntry:
    """The member of a name: there is one entry per name."""
    return RankingEntry(name, sha256(name.encode()).hexdigest()[:16])


def _check_meta(title: Any, description: Any) -> dict[str, Any]:
    """The ones that are not UNSET. Raises WidgetRefused."""
    meta: dict[str, Any] = {}
    if title is not UNSET:
        meta["title"] = None if title is None else check_text("title", title, 1, TITLE_MAX)
    if description is not UNSET:
        meta["description"] = (
            None if description is None else check_text("description", description, 0, DESCRIPTION_MAX)
        )
    return meta


def _check_settings(max_entries: Any, sort_order: Any) -> dict[str, Any]:
    """The ones that are not UNSET. Raises WidgetRefused."""
    settings: dict[str, Any] = {}
    if max_entries is not UNSET:
        settings["max_entries"] = check_number("max", max_entries, 1, MAX_ENTRIES)
    if sort_order is not UNSET:
        if sort_order not in ORDERS:
            raise invalid("sortOrder", "sortOrder must be desc (the highest score is the best) or asc (the lowest)")
        settings["sort_order"] = sort_order
    return settings


def _display_score(details: dict[str, RankingDetail], member: RankingEntry) -> str | None:
    detail = details.get(member.unique_id)
    return None if detail is None else detail.display_score
