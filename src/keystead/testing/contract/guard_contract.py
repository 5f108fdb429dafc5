"""Promises of the guards of `atomically`, and of the store's own time in them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from keystead.errors import BadArgument, CommandError, NotANumber, WrongKind
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


class Guards(Promises):
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
            assert await store.atomically([at_most(command, 0)]), command  # missing keys count as 0
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
            with pytest.raises(BadArgument, match="limit"):
                await store.atomically([("SET", a, "1"), at_most(("GET", b), limit)])  # type: ignore[arg-type]
        with pytest.raises(CommandError, match="Write: SCARD key"):
            await store.atomically([("SET", a, "1"), at_most(("SCARD",), 1)])
        with pytest.raises(BadArgument, match="more_than and still can only be used in `atomically`"):
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
        await expect(store, (("ZRANGE", z, 0, -1), [b"b", b"c"]))  # the stopped step was undone

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
        with pytest.raises(BadArgument, match="use store_ms in `atomically` only"):
            await store.run([("ZADD", a, store_ms(), "m")])  # type: ignore[list-item]
        await expect(store, (("EXISTS", a), 0))
