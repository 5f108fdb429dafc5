"""Atomic steps: everything takes effect, or nothing does."""

from __future__ import annotations

import asyncio

import pytest

from keystead.errors import BadArgument, CommandError, NotANumber, UnknownCommand, WrongKind
from keystead.stores import (
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
from keystead.stores.commands import INT64_MAX
from keystead.testing.contract.contract_base import Promises, clock_ms, expect, needs
from keystead.testing.contract.string_contract import Strings


async def hours_ahead(store: Store) -> int:
    """A deadline on the hour, so that it can be rounded to the minute."""
    return (await clock_ms(store) // 3_600_000 + 2) * 3_600_000


class Atomic(Promises):
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
        # An id that was rolled back may be used again.
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

    @needs("atomic key")
    async def test_prepared_steps_take_numbers_such_as_deadlines(self, store: Store) -> None:
        [time] = await store.run([("TIME",)])
        now_ms = int(time[0]) * 1000
        write = store.prepared(
            lambda key, value, at: [("SET", key, value, "PXAT", at, "NX"), ("PEXPIREAT", key, at, "GT")], 3, [2]
        )
        key = self.key("a")
        outcome = await write(key, b"1", b"%d" % (now_ms + 600_000))
        assert outcome.replies[0] == b"OK"
        assert (await write(key, b"2", b"%d" % (now_ms + 900_000))).replies == [None, 1]
        await expect(store, (("GET", key), b"1"))
        [left_ms] = await store.run([("PTTL", key)])
        assert 600_000 < left_ms <= 900_000

    @needs("atomic key")
    async def test_prepared_steps_take_limits_and_amounts(self, store: Store) -> None:
        take = store.prepared(
            lambda key, limit, by: [more_than(("GET", key), int(limit)), ("INCRBY", key, int(by))], 3, [1, 2]
        )
        key = self.key("a")
        await store.run([("SET", key, "10")])
        for limit, by, expected in ((3, -4, 6), (0, -1, 5), (4, 10**13, 10**13 + 5)):
            assert (await take(key, b"%d" % limit, b"%d" % by)).replies == [1, expected]
        stopped = await take(key, b"%d" % (10**13 + 5), b"1")
        assert (stopped.stopped_at, stopped.replies) == (0, [0])

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
        with pytest.raises(BadArgument, match="store_ms cannot be argument 3"):
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
                await asyncio.sleep(0)  # lets the readers run, on a store that never waits
                if n % 20 == 0:  # and read now and then, however slow the machine is
                    looked.clear()
                    await looked.wait()
            done.set()

        async with asyncio.timeout(30):
            await asyncio.gather(look(), look(), move())
        assert [pair for pair in seen if pair[0] != pair[1]] == []
        assert len(set(map(tuple, seen))) > 2
        await expect(store, (("MGET", a, b), [b"66", b"66"]))


class AtomicOnOneKey(Promises):
    """Promises of stores whose atomic steps cover only one key, too."""

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
