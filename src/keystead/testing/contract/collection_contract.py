"""Hashes, sets, sorted sets and lists."""

from __future__ import annotations

from math import inf

import pytest

from keystead.errors import BadArgument, NotANumber
from keystead.stores import Store
from keystead.stores.commands import INT64_MAX, INT64_MIN
from keystead.testing.contract.contract_base import Promises, expect, needs


class Hashes(Promises):
    @needs("hash")
    async def test_a_hash_holds_fields(self, store: Store) -> None:
        h = self.key("h")
        await expect(
            store,
            (("HSET", h, "a", "1", "b", "2"), 2),
            (("HSET", h, "b", "3", "c", ""), 1),
            (("HGET", h, "b"), b"3"),
            (("HGET", h, "none"), None),
            (("HMGET", h, "c", "none", "a"), [b"", None, b"1"]),
            (("HGETALL", h), {b"a": b"1", b"b": b"3", b"c": b""}),
            (("HLEN", h), 3),
            (("HEXISTS", h, "c"), 1),
            (("HEXISTS", h, "none"), 0),
        )

    @needs("hash")
    async def test_a_field_named_twice_is_one_field_with_the_last_value(self, store: Store) -> None:
        h = self.key("h")
        await expect(
            store,
            (("HSET", h, "a", "1", "a", "2"), 1),
            (("HSET", h, "a", "3", "b", "1", "b", "2"), 1),
            (("HGETALL", h), {b"a": b"3", b"b": b"2"}),
            (("HLEN", h), 2),
        )

    @needs("hash")
    async def test_a_hash_that_is_not_there_is_an_empty_one(self, store: Store) -> None:
        h = self.key("h")
        await expect(
            store,
            (("HGETALL", h), {}),
            (("HGET", h, "a"), None),
            (("HMGET", h, "a", "b"), [None, None]),
            (("HLEN", h), 0),
            (("HDEL", h, "a"), 0),
            (("HEXISTS", h, "a"), 0),
            (("EXISTS", h), 0),
        )

    @needs("hash")
    async def test_hsetnx_writes_a_field_only_where_it_is_not(self, store: Store) -> None:
        h = self.key("h")
        await expect(
            store,
            (("HSETNX", h, "a", "1"), 1),
            (("HSETNX", h, "a", "2"), 0),
            (("HSETNX", h, "b", "3"), 1),
            (("HGETALL", h), {b"a": b"1", b"b": b"3"}),
            (("HLEN", h), 2),
        )

    @needs("hash")
    async def test_a_hash_goes_with_its_last_field(self, store: Store) -> None:
        h = self.key("h")
        await expect(
            store,
            (("HSET", h, "a", "1", "b", "2"), 2),
            (("HDEL", h, "a", "a", "none"), 1),
            (("HLEN", h), 1),
            (("HDEL", h, "b"), 1),
            (("EXISTS", h), 0),
            (("TYPE", h), b"none"),
        )

    @needs("hash")
    async def test_a_field_counts_within_64_bits(self, store: Store) -> None:
        h = self.key("h")
        await expect(
            store,
            (("HINCRBY", h, "n", 5), 5),
            (("HINCRBY", h, "n", -7), -2),
            (("HGET", h, "n"), b"-2"),
            (("HLEN", h), 1),
            (("HSET", h, "m", INT64_MAX, "l", INT64_MIN, "t", "x"), 3),
            (("HINCRBY", h, "m", 1), NotANumber),
            (("HINCRBY", h, "l", -1), NotANumber),
            (("HINCRBY", h, "t", 1), NotANumber),
            (("HINCRBY", h, "m", INT64_MIN), -1),
            (("HMGET", h, "m", "l", "t"), [b"-1", b"%d" % INT64_MIN, b"x"]),
            (("HINCRBY", self.key("new"), "n", "x"), NotANumber),
            (("EXISTS", self.key("new")), 0),
        )

    @needs("hash")
    async def test_fields_and_values_may_be_any_bytes(self, store: Store) -> None:
        h = self.key("h")
        odd = {b"": b"", b"\x00": b"\xff", b"\r\n": b"*3\r\n", b"a:b": b" "}
        await store.run([("HSET", h, *(part for pair in odd.items() for part in pair))])
        await expect(store, (("HGETALL", h), odd), (("HGET", h, ""), b""), (("HLEN", h), 4))


