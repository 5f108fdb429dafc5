"""Sorted sets, with the semantics of Redis: ordered by score, then by the bytes of the member."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from keystead.errors import NotANumber
from keystead.stores.command_options import ScoreBound
from keystead.stores.commands import Call, Reply
from keystead.stores.sql.key_tables import ZSET, KeyRow, KeyTables, span

if TYPE_CHECKING:
    from collections.abc import Callable

    from keystead.stores.command_options import ZAddOptions, ZRangeOptions


def zadd(tables: KeyTables, call: Call) -> Reply:
    options: ZAddOptions = call.options
    flags, key = options.flags, call.args[0]
    row = tables.holding(key, ZSET)
    owner, size = (None, 0) if row is None else (row.id, row.size)
    added = changed = 0
    score: float | None = None
    for member, given in options.pairs:
        held = None if owner is None else tables.score(owner, member)
        score = _next_score(flags, held, given)
        if score is None or score == held:
            continue
        if owner is None:
            owner = tables.create(key, ZSET)
        tables.put_score(key, owner, member, score, new=held is None)
        if held is None:
            added += 1
        else:
            changed += 1
    if added and owner is not None:
        tables.resize(key, owner, size + added)
    if b"INCR" in flags:
        return score
    return added + changed if b"CH" in flags else added


def _next_score(flags: frozenset[bytes], held: float | None, given: float) -> float | None:
    """The new score of a member, or None if the flags leave it unchanged."""
    if held is None:
        return None if b"XX" in flags else given
    if b"NX" in flags:
        return None
    score = held + given if b"INCR" in flags else given
    if math.isnan(score):
        raise NotANumber("the resulting score is not a number")
    if (b"GT" in flags and score <= held) or (b"LT" in flags and score >= held):
        return None
    return score


def zrem(tables: KeyTables, call: Call) -> Reply:
    key, *members = call.args
    row = tables.holding(key, ZSET)
    if row is None:
        return 0
    gone = sum(tables.drop_score(row.id, member) for member in members)
    return _shrink(tables, key, row, gone)


def _shrink(tables: KeyTables, key: bytes, row: KeyRow, gone: int) -> int:
    if gone:
        tables.resize(key, row.id, row.size - gone)
    return gone


def zmscore(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], ZSET)
    if row is None:
        return [None] * (len(call.args) - 1)
    return [tables.score(row.id, member) for member in call.args[1:]]


def zscore(tables: KeyTables, call: Call) -> Reply:
    return zmscore(tables, call)[0]


def zcard(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], ZSET)
    return 0 if row is None else row.size


def _score_condition(tables: KeyTables, low: ScoreBound, high: ScoreBound) -> tuple[str, tuple[float, ...]]:
    """A condition on scores (constant SQL), and its parameters."""
    above, below = ">" if low.exclusive else ">=", "<" if high.exclusive else "<="
    return f"owner = ? AND score {above} ? AND score {below} ?", (
        tables.encode_score(low.score),
        tables.encode_score(high.score),
    )


def zcount(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], ZSET)
    if row is None:
        return 0
    where, bounds = _score_condition(tables, *call.options)
    return tables.execute(f"SELECT count(*) FROM scored WHERE {where}", (row.id, *bounds)).fetchone()[0]  # noqa: S608


def zrank(tables: KeyTables, call: Call) -> Reply:
    return _rank(tables, call, "<")


def zrevrank(tables: KeyTables, call: Call) -> Reply:
    return _rank(tables, call, ">")


def _rank(tables: KeyTables, call: Call, side: str) -> int | None:
    key, member = call.args
    row = tables.holding(key, ZSET)
    score = None if row is None else tables.score(row.id, member)
    if row is None or score is None:
        return None
    before: int = tables.execute(
        f"SELECT count(*) FROM scored WHERE owner = ? AND (score, {tables.member_of(key)}) {side} (?, ?)",  # noqa: S608
        (row.id, tables.encode_score(score), member),
    ).fetchone()[0]
    return before


def zrange(tables: KeyTables, call: Call) -> Reply:
    options: ZRangeOptions = call.options
    key = call.args[0]
    row = tables.holding(key, ZSET)
    if row is None:
        return []
    if options.by_score:
        where, bounds = _score_condition(tables, options.low, options.high)
        offset, count = options.offset, options.limit if options.limit >= 0 else row.size
        if offset < 0 or count == 0:
            return []
    else:
        where, bounds = "owner = ?", ()
        offset, count = span((options.start, options.stop), row.size)
    found = tables.members(
        key, where, (row.id, *bounds), reverse=options.reverse, limit=min(count, row.size), offset=offset
    )
    return [[member, score] for member, score in found] if options.with_scores else [member for member, _ in found]


def zremrangebyscore(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], ZSET)
    if row is None:
        return 0
    where, bounds = _score_condition(tables, *call.options)
    gone = tables.execute(f"DELETE FROM scored WHERE {where}", (row.id, *bounds)).rowcount  # noqa: S608
    return _shrink(tables, call.args[0], row, gone)


def _remove_lowest(tables: KeyTables, key: bytes, row: KeyRow, offset: int, count: int) -> list[list[Reply]]:
    """Remove `count` members from this place in the order, and return them in order."""
    found = tables.members(key, "owner = ?", (row.id,), limit=min(count, row.size), offset=offset)
    for member, _ in found:
        tables.drop_score(row.id, member)
    _shrink(tables, key, row, len(found))
    return [[member, score] for member, score in found]


def zremrangebyrank(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], ZSET)
    if row is None:
        return 0
    offset, count = span(call.options, row.size)
    return len(_remove_lowest(tables, call.args[0], row, offset, count))


def zpopmin(tables: KeyTables, call: Call) -> Reply:
    row = tables.holding(call.args[0], ZSET)
    if row is None:
        return []
    popped = _remove_lowest(tables, call.args[0], row, 0, 1 if call.options is None else call.options)
    return popped[0] if call.options is None else popped


HANDLERS: dict[str, Callable[[KeyTables, Call], Reply]] = {
    "ZADD": zadd,
    "ZREM": zrem,
    "ZSCORE": zscore,
    "ZMSCORE": zmscore,
    "ZCARD": zcard,
    "ZCOUNT": zcount,
    "ZRANK": zrank,
    "ZREVRANK": zrevrank,
    "ZRANGE": zrange,
    "ZREMRANGEBYSCORE": zremrangebyscore,
    "ZREMRANGEBYRANK": zremrangebyrank,
    "ZPOPMIN": zpopmin,
}
