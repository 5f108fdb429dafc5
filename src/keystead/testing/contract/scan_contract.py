"""Finding keys by pattern."""

from __future__ import annotations

import pytest

from keystead.errors import StoreError
from keystead.stores import Store
from keystead.testing.contract.contract_base import Promises, needs
from keystead.testing.contract.string_contract import Strings

NAMES = (
    "user:1",
    "user:2",
    "user:10",
    "User:1",
    "user:",
    "use",
    "a*b",
    "a[b]",
    "a\\b",
    "a?b",
    "axb",
    "a^b",
    "a-b",
    "ü",
    "",
)

# pattern -> what it finds among NAMES
PATTERNS = {
    "*": set(NAMES),
    "": {""},
    "user:*": {"user:1", "user:2", "user:10", "user:"},
    "user:?": {"user:1", "user:2"},
    "*:1": {"user:1", "User:1"},
    "[uU]ser:1": {"user:1", "User:1"},
    "[^u]ser:1": {"User:1"},
    "user:[0-9]": {"user:1", "user:2"},
    "user:[9-0]": {"user:1", "user:2"},
    "user:[0-9]*": {"user:1", "user:2", "user:10"},
    "user:[^1]": {"user:2"},
    "a\\*b": {"a*b"},
    "a\\[b]": {"a[b]"},
    "a\\\\b": {"a\\b"},
    "a\\?b": {"a?b"},
    "a[*]b": {"a*b"},
    "a[\\-x]b": {"axb", "a-b"},
    "a[\\^]b": {"a^b"},
    "a?b": {"a*b", "a\\b", "a?b", "axb", "a^b", "a-b"},
    "a*b": {"a*b", "a\\b", "a?b", "axb", "a^b", "a-b"},
    "??": {"ü"},
    "**s**e**": {"user:1", "user:2", "user:10", "User:1", "user:", "use"},
    "none*": set(),
    "user:1\n": set(),
}


async def found_by(store: Store, pattern: str | bytes = "*", kind: str | None = None, page: int = 500) -> list[bytes]:
    return [key async for keys in store.scan(pattern, kind=kind, page=page) for key in keys]


class Scans(Promises):
    def pattern(self, pattern: str) -> bytes:
        """The pattern under the test's prefix; `{` and `}` are plain text in a glob."""
        return self.prefix + pattern.encode()

    @pytest.mark.parametrize("pattern", PATTERNS)
    @needs("scan")
    async def test_a_pattern_finds_what_redis_would(self, store: Store, pattern: str) -> None:
        await store.run([("SET", self.key(name), "") for name in NAMES])
        found = set(await found_by(store, self.pattern(pattern)))
        assert found == {self.key(name) for name in PATTERNS[pattern]}

    @needs("scan")
    async def test_an_empty_store_has_no_keys(self, store: Store) -> None:
        assert await found_by(store) == []

    @pytest.mark.parametrize("page", [1, 7, 500, 5000])
    @needs("scan")
    async def test_every_key_is_found_whatever_the_size_of_a_page(self, store: Store, page: int) -> None:
        keys = {self.key(f"k:{n}") for n in range(300)}
        await store.run([("SET", key, "") for key in (*keys, self.key("other"))])
        assert set(await found_by(store, self.pattern("k:*"), page=page)) == keys
        assert set(await found_by(store, page=page)) == {*keys, self.key("other")}

    @needs("scan", "hash", "set", "zset", "list", "stream")
    async def test_a_scan_may_ask_for_one_kind(self, store: Store) -> None:
        kinds = ("string", "hash", "set", "zset", "list", "stream")
        for kind in kinds:
            await store.run([Strings.of_kind(kind, self.key(f"{kind}:{n}")) for n in range(3)])
        for kind in kinds:
            assert set(await found_by(store, kind=kind)) == {self.key(f"{kind}:{n}") for n in range(3)}
        assert await found_by(store, self.pattern("hash:*"), kind="set") == []

    async def test_an_unknown_kind_is_said(self, store: Store) -> None:
        with pytest.raises(StoreError):
            await found_by(store, kind="table")

    @needs("scan")
    async def test_a_scan_does_not_show_the_dead(self, store: Store) -> None:
        await store.run([("SET", self.key("a"), ""), ("SET", self.key("b"), "", "PXAT", 1)])
        assert await found_by(store) == [self.key("a")]

    @needs("scan")
    async def test_keys_that_are_there_throughout_are_found_while_others_come_and_go(self, store: Store) -> None:
        stay = {self.key(f"stay:{n}") for n in range(300)}
        go = [self.key(f"go:{n}") for n in range(300)]
        await store.run([("SET", key, "") for key in (*stay, *go)])
        found: set[bytes] = set()
        turn = 0
        async for keys in store.scan(page=20):
            found.update(keys)
            come = [self.key(f"come:{turn}:{n}") for n in range(40)]
            await store.run(
                [*(("SET", key, "") for key in come), ("DEL", self.key("none"), *go[turn * 10 : turn * 10 + 10])]
            )
            turn += 1
            assert turn < 5000, "the scan does not end"
            if turn > 100:
                continue
        assert stay <= found

    @needs("scan")
    async def test_a_scan_may_be_left_early(self, store: Store) -> None:
        await store.run([("SET", self.key(f"k{n}"), "") for n in range(50)])
        pages = store.scan(page=5)
        await anext(pages)
        await pages.aclose()  # type: ignore[attr-defined]
        assert await store.run([("DBSIZE",)]) == [50]

    @needs("scan")
    async def test_the_command_scan_walks_with_a_cursor(self, store: Store) -> None:
        keys = {self.key(f"k{n}") for n in range(100)}
        await store.run([("SET", key, "") for key in keys])
        found: set[bytes] = set()
        cursor = b"0"
        for _ in range(1000):
            [[cursor, page]] = await store.run(
                [("SCAN", cursor, "MATCH", self.pattern("k*"), "COUNT", 7, "TYPE", "string")]
            )
            assert isinstance(cursor, bytes)
            found.update(page)
            if cursor == b"0":
                break
        assert cursor == b"0"
        assert found == keys