class Sets(Promises):
    @needs("set")
    async def test_a_set_holds_each_member_once(self, store: Store) -> None:
        s = self.key("s")
        await expect(
            store,
            (("SADD", s, "a", "b", "a"), 2),
            (("SADD", s, "b", "c", ""), 2),
            (("SMEMBERS", s), {b"a", b"b", b"c", b""}),
            (("SCARD", s), 4),
            (("SISMEMBER", s, ""), 1),
            (("SISMEMBER", s, "none"), 0),
        )

    @needs("set")
    async def test_a_set_goes_with_its_last_member(self, store: Store) -> None:
        s = self.key("s")
        await expect(
            store,
            (("SADD", s, "a", "b"), 2),
            (("SREM", s, "a", "a", "none"), 1),
            (("SCARD", s), 1),
            (("SREM", s, "b"), 1),
            (("EXISTS", s), 0),
        )

    @needs("set")
    async def test_a_set_that_is_not_there_is_an_empty_one(self, store: Store) -> None:
        s = self.key("s")
        await expect(
            store, (("SMEMBERS", s), set()), (("SCARD", s), 0), (("SISMEMBER", s, "a"), 0), (("SREM", s, "a"), 0)
        )

    @needs("set")
    async def test_a_set_of_thousands_comes_back_whole(self, store: Store) -> None:
        s = self.key("s")
        members = {b"member:%d" % n for n in range(3000)}
        await expect(
            store,
            (("SADD", s, *sorted(members)), 3000),
            (("SCARD", s), 3000),
            (("SMEMBERS", s), members),
            (("DEL", s), 1),
            (("SMEMBERS", s), set()),
            (("SADD", s, "fresh"), 1),
            (("SMEMBERS", s), {b"fresh"}),
        )


