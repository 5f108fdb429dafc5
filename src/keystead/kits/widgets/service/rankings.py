"""Rankings: names by their best scores, and no more of them than the ranking holds.

A score in the store is the score of the entry and a fraction below one, which is the order in which entries came: so
entries are never equal, the first of those with the same score is the best of them, and the store itself sorts and cuts
off. Every change of the scores moves the sequence that the fractions come from on, and is guarded by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from math import floor
from typing import Any, Final, NamedTuple, get_args

from keystead.kits.widgets.models import RankingDetail, RankingEntry, RankingMeta, RankingRecord, SortOrder
from keystead.kits.widgets.service.checks import checked_id, refuse_spam, text, whole
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.nicknames import nickname
from keystead.kits.widgets.service.outcomes import Created, Entry, Owner, RankingData, Visitor
from keystead.kits.widgets.service.records import ATTEMPTS, apart, contended
from keystead.kits.widgets.service.refused import WidgetRefused, too_soon, wrong
from keystead.kits.widgets.service.services import UNSET, Service
from keystead.schema import Bound, Operation
from keystead.schema.kinds import SortedSetKey, ValueKey
from keystead.schema.kinds.value import Seen
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

# A score has 30 bits at most, and a number of the store 53.
_STEPS: Final = 2**23
_AT_ONCE: Final = 2000  # entries that are written with one command

# Places of the operations of a submit.
_MARK, _DETAILS, _ENTRIES = 1, 7, 8


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
            lambda values: RankingRecord(**values, maxEntries=most, sortOrder=order),
            id=id,
            webhook_url=webhook_url,
            first=lambda new: [self.keys.ranking_meta(new).set(meta)],
        )

    async def submit(
        self, id: Any, visitor: Visitor, name: Any = UNSET, score: Any = None, display_score: Any = None
    ) -> RankingData:
        """Send a score. It stands if the name has none or a worse one; then the visitor waits 60 seconds for the next.
        Whoever gives no name is called by a nickname.

        Two round trips, the second one atomic; and three that read what is shown.
        """
        called = nickname(self._visitor_hash(checked_id(id), visitor)) if name is UNSET else self._name(name)
        sent = _Sent(_member(called), whole("score", score), self._display(display_score))
        limit: str | None = "write"
        async with self._turn(id):
            for attempt in range(ATTEMPTS):
                await self._met(id, limit, visitor)
                standing = await self._standing(id, sent.member)
                step = partial(self._submitted, visitor, sent, standing)
                seen, done = await self._guarded(id, limit, visitor, step)
                limit = None  # it is counted
                if done.stopped_at == _MARK:
                    raise await self._too_soon(id, visitor)
                if done:
                    improved = standing.is_improved_by(sent, seen.value)
                    self.site.count("widgets", "score", "better" if improved else "not-better")
                    if improved and done.values[_DETAILS] > 2 * done.values[_ENTRIES] + 16:
                        await self._drop_details(seen)
                    data = await self.get(id)
                    rank = await self._rank(seen.value, sent.member)
                    return data.model_copy(update={"improved": improved, "rank": rank})
                await apart(attempt)
        raise contended()

    def _submitted(
        self, visitor: Visitor, sent: _Sent, standing: _Standing, seen: Seen[RankingRecord]
    ) -> Sequence[Operation[Any]]:
        """What stands is what was read: every change of the scores moves the sequence on."""
        record, keys, at = seen.value, self.keys, moment(self.site.now_ms())
        id, scores, counter = record.id, keys.ranking_scores(record.id), keys.ranking_sequence(record.id)
        mark = keys.ranking_submit(id, self._visitor_hash(id, visitor))
        sequence = standing.sequence
        if not standing.is_improved_by(sent, record):
            return [self._is(counter, sequence), mark.holds(None)]
        told = {"name": sent.member.name, "score": sent.score, "displayScore": sent.display}
        return [
            self._is(counter, sequence),
            mark.add(at),
            scores.put({sent.member: _placed(sent.score, sequence + 1, record.sortOrder)}),
            _cut(scores, record),
            counter.increment(),
            keys.ranking_details(id).put({sent.member.unique_id: RankingDetail(displayScore=sent.display, at=at)}),
            keys.ranking_last(id).set(at),
            keys.ranking_details(id).count(),
            scores.count(),
            *self._hooks.told(self.name, record, "ranking.submit", told),
        ]

    async def get(self, id: Any, limit: Any = SHOWN, visitor: Visitor | None = None) -> RankingData:
        """The best, in order. Two round trips."""
        count = whole("limit", limit, 1, SHOWN_MAX)

        def operations() -> list[Operation[Any]]:
            keys, scores = self.keys, self.keys.ranking_scores(id)
            # Which end is the best, only the record says.
            return [
                keys.ranking_meta(id).get(),
                scores.count(),
                keys.ranking_last(id).get(),
                scores.highest(count),
                scores.lowest(count),
            ]

        record, (meta, total, last, highest, lowest) = await self._read(id, visitor, operations)
        best = highest if record.sortOrder == "desc" else lowest
        ids = [member.unique_id for member, _ in best]
        details = await self.keys.ranking_details(id).fields(*ids) if ids else {}
        return RankingData(
            id=record.id,
            url=record.url,
            title=None if meta is None else meta.title,
            description=None if meta is None else meta.description,
            entries=[
                Entry(rank=rank, name=member.name, score=floor(score), displayScore=_shown(details, member))
                for rank, (member, score) in enumerate(best, 1)
            ],
            totalEntries=total,
            maxEntries=record.maxEntries,
            sortOrder=record.sortOrder,
            lastSubmit=iso(last),
        )

    async def update(
        self, owner: Owner, name: Any, score: Any, display_score: Any = None, *, visitor: Visitor
    ) -> RankingData:
        """Write an entry, better or worse, new or not."""
        shown, number, detail = self._name(name), whole("score", score), self._display(display_score)
        member = _member(shown)

        async def step(seen: Seen[RankingRecord]) -> Sequence[Operation[Any]]:
            record, at = seen.value, moment(self.site.now_ms())
            sequence = await self._sequence(record.id)
            scores = self.keys.ranking_scores(record.id)
            return [
                self._is(self.keys.ranking_sequence(record.id), sequence),
                self.keys.ranking_sequence(record.id).increment(),
                scores.put({member: _placed(number, sequence + 1, record.sortOrder)}),
                self.keys.ranking_details(record.id).put({member.unique_id: RankingDetail(displayScore=detail, at=at)}),
                _cut(scores, record),
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
                scores.remove(member),
                self.keys.ranking_details(id).remove(member.unique_id),
            ]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def clear(self, owner: Owner, *, visitor: Visitor) -> RankingData:
        """Take all entries out."""

        async def step(seen: Seen[RankingRecord]) -> Sequence[Operation[Any]]:
            id = seen.value.id
            return [
                self.keys.ranking_sequence(id).increment(),
                self.keys.ranking_scores(id).delete(),
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
            kept["maxEntries"] = whole("max", max_entries, 1, MAX_ENTRIES)
        if sort_order is not UNSET:
            kept["sortOrder"] = _order(sort_order)
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[RankingRecord]) -> Sequence[Operation[Any]]:
            id = seen.value.id
            record = change.of(seen.value).model_copy(update=kept)
            meta = self.keys.ranking_meta(id)
            was = await meta.see()
            writes: list[Operation[Any]] = []
            if record.sortOrder != seen.value.sortOrder:
                writes += await self._numbered_anew(record, seen.value.sortOrder)
            if shown:
                writes += [meta.holds(was), meta.set((was.value if was else RankingMeta()).model_copy(update=shown))]
            return [self._written(record), *writes, _cut(self.keys.ranking_scores(id), record)]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhookSecret": change.secret})

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

    async def _standing(self, id: str, member: RankingEntry) -> _Standing:
        """What a new score meets. One round trip, but for once in eight million."""
        counter, scores = self.keys.ranking_sequence(id), self.keys.ranking_scores(id)

        async def read() -> _Standing:
            number, own, count, low, high = await self.keys.run(
                counter.get(), scores.score(member), scores.count(), scores.lowest(1), scores.highest(1)
            )
            return _Standing(number, own, count, low[0][1] if low else None, high[0][1] if high else None)

        found = await read()
        if found.sequence < _STEPS - 1:
            return found
        await self._sequence(id)
        return await read()

    async def _sequence(self, id: str) -> int:
        """How many scores were sent. Before it is used up, those that stand are numbered from one again."""
        number = await self.keys.ranking_sequence(id).get()
        if number < _STEPS - 1:
            return number
        seen = await self._known(id)
        anew = await self._numbered_anew(seen.value, seen.value.sortOrder)
        await self.keys.atomically(self._records(id).holds(seen), *anew)
        return await self.keys.ranking_sequence(id).get()

    async def _numbered_anew(self, record: RankingRecord, was: SortOrder) -> list[Operation[Any]]:
        """Writes all entries with fractions from one on, in the order in which they came, for the order of the record.

        It is guarded by the sequence: where an entry came meanwhile, nothing is written.
        """
        scores, counter = self.keys.ranking_scores(record.id), self.keys.ranking_sequence(record.id)
        number, entries = await self.keys.run(counter.get(), scores.lowest(MAX_ENTRIES))
        came = sorted(entries, key=lambda entry: _came(entry[1], was))
        placed = {
            member: _placed(floor(score), place, record.sortOrder) for place, (member, score) in enumerate(came, 1)
        }
        listed = list(placed.items())
        writes = [scores.put(dict(listed[at : at + _AT_ONCE])) for at in range(0, len(listed), _AT_ONCE)]
        return [self._is(counter, number), *writes, counter.set(len(listed) + 1)]

    async def _rank(self, record: RankingRecord, member: RankingEntry) -> int | None:
        scores = self.keys.ranking_scores(record.id)
        place = await (scores.rank_from_top(member) if record.sortOrder == "desc" else scores.rank(member))
        return None if place is None else place + 1

    async def _too_soon(self, id: str, visitor: Visitor) -> Exception:
        sent = await self.keys.ranking_submit(id, self._visitor_hash(id, visitor)).get()
        left_ms = 1000 if sent is None else deadline_ms(sent) + COOLDOWN_S * 1000 - self.site.now_ms()
        return too_soon(max(1, -(-left_ms // 1000)), "you have just sent a score")

    async def _drop_details(self, record: Seen[RankingRecord]) -> None:
        """Take out what is left of entries that were cut off. An entry that came back meanwhile keeps its own."""
        id = record.value.id
        scores, details = self.keys.ranking_scores(id), self.keys.ranking_details(id)
        counter = self.keys.ranking_sequence(id)
        number = await counter.get()  # before the entries: whatever comes after this is noticed
        entries, kept = await self.keys.run(scores.lowest(MAX_ENTRIES), details.get())
        there = {member.unique_id for member, _ in entries}
        gone = [one for one in kept or {} if one not in there]
        for at in range(0, len(gone), _AT_ONCE):
            guards = self._records(id).holds(record), self._is(counter, number)
            if not await self.keys.atomically(*guards, details.remove(*gone[at : at + _AT_ONCE])):
                return  # a score came meanwhile; the next one tries again

    def _belongings(self, record: RankingRecord) -> list[str]:
        keys, id = self.keys, record.id
        families = (
            keys.ranking_scores,
            keys.ranking_details,
            keys.ranking_sequence,
            keys.ranking_last,
            keys.ranking_meta,
            keys.ranking_submitters,
        )
        return [family(id).key for family in families]

    def _marks(self, id: str) -> tuple[SortedSetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.ranking_submitters(id), self.keys.ranking_submit


class _Sent(NamedTuple):
    """A score that was sent."""

    member: RankingEntry
    score: int
    display: str | None


class _Standing(NamedTuple):
    """What stands in a ranking: how many scores were sent, that of one name, how many entries, and both ends."""

    sequence: int
    own: float | None
    entries: int
    lowest: float | None
    highest: float | None

    def is_improved_by(self, sent: _Sent, record: RankingRecord) -> bool:
        """Whether a score is better than that of its name, and good enough to be kept. Of equals the first stays."""
        worst = self.lowest if record.sortOrder == "desc" else self.highest
        is_full = self.own is None and self.entries >= record.maxEntries
        beaten = worst if is_full else self.own
        if beaten is None:
            return True
        return sent.score > floor(beaten) if record.sortOrder == "desc" else sent.score < floor(beaten)


def _member(name: str) -> RankingEntry:
    """One entry a name: the same name is the same member."""
    return RankingEntry(name, sha256(name.encode()).hexdigest()[:16])


def _placed(score: int, sequence: int, order: SortOrder) -> float:
    """The score in the store: of equals, whoever came first is nearer to the best."""
    fraction = sequence / _STEPS
    return score + (1 - fraction if order == "desc" else fraction)


def _came(placed: float, order: SortOrder) -> float:
    """When an entry came, as against others."""
    fraction = placed - floor(placed)
    return 1 - fraction if order == "desc" else fraction


def _cut(scores: SortedSetKey[RankingEntry], record: RankingRecord) -> Operation[Any]:
    """Takes out all but the best that the ranking holds."""
    keep = scores.keep_highest if record.sortOrder == "desc" else scores.keep_lowest
    return keep(record.maxEntries)


def _order(given: Any) -> SortOrder:
    if given not in ORDERS:
        raise wrong("sortOrder", "sortOrder is desc, where the highest score is the best, or asc, where the lowest is")
    found: SortOrder = given
    return found


def _shown(details: dict[str, RankingDetail], member: RankingEntry) -> str | None:
    detail = details.get(member.unique_id)
    return None if detail is None else detail.displayScore
