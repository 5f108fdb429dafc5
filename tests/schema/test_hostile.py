"""Hostile use: wrong calls, wrong declarations, concurrency, and unreadable data."""

import asyncio
from types import MappingProxyType
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from keystead import (
    Counter,
    Hash,
    KeyRing,
    Keyspace,
    List,
    Sealed,
    Set,
    SortedSet,
    Store,
    Value,
    after,
    connect,
    link,
    never,
    until,
)
from keystead.errors import BadArgument, BadDeclaration, BadKey, BadValue, DoesNotFit, Unreadable
from keystead.stores.globs import compile_glob
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)
on_a_server = pytest.mark.parametrize("store_url", ["valkey"], indirect=True)

FOREVER = never("a test")
HOUR = after("1h")


class Meta(BaseModel):
    short: str
    count: int = 0


class Record(BaseModel):
    name: str
    tries: Sealed[int] | None = None
    ends_at: int = Field(0, alias="endsAt")


class Keys(Keyspace):
    """A little of everything."""

    text = Value("text:{id}", str, lifetime=HOUR)
    board = SortedSet("board:{id}", int, lifetime=FOREVER)
    queue = List("queue:{id}", int, lifetime=FOREVER)
    record = Hash("record:{id}", Record, lifetime=HOUR)
    lasting = Hash("lasting:{id}", Record, lifetime=until("ends_at"))
    part = Counter("part:{id}", lifetime=FOREVER)
    total = Counter("total:{id}", lifetime=FOREVER, owns=part)
    token = Value("token:{short}", str, lifetime=FOREVER)
    meta = Value("meta:{id}", Meta, lifetime=FOREVER, owns=token)


RING = KeyRing({"a": b"k" * 32})


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store, seal=RING)


@everywhere
async def test_the_error_carries_unreadable_content_that_was_removed(keys: Keys, store: Store) -> None:
    await store.run(
        [("ZADD", "board:1", 1, "1", 2, "2", 3, "bad"), ("RPUSH", "queue:1", "x"), ("SET", "text:1", b"\xff")]
    )
    with pytest.raises(Unreadable) as raised:
        await keys.board("1").pop_lowest(3)
    assert [member for member, _ in raised.value.taken] == [b"1", b"2", b"bad"]
    with pytest.raises(Unreadable) as raised:
        await keys.queue("1").pop_first()
    assert raised.value.taken == b"x"
    with pytest.raises(Unreadable) as raised:
        await keys.text("1").consume()
    assert raised.value.taken == b"\xff"


@everywhere
async def test_consuming_a_counter_cascades(keys: Keys, store: Store) -> None:
    await keys.total("1").increment(5)
    await keys.part("1").increment()
    assert await keys.total("1").consume() == 5
    assert await store.run([("EXISTS", "total:1"), ("EXISTS", "part:1")]) == [0, 0]


@on_a_server
async def test_a_delete_wins_beside_busy_writers(keys: Keys, store: Store) -> None:
    stop = asyncio.Event()

    async def write(number: int) -> None:
        while not stop.is_set():
            await keys.meta("1").set(Meta(short="s", count=number))
            await asyncio.sleep(0)

    async with connect(store.url) as other, asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(write(number))
        for _ in range(20):
            assert isinstance(await Keys(other, seal=RING).meta("1").delete(), bool)
        stop.set()


@on_a_server
async def test_concurrent_changes_of_one_value_all_succeed(keys: Keys) -> None:
    await keys.meta("1").set(Meta(short="s"))
    await asyncio.gather(
        *(keys.meta("1").change(lambda old: old.model_copy(update={"count": old.count + 1})) for _ in range(60))
    )
    assert (await keys.meta("1").get() or Meta(short="")).count == 60


@everywhere
async def test_an_operation_with_an_ambiguous_reply_cannot_be_required(keys: Keys) -> None:
    for operation in (
        keys.record("1").get(),
        keys.record("1").set(Record(name="x")),
        keys.record("1").put({"name": "x"}),
        keys.board("1").lowest(3),
        keys.queue("1").items(),
        keys.text("1").remaining(),
    ):
        with pytest.raises(BadArgument, match=r"exists\(\).required"):
            operation.required()
    assert await keys.text("1").add("x").required() is True
    assert await keys.text("1").add("y").required() is False
    assert await keys.text("1").delete().required() is True
    assert await keys.text("1").delete().required() is False


@everywhere
async def test_a_deadline_has_one_source(keys: Keys, store: Store) -> None:
    now_ms = int((await store.run([("TIME",)]))[0][0]) * 1000
    key = keys.lasting("1")
    await key.set(Record(name="x", endsAt=now_ms + 600_000))
    await key.update(MappingProxyType({"endsAt": now_ms + 300_000}))
    assert (await store.run([("PTTL", "lasting:1")]))[0] <= 300_000
    with pytest.raises(BadValue, match="do not pass it separately"):
        key.set(Record(name="x", endsAt=now_ms + 600_000), ends_at=now_ms + 900_000)