class SortedSets(Promises):
    @needs("zset")
    async def test_members_stand_in_the_order_of_their_scores_then_of_their_bytes(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, 2, "b", 1, "c", 2, "a", 2, b"\xff", 2, ""), 5),
            (("ZRANGE", z, 0, -1), [b"c", b"", b"a", b"b", b"\xff"]),
            (("ZRANGE", z, 0, -1, "REV"), [b"\xff", b"b", b"a", b"", b"c"]),
            (("ZRANGE", z, 0, 1, "WITHSCORES"), [[b"c", 1.0], [b"", 2.0]]),
            (("ZRANGE", z, 0, 0, "REV", "WITHSCORES"), [[b"\xff", 2.0]]),
            (("ZCARD", z), 5),
            (("ZRANK", z, "a"), 2),
            (("ZREVRANK", z, "a"), 2),
            (("ZRANK", z, "c"), 0),
            (("ZREVRANK", z, "c"), 4),
            (("ZRANK", z, "none"), None),
            (("ZREVRANK", z, "none"), None),
        )

    @needs("zset")
    async def test_zadd_counts_new_members_and_with_ch_changed_ones_too(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, 1, "a", 2, "b", 3, "a"), 2),
            (("ZSCORE", z, "a"), 3.0),
            (("ZADD", z, 4, "a", 5, "c"), 1),
            (("ZADD", z, "CH", 5, "a", 5, "c", 6, "d"), 2),
            (("ZADD", z, "CH", 5, "a"), 0),
            (("ZCARD", z), 4),
        )

    @needs("zset")
    async def test_zadd_obeys_its_conditions(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, "XX", 1, "a"), 0),
            (("EXISTS", z), 0),
            (("ZADD", z, "NX", 1, "a", 2, "a"), 1),
            (("ZADD", z, "NX", 9, "a"), 0),
            (("ZADD", z, "GT", "CH", 0, "a"), 0),
            (("ZADD", z, "GT", "CH", 5, "a", 1, "b"), 2),
            (("ZADD", z, "LT", "CH", 7, "a"), 0),
            (("ZADD", z, "LT", "CH", 4, "a"), 1),
            (("ZADD", z, "XX", "GT", "CH", 8, "a", 8, "none"), 1),
            (("ZRANGE", z, 0, -1, "WITHSCORES"), [[b"b", 1.0], [b"a", 8.0]]),
        )

    @needs("zset")
    async def test_zadd_with_incr_answers_with_the_score_or_nil(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, "INCR", 1.5, "a"), 1.5),
            (("ZADD", z, "INCR", 2, "a"), 3.5),
            (("ZADD", z, "NX", "INCR", 2, "a"), None),
            (("ZADD", z, "XX", "INCR", 2, "none"), None),
            (("ZADD", z, "GT", "INCR", -1, "a"), None),
            (("ZADD", z, "LT", "INCR", -1, "a"), 2.5),
            (("ZMSCORE", z, "a", "none"), [2.5, None]),
        )

    @pytest.mark.parametrize(
        "score", [inf, -inf, 0.0, -0.0, 0.1, 1e308, -1e308, 5e-324, 2.0**53 + 2, 1e21, 1 / 3, 1767225600000.5]
    )
    @needs("zset")
    async def test_a_score_comes_back_exactly(self, store: Store, score: float) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, score, "m"), 1),
            (("ZSCORE", z, "m"), score),
            (("ZMSCORE", z, "m"), [score]),
            (("ZRANGE", z, 0, -1, "WITHSCORES"), [[b"m", score]]),
            (("ZRANGE", z, score, score, "BYSCORE"), [b"m"]),
            (("ZCOUNT", z, score, score), 1),
            (("ZCOUNT", z, f"({score!r}", "+inf"), 0),
            (("ZPOPMIN", z), [b"m", score]),
        )

    @needs("zset")
    async def test_a_sum_of_scores_that_is_no_number_is_refused(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, inf, "m"), 1),
            (("ZADD", z, "INCR", "-inf", "m"), NotANumber),
            (("ZSCORE", z, "m"), inf),
            (("ZADD", z, "INCR", "inf", "m"), inf),
        )

    @needs("zset")
    async def test_scores_may_be_written_as_redis_writes_them(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, "+inf", "a", "-Infinity", "b", "1e3", "c", ".5", "d", "3.", "e", "+7", "f"), 6),
            (("ZMSCORE", z, "a", "b", "c", "d", "e", "f"), [inf, -inf, 1000.0, 0.5, 3.0, 7.0]),
        )

    @needs("zset")
    async def test_ranges_by_place_count_from_either_end(self, store: Store) -> None:
        z = self.key("z")
        await store.run([("ZADD", z, 1, "a", 2, "b", 3, "c", 4, "d")])
        await expect(
            store,
            (("ZRANGE", z, 1, 2), [b"b", b"c"]),
            (("ZRANGE", z, -2, -1), [b"c", b"d"]),
            (("ZRANGE", z, -100, 100), [b"a", b"b", b"c", b"d"]),
            (("ZRANGE", z, 2, 1), []),
            (("ZRANGE", z, 4, 9), []),
            (("ZRANGE", z, 0, -5), []),
            (("ZRANGE", z, INT64_MIN, INT64_MAX), [b"a", b"b", b"c", b"d"]),
            (("ZRANGE", z, 1, 2, "REV"), [b"c", b"b"]),
        )

    @needs("zset")
    async def test_ranges_by_score_may_leave_out_their_ends_and_be_limited(self, store: Store) -> None:
        z = self.key("z")
        await store.run([("ZADD", z, 1, "a", 2, "b", 3, "c", 4, "d")])
        await expect(
            store,
            (("ZRANGE", z, 2, 3, "BYSCORE"), [b"b", b"c"]),
            (("ZRANGE", z, "(2", "(4", "BYSCORE"), [b"c"]),
            (("ZRANGE", z, "-inf", "+inf", "BYSCORE"), [b"a", b"b", b"c", b"d"]),
            (("ZRANGE", z, "+inf", "-inf", "BYSCORE", "REV"), [b"d", b"c", b"b", b"a"]),
            (("ZRANGE", z, 3, "(1", "BYSCORE", "REV", "WITHSCORES"), [[b"c", 3.0], [b"b", 2.0]]),
            (("ZRANGE", z, 1, 3, "BYSCORE", "REV"), []),
            (("ZRANGE", z, "-inf", "inf", "BYSCORE", "LIMIT", 1, 2), [b"b", b"c"]),
            (("ZRANGE", z, "-inf", "inf", "BYSCORE", "LIMIT", 2, -1), [b"c", b"d"]),
            (("ZRANGE", z, "-inf", "inf", "BYSCORE", "LIMIT", -1, 2), []),
            (("ZRANGE", z, "-inf", "inf", "BYSCORE", "LIMIT", 0, 0), []),
            (("ZRANGE", z, "inf", "-inf", "BYSCORE", "REV", "LIMIT", 1, 2), [b"c", b"b"]),
            (("ZCOUNT", z, "(1", 3), 2),
            (("ZCOUNT", z, "(1", "(2"), 0),
            (("ZCOUNT", z, 4, 1), 0),
        )

    @needs("zset")
    async def test_members_go_by_name_by_score_by_place_or_lowest_first(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZADD", z, *(part for n in range(10) for part in (n, f"m{n}"))), 10),
            (("ZREM", z, "m3", "m3", "none"), 1),
            (("ZREMRANGEBYSCORE", z, "(7", "+inf"), 2),
            (("ZREMRANGEBYRANK", z, -2, -1), 2),
            (("ZRANGE", z, 0, -1), [b"m0", b"m1", b"m2", b"m4", b"m5"]),
            (("ZPOPMIN", z), [b"m0", 0.0]),
            (("ZPOPMIN", z, 2), [[b"m1", 1.0], [b"m2", 2.0]]),
            (("ZPOPMIN", z, 0), []),
            (("ZCARD", z), 2),
            (("ZPOPMIN", z, 100), [[b"m4", 4.0], [b"m5", 5.0]]),
            (("EXISTS", z), 0),
        )

    @needs("zset")
    async def test_a_sorted_set_that_is_not_there_is_an_empty_one(self, store: Store) -> None:
        z = self.key("z")
        await expect(
            store,
            (("ZSCORE", z, "m"), None),
            (("ZMSCORE", z, "m", "n"), [None, None]),
            (("ZCARD", z), 0),
            (("ZCOUNT", z, "-inf", "inf"), 0),
            (("ZRANK", z, "m"), None),
            (("ZRANGE", z, 0, -1), []),
            (("ZREM", z, "m"), 0),
            (("ZREMRANGEBYSCORE", z, 0, 1), 0),
            (("ZREMRANGEBYRANK", z, 0, -1), 0),
            (("ZPOPMIN", z), []),
            (("ZPOPMIN", z, 2), []),
            (("EXISTS", z), 0),
        )


