"""Lifetimes of keys. All times are those of the store's clock, so no test depends on a fast machine."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keystead.errors import BadLifetime
from keystead.stores import Command, Store
from keystead.stores.commands import LATEST_MS
from keystead.testing.contract.contract_base import Promises, clock_ms, expect, expect_count, needs
from keystead.testing.contract.string_contract import Strings

HOUR_MS = 3_600_000
TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS


class Written(NamedTuple):
    """When something was written, and the deadline of its key afterwards: each between two reads of the clock.

    The clock is read in separate round trips: within one batch, a cluster may ask one node for the time and another for
    the key.
    """

    from_ms: int
    to_ms: int
    deadline_from_ms: int
    deadline_to_ms: int

    def lives_for(self, ms: int) -> bool:
        return self.from_ms + ms <= self.deadline_to_ms + 1 and self.deadline_from_ms - 1 <= self.to_ms + ms

    def lives_until(self, at_ms: int) -> bool:
        return self.deadline_from_ms - 1 <= at_ms <= self.deadline_to_ms + 1


async def written(store: Store, key: bytes, write: Command) -> Written:
    before = await clock_ms(store)
    await store.run([write])
    after = await clock_ms(store)
    [left] = await store.run([("PTTL", key)])
    assert left >= 0, f"{write} left a lifetime of {left}"
    return Written(before, after, after + left, await clock_ms(store) + left)


class Lifetimes(Promises):
    async def test_a_key_lives_for_ever_unless_told_otherwise(self, store: Store) -> None:
        a = self.key("a")
        await expect(store, (("SET", a, "1"), b"OK"), (("PTTL", a), -1), (("PTTL", self.key("none")), -2))

    @pytest.mark.parametrize(("word", "unit_ms"), [("EX", 1000), ("PX", 1)])
    @pytest.mark.parametrize("make", ["SET", "GETEX"])
    async def test_a_relative_lifetime_is_what_was_asked(
        self, store: Store, make: str, word: str, unit_ms: int
    ) -> None:
        if make == "GETEX" and not store.guarantees.updates:
            return  # it is refused
        a = self.key("a")
        await store.run([("SET", a, "1")])
        value = ("1",) if make == "SET" else ()
        seen = await written(store, a, (make, a, *value, word, 5000))
        assert seen.lives_for(5000 * unit_ms), seen

    @pytest.mark.parametrize(("word", "unit_ms"), [("EXAT", 1000), ("PXAT", 1)])
    @pytest.mark.parametrize("make", ["SET", "GETEX"])
    async def test_an_absolute_deadline_is_kept_to_the_millisecond(
        self, store: Store, make: str, word: str, unit_ms: int
    ) -> None:
        if make == "GETEX" and not store.guarantees.updates:
            return  # it is refused
        a = self.key("a")
        await store.run([("SET", a, "1")])
        number = (await clock_ms(store) + HOUR_MS + 567) // unit_ms
        value = ("1",) if make == "SET" else ()
        seen = await written(store, a, (make, a, *value, word, number))
        assert seen.lives_until(number * unit_ms), seen

    @pytest.mark.parametrize(("name", "unit_ms"), [("EXPIRE", 1000), ("PEXPIRE", 1)])
    @needs("update")
    async def test_a_lifetime_can_be_given_to_a_key_of_any_kind(self, store: Store, name: str, unit_ms: int) -> None:
        for kind in sorted(store.guarantees.kinds - {"channel"}):
            a = self.key(kind)
            await store.run([Strings.of_kind(kind, a)])
            seen = await written(store, a, (name, a, 5000))
            assert seen.lives_for(5000 * unit_ms), seen

    @needs("update")
    async def test_a_deadline_can_be_given_to_a_key_of_any_kind(self, store: Store) -> None:
        at_ms = await clock_ms(store) + HOUR_MS
        for kind in sorted(store.guarantees.kinds - {"channel"}):
            a = self.key(kind)
            await store.run([Strings.of_kind(kind, a)])
            seen = await written(store, a, ("PEXPIREAT", a, at_ms))
            assert seen.lives_until(at_ms), seen

    @needs("update")
    async def test_the_deadline_of_a_key_is_told_to_the_millisecond(self, store: Store) -> None:
        a, at_ms = self.key("a"), await clock_ms(store) + HOUR_MS + 567
        await expect(
            store,
            (("PEXPIRETIME", a), -2),
            (("SET", a, "1"), b"OK"),
            (("PEXPIRETIME", a), -1),
            (("PEXPIREAT", a, at_ms), 1),
            (("PEXPIRETIME", a), at_ms),
            (("SET", a, "2", "PXAT", at_ms + 1), b"OK"),
            (("PEXPIRETIME", a), at_ms + 1),
            (("PERSIST", a), 1),
            (("PEXPIRETIME", a), -1),
        )

    @needs("update")
    async def test_no_lifetime_is_given_to_what_is_not_there(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("EXPIRE", a, 10), 0),
            (("PEXPIRE", a, 10), 0),
            (("PEXPIREAT", a, await clock_ms(store) + HOUR_MS), 0),
            (("GETEX", a, "PX", 10), None),
            (("PERSIST", a), 0),
            (("EXISTS", a), 0),
        )

    @needs("update")
    async def test_a_deadline_in_the_past_removes_the_key(self, store: Store) -> None:
        a = self.key("a")
        await expect(store, (("SET", a, "1"), b"OK"), (("PEXPIREAT", a, 1), 1), (("EXISTS", a), 0), (("GET", a), None))

    @needs("update")
    async def test_set_without_a_lifetime_takes_the_old_one_off(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, "1", "PX", HOUR_MS), b"OK"),
            (("SET", a, "2"), b"OK"),
            (("PTTL", a), -1),
            (("SET", a, "1", "PX", HOUR_MS), b"OK"),
            (("SET", a, "2", "GET"), b"1"),
            (("PTTL", a), -1),
            (("SET", a, "1", "PX", HOUR_MS), b"OK"),
            (("SET", a, "2", "XX"), b"OK"),
            (("PTTL", a), -1),
        )

    @needs("update")
    async def test_a_set_that_was_not_allowed_leaves_the_lifetime_alone(self, store: Store) -> None:
        a, at_ms = self.key("a"), await clock_ms(store) + HOUR_MS
        await store.run([("SET", a, "1", "PXAT", at_ms)])
        seen = await written(store, a, ("SET", a, "2", "NX", "PX", 10 * HOUR_MS))
        assert seen.lives_until(at_ms), seen

    @needs("hash", "set", "zset", "list", "stream")
    async def test_every_write_that_changes_a_value_keeps_its_lifetime(self, store: Store) -> None:
        at_ms = await clock_ms(store) + HOUR_MS
        s, h, m, z, q, x = (self.key(name) for name in ("s", "h", "m", "z", "q", "x"))
        await store.run(
            [
                *(("SET", s, 1), ("HSET", h, "f", "1", "g", "1"), ("SADD", m, "a", "b"), ("ZADD", z, 1, "a", 2, "b")),
                *(("RPUSH", q, *"abcdef"), ("XADD", x, "1-1", "f", "v")),
                *(("PEXPIREAT", key, at_ms) for key in (s, h, m, z, q, x)),
            ]
        )
        writes: list[tuple[str | bytes | int, ...]] = [
            *(("INCRBY", s, 1), ("DECRBY", s, 1), ("SET", s, "2", "KEEPTTL"), ("GETEX", s)),
            *(("HSET", h, "n", "1"), ("HSETNX", h, "o", "1"), ("HDEL", h, "g"), ("HINCRBY", h, "f", 1)),
            *(("SADD", m, "c"), ("SREM", m, "a")),
            *(("ZADD", z, 3, "c"), ("ZADD", z, "INCR", 3, "c"), ("ZREM", z, "a"), ("ZADD", z, 5, "d", 6, "e")),
            *(("ZPOPMIN", z), ("ZREMRANGEBYRANK", z, 0, 0), ("ZREMRANGEBYSCORE", z, 5, 5)),
            *(("LPUSH", q, "h"), ("RPUSH", q, "t"), ("LPOP", q), ("RPOP", q), ("LSET", q, 0, "A")),
            *(("LREM", q, 0, "b"), ("LTRIM", q, 0, -2)),
            *(("XADD", x, "MAXLEN", 1, "2-1", "f", "v"), ("XTRIM", x, "MAXLEN", 1), ("XDEL", x, "2-1")),
        ]
        for write in writes:
            key = write[1]
            assert isinstance(key, bytes)
            seen = await written(store, key, write)
            assert seen.lives_until(at_ms), (write, seen)

    @needs("update")
    async def test_a_lifetime_is_taken_off_once(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, "1", "EX", 100), b"OK"),
            (("PERSIST", a), 1),
            (("PTTL", a), -1),
            (("PERSIST", a), 0),
            (("EXPIRE", a, 100), 1),
            (("GETEX", a, "PERSIST"), b"1"),
            (("PTTL", a), -1),
        )

    @needs("update")
    async def test_a_key_made_anew_has_nothing_of_the_old_ones_lifetime(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, "1", "EX", 100), b"OK"),
            (("DEL", a), 1),
            (("INCRBY", a, 1), 1),
            (("PTTL", a), -1),
            (("EXPIRE", a, 100), 1),
            (("GETDEL", a), b"1"),
            (("SET", a, "1", "KEEPTTL"), b"OK"),
            (("PTTL", a), -1),
        )

    @needs("update")
    async def test_conditions_of_expire_compare_with_the_deadline_that_is_there(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, "1"), b"OK"),
            (("EXPIRE", a, 100, "XX"), 0),
            (("EXPIRE", a, 100, "GT"), 0),
            (("PTTL", a), -1),
            (("EXPIRE", a, 100, "NX"), 1),
            (("EXPIRE", a, 200, "NX"), 0),
            (("EXPIRE", a, 50, "GT"), 0),
            (("EXPIRE", a, 200, "GT"), 1),
            (("PEXPIRE", a, 300_000, "LT"), 0),
            (("PEXPIRE", a, 150_000, "LT"), 1),
            (("EXPIRE", a, 170, "XX", "GT"), 1),
            (("PERSIST", a), 1),
            (("EXPIRE", a, 100, "LT"), 1),
            (("PERSIST", a), 1),
            (("EXPIRE", a, 100, "XX", "LT"), 0),
            (("PTTL", a), -1),
        )

    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(ms=st.one_of(st.integers(-1, 3), st.integers(1, 2000), st.integers(-1, TEN_YEARS_MS)))
    async def test_no_duration_is_rounded_and_none_means_for_ever(self, store: Store, ms: int) -> None:
        a = self.key("a")
        await store.run([("SET", a, "before")])
        if ms <= 0:
            await expect(store, (("SET", a, "1", "PX", ms), BadLifetime), (("PEXPIRE", a, ms), BadLifetime))
            await expect(store, (("GET", a), b"before"), (("PTTL", a), -1))
            return
        writes: list[tuple[str | bytes | int, ...]] = [("SET", a, "1", "PX", ms)]
        if store.guarantees.updates:
            writes += (("PEXPIRE", a, ms), ("GETEX", a, "PX", ms))
        for write in writes:
            await store.run([("SET", a, "before")])
            before = await clock_ms(store)
            await store.run([write])
            after = await clock_ms(store)
            [left] = await store.run([("PTTL", a)])
            now = await clock_ms(store)
            if left == -2:
                assert now >= before + ms, f"{write} died early"
            else:
                assert left != -1, f"{write} lives forever"
                assert Written(before, after, after + left, now + left).lives_for(ms), (write, left)

    async def test_a_lifetime_beyond_the_year_9999_is_refused(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, "1", "PXAT", LATEST_MS), b"OK"),
            (("SET", a, "2", "PXAT", LATEST_MS + 1), BadLifetime),
            (("SET", a, "2", "EX", LATEST_MS), BadLifetime),
            (("EXPIRE", a, 2**62), BadLifetime),
            (("GET", a), b"1"),
        )

    @pytest.mark.parametrize("reading", ["GET", "EXISTS", "PTTL", "PEXPIRETIME", "TYPE", "MGET"])
    async def test_a_key_is_there_until_its_deadline_and_not_a_millisecond_longer(
        self, store: Store, reading: str
    ) -> None:
        a = self.key("a")
        gone = {"GET": None, "EXISTS": 0, "PTTL": -2, "PEXPIRETIME": -2, "TYPE": b"none", "MGET": [None]}[reading]
        at_ms = await clock_ms(store) + 30
        await store.run([("SET", a, "1", "PXAT", at_ms)])
        async with asyncio.timeout(60):
            while True:
                before = await clock_ms(store)
                [reply] = await store.run([(reading, a)])
                if reply == gone:
                    assert await clock_ms(store) >= at_ms, "it died early"
                    return
                assert before <= at_ms, "it outlived its deadline"

    @needs("update")
    async def test_what_has_expired_counts_as_absent_for_every_write(self, store: Store) -> None:
        a, b, c = self.key("a"), self.key("b"), self.key("c")
        at_ms = await clock_ms(store) + 5
        await store.run([("SET", key, 41, "PXAT", at_ms) for key in (a, b, c)])
        async with asyncio.timeout(60):
            while await clock_ms(store) <= at_ms:
                pass
        await expect(
            store,
            (("SET", a, "x", "XX"), None),
            (("SET", a, "new", "NX"), b"OK"),
            (("PTTL", a), -1),
            (("INCRBY", b, 1), 1),
            (("PTTL", b), -1),
            (("DEL", c), 0),
            (("PERSIST", c), 0),
            (("EXPIRE", c, 10), 0),
            (("GETDEL", c), None),
        )
        await expect_count(store, 2)
