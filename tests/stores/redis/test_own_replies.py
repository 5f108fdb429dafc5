"""No caller gets the reply of another, and nothing is executed twice."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import keystead
from keystead.errors import StoreUnavailable
from keystead.stores import Store, holds, required
from tests.servers import Server
from tests.stores.redis.proxy import Proxy
from tests.stores.redis.waits import until, works_again

FAST = "?timeout=1s&connect_timeout=1s"
KEYS = 200


def fill(server: Server) -> None:
    """Under each number a string, a hash, a set, a sorted set and a list that all name the number."""
    with server.wire() as wire:
        for i in range(KEYS):
            wire.call("SET", f"s:{i}", f"string {i} " + "x" * (i * 37 % 3000))
            wire.call("HSET", f"h:{i}", "of", f"hash {i}", "more", i)
            wire.call("SADD", f"m:{i}", f"set {i}")
            wire.call("ZADD", f"z:{i}", i, f"zset {i}")
            wire.call("RPUSH", f"l:{i}", f"list {i}", i)


async def read_strings(store: Store, i: int) -> bool:
    [one, other] = await store.run([("GET", f"s:{i}"), ("GET", f"s:{(i + 1) % KEYS}")])
    return bool(one.startswith(b"string %d " % i) and other.startswith(b"string %d " % ((i + 1) % KEYS)))


async def read_many(store: Store, i: int) -> bool:
    keys = [(i + n) % KEYS for n in range(5)]
    [values] = await store.run([("MGET", *(f"s:{key}" for key in keys))])
    return all(value.startswith(b"string %d " % key) for key, value in zip(keys, values, strict=True))


async def read_kinds(store: Store, i: int) -> bool:
    replies = await store.run(
        [
            ("HGETALL", f"h:{i}"),
            ("SMEMBERS", f"m:{i}"),
            ("ZRANGE", f"z:{i}", 0, -1, "WITHSCORES"),
            ("LRANGE", f"l:{i}", 0, -1),
            ("GET", f"no:{i}"),
        ]
    )
    number = b"%d" % i
    return replies == [
        {b"of": b"hash " + number, b"more": number},
        {b"set " + number},
        [[b"zset " + number, float(i)]],
        [b"list " + number, number],
        None,
    ]


async def read_atomically(store: Store, i: int) -> bool:
    outcome = await store.atomically([required(("GET", f"s:{i}")), ("HGET", f"h:{i}", "of")])
    return bool(outcome.replies[0].startswith(b"string %d " % i) and outcome.replies[1] == b"hash %d" % i)


async def write_own(store: Store, i: int) -> bool:
    value = f"own {random.random()}"
    return await store.run([("SET", f"own:{i}:{value}", value), ("GET", f"own:{i}:{value}")]) == [b"OK", value.encode()]


READERS: list[Callable[[Store, int], Coroutine[Any, Any, bool]]] = [
    read_strings,
    read_many,
    read_kinds,
    read_atomically,
    write_own,
]


class Tally:
    """A counter of one task: acknowledged increments, and those with an unknown outcome."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.acknowledged = 0
        self.perhaps = 0

    async def add(self, store: Store, amount: int, patience: float) -> None:
        """Every reply must be possible, so that a reply to another's command is detected."""
        self.perhaps += amount
        try:
            async with asyncio.timeout(patience):
                [sum_] = await store.run([("INCRBY", self.key, amount)])
        except StoreUnavailable as error:
            if error.outcome == "not-sent":
                self.perhaps -= amount
            return
        except TimeoutError:
            return
        self.acknowledged += amount
        self.perhaps -= amount
        assert self.acknowledged <= sum_ <= self.acknowledged + self.perhaps


