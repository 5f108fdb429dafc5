"""After every verb, on every store, the real TTL is that of the family."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Counter, Hash, Keyspace, List, Log, Set, SortedSet, Store, Value, after, never, sliding, until
from keystead.schema.lifetime import Lifetime, end_of_day
from tests.schema.conftest import STORES

MINUTE_MS = 60_000
SLACK_MS = 20_000  # what a slow machine may take between the write and the look


class Note(BaseModel):
    text: str = "x"
    seen: int = 0


def kinds(lifetime: Lifetime) -> dict[str, Any]:
    return {
        "value": Value("v:{n}", str, lifetime=lifetime),
        "counter": Counter("c:{n}", lifetime=lifetime),
        "hash": Hash("h:{n}", Note, lifetime=lifetime),
        "set": Set("s:{n}", str, lifetime=lifetime),
        "zset": SortedSet("z:{n}", str, lifetime=lifetime),
        "list": List("l:{n}", str, keep=2, lifetime=lifetime),
        "log": Log("x:{n}", str, keep=2, lifetime=lifetime),
    }


def keyspace(lifetime: Lifetime) -> type[Keyspace]:
    return type("Keys", (Keyspace,), kinds(lifetime))


# Every verb that can make a key, and every verb that changes one.
MAKING: dict[str, Callable[..., Awaitable[Any]]] = {
    "Value.set": lambda k, u: k.value("a").set("1", **u),
    "Value.add": lambda k, u: k.value("a").add("1", **u),
    "Counter.increment": lambda k, u: k.counter("a").increment(5, **u),
    "Counter.decrement": lambda k, u: k.counter("a").decrement(**u),
    "Counter.set": lambda k, u: k.counter("a").set(7, **u),
    "Hash.set": lambda k, u: k.hash("a").set(Note(), **u),
    "Hash.add": lambda k, u: k.hash("a").add(Note(), **u),
    "Hash.put": lambda k, u: k.hash("a").put({"text": "y"}, **u),
    "Hash.add_field": lambda k, u: k.hash("a").add_field("text", "y", **u),
    "Set.add": lambda k, u: k.set("a").add("m", "n", **u),
    "SortedSet.put": lambda k, u: k.zset("a").put({"m": 1, "n": 2}, **u),
    "SortedSet.add": lambda k, u: k.zset("a").add("m", 1, **u),
    "SortedSet.raise_to": lambda k, u: k.zset("a").raise_to("m", 1, **u),
    "SortedSet.lower_to": lambda k, u: k.zset("a").lower_to("m", 1, **u),
    "SortedSet.increment": lambda k, u: k.zset("a").increment("m", 1, **u),
    "List.append": lambda k, u: k.list("a").append("1", "2", "3", **u),
    "List.prepend": lambda k, u: k.list("a").prepend("1", **u),
    "Log.append": lambda k, u: k.log("a").append("1", **u),
}
CHANGING: dict[str, tuple[str, Callable[..., Awaitable[Any]]]] = {
    "Value.replace": ("Value.set", lambda k: k.value("a").replace("2")),
    "Value.compare_and_set": ("Value.set", lambda k: k.value("a").compare_and_set("1", "2")),
    "Value.change": ("Value.set", lambda k: k.value("a").change(lambda old: old + "!")),
    "Counter.increment": ("Counter.increment", lambda k: k.counter("a").increment()),
    "Hash.update": ("Hash.set", lambda k: k.hash("a").update({"text": "z", "seen": None})),
    "Hash.put": ("Hash.set", lambda k: k.hash("a").put({"seen": 3})),
    "Hash.increment": ("Hash.set", lambda k: k.hash("a").increment("seen")),
    "Set.add": ("Set.add", lambda k: k.set("a").add("o")),
    "SortedSet.put": ("SortedSet.put", lambda k: k.zset("a").put({"o": 1})),
    "List.append": ("List.append", lambda k: k.list("a").append("4")),
    "List.replace": ("List.append", lambda k: k.list("a").replace(0, "9")),
    "Log.append": ("Log.append", lambda k: k.log("a").append("2")),
}
REMOVING: dict[str, tuple[str, Callable[..., Awaitable[Any]]]] = {
    "Hash.remove": ("Hash.set", lambda k: k.hash("a").remove("seen")),
    "Hash.consume_field": ("Hash.set", lambda k: k.hash("a").consume_field("seen")),
    "Set.remove": ("Set.add", lambda k: k.set("a").remove("m")),
    "SortedSet.remove": ("SortedSet.put", lambda k: k.zset("a").remove("m")),
    "SortedSet.pop_lowest": ("SortedSet.put", lambda k: k.zset("a").pop_lowest()),
    "SortedSet.keep_highest": ("SortedSet.put", lambda k: k.zset("a").keep_highest(1)),
    "List.pop_first": ("List.append", lambda k: k.list("a").pop_first()),
    "List.remove": ("List.append", lambda k: k.list("a").remove("2")),
    "Value.get": ("Value.set", lambda k: k.value("a").get()),
    "Hash.get": ("Hash.set", lambda k: k.hash("a").get()),
}

KEY_OF = {
    "Value": "v:a",
    "Counter": "c:a",
    "Hash": "h:a",
    "Set": "s:a",
    "SortedSet": "z:a",
    "List": "l:a",
    "Log": "x:a",
}


async def left_ms(store: Store, verb: str) -> int:
    reply: int = (await store.run([("PTTL", KEY_OF[verb.partition(".")[0]])]))[0]
    return reply


async def shorten(store: Store, verb: str) -> None:
    """Simulate passing time: a minute of the TTL is left."""
    assert (await store.run([("PEXPIRE", KEY_OF[verb.partition(".")[0]], MINUTE_MS)])) == [1]


def about(left: int, ms: int) -> bool:
    return ms - SLACK_MS < left <= ms


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_a_created_key_has_the_lifetime_of_its_family(store: Store) -> None:
    now = (await store.run([("TIME",)]))[0]
    now_ms = int(now[0]) * 1000
    moment = now_ms + 3 * MINUTE_MS + 1000
    cases: list[tuple[Lifetime, dict[str, int], Callable[[int], bool]]] = [
        (after("10m"), {}, lambda left: about(left, 10 * MINUTE_MS)),
        (sliding("10m", touch_every="1m"), {}, lambda left: about(left, 10 * MINUTE_MS)),
        (until("ends_at", at_most="1h"), {"ends_at": moment}, lambda left: about(left, 3 * MINUTE_MS + 1000)),
        (end_of_day("UTC"), {}, lambda left: 0 < left <= 24 * 60 * MINUTE_MS),
        (never("a test"), {}, lambda left: left == -1),
    ]
    wrong = []
    for lifetime, given, holds in cases:
        for verb, make in MAKING.items():
            keys = keyspace(lifetime)(store)
            await store.run([("DEL", key) for key in KEY_OF.values()])
            await make(keys, given)
            left = await left_ms(store, verb)
            if not holds(left):
                wrong.append((lifetime, verb, left))
    assert wrong == []


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_a_change_renews_only_a_sliding_lifetime(store: Store) -> None:
    wrong = []
    for lifetime, ms in ((after("10m"), MINUTE_MS), (sliding("10m", touch_every="1m"), 10 * MINUTE_MS)):
        for verb, (made_by, change) in CHANGING.items():
            keys = keyspace(lifetime)(store)
            await store.run([("DEL", key) for key in KEY_OF.values()])
            await MAKING[made_by](keys, {})
            await shorten(store, verb)
            await change(keys)
            left = await left_ms(store, verb)
            if not about(left, ms):
                wrong.append((lifetime, verb, left))
    assert wrong == []


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_reading_and_removing_do_not_make_a_key_live_longer(store: Store) -> None:
    wrong = []
    for lifetime in (after("10m"), sliding("10m", touch_every="1m")):
        for verb, (made_by, remove) in REMOVING.items():
            keys = keyspace(lifetime)(store)
            await store.run([("DEL", key) for key in KEY_OF.values()])
            await MAKING[made_by](keys, {})
            await shorten(store, verb)
            await remove(keys)
            left = await left_ms(store, verb)
            if not about(left, MINUTE_MS):
                wrong.append((lifetime, verb, left))
    assert wrong == []


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_the_first_increment_of_any_size_starts_the_life_and_later_ones_keep_it(store: Store) -> None:
    keys: Any = keyspace(after("10m"))(store)
    assert await keys.counter("a").increment(5) == 5
    assert about(await left_ms(store, "Counter"), 10 * MINUTE_MS)
    await shorten(store, "Counter")
    assert await keys.counter("a").increment(5) == 10
    assert about(await left_ms(store, "Counter"), MINUTE_MS)


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_a_key_that_grows_lives_until_the_latest_of_its_moments(store: Store) -> None:
    now_ms = int((await store.run([("TIME",)]))[0][0]) * 1000
    keys: Any = keyspace(until("ends_at"))(store)
    await keys.set("a").add("x", ends_at=now_ms + 10 * MINUTE_MS)
    await keys.set("a").add("y", ends_at=now_ms + 5 * MINUTE_MS)
    assert about(await left_ms(store, "Set"), 10 * MINUTE_MS)
    await keys.set("a").add("z", ends_at=now_ms + 15 * MINUTE_MS)
    assert about(await left_ms(store, "Set"), 15 * MINUTE_MS)


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_using_a_key_touches_it_only_when_a_touch_is_due(store: Store) -> None:
    keys: Any = keyspace(sliding("10m", touch_every="2m"))(store)
    await keys.value("a").set("1")
    for left, then in ((9 * MINUTE_MS, 9 * MINUTE_MS), (8 * MINUTE_MS, 10 * MINUTE_MS), (MINUTE_MS, 10 * MINUTE_MS)):
        await store.run([("PEXPIRE", "v:a", left)])
        assert await keys.value("a").use() == "1"
        assert about(await left_ms(store, "Value"), then)
    await keys.hash("a").set(Note())
    await shorten(store, "Hash")
    assert await keys.hash("a").use() == Note()
    assert about(await left_ms(store, "Hash"), 10 * MINUTE_MS)


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_touching_or_using_a_missing_key_recreates_nothing(store: Store) -> None:
    keys: Any = keyspace(sliding("10m", touch_every="2m"))(store)
    assert await keys.value("a").touch() is False
    assert await keys.value("a").use() is None
    assert await keys.hash("a").use() is None
    assert await store.run([("EXISTS", "v:a", "h:a")]) == [0]


class Ticket(BaseModel):
    title: str
    ends_at: int


class Tickets(Keyspace):
    ticket = Hash("ticket:{id}", Ticket, lifetime=until("ends_at"))
    letter = Value("letter:{id}", Ticket, lifetime=until("ends_at"))


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_a_record_lives_exactly_until_the_moment_it_holds(store: Store) -> None:
    now_ms = int((await store.run([("TIME",)]))[0][0]) * 1000
    keys = Tickets(store)

    async def left() -> list[int]:
        return await store.run([("PTTL", "ticket:1"), ("PTTL", "letter:1")])

    await keys.ticket("1").set(Ticket(title="a", ends_at=now_ms + 10 * MINUTE_MS))
    await keys.letter("1").set(Ticket(title="a", ends_at=now_ms + 10 * MINUTE_MS))
    assert all(about(ms, 10 * MINUTE_MS) for ms in await left())
    await keys.ticket("1").update({"title": "b"})
    await keys.ticket("1").update({"ends_at": now_ms + 5 * MINUTE_MS})  # earlier than before
    await keys.letter("1").replace(Ticket(title="b", ends_at=now_ms + 5 * MINUTE_MS))
    assert all(about(ms, 5 * MINUTE_MS) for ms in await left())
    await keys.ticket("1").put({"title": "c", "ends_at": now_ms + 15 * MINUTE_MS})
    await keys.letter("1").change(lambda old: old.model_copy(update={"ends_at": now_ms + 15 * MINUTE_MS}))
    assert all(about(ms, 15 * MINUTE_MS) for ms in await left())
