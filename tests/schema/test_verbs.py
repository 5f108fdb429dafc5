"""The verbs of each kind: results, refusals, and that deleted keys are not resurrected."""

import asyncio
import time
from datetime import timedelta
from math import inf
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from keystead import (
    Channel,
    Counter,
    Hash,
    KeyRing,
    Keyspace,
    List,
    Log,
    Sealed,
    Set,
    SortedSet,
    Store,
    Value,
    after,
    never,
    sliding,
    until,
)
from keystead.errors import (
    BadArgument,
    BadCall,
    BadDeclaration,
    BadKey,
    BadValue,
    NotANumber,
    StoreUnavailable,
    Unreadable,
    WrongKind,
)
from keystead.schema import EpochMs, Steps, packed
from keystead.schema.operation import combine
from keystead.schema.operation_batch import Done
from keystead.schema.prepared_steps import Prepared
from keystead.stores import store_ms
from tests.parts.sessions.relays import Relay
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)

HOUR = after("1h")


class Profile(BaseModel):
    name: str
    plan: str = "free"
    logins: int = 0


class Secret(BaseModel):
    user: str
    token: Sealed[str]


class Link(BaseModel):
    url: str
    ends_at: EpochMs


class Ref(NamedTuple):
    type: str
    id: int


class Field(NamedTuple):
    key: str
    page: str | None = None


class Keys(Keyspace):
    """Every kind once."""

    profile = Value("profile:{uid}", Profile, lifetime=HOUR)
    code = Value("code:{code}", str, lifetime=HOUR)
    secret = Value("secret:{id}", Secret, lifetime=HOUR)
    link = Value("link:{id}", Link, lifetime=until("ends_at", at_most="14d"))
    seen = Value("seen:{id}", str, lifetime=sliding("1h", touch_every="1m"))
    hits = Counter("hits:{page}", lifetime=HOUR)
    session = Hash("session:{id}", Profile, lifetime=HOUR)
    data = Hash("data:{id}", dict[Field, str], fields=packed(Field, "{key}[_{page}]"), lifetime=HOUR)
    tags = Set("tags:{id}", str, lifetime=HOUR)
    board = SortedSet("board:{id}", str, lifetime=never("a test"))
    due = SortedSet("due:{team:int}", packed(Ref, "{type}:{id:int}"), lifetime=never("a test"))
    queue = List("queue:{id}", Profile, lifetime=HOUR)
    recent = List("recent:{id}", str, keep=3, lifetime=HOUR)
    events = Log("events:{id}", Profile, keep=3, lifetime=HOUR)
    news = Channel("news:{topic}", Profile)


RING = KeyRing({"a": b"k" * 32})


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store, seal=RING)


ANN = Profile(name="Ann")
BOB = Profile(name="Bob", plan="pro")


@everywhere
async def test_a_value_is_typed_and_stored_as_its_json(keys: Keys, store: Store) -> None:
    key = keys.profile("7")
    assert await key.get() is None
    await key.set(ANN)
    assert await key.get() == ANN
    assert await store.run([("GET", "profile:7")]) == [b'{"name":"Ann","plan":"free","logins":0}']


@everywhere
async def test_of_many_concurrent_adds_one_succeeds(keys: Keys) -> None:
    won = await asyncio.gather(*(keys.code("x").add(str(n)) for n in range(20)))
    assert sorted(won) == [False] * 19 + [True]
    assert await keys.code("x").get() == str(won.index(True))


@everywhere
async def test_replace_never_recreates_a_deleted_record(keys: Keys) -> None:
    key = keys.profile("7")
    assert await key.replace(ANN) is False
    await key.set(ANN)
    assert await key.delete() is True
    assert await key.replace(BOB) is False
    assert await key.get() is None
    assert await key.delete() is False


@everywhere
async def test_of_many_concurrent_compare_and_sets_one_succeeds(keys: Keys) -> None:
    key = keys.profile("7")
    assert await key.compare_and_set(ANN, BOB) is False
    await key.set(ANN)
    new = [Profile(name=f"N{n}") for n in range(10)]
    won = await asyncio.gather(*(key.compare_and_set(ANN, one) for one in new))
    assert sorted(won) == [False] * 9 + [True]
    assert await key.get() == new[won.index(True)]


@everywhere
async def test_concurrent_changes_are_all_kept(keys: Keys) -> None:
    key = keys.profile("7")
    assert await key.change(lambda old: old) is None
    await key.set(ANN)
    await asyncio.gather(*(key.change(lambda old: old.model_copy(update={"logins": old.logins + 1})) for _ in range(8)))
    assert (await key.get() or ANN).logins == 8


@everywhere
async def test_of_many_concurrent_consumers_one_gets_the_value(keys: Keys) -> None:
    await keys.code("x").set("once")
    got = await asyncio.gather(*(keys.code("x").consume() for _ in range(20)))
    assert sorted(one or "" for one in got) == [""] * 19 + ["once"]


@everywhere
async def test_the_remaining_lifetime_of_a_key_can_be_read(keys: Keys) -> None:
    assert await keys.code("x").remaining() is None
    await keys.code("x").set("1")
    left = await keys.code("x").remaining()
    assert left is not None
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    await keys.board("b").add("m", 1)
    assert await keys.board("b").remaining() == timedelta.max


