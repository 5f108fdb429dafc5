"""SortedSet: members ordered by a score. For rankings, deadlines, indexes by expiry."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from math import inf
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, Unpack, overload

from keystead.errors import BadValue, Unreadable
from keystead.schema import listing
from keystead.schema.codec import Codec, codec_for
from keystead.schema.family import Family, Options
from keystead.schema.key import Moment, number, truth
from keystead.schema.kinds.growing import GrownKey, refuse_container
from keystead.schema.kinds.value import Seen, seen_or_none
from keystead.schema.operation import Compound, Operation, taking
from keystead.schema.unreadable import log_unreadable
from keystead.stores import TABLE, Call, Reply, Required, StoreMs, at_most, more_than

Score: TypeAlias = float | StoreMs

M = TypeVar("M")
R = TypeVar("R")

_ZSCORE = TABLE["ZSCORE"]
_BEFORE_ALL = -(2**62)


class SortedSetKey(GrownKey, Generic[M]):
    """One key that holds members of type M, each with a score. Equal scores are in the order of the members' bytes.

    A score or a bound may be `store_ms()`, the time of the store in ms, with an offset.
    """

    __slots__ = ()

    def put(self, scores: Mapping[M, Score], **until: Moment) -> Operation[int]:
        """Set the scores of members, new or not; returns how many are new. Atomic."""
        return self._zadd("put", (), scores, until, number)

    def add(self, member: M, score: Score, **until: Moment) -> Operation[bool]:
        """Add a member only if it is missing. Atomic."""
        return self._zadd("add", ("NX",), {member: score}, until, truth)

    def move(self, member: M | Seen[M | None], score: Score, **until: Moment) -> Operation[bool]:
        """Set the score of an existing member. True: it exists, and its score changed. Atomic.

        A `Seen` member may be unreadable.
        """
        return self._zadd("move", ("XX", "CH"), {member: score}, until, truth)

    def raise_to(self, member: M, score: Score, **until: Moment) -> Operation[bool]:
        """Add a member, or raise its score to this one. True: something changed. Atomic."""
        return self._zadd("raise_to", ("GT", "CH"), {member: score}, until, truth)

    def lower_to(self, member: M, score: Score, **until: Moment) -> Operation[bool]:
        """Add a member, or lower its score to this one. True: something changed. Atomic."""
        return self._zadd("lower_to", ("LT", "CH"), {member: score}, until, truth)

    def increment(self, member: M, by: float = 1, **until: Moment) -> Operation[float]:
        """Add to a member's score and return the result; a new member starts at 0. Atomic."""
        return self._zadd("increment", ("INCR",), {member: by}, until, _score)

    def score(self, member: M) -> Operation[float | None]:
        """The score of a member; None: it is not a member."""
        bound, key = self.bound, self.key
        data = bound.family.member.encode(member, key, bound.ring)
        return Operation(bound, "score", [Call(_ZSCORE, [key.encode(), data], None)], _maybe_score)

    def rank(self, member: M) -> Operation[int | None]:
        """The rank of a member from the lowest score on, counted from 0; None: it is not a member."""
        return self._read("rank", ("ZRANK", self.key, self._encode(member)), _first)

    def rank_from_top(self, member: M) -> Operation[int | None]:
        """The rank of a member from the highest score on, counted from 0; None: it is not a member."""
        return self._read("rank_from_top", ("ZREVRANK", self.key, self._encode(member)), _first)

    def lowest(self, limit: int, *, skip: int = 0) -> Operation[list[tuple[M, float]]]:
        """Members with their scores from the lowest score on."""
        return self._range("lowest", limit, skip, (), self._pairs)

    def highest(self, limit: int, *, skip: int = 0) -> Operation[list[tuple[M, float]]]:
        """Members with their scores from the highest score on."""
        return self._range("highest", limit, skip, ("REV",), self._pairs)

    def between(self, low: Score, high: Score, *, limit: int = -1, skip: int = 0) -> Operation[list[tuple[M, float]]]:
        """Members with their scores from `low` to `high`, both included, from the lowest on."""
        command = ("ZRANGE", self.key, *_bounds(low, high), "BYSCORE", "LIMIT", skip, limit, "WITHSCORES")
        return self._timed("between", command, self._pairs)

    def count(self) -> Operation[int]:
        """How many members there are."""
        return self._read("count", ("ZCARD", self.key), number)

    def count_between(self, low: Score, high: Score) -> Operation[int]:
        """How many members have a score from `low` to `high`, both included."""
        return self._timed("count_between", ("ZCOUNT", self.key, *_bounds(low, high)), number)

    def at_most(self, limit: int) -> Operation[bool]:
        """Whether there are at most `limit` members.

        For `atomically`: if there are more, nothing in the batch takes effect. `at_most(4)` before an `add` is a
        sorted set that never has more than 5 members, however many callers there are. `at_most(5)` after it guarantees
        the same, also for a `put` of several, and admits existing members.
        """
        return self._count_at_most("at_most", ("ZCARD", self.key), limit)

    def score_at_most(self, member: M, limit: Score) -> Operation[bool]:
        """Whether the score of a member is at most `limit`; a missing member counts as 0.

        For `atomically`: if it is higher, nothing in the batch takes effect.
        """
        return self._at_most("score_at_most", ("ZSCORE", self.key, self._encode(member)), limit)

    def remove(self, *members: M) -> Operation[int]:
        """Remove members; returns how many there were. Does not extend the lifetime. Atomic."""
        if not members:
            raise BadValue(f"{self.key}: name at least one member")
        return self._read("remove", ("ZREM", self.key, *map(self._encode, members)), number)

    def remove_between(self, low: Score, high: Score) -> Operation[int]:
        """Remove the members with a score from `low` to `high`, both included; returns how many. Atomic."""
        return self._timed("remove_between", ("ZREMRANGEBYSCORE", self.key, *_bounds(low, high)), number)

    def keep_highest(self, count: int) -> Operation[int]:
        """Remove all but the `count` highest; returns how many. Atomic."""
        return self._read("keep_highest", ("ZREMRANGEBYRANK", self.key, 0, -_positive(count, self.key) - 1), number)

    def keep_lowest(self, count: int) -> Operation[int]:
        """Remove all but the `count` lowest; returns how many. Atomic."""
        return self._read("keep_lowest", ("ZREMRANGEBYRANK", self.key, _positive(count, self.key), -1), number)

    def pop_lowest(self, count: int = 1) -> Operation[list[tuple[M, float]]]:
        """Pop the lowest members: concurrent callers never get the same one. Atomic."""
        return self._read("pop_lowest", ("ZPOPMIN", self.key, _positive(count, self.key)), taking(self._pairs))

    def score_is(self, member: M, score: float) -> Operation[bool]:
        """Whether it is a member with exactly this score.

        For `atomically`: if it has not, nothing in the batch takes effect.
        """
        command = ("ZSCORE", self.key, self._encode(member))
        # Required, because for the other guards a missing member has the score 0.
        steps = [at_most(command, score), more_than(command, math.nextafter(score, -math.inf)), Required(command)]
        return Compound(self.bound, "score_is", steps, truth, atomic=True, stopped=False)

    def see_lowest(self, limit: int, *, skip: int = 0) -> Operation[list[tuple[Seen[M | None], float]]]:
        """As `lowest`. Unreadable members have the value None."""
        return self._range("see_lowest", limit, skip, (), self._seen_pairs)

    def between_at_most(self, low: Score, high: Score, limit: int) -> Operation[bool]:
        """Whether at most `limit` members have a score from `low` to `high`, both included.

        For `atomically`: if there are more, nothing in the batch takes effect.
        """
        return self._at_most("between_at_most", ("ZCOUNT", self.key, *_bounds(low, high)), limit)

    async def live(self) -> list[M]:
        """The members whose records exist, lowest first. Dead entries are pruned. Two round trips, or three."""
        return await listing.live(self.bound, self.key)

    async def pages(self, high: float = math.inf, *, page: int = 500) -> AsyncIterator[list[M]]:
        """The readable members with a score of at most `high`, in pages, from the lowest on.

        For a loop that removes members: a page starts after those of the last page that are still there, because
        removals shift the others. A member that is added or moved meanwhile may or may not be included. Two or three
        round trips per page. If members are unreadable, one line is logged.
        """
        store, key, skip = self.bound.store, self.key, 0
        skipped: Unreadable | None = None
        while True:
            try:
                [found] = await store.run([("ZRANGE", key, -math.inf, high, "BYSCORE", "LIMIT", skip, page)])
            except Unreadable as error:
                log_unreadable(store, error)
                return
            if not found:
                return
            members = []
            for data in found:
                try:
                    members.append(self.bound.family.member.decode(data, key, self.bound.ring))
                except Unreadable as error:
                    skipped = skipped or error
            if skipped is not None:
                log_unreadable(store, skipped)
            yield members
            [last] = await store.run([("ZRANK", key, found[-1])])
            if last is not None:
                skip = last + 1
                continue
            there = await store.run([("ZSCORE", key, data) for data in found])
            skip += sum(score is not None for score in there)

    def _zadd(
        self,
        verb: str,
        flags: tuple[str, ...],
        scores: Mapping[Any, Score],
        until: dict[str, Moment],
        finish: Callable[[list[Reply]], R],
    ) -> Operation[R]:
        if not (hasattr(scores, "items") and scores):
            raise BadValue(f"{self.key}: pass at least one member with its score, as in {{member: 1}}")
        pairs: list[Any] = []
        for member, score in scores.items():
            if type(score) not in (int, float, StoreMs) or score != score:
                raise BadValue(f"{self.key}: a score must be a number, not {type(score).__name__}")
            pairs += (score, self._encode(member))
        return self._write(verb, [("ZADD", self.key, *flags, *pairs)], finish, until)

    def _range(
        self, verb: str, limit: int, skip: int, options: tuple[str, ...], finish: Callable[[list[Reply]], R]
    ) -> Operation[R]:
        if type(limit) is not int or type(skip) is not int or limit < 0 or skip < 0:
            raise BadValue(f"{self.key}: limit and skip must be whole numbers from 0")
        # A stop before the first index returns nothing, as a limit of 0 should.
        stop = skip + limit - 1 if limit else _BEFORE_ALL
        return self._read(verb, ("ZRANGE", self.key, skip, stop, *options, "WITHSCORES"), finish)

    def _encode(self, member: M | Seen[M | None]) -> bytes:
        if isinstance(member, Seen):
            return member.stored
        data: bytes = self.bound.family.member.encode(member, self.key, self.bound.ring)
        return data

    def _pairs(self, replies: list[Reply]) -> list[tuple[M, float]]:
        decode = self.bound.family.member.decode
        return [(decode(data, self.key, self.bound.ring), score) for data, score in replies[0]]

    def _seen_pairs(self, replies: list[Reply]) -> list[tuple[Seen[M | None], float]]:
        codec, key, ring = self.bound.family.member, self.key, self.bound.ring
        return [(seen_or_none(codec, data, key, ring), score) for data, score in replies[0]]


