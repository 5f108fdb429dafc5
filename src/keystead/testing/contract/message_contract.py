"""Channels: messages from the moment of the subscription, in order, at most once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from keystead.errors import BadArgument
from keystead.stores import Message, Store, required
from keystead.testing.contract.contract_base import Promises, needs


async def take(messages: AsyncIterator[Message], count: int) -> list[tuple[str, bytes]]:
    taken: list[tuple[str, bytes]] = []
    async with asyncio.timeout(5):  # a message arrives promptly
        while len(taken) < count:
            message = await anext(messages)
            taken.append((message.channel, message.data))
    return taken


class Messages(Promises):
    # Whether PUBLISH counts all subscribers, wherever they are connected. A cluster counts those of one node.
    counts_listeners = True

    @needs("channel")
    async def test_a_message_reaches_who_listens(self, store: Store) -> None:
        async with store.subscribe("news") as messages:
            [count] = await store.run([("PUBLISH", "news", b"\x00hello\r\n")])
            assert await take(messages, 1) == [("news", b"\x00hello\r\n")]
        assert type(count) is int
        assert count == 1 or not self.counts_listeners

    @needs("channel")
    async def test_a_message_reaches_other_connections(self, store: Store, other: Store | None) -> None:
        async with (other or store).subscribe("news") as messages, store.subscribe("news") as own:
            [count] = await store.run([("PUBLISH", "news", "hello")])
            assert await take(messages, 1) == [("news", b"hello")]
            assert await take(own, 1) == [("news", b"hello")]
        assert count == 2 or not self.counts_listeners

    @needs("channel")
    async def test_messages_come_in_the_order_they_were_published(self, store: Store, other: Store | None) -> None:
        async with (other or store).subscribe("news") as messages:
            await store.run([("PUBLISH", "news", n) for n in range(100)])
            for n in range(100, 120):
                await store.run([("PUBLISH", "news", n)])
            assert await take(messages, 120) == [("news", b"%d" % n) for n in range(120)]

    @needs("channel")
    async def test_one_may_listen_to_several_channels_and_hears_no_others(self, store: Store) -> None:
        async with store.subscribe("a", "b:*", "ü") as messages:
            await store.run([("PUBLISH", name, name) for name in ("a", "c", "b:1", "b:*", "A", "ü", "a")])
            assert await take(messages, 4) == [("a", b"a"), ("b:*", b"b:*"), ("ü", "ü".encode()), ("a", b"a")]

    @needs("channel")
    async def test_what_was_published_before_is_not_heard(self, store: Store) -> None:
        async with store.subscribe("news") as early:
            await store.run([("PUBLISH", "news", "before")])
            async with store.subscribe("news") as late:
                await store.run([("PUBLISH", "news", "after")])
                assert await take(late, 1) == [("news", b"after")]
            assert await take(early, 2) == [("news", b"before"), ("news", b"after")]

    @needs("channel")
    async def test_a_message_that_nobody_hears_goes_to_none(self, store: Store) -> None:
        assert await store.run([("PUBLISH", "news", "hello")]) == [0]

    @needs("channel")
    async def test_after_the_block_nobody_listens_any_more(self, store: Store) -> None:
        async with store.subscribe("news", "more"):
            pass
        async with asyncio.timeout(10):
            while await store.run([("PUBLISH", "news", "x"), ("PUBLISH", "more", "x")]) != [0, 0]:
                pass
        async with store.subscribe("news") as messages:
            await store.run([("PUBLISH", "news", "again")])
            assert await take(messages, 1) == [("news", b"again")]

    @needs("channel")
    async def test_leaving_one_block_does_not_end_another(self, store: Store) -> None:
        async with store.subscribe("news") as stays:
            async with store.subscribe("news"):
                pass
            await store.run([("PUBLISH", "news", "hello")])
            assert await take(stays, 1) == [("news", b"hello")]

    @needs("channel")
    async def test_a_reader_that_gives_up_may_read_on(self, store: Store) -> None:
        async with store.subscribe("news") as messages:
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await store.run([("PUBLISH", "news", "hello")])
            assert await take(messages, 1) == [("news", b"hello")]

    @needs("channel", "atomic")
    async def test_a_message_of_an_atomic_step_is_sent_when_it_takes_effect_and_only_then(self, store: Store) -> None:
        a, none = self.key("a"), self.key("none")
        async with store.subscribe("news") as messages:
            stopped = await store.atomically([("PUBLISH", "news", "no"), ("SET", a, "1"), required(("GET", none))])
            assert stopped.stopped_at == 2
            done = await store.atomically([("SET", a, "1"), ("PUBLISH", "news", "yes"), required(("GET", a))])
            assert done
            assert await take(messages, 1) == [("news", b"yes")]

    @needs("channel", "atomic")
    async def test_a_message_cannot_be_required_for_it_goes_out_last(self, store: Store) -> None:
        with pytest.raises(BadArgument):
            await store.atomically([("SET", self.key("a"), "1"), required(("PUBLISH", "news", "x"))])
        assert await store.run([("EXISTS", self.key("a"))]) == [0]
