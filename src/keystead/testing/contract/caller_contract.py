"""Errors of callers, which every store reports alike."""

from __future__ import annotations

from typing import Any

import pytest

from keystead.errors import BadArgument, NotANumber, UnknownCommand
from keystead.stores import Store, required
from keystead.stores.commands import Command, read
from keystead.testing.contract.contract_base import Promises, needs


class Callers(Promises):
    async def test_commands_may_come_from_any_iterable_and_none_is_lost(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        with pytest.raises(UnknownCommand) as raised:
            await store.run(command for command in [("SET", a, 1), ("NOPE",), ("SET", b, 2)])  # type: ignore[arg-type]
        assert raised.value.replies is not None
        assert raised.value.replies[::2] == [b"OK", b"OK"]
        assert await store.run([("EXISTS", a, b)]) == [2]

    async def test_calls_that_were_read_can_be_run_again_and_again(self, store: Store) -> None:
        a, b = self.key("a"), self.key(b"b\r\n%d\x00")
        calls = _repeated(("SET", a, b"%b"), ("SET", b, b"\r\n"), ("GET", b), ("GET", self.key("none")))
        for _ in range(3):
            assert await store.run(calls) == [b"OK", b"OK", b"\r\n", None]
        assert await store.run(calls[2:3]) == [b"\r\n"]

    @needs("update")
    async def test_a_repeated_call_that_fails_leaves_the_others_their_replies(self, store: Store) -> None:
        text, count = self.key("text"), self.key("count")
        await store.run([("SET", text, "x")])
        calls = _repeated(("INCRBY", text, 1), ("INCRBY", count, 5), ("GET", text))
        for total in (5, 10):
            with pytest.raises(NotANumber) as raised:
                await store.run(calls)
            assert raised.value.replies is not None
            assert raised.value.replies[1:] == [total, b"x"]

    @needs("set", "zset")
    async def test_repeated_calls_have_the_shapes_that_commands_have(self, store: Store) -> None:
        members, scores = self.key("members"), self.key("scores")
        await store.run([("SADD", members, "x", "y"), ("ZADD", scores, 1.5, "x")])
        calls = _repeated(("SMEMBERS", members), ("ZSCORE", scores, b"x"), ("SISMEMBER", members, b"z"))
        for _ in range(2):
            assert await store.run(calls) == [{b"x", b"y"}, 1.5, 0]

    async def test_a_guard_outside_of_atomically_is_said(self, store: Store) -> None:
        with pytest.raises(BadArgument, match="can only be used in `atomically`"):
            await store.run([required(("GET", self.key("a")))])  # type: ignore[list-item]

    @pytest.mark.parametrize("channels", [(), (b"news",), (["news", "weather"],), ("\ud800",)], ids=repr)
    async def test_a_channel_is_text(self, store: Store, channels: tuple[str, ...]) -> None:
        with pytest.raises(BadArgument):
            store.subscribe(*channels)

    @pytest.mark.parametrize("page", [0, -1, "5", None], ids=repr)
    async def test_a_page_holds_one_key_or_more(self, store: Store, page: int) -> None:
        with pytest.raises(BadArgument):
            store.scan(page=page)

    @pytest.mark.parametrize("match", [5, None, "\ud800"], ids=repr)
    async def test_a_pattern_is_text_or_bytes(self, store: Store, match: str) -> None:
        with pytest.raises(BadArgument):
            store.scan(match)

    @needs("update")
    async def test_a_stored_value_is_in_no_error(self, store: Store) -> None:
        a = self.key("a")
        await store.run([("SET", a, "sk_live_secret")])
        with pytest.raises(NotANumber, match="stored value is not an integer") as raised:
            await store.run([("INCRBY", a, 1)])
        assert "sk_live_secret" not in str(raised.value)


def _repeated(*commands: Command) -> list[Any]:
    """Calls whose packed form a store caches."""
    calls = [read(command) for command in commands]
    for call in calls:
        call.packed = b""
    return calls