@everywhere
async def test_sealed_fields_are_not_in_the_store_and_are_read_back(keys: Keys, store: Store) -> None:
    await keys.secret("1").set(Secret(user="ann", token="hunter2"))
    raw = (await store.run([("GET", "secret:1")]))[0]
    assert b"hunter2" not in raw
    assert b'"user":"ann"' in raw
    assert (await keys.secret("1").get() or Secret(user="", token="")).token == "hunter2"
    changed = await keys.secret("1").change(lambda old: old.model_copy(update={"token": "swordfish"}))
    assert changed is not None
    with pytest.raises(BadValue, match="change"):
        keys.secret("1").compare_and_set(changed, changed)


@everywhere
async def test_a_value_sealed_for_one_key_does_not_open_under_another(keys: Keys, store: Store) -> None:
    await keys.secret("1").set(Secret(user="ann", token="hunter2"))
    raw = (await store.run([("GET", "secret:1")]))[0]
    await store.run([("SET", "secret:2", raw, "EX", 60)])
    with pytest.raises(Unreadable):
        await keys.secret("2").get()


@everywhere
async def test_content_that_does_not_fit_the_family_is_unreadable_and_never_missing(keys: Keys, store: Store) -> None:
    await store.run(
        [
            ("SET", "profile:7", b"{"),
            ("SET", "code:x", b"\xff"),
            ("SET", "hits:p", "12x"),
            ("HSET", "session:1", "plan", "pro"),
            ("SADD", "tags:1", b"\xff"),
            ("ZADD", "due:3", 1, "no-number:x"),
            ("RPUSH", "queue:1", "[]"),
            ("XADD", "events:1", "*", "other", "1"),
        ]
    )
    reads: list[Any] = [
        keys.profile("7").get,
        keys.code("x").get,
        keys.hits("p").get,
        keys.session("1").get,
        keys.tags("1").members,
        lambda: keys.due(3).lowest(5),
        keys.queue("1").items,
        keys.events("1").entries,
    ]
    for read in reads:
        with pytest.raises(Unreadable):
            await read()


@everywhere
async def test_a_key_of_another_kind_raises(keys: Keys, store: Store) -> None:
    await store.run([("HSET", "profile:7", "a", "1"), ("SET", "tags:1", "1")])
    with pytest.raises(WrongKind):
        await keys.profile("7").get()
    with pytest.raises(WrongKind):
        await keys.tags("1").add("x")


@everywhere
async def test_a_counter_counts_every_call(keys: Keys) -> None:
    assert await keys.hits("p").get() == 0
    counted = await asyncio.gather(*(keys.hits("p").increment() for _ in range(50)))
    assert sorted(counted) == list(range(1, 51))
    assert await keys.hits("p").decrement(20) == 30
    await keys.hits("p").set(2**63 - 1)
    with pytest.raises(NotANumber):
        await keys.hits("p").increment()
    assert await keys.hits("p").consume() == 2**63 - 1
    assert await keys.hits("p").get() == 0


@everywhere
async def test_fields_of_a_hash_never_overwrite_each_other(keys: Keys, store: Store) -> None:
    key = keys.session("1")
    assert await key.add(ANN) is True
    assert await key.add(BOB) is False
    await asyncio.gather(key.update({"plan": "pro"}), key.update({"name": "Anna"}), key.increment("logins", 5))
    assert await key.get() == Profile(name="Anna", plan="pro", logins=5)
    assert await key.field("plan") == "pro"
    assert await key.fields("name", "logins") == {"name": "Anna", "logins": 5}
    assert await store.run([("HGETALL", "session:1")]) == [{b"name": b"Anna", b"plan": b"pro", b"logins": b"5"}]


@everywhere
async def test_a_change_does_not_resurrect_a_deleted_hash(keys: Keys, store: Store) -> None:
    key = keys.session("1")
    assert await key.update({"plan": "pro"}) is False
    assert await key.increment("logins") is None
    assert await store.run([("EXISTS", "session:1")]) == [0]


@everywhere
async def test_a_field_is_consumed_by_one_of_many(keys: Keys) -> None:
    await keys.data("1").put({Field("Message"): "hi", Field("Other"): "x"})
    got = await asyncio.gather(*(keys.data("1").consume_field(Field("Message")) for _ in range(10)))
    assert sorted(one or "" for one in got) == [""] * 9 + ["hi"]
    assert await keys.data("1").get() == {Field("Other"): "x"}


@everywhere
async def test_packed_fields_and_members_round_trip(keys: Keys, store: Store) -> None:
    odd = {
        Field("ViewMode"): "1",
        Field("ViewMode", "Items/100"): "2",
        Field("User_Theme"): "3",
        Field("User", "Theme"): "4",
        Field("My_Key", "Page_123"): "5",
        Field("日本", "a:b%_ \n"): "6",
    }
    await keys.data("1").put(odd)
    assert await keys.data("1").get() == odd
    raw = (await store.run([("HGETALL", "data:1")]))[0]
    assert {b"ViewMode", b"ViewMode_Items/100", b"User%5FTheme", b"User_Theme"} <= set(raw)
    await keys.due(3).put({Ref("WORK_REQUEST", 101): 1772496000, Ref("A:B", 1): 5})
    assert await keys.due(3).between(0, 2e9) == [(Ref("A:B", 1), 5), (Ref("WORK_REQUEST", 101), 1772496000)]
    assert b"WORK_REQUEST:101" in (await store.run([("ZRANGE", "due:3", 0, -1)]))[0]


@everywhere
async def test_a_set_has_each_member_once(keys: Keys) -> None:
    key = keys.tags("1")
    assert await key.add("a", "b", "a") == 2
    assert await key.members() == {"a", "b"}
    assert (await key.has("a"), await key.has("z"), await key.count()) == (True, False, 2)
    assert await key.remove("a", "z") == 1


