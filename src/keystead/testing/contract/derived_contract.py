"""Derived commands: made of the store's own, with the semantics of Redis."""

from __future__ import annotations

import asyncio
from typing import Any

from keystead.errors import (
    BadArgument,
    BadLifetime,
    BadOption,
    NotANumber,
    StoreError,
    UnknownCommand,
    WrongArity,
    WrongKind,
)
from keystead.stores import Command, Store
from keystead.stores.derived import Derived, derive, run_derived
from keystead.testing.contract.contract_base import Promises, needs
from keystead.testing.reply_comparison import shown

CALLERS = 8
SOON = range(30, 101)  # what is left of 90 or 100 seconds, on a busy machine


async def expect_derived(store: Store, *exchanges: tuple[Command, Any]) -> None:
    """Send the commands as one pipeline, and compare each reply by value and type.

    A class means such an error, a range any number in it.
    """
    replies = await run_derived(store, [command for command, _ in exchanges])
    got = [(command, shown(reply)) for (command, _), reply in zip(exchanges, replies, strict=True)]
    wanted = [(command, _wanted(text, reply)) for (command, text), reply in zip(exchanges, replies, strict=True)]
    assert got == wanted


def _wanted(wanted: Any, reply: Any) -> Any:
    if isinstance(wanted, type) and issubclass(wanted, StoreError):
        return f"error {wanted.code}"
    return shown(reply if isinstance(wanted, range) and reply in wanted else wanted)


async def run_one(store: Store, *command: Any) -> Any:
    [reply] = await run_derived(store, [command])
    return reply


