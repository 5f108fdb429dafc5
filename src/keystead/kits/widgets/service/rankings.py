"""Rankings: names by their best scores, and no more of them than the ranking holds.

A score in the store is the number that was sent, so that other programs read it there. Of equal scores the first is the
best: beside the scores stand the turns, numbers of the ranking's own sequence. Every change of the scores moves that
sequence on and is guarded by it, so whatever was read to decide on the change is still true when it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from math import floor, inf
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from keystead.kits.widgets.models import RankingDetail, RankingEntry, RankingMeta, RankingRecord, SortOrder
from keystead.kits.widgets.service.checks import checked_id, refuse_spam, text, whole
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.nicknames import nickname
from keystead.kits.widgets.service.outcomes import Created, Entry, Owner, RankingData, Visitor
from keystead.kits.widgets.service.records import Guards, Use, last_use, tries
from keystead.kits.widgets.service.refused import WidgetRefused, too_soon, wrong
from keystead.kits.widgets.service.services import UNSET, Service
from keystead.schema import Bound, Operation, Steps, procedure
from keystead.schema.key import Key
from keystead.schema.kinds import Seen, SortedSetKey, ValueKey
from keystead.schema.times import deadline_ms, moment

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

_AT_ONCE: Final = 2000  # entries that are written with one command
_FEW: Final = 200  # entries of one score whose turns are asked for one by one; of more, all turns are read

_Placed: TypeAlias = tuple[RankingEntry, float]


class Rankings(Service[RankingRecord]):
    name = "ranking"
    word = "ranking"

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
        """A ranking for a page; the one that is there, for whoever has its token."""
        most, order = whole("max", max_entries, 1, MAX_ENTRIES), _order(sort_order)
        meta = RankingMeta(
            title=None if title is None else text("title", title, 1, TITLE_MAX),
            description=None if description is None else text("description", description, 0, DESCRIPTION_MAX),
        )
        return await self._create(
            url,
            token,
            visitor,
            lambda values: RankingRecord(**values, max_entries=most, sort_order=order),
            id=id,
            webhook_url=webhook_url,
            first=lambda new: [self.keys.ranking_meta(new).set(meta)],
        )

    async def submit(
        self, id: Any, visitor: Visitor, name: Any = UNSET, score: Any = None, display_score: Any = None
    ) -> RankingData:
        """Send a score. It stands if the name has none or a worse one; then the visitor waits 60 seconds for the next.
        Whoever gives no name is called by a nickname.

        Two round trips, the second one atomic; and three that read what is shown. Equal scores at the end that is cut
        off, or beside the new one, take one or two more.
        """
        called = nickname(self._visitor_hash(checked_id(id), visitor)) if name is UNSET else self._name(name)
        sent = _Sent(_member(called), whole("score", score), self._display(display_score))
        limit: str | None = "write"
        async with self._turn(id):
            async for _ in tries(self.word):
                seen = await self._load_for_visitor(id, limit, visitor)
                standing = await self._find_standing(seen.value, sent.member)
                improved = standing.is_improved_by(sent.score)
                cut = await self._cut_for_one_more(standing) if improved else []
                step = partial(self._submit, visitor=visitor, sent=sent, standing=standing, cut=cut)
                done = await self._run_guarded(seen, limit, visitor, step)
                limit = None  # it is counted
                if done.stopped == "ranking_submit":
                    raise await self._too_soon(id, visitor)
                if done:
                    break
        self.site.count("widgets", "score", "better" if improved else "not-better")
        data = await self.get(id)
        stands = sent.score if improved else standing.own
        rank = None if stands is None else await self._rank(seen.value, sent.member, stands, improved)
        return data.model_copy(update={"improved": improved, "rank": rank})

    @procedure
    def _submit(
        self, guards: Guards, visitor: Visitor, sent: _Sent, standing: _Standing, cut: Sequence[RankingEntry]
    ) -> Steps[None]:
        """What stands is what was read: every change of the scores moves the sequence on."""
        record, keys, at = standing.record, self.keys, moment(self.site.now_ms())
        id, counter = record.id, keys.ranking_sequence(record.id)
        same, mark = self._is(counter, standing.sequence), keys.ranking_submit(id, self._visitor_hash(id, visitor))
        if not standing.is_improved_by(sent.score):
            return Steps(*guards, same, mark.holds(None))
        data = {"name": sent.member.name, "score": sent.score, "displayScore": sent.display}
        told = self._hooks.make_event(self.name, record, "ranking.submit", data)
        return Steps(
            *guards,
            same,
            mark.add(at),
            counter.increment(),
            *self._without_entries(id, cut),
            *self._with_entry(id, sent, standing.sequence + 1),
            keys.ranking_last(id).set(at),
            *told,
        )

    def _with_entry(self, id: str, sent: _Sent, turn: int) -> list[Operation[Any]]:
        detail = RankingDetail(display_score=sent.display, at=moment(self.site.now_ms()))
        return [
            self.keys.ranking_scores(id).put({sent.member: sent.score}),
            self.keys.ranking_turns(id).put({sent.member: turn}),
            self.keys.ranking_details(id).put({sent.member.unique_id: detail}),
        ]

    def _without_entries(self, id: str, members: Sequence[RankingEntry]) -> list[Operation[Any]]:
        keys = self.keys
        writes: list[Operation[Any]] = []
        for at in range(0, len(members), _AT_ONCE):
            some = members[at : at + _AT_ONCE]
            writes += [keys.ranking_scores(id).remove(*some), keys.ranking_turns(id).remove(*some)]
            writes.append(keys.ranking_details(id).remove(*(one.unique_id for one in some)))
        return writes

    async def get(self, id: Any, limit: Any = SHOWN, visitor: Visitor | None = None) -> RankingData:
        """The best, in order. Two round trips, and one or two more where scores are equal."""
        count = whole("limit", limit, 1, SHOWN_MAX)

        def operations() -> list[Operation[Any]]:
            keys, scores = self.keys, self.keys.ranking_scores(id)
            # Which end is the best, only the record says. One more than is shown: it may have the score of the last.
            return [
                keys.ranking_meta(id).get(),
                scores.count(),
                keys.ranking_last(id).get(),
                scores.highest(count + 1),
                scores.lowest(count + 1),
            ]

        record, (meta, total, last, highest, lowest) = await self._read(id, visitor, operations)
        found = highest if record.sort_order == "desc" else lowest
        best = await self._first(id, found, count)
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
        """Write an entry, better or worse, new or not. One that would be cut off at once is not written."""
        sent = _Sent(_member(self._name(name)), whole("score", score), self._display(display_score))

        async def step(seen: Seen[RankingRecord]) -> Sequence[Operation[Any]]:
            id, counter = seen.value.id, self.keys.ranking_sequence(seen.value.id)
            standing = await self._find_standing(seen.value, sent.member)
            if standing.own is None and not standing.is_improved_by(sent.score):
                return [self._is(counter, standing.sequence)]
            return [
                self._is(counter, standing.sequence),
                counter.increment(),
                *self._without_entries(id, await self._cut_for_one_more(standing)),
                *self._with_entry(id, sent, standing.sequence + 1),
            ]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def remove(self, owner: Owner, name: Any, *, visitor: Visitor) -> RankingData:
        """Take an entry out. Raises WidgetRefused where there is no such name."""
        member = _member(text("name", name, 1, NAME_MAX))

        async def step(seen: Seen[RankingRecord]) -> Sequence[Operation[Any]]:
            id = seen.value.id
            scores, counter = self.keys.ranking_scores(id), self.keys.ranking_sequence(id)
            number, score = await self.keys.run(counter.get(), scores.score(member))
            if score is None:
                raise WidgetRefused("NOT_FOUND", "there is no entry of this name")
            return [
                self._is(counter, number),
                counter.increment(),
                *self._without_entries(id, [member]),
            ]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def clear(self, owner: Owner, *, visitor: Visitor) -> RankingData:
        """Take all entries out."""

        async def step(seen: Seen[RankingRecord]) -> Sequence[Operation[Any]]:
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
        """Change what is given, in one step. Fewer entries: the worst go. Another order: the best become the last."""
        shown: dict[str, Any] = {}
        if title is not UNSET:
            shown["title"] = None if title is None else text("title", title, 1, TITLE_MAX)
        if description is not UNSET:
            shown["description"] = None if description is None else text("description", description, 0, DESCRIPTION_MAX)
        kept: dict[str, Any] = {}
        if max_entries is not UNSET:
            kept["max_entries"] = whole("max", max_entries, 1, MAX_ENTRIES)
        if sort_order is not UNSET:
            kept["sort_order"] = _order(sort_order)
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[RankingRecord]) -> Sequence[Operation[Any]]:
            id = seen.value.id
            record = change.of(seen.value).model_copy(update=kept)
            meta = self.keys.ranking_meta(id)
            was = await meta.see()
            writes: list[Operation[Any]] = []
            if kept:
                counter, scores = self.keys.ranking_sequence(id), self.keys.ranking_scores(id)
                number, total = await self.keys.run(counter.get(), scores.count())
                cut = await self._worst(record, total - record.max_entries)
                writes += [self._is(counter, number), counter.increment(), *self._without_entries(id, cut)]
            if shown:
                writes += [meta.holds(was), meta.set((was.value if was else RankingMeta()).model_copy(update=shown))]
            return [*writes, self._write_record(record)]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhook_secret": change.secret})

    def _name(self, name: Any) -> str:
        shown = text("name", name, 1, NAME_MAX)
        refuse_spam(self.settings, "name", shown)
        return shown

    def _display(self, given: Any) -> str | None:
        if given is None:
            return None
        shown = text("displayScore", given, 1, DISPLAY_MAX)
        refuse_spam(self.settings, "displayScore", shown)
        return shown

    async def _find_standing(self, record: RankingRecord, member: RankingEntry) -> _Standing:
        """What a new score meets. One round trip."""
        scores = self.keys.ranking_scores(record.id)
        worst = scores.lowest(1) if record.sort_order == "desc" else scores.highest(1)
        sequence, own, count, last = await self.keys.run(
            self.keys.ranking_sequence(record.id).get(), scores.score(member), scores.count(), worst
        )
        return _Standing(record, sequence, own, count, last[0][1] if last else None)

    async def _cut_for_one_more(self, standing: _Standing) -> list[RankingEntry]:
        """Who goes where a new entry comes: nobody where it is none, or where there is room."""
        new = 1 if standing.own is None else 0
        return await self._worst(standing.record, standing.entries + new - standing.record.max_entries)

    async def _worst(self, record: RankingRecord, number: int) -> list[RankingEntry]:
        """The entries at the end of the ranking; of equal ones, those that came last."""
        if number <= 0:
            return []
        scores = self.keys.ranking_scores(record.id)
        found = await (scores.lowest(number + 1) if record.sort_order == "desc" else scores.highest(number + 1))
        worst = await self._first(record.id, found, number, last_come=True)
        return [member for member, _ in worst]

    async def _first(self, id: str, found: list[_Placed], number: int, *, last_come: bool = False) -> list[_Placed]:
        """The first `number` from one end, of which one more was read; of equals those that came first, or last.

        The store sorts equals by their names. So where the last of them has others of its score behind it, all of that
        score are looked at.
        """
        ends = found[:number]
        split = found[number][1] if len(found) > number and found[number][1] == ends[-1][1] else None
        by_score: dict[float, list[RankingEntry]] = {}
        for member, score in ends:
            by_score.setdefault(score, []).append(member)
        if split is not None:
            by_score[split] = await self._equal(id, split)
        ordered = await asyncio.gather(*(self._by_turn(id, members) for members in by_score.values()))
        placed = [
            (member, score)
            for score, members in zip(by_score, ordered, strict=True)
            for member in (reversed(members) if last_come else members)
        ]
        return placed[:number]

    async def _equal(self, id: str, score: float) -> list[RankingEntry]:
        """The members of a score: there may be thousands, of which few are shown."""
        return [member for member, _ in await self.keys.ranking_scores(id).between(score, score).if_readable()]

    async def _by_turn(self, id: str, members: list[RankingEntry]) -> list[RankingEntry]:
        """Members of one score, the first to come first. What another program has put in has no turn, and is before."""
        if len(members) <= 1:
            return members
        turns = self.keys.ranking_turns(id)
        if len(members) <= _FEW:
            found = await self.keys.run(*(turns.score(member) for member in members))
            known = dict(zip(members, found, strict=True))
        else:
            known = dict(await turns.lowest(MAX_ENTRIES).if_readable())
        return sorted(members, key=lambda member: known.get(member) or 0)

    async def _rank(self, record: RankingRecord, member: RankingEntry, score: float, has_just_come: bool) -> int | None:
        """The place of an entry; None: it is gone by now. One that has just come is the last of its score."""
        scores = self.keys.ranking_scores(record.id)
        not_worse = (score, inf) if record.sort_order == "desc" else (-inf, score)
        own, count, equal = await self.keys.run(
            scores.score(member), scores.count_between(*not_worse), scores.count_between(score, score)
        )
        if own != score:
            return None
        if equal == 1 or has_just_come:
            return count
        members = await self._by_turn(record.id, await self._equal(record.id, score))
        return count - len(members) + members.index(member) + 1 if member in members else None

    async def _upgrade_steps(self, record: RankingRecord) -> list[Operation[Any]]:
        """Scores of the first layout: with the turn as a fraction, or as the document writes them, with members of
        other forms. Each keeps its place; of one name the best stays.

        It is guarded by the sequence: where an entry came meanwhile, nothing is written.
        """
        id, scores, counter = record.id, self.keys.ranking_scores(record.id), self.keys.ranking_sequence(record.id)
        number, found, kept = await self.keys.run(
            counter.get(), scores.see_lowest(10**9), self.keys.ranking_details(id).get().if_readable()
        )
        placed: dict[RankingEntry, float] = {}
        for seen, score in reversed(found) if record.sort_order == "desc" else found:
            member = _member(_name_of(seen))
            if member not in placed and len(placed) < record.max_entries:
                placed[member] = floor(score) if number else float(score)  # only with a sequence a fraction is a turn
        steps: list[Operation[Any]] = [self._is(counter, number)]
        if record.last_submit is not None:
            steps.append(self.keys.ranking_last(id).add(record.last_submit))
        if found:
            again = counter.set(max(number, len(placed)) + 1)
            steps += [scores.delete(), self.keys.ranking_turns(id).delete(), again]
        listed = list(enumerate(placed, 1))
        for at in range(0, len(listed), _AT_ONCE):
            some = listed[at : at + _AT_ONCE]
            steps += [
                scores.put({member: placed[member] for _, member in some}),
                self.keys.ranking_turns(id).put({member: turn for turn, member in some}),
            ]
        left = {member.unique_id for member in placed}
        if no_more := [one for one in kept or {} if one not in left]:
            steps.append(self.keys.ranking_details(id).remove(*no_more))
        return steps

    async def _too_soon(self, id: str, visitor: Visitor) -> Exception:
        sent = await self.keys.ranking_submit(id, self._visitor_hash(id, visitor)).get()
        left_ms = 1000 if sent is None else deadline_ms(sent) + COOLDOWN_S * 1000 - self.site.now_ms()
        return too_soon(max(1, -(-left_ms // 1000)), "you have just sent a score")

    async def _last_use(self, record: RankingRecord) -> Use:
        return await last_use(self.keys.ranking_last(record.id))

    def _belongings(self, record: RankingRecord) -> list[Key]:
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

    def _marks(self, id: str) -> tuple[SortedSetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.ranking_submitters(id), self.keys.ranking_submit


class _Sent(NamedTuple):
    """A score that was sent."""

    member: RankingEntry
    score: int
    display: str | None


class _Standing(NamedTuple):
    """What stands in a ranking: how many scores were sent, that of one name, how many entries, and the worst score."""

    record: RankingRecord
    sequence: int
    own: float | None
    entries: int
    worst: float | None

    def is_improved_by(self, score: int) -> bool:
        """Whether a score is better than that of its name, and good enough to be kept. Of equals the first stays."""
        is_full = self.own is None and self.entries >= self.record.max_entries
        beaten = self.worst if is_full else self.own
        if beaten is None:
            return True
        return score > beaten if self.record.sort_order == "desc" else score < beaten


def _name_of(seen: Seen[RankingEntry | None]) -> str:
    """The name in a member: as it is written here, as `{name}:{unique_id}` without escapes, or the name alone."""
    if seen.value is not None:
        return seen.value.name
    text = seen.stored.decode("utf-8", "replace")
    return text.rpartition(":")[0] or text


def _member(name: str) -> RankingEntry:
    """One entry a name: the same name is the same member."""
    return RankingEntry(name, sha256(name.encode()).hexdigest()[:16])


def _order(given: Any) -> SortOrder:
    if given not in ORDERS:
        raise wrong("sortOrder", "sortOrder is desc, where the highest score is the best, or asc, where the lowest is")
    found: SortOrder = given
    return found


def _display_score(details: dict[str, RankingDetail], member: RankingEntry) -> str | None:
    detail = details.get(member.unique_id)
    return None if detail is None else detail.display_score