@everywhere
async def test_a_sorted_set_is_in_the_order_of_its_scores(keys: Keys) -> None:
    key = keys.board("b")
    assert await key.put({"ann": 10, "bob": 30, "cid": 20}) == 3
    assert await key.highest(2) == [("bob", 30), ("cid", 20)]
    assert await key.lowest(2, skip=1) == [("cid", 20), ("bob", 30)]
    assert await key.lowest(0) == []
    assert (await key.rank("cid"), await key.rank_from_top("ann"), await key.rank("zoe")) == (1, 2, None)
    assert await key.add("ann", 99) is False
    assert await key.raise_to("ann", 5) is False
    assert await key.raise_to("ann", 40) is True
    assert await key.lower_to("bob", 1.5) is True
    assert await key.increment("bob", 0.5) == 2
    assert (await key.score("bob"), await key.score("zoe")) == (2, None)
    assert (await key.count(), await key.count_between(2, 20)) == (3, 2)
    assert await key.keep_highest(2) == 1
    assert await key.keep_lowest(5) == 0
    assert await key.pop_lowest() == [("cid", 20)]
    assert await key.remove_between(0, 100) == 1


@everywhere
async def test_a_list_keeps_its_order_and_its_length(keys: Keys) -> None:
    assert await keys.queue("1").append(ANN, BOB) == 2
    assert await keys.queue("1").items() == [ANN, BOB]
    await keys.queue("1").replace(0, BOB)
    assert await keys.queue("1").get(0) == BOB
    assert (await keys.queue("1").pop_last(), await keys.queue("1").pop_first()) == (BOB, BOB)
    assert (await keys.queue("1").pop_first(), await keys.queue("1").get(3)) == (None, None)
    assert await keys.recent("1").prepend("a", "b", "c", "d") == 3
    assert await keys.recent("1").items() == ["d", "c", "b"]
    assert await keys.recent("1").append("e", keep=2) == 2
    assert await keys.recent("1").items() == ["b", "e"]
    assert (await keys.recent("1").remove("e"), await keys.recent("1").count()) == (1, 1)


@everywhere
async def test_a_log_is_read_on_from_where_one_was(keys: Keys) -> None:
    key = keys.events("1")
    ids = [await key.append(Profile(name=str(n))) for n in range(4)]
    assert await key.count() == 3
    entries = await key.entries()
    assert [(one.id, one.item.name) for one in entries] == [(ids[1], "1"), (ids[2], "2"), (ids[3], "3")]
    assert [one.item.name for one in await key.entries(after=ids[2])] == ["3"]
    assert [one.item.name for one in await key.latest(2)] == ["3", "2"]
    assert await key.remove(ids[1], ids[0]) == 1


@everywhere
async def test_items_that_are_appended_together_are_all_there_or_none(keys: Keys) -> None:
    key = keys.events("1")
    assert await key.append_all({f"{n}-0": Profile(name=str(n)) for n in range(1, 6)}) == 5
    assert [(one.id, one.item.name) for one in await key.entries()] == [("3-0", "3"), ("4-0", "4"), ("5-0", "5")]
    for refused in (["5-0", "6-0"], ["8-0", "7-0"]):
        with pytest.raises(BadArgument):
            await key.append_all({name: Profile(name="new") for name in refused})
    assert [one.item.name for one in await key.entries()] == ["3", "4", "5"]
    with pytest.raises(BadValue, match="at least one"):
        key.append_all({})


@everywhere
async def test_a_channel_brings_typed_messages(keys: Keys) -> None:
    async with keys.news("x").subscribe() as messages:
        await keys.news("x").publish(ANN)
        async with asyncio.timeout(60):
            assert await anext(messages) == ANN


@everywhere
async def test_several_operations_go_in_one_round_trip_and_keep_their_types(keys: Keys) -> None:
    await keys.profile("7").set(ANN)
    profile, hits, tags = await keys.run(keys.profile("7").get(), keys.hits("p").increment(), keys.tags("1").members())
    assert (profile, hits, tags) == (ANN, 1, set())


@everywhere
async def test_in_a_batch_every_operation_is_tried_and_an_error_keeps_the_results_of_the_others(
    keys: Keys, store: Store
) -> None:
    await store.run([("SET", "profile:7", "{"), ("SET", "tags:1", "1")])
    with pytest.raises(Unreadable) as raised:
        await keys.run(
            keys.profile("7").get(), keys.hits("p").increment(), keys.tags("1").count(), keys.code("c").add("1")
        )
    results = raised.value.results
    assert results is not None
    assert [type(one) for one in results] == [Unreadable, int, WrongKind, bool]


class FreeFields(Keyspace):
    """Fields of any name."""

    fields = Hash("fields:{id}", dict[str, str], lifetime=never("a test"), doc="fields")


class Group(Keyspace):
    """Keys that share a slot in a cluster."""

    visit = Value("site:{id}:visit:{who}", str, lifetime=HOUR, tag="id")
    total = Counter("site:{id}:total", lifetime=never("a test"), tag="id")
    owner = Value("site:{id}:owner", str, lifetime=never("a test"), tag="id")
    guests = Set("site:{id}:guests", str, lifetime=HOUR, tag="id")
    waiting = SortedSet("site:{id}:waiting", str, lifetime=HOUR, tag="id")