class DerivedStrings(Promises):
    @needs("update")
    async def test_older_forms_of_set(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect_derived(
            store,
            (("SETEX", a, 100, "1"), b"OK"),
            (("TTL", a), SOON),
            (("EXPIREAT", a, 4_000_000_000), 1),
            (("EXPIRETIME", a), 4_000_000_000),
            (("PSETEX", a, 90_400, "2"), b"OK"),
            (("TTL", a), SOON),
            (("SETNX", a, "3"), 0),
            (("SETNX", b, "3"), 1),
            (("GETSET", a, "4"), b"2"),
            (("TTL", a), -1),
            (("EXPIRETIME", a), -1),
            (("TTL", self.key("none")), -2),
            (("EXPIRETIME", self.key("none")), -2),
            (("SETEX", a, 0, "5"), BadLifetime),
            (("SETEX", a, "5"), WrongArity),
            (("setex", a, "x", "5"), NotANumber),
            (("GET", a), b"4"),
        )

    @needs("atomic key")
    async def test_parts_of_a_string(self, store: Store) -> None:
        a = self.key("a")
        await expect_derived(
            store,
            (("APPEND", a, "Hello"), 5),
            (("EXPIRE", a, 100), 1),
            (("APPEND", a, " World"), 11),
            (("STRLEN", a), 11),
            (("GETRANGE", a, 0, 4), b"Hello"),
            (("GETRANGE", a, -5, -1), b"World"),
            (("GETRANGE", a, 20, 30), b""),
            (("SETRANGE", a, 6, "Redis"), 11),
            (("SETRANGE", a, 12, "!"), 13),
            (("SETRANGE", a, -1, "!"), BadArgument),
            (("GET", a), b"Hello Redis\x00!"),
            (("TTL", a), SOON),
            (("STRLEN", self.key("none")), 0),
            (("SETRANGE", self.key("none"), 5, ""), 0),
            (("EXISTS", self.key("none")), 0),
        )

    @needs("atomic key")
    async def test_numbers(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect_derived(
            store,
            (("INCR", a), 1),
            (("INCR", a), 2),
            (("DECR", a), 1),
            (("DECR", b), -1),
            (("INCRBYFLOAT", a, "0.1"), b"1.1"),
            (("INCRBYFLOAT", a, "5.0e1"), b"51.1"),
            (("INCRBYFLOAT", b, 3), b"2"),
            (("INCR", a), NotANumber),
            (("INCRBYFLOAT", a, "x"), NotANumber),
            (("GET", a), b"51.1"),
        )

    @needs("update")
    async def test_a_lifetime_of_zero_deletes_the_key(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect_derived(
            store,
            (("SET", a, "1"), b"OK"),
            (("SET", b, "1", "EX", 100), b"OK"),
            (("EXPIRE", a, 0, "XX"), 0),
            (("EXPIRE", a, 0), 1),
            (("PEXPIRE", b, -5, "GT"), 0),
            (("EXPIREAT", b, 0), 1),
            (("EXISTS", a, b), 0),
            (("EXPIRE", a, -1), 0),
            (("EXPIRE", a, "x"), NotANumber),
        )

    async def test_names_of_other_commands(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect_derived(
            store,
            (("SET", a, "1"), b"OK"),
            (("TOUCH", a, b), 1),
            (("UNLINK", a, b), 1),
            (("PING",), b"PONG"),
            (("PING", "hello"), b"hello"),
            (("ECHO", "hello"), b"hello"),
            (("NOPE", a), UnknownCommand),
            (("APPEND", a), WrongArity),
        )

    @needs("atomic")
    async def test_several_keys_are_set_as_one(self, store: Store) -> None:
        a, b, c = self.key("a"), self.key("b"), self.key("c")
        await expect_derived(
            store,
            (("MSET", a, "1", b, "2"), b"OK"),
            (("MSETNX", b, "3", c, "3"), 0),
            (("MGET", a, b, c), [b"1", b"2", None]),
            (("DEL", b), 1),
            (("MSETNX", b, "3", c, "3"), 1),
            (("MSET", a), WrongArity),
            (("MSET", a, "1", b), WrongArity),
        )

    @needs("atomic key")
    async def test_no_append_is_lost(self, store: Store) -> None:
        a = self.key("a")
        lengths = await asyncio.gather(*(run_one(store, "APPEND", a, "x") for _ in range(CALLERS)))
        assert sorted(lengths) == list(range(1, CALLERS + 1))
        assert await store.run([("GET", a)]) == [b"x" * CALLERS]

    async def test_a_derived_command_names_itself_in_its_error(self, store: Store) -> None:
        a = self.key("a")
        reply = await run_one(store, "SETEX", a, "soon", "x")
        assert (reply.command, reply.key) == ("SETEX", a)


class DerivedKeys(Promises):
    @needs("atomic", "hash", "list", "set", "zset")
    async def test_a_renamed_key_keeps_its_value_and_its_lifetime(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        for make, read, value in (
            (("SET", a, "x"), ("GET", b), b"x"),
            (("HSET", a, "f", "x"), ("HGETALL", b), {b"f": b"x"}),
            (("SADD", a, "x", "y"), ("SMEMBERS", b), {b"x", b"y"}),
            (("ZADD", a, "1.5", "x"), ("ZRANGE", b, 0, -1, "WITHSCORES"), [[b"x", 1.5]]),
            (("RPUSH", a, "x", "y"), ("LRANGE", b, 0, -1), [b"x", b"y"]),
        ):
            await store.run([make])
            await expect_derived(
                store,
                (("EXPIRE", a, 100), 1),
                (("SET", b, "before"), b"OK"),
                (("RENAMENX", a, b), 0),
                (("RENAME", a, b), b"OK"),
                (("EXISTS", a), 0),
                (("TTL", b), SOON),
                (read, value),
                (("RENAME", a, b), BadArgument),
                (("RENAME", b, b), b"OK"),
                (("COPY", b, a), 1),
                (("COPY", b, a), 0),
                (("COPY", b, a, "REPLACE"), 1),
                (("TTL", a), SOON),
                (("DEL", a, b), 2),
            )

    @needs("scan")
    async def test_keys_by_pattern(self, store: Store) -> None:
        await store.run([("SET", self.key(name), "x") for name in ("one", "two", "three")])
        assert sorted(await run_one(store, "KEYS", self.key("t*"))) == sorted([self.key("two"), self.key("three")])


class DerivedCollections(Promises):
    @needs("hash")
    async def test_hashes(self, store: Store) -> None:
        a = self.key("a")
        await expect_derived(
            store,
            (("HMSET", a, "f", "one", "g", "2"), b"OK"),
            (("HMSET", a, "f"), WrongArity),
            (("HSTRLEN", a, "f"), 3),
            (("HSTRLEN", a, "none"), 0),
            (("HINCRBYFLOAT", a, "g", "0.5"), b"2.5"),
            (("HINCRBYFLOAT", a, "f", "0.5"), NotANumber),
        )
        assert sorted(await run_one(store, "HKEYS", a)) == [b"f", b"g"]
        assert sorted(await run_one(store, "HVALS", a)) == [b"2.5", b"one"]
        assert await run_one(store, "HSCAN", a, 0, "MATCH", "f*") == [b"0", [b"f", b"one"]]

    @needs("hash", "atomic key")
    async def test_fields_at_random(self, store: Store) -> None:
        a, none, fields = self.key("a"), self.key("none"), {b"f": b"1", b"g": b"2", b"h": b"3"}
        await store.run([("HSET", a, *(part for pair in fields.items() for part in pair))])
        assert await run_one(store, "HRANDFIELD", a) in fields
        some = await run_one(store, "HRANDFIELD", a, 2)
        assert len({*some} & {*fields}) == 2
        assert len(await run_one(store, "HRANDFIELD", a, -20)) == 20
        pairs = await run_one(store, "HRANDFIELD", a, 9, "WITHVALUES")
        assert dict(zip(pairs[::2], pairs[1::2], strict=True)) == fields
        await expect_derived(
            store,
            (("HRANDFIELD", none), None),
            (("HRANDFIELD", none, 2), []),
            (("HRANDFIELD", a, 1, "VALUES"), BadOption),
            (("HRANDFIELD", a, "x"), NotANumber),
        )

    @needs("set", "atomic key")
    async def test_members_at_random(self, store: Store) -> None:
        a, members = self.key("a"), {b"1", b"2", b"3", b"4", b"5"}
        await store.run([("SADD", a, *members)])
        assert await run_one(store, "SRANDMEMBER", a) in members
        some = await run_one(store, "SRANDMEMBER", a, 3)
        assert len(set(some)) == 3
        assert set(some) <= members
        assert len(await run_one(store, "SRANDMEMBER", a, -20)) == 20
        popped = await run_one(store, "SPOP", a, 2)
        assert len(popped) == 2
        assert await store.run([("SMEMBERS", a)]) == [members - popped]
        one = await run_one(store, "SPOP", a)
        assert await store.run([("SMEMBERS", a)]) == [members - popped - {one}]
        await expect_derived(
            store,
            (("SPOP", a, 0), set()),
            (("SPOP", a, -1), NotANumber),
            (("SPOP", self.key("none")), None),
            (("SRANDMEMBER", self.key("none")), None),
            (("SRANDMEMBER", self.key("none"), 2), []),
        )

    @needs("set", "atomic key")
    async def test_no_member_is_popped_twice(self, store: Store) -> None:
        a, members = self.key("a"), [b"%d" % number for number in range(CALLERS)]
        await store.run([("SADD", a, *members)])
        popped = await asyncio.gather(*(run_one(store, "SPOP", a) for _ in range(CALLERS)))
        assert sorted(popped) == members

    @needs("set", "atomic")
    async def test_several_sets(self, store: Store) -> None:
        a, b, none = self.key("a"), self.key("b"), self.key("none")
        await store.run([("SADD", a, "1", "2"), ("SADD", b, "2", "3")])
        await expect_derived(
            store,
            (("SMISMEMBER", a, "1", "3"), [1, 0]),
            (("SINTER", a, b), {b"2"}),
            (("SUNION", a, b), {b"1", b"2", b"3"}),
            (("SDIFF", a, b, none), {b"1"}),
            (("SMOVE", a, b, "1"), 1),
            (("SMOVE", a, b, "1"), 0),
            (("SMOVE", a, a, "2"), 1),
            (("SMEMBERS", b), {b"1", b"2", b"3"}),
            (("SSCAN", a, 0), [b"0", [b"2"]]),
        )

    @needs("set", "atomic")
    async def test_a_combination_of_sets_replaces_what_was_there(self, store: Store) -> None:
        a, b, into, none = self.key("a"), self.key("b"), self.key("into"), self.key("none")
        await store.run([("SADD", a, "1", "2"), ("SADD", b, "2", "3"), ("SADD", into, "9")])
        await expect_derived(
            store,
            (("EXPIRE", into, 100), 1),
            (("SUNIONSTORE", into, a, b), 3),
            (("TTL", into), -1),
            (("SMEMBERS", into), {b"1", b"2", b"3"}),
            (("SINTERSTORE", into, into, b), 2),
            (("SMEMBERS", into), {b"2", b"3"}),
            (("SDIFFSTORE", into, a, b), 1),
            (("SMEMBERS", into), {b"1"}),
            (("SINTERSTORE", into, a, none), 0),
            (("EXISTS", into), 0),
            (("SDIFFSTORE", into), WrongArity),
            (("SINTERCARD", 2, a, b), 1),
            (("SINTERCARD", 1, a), 2),
            (("SINTERCARD", 1, a, "LIMIT", 1), 1),
            (("SINTERCARD", 1, a, "LIMIT", 0), 2),
            (("SINTERCARD", 0, a), BadOption),
            (("SINTERCARD", 2, a), BadOption),
            (("SINTERCARD", 1, a, b), BadOption),
            (("SINTERCARD", "x", a), BadOption),
        )

    @needs("set", "atomic")
    async def test_no_member_is_lost_between_concurrent_combinations(self, store: Store) -> None:
        into, sets = self.key("into"), [self.key(f"s{number}") for number in range(CALLERS)]
        await store.run([("SADD", one, one) for one in sets])
        await asyncio.gather(*(run_one(store, "SUNIONSTORE", into, into, one) for one in sets))
        assert await store.run([("SCARD", into)]) == [CALLERS]

    @needs("zset")
    async def test_sorted_sets(self, store: Store) -> None:
        a = self.key("a")
        await expect_derived(
            store,
            (("ZINCRBY", a, 2, "x"), 2.0),
            (("ZINCRBY", a, 1.5, "x"), 3.5),
            (("ZINCRBY", a, "x", "x"), NotANumber),
            (("ZADD", a, 1, "y", 2, "z"), 2),
            (("ZREVRANGE", a, 0, 1), [b"x", b"z"]),
            (("ZREVRANGE", a, 0, 0, "WITHSCORES"), [[b"x", 3.5]]),
            (("ZRANGEBYSCORE", a, "(1", "+inf", "LIMIT", 0, 1), [b"z"]),
            (("ZREVRANGEBYSCORE", a, "+inf", "-inf"), [b"x", b"z", b"y"]),
            (("ZRANGEBYSCORE", a, 0, 1, "REV"), BadOption),
            (("ZSCAN", a, 0, "MATCH", "[xy]"), [b"0", [b"y", b"1", b"x", b"3.5"]]),
            (("ZPOPMAX", a), [b"x", 3.5]),
            (("ZPOPMAX", a, 5), [[b"z", 2.0], [b"y", 1.0]]),
            (("ZPOPMAX", a), []),
        )

    @needs("list", "atomic")
    async def test_lists(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect_derived(
            store,
            (("LPUSHX", a, "x"), 0),
            (("RPUSH", a, "1", "2", "1"), 3),
            (("RPUSHX", a, "3"), 4),
            (("LPOS", a, "1"), 0),
            (("LPOS", a, "1", "RANK", -1), 2),
            (("LPOS", a, "1", "COUNT", 0), [0, 2]),
            (("LPOS", a, "none"), None),
            (("LINSERT", a, "BEFORE", "2", "x"), 5),
            (("LINSERT", a, "AFTER", "3", "y"), 6),
            (("LINSERT", a, "AFTER", "none", "y"), -1),
            (("LRANGE", a, 0, -1), [b"1", b"x", b"2", b"1", b"3", b"y"]),
            (("LMOVE", a, b, "LEFT", "RIGHT"), b"1"),
            (("RPOPLPUSH", a, b), b"y"),
            (("LRANGE", b, 0, -1), [b"y", b"1"]),
            (("RPOPLPUSH", self.key("none"), b), None),
            (("EXPIRE", b, 100), 1),
            (("LTRIM", b, 0, 0), b"OK"),
            (("RPOPLPUSH", b, b), b"y"),
            (("TTL", b), SOON),
        )

    @needs("hash", "set")
    async def test_wrong_kinds_are_refused(self, store: Store) -> None:
        a = self.key("a")
        await expect_derived(
            store,
            (("HSET", a, "f", "x"), 1),
            (("APPEND", a, "x"), WrongKind),
            (("STRLEN", a), WrongKind),
            (("SPOP", a), WrongKind),
            (("HGETALL", a), {b"f": b"x"}),
        )

    @needs("list", "atomic")
    async def test_commands_of_one_step_can_be_part_of_a_larger_one(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        first, second = derive(("INCR", a)), derive(("HVALS", b))
        assert isinstance(first, Derived)
        assert isinstance(second, Derived)
        outcome = await store.atomically([*first.steps, ("HSET", b, "f", "x"), *second.steps])
        assert (first.finish(outcome.replies[:1]), second.finish(outcome.replies[2:])) == (1, [b"x"])
