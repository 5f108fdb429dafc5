"""Concurrency: one caller wins a race, no write is lost, and each caller gets its own reply."""

from __future__ import annotations

import asyncio
import random

from keystead.stores import Command, Store, at_most, field_holds, holds, required
from keystead.testing.contract.contract_base import Promises, expect, needs

CALLERS = 24


class Races(Promises):
    def connections(self, store: Store, other: Store | None) -> list[Store]:
        """The callers: half of them on another connection, if there can be one."""
        return [other if other is not None and n % 2 else store for n in range(CALLERS)]

    @needs("update")
    async def test_of_many_that_create_exactly_one_wins(self, store: Store, other: Store | None) -> None:
        a = self.key("a")
        replies = await asyncio.gather(
            *(by.run([("SET", a, n, "NX")]) for n, by in enumerate(self.connections(store, other)))
        )
        winners = [n for n, [reply] in enumerate(replies) if reply == b"OK"]
        assert len(winners) == 1
        await expect(store, (("GET", a), b"%d" % winners[0]))

    @needs("update")
    async def test_of_many_that_take_exactly_one_gets_it(self, store: Store, other: Store | None) -> None:
        a = self.key("a")
        await store.run([("SET", a, "prize")])
        replies = await asyncio.gather(*(by.run([("GETDEL", a)]) for by in self.connections(store, other)))
        assert sorted(replies, key=str) == sorted([[b"prize"], *[[None]] * (CALLERS - 1)], key=str)

    @needs("list")
    async def test_every_item_of_a_queue_goes_to_one_taker(self, store: Store, other: Store | None) -> None:
        q = self.key("q")
        await store.run([("RPUSH", q, *range(CALLERS - 4))])
        replies = await asyncio.gather(*(by.run([("LPOP", q)]) for by in self.connections(store, other)))
        taken = [int(reply) for [reply] in replies if reply is not None]
        assert sorted(taken) == list(range(CALLERS - 4))

    @needs("hash")
    async def test_of_many_that_claim_a_field_exactly_one_wins(self, store: Store, other: Store | None) -> None:
        h = self.key("h")
        replies = await asyncio.gather(
            *(by.run([("HSETNX", h, "owner", n)]) for n, by in enumerate(self.connections(store, other)))
        )
        assert sum(reply for [reply] in replies) == 1

    @needs("atomic")
    async def test_of_many_that_compare_and_set_exactly_one_wins_each_round(
        self, store: Store, other: Store | None
    ) -> None:
        a, log = self.key("a"), self.key("wins")
        await store.run([("SET", a, 0)])
        for turn in range(5):
            outcomes = await asyncio.gather(
                *(
                    by.atomically([holds(a, turn), ("SET", a, turn + 1), ("INCRBY", log, 1)])
                    for by in self.connections(store, other)
                )
            )
            assert sum(bool(outcome) for outcome in outcomes) == 1
        await expect(store, (("GET", a), b"5"), (("GET", log), b"5"))

    @needs("atomic", "hash")
    async def test_a_loop_of_compare_and_set_loses_no_update(self, store: Store, other: Store | None) -> None:
        h = self.key("h")
        await store.run([("HSET", h, "n", 0)])

        async def add(by: Store) -> None:
            while True:
                [held] = await by.run([("HGET", h, "n")])
                if await by.atomically([field_holds(h, "n", held), ("HSET", h, "n", int(held) + 1)]):
                    return

        async with asyncio.timeout(30):
            await asyncio.gather(*(add(by) for by in self.connections(store, other)))
        await expect(store, (("HGET", h, "n"), b"%d" % CALLERS))

    @needs("atomic", "set")
    async def test_a_cap_is_filled_and_never_exceeded(self, store: Store, other: Store | None) -> None:
        members, log = self.key("members"), self.key("log")
        outcomes = await asyncio.gather(
            *(
                by.atomically([at_most(("SCARD", members), 4), ("SADD", members, n), ("INCRBY", log, 1)])
                for n, by in enumerate(self.connections(store, other))
            )
        )
        assert sum(bool(outcome) for outcome in outcomes) == 5
        await expect(store, (("SCARD", members), 5), (("GET", log), b"5"))

    @needs("atomic")
    async def test_a_limit_is_never_exceeded(self, store: Store, other: Store | None) -> None:
        pool = self.key("pool")
        await store.run([("SET", pool, 5)])

        async def take(by: Store) -> bool:
            # A reply of 0 stops, so the pool counts down to 1 and never beyond.
            return bool(await by.atomically([required(("DECRBY", pool, 1))]))

        won = await asyncio.gather(*(take(by) for by in self.connections(store, other)))
        assert sum(won) == 4
        await expect(store, (("GET", pool), b"1"))

    @needs("update")
    async def test_two_hundred_increments_at_once_are_all_counted(self, store: Store, other: Store | None) -> None:
        a = self.key("a")
        stores = [store, other or store]
        replies = await asyncio.gather(*(stores[n % 2].run([("INCRBY", a, 1)]) for n in range(200)))
        assert sorted(reply for [reply] in replies) == list(range(1, 201))
        await expect(store, (("GET", a), b"200"))

    @needs("atomic")
    async def test_two_hundred_atomic_increments_at_once_are_all_counted(
        self, store: Store, other: Store | None
    ) -> None:
        a, b = self.key("a"), self.key("b")
        stores = [store, other or store]
        outcomes = await asyncio.gather(
            *(stores[n % 2].atomically([("INCRBY", a, 1), ("INCRBY", b, 2)]) for n in range(200))
        )
        assert sorted(outcome.replies for outcome in outcomes) == [[n, 2 * n] for n in range(1, 201)]

    @needs("hash")
    async def test_different_fields_never_overwrite_each_other(self, store: Store, other: Store | None) -> None:
        h = self.key("h")
        await asyncio.gather(
            *(by.run([("HSET", h, f"f{n}", n)]) for n, by in enumerate(self.connections(store, other)))
        )
        await expect(store, (("HGETALL", h), {b"f%d" % n: b"%d" % n for n in range(CALLERS)}))

    async def test_a_caller_reads_what_it_wrote(self, store: Store) -> None:
        async def write_and_read(n: int) -> None:
            key = self.key(f"k{n}")
            for turn in range(5):
                await store.run([("SET", key, f"{n}:{turn}")])
                [seen] = await store.run([("GET", key)])
                assert seen == b"%d:%d" % (n, turn)

        await asyncio.gather(*(write_and_read(n) for n in range(CALLERS)))

    async def test_others_see_a_write_once_it_is_acknowledged(self, store: Store, other: Store | None) -> None:
        a = self.key("a")
        for turn in range(20):
            await store.run([("SET", a, turn)])
            assert await (other or store).run([("GET", a)]) == [b"%d" % turn]

    async def test_writes_of_one_caller_take_effect_in_order(self, store: Store) -> None:
        keys = [self.key(f"k{n}") for n in range(CALLERS)]
        batches = [
            [("SET", key, 1), ("GET", key), ("SET", key, 2), ("GET", key), ("DEL", key), ("GET", key), ("SET", key, 3)]
            for key in keys
        ]
        replies = await asyncio.gather(*(store.run(batch) for batch in batches))
        assert replies == [[b"OK", b"1", b"OK", b"2", 1, None, b"OK"]] * CALLERS
        assert await store.run([("MGET", *keys)]) == [[b"3"] * CALLERS]

    @needs("update")
    async def test_commands_of_one_caller_take_effect_in_order(self, store: Store) -> None:
        keys = [self.key(f"k{n}") for n in range(CALLERS)]
        batches = [[("SET", key, 1), ("INCRBY", key, 1), ("GET", key), ("DEL", key), ("GET", key)] for key in keys]
        replies = await asyncio.gather(*(store.run(batch) for batch in batches))
        assert replies == [[b"OK", 2, b"2", 1, None]] * CALLERS


