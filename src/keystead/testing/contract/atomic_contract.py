"""Atomic steps: everything takes effect, or nothing does."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from keystead.errors import BadArgument, CommandError, NotANumber, UnknownCommand, WrongKind
from keystead.stores import (
    Command,
    Step,
    Store,
    absent,
    at_most,
    field_holds,
    holds,
    more_than,
    required,
    still,
    store_ms,
)
from keystead.stores.commands import INT64_MAX, INT64_MIN
from keystead.testing.contract.contract_base import Promises, clock_ms, expect, needs
from keystead.testing.contract.string_contract import Strings


async def hours_ahead(store: Store) -> int:
    """A deadline on the hour, so that a look at it can be rounded and never falls between two answers."""
    return (await clock_ms(store) // 3_600_000 + 2) * 3_600_000


class Atomic(Promises):
    async def contents(self, store: Store) -> dict[bytes, Any]:
        """Everything under the test's prefix, with kinds and deadlines."""
        keys = sorted({key async for page in store.scan() for key in page})
        readers: dict[bytes, tuple[str, tuple[str | int, ...]]] = {
            b"string": ("GET", ()),
            b"hash": ("HGETALL", ()),
            b"set": ("SMEMBERS", ()),
            b"zset": ("ZRANGE", (0, -1, "WITHSCORES")),
            b"list": ("LRANGE", (0, -1)),
            b"stream": ("XRANGE", ("-", "+")),
        }
        found = {}
        for key in keys:
            kind, left, now_ms = await store.run([("TYPE", key), ("PTTL", key), ("TIME",)])
            name, rest = readers[kind]
            [value] = await store.run([(name, key, *rest)])
            # All deadlines here are on the hour: see `hours_ahead`.
            deadline = None if left < 0 else round((int(now_ms[0]) * 1000 + left) / 60_000)
            found[key] = (kind, value, deadline)
        return found

    @needs("atomic")
    async def test_all_steps_take_effect_and_answer_in_order(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        outcome = await store.atomically([("SET", a, "1"), ("INCRBY", b, 5), ("GET", a), ("MGET", a, b)])
        assert outcome
        assert outcome.stopped_at is None
        assert outcome.replies == [b"OK", 5, b"1", [b"1", b"5"]]

    @needs("atomic")
    async def test_no_steps_are_no_work(self, store: Store) -> None:
        outcome = await store.atomically([])
        assert outcome
        assert outcome.replies == []

    @needs("atomic", "hash", "set", "zset", "list", "stream")
    async def test_replies_have_the_shapes_that_run_gives(self, store: Store) -> None:
        h, s, z, q, x = (self.key(name) for name in ("h", "s", "z", "q", "x"))
        await store.run(
            [
                *(("HSET", h, "f", "v"), ("SADD", s, "m"), ("ZADD", z, 1.5, "m", "inf", "n"), ("RPUSH", q, "i")),
                ("XADD", x, "1-1", "f", "v"),
            ]
        )
        reads: list[tuple[str | bytes | int | float, ...]] = [
            *(("HGETALL", h), ("HGETALL", self.key("none")), ("HMGET", h, "f", "none"), ("SMEMBERS", s)),
            *(("SMEMBERS", self.key("none")), ("ZSCORE", z, "m"), ("ZSCORE", z, "none"), ("ZMSCORE", z, "n", "none")),
            *(("ZRANGE", z, 0, -1, "WITHSCORES"), ("ZRANGE", z, 0, -1), ("LRANGE", q, 0, -1), ("TYPE", z)),
            *(("XRANGE", x, "-", "+"), ("GET", self.key("none")), ("MGET", self.key("none")), ("PTTL", q)),
            *(("ZADD", z, "INCR", 0.1, "m"), ("ZADD", z, "NX", "INCR", 1, "m"), ("ZPOPMIN", z), ("ZPOPMIN", z, 1)),
            *(("LPOP", q, 1), ("LPOP", q), ("LPOP", q, 1), ("EXISTS", q), ("XADD", x, "2-1", "f", "v")),
        ]
        outcome = await store.atomically(reads)
        nothing = self.key("none")
        assert outcome.replies == [
            *({b"f": b"v"}, {}, [b"v", None], {b"m"}),
            *(set(), 1.5, None, [float("inf"), None]),
            *([[b"m", 1.5], [b"n", float("inf")]], [b"m", b"n"], [b"i"], b"zset"),
            *([[b"1-1", [b"f", b"v"]]], None, [None], -1),
            *(1.6, None, [b"m", 1.6], [[b"n", float("inf")]]),
            *([b"i"], None, None, 0, b"2-1"),
        ]
        assert [type(reply) for reply in outcome.replies[5:6]] == [float]
        await expect(store, (("EXISTS", nothing, z, q), 0))

    @needs("atomic")
    async def test_a_required_step_with_nil_or_zero_stops_the_rest(self, store: Store) -> None:
        a, total = self.key("a"), self.key("total")
        visit: list[Step] = [required(("SET", a, "1", "NX")), ("INCRBY", total, 1)]
        first, second = await store.atomically(visit), await store.atomically(visit)
        assert (bool(first), first.stopped_at, first.replies) == (True, None, [b"OK", 1])
        assert (bool(second), second.stopped_at, second.replies) == (False, 0, [None])
        zero = await store.atomically([("INCRBY", total, 1), required(("EXISTS", self.key("none"))), ("DEL", total)])
        assert (bool(zero), zero.stopped_at, zero.replies) == (False, 1, [2, 0])
        await expect(store, (("GET", total), b"1"))

    @needs("atomic", "set", "list")
    async def test_a_required_step_goes_on_with_anything_but_nil_and_zero(self, store: Store) -> None:
        a, none = self.key("a"), self.key("none")
        outcome = await store.atomically(
            [
                *(required(("SET", a, "")), required(("GET", a)), required(("INCRBY", self.key("n"), -1))),
                *(required(("SMEMBERS", none)), required(("LRANGE", none, 0, -1)), required(("MGET", none))),
            ]
        )
        assert outcome.replies == [b"OK", b"", -1, set(), [], [None]]
        assert outcome

    @needs("atomic", "hash", "set", "zset", "list", "stream")
    async def test_a_stop_after_writes_undoes_every_one_of_them(self, store: Store) -> None:
        at_ms = await hours_ahead(store)
        kinds = ("string", "hash", "set", "zset", "list", "stream")
        for kind in kinds:
            key, dying = self.key(kind), self.key(f"dying {kind}")
            await store.run(
                [Strings.of_kind(kind, key), Strings.of_kind(kind, dying), ("PEXPIREAT", dying, at_ms)],
            )
        s, h, m, z, q, x = (self.key(kind) for kind in kinds)
        before = await self.contents(store)
        writes: list[list[tuple[str | bytes | int, ...]]] = [
            [("SET", s, "changed")],
            [("SET", s, "changed", "PX", 10)],
            [("INCRBY", self.key("new"), 1), ("EXPIRE", self.key("new"), 10)],
            [("DEL", *(self.key(kind) for kind in kinds))],
            [("DEL", *(self.key(f"dying {kind}") for kind in kinds)), ("HSET", self.key("dying list"), "f", "v")],
            [("PERSIST", self.key(f"dying {kind}")) for kind in kinds],
            [("PEXPIREAT", self.key(kind), at_ms + 3_600_000) for kind in kinds],
            [("PEXPIREAT", self.key(kind), 1) for kind in kinds],
            [("GETDEL", s), ("RPUSH", s, "now a list")],
            [("GETEX", self.key("dying string"), "PERSIST")],
            [("SET", self.key("dying string"), "changed", "KEEPTTL")],
            [("SET", h, "no hash any more"), ("SET", m, "no set"), ("SET", z, "-"), ("SET", q, "-"), ("SET", x, "-")],
            [("HSET", h, "f", "changed", "g", "new"), ("HDEL", h, "f"), ("HINCRBY", h, "n", 5)],
            [("HDEL", h, "f")],
            [("SADD", m, "y"), ("SREM", m, "x", "y")],
            [("ZADD", z, 9, "x", 8, "y"), ("ZPOPMIN", z, 2), ("ZADD", z, 1, "z")],
            [("ZREMRANGEBYSCORE", z, "-inf", "inf")],
            [("LPUSH", q, "a"), ("RPUSH", q, "b"), ("LSET", q, 0, "c"), ("LPOP", q), ("LREM", q, 0, "x"), ("RPOP", q)],
            [("LTRIM", q, 1, 0)],
            [("XADD", x, "9-9", "f", "v"), ("XDEL", x, "1-1"), ("XTRIM", x, "MAXLEN", 0)],
        ]
        for steps in writes:
            outcome = await store.atomically([*steps, required(("GET", self.key("none")))])
            assert outcome.stopped_at == len(steps), steps
            assert len(outcome.replies) == len(steps) + 1
            assert await self.contents(store) == before, steps
        # An id that was taken back may be given again.
        assert await store.atomically([("XADD", x, "1-2", "f", "v")])

    @needs("atomic", "hash")
    async def test_numbers_of_64_bits_come_back_whole(self, store: Store) -> None:
        n, h = self.key("n"), self.key("h")
        outcome = await store.atomically(
            [
                *(("INCRBY", n, INT64_MAX), ("DECRBY", n, 1), ("INCRBY", n, -INT64_MAX), ("DECRBY", n, INT64_MAX)),
                *(("INCRBY", n, 2**53 + 2), ("HINCRBY", h, "f", INT64_MAX - 1), ("HINCRBY", h, "f", 1), ("GET", n)),
            ]
        )
        assert outcome.replies == [
            *(INT64_MAX, INT64_MAX - 1, -1, -INT64_MAX - 1),
            *(2**53 + 1 - INT64_MAX, INT64_MAX - 1, INT64_MAX, b"%d" % (2**53 + 1 - INT64_MAX)),
        ]

    @needs("atomic")
    async def test_what_was_undone_never_shows_in_another_key(self, store: Store) -> None:
        a, b, c, none = (self.key(name) for name in ("a", "b", "c", "none"))
        assert not await store.atomically([("SET", a, "1"), ("SET", b, "1"), required(("GET", none))])
        await expect(
            store,
            (("SET", c, "3"), b"OK"),
            (("SET", a, "4"), b"OK"),
            (("GET", b), None),
            (("MGET", a, b, c), [b"4", None, b"3"]),
        )

    @needs("atomic", "hash")
    async def test_an_error_of_any_step_undoes_all_and_names_it(self, store: Store) -> None:
        a, b, text = self.key("a"), self.key("b"), self.key("text")
        await store.run([("SET", text, "x"), ("SET", b, "kept", "PXAT", await hours_ahead(store))])
        before = await self.contents(store)
        for bad, error in (
            (("INCRBY", text, 1), NotANumber),
            (("HSET", text, "f", "v"), WrongKind),
            (required(("HGET", text, "f")), WrongKind),
            (field_holds(text, "f", "v"), WrongKind),
            (at_most(("HLEN", text), 9), WrongKind),
            (at_most(("GET", text), 9), NotANumber),
            (("NOPE", text), UnknownCommand),
        ):
            with pytest.raises(error) as caught:
                await store.atomically([("SET", a, "1"), ("SET", b, "lost"), ("DEL", b), bad, ("SET", a, "2")])
            assert isinstance(caught.value, CommandError)
            if error is not UnknownCommand:
                assert caught.value.key == text
                assert caught.value.command
            assert await self.contents(store) == before

    @needs("atomic", "hash", "set", "zset", "list", "stream")
    async def test_an_error_that_shows_only_when_a_step_runs_undoes_all(self, store: Store) -> None:
        a, none = self.key("a"), self.key("none")
        s, h, m, z, q, x = (self.key(name) for name in ("s", "h", "m", "z", "q", "x"))
        start: list[tuple[str | bytes | int, ...]] = [
            *(("SET", s, "01"), ("HSET", h, "f", "-0", "max", INT64_MAX), ("SADD", m, "x"), ("ZADD", z, "inf", "x")),
            *(("RPUSH", q, "x"), ("XADD", x, "5-5", "f", "v"), ("SET", a, INT64_MAX, "PXAT", await hours_ahead(store))),
        ]
        failing: list[list[tuple[str | bytes | int, ...]]] = [
            [("INCRBY", s, 1)],
            [("INCRBY", a, 1)],
            [("HINCRBY", h, "f", 1)],
            [("HINCRBY", h, "max", 1)],
            [("ZADD", z, "INCR", "-inf", "x")],
            [("LSET", none, 0, "x")],
            [("LSET", q, 5, "x")],
            [("XADD", x, "5-5", "f", "v")],
            [("XADD", x, "4-*", "f", "v")],
            [("SET", m, "x", "GET")],
            [("SET", none, "x"), ("HSET", none, "f", "v")],
            [("SET", none, "x"), ("INCRBY", none, 1)],
            [("HSET", none, "f", "x"), ("HINCRBY", none, "f", 1)],
            [("RPUSH", none, "x"), ("INCRBY", none, 1)],
            [("DEL", m), ("RPUSH", m, "x"), ("SADD", m, "y")],
            [("DEL", q), ("LSET", q, 0, "x")],
            [("LTRIM", q, 1, 0), ("LSET", q, 0, "x")],
            [("XADD", none, "5-5", "f", "v"), ("XADD", none, "5-5", "f", "v")],
            [("INCRBY", self.key("n"), INT64_MAX), ("INCRBY", self.key("n"), 1)],
        ]
        not_undone = []
        for steps in failing:
            await store.run([("DEL", key) for key in (a, none, s, h, m, z, q, x, self.key("first"), self.key("n"))])
            await store.run(start)
            before = await self.contents(store)
            with pytest.raises(CommandError) as caught:
                await store.atomically([("SET", self.key("first"), "1"), ("PERSIST", a), *steps, ("SET", none, "last")])
            assert (caught.value.command, caught.value.key) == (steps[-1][0], steps[-1][1])
            if await self.contents(store) != before:
                not_undone.append(steps)
        assert not_undone == []

    @needs("atomic", "hash", "zset")
    async def test_a_required_step_that_wrote_before_it_stopped_is_undone_too(self, store: Store) -> None:
        n, h, z, s = (self.key(name) for name in ("n", "h", "z", "s"))
        await store.run([("SET", n, 1), ("HSET", h, "f", "1", "n", 1), ("ZADD", z, 1, "m")])
        before = await self.contents(store)
        for command in (
            ("DECRBY", n, 1),
            ("INCRBY", n, -1),
            ("HSET", h, "f", "2"),
            ("HINCRBY", h, "n", -1),
            ("ZADD", z, 2, "m"),
            ("SET", s, "new", "GET"),
        ):
            outcome = await store.atomically([required(command)])
            assert outcome.stopped_at == 0, command
            assert await self.contents(store) == before, command

    @needs("atomic")
    async def test_a_guard_goes_on_only_if_the_key_still_holds_the_value(self, store: Store) -> None:
        lock = self.key("lock")
        await store.run([("SET", lock, "mine")])
        theirs = await store.atomically([holds(lock, "theirs"), ("DEL", lock)])
        assert (bool(theirs), theirs.stopped_at, theirs.replies) == (False, 0, [0])
        await expect(store, (("GET", lock), b"mine"))
        mine = await store.atomically([holds(lock, b"mine"), ("DEL", lock)])
        assert (bool(mine), mine.replies) == (True, [1, 1])
        await expect(store, (("EXISTS", lock), 0))

    @needs("atomic")
    async def test_a_guard_for_absence_goes_on_only_if_nothing_is_there(self, store: Store) -> None:
        a = self.key("a")
        assert await store.atomically([holds(a, None), ("SET", a, "")])
        assert not await store.atomically([holds(a, None), ("SET", a, "2")])
        assert await store.atomically([holds(a, ""), ("SET", a, "3")])
        await expect(store, (("GET", a), b"3"))

    @needs("atomic")
    async def test_a_guard_compares_bytes_and_nothing_else(self, store: Store) -> None:
        a = self.key("a")
        for held, close in ((b"1", b"1.0"), (b"10", b"1e1"), (b"a", b"a\x00"), (b"", b"\x00"), (b"\xff", b"\xc3\xbf")):
            await store.run([("SET", a, held)])
            assert not await store.atomically([holds(a, close)])
            assert await store.atomically([holds(a, held)])
        await store.run([("SET", a, "10")])
        assert await store.atomically([holds(a, 10)])

    @needs("atomic", "hash")
    async def test_a_guard_of_a_field_compares_that_field(self, store: Store) -> None:
        h = self.key("h")
        assert await store.atomically([field_holds(h, "version", None), ("HSET", h, "version", 1)])
        assert not await store.atomically([field_holds(h, "version", None), ("HSET", h, "version", 1)])
        assert not await store.atomically([field_holds(h, "version", 2), ("HSET", h, "version", 3)])
        assert await store.atomically([field_holds(h, "version", 1), ("HSET", h, "version", 2)])
        assert await store.atomically([field_holds(h, "other", None), ("HSET", h, "other", "x")])
        await expect(store, (("HGETALL", h), {b"version": b"2", b"other": b"x"}))

    @needs("atomic", "hash")
    async def test_a_guard_of_absence_holds_for_no_kind_of_key(self, store: Store) -> None:
        a, h, n = self.key("a"), self.key("h"), self.key("n")
        assert (await store.atomically([absent(a), absent(h), ("SET", a, "1"), ("HSET", h, "f", "1")])).replies[:2] == [
            1,
            1,
        ]
        for there in (a, h):
            stopped = await store.atomically([("INCRBY", n, 1), absent(there), ("SET", a, "2")])
            assert (stopped.stopped_at, stopped.replies) == (1, [1, 0])
        await expect(store, (("GET", a), b"1"), (("EXISTS", n), 0))
        assert await store.atomically([("DEL", h), absent(h), ("INCRBY", n, 1)])

    @needs("atomic", "hash")
    async def test_a_guard_that_fails_late_undoes_what_came_before(self, store: Store) -> None:
        a, h = self.key("a"), self.key("h")
        await store.run([("SET", a, "1"), ("HSET", h, "f", "1")])
        before = await self.contents(store)
        assert (await store.atomically([("SET", a, "2"), holds(a, "1"), ("DEL", a)])).stopped_at == 1
        assert (await store.atomically([("DEL", a, h), field_holds(h, "f", "1")])).replies == [2, 0]
        assert await self.contents(store) == before
        assert await store.atomically([("SET", a, "2"), holds(a, "2"), ("HDEL", h, "f"), field_holds(h, "f", None)])

    @needs("atomic", "set")
    async def test_a_guard_of_an_amount_goes_on_only_up_to_its_limit(self, store: Store) -> None:
        members, log = self.key("members"), self.key("log")
        for place in range(5):
            outcome = await store.atomically(
                [at_most(("SCARD", members), 2), ("SADD", members, place), ("INCRBY", log, 1)]
            )
            assert (outcome.stopped_at, outcome.replies[0]) == ((None, 1) if place < 3 else (0, 0))
        await expect(store, (("SCARD", members), 3), (("GET", log), b"3"))
        late = await store.atomically([("SADD", members, "late"), ("DEL", log), at_most(("SCARD", members), 3)])
        assert (bool(late), late.stopped_at, late.replies) == (False, 2, [1, 1, 0])
        await expect(store, (("SCARD", members), 3), (("GET", log), b"3"))

    @needs("atomic", "hash", "set", "zset", "list", "stream")
    async def test_a_guard_of_an_amount_reads_it_from_every_kind(self, store: Store) -> None:
        n, h, s, z, q, x = (self.key(name) for name in ("n", "h", "s", "z", "q", "x"))
        amounts: list[tuple[Command, float]] = [
            *((("GET", n), 41), (("HGET", h, "f"), 7), (("HLEN", h), 2), (("HEXISTS", h, "f"), 1)),
            *((("SCARD", s), 3), (("SISMEMBER", s, "a"), 1), (("ZCARD", z), 2), (("ZCOUNT", z, 1, 2), 1)),
            *((("ZSCORE", z, "m"), 1.5), (("LLEN", q), 2), (("LINDEX", q, 1), 9), (("XLEN", x), 1)),
        ]
        for command, _ in amounts:
            assert await store.atomically([at_most(command, 0)]), command  # there is nothing yet, which counts as 0
            assert not await store.atomically([at_most(command, -1)]), command
        await store.run(
            [
                *(("SET", n, 41), ("HSET", h, "f", 7, "g", "text"), ("SADD", s, "a", "b", "c")),
                *(("ZADD", z, 1.5, "m", 3, "n"), ("RPUSH", q, "text", 9), ("XADD", x, "1-1", "f", "v")),
            ]
        )
        for command, amount in amounts:
            assert (await store.atomically([at_most(command, amount)])).replies == [1], command
            assert (await store.atomically([at_most(command, amount + 0.5)])).replies == [1], command
            assert (await store.atomically([more_than(command, amount)])).replies == [0], command
            assert (await store.atomically([more_than(command, amount - 0.5)])).replies == [1], command
            assert (await store.atomically([at_most(command, amount - 0.5)])).replies == [0], command

    @needs("atomic", "hash", "zset")
    async def test_a_guard_of_an_amount_rounds_nothing(self, store: Store) -> None:
        n, h, z = self.key("n"), self.key("h"), self.key("z")
        ints = [0, -1, 9, 10, -9, -10, *(sign * 2**53 + by for sign in (1, -1) for by in (-1, 0, 1)), 2**63 - 1025]
        ints += [2**62 + 2**11, INT64_MAX - 1, INT64_MAX, INT64_MIN, INT64_MIN + 1]
        floats = [0.5, -0.5, -0.0, 1e15, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), -(2.0**64), 1e300, 5e-324]
        limits = [*ints, *floats, math.inf, -math.inf]
        wrong: list[tuple[Any, ...]] = []
        for held in limits:
            await store.run([("SET", n, held), ("HSET", h, "f", held), ("ZADD", z, held, "m")])
            for limit in limits:
                for command, number in (
                    *((("GET", n), held), (("HGET", h, "f"), held)),
                    (("ZSCORE", z, "m"), float(held)),
                ):
                    # Python compares an int and a float exactly.
                    if bool(await store.atomically([at_most(command, limit)])) is not (number <= limit):
                        wrong.append((command[0], held, limit))
                    if bool(await store.atomically([more_than(command, limit)])) is not (number > limit):
                        wrong.append((command[0], held, limit, "more"))
        assert wrong == []

    @needs("atomic", "hash", "list")
    async def test_a_guard_of_an_amount_takes_only_numbers(self, store: Store) -> None:
        n, h, q, other = (self.key(name) for name in ("n", "h", "q", "other"))
        for text, number in (
            *(("01", 1), ("+1", 1), (".5", 0.5), ("5.", 5), ("1e3", 1000), ("1E+3", 1000), ("-.5e-1", -0.05)),
            *(("inf", math.inf), ("-Infinity", -math.inf), ("0e-999", 0), ("-0", 0), ("1" * 19, int("1" * 19))),
            ("9223372036854775808", 2.0**63),  # beyond 64 bits: as a float
        ):
            await store.run([("SET", n, text)])
            assert await store.atomically([at_most(("GET", n), number)]), text
            below = number - 1 if isinstance(number, int) else math.nextafter(number, -math.inf)
            assert number == -math.inf or not await store.atomically([at_most(("GET", n), below)]), text
        for text in (
            *("", "x", " 1", "1 ", "1\n", "0x10", "1_000", "1,5", "nan", "-nan", "inf1", "--1", "1e", "e1", ".", "-"),
            *("1.2.3", "1e400", "-1e400", "1e-400", "1\x00", "\x001", "\u0661", "1" * 400, "true"),
        ):
            await store.run([("SET", n, text), ("HSET", h, "f", text), ("DEL", q), ("RPUSH", q, text)])
            before = await self.contents(store)
            for command in (("GET", n), ("HGET", h, "f"), ("LINDEX", q, 0)):
                with pytest.raises(NotANumber) as caught:
                    await store.atomically([("SET", other, "1"), ("DEL", n), ("SET", n, text), at_most(command, 9)])
                assert (caught.value.command, caught.value.key) == command[:2]
                assert str(caught.value).endswith("the stored value is not a number")
            assert await self.contents(store) == before, text

    @needs("atomic", "zset")
    async def test_a_guard_of_an_amount_takes_only_reads_of_one(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        for command in (
            *(("INCRBY", a, 1), ("GETDEL", a), ("SET", a, 1), ("SADD", a, "m"), ("DEL", a), ("ZPOPMIN", a)),
            *(("MGET", a, b), ("EXISTS", a), ("SMEMBERS", a), ("HGETALL", a), ("ZRANGE", a, 0, -1), ("TYPE", a)),
            *(("PTTL", a), ("ZRANK", a, "m"), ("DBSIZE",), ("TIME",), ("PUBLISH", a, "m")),
        ):
            with pytest.raises(BadArgument, match="at_most takes a command that reads an amount: GET, ") as caught:
                await store.atomically([("SET", a, "1"), at_most(command, 1)])
            assert caught.value.command == command[0]
        for limit in (True, None, "1", b"1", math.nan, INT64_MAX + 1, INT64_MIN - 1, 10**400):
            with pytest.raises(BadArgument, match="a limit"):
                await store.atomically([("SET", a, "1"), at_most(("GET", b), limit)])  # type: ignore[arg-type]
        with pytest.raises(CommandError, match="Write: SCARD key"):
            await store.atomically([("SET", a, "1"), at_most(("SCARD",), 1)])
        with pytest.raises(BadArgument, match="more_than and still belong into `atomically`"):
            await store.run([at_most(("GET", a), 1)])  # type: ignore[list-item]
        await expect(store, (("EXISTS", a), 0))

    @needs("atomic", "hash", "set", "zset", "list", "stream")
    async def test_a_guard_of_a_whole_value_goes_on_only_while_nobody_changed_it(self, store: Store) -> None:
        a, h, s, z, q, x, log = (self.key(name) for name in ("a", "h", "s", "z", "q", "x", "log"))
        every_byte = bytes(range(256))
        [(seconds, _)] = await store.run([("TIME",)])
        ends_ms = int(seconds) * 1000 + 86_400_123
        odd_scores = (0.1, "c", "inf", "d", 2**62 + 2**11, "e", -0.0, "f", 5e-324, "g")
        commands: list[Command] = [
            *(("SET", a, every_byte), ("PEXPIREAT", a, ends_ms), ("RPUSH", q, "b", "a", "", every_byte)),
            ("HSET", h, *[f"f{n}" for n in range(20)], "", every_byte),
            ("SADD", s, *range(40), "", every_byte),
            ("ZADD", z, 1, "a", 1, "b", *odd_scores),
            *(("XADD", x, "1-1", "f", "1", "f", ""), ("PEXPIREAT", x, 2**47)),
        ]
        await store.run(commands)
        reads: list[tuple[Command, Command]] = [
            (("GET", a), ("SET", a, "x", "KEEPTTL")),
            (("PEXPIRETIME", a), ("PEXPIREAT", a, ends_ms + 1)),
            (("HGETALL", h), ("HSET", h, "f0", "x")),
            (("SMEMBERS", s), ("SADD", s, "x")),
            (("ZRANGE", z, 0, -1, "WITHSCORES"), ("ZADD", z, 0.10000000000000002, "c")),
            (("ZRANGE", z, 0, 1), ("ZREM", z, "f")),
            (("LRANGE", q, 0, -1), ("LSET", q, 0, "x")),
            (("XRANGE", x, "-", "+"), ("XADD", x, "1-2", "f", "1")),
            (("PEXPIRETIME", x), ("PEXPIREAT", x, 2**47 - 1)),
        ]
        for read, change in reads:
            [seen] = await store.run([read])
            assert (await store.atomically([still(read, seen), ("INCRBY", log, 1)])).replies[0] == 1, read
            late = await store.atomically([change, still(read, seen), ("DEL", log)])
            assert (late.stopped_at, late.replies[-1]) == (1, 0), read
            assert (await store.run([read])) == [seen]
            await store.run([change])
            stopped = await store.atomically([still(read, seen), ("DEL", log)])
            assert (stopped.stopped_at, stopped.replies) == (0, [0]), read
        await expect(store, (("GET", log), b"%d" % len(reads)))

    @needs("atomic", "hash", "set", "zset", "list", "stream")
    async def test_a_guard_of_a_whole_value_knows_what_is_not_there(self, store: Store) -> None:
        a, log = self.key("a"), self.key("log")
        nothing: list[tuple[Command, Any]] = [
            *((("GET", a), None), (("HGETALL", a), {}), (("SMEMBERS", a), set()), (("LRANGE", a, 0, -1), [])),
            *((("ZRANGE", a, 0, -1, "WITHSCORES"), []), (("XRANGE", a, "-", "+"), []), (("PEXPIRETIME", a), -2)),
        ]
        assert await store.atomically([*(still(read, reply) for read, reply in nothing), ("SET", a, "")])
        for read, reply in (nothing[0], nothing[-1]):
            assert not await store.atomically([still(read, reply), ("SET", log, "1")])
        assert await store.atomically([still(("GET", a), b""), still(("PEXPIRETIME", a), -1)])
        with pytest.raises(WrongKind):
            await store.atomically([("SET", log, "1"), still(("HGETALL", a), {})])
        for wrong in (("HGET", a, "f"), ("SET", a, "1"), ("MGET", a), ("DBSIZE",)):
            with pytest.raises(BadArgument, match="still takes a command that reads a value: GET, "):
                await store.atomically([("SET", log, "1"), still(wrong, None)])
        await expect(store, (("EXISTS", log), 0))

    @needs("atomic", "zset", "hash")
    async def test_a_moment_that_is_up_to_the_store_is_the_time_of_the_store(self, store: Store) -> None:
        z, h, s = self.key("z"), self.key("h"), self.key("s")
        before_ms = await clock_ms(store)
        outcome = await store.atomically(
            [
                ("TIME",),
                ("ZADD", z, store_ms(), "now", store_ms(-1_000), "ago", store_ms(0.25), "part"),
                ("HSET", h, "at", store_ms(), "in", store_ms(500)),
                ("HSETNX", h, "new", store_ms(1)),
                ("SET", s, store_ms(-7), "PXAT", store_ms(600_000)),
                ("PEXPIREAT", z, store_ms(600_000)),
            ]
        )
        after_ms = await clock_ms(store)
        seconds, micros = outcome.replies[0]
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        assert outcome.replies[1:] == [3, 2, 1, b"OK", 1]
        assert before_ms <= now_ms <= after_ms
        scores = [[b"ago", now_ms - 1000.0], [b"now", float(now_ms)], [b"part", now_ms + 0.25]]
        await expect(
            store,
            (("ZRANGE", z, 0, -1, "WITHSCORES"), scores),
            (("HMGET", h, "at", "in", "new"), [b"%d" % now_ms, b"%d" % (now_ms + 500), b"%d" % (now_ms + 1)]),
            (("GET", s), b"%d" % (now_ms - 7)),
            (("PEXPIRETIME", z), now_ms + 600_000),
            (("PEXPIRETIME", s), now_ms + 600_000),
        )

    @needs("atomic", "zset", "hash")
    async def test_what_is_compared_with_the_time_of_the_store_passes_from_that_moment_on(self, store: Store) -> None:
        z, h = self.key("z"), self.key("h")
        steps: list[Step] = [("ZADD", z, store_ms(-10), "a", store_ms(), "b", store_ms(10.5), "c")]
        steps += [("HSET", h, "now", store_ms(), "soon", store_ms(1))]
        looks: list[Step] = [
            ("ZCOUNT", z, store_ms(-10), store_ms()),
            ("ZCOUNT", z, store_ms(-9.5), "inf"),
            ("ZRANGE", z, "-inf", store_ms(10), "BYSCORE"),
            at_most(("ZSCORE", z, "b"), store_ms()),
            at_most(("ZSCORE", z, "c"), store_ms(10.5)),
            at_most(("HGET", h, "now"), store_ms()),
            at_most(("HGET", h, "soon"), store_ms(1.5)),
            at_most(("ZCOUNT", z, store_ms(), store_ms(11)), 2),
            ("ZREMRANGEBYSCORE", z, "-inf", store_ms(-10)),
        ]
        outcome = await store.atomically([*steps, *looks])
        assert outcome.replies[2:] == [2, 2, [b"a", b"b"], 1, 1, 1, 1, 1, 1]
        for guard in (
            at_most(("ZSCORE", z, "b"), store_ms(-0.25)),
            at_most(("ZSCORE", z, "c"), store_ms(10.25)),
            at_most(("HGET", h, "now"), store_ms(-1)),
            at_most(("HGET", h, "now"), store_ms(-0.5)),
            at_most(("HGET", h, "soon"), store_ms(0.5)),
            at_most(("ZCOUNT", z, store_ms(), store_ms(11)), 1),
        ):
            outcome = await store.atomically([("DEL", z, h), *steps, guard])
            assert (outcome.stopped_at, outcome.replies[-1]) == (3, 0), guard
        await expect(store, (("ZRANGE", z, 0, -1), [b"b", b"c"]))  # what was stopped is undone

    @needs("atomic", "zset", "hash")
    async def test_the_time_of_the_store_stands_for_numbers_only(self, store: Store) -> None:
        a = self.key("a")
        wrong: tuple[Any, ...] = (
            *(("SET", store_ms(), "x"), ("DEL", a, store_ms()), ("GET", store_ms()), ("INCRBY", a, store_ms())),
            *(("ZADD", a, 1, store_ms()), ("ZADD", a, store_ms(), "m", 2, store_ms()), ("HSET", a, store_ms(), "v")),
            *(
                ("HSETNX", a, store_ms(), "v"),
                ("SADD", a, store_ms()),
                ("ZREM", a, store_ms()),
                ("HGET", a, store_ms()),
            ),
        )
        for command in wrong:
            for step in (command, required(command)):
                with pytest.raises(BadArgument) as caught:
                    await store.atomically([("SET", a, "1"), step])
                assert caught.value.command == command[0]
        for plus in (math.nan, math.inf, True, "1", None, 10**18):
            for step in (("ZADD", a, store_ms(plus), "m"), at_most(("GET", a), store_ms(plus))):  # type: ignore[arg-type]
                with pytest.raises(BadArgument, match="store_ms takes a number of milliseconds"):
                    await store.atomically([("SET", a, "1"), step])
        with pytest.raises(BadArgument, match="store_ms belongs into `atomically`"):
            await store.run([("ZADD", a, store_ms(), "m")])  # type: ignore[list-item]
        await expect(store, (("EXISTS", a), 0))

    @needs("atomic key")
    async def test_prepared_steps_do_what_atomically_does_on_whatever_key(self, store: Store) -> None:
        count = store.prepared(
            lambda key, by: [("GET", key), at_most(("GET", key), 9), ("SET", key, by, "PXAT", store_ms(600_000))], 2
        )
        for name in (b"a", b"a b\r\n", b"%d %b %%", b"{x}", b"\xff", b"*"):
            key = self.key(name)
            assert (await count(key, b"9")).replies == [None, 1, b"OK"]
            assert (await count(key, b"10%")).replies == [b"9", 1, b"OK"]
            await expect(store, (("GET", key), b"10%"))
            with pytest.raises(NotANumber) as caught:
                await count(key, b"1")
            assert caught.value.key == key
            await store.run([("SET", key, "10")])
            stopped = await count(key, b"1")
            assert (stopped.replies, stopped.stopped_at) == ([b"10", 0], 1)

    @needs("atomic", "zset")
    async def test_a_guard_of_a_whole_value_reads_up_to_the_time_of_the_store(self, store: Store) -> None:
        z, log = self.key("z"), self.key("log")
        await store.atomically([("ZADD", z, store_ms(-60_000), "due", store_ms(600_000), "later")])
        [[due, _]] = await store.run([("ZRANGE", z, 0, -1, "WITHSCORES")])
        for read, seen in (
            (("ZRANGE", z, "-inf", store_ms(), "BYSCORE"), [b"due"]),
            (("ZRANGE", z, "-inf", store_ms(), "BYSCORE", "WITHSCORES"), [due]),
        ):
            assert (await store.atomically([still(read, seen), ("SET", log, "1")])).replies == [1, b"OK"]
            stopped = await store.atomically([("ZADD", z, store_ms(-1), "new"), still(read, seen), ("DEL", log)])
            assert (stopped.stopped_at, stopped.replies[-1]) == (1, 0), read
        with pytest.raises(BadArgument, match="the time of the store cannot stand as argument 3"):
            await store.atomically([("DEL", log), still(("LRANGE", z, 0, store_ms()), [])])
        await expect(store, (("GET", log), b"1"), (("ZRANGE", z, 0, -1), [b"due", b"later"]))

    @needs("atomic key")
    async def test_prepared_steps_compare_whole_values_with_what_they_are_given(self, store: Store) -> None:
        change = store.prepared(lambda key, seen, new: [still(("GET", key), seen), ("SET", key, new)], 3)
        a, b = self.key("a"), self.key("b")
        await store.run([("SET", a, "1")])
        await store.run([("SET", b, "2")])
        assert (await change(a, b"1", b"3")).replies == [1, b"OK"]
        assert (await change(b, b"2", b"4")).replies == [1, b"OK"]
        stopped = await change(a, b"1", b"5")
        assert (stopped.stopped_at, stopped.replies) == (0, [0])
        await expect(store, (("GET", a), b"3"))

    @needs("atomic")
    async def test_walking_the_whole_store_is_no_atomic_step(self, store: Store) -> None:
        for command in (("SCAN", "0"), ("DBSIZE",)):
            with pytest.raises(BadArgument):
                await store.atomically([("SET", self.key("a"), "1"), command])
        await expect(store, (("EXISTS", self.key("a")), 0))

    @needs("atomic", "list")
    async def test_an_atomic_step_may_be_large(self, store: Store) -> None:
        q = self.key("q")
        outcome = await store.atomically([("RPUSH", q, *(f"item {n}" for n in range(6000))), ("LLEN", q)])
        assert outcome.replies == [6000, 6000]
        many = await store.atomically([("INCRBY", self.key("n"), 1) for _ in range(2000)])
        assert many.replies == list(range(1, 2001))

    @needs("atomic")
    async def test_nobody_sees_a_state_in_between(self, store: Store, other: Store | None) -> None:
        a, b = self.key("a"), self.key("b")
        await store.run([("SET", a, 0), ("SET", b, 0)])
        seen: list[list[bytes]] = []
        done, looked = asyncio.Event(), asyncio.Event()

        async def look() -> None:
            while not done.is_set():
                [pair] = await (other or store).run([("MGET", a, b)])
                seen.append(pair)
                looked.set()
                await asyncio.sleep(0)

        async def move() -> None:
            for n in range(100):
                stop = [required(("GET", self.key("none")))] if n % 3 == 0 else []
                await store.atomically([("INCRBY", a, 1), ("INCRBY", b, 1), *stop])
                await asyncio.sleep(0)  # so that those who look get a turn on a store that never waits
                if n % 20 == 0:  # and so that they look now and then, however slow the machine is
                    looked.clear()
                    await looked.wait()
            done.set()

        async with asyncio.timeout(30):
            await asyncio.gather(look(), look(), move())
        assert [pair for pair in seen if pair[0] != pair[1]] == []
        assert len(set(map(tuple, seen))) > 2
        await expect(store, (("MGET", a, b), [b"66", b"66"]))


class AtomicOnOneKey(Promises):
    """What a store keeps, too, whose atomic steps are about one key."""

    @needs("atomic key")
    async def test_steps_on_one_key_take_effect_together_and_answer_in_order(self, store: Store) -> None:
        a = self.key("a")
        outcome = await store.atomically([("SET", a, "1", "NX"), ("INCRBY", a, 5), ("GET", a), ("EXISTS", a, a)])
        assert outcome
        assert outcome.replies == [b"OK", 6, b"6", 2]
        await expect(store, (("GET", a), b"6"), (("PTTL", a), -1))

    @needs("atomic key")
    async def test_a_stop_leaves_the_key_its_value_and_its_deadline(self, store: Store) -> None:
        a, at_ms = self.key("a"), await hours_ahead(store)
        await store.run([("SET", a, "kept", "PXAT", at_ms)])
        batches: list[list[Step]] = [
            [("SET", a, "lost"), required(("DEL", a)), required(("GET", a))],
            [("PERSIST", a), required(("SET", a, "lost", "NX"))],
            [("DEL", a), holds(a, "kept")],
            [("GETDEL", a), required(("EXPIRE", a, 5))],
            [("PEXPIREAT", a, 1), required(("GET", a))],
        ]
        for steps in batches:
            outcome = await store.atomically(steps)
            assert (bool(outcome), outcome.stopped_at) == (False, len(steps) - 1)
            await expect(store, (("GET", a), b"kept"), (("PEXPIRETIME", a), at_ms))

    @needs("atomic key")
    async def test_an_error_leaves_the_key_as_it_was(self, store: Store) -> None:
        a, at_ms = self.key("a"), await hours_ahead(store)
        await store.run([("SET", a, "text", "PXAT", at_ms)])
        with pytest.raises(NotANumber) as caught:
            await store.atomically([("SET", a, "other"), ("INCRBY", a, 1)])
        assert (caught.value.command, caught.value.key) == ("INCRBY", a)
        await expect(store, (("GET", a), b"text"), (("PEXPIRETIME", a), at_ms))

    @needs("atomic key")
    async def test_guards_look_at_what_the_key_holds_now(self, store: Store) -> None:
        a = self.key("a")
        assert not await store.atomically([holds(a, "x"), ("SET", a, "1")])
        assert await store.atomically([absent(a), holds(a, None), ("SET", a, "1")])
        assert not await store.atomically([absent(a), ("SET", a, "2")])
        assert not await store.atomically([holds(a, "1 "), ("SET", a, "2")])
        assert await store.atomically([holds(a, "1"), at_most(("GET", a), 1), ("INCRBY", a, 1), holds(a, "2")])
        assert not await store.atomically([at_most(("GET", a), 1), ("INCRBY", a, 1)])
        await expect(store, (("GET", a), b"2"))

    @needs("atomic key")
    async def test_a_moment_that_is_up_to_the_store_is_its_time_on_one_key_too(self, store: Store) -> None:
        a, before_ms = self.key("a"), await clock_ms(store)
        steps: list[Step] = [("SET", a, store_ms(5)), ("GET", a), at_most(("GET", a), store_ms(5))]
        outcome = await store.atomically([*steps, ("PEXPIREAT", a, store_ms(600_000)), ("PEXPIRETIME", a)])
        assert outcome.replies[0::2] == [b"OK", 1, int(outcome.replies[1]) - 5 + 600_000]
        assert before_ms <= int(outcome.replies[1]) - 5 <= await clock_ms(store)
        assert not await store.atomically([*steps, at_most(("GET", a), store_ms(4))])

    @needs("atomic key")
    async def test_of_many_that_compare_and_set_one_key_no_update_is_lost(
        self, store: Store, other: Store | None
    ) -> None:
        a = self.key("a")
        await store.run([("SET", a, 0)])

        async def add(by: Store) -> None:
            while True:
                [held] = await by.run([("GET", a)])
                if await by.atomically([holds(a, held), ("SET", a, int(held) + 1)]):
                    return

        async with asyncio.timeout(30):
            await asyncio.gather(*(add(other if other is not None and n % 2 else store) for n in range(16)))
        await expect(store, (("GET", a), b"16"))
