"""Strings, numbers and whole keys."""

from __future__ import annotations

import time

import pytest

from keystead.errors import BadArgument, BadLifetime, BadOption, NotANumber, UnknownCommand, WrongArity, WrongKind
from keystead.stores import Command, Store
from keystead.stores.commands import INT64_MAX, INT64_MIN
from keystead.testing.contract.contract_base import Promises, clock_ms, expect, expect_count, needs


class Strings(Promises):
    async def test_a_key_that_was_never_set_is_nil(self, store: Store) -> None:
        await expect(store, (("GET", self.key("none")), None), (("TYPE", self.key("none")), b"none"))

    async def test_a_value_comes_back_as_it_was_put(self, store: Store) -> None:
        a = self.key("a")
        await expect(store, (("SET", a, b"\x00\xff"), b"OK"), (("GET", a), b"\x00\xff"), (("TYPE", a), b"string"))

    @needs("update")
    async def test_names_and_options_may_be_written_in_any_case(self, store: Store) -> None:
        a = self.key("a")
        await expect(store, (("set", a, "1", "nx"), b"OK"), (("Get", a), b"1"), ((b"SET", a, "2", b"Nx"), None))

    async def test_numbers_and_text_are_stored_as_they_are_written(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, -7), b"OK"),
            (("GET", a), b"-7"),
            (("SET", a, 1.5), b"OK"),
            (("GET", a), b"1.5"),
            (("SET", a, "ü"), b"OK"),
            (("GET", a), b"\xc3\xbc"),
        )

    async def test_set_replaces_a_value_of_any_kind(self, store: Store) -> None:
        for kind in sorted(store.guarantees.kinds - {"channel"}):
            a = self.key(kind)
            await store.run([self.of_kind(kind, a)])
            await expect(store, (("SET", a, "new"), b"OK"), (("GET", a), b"new"), (("TYPE", a), b"string"))

    @staticmethod
    def of_kind(kind: str, key: bytes) -> tuple[str | bytes, ...]:
        """A command that creates a key of this kind."""
        return {
            "string": ("SET", key, "x"),
            "hash": ("HSET", key, "f", "x"),
            "set": ("SADD", key, "x"),
            "zset": ("ZADD", key, "1", "x"),
            "list": ("RPUSH", key, "x"),
            "stream": ("XADD", key, "1-1", "f", "x"),
        }[kind]

    @needs("update")
    async def test_nx_writes_only_where_nothing_is(self, store: Store) -> None:
        a = self.key("a")
        await expect(store, (("SET", a, "1", "NX"), b"OK"), (("SET", a, "2", "NX"), None), (("GET", a), b"1"))

    @needs("update")
    async def test_xx_writes_only_where_something_is(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, "1", "XX"), None),
            (("EXISTS", a), 0),
            (("SET", a, "1"), b"OK"),
            (("SET", a, "2", "XX"), b"OK"),
            (("GET", a), b"2"),
        )

    @needs("update")
    async def test_set_with_get_answers_with_what_was_there(self, store: Store) -> None:
        a = self.key("a")
        await expect(store, (("SET", a, "1", "GET"), None), (("SET", a, "2", "GET"), b"1"), (("GET", a), b"2"))

    @needs("update")
    async def test_set_with_get_and_a_condition_answers_with_what_was_there_whether_it_wrote_or_not(
        self, store: Store
    ) -> None:
        a, b = self.key("a"), self.key("b")
        await expect(
            store,
            (("SET", a, "1", "NX", "GET"), None),
            (("SET", a, "2", "NX", "GET"), b"1"),
            (("GET", a), b"1"),
            (("SET", b, "1", "XX", "GET"), None),
            (("EXISTS", b), 0),
            (("SET", a, "3", "XX", "GET"), b"1"),
            (("GET", a), b"3"),
        )

    @needs("update")
    async def test_getdel_gives_the_value_and_takes_it_away(self, store: Store) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, "1", "PX", 60_000), b"OK"),
            (("GETDEL", a), b"1"),
            (("GETDEL", a), None),
            (("PTTL", a), -2),
        )

    async def test_mget_is_nil_for_what_is_missing_or_no_string(self, store: Store) -> None:
        a, b, none = self.key("a"), self.key("b"), self.key("none")
        await store.run([("SET", a, "1"), ("SET", b, "2")])
        await expect(store, (("MGET", a, none, b, a), [b"1", None, b"2", b"1"]))
        if "hash" in store.guarantees.kinds:
            await store.run([("HSET", none, "f", "v")])
            await expect(store, (("MGET", a, none, b), [b"1", None, b"2"]))

    @needs("update")
    async def test_a_counter_begins_at_zero(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect(
            store,
            (("INCRBY", a, 5), 5),
            (("INCRBY", a, -7), -2),
            (("DECRBY", b, 3), -3),
            (("DECRBY", b, -3), 0),
            (("GET", a), b"-2"),
            (("INCRBY", a, 0), -2),
        )

    @needs("update")
    async def test_a_counter_reaches_64_bits_and_no_further(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect(
            store,
            (("INCRBY", a, INT64_MAX), INT64_MAX),
            (("INCRBY", a, 1), NotANumber),
            (("GET", a), b"%d" % INT64_MAX),
            (("INCRBY", b, INT64_MIN), INT64_MIN),
            (("DECRBY", b, 1), NotANumber),
            (("GET", b), b"%d" % INT64_MIN),
            (("INCRBY", b, INT64_MAX), -1),
            (("INCRBY", a, INT64_MAX + 1), NotANumber),
            (("DECRBY", self.key("c"), INT64_MIN), NotANumber),
            (("EXISTS", self.key("c")), 0),
        )

    @pytest.mark.parametrize("text", ["", "x", "1.0", "1 ", " 1", "+1", "01", "-0", "1e3", "9223372036854775808"])
    @needs("update")
    async def test_only_a_plain_integer_can_be_counted_on(self, store: Store, text: str) -> None:
        a = self.key("a")
        await expect(
            store,
            (("SET", a, text), b"OK"),
            (("INCRBY", a, 1), NotANumber),
            (("DECRBY", a, 1), NotANumber),
            (("GET", a), text.encode()),
            (("INCRBY", self.key("b"), text), NotANumber),
            (("EXISTS", self.key("b")), 0),
        )


class KeyContract(Promises):
    async def test_del_counts_each_key_that_was_there_once(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        await expect(
            store,
            (("SET", a, "1"), b"OK"),
            (("SET", b, "1"), b"OK"),
            (("DEL", a, self.key("none"), a, b), 2),
            (("EXISTS", a, b), 0),
            (("DEL", a), 0),
        )

    async def test_exists_counts_a_key_as_often_as_it_is_named(self, store: Store) -> None:
        a = self.key("a")
        await expect(store, (("SET", a, ""), b"OK"), (("EXISTS", a, self.key("none"), a), 2))

    @needs("scan")
    async def test_dbsize_counts_the_keys(self, store: Store) -> None:
        await expect(store, (("DBSIZE",), 0))
        await store.run([("SET", self.key(f"k{n}"), "x") for n in range(5)])
        await expect(store, (("DBSIZE",), 5), (("DEL", self.key("k0")), 1), (("DBSIZE",), 4))

    async def test_time_is_the_clock_in_seconds_and_microseconds(self, store: Store) -> None:
        [[seconds, micros]] = await store.run([("TIME",)])
        assert (type(seconds), type(micros)) == (bytes, bytes)
        assert 0 <= int(micros) < 1_000_000
        assert abs(await clock_ms(store) - time.time() * 1000) < 60_000

    @needs("hash", "set", "zset", "list", "stream")
    async def test_type_names_the_kind(self, store: Store) -> None:
        for kind in ("string", "hash", "set", "zset", "list", "stream"):
            a = self.key(kind)
            await expect(store, (("DEL", a), 0), (("TYPE", a), b"none"))
            await store.run([Strings.of_kind(kind, a)])
            await expect(store, (("TYPE", a), kind.encode()), (("EXISTS", a), 1), (("PTTL", a), -1), (("DEL", a), 1))


class Errors(Promises):
    @needs("update")
    async def test_a_command_that_fails_leaves_the_others_their_replies(self, store: Store) -> None:
        a, text = self.key("a"), self.key("text")
        await store.run([("SET", text, "x")])
        commands: list[Command] = [
            ("SET", a, "1"),
            ("INCRBY", text, 1),
            ("GET",),
            ("INCRBY", a, 1),
            ("NOPE", a),
            ("GET", a),
        ]
        with pytest.raises(NotANumber) as caught:
            await store.run(commands)
        assert caught.value.replies is not None
        codes = [getattr(reply, "code", reply) for reply in caught.value.replies]
        assert codes == [b"OK", "not-a-number", "wrong-arity", 2, "unknown-command", b"2"]

    @needs("hash", "set", "zset", "list", "stream")
    async def test_a_command_that_fails_leaves_replies_of_every_shape_alone(self, store: Store) -> None:
        s, h, m, z, x = (self.key(name) for name in ("s", "h", "m", "z", "x"))
        await store.run(
            [
                ("SET", s, "x"),
                ("HSET", h, "f", "v"),
                ("SADD", m, "a"),
                ("ZADD", z, 1, "a"),
                ("XADD", x, "1-1", "f", "v"),
            ]
        )
        await expect(
            store,
            (("HGETALL", h), {b"f": b"v"}),
            (("HGETALL", self.key("none")), {}),
            (("SMEMBERS", m), {b"a"}),
            (("INCRBY", s, 1), NotANumber),
            (("ZSCORE", z, "a"), 1.0),
            (("ZMSCORE", z, "a", "b"), [1.0, None]),
            (("ZRANGE", z, 0, -1, "WITHSCORES"), [[b"a", 1.0]]),
            (("ZADD", z, "INCR", 1, "a"), 2.0),
            (("RPOP", s), WrongKind),
            (("ZPOPMIN", z), [b"a", 2.0]),
            (("XRANGE", x, "-", "+"), [[b"1-1", [b"f", b"v"]]]),
            (("HGETALL", s), WrongKind),
        )

    async def test_a_batch_that_is_only_wrong_has_no_effect(self, store: Store) -> None:
        with pytest.raises(UnknownCommand):
            await store.run([("NOPE", self.key("a"))])
        await expect_count(store, 0)

    async def test_an_empty_batch_has_no_replies(self, store: Store) -> None:
        assert await store.run([]) == []

    @needs("hash")
    async def test_an_error_names_the_command_and_the_key(self, store: Store) -> None:
        a = self.key("a\n")
        await store.run([("SET", a, "1")])
        with pytest.raises(WrongKind) as caught:
            await store.run([("HGET", a, "f")])
        assert (caught.value.command, caught.value.key) == ("HGET", a)
        assert str(caught.value).startswith("HGET ")
        assert "a\\n" in str(caught.value)
        with pytest.raises(WrongArity) as arity:
            await store.run([("HGET", a)])
        assert (arity.value.command, arity.value.key) == ("HGET", a)

    @needs("hash", "set", "zset", "list", "stream")
    async def test_a_value_of_another_kind_is_never_touched(self, store: Store) -> None:
        a, b = self.key("string"), self.key("hash")
        await store.run([("SET", a, "kept"), ("HSET", b, "f", "kept")])
        wrong: list[tuple[str | bytes | int, ...]] = [
            *(
                (name, b)
                for name in ("GET", "GETDEL", "GETEX", "SMEMBERS", "SCARD", "ZCARD", "ZPOPMIN", "LPOP", "XLEN")
            ),
            *((name, b, 1) for name in ("INCRBY", "DECRBY", "SADD", "RPUSH", "LPUSH", "ZSCORE", "ZRANK", "LINDEX")),
            *(
                (name, b, 0, -1)
                for name in ("LRANGE", "LTRIM", "ZRANGE", "ZCOUNT", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE")
            ),
            *(("SET", b, "x", "GET"), ("ZADD", b, 1, "m"), ("XADD", b, "1-1", "f", "v"), ("XRANGE", b, "-", "+")),
            *(("SREM", b, "x"), ("SISMEMBER", b, "x"), ("ZREM", b, "x"), ("ZMSCORE", b, "x"), ("ZREVRANK", b, "x")),
            *(("LREM", b, 0, "x"), ("LSET", b, 0, "x"), ("LLEN", b), ("RPOP", b, 2), ("XDEL", b, "1-1")),
            *(("XTRIM", b, "MAXLEN", 1), ("XREVRANGE", b, "+", "-")),
            *((name, a) for name in ("HGETALL", "HLEN")),
            *(("HSET", a, "f", "v"), ("HSETNX", a, "f", "v"), ("HGET", a, "f"), ("HMGET", a, "f"), ("HDEL", a, "f")),
            *(("HEXISTS", a, "f"), ("HINCRBY", a, "f", 1)),
        ]
        await expect(store, *((command, WrongKind) for command in wrong))
        await expect(store, (("GET", a), b"kept"), (("HGETALL", b), {b"f": b"kept"}))

    @pytest.mark.parametrize(
        ("command", "error"),
        [
            (("SET", "a"), WrongArity),
            (("GET", "a", "b"), WrongArity),
            (("MGET",), WrongArity),
            (("HSET", "a", "f"), WrongArity),
            (("HSET", "a", "f", "v", "g"), WrongArity),
            (("XADD", "a", "*", "f"), WrongArity),
            (("SET", "a", "1", "NX", "XX"), BadOption),
            (("SET", "a", "1", "EX", "10", "PX", "10"), BadOption),
            (("SET", "a", "1", "EX", "10", "KEEPTTL"), BadOption),
            (("SET", "a", "1", "EX"), BadOption),
            (("SET", "a", "1", "SOON"), BadOption),
            (("SET", "a", "1", "EX", "soon"), NotANumber),
            (("SET", "a", "1", "EX", "1.5"), NotANumber),
            (("GETEX", "a", "EX"), BadOption),
            (("GETEX", "a", "PERSIST", "1"), BadOption),
            (("EXPIRE", "a", "10", "NX", "XX"), BadOption),
            (("EXPIRE", "a", "10", "GT", "LT"), BadOption),
            (("EXPIRE", "a", "soon"), NotANumber),
            (("ZADD", "a", "NX", "GT", "1", "m"), BadOption),
            (("ZADD", "a", "NX", "XX", "1", "m"), BadOption),
            (("ZADD", "a", "INCR", "1", "m", "2", "n"), BadOption),
            (("ZADD", "a", "1", "m", "2"), BadOption),
            (("ZADD", "a", "nan", "m"), NotANumber),
            (("ZADD", "a", "high", "m"), NotANumber),
            (("ZADD", "a", "0x10", "m", "1_0", "n"), NotANumber),
            (("ZRANGE", "a", "0", "-1", "LIMIT", "0", "1"), BadOption),
            (("ZRANGE", "a", "0", "-1", "SOON"), BadOption),
            (("ZRANGE", "a", "x", "-1"), NotANumber),
            (("ZCOUNT", "a", "x", "1"), NotANumber),
            (("LPOP", "a", "-1"), NotANumber),
            (("ZPOPMIN", "a", "-1"), NotANumber),
            (("XADD", "a", "0-0", "f", "v"), BadArgument),
            (("XADD", "a", "x", "f", "v"), BadArgument),
            (("XRANGE", "a", "x", "+"), BadArgument),
            (("XTRIM", "a", "MAXLEN", "-1"), NotANumber),
            (("SCAN", "0", "COUNT", "0"), BadOption),
            (("GET", 1), BadArgument),
            (("GET", None), BadArgument),
            (("SET", "a", True), BadArgument),
            (("SET", "a", "\ud800"), BadArgument),
            ("GET a", BadArgument),
            ((), BadArgument),
        ],
        ids=repr,
    )
    async def test_a_command_that_is_written_wrongly_is_said_and_has_no_effect(
        self, store: Store, command: tuple[str, ...], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            await store.run([command])
        await expect_count(store, 0)

    @pytest.mark.parametrize("lifetime", [0, -1, -1000, "-9223372036854775808"])
    async def test_a_lifetime_of_zero_or_less_is_refused_and_changes_nothing(
        self, store: Store, lifetime: int | str
    ) -> None:
        a = self.key("a")
        await store.run([("SET", a, "kept", "PX", 600_000)])
        commands: list[tuple[str | bytes | int, ...]] = [
            *(("SET", a, "lost", word, lifetime) for word in ("EX", "PX", "EXAT", "PXAT")),
            *(("GETEX", a, word, lifetime) for word in ("EX", "PX", "EXAT", "PXAT")),
            *((name, a, lifetime) for name in ("EXPIRE", "PEXPIRE", "PEXPIREAT")),
        ]
        await expect(store, *((command, BadLifetime) for command in commands), (("GET", a), b"kept"))
        [left] = await store.run([("PTTL", a)])
        assert 500_000 < left <= 600_000