async def test_no_caller_gets_a_foreign_reply_whatever_is_cancelled_delayed_or_cut(
    server: Server, proxy: Proxy
) -> None:
    fill(server)
    chance = random.Random(20261)
    seen: Counter[str] = Counter()
    proxy.delay = lambda: chance.choice((0.0, 0.0, 0.0, 0.002, 0.01))
    tallies = [Tally(f"tally:{i}") for i in range(16)]

    async def reads(store: Store, number: int) -> None:
        for _ in range(220):
            i = chance.randrange(KEYS)
            call = asyncio.create_task(chance.choice(READERS)(store, i))
            match chance.randrange(4):
                case 0:
                    await asyncio.wait({call}, timeout=chance.uniform(0, 0.02))
                    call.cancel()
                case 1:
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    call.cancel()
            try:
                assert await call, f"a reply to something else than was asked of number {i}"
                seen["answered"] += 1
            except StoreUnavailable:
                seen["unavailable"] += 1
            except asyncio.CancelledError:
                seen["cancelled"] += 1

    async def adds(store: Store, tally: Tally) -> None:
        for _ in range(60):
            await tally.add(store, chance.randrange(1, 1_000_000), chance.choice((0.001, 0.01, 5.0)))

    async def cuts(work: asyncio.Future[Any]) -> None:
        while not work.done():
            match chance.randrange(3):
                case 0:
                    proxy.cut_replies_after(chance.randrange(20_000))
                case 1:
                    proxy.cut_requests_after(chance.randrange(20_000))
                case 2:
                    proxy.reset()
            await asyncio.wait({work}, timeout=chance.uniform(0.02, 0.1))

    async with keystead.connect(proxy.url + FAST) as store:
        work = asyncio.gather(*(reads(store, i) for i in range(16)), *(adds(store, tally) for tally in tallies))
        await asyncio.gather(work, cuts(work))
        await proxy.resume()
        await works_again(lambda: store.run([("GET", "s:1")]))
        for tally in tallies:
            [stored] = await store.run([("GET", tally.key)])
            assert tally.acknowledged <= int(stored or 0) <= tally.acknowledged + tally.perhaps
    assert proxy.connections > 5
    assert seen["answered"] > 500
    assert seen["cancelled"] > 100
    assert seen["unavailable"] > 0


async def test_callers_that_gave_up_on_a_slow_server_leave_nothing_behind(server: Server, proxy: Proxy) -> None:
    """All on one connection: late replies of cancelled callers precede the others in the queue."""
    fill(server)
    async with keystead.connect(proxy.url + "?timeout=5s") as store:
        await read_strings(store, 1)
        for round_ in range(30):
            proxy.black_hole()
            gone = [asyncio.create_task(READERS[i % 5](store, (round_ * 7 + i) % KEYS)) for i in range(20)]
            await asyncio.wait(gone, timeout=0.002)
            for call in gone:
                call.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            assert all(call.cancelled() for call in gone)
            stays = [asyncio.create_task(READERS[i % 5](store, (round_ * 11 + i) % KEYS)) for i in range(20)]
            await proxy.resume()
            assert all(await asyncio.gather(*stays))
    assert proxy.connections == 1


# --- a reply that was lost ------------------------------------------------------------------------------------

LOST_WRITES: dict[str, Callable[[Store], Coroutine[Any, Any, Any]]] = {
    "run": lambda store: store.run([("INCRBY", "n", 1)]),
    "run with reads": lambda store: store.run([("GET", "s"), ("INCRBY", "n", 1), ("GET", "s")]),
    "atomically": lambda store: store.atomically([("INCRBY", "n", 1)]),
    "atomically with a guard": lambda store: store.atomically([holds("s", None), ("INCRBY", "n", 1)]),
}
LOST_READS: dict[str, Callable[[Store], Coroutine[Any, Any, Any]]] = {
    "run": lambda store: store.run([("GET", "r"), ("HGETALL", "h")]),
    "atomically": lambda store: store.atomically([required(("GET", "r")), ("HGETALL", "h")]),
}


@pytest.mark.parametrize("partly", [0, 2], ids=["wholly", "partly"])
@pytest.mark.parametrize("name", LOST_WRITES)
async def test_a_write_whose_reply_was_lost_is_done_once_and_its_outcome_unknown(
    server: Server, proxy: Proxy, name: str, partly: int
) -> None:
    async with keystead.connect(proxy.url + FAST) as store:
        await store.atomically([("SET", "n", 0)])  # the script is known
        proxy.cut_replies_after(partly)
        with pytest.raises(StoreUnavailable) as error:
            await LOST_WRITES[name](store)
        assert error.value.outcome == "unknown"
        assert "may or may not have taken effect" in str(error.value)
        await works_again(lambda: store.run([("GET", "n")]))
        assert await store.run([("GET", "n")]) == [b"1"]


@pytest.mark.parametrize("partly", [0, 2], ids=["wholly", "partly"])
@pytest.mark.parametrize("name", LOST_READS)
async def test_a_read_whose_reply_was_lost_is_retried(server: Server, proxy: Proxy, name: str, partly: int) -> None:
    server.ask("SET", "r", "value")
    async with keystead.connect(proxy.url + FAST) as store:
        await LOST_READS[name](store)
        proxy.cut_replies_after(partly)
        answer = await LOST_READS[name](store)
        assert (answer if isinstance(answer, list) else answer.replies) == [b"value", {}]
    assert proxy.connections == 2


