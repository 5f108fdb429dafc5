"""Store metrics: calls are counted by family, and pass unchanged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from keystead import Counter, Keyspace, SortedSet, Steps, Value, after, connect, procedure, sliding
from keystead.errors import CommandError, NotANumber
from keystead.parts.limit import FixedWindow, SlidingWindow
from keystead.server.metered_store import MeteredStore
from keystead.server.metrics import Metrics
from keystead.stores.commands import read
from keystead.stores.redis.atomic_script import DIGEST
from tests import servers


class Keys(Keyspace):
    hits = Counter("hits:{client}", lifetime=after("1m"))
    log = SortedSet("log:{client}", str, lifetime=sliding("2m", touch_every="1s"))
    note = Value("note:{id}", str, lifetime=after("1m"))
    price = Value("price:{id}", int, lifetime=after("1h"), near="1h")


@asynccontextmanager
async def open_metered_keys(url: str) -> AsyncIterator[tuple[Keys, Metrics]]:
    metrics = Metrics("test")
    async with MeteredStore(connect(url), metrics) as store:
        keys = Keys(store)
        store.set_families(keys.bounds())
        yield keys, metrics


def calls(metrics: Metrics) -> dict[tuple[str, str], float]:
    metrics.write()
    return {
        (sample.labels["family"], sample.labels["outcome"]): sample.value
        for family in metrics._calls.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


@pytest.mark.parametrize("engine", ["memory", "redis"])
async def test_prepared_steps_are_counted_by_the_family_of_their_first_key(engine: str) -> None:
    with servers.redis() as server:
        async with open_metered_keys("memory://" if engine == "memory" else server.url) as (keys, metrics):
            fixed, window = FixedWindow(keys.hits, "2/minute"), SlidingWindow(keys.log, "2/minute")
            assert [bool(await fixed.hit("ann")) for _ in range(3)] == [True, True, False]
            assert await window.hit("ann")  # which asks for the time first
            await keys.hits.store.run([("SET", "hits:bea", "a text")])
            with pytest.raises(NotANumber):
                await fixed.hit("bea")
            assert calls(metrics) == {
                ("Keys.hits", "ok"): 4,
                ("Keys.log", "ok"): 1,
                ("Keys.hits", "error"): 1,
            }


async def test_parsed_calls_are_counted_by_the_family_of_their_first_key() -> None:
    async with open_metered_keys("memory://") as (keys, metrics):
        await keys.note("1").set("a text")
        run: Any = keys.hits.store.run  # which takes what was read, too
        [_, held, _] = await run([read(("TIME",)), read(("GET", b"note:1")), read(("INCRBY", b"hits:ann", 1))])
        assert held == b"a text"
        with pytest.raises(NotANumber):
            await run([read(("GET", b"note:1")), read(("INCRBY", b"note:1", b"1"))])
        await run([read(("GET", b"nobody's"))])
        assert calls(metrics) == {("Keys.note", "ok"): 2, ("Keys.note", "error"): 1, ("(none)", "ok"): 1}


async def test_near_reads_are_counted_as_hits_and_misses() -> None:
    async with open_metered_keys("memory://") as (keys, metrics):
        await keys.price("a").set(7)
        assert [await keys.price("a").get() for _ in range(4)] == [7] * 4
        await keys.note("1").get()
        metrics.write()
        lines = metrics.page().decode().splitlines()
        assert 'keystead_near_reads_total{outcome="hit"} 3.0' in lines
        assert 'keystead_near_reads_total{outcome="miss"} 1.0' in lines


async def test_unavailable_store_calls_are_counted() -> None:
    with servers.redis() as server:
        async with open_metered_keys(f"{server.url}?timeout=300ms&connect_timeout=200ms") as (keys, metrics):
            limit = FixedWindow(keys.hits, "2/minute")
            assert await limit.hit("ann")
            server.kill()
            assert (await limit.hit("ann")).store_is_down
            assert calls(metrics) == {("Keys.hits", "ok"): 1, ("Keys.hits", "unavailable"): 1}


async def test_a_limit_has_its_own_script_even_if_it_is_metered() -> None:
    with servers.redis() as server:
        async with open_metered_keys(server.url) as (keys, _):
            limit = FixedWindow(keys.hits, "9/minute")
            for _ in range(2):
                assert await limit.hit("ann")
            server.ask("SCRIPT", "FLUSH")
            assert await limit.hit("ann")
        assert server.ask("SCRIPT", "EXISTS", DIGEST) == [0]


@pytest.mark.parametrize(
    "step", [(), ("GET",), "GET n", None, 7, (["GET"], "n"), ("GET", "\ud800"), [("GET", "n")]], ids=repr
)
async def test_invalid_steps_raise_the_same_error(step: Any) -> None:
    said = []
    async with connect("memory://") as store, open_metered_keys("memory://") as (keys, _):
        for one in (store, keys.hits.store):
            with pytest.raises(CommandError) as caught:
                await one.atomically([step])
            said.append(str(caught.value))
    assert said[0] == said[1]


class Shop(Keyspace):
    stock = Counter("stock:{sku}", lifetime=after("1m"))

    @procedure
    def sell(self, sku: str) -> Steps[int]:
        left = self.stock(sku).decrement()
        return Steps(self.stock(sku).at_least(1).otherwise("sold out"), left).giving(left)


async def test_calls_of_a_procedure_carry_its_name_and_slow_ones_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics("test")
    async with MeteredStore(connect("memory://"), metrics, slow_s=0) as store:
        shop = Shop(store)
        store.set_families(shop.bounds())
        await shop.stock("apple").set(1)
        assert (await shop.sell("apple")).value == 0
    metrics.write()
    counted = {
        (sample.labels["procedure"], sample.labels["outcome"]): sample.value
        for family in metrics._calls.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert counted == {("", "ok"): 1, ("Shop.sell", "ok"): 1}
    said = [vars(record)["keystead_fields"] for record in caplog.records]
    assert [one.get("procedure") for one in said] == [None, "Shop.sell"]
    assert {one["family"] for one in said} == {"Shop.stock"}
    assert "apple" not in caplog.text


async def test_a_prepared_step_that_ran_before_the_families_were_set_is_counted_by_its_family_later() -> None:
    metrics = Metrics("test")
    async with MeteredStore(connect("memory://"), metrics) as store:
        keys = Keys(store)
        limit = FixedWindow(keys.hits, "5/minute")
        assert await limit.hit("ann")
        store.set_families(keys.bounds())
        assert await limit.hit("ann")
        assert await limit.hit("ann")
    assert calls(metrics) == {("(none)", "ok"): 1, ("Keys.hits", "ok"): 2}
