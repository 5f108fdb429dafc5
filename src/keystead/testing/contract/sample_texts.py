"""Hostile keys and values: any bytes are stored and returned unchanged."""

from __future__ import annotations

import pytest

from keystead.errors import StoreError
from keystead.stores import Store, holds
from keystead.stores.globs import escape
from keystead.testing.contract.contract_base import Promises, expect, needs

HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "nul": b"\x00",
    "every byte": bytes(range(256)),
    "not utf-8": b"\xff\xfe\xc3",
    "newlines": b"a\r\nb\n$5\r\nhello\r\n",
    "a command": b"*1\r\n$8\r\nFLUSHALL\r\n",
    "a glob": b"*?[a-z]\\",
    "braces": b"{}{a}{}",
    "an open brace": b"{",
    "colons": b":::",
    "spaces": b"  a  ",
    "quotes": b"'\"; DROP TABLE keys; --",
    "percent": b"%s%d%00",
    "unicode": "ключ-鍵-🔑-e\u0301-\u00e9".encode(),
    "a number": b"1",
    "long": b"k" * 10_000,
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


class Texts(Promises):
    large_batch = 3000  # commands; fewer where each one is slow

    @hostile
    async def test_a_key_may_be_any_bytes(self, store: Store, text: bytes) -> None:
        key = self.key(text)
        limit = store.guarantees.key_max_bytes
        assert limit is None or len(key) <= limit, "a store with its own limit overrides this test"
        near = [key + b"\x00", key + b" ", key + b"*"]
        await store.run([("SET", name, "near") for name in near])
        await expect(
            store,
            (("EXISTS", key), 0),
            (("SET", key, "here"), b"OK"),
            (("GET", key), b"here"),
            (("DEL", key), 1),
            (("MGET", key, *near), [None, b"near", b"near", b"near"]),
        )

    @hostile
    async def test_a_value_may_be_any_bytes(self, store: Store, text: bytes) -> None:
        a = self.key("a")
        await expect(store, (("SET", a, text), b"OK"), (("GET", a), text))
        await expect(store, (("GET", a), text))
        if store.guarantees.updates:
            await expect(store, (("SET", a, "", "GET"), text))

    @hostile
    @needs("hash", "set", "zset", "list", "stream")
    async def test_a_member_may_be_any_bytes(self, store: Store, text: bytes) -> None:
        h, s, z, q, x = (self.key(name) for name in ("h", "s", "z", "q", "x"))
        await expect(
            store,
            (("HSET", h, text, text), 1),
            (("HGETALL", h), {text: text}),
            (("SADD", s, text), 1),
            (("SMEMBERS", s), {text}),
            (("ZADD", z, 1, text), 1),
            (("ZRANGE", z, 0, -1), [text]),
            (("RPUSH", q, text), 1),
            (("LRANGE", q, 0, -1), [text]),
            (("XADD", x, "1-1", text, text), b"1-1"),
            (("XRANGE", x, "-", "+"), [[b"1-1", [text, text]]]),
        )

    @hostile
    @needs("atomic")
    async def test_an_atomic_step_takes_any_bytes(self, store: Store, text: bytes) -> None:
        key = self.key(text)
        assert (
            await store.atomically([holds(key, None), ("SET", key, text), holds(key, text), ("GET", key)])
        ).replies == [
            *(1, b"OK", 1, text),
        ]

    @hostile
    @needs("scan")
    async def test_a_scan_finds_a_hostile_key_by_its_escaped_name(self, store: Store, text: bytes) -> None:
        key = self.key(text + b"!")
        await store.run([("SET", key, ""), ("SET", self.key("other"), "")])
        pattern = escape(key.decode("latin-1")).encode("latin-1")
        found = {name async for page in store.scan(pattern) for name in page}
        assert found == {key}

    async def test_a_value_of_five_megabytes_or_the_largest_there_is_comes_back_whole(self, store: Store) -> None:
        a = self.key("a")
        value = bytes(range(256)) * 4 * 5 * 1024
        limit = store.guarantees.value_max_bytes
        if limit is not None and len(value) > limit:
            await store.run([("SET", a, "kept")])
            with pytest.raises(StoreError):
                await store.run([("SET", a, value)])
            await expect(store, (("GET", a), b"kept"))
            value = value[:limit]
        await store.run([("SET", a, value)])
        [got, small] = await store.run([("GET", a), ("EXISTS", a)])
        assert got == value
        assert small == 1

    async def test_a_batch_may_be_large(self, store: Store) -> None:
        keys = [self.key(f"k{n}") for n in range(self.large_batch)]
        values = [b"%d" % n for n in range(len(keys))]
        assert await store.run([("SET", key, n) for n, key in enumerate(keys)]) == [b"OK"] * len(keys)
        assert await store.run([("GET", key) for key in keys]) == values
        assert await store.run([("MGET", *keys)]) == [values]
        assert await store.run([("DEL", *keys)]) == [len(keys)]