@everywhere
async def test_an_atomic_group_is_all_or_nothing(store: Store) -> None:
    keys = Group(store)

    async def visit() -> bool:
        return bool(
            await keys.atomically(keys.visit(id="a", who="ann").add("1").required(), keys.total("a").increment())
        )

    assert sorted(await asyncio.gather(*(visit() for _ in range(10)))) == [False] * 9 + [True]
    assert await keys.total("a").get() == 1
    done = await keys.atomically(keys.owner("a").add("x"), keys.total("a").increment(2), keys.owner("a").get())
    assert done
    assert done.values == (True, 3, "x")
    stopped = await keys.atomically(keys.total("a").increment(), keys.owner("a").compare_and_set("y", "z"))
    assert not stopped
    assert (stopped.stopped_at, len(stopped.values)) == (1, 0)
    assert await keys.total("a").get() == 3


@everywhere
async def test_a_cap_is_never_exceeded_by_concurrent_callers(store: Store) -> None:
    keys = Group(store)
    total, guests, waiting = keys.total("a"), keys.guests("a"), keys.waiting("a")

    async def enter(who: str) -> tuple[bool, bool, bool]:
        return (
            bool(await keys.atomically(guests.at_most(4), guests.add(who))),
            bool(await keys.atomically(waiting.at_most(2), waiting.add(who, 1))),
            bool(await keys.atomically(total.at_most(0), total.increment())),
        )

    entered = await asyncio.gather(*(enter(f"guest {n}") for n in range(20)))
    assert [sum(column) for column in zip(*entered, strict=True)] == [5, 3, 1]
    assert await keys.run(guests.count(), waiting.count(), total.get()) == (5, 3, 1)


@everywhere
async def test_a_cap_of_fields_allows_changes_of_existing_ones(store: Store) -> None:
    keys = FreeFields(store)
    fields = keys.fields("a")

    async def write(name: str, value: str) -> bool:
        return bool(await keys.atomically(fields.put({name: value}), fields.at_most(5)))

    assert sum(await asyncio.gather(*(write(f"field {n}", "x") for n in range(20)))) == 5
    [there, *_] = await fields.get() or {}
    assert await write(there, "y") is True
    assert await fields.field(there) == "y"
    assert [await fields.at_most(4), await fields.at_most(5), await keys.fields("none").at_most(0)] == [
        False,
        True,
        True,
    ]


@everywhere
async def test_an_exceeded_limit_stops_a_batch_and_alone_returns_false(store: Store) -> None:
    keys = Group(store)
    total, guests, waiting = keys.total("a"), keys.guests("a"), keys.waiting("a")
    assert [await total.at_most(0), await guests.at_most(0), await waiting.at_most(0)] == [True] * 3
    assert await total.at_most(-1) is False
    await keys.run(total.increment(2**53 + 1), guests.add("ann", "bob"), waiting.put({"ann": 1, "bob": 2}))
    for key, amount in ((total, 2**53 + 1), (guests, 2), (waiting, 2)):
        told = await keys.run(key.at_most(amount - 1), key.at_most(amount), key.at_most(2**63 - 1))
        assert told == (False, True, True)
        stopped = await keys.atomically(keys.owner("a").add("x"), key.at_most(amount - 1), guests.add("cid"))
        assert (bool(stopped), stopped.stopped_at, len(stopped.values)) == (False, 1, 0)
        assert (await keys.atomically(key.at_most(amount), guests.has("cid"))).values == (True, False)
    assert await keys.owner("a").exists() is False


@everywhere
async def test_a_limit_on_a_value_that_is_not_a_number_raises_and_changes_nothing(store: Store) -> None:
    keys = Group(store)
    await store.run([("SET", keys.total("a").key, "12x"), ("SET", keys.guests("a").key, "no set")])
    with pytest.raises(NotANumber) as caught:
        await keys.atomically(keys.owner("a").add("x"), keys.total("a").at_most(99))
    assert (caught.value.command, caught.value.key) == ("GET", keys.total("a").key.encode())
    with pytest.raises(WrongKind):
        await keys.atomically(keys.owner("a").add("x"), keys.guests("a").at_most(99))
    assert await keys.owner("a").exists() is False


async def test_a_typed_group_across_two_stores_is_refused(memory: Store) -> None:
    from keystead import connect
    from keystead.errors import BadArgument

    class Two(Keyspace):
        here = Counter("here", lifetime=HOUR)
        there = Counter("there", lifetime=HOUR, role="cache")

    async with connect("memory://") as other:
        keys = Two(memory, cache=other)
        assert await keys.run(keys.here().increment(), keys.there().increment()) == (1, 1)
        with pytest.raises(BadArgument, match="one store"):
            await keys.atomically(keys.here().increment(), keys.there().increment())


