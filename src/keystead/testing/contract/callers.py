"""What a caller may get wrong, and is told alike by every store."""

from __future__ import annotations

import pytest

from keystead.errors import BadArgument, NotANumber, UnknownCommand
from keystead.stores import Store, required
from keystead.testing.contract.promises import Promises, needs


class Callers(Promises):
    async def test_commands_may_come_from_any_iterable_and_none_is_lost(self, store: Store) -> None:
        a, b = self.key("a"), self.key("b")
        with pytest.raises(UnknownCommand) as raised:
            await store.run(command for command in [("SET", a, 1), ("NOPE",), ("SET", b, 2)])  # type: ignore[arg-type]
        assert raised.value.replies is not None
        assert raised.value.replies[::2] == [b"OK", b"OK"]
        assert await store.run([("EXISTS", a, b)]) == [2]

    async def test_prepared_commands_do_what_run_does_with_any_arguments(self, store: Store) -> None:
        a, b = self.key("a"), self.key(b"b\r\n%d\x00")
        put = store.prepared(("SET", 2), ("SET", 2), ("EXISTS", 1))
        assert await put(a, b"%b", b, b"\r\n", b) == [b"OK", b"OK", 1]
        ask = store.prepared(("GET", 1), ("GET", 1))
        assert await ask(a, b) == [b"%b", b"\r\n"]
        assert await ask(b, self.key("none")) == [b"\r\n", None]

    async def test_a_prepared_command_that_fails_leaves_the_others_their_replies(self, store: Store) -> None:
        text, count = self.key("text"), self.key("count")
        await store.run([("SET", text, "x")])
        ask = store.prepared(("INCRBY", 2), ("INCRBY", 2), ("GET", 1))
        with pytest.raises(NotANumber) as raised:
            await ask(text, b"1", count, b"5", text)
        assert raised.value.replies is not None
        assert raised.value.replies[1:] == [5, b"x"]

    async def test_a_prepared_command_that_there_is_not_is_told_and_not_sent(self, store: Store) -> None:
        with pytest.raises(UnknownCommand):
            await store.prepared(("NOPE", 1))(self.key("a"))

    @needs("set", "zset")
    async def test_prepared_replies_have_the_shapes_that_run_gives(self, store: Store) -> None:
        members, scores = self.key("members"), self.key("scores")
        await store.run([("SADD", members, "x", "y"), ("ZADD", scores, 1.5, "x")])
        ask = store.prepared(("SMEMBERS", 1), ("ZSCORE", 2), ("SISMEMBER", 2))
        assert await ask(members, scores, b"x", members, b"z") == [{b"x", b"y"}, 1.5, 0]

    async def test_a_guard_outside_of_atomically_is_said(self, store: Store) -> None:
        with pytest.raises(BadArgument, match="belong into `atomically`"):
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

    async def test_a_stored_value_is_in_no_error(self, store: Store) -> None:
        a = self.key("a")
        await store.run([("SET", a, "sk_live_secret")])
        with pytest.raises(NotANumber, match="stored value is not an integer") as raised:
            await store.run([("INCRBY", a, 1)])
        assert "sk_live_secret" not in str(raised.value)