async def test_a_sealed_field_is_never_counted_in_the_open(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await keys.record("1").set(Record(name="x"))
    with pytest.raises(BadValue, match="sealed"):
        keys.record("1").increment("tries")


async def test_a_required_field_cannot_be_removed(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    for remove in (lambda: keys.record("1").update({"name": None}), lambda: keys.record("1").remove("name")):
        with pytest.raises(BadValue, match="required"):
            remove()


def declare(**families: Any) -> type[Keyspace]:
    return type("Odd", (Keyspace,), families)


def value(pattern: str, **options: Any) -> Value[str]:
    return Value(pattern, str, lifetime=FOREVER, **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: value("a:{x}", owned="b"), "did you mean owns"),
        (lambda: value("a:{x}", ttl=5), "no option 'ttl'"),
        (lambda: declare(a=value("a:{x<=45}", owns="b"), b=value("b:{x<=100}")), "same type and bound"),
        (lambda: declare(a=value("a:{x<=45}", owns="b"), b=value("b:{x}")), "same type and bound"),
        (lambda: declare(a=value("a:{x}", owns="b"), b=value("b:{x:int}:{y}")), "x takes an int"),
        (lambda: declare(a=value("a:{x:int}", listed_in="i"), i=Set("i", str, lifetime=FOREVER)), "not a member of i"),
        (lambda: declare(a=value("a:{x<=45}", listed_in="i"), i=Set("i", str, lifetime=FOREVER)), "may be hashed"),
        (
            lambda: declare(
                a=value("a:{x}", listed_in="i"), b=value("b:{x}", listed_in="i"), i=Set("i", str, lifetime=FOREVER)
            ),
            "a separate index",
        ),
        (lambda: Set("a", list[str], lifetime=FOREVER), "plain value"),
        (lambda: SortedSet("a", Meta, lifetime=FOREVER), "plain value"),
        (lambda: type("Over", (Keys,), {"part": Counter("p:{id}", lifetime=FOREVER)}), "declare that one here, too"),
    ],
)
def test_a_declaration_that_could_never_work_is_refused(make: Any, words: str) -> None:
    with pytest.raises(BadDeclaration) as raised:
        make()
    assert words in str(raised.value)


async def test_wrong_stores_and_roles_are_refused(memory: Store) -> None:
    class Cached(Keyspace):
        a = Value("a:{x}", str, lifetime=HOUR, role="cache")

    bind: Any = Cached
    for arguments, roles in ((("memory://",), {}), ((memory,), {"cache": 5}), ((memory,), {"seal": 5})):
        with pytest.raises(BadArgument):
            bind(*arguments, **roles)
    with pytest.raises(DoesNotFit, match="did you mean 'cache'"):
        Cached(memory, cahce=memory)
    Cached(memory, other=memory)


WRONG_CALLS: dict[str, tuple[Any, type[Exception]]] = {
    "a key of another family": (lambda k: k.text.key("board:1"), BadKey),
    "a key that is no text": (lambda k: k.text.key(5), BadKey),
    "a family that is not bound": (lambda k: Keys.text("1"), BadKey),
    "a decrement by nothing": (lambda k: k.part("1").decrement(None), BadValue),
    "a decrement by a bool": (lambda k: k.part("1").decrement(True), BadValue),
    "fields that are no mapping": (lambda k: k.record("1").update(5), BadValue),
    "scores that are no mapping": (lambda k: k.board("1").put(5), BadValue),
    "a field that is no text": (lambda k: k.record("1").field([]), BadValue),
    "a limit that is no number": (lambda k: k.board("1").lowest("a"), BadValue),
    "a limit that is a bool": (lambda k: k.board("1").lowest(True), BadValue),
}


@pytest.mark.parametrize("what", WRONG_CALLS)
async def test_a_wrong_call_is_a_one_line_error_and_sends_nothing(what: str, memory: Store) -> None:
    call, error = WRONG_CALLS[what]
    with pytest.raises(error):
        call(Keys(memory, seal=RING))
    assert await memory.run([("DBSIZE",)]) == [0]


async def test_using_a_family_without_its_values_explains_the_call(memory: Store) -> None:
    with pytest.raises(AttributeError, match=r"keys.text\(...\).get"):
        _ = Keys(memory, seal=RING).text.get  # type: ignore[attr-defined]
    with pytest.raises(BadValue, match="function"):
        await Keys(memory, seal=RING).text("1").change(5)  # type: ignore[arg-type]


def test_a_hostile_glob_does_not_take_long() -> None:
    compiled = compile_glob(b"*a" * 30 + b"*b")
    assert compiled.fullmatch(b"a" * 2000) is None
    assert compiled.fullmatch(b"a" * 2000 + b"b")
    assert compile_glob(b"*ab*ab?").fullmatch(b"abxxabababc")
    assert not compile_glob(b"a*b*c").fullmatch(b"a-c-b")


Colour = Literal["red", "green"]


class Typed(Keyspace):
    """Types that are no classes to a type checker."""

    colour: Value[Colour] = Value("colour:{id}", Colour, lifetime=HOUR)
    colours: Set[Colour] = Set("colours:{id}", Colour, lifetime=HOUR)
    lead = Value("lead:{id}", str, lifetime=HOUR, leads_to=link("colour"))


async def test_a_choice_of_words_can_be_a_value_and_a_member(memory: Store) -> None:
    keys = Typed(memory)
    await keys.colour("1").set("red")
    await keys.colours("1").add("green", "red")
    assert (await keys.colour("1").get(), await keys.colours("1").members()) == ("red", {"green", "red"})
