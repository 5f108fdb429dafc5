"""Promises of streams."""

from __future__ import annotations

from keystead.errors import BadArgument
from keystead.stores import Store
from keystead.testing.contract.contract_base import Promises, expect, needs


class Streams(Promises):
    @needs("stream")
    async def test_entries_stand_in_the_order_of_their_ids(self, store: Store) -> None:
        x = self.key("x")
        await expect(
            store,
            (("XADD", x, "1-1", "f", "a"), b"1-1"),
            (("XADD", x, "1-*", "f", "b"), b"1-2"),
            (("XADD", x, "5", "f", "c", "g", ""), b"5-0"),
            (("XADD", x, "7-*", "f", "d"), b"7-0"),
            (("XLEN", x), 4),
            (("XRANGE", x, "-", "+", "COUNT", 2), [[b"1-1", [b"f", b"a"]], [b"1-2", [b"f", b"b"]]]),
            (("XREVRANGE", x, "+", "-", "COUNT", 1), [[b"7-0", [b"f", b"d"]]]),
            (("XRANGE", x, 1, 1), [[b"1-1", [b"f", b"a"]], [b"1-2", [b"f", b"b"]]]),
            (("XRANGE", x, "(1-2", "(7-0"), [[b"5-0", [b"f", b"c", b"g", b""]]]),
            (("XREVRANGE", x, 6, "(1-2"), [[b"5-0", [b"f", b"c", b"g", b""]]]),
            (("XRANGE", x, 8, "+"), []),
            (("XRANGE", x, 5, 1), []),
        )

    @needs("stream")
    async def test_an_id_must_be_greater_than_all_before_it_even_those_removed(self, store: Store) -> None:
        x = self.key("x")
        await expect(
            store,
            (("XADD", x, "5-5", "f", "a"), b"5-5"),
            (("XADD", x, "5-5", "f", "b"), BadArgument),
            (("XADD", x, "4-*", "f", "b"), BadArgument),
            (("XDEL", x, "5-5"), 1),
            (("XLEN", x), 0),
            (("EXISTS", x), 1),
            (("XADD", x, "5-5", "f", "b"), BadArgument),
            (("XADD", x, "5-*", "f", "b"), b"5-6"),
        )

    @needs("stream")
    async def test_the_store_gives_ids_that_grow_and_begin_with_its_time(self, store: Store) -> None:
        x = self.key("x")
        first, second, [time, _] = await store.run([("XADD", x, "*", "f", "a"), ("XADD", x, "*", "f", "b"), ("TIME",)])
        ids = [tuple(map(int, entry.split(b"-"))) for entry in (first, second)]
        assert ids[0] < ids[1]
        assert abs(ids[0][0] - int(time) * 1000) < 5000
        [entries] = await store.run([("XRANGE", x, "-", "+")])
        assert entries == [[first, [b"f", b"a"]], [second, [b"f", b"b"]]]

    @needs("stream")
    async def test_entries_are_removed_and_trimmed_oldest_first(self, store: Store) -> None:
        x = self.key("x")
        await expect(
            store,
            *((("XADD", x, f"{n}-0", "f", n), b"%d-0" % n) for n in range(1, 7)),
            (("XDEL", x, "2-0", "2-0", "9-9"), 1),
            (("XADD", x, "MAXLEN", 4, "7-0", "f", 7), b"7-0"),
            (("XLEN", x), 4),
            (("XADD", x, "MAXLEN", "=", 4, "8-0", "f", 8), b"8-0"),
            (("XTRIM", x, "MAXLEN", "=", 2), 2),
            (("XTRIM", x, "MAXLEN", 5), 0),
            (("XRANGE", x, "-", "+"), [[b"7-0", [b"f", b"7"]], [b"8-0", [b"f", b"8"]]]),
            (("XTRIM", x, "MAXLEN", 0), 2),
            (("XLEN", x), 0),
            (("TYPE", x), b"stream"),
        )

    @needs("stream")
    async def test_a_stream_that_is_not_there_is_an_empty_one(self, store: Store) -> None:
        x = self.key("x")
        await expect(
            store,
            (("XLEN", x), 0),
            (("XRANGE", x, "-", "+"), []),
            (("XREVRANGE", x, "+", "-"), []),
            (("XDEL", x, "1-1"), 0),
            (("XTRIM", x, "MAXLEN", 0), 0),
            (("EXISTS", x), 0),
        )