@pytest.mark.parametrize("name", LOST_WRITES)
async def test_a_write_that_was_cut_on_its_way_is_not_done_and_never_done_twice(
    server: Server, proxy: Proxy, name: str
) -> None:
    async with keystead.connect(proxy.url + FAST) as store:
        await store.atomically([("SET", "n", 0)])
        proxy.cut_requests_after(10)
        with pytest.raises(StoreUnavailable) as error:
            await LOST_WRITES[name](store)
        assert error.value.outcome == "unknown"  # nobody on this side can know how far it came
        await works_again(lambda: store.run([("GET", "n")]))
        assert await store.run([("GET", "n")]) == [b"0"]


@pytest.mark.parametrize("name", LOST_WRITES)
async def test_a_write_that_never_left_is_done_once_when_the_server_is_back_in_time(
    server: Server, proxy: Proxy, name: str
) -> None:
    async with keystead.connect(proxy.url + "?timeout=5s&connect_timeout=5s") as store:
        await store.atomically([("SET", "n", 0)])
        await proxy.refuse()
        with pytest.raises((StoreUnavailable, TimeoutError)):
            await asyncio.wait_for(store.run([("SET", "notices", "the loss")]), 0.2)
        waiting = asyncio.create_task(LOST_WRITES[name](store))
        await asyncio.wait({waiting}, timeout=0.05)
        assert not waiting.done()
        await proxy.resume()
        await waiting
        assert await store.run([("GET", "n")]) == [b"1"]


@pytest.mark.parametrize("name", LOST_WRITES)
async def test_an_unsent_write_has_the_outcome_not_sent(server: Server, proxy: Proxy, name: str) -> None:
    async with keystead.connect(proxy.url + FAST) as store:
        await store.run([("SET", "n", 0)])
        await proxy.refuse()
        await until_lost(store)
        with pytest.raises(StoreUnavailable) as error:
            await LOST_WRITES[name](store)
        assert error.value.outcome == "not-sent"
        await proxy.resume()
        await works_again(lambda: store.run([("GET", "n")]))
        assert await store.run([("GET", "n")]) == [b"0"]


async def until_lost(store: Store) -> None:
    with pytest.raises(StoreUnavailable):
        await store.run([("GET", "n")])


async def test_each_writer_knows_the_outcome_of_its_write_after_a_cut(server: Server, proxy: Proxy) -> None:
    """32 tasks count unique amounts; afterwards the server holds all that was acknowledged, and no "not-sent"."""
    acknowledged: set[bytes] = set()
    unknown: set[bytes] = set()
    unsent: set[bytes] = set()

    async def write(store: Store, task: int) -> None:
        for i in range(40):
            member = f"{task}:{i}"
            try:
                assert await store.run([("SADD", "written", member)]) == [1]
                acknowledged.add(member.encode())
            except StoreUnavailable as error:
                (unknown if error.outcome == "unknown" else unsent).add(member.encode())

    async with keystead.connect(proxy.url + FAST) as store:
        chance = random.Random(4)
        work = asyncio.gather(*(write(store, task) for task in range(32)))
        while not work.done():
            proxy.cut_replies_after(chance.randrange(400))
            await asyncio.wait({work}, timeout=0.02)
        await work
    written = server.ask("SMEMBERS", "written")
    assert acknowledged <= written
    assert not unsent & written
    assert written <= acknowledged | unknown
    assert acknowledged
    assert unknown


async def test_a_cancelled_call_does_not_disturb_the_batch_it_shares_a_round_trip_with(server: Server) -> None:
    fill(server)
    async with keystead.connect(server.url + FAST) as store:
        for round_ in range(100):
            calls = [asyncio.create_task(read_kinds(store, (round_ + i) % KEYS)) for i in range(10)]
            await asyncio.sleep(0)
            calls[round_ % 10].cancel()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert [answer for answer in answers if not isinstance(answer, asyncio.CancelledError)] == [True] * 9


async def test_a_caller_that_is_cancelled_while_connecting_does_not_stop_the_others(
    server: Server, proxy: Proxy
) -> None:
    server.ask("SET", "n", "1")
    async with keystead.connect(proxy.url + "?timeout=5s&connect_timeout=5s") as store:
        await proxy.refuse()
        calls = [asyncio.create_task(store.run([("GET", "n")])) for _ in range(5)]
        await asyncio.wait(calls, timeout=0.05)
        calls[0].cancel()
        await until(calls[0].cancelled, "the first is gone", 1)
        await proxy.resume()
        assert await asyncio.gather(*calls[1:]) == [[b"1"]] * 4