class Lists(Promises):
    @needs("list")
    async def test_items_are_pushed_and_popped_at_both_ends(self, store: Store) -> None:
        q = self.key("q")
        await expect(
            store,
            (("RPUSH", q, "c", "d"), 2),
            (("LPUSH", q, "b", "a"), 4),
            (("LRANGE", q, 0, -1), [b"a", b"b", b"c", b"d"]),
            (("LLEN", q), 4),
            (("LPOP", q), b"a"),
            (("RPOP", q), b"d"),
            (("LPOP", q, 5), [b"b", b"c"]),
            (("EXISTS", q), 0),
        )

    @needs("list")
    async def test_a_pop_of_several_takes_them_in_the_order_of_its_end(self, store: Store) -> None:
        q = self.key("q")
        await expect(
            store,
            (("RPUSH", q, *"abcdef"), 6),
            (("LPOP", q, 2), [b"a", b"b"]),
            (("RPOP", q, 2), [b"f", b"e"]),
            (("LPOP", q, 0), []),
            (("LPOP", q, 1), [b"c"]),
            (("LLEN", q), 1),
        )

    @needs("list")
    async def test_a_list_that_is_not_there_is_an_empty_one(self, store: Store) -> None:
        q = self.key("q")
        await expect(
            store,
            (("LPOP", q), None),
            (("RPOP", q), None),
            (("LPOP", q, 2), None),
            (("LRANGE", q, 0, -1), []),
            (("LLEN", q), 0),
            (("LTRIM", q, 0, 1), b"OK"),
            (("LREM", q, 0, "a"), 0),
            (("LINDEX", q, 0), None),
            (("LSET", q, 0, "a"), BadArgument),
            (("EXISTS", q), 0),
        )

    @needs("list")
    async def test_a_list_is_read_by_place_from_either_end(self, store: Store) -> None:
        q = self.key("q")
        await store.run([("RPUSH", q, *"abcde")])
        await expect(
            store,
            (("LRANGE", q, 1, 3), [b"b", b"c", b"d"]),
            (("LRANGE", q, -2, -1), [b"d", b"e"]),
            (("LRANGE", q, -100, 100), [b"a", b"b", b"c", b"d", b"e"]),
            (("LRANGE", q, 3, 1), []),
            (("LRANGE", q, 5, 9), []),
            (("LINDEX", q, 0), b"a"),
            (("LINDEX", q, -1), b"e"),
            (("LINDEX", q, 5), None),
            (("LINDEX", q, -6), None),
        )

    @needs("list")
    async def test_an_item_is_replaced_in_its_place(self, store: Store) -> None:
        q = self.key("q")
        await expect(
            store,
            (("RPUSH", q, *"abc"), 3),
            (("LSET", q, 1, "B"), b"OK"),
            (("LSET", q, -1, ""), b"OK"),
            (("LSET", q, 3, "x"), BadArgument),
            (("LSET", q, -4, "x"), BadArgument),
            (("LRANGE", q, 0, -1), [b"a", b"B", b""]),
        )

    @needs("list")
    async def test_items_are_removed_from_the_head_from_the_tail_or_all(self, store: Store) -> None:
        q = self.key("q")
        await expect(
            store,
            (("RPUSH", q, *"xaxbxcx"), 7),
            (("LREM", q, 1, "x"), 1),
            (("LRANGE", q, 0, -1), [b"a", b"x", b"b", b"x", b"c", b"x"]),
            (("LREM", q, -2, "x"), 2),
            (("LRANGE", q, 0, -1), [b"a", b"x", b"b", b"c"]),
            (("LREM", q, 0, "none"), 0),
            (("LREM", q, 0, "x"), 1),
            (("LINDEX", q, 1), b"b"),
            (("LPUSH", q, "h"), 4),
            (("RPUSH", q, "t"), 5),
            (("LRANGE", q, 0, -1), [b"h", b"a", b"b", b"c", b"t"]),
        )

    @needs("list")
    async def test_a_list_is_trimmed_to_a_range(self, store: Store) -> None:
        q = self.key("q")
        await expect(
            store,
            (("RPUSH", q, *"abcdef"), 6),
            (("LTRIM", q, 1, -2), b"OK"),
            (("LRANGE", q, 0, -1), [b"b", b"c", b"d", b"e"]),
            (("LTRIM", q, -3, 100), b"OK"),
            (("LRANGE", q, 0, -1), [b"c", b"d", b"e"]),
            (("LLEN", q), 3),
            (("LTRIM", q, 3, 5), b"OK"),
            (("EXISTS", q), 0),
        )