class SortedSet(Family[SortedSetKey[M]], Generic[M]):
    """A family of sorted sets: `SortedSet("ranking:{id}:scores", str, lifetime=never("deleted with its ranking"))`."""

    kind: ClassVar[str] = "zset"
    kind_name: ClassVar[str] = "SortedSet"
    verbs: ClassVar[type[Any]] = SortedSetKey

    @overload
    def __init__(
        self, pattern: str, member: type[M] | Codec[M], *, score: str = "", **options: Unpack[Options]
    ) -> None: ...
    @overload  # Literal, Annotated and unions are not classes to a type checker
    def __init__(
        self: SortedSet[Any], pattern: str, member: object, *, score: str = "", **options: Unpack[Options]
    ) -> None: ...
    def __init__(self, pattern: str, member: Any, *, score: str = "", **options: Unpack[Options]) -> None:
        """`score` describes the score, for the key document."""
        super().__init__(pattern, **options)
        self.member: Codec[M] = member if isinstance(member, Codec) else codec_for(member, where=pattern)
        refuse_container(pattern, self.member)
        self.score_means = score

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        return {"member": self.member}

    @property
    def value_shape(self) -> str:
        return f"member: {self.member.describe()}; score: {self.score_means or 'number'}"


def _positive(count: int, key: str) -> int:
    if type(count) is not int or count < 1:
        raise BadValue(f"{key}: a count must be a whole number from 1")
    return count


def _bounds(low: Score, high: Score) -> tuple[Any, Any]:
    """Bounds as the store takes them; an open one is a constant word."""
    return "-inf" if low == -inf else low, "+inf" if high == inf else high


def _first(replies: list[Reply]) -> Any:
    return replies[0]


def _score(replies: list[Reply]) -> float:
    return float(replies[0])


def _maybe_score(replies: list[Reply]) -> float | None:
    return None if replies[0] is None else float(replies[0])