class Cancellation(Promises):
    async def test_a_caller_that_gives_up_never_shifts_the_replies_of_others(self, store: Store) -> None:
        """Callers are cancelled at every stage; all others must still get the reply to their own call."""
        dice = random.Random(7)  # noqa: S311 - any schedule will do, as long as it can be repeated
        keys = [self.key(f"k{n}") for n in range(40)]
        await store.run([("SET", key, key) for key in keys])

        async def read(key: bytes, other: bytes) -> list[bytes]:
            got = await store.run([("GET", key), ("GET", other)])
            assert got == [key, other]
            return got

        async def write(key: bytes, other: bytes) -> None:
            command, reply = _set_same(store, key)
            assert await store.run([command, ("GET", other)]) == [reply, other]

        async def step(key: bytes, other: bytes) -> None:
            outcome = await store.atomically([holds(key, key), ("SET", other, other, "GET")])
            assert outcome.replies == [1, other]

        async def turns(count: int) -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        atomic = store.guarantees.atomic in ("any keys", "one slot")
        verbs = [read, write, step] if atomic else [read, write]
        cancelled = finished = 0
        for _ in range(30):
            tasks = [asyncio.create_task(dice.choice(verbs)(key, dice.choice(keys))) for key in keys]
            for task in tasks:
                if dice.random() < 0.4:
                    await turns(dice.randrange(4))
                    task.cancel()
            async with asyncio.timeout(30):
                results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, asyncio.CancelledError):
                    cancelled += 1
                elif isinstance(result, BaseException):
                    raise result
                else:
                    finished += 1
        assert cancelled > 0
        assert finished > 200
        await expect(store, *((("GET", key), key) for key in keys))

    @needs("update")
    async def test_a_caller_that_gives_up_leaves_the_store_usable(self, store: Store) -> None:
        a = self.key("a")
        for _ in range(50):
            task = asyncio.create_task(store.run([("INCRBY", a, 1)]))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        [count] = await store.run([("INCRBY", a, 1000)])
        assert 1000 <= count <= 1050
        await expect(store, (("GET", a), b"%d" % count))


def _set_same(store: Store, key: bytes) -> tuple[Command, bytes]:
    """A write of the value that the key has, which is its own name; and the reply."""
    return (("SET", key, key, "GET"), key) if store.guarantees.updates else (("SET", key, key), b"OK")
