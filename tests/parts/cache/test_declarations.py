"""The families of a cache, and the stores it fits."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from keystead import Counter, Hash, Keyspace, Store, Value, after, connect, end_of_day, never, sliding
from keystead.errors import BadDeclaration, DoesNotFit
from keystead.parts.cache import Cache, LoadMarkers
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.stores import Guarantees
from tests.parts.cache.conftest import (
    Membership,
    Provider,
    StaleKeys,
    Summary,
    cache_of,
    everywhere,
    let_it_run_out,
    on,
    on_memcached,
)
from tests.parts.sessions.relays import Slots

HOUR = after("1h")


class OddKeys(Keyspace):
    """Families that do not fit a cache."""

    plan = Value("plan:{id}", Membership, lifetime=HOUR, role="cache", tag="id", doc="x")
    mark = LoadMarkers("plan:{id}:mark", tag="id")
    untagged = Value("untagged:{id}", Membership, lifetime=HOUR, role="cache", doc="x")
    untagged_mark = LoadMarkers("untagged:{id}:mark")
    other_mark = LoadMarkers("plan:{user}:other:mark", tag="user")
    elsewhere_mark = LoadMarkers("plan:{id}:far:mark", role="default", tag="id")
    counter = Counter("counter:{id}", lifetime=HOUR, role="cache", doc="x")
    longer_by_use = Value("a:{id}", Membership, lifetime=sliding("1h", touch_every="1m"), role="cache", doc="x")
    for_ever = Value("b:{id}", Membership, lifetime=never("x"), role="cache", doc="x")
    for_a_day = Value("c:{id}", Membership, lifetime=end_of_day("UTC"), role="cache", doc="x")
    short_stale = Value("d:{id}", Membership, lifetime=HOUR, role="cache", tag="id", doc="x")
    hash_stale = Hash("e:{id}", Summary, lifetime=after("1d"), role="cache", tag="id", doc="x")
    text_stale = Value("f:{id}", str, lifetime=after("1d"), role="cache", tag="id", doc="x")
    stale = Value("g:{id}", Membership, lifetime=after("1d"), role="cache", tag="id", doc="x")


@on("memory")
@pytest.mark.parametrize(
    ("entries", "marks", "options", "sentence"),
    [
        ("counter", "mark", {}, "a family Value"),
        ("mark", "mark", {}, "a family Value"),
        ("plan", "stale", {}, "a family LoadMarkers"),
        ("for_ever", "mark", {}, "a fixed lifetime, .* or a sliding one"),
        ("for_a_day", "mark", {}, "a fixed lifetime, .* or a sliding one"),
        ("longer_by_use", "mark", {"stale": "stale"}, "no stale copy can outlive it"),
        ("plan", "other_mark", {}, "the same placeholders"),
        ("plan", "mark", {"stale": "short_stale"}, "must live longer than an entry"),
        ("plan", "mark", {"stale": "hash_stale"}, "the same type"),
        ("plan", "mark", {"stale": "text_stale"}, "the same type"),
        ("plan", "mark", {"stale": "longer_by_use"}, 'a fixed lifetime, .*10%"\\)$'),
        ("plan", "mark", {"store_down": "guess"}, '"load" or "raise"'),
    ],
)
async def test_a_cache_of_other_families_is_refused_with_the_reason(
    store: Store, entries: str, marks: str, options: dict[str, str], sentence: str
) -> None:
    keys = OddKeys(store)
    given: dict[str, Any] = dict(options)
    if "stale" in options:
        given["stale"] = getattr(keys, options["stale"])
    with pytest.raises(BadDeclaration, match=sentence):
        Cache(getattr(keys, entries), getattr(keys, marks), **given)


@on("memory")
async def test_families_in_different_stores_are_refused(store: Store) -> None:
    async with connect("memory://") as cache:
        keys = OddKeys(store, cache=cache)
        with pytest.raises(DoesNotFit, match="give all its families one role"):
            Cache(keys.plan, keys.elsewhere_mark)


async def test_in_a_cluster_all_families_need_one_tag() -> None:
    async with Slots() as store:
        keys = OddKeys(store)
        Cache(keys.plan, keys.mark, stale=keys.stale)
        with pytest.raises(DoesNotFit, match="the same tag="):
            Cache(keys.untagged, keys.untagged_mark)
        with pytest.raises(DoesNotFit, match="the same tag="):
            Cache(keys.plan, keys.untagged_mark)


@on_memcached
async def test_on_memcached_there_are_no_stale_copies(store: Store) -> None:
    keys = _OnlyCached(store)
    Cache(keys.plan, keys.mark)
    with pytest.raises(DoesNotFit, match="leave stale= out"):
        Cache(keys.plan, keys.mark, stale=keys.stale)


@on_memcached
async def test_on_memcached_no_entry_lives_on_by_use(store: Store) -> None:
    keys = _OnlyCached(store)
    with pytest.raises(DoesNotFit, match="a touch could extend a marker"):
        Cache(keys.longer_by_use, keys.mark)


class _OnlyCached(Keyspace):
    longer_by_use = Value("a:{id}", Membership, lifetime=sliding("1h", touch_every="1m"), role="cache", doc="x")
    plan = Value("plan:{id}", Membership, lifetime=HOUR, role="cache", doc="x")
    mark = LoadMarkers("plan:{id}:mark")
    stale = Value("g:{id}", Membership, lifetime=after("1d"), role="cache", doc="x")


@on("memory")
@pytest.mark.parametrize(
    ("guarantees", "sentence"),
    [
        (Guarantees(atomic="nothing"), "could write it again"),
        (Guarantees(consistency="eventual"), "could write it again"),
        (Guarantees(shortest_lifetime_ms=60_000), "it lives 5 seconds or more"),
    ],
)
async def test_a_store_that_cannot_keep_it_is_refused_with_the_reason(
    store: Store, guarantees: Guarantees, sentence: str
) -> None:
    keys = _OnlyCached(store)
    store.guarantees = replace(guarantees)
    with pytest.raises(DoesNotFit, match=sentence):
        Cache(keys.plan, keys.mark)


@everywhere
async def test_the_doctor_finds_nothing_wrong_with_a_cache_in_use(keys: StaleKeys, provider: Provider) -> None:
    cache = cache_of(keys)
    busy = Provider()
    busy.may_answer.clear()
    loading = asyncio.create_task(cache.get(keys.membership("1"), busy))
    await busy.was_asked.wait()
    await cache.get(keys.membership("2"), provider)
    provider.says = None
    await cache.get(keys.membership("3"), provider)
    provider.raises = OSError("down")
    await cache.put(keys.membership("4"), Membership(plan="Pro"))
    await let_it_run_out(keys.membership("4"))  # its stale copy and the failure marker stay
    await cache.get(keys.membership("4"), provider)
    report = await examine([keys])
    assert report.examined >= 6
    assert report.found == []
    busy.may_answer.set()
    await loading


def test_check_finds_nothing_wrong_with_the_families_of_a_cache() -> None:
    assert check([_OnlyCached]) == []
    assert check([OddKeys], cluster=True) == []


def test_load_markers_describe_their_lifetimes() -> None:
    marks = LoadMarkers("plan:{id}:mark", loading="20s", retry="5s", retry_at_most="1m", nothing="2m", tag="id")
    assert marks.lifetime.describe() == (
        "20 seconds during a load, 5 seconds to 1 minute after a failure, 2 minutes if there is nothing"
    )
    assert marks.lifetime.longest_ms == 120_000
    assert LoadMarkers("plan:{id}:mark").lifetime.describe() == "10 seconds during a load, 5 seconds after a failure"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"loading": "9ms"}, "needs more time"),
        ({"retry": "10s", "retry_at_most": "5s"}, "at least as long"),
        ({"loading": 10}, "needs a unit"),
        ({"nothing": "0s"}, "longer than zero"),
    ],
)
def test_marks_that_make_no_sense_are_refused(options: Any, sentence: str) -> None:
    with pytest.raises(BadDeclaration, match=re.escape(sentence)):
        LoadMarkers("plan:{id}:mark", **options)