WRONG: dict[str, Any] = {
    "a missing placeholder": (lambda k: k.profile(), BadKey),
    "an unknown placeholder": (lambda k: k.profile(user="1"), BadKey),
    "a placeholder of another type": (lambda k: k.due("3"), BadKey),
    "an empty placeholder": (lambda k: k.profile(""), BadKey),
    "a dict for a model": (lambda k: k.profile("1").set({"name": "x"}), BadValue),
    "a number for text": (lambda k: k.code("1").set(5), BadValue),
    "a bool for a number": (lambda k: k.hits("1").increment(True), BadValue),
    "a number beyond 64 bits": (lambda k: k.hits("1").set(2**63), BadValue),
    "a limit beyond 64 bits": (lambda k: k.hits("1").at_most(2**63), BadValue),
    "a limit that is no whole number": (lambda k: k.hits("1").at_most(1.5), BadValue),
    "a bool for a limit": (lambda k: k.tags("1").at_most(True), BadValue),
    "a limit of fewer than no members": (lambda k: k.board("1").at_most(-1), BadValue),
    "a field that is not there": (lambda k: k.session("1").update({"nme": "x"}), BadValue),
    "a field of another type": (lambda k: k.session("1").update({"logins": "x"}), BadValue),
    "no field at all": (lambda k: k.session("1").update({}), BadValue),
    "no member at all": (lambda k: k.tags("1").add(), BadValue),
    "a member of another type": (lambda k: k.tags("1").add(1), BadValue),
    "a score that is no number": (lambda k: k.board("1").add("x", float("nan")), BadValue),
    "text for a packed member": (lambda k: k.due(3).add("a:1", 1), BadValue),
    "a deadline that is past": (lambda k: k.link("1").set(Link(url="u", ends_at=PAST)), BadValue),
    "a deadline where none is taken": (lambda k: k.code("1").set("x", ends_at=5), BadValue),
    "a touch of what does not slide": (lambda k: k.code("1").touch(), BadValue),
    "a half surrogate pair in a key": (lambda k: k.code("\ud800"), BadKey),
    "a half surrogate pair in a value": (lambda k: k.code("1").set("\ud800"), BadValue),
}
PAST: Any = __import__("datetime").datetime(2020, 1, 1, tzinfo=__import__("datetime").UTC)


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_key_or_value_is_refused_before_anything_is_sent(what: str, memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    call, error = WRONG[what]
    with pytest.raises(error):
        call(keys)
    assert (await memory.run([("DBSIZE",)])) == [0]


@everywhere
async def test_a_family_can_be_scanned(keys: Keys) -> None:
    for n in range(30):
        await keys.profile(f"u{n}*").set(ANN)
    await keys.code("profile:x").set("1")
    found = {key.values["uid"] async for key in keys.profile.scan(7)}
    assert found == {f"u{n}*" for n in range(30)}
    assert [key.key async for key in keys.profile.scan(uid="u3*")] == ["profile:u3*"]


@everywhere
async def test_a_key_alone_leaves_its_relations_as_they_are(keys: Keys, store: Store) -> None:
    class Listed(Keyspace):
        all = Set("things", str, lifetime=never("test"), doc="all")
        part = Value("thing:{id}:part", str, lifetime=after("1d"), doc="a part", tag="id")
        thing = Value("thing:{id}", str, lifetime=after("1d"), doc="a thing", listed_in=all, owns=part, tag="id")

    things = Listed(store)
    await things.thing("a").alone.set("x")
    assert await things.all().members() == set()
    await things.thing("a").set("x")
    await things.part("a").set("y")
    assert await things.thing("a").alone.delete()
    assert await things.all().members() == {"a"}
    assert await things.part("a").get() == "y"


@everywhere
async def test_a_write_may_end_earlier_than_its_family(keys: Keys, store: Store) -> None:
    class Short(Keyspace):
        note = Value("note:{id}", str, lifetime=after("1d"), doc="a note")
        count = Counter("count:{id}", lifetime=after("1d"), doc="a count")

    short = Short(store)
    await short.note("a").lasting(60_000).set("x")
    await short.count("a").lasting(60_000).increment()
    for key in (short.note("a"), short.count("a")):
        left = await key.remaining()
        assert left is not None
        assert timedelta(0) < left <= timedelta(minutes=1)
    assert await short.note("a").lasting(120_000).touch()
    left = await short.note("a").remaining()
    assert left is not None
    assert left > timedelta(seconds=60)
    assert await short.note("a").shorten(1_000)
    assert not await short.note("a").shorten(60_000)
    for wrong in (0, -1, True, 1.5, 86_400_001):
        with pytest.raises(BadCall, match="a lifetime must be a number of ms"):
            short.note("a").lasting(wrong)  # type: ignore[arg-type]


@everywhere
async def test_conditional_writes_depend_on_existence(keys: Keys, store: Store) -> None:
    class Some(Keyspace):
        count = Counter("count:{id}", lifetime=after("1d"), doc="a count")
        scores = SortedSet("scores:{id}", str, lifetime=after("1d"), doc="scores")
        items = List("items:{id}", str, lifetime=after("1d"), doc="items")

    some = Some(store)
    assert await some.count("a").start_at(7)
    assert not await some.count("a").start_at(9)
    assert await some.count.get_all("a", "b") == [7, None]
    assert await some.count.get_all(some.count("a"), keys.code("none"), some.count("b")) == [7, None, None]
    assert not await some.scores("a").move("m", 1)
    await some.scores("a").put({"m": 1})
    assert await some.scores("a").move("m", 5)
    assert await some.scores("a").score_at_most("m", 5)
    assert not await some.scores("a").score_at_most("m", 4.5)
    await some.items("a").append("x", "y", "z")
    await some.items("a").trim(2)
    assert await some.items("a").items() == ["x", "y"]
    now, count = await some.run(some.count("a").clock(), some.count("a").get())
    assert abs(now - time.time_ns() // 1_000_000) < 300_000
    assert count == 7


@everywhere
async def test_guards_on_exact_values(keys: Keys) -> None:
    profile, board, queue = keys.profile("1"), keys.board("1"), keys.queue("1")
    assert await profile.absent()
    assert await queue.absent()
    await profile.set(ANN)
    await queue.append(ANN)
    assert not await profile.absent()
    assert await profile.holds(ANN)
    assert not await profile.holds(BOB)
    assert not await keys.profile("2").holds(ANN)
    with pytest.raises(BadCall, match="sealed or versioned"):
        keys.secret("1").holds(Secret(user="a", token="b"))
    moment = 1_767_225_600_000
    await board.put({"a": moment + 0.5, "b": -0.25, "c": 0})
    for member, score in (("a", moment + 0.5), ("b", -0.25), ("c", 0)):
        assert await board.score_is(member, score)
        for other in (score - 0.25, score + 0.25, moment):
            assert not await board.score_is(member, other)
    assert not await board.score_is("d", moment)
    assert not await board.score_is("d", 0)
    for guard, write in (
        (queue.absent(), queue.append(BOB)),
        (profile.holds(BOB), profile.set(BOB)),
        (board.score_is("a", moment), board.add("new", 1)),
    ):
        assert not await keys.atomically(guard.otherwise("it is another"), write)
    assert (await queue.items(), await profile.get(), await board.score("new")) == ([ANN], ANN, None)


@everywhere
async def test_unreadable_entries_are_seen_beside_readable_ones_and_can_be_removed(keys: Keys, store: Store) -> None:
    queue, events = keys.queue("1"), keys.events("1")
    await queue.append(ANN, BOB)
    await store.run([("LPUSH", queue.key, b"junk"), ("RPUSH", queue.key, b'{ "name": "Ann" }')])
    seen = await queue.see()
    assert [one.value for one in seen] == [None, ANN, BOB, ANN]
    assert [one.value for one in await queue.see(1, 1)] == [ANN]
    for one in (seen[0], seen[3]):
        assert await queue.remove(one, 1) == 1
        assert await queue.remove(one) == 0
    assert await queue.items() == [ANN, BOB]
    due = keys.due(7)
    await due.put({Ref("task", 1): 2})
    await store.run([("ZADD", due.key, 1, b"\xff")])
    (strange, at), task = await due.see_lowest(2)
    assert (strange.value, at, task[0].value, task[1]) == (None, 1, Ref("task", 1), 2)
    assert await due.move(strange, 3)
    assert [one.value for one, _ in await due.see_lowest(1, skip=1)] == [None]
    await store.run([("XADD", events.key, "1-0", "data", b"junk"), ("XADD", events.key, "2-0", "other", b"x")])
    await events.append(ANN, entry_id="3-0")
    assert await events.see() == [("1-0", None), ("2-0", None), ("3-0", ANN)]
    assert await events.see(after="1-0", limit=1) == [("2-0", None)]
    assert await events.see_latest(2) == [("3-0", ANN), ("2-0", None)]
    assert await events.see_latest(2, before="3-0") == [("2-0", None), ("1-0", None)]
    assert await events.newest(1) == [ANN]
    with pytest.raises(Unreadable):
        await events.newest(2)


@everywhere
async def test_run_each_returns_an_error_in_place_of_a_result(
    keys: Keys, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await store.run([("SET", keys.profile("1").key, b"junk"), ("SADD", keys.profile("2").key, "x")])
    await keys.hits("a").increment()
    bad, odd, count, none = await keys.run_each(
        keys.profile("1").get(), keys.profile("2").get(), keys.hits("a").get(), keys.code("c").get().if_readable()
    )
    assert (type(bad), type(odd), count, none) == (Unreadable, WrongKind, 1, None)
    assert caplog.text == ""  # the caller reports the error


async def test_in_such_a_batch_an_outage_is_raised(memory: Store) -> None:
    class Away(Relay):
        async def run(self, commands: Any) -> Any:
            raise StoreUnavailable("the store does not answer")

    keys = Keys(Away(memory), seal=RING)
    with pytest.raises(StoreUnavailable):
        await keys.run_each(keys.profile("1").get(), keys.hits("a").get())


@everywhere
async def test_afterwards_runs_once_the_operation_took_effect(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []

    async def tell(count: int) -> None:
        told.append(count)

    async def fail(count: int) -> None:
        raise BadValue("no")

    hits = keys.hits("a")
    assert await hits.increment().afterwards(tell) == 1
    assert await keys.run(hits.increment().afterwards(tell), keys.code("c").get()) == (2, None)
    assert await keys.atomically(hits.at_most(2), hits.increment().afterwards(tell).afterwards(tell))
    assert not await keys.atomically(hits.at_most(2), hits.increment().afterwards(tell))
    assert told == [1, 2, 3, 3]
    assert await hits.increment().afterwards(fail) == 4
    assert "upkeep" in caplog.text


@everywhere
async def test_extend_neither_shortens_nor_creates_a_key(keys: Keys, store: Store) -> None:
    class Notes(Keyspace):
        note = Value("note:{id}", str, lifetime=until("ends_at", at_most="1d"), doc="a note")
        kept = Value("kept:{id}", str, lifetime=never("test"), doc="a note that stays")

    notes = Notes(store)
    now_ms = notes.now_ms()
    assert not await notes.note("a").extend(now_ms + 60_000)
    assert not await notes.note("a").exists()
    await notes.note("a").set("x", ends_at=now_ms + 60_000)
    assert await notes.note("a").extend(now_ms + 3_600_000)
    assert not await notes.note("a").extend(now_ms + 60_000)
    left = await notes.note("a").remaining()
    assert left is not None
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    await notes.kept("a").set("x")
    assert not await notes.kept("a").extend(now_ms + 60_000)
    assert await notes.kept("a").remaining() == timedelta.max
    with pytest.raises(BadCall, match="longer than its family allows"):
        notes.note("a").extend(now_ms + 2 * 86_400_000)


@everywhere
async def test_a_hash_is_copied_as_it_is_stored_while_it_is_still_so(keys: Keys, store: Store) -> None:
    class Some(Keyspace):
        fields = Hash("fields:{id}", dict[str, int], lifetime=until("ends_at"), doc="numbers", tag="id")
        other = Hash("other:{id}", dict[str, int], lifetime=until("ends_at"), doc="numbers", tag="id")
        sealed = Hash("sealed:{id}", Secret, lifetime=HOUR, doc="a secret")

    some = Some(store, seal=RING)
    ends_at = some.now_ms() + 60_000
    assert await some.fields("a").see() == {}
    assert await some.fields("a").holds({})
    await some.fields("a").put({"x": 1, "y": 2}, ends_at=ends_at)
    await store.run([("HSET", some.fields("a").key, "y", "no number")])
    seen = await some.fields("a").see()
    assert seen == {b"x": b"1", b"y": b"no number"}
    await some.other("a").put({"z": 3}, ends_at=ends_at)
    await some.other("a").copy(seen, ends_at=ends_at)
    assert await some.other("a").see() == seen
    assert await some.other("a").remaining() is not None
    for changed in ({"x": 5}, {"z": 1}):
        assert await some.atomically(some.fields("a").holds(seen), some.other("a").exists())
        await some.fields("a").put(changed, ends_at=ends_at)
        assert not await some.atomically(some.fields("a").holds(seen), some.fields("a").delete())
        seen = await some.fields("a").see()
    await some.fields("a").remove("z")
    assert not await some.fields("a").holds(seen)
    assert not await some.fields("a").holds({})
    with pytest.raises(BadCall, match="the fields are empty, or sealed"):
        some.other("a").copy({}, ends_at=ends_at)
    with pytest.raises(BadCall, match="the fields are empty, or sealed"):
        some.sealed("a").copy(seen)


@everywhere
async def test_unreadable_members_are_seen_and_can_be_removed(keys: Keys, store: Store) -> None:
    tags = keys.tags("1")
    await tags.add("a", "b")
    await store.run([("SADD", tags.key, b"\xff")])
    seen = await tags.see()
    assert {one.value for one in seen} == {"a", "b", None}
    assert await tags.remove(*(one for one in seen if one.value in ("a", None))) == 2
    assert await tags.members() == {"b"}
    assert await keys.tags("2").see() == []


@everywhere
async def test_paging_through_a_sorted_set_misses_no_member_during_removals(keys: Keys, store: Store) -> None:
    class Some(Keyspace):
        scores = SortedSet("scores:{id}", int, lifetime=after("1d"), doc="scores")

    scores = Some(store).scores("a")
    await scores.put({number: number // 3 for number in range(20)})
    await store.run([("ZADD", scores.key, 1, b"\xff")])
    for gone in ({0}, {1, 3}, {2}, {0, 1, 2, 3}):  # of each four
        met = []
        async for page in scores.pages(5, page=4):
            met += page
            await scores.remove(*(number for number in page if number % 4 in gone), 99)
        assert sorted(met) == list(range(18))
        await scores.put({number: number // 3 for number in range(20)})
    await store.run([("DEL", scores.key), ("SET", scores.key, "x")])
    assert [page async for page in scores.pages()] == []


@everywhere
async def test_as_seen_guards_later_steps(keys: Keys) -> None:
    key = keys.profile("7")
    ours = key.as_seen(ANN)
    assert not await key.holds(ours)
    await key.set(ANN)
    assert await key.see() == ours
    assert await key.holds(ours)
    assert await key.replace_seen(ours, BOB)
    assert not await key.holds(ours)
    with pytest.raises(BadCall, match="sealed"):
        keys.secret("7").as_seen(Secret(user="ann", token="x"))


@everywhere
async def test_an_existing_key_stops_a_step_that_needs_it_absent(store: Store) -> None:
    keys = Group(store)
    assert await keys.owner("a").absent()
    assert await keys.atomically(keys.owner("a").absent(), keys.guests("a").add("ann"))
    assert not await keys.guests("a").absent()
    assert not await keys.atomically(keys.guests("a").absent(), keys.owner("a").set("x"))
    assert await keys.owner("a").absent()


@everywhere
async def test_or_error_returns_the_error_and_other_reads_continue(store: Store) -> None:
    keys = Keys(store, seal=RING)
    await store.run([("SET", keys.profile("7").key, "{")])
    found, hits = await keys.run(keys.profile("7").get().or_error(), keys.hits("p").increment())
    assert (type(found), hits) == (Unreadable, 1)
    seen = await keys.profile("7").see().or_error()
    assert isinstance(seen, Unreadable)
    assert seen.raw == b"{"
    assert await keys.profile("8").get().or_error() is None
    with pytest.raises(BadCall, match="reads of one command"):
        keys.session("7").update({"logins": 1}).or_error()


@everywhere
async def test_operations_that_are_joined_are_one_with_one_result(store: Store) -> None:
    keys = Group(store)
    total, owner = keys.total("a"), keys.owner("a")

    def enter(most: int) -> Any:
        return combine(
            "enter", [total.at_most(most), owner.add("x"), total.increment()], lambda *all: all[2], stopped=0
        )

    assert await enter(0) == 1
    assert await enter(0) == 0
    assert (await keys.atomically(enter(1), owner.get())).values == (2, "x")
    assert not await keys.atomically(owner.set("y"), enter(1))
    both = combine("look", [owner.get(), total.get()], lambda *found: found, atomic=False)
    assert await keys.run(both, owner.exists()) == (("x", 2), True)


@everywhere
async def test_scores_and_bounds_may_be_the_time_of_the_store(keys: Keys) -> None:
    board = keys.board("1")
    assert await board.put({"ann": store_ms(), "bob": store_ms(-60_000)}) == 2
    assert await board.add("cid", store_ms(60_000))
    assert await board.count_between(store_ms(-30_000), inf) == 2
    assert [member for member, _ in await board.between(-inf, store_ms())] == ["bob", "ann"]
    assert await board.score_at_most("bob", store_ms(-60_000))
    assert not await board.score_at_most("cid", store_ms())
    assert await board.raise_to("bob", store_ms())
    assert await board.between_at_most(store_ms(-30_000), inf, 3)
    assert not await board.between_at_most(store_ms(-30_000), inf, 2)
    assert not await keys.atomically(board.between_at_most(-inf, inf, 2), board.remove("ann"))
    assert await board.remove_between(-inf, store_ms()) == 2
    assert await board.count() == 1


@everywhere
async def test_a_field_that_is_a_number_has_a_limit_and_may_be_the_time_of_the_store(store: Store) -> None:
    class Windows(Keyspace):
        window = Hash("window:{id}", dict[str, int], lifetime=after("1h"), doc="a window")
        note = Hash("note:{id}", dict[str, str], lifetime=after("1h"), doc="no numbers")

    keys = Windows(store)
    window = keys.window("a")
    assert await window.add_field("start", store_ms())
    assert not await window.add_field("start", store_ms(5_000))
    now, start = await keys.run(window.clock(), window.field("start"))
    assert start is not None
    assert 0 <= now - start < 300_000
    assert await window.field_at_most("count", 0)
    assert await keys.atomically(window.field_at_most("count", 1), window.increment("count", 2))
    assert not await keys.atomically(window.field_at_most("count", 1), window.increment("count", 2))
    assert await window.field("count") == 2
    note = keys.note("a")
    with pytest.raises(BadCall, match="not an integer"):
        note.field_at_most("x", 1)
    with pytest.raises(BadCall, match="not an integer"):
        note.add_field("x", store_ms())
    with pytest.raises(BadValue, match="64 bits"):
        window.field_at_most("count", 2**63)


@everywhere
async def test_how_many_ms_a_key_has_left(keys: Keys) -> None:
    assert await keys.code("x").left_ms() == -2
    await keys.run(keys.code("x").set("1"), keys.board("1").put({"a": 1}))
    left_ms, never_ms = await keys.run(keys.code("x").left_ms(), keys.board("1").left_ms())
    assert 0 < left_ms <= 3_600_000
    assert never_ms == -1


@everywhere
async def test_prepared_steps_do_the_same_on_whatever_key(store: Store) -> None:
    keys = Group(store)
    enter = Prepared(
        [keys.total, keys.waiting],
        lambda total, waiting, who: Steps(
            before := total.get(),
            size := waiting.count(),
            total.at_most(1).otherwise("full"),
            total.increment(),
            waiting.add(who, 7),
        ).giving(before, size),
        texts=1,
    )

    async def ask(id: str, who: str) -> Done[tuple[int, int]]:
        return await enter(keys.total(id).key.encode(), keys.waiting(id).key.encode(), who.encode())

    assert (await ask("a", "ann")).value == (0, 0)
    assert (await ask("b", "ann")).value == (0, 0)
    assert (await ask("a", "bob")).value == (1, 1)
    full = await ask("a", "cid")
    assert (full.stopped, full.stopped_at, full.before) == ("full", 2, (2, 2))
    assert await keys.waiting("a").lowest(9) == [("ann", 7.0), ("bob", 7.0)]
    left = await keys.waiting("a").remaining()
    assert left is not None
    await store.run([("SET", keys.total("a").key, "9" * 30)])
    with pytest.raises(Unreadable, match="total: this is not a 64-bit integer"):
        await ask("a", "dan")
    linked = Keys(store, seal=RING).link
    with pytest.raises(BadDeclaration, match="its lifetime varies"):
        Prepared([linked], lambda link: Steps(link.delete()))
    with pytest.raises(BadDeclaration, match=r"arguments \[1\] of a prepared step are not in its steps"):
        Prepared([keys.total, keys.waiting], lambda total, waiting: Steps(total.get()))


@everywhere
async def test_prepared_steps_take_values_and_deadlines(store: Store) -> None:
    class Notes(Keyspace):
        note = Value("note:{id}", str, lifetime=until("ends_at", at_most="1d"), tag="id", doc="a note")
        seen = Value("seen:{id}", str, lifetime=HOUR, tag="id", doc="a copy")

    notes = Notes(store)
    ends_ms = notes.now_ms() + 3_600_000
    write = Prepared(
        [notes.note, notes.seen],
        lambda note, seen, text, at_ms: Steps(
            seen.holds("no").otherwise("changed"), one := note.add(text, ends_at=at_ms), seen.set(text)
        ).giving(one),
        values=[("a sample", b"a sample"), (ends_ms, ends_ms)],
        name="Notes.write",
    )
    names = [notes.note("7").key.encode(), notes.seen("7").key.encode()]
    stopped = await write(*names, b"new", b"%d" % (ends_ms + 1))
    assert (stopped.stopped, stopped.before) == ("changed", ())
    await notes.seen("7").set("no")
    assert (await write(*names, b"new", b"%d" % (ends_ms + 1))).value is True
    assert await notes.run(notes.note("7").get(), notes.seen("7").get()) == ("new", "new")
    left = await notes.note("7").remaining()
    assert left is not None
    assert timedelta(minutes=50) < left <= timedelta(hours=1, milliseconds=1)
