"""Optimistic locking: one read guards any number of later steps (`see`, `holds`)."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Counter, KeyRing, Keyspace, Sealed, Store, Value, after, connect, never
from keystead.errors import BadValue, Unreadable, WrongKind
from keystead.schema import Operation
from keystead.schema.kinds import Seen
from keystead.schema.operation import combine, settled
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)

RING = KeyRing({"a": b"k" * 32})


class Plan(BaseModel):
    name: str
    token: Sealed[str] = "none"


class Keys(Keyspace):
    """Keys that share a slot in a cluster."""

    plan = Value("shop:{id}:plan", Plan, lifetime=never("a test"), tag="id")
    note = Value("shop:{id}:note", str, lifetime=after("1h"), tag="id")
    total = Counter("shop:{id}:total", lifetime=never("a test"), tag="id")
    other = Counter("shop:{id}:other", lifetime=never("a test"), tag="id")


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store, seal=RING)


@everywhere
async def test_see_returns_the_value_and_its_stored_form(keys: Keys, store: Store) -> None:
    assert await keys.plan("a").see() is None
    await keys.plan("a").set(Plan(name="free", token="secret"))
    seen = await keys.plan("a").see()
    assert seen is not None
    assert seen.value == Plan(name="free", token="secret")
    assert [seen.stored] == await store.run([("GET", keys.plan("a").key)])
    assert b"secret" not in seen.stored


@everywhere
async def test_a_seen_value_guards_a_step_until_it_is_written_again(keys: Keys) -> None:
    """Also a sealed value, of which one value has several stored forms: the same value written again is another."""
    plan, total = keys.plan("a"), keys.total("a")
    await plan.set(Plan(name="free", token="secret"))
    seen = await plan.see()
    for _ in range(3):
        assert await keys.atomically(plan.holds(seen), total.increment())
    assert await plan.holds(seen) is True
    await plan.set(Plan(name="free", token="secret"))
    stopped = await keys.atomically(total.increment(), plan.holds(seen), total.increment())
    assert (bool(stopped), stopped.stopped_at) == (False, 1)
    assert await total.get() == 3
    assert await plan.holds(seen) is False


@everywhere
async def test_nothing_that_was_seen_guards_until_there_is_something(keys: Keys) -> None:
    note, total = keys.note("a"), keys.total("a")
    nothing = await note.see()
    assert nothing is None
    assert await keys.atomically(note.holds(nothing), total.increment())
    await note.set("")
    assert not await keys.atomically(note.holds(nothing), total.increment())
    empty = await note.see()
    assert empty == Seen("", b"")
    assert await note.holds(empty) is True
    await note.delete()
    assert await note.holds(empty) is False
    assert await note.holds(None) is True
    assert await total.get() == 1


@everywhere
async def test_of_many_writers_that_saw_the_same_value_one_succeeds(keys: Keys) -> None:
    note = keys.note("a")
    await note.set("before")
    seen = await note.see()
    steps = (keys.atomically(note.holds(seen), note.set(f"{one}")) for one in range(20))
    won = [bool(done) for done in await asyncio.gather(*steps)]
    assert won.count(True) == 1
    assert await note.get() == f"{won.index(True)}"


@everywhere
async def test_seeing_unreadable_content_raises(keys: Keys, store: Store) -> None:
    await store.run([("SET", keys.plan("a").key, "no plan"), ("SADD", keys.note("a").key, "x")])
    with pytest.raises(Unreadable):
        await keys.plan("a").see()
    with pytest.raises(WrongKind):
        await keys.note("a").see()
    # A guard only compares.
    assert await keys.plan("a").holds(Seen(Plan(name="x"), b"no plan")) is True


@everywhere
async def test_a_counter_holds_exactly_its_number(keys: Keys) -> None:
    total, other = keys.total("a"), keys.other("a")
    assert await total.holds(1) is False
    for number in (1, -1, 2**63 - 1, -(2**63), 2**53 + 1):
        await total.set(number)
        assert await total.holds(number) is True
        assert await keys.atomically(total.holds(number), other.increment())
        near = number - 1 if number > 1 else number + 1 or 7
        stopped = await keys.atomically(other.increment(), total.holds(near))
        assert (bool(stopped), stopped.stopped_at) == (False, 1)
    assert await other.get() == 5


@everywhere
async def test_of_many_increments_guarded_by_a_read_one_succeeds(keys: Keys) -> None:
    total = keys.total("a")
    await total.set(7)
    done = await asyncio.gather(*(keys.atomically(total.holds(7), total.increment()) for _ in range(20)))
    assert sum(map(bool, done)) == 1
    assert await total.get() == 8


@pytest.mark.parametrize(("number", "says"), [(0, "at_most"), (True, "64-bit"), (1.5, "64-bit"), (2**63, "64-bit")])
async def test_holds_refuses_zero_and_non_integers(memory: Store, number: Any, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        Keys(memory, seal=RING).total("a").holds(number)


@everywhere
async def test_a_stopped_step_returns_the_reads_before_it(keys: Keys) -> None:
    """Reads return the state at that moment; writes are undone."""
    note, total = keys.note("a"), keys.total("a")
    await keys.run(note.set("hello"), total.set(5))
    stopped = await keys.atomically(note.get(), total.get(), total.increment(), total.at_most(5), note.delete())
    assert (bool(stopped), stopped.values, stopped.stopped_at) == (False, (), 3)
    assert stopped.before == ("hello", 5, 6)
    assert await keys.run(note.get(), total.get()) == ("hello", 5)
    done = await keys.atomically(note.get(), total.at_most(5))
    assert (done.values, done.before) == (("hello", True), ())


@everywhere
async def test_before_never_holds_a_part_of_an_operation_of_several_steps(keys: Keys) -> None:
    """Where an operation in the middle stops at its second step, it is not among those before."""
    note, total = keys.note("a"), keys.total("a")
    await note.set("hello")
    stopped = await keys.atomically(total.get(), note.compare_and_set("other", "x"), total.increment())
    assert (stopped.stopped_at, stopped.before) == (1, (0,))
    first = await keys.atomically(note.compare_and_set("other", "x"), total.get())
    assert (first.stopped_at, first.before) == (0, ())


class Owning(Keyspace):
    """A record that takes another key with it when it is deleted, and one elsewhere."""

    plan = Value("plan:{id}", Plan, lifetime=never("a test"), tag="id", owns=["draft", "cached"])
    draft = Value("plan:{id}:draft", str, lifetime=after("1h"), tag="id")
    cached = Value("plan:{id}:cached", str, lifetime=after("1h"), tag="id", role="cache")


@everywhere
async def test_delete_seen_cascades_unless_the_value_was_written_again(store: Store) -> None:
    async with connect("memory://") as cache:
        keys = Owning(store, cache=cache, seal=RING)
        plan = keys.plan("a")
        await plan.set(Plan(name="free"))
        old = await plan.see()
        assert old is not None
        await plan.set(Plan(name="free"))
        await keys.draft("a").set("x")
        await keys.cached("a").set("y")
        assert await plan.delete_seen(old) is False
        assert await plan.get() == Plan(name="free")
        assert await keys.cached("a").get() == "y"
        seen = await plan.see()
        assert seen is not None
        done = await asyncio.gather(*(plan.delete_seen(seen) for _ in range(10)))
        assert done.count(True) == 1
        assert await keys.run(plan.exists(), keys.draft("a").exists(), keys.cached("a").exists()) == (False,) * 3


async def test_an_operation_of_several_and_one_that_sends_nothing(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    note, total = keys.note("a"), keys.total("a")
    await note.set("x")

    def both() -> Operation[tuple[str | None, int]]:
        return combine("both", [note.get(), total.increment()], lambda text, count: (text, count), atomic=False)

    assert await both() == ("x", 1)
    assert await keys.run(both(), settled(keys.note, "nothing", 7), note.exists()) == (("x", 2), 7, True)
    assert await settled(keys.note, "nothing", False) is False
    done = await keys.atomically(both(), settled(keys.note, "nothing", None))
    assert done.values == (("x", 3), None)
    stopped = combine("guarded", [note.holds("y"), total.increment()], lambda *_: True, stopped=False)
    assert await stopped is False
    assert await total.get() == 3
