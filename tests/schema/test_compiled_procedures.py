"""Compiled procedures: a call only fills in its arguments, and does what the body does."""

import asyncio
import gc
import re
import weakref
from collections.abc import Coroutine
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import (
    Counter,
    Hash,
    Keyspace,
    Sealed,
    Set,
    SortedSet,
    Steps,
    Store,
    Value,
    after,
    connect,
    end_of_day,
    never,
    procedure,
    until,
)
from keystead.errors import KeysteadError, Unreadable, WrongEventLoop
from keystead.schema import KeyRing
from keystead.schema.compiled_procedure import compile_procedure
from keystead.schema.kinds.value import Seen
from keystead.schema.procedure_plan import why_not_compiled
from keystead.stores.store_contract import PROCEDURE
from tests.schema.conftest import STORES

every_store = pytest.mark.parametrize("store_url", STORES, indirect=True)

DAY = after("1d")
MOST = 3
RING = KeyRing({"2026": bytes(32)})


class Parcel(BaseModel):
    id: str
    weight: int = 1
    path: str = "road"
    trace: str = "12 34"


class Secret(BaseModel):
    code: Sealed[str]


_numbers = count()


def new_name(*given: Any, **more: Any) -> str:
    """Another one each time."""
    return f"{given} {more} {next(_numbers)}"


class Depot(Keyspace):
    room = Counter("room:{depot}", lifetime=never("a test"), tag="depot", doc="free places")
    parcel = Value("parcel:{depot}:{id}", Parcel, lifetime=DAY, tag="depot", doc="a parcel")
    note = Value("note:{depot}:{id}", str, lifetime=until("ends_at", at_most="1d"), tag="depot", doc="a note")
    ids = Set("ids:{depot}", str, lifetime=DAY, tag="depot", doc="parcels")
    ranks = SortedSet("ranks:{depot}", str, lifetime=DAY, tag="depot", doc="parcels by weight")
    today = Counter("today:{depot}", lifetime=end_of_day("UTC"), tag="depot", doc="parcels of a day")
    sizes = Hash("sizes:{depot}", dict[str, str], lifetime=DAY, tag="depot", doc="sizes by parcel")
    spread = Value("spread:{depot}:{id}", str, lifetime=after("10d", jitter="90%"), tag="depot", doc="a cached value")
    maybe = Value("maybe:{depot}", str, lifetime=DAY, tag="depot", doc="a text")
    secret = Value("secret:{depot}", Secret, lifetime=DAY, tag="depot", doc="a secret")
    listed = Value("listed:{depot}:{id}", str, lifetime=DAY, tag="depot", listed_in=ids.by(member="id"), doc="listed")

    @procedure
    def store(self, depot: str, parcel: Parcel, places: int = 1) -> Steps[int]:
        """Take places for a parcel."""
        return Steps(
            self.room(depot).at_least(places).otherwise("full"),
            self.parcel(depot, parcel.id).add(parcel).otherwise("there is such a parcel"),
            self.ids(depot).add(parcel.id, parcel.path, parcel.trace),
            left := self.room(depot).decrement(places),
        ).giving(left)

    @procedure
    def swap(self, depot: str, seen: Seen[Parcel], parcel: Parcel) -> Steps[Parcel | None]:
        """Replace a parcel that has not changed."""
        return Steps(
            self.parcel(depot, parcel.id).holds(seen).otherwise("changed"),
            self.parcel(depot, parcel.id).set(parcel),
            held := self.parcel(depot, parcel.id).get(),
        ).giving(held)

    @procedure
    def move(self, giver: str, taker: str) -> Steps[tuple[int, int]]:
        """Move a place."""
        took, given = self.room(giver).decrement(), self.room(taker).increment()
        return Steps(self.room(giver).at_least(1).otherwise("full"), took, given).giving(took, given)

    @procedure
    def fill(self, first: str, second: str) -> Steps[None]:
        """Fill two depots, if the second has room afterwards."""
        return Steps(self.room(first).increment(), self.room(second).at_most(2).otherwise("full"))

    @procedure
    def expect(self, depot: str, seen: str | None) -> Steps[None]:
        """Delete a value that is as expected."""
        return Steps(self.maybe(depot).holds(seen).otherwise("changed"), self.maybe(depot).delete())

    @procedure
    def take(self, depot: str, seen: Seen[str] | None, places: int | None) -> Steps[None]:
        """Delete a value that is unchanged since it was read, and give its places back."""
        return Steps(
            self.maybe(depot).holds(seen).otherwise("changed"),
            self.maybe(depot).delete(),
            self.room(depot).increment(places),  # type: ignore[arg-type]
        )

    @procedure
    def remind(self, depot: str, id: str, text: str, ends_ms: int) -> Steps[bool]:
        """Write a note."""
        added = self.note(depot, id).add(text, ends_at=ends_ms)
        return Steps(added).giving(added)

    @procedure
    def lease(self, depot: str, text: str, ms: int) -> Steps[None]:
        """Write two values for a while."""
        return Steps(
            self.maybe(depot).lasting(ms).set(text),
            self.ids(depot).lasting(ms).add(text),
            self.spread(depot, "1").get(),
        )

    @procedure
    def unlist(self, depot: str, id: str) -> Steps[None]:
        """Write a record without its index."""
        return Steps(self.listed.alone(depot, id).set(id), self.listed(depot, id).alone.get())

    @procedure
    def few(self, depot: str, id: str) -> Steps[int]:
        """List a parcel, if there are few."""
        added = self.ids(depot).add(id)
        return Steps(self.ids(depot).at_most(MOST).otherwise("many"), added).giving(added)

    @procedure
    def decides(self, depot: str, id: str | None) -> Steps[None]:
        """Depends on an argument."""
        return Steps(self.ids(depot).add("none" if id is None else id))

    @procedure
    def computes(self, depot: str, places: int) -> Steps[None]:
        """Computes with an argument."""
        return Steps(self.room(depot).increment(places * 2))

    @procedure
    def positions(self, depot: str, most: int) -> Steps[None]:
        """A verb computes with an argument."""
        return Steps(self.ranks(depot).lowest(most))

    @procedure
    def label(self, depot: str, id: str, weight: int, tags: list[str]) -> Steps[Parcel | None]:
        """Makes its own values, of its arguments and of the time."""
        name = id.strip().lower()
        parcel = Parcel(id=name, weight=weight)
        return Steps(
            self.parcel(depot, name).set(parcel.model_copy(update={"weight": weight})),
            held := self.parcel(depot, name).get(),
            self.ids(depot).add(new_name(depot, sorted(tags), more=(id, 7))),
            self.sizes(depot).put({"at": str(self.now_ms()), "tags": str(tags)}),
        ).giving(held)

    @procedure
    def clock(self, depot: str) -> Steps[None]:
        """Needs a number that is only known in a call."""
        return Steps(self.room(depot).set(self.now_ms()))

    @procedure
    def looks_up(self, depot: str, id: str) -> Steps[None]:
        """Decides by a table."""
        return Steps(self.ids(depot).add({"1": "one"}.get(id, "other")))

    @procedure
    def counts_bits(self, depot: str, places: int) -> Steps[None]:
        """Computes with a method."""
        return Steps(self.room(depot).increment(places.bit_length()))

    @procedure
    def inspects(self, depot: str, seen: Seen[Parcel]) -> Steps[None]:
        """Decides by a stored value."""
        return Steps(self.ids(depot).add(str(seen.stored.startswith(b"{"))))

    @procedure
    def reads_name(self, depot: str) -> Steps[None]:
        """Uses the name of a key."""
        return Steps(self.ids(depot).add(self.room(depot).key))

    @procedure
    def passes(self, depot: str) -> Steps[None]:
        """Passes a key to another function."""
        return Steps(self.ids(depot).add(str(self.room(depot))))

    @procedure
    def daily(self, depot: str, id: str) -> Steps[None]:
        """Its deadlines depend on the time, and on chance."""
        return Steps(
            self.today(depot).increment(),
            self.today(depot).shorten(90_000_000),
            self.spread(depot, "1").set(id),
            self.spread(depot, "2").set(id),
        )

    @procedure
    def lists(self, depot: str, id: str) -> Steps[None]:
        """Writes an index."""
        return Steps(self.listed(depot, id).set("text"))

    @procedure
    def hides(self, depot: str, secret: Secret) -> Steps[None]:
        """Seals a value."""
        return Steps(self.secret(depot).set(secret))

    @procedure
    def names(self, depot: str, id: str) -> Steps[dict[str, str]]:
        """The result has an argument."""
        found = self.sizes(depot).fields(id)
        return Steps(found).giving(found)


REASONS = {
    "decides": "line N does more than create operations",
    "computes": "line N does more than create operations",
    "positions": "a number is not an amount, a limit, a lifetime or a deadline",
    "clock": "it needs the values of its arguments (BadValue)",
    "looks_up": "it looks its arguments up",
    "counts_bits": "it needs the values of its arguments (BadValue)",
    "inspects": "it looks into a stored value",
    "reads_name": "it uses the name or the values of a key",
    "passes": "it passes a key, an operation or the like to another function",
    "lists": "listed is listed in an index, or owns keys: they depend on its values",
    "hides": "secret is sealed with its key",
    "names": "sizes needs more than its own key, or keeps what cannot be read",
}


class Wrong:
    """Not a parcel, and not one that was seen."""

    id = "1"


def in_both_ways(store: Store) -> list[Depot]:
    """The keyspace with all procedures compiled, if possible, and with none."""
    compiled, plain = Depot(store, seal=RING), Depot(store, seal=RING)
    for one in Depot.procedures.values():
        compiled._compiled[one] = compile_procedure(compiled, one)
        plain._compiled[one] = None
    return [compiled, plain]


def test_a_procedure_that_is_not_compiled_says_why() -> None:
    found = {name: re.sub(r"\d+", "N", why_not_compiled(Depot, one)) for name, one in Depot.procedures.items()}
    assert {name: why for name, why in found.items() if why} == REASONS


@every_store
async def test_compiled_or_not_a_procedure_says_the_same(store: Store) -> None:
    said = []
    for keys, depot in zip(in_both_ways(store), ("a", "b"), strict=True):
        await keys.room(depot).set(5)
        done = [
            await keys.store(depot, Parcel(id="1"), 2),
            await keys.store(depot, parcel=Parcel(id="2")),
            await keys.store(depot=depot, places=1, parcel=Parcel(id="2")),
            await keys.store(depot, Parcel(id="3"), 3),
            await keys.store(depot, Parcel(id="4"), places=2),
        ]
        said.append([(one.values, one.stopped, one.stopped_at, one.before) for one in done])
        assert await keys.room(depot).get() == 0
        assert await keys.ids(depot).members() == {"1", "2", "4", "road", "12 34"}
        seen = await keys.parcel(depot, "1").see()
        assert seen is not None
        assert (await keys.swap(depot, seen, Parcel(id="1", weight=7))).value == Parcel(id="1", weight=7)
        assert (await keys.swap(depot, seen, Parcel(id="1", weight=8))).stopped == "changed"
    assert said[0] == said[1]


@every_store
async def test_what_the_body_calls_is_called_with_each_call(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(1_800_000_000_000)
    for keys, depot in zip(in_both_ways(store), ("a", "b"), strict=True):
        monkeypatch.setattr(keys, "now_ms", lambda: next(clock))
        done = [await keys.label(depot, f" N{weight} ", weight, ["y", "x"]) for weight in (1, 2)]
        assert [one.value for one in done] == [Parcel(id="n1", weight=1), Parcel(id="n2", weight=2)]
        names = await keys.ids(depot).members()
        assert sorted(re.sub(r"\d+$", "#", name) for name in names) == [
            f"('{depot}', ['x', 'y']) {{'more': (' N{weight} ', 7)}} #" for weight in (1, 2)
        ]
        assert await keys.sizes(depot).get() == {"at": str(next(clock) - 1), "tags": "['y', 'x']"}
        monkeypatch.setattr(f"{__name__}.new_name", lambda *given, **more: "patched")
        await keys.label(depot, "N3", 3, [])
        assert await keys.ids(depot).has("patched")
        monkeypatch.undo()


@every_store
async def test_keys_that_are_equal_by_chance_are_one_key(store: Store) -> None:
    for keys, depot in zip(in_both_ways(store), ("a", "b"), strict=True):
        await keys.room(depot).set(2)
        assert (await keys.move(depot, depot)).value == (1, 2)
        assert await keys.room(depot).get() == 2
        assert (await keys.fill(depot, depot)).stopped == "full"
        assert await keys.room(depot).get() == 2


@every_store
async def test_a_record_is_written_without_its_index(store: Store) -> None:
    for keys, depot in zip(in_both_ways(store), ("a", "b"), strict=True):
        assert await keys.unlist(depot, "1")
        assert await keys.run(keys.listed(depot, "1").get(), keys.ids(depot).count()) == ("1", 0)


@every_store
async def test_none_means_absent_and_not_a_value(store: Store) -> None:
    for keys, depot in zip(in_both_ways(store), ("a", "b"), strict=True):
        assert await keys.expect(depot, None)
        await keys.maybe(depot).set("null")
        assert (await keys.expect(depot, None)).stopped == "changed"
        await keys.maybe(depot).set("x")
        assert await keys.expect(depot, "x")
        await keys.maybe(depot).set("y")
        seen = await keys.maybe(depot).see()
        assert (await keys.take(depot, None, 2)).stopped == "changed"
        assert await keys.take(depot, seen, 2)
        assert await keys.take(depot, None, 2)
        assert (await keys.take(depot, seen, 2)).stopped == "changed"
        assert await keys.room(depot).get() == 4


async def error_of(call: Coroutine[Any, Any, Any]) -> str:
    try:
        return f"no error, but {await call}"
    except (KeysteadError, TypeError) as error:
        return repr(error)


@every_store
async def test_wrong_arguments_raise_the_same_errors(store: Store) -> None:
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("store", (), {}),
        ("store", ("a",), {}),
        ("store", ("a", Parcel(id="1"), 1, 2), {}),
        ("store", ("a", Parcel(id="1")), {"depot": "b"}),
        ("store", ("a", Parcel(id="1")), {"other": "b"}),
        ("store", (7, Parcel(id="1")), {}),
        ("swap", ("a", Seen(Parcel(id="1"), b""), Wrong()), {}),
        ("store", ("a", Parcel(id="1"), "2"), {}),
        ("store", ("a", Parcel(id="1"), True), {}),
        ("store", ("a", Parcel(id="1"), 2**63), {}),
        ("swap", ("a", Wrong(), Parcel(id="1")), {}),
        ("remind", ("a", "1", "text", 1), {}),
        ("take", ("a", None, None), {}),
        ("lease", ("a", "text", 0), {}),
        ("lease", ("a", "text", 86_400_001), {}),
        ("remind", ("a", "1", "text", 10**13), {}),
        ("remind", ("a", "1", 7, 10**12), {}),
        ("few", ("a", "\ud800"), {}),
    ]
    compiled, plain = in_both_ways(store)
    for name, args, values in calls:
        errors = [await error_of(getattr(keys, name)(*args, **values)) for keys in (compiled, plain)]
        assert errors[0] == errors[1], (name, args, values)
        assert not errors[0].startswith("no error"), (name, args, values)


@every_store
async def test_a_deadline_is_checked_and_set(store: Store) -> None:
    [keys, _] = in_both_ways(store)
    ends_ms = keys.now_ms() + 3_600_000
    assert (await keys.remind("a", "1", "text", ends_ms)).value is True
    left = await keys.note("a", "1").remaining()
    assert left is not None
    assert timedelta(minutes=50) < left <= timedelta(hours=1)
    await keys.lease("a", "text", 3_600_000)
    for key in (keys.maybe("a"), keys.ids("a")):
        assert 3_000_000 < await key.left_ms() <= 3_600_000


@every_store
async def test_lifetimes_that_vary_are_found_for_each_call(store: Store) -> None:
    [compiled, _] = in_both_ways(store)
    await compiled.daily("a", "x")
    midnight_ms = Depot.today.lifetime.deadline_ms(compiled.now_ms(), None)
    left = [await one.left_ms() for one in (compiled.today("a"), compiled.spread("a", "1"), compiled.spread("a", "2"))]
    assert midnight_ms is not None
    assert abs(compiled.now_ms() + left[0] - midnight_ms) % 86_400_000 < 60_000
    assert all(86_400_000 - 60_000 < one <= 864_000_000 for one in left[1:])
    assert left[1] != left[2]
    # A year later by its own clock, so that the TTL is capped by `shorten`.
    later = Depot(store, seal=RING, now_ms=lambda: compiled.now_ms() + 365 * 86_400_000)
    later._compiled[Depot.daily] = compile_procedure(later, Depot.daily)
    await later.daily("b", "x")
    assert 90_000_000 - 60_000 < await later.today("b").left_ms() <= 90_000_000
    assert (await later.spread("b", "1").left_ms()) != left[1]


@every_store
async def test_unreadable_content_is_reported_with_its_key(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    [keys, _] = in_both_ways(store)
    key = keys.parcel("a", "1").key
    seen = Seen(Parcel(id="1"), b"junk")
    await store.run([("SET", key, "junk")])
    read_first = keys.parcel("a", "1").get()
    with pytest.raises(Unreadable) as plain:
        await read_first
    caplog.clear()

    class Looking(Depot):
        @procedure
        def look(self, depot: str, id: str, seen: Seen[Parcel]) -> Steps[Parcel | None]:
            found = self.parcel(depot, id).get()
            return Steps(found, self.parcel(depot, id).holds(seen).otherwise("changed")).giving(found)

    looking = Looking(store, seal=RING)
    for other in (seen, Seen(Parcel(id="1"), b"other")):  # it succeeds, and it is stopped
        for _ in range(2):
            with pytest.raises(Unreadable) as caught:
                await looking.look("a", "1", other)
            assert (str(caught.value), caught.value.key) == (str(plain.value), plain.value.key)
    assert looking._compiled[Looking.look] is not None
    assert [record.message.split(" has")[0].endswith("parcel") for record in caplog.records] == [True] * 4


async def test_a_constant_that_is_changed_counts_at_once(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    [keys, _] = in_both_ways(memory)
    assert [(await keys.few("a", str(n))).stopped for n in range(5)] == [None, None, None, None, "many"]
    monkeypatch.setattr(f"{__name__}.MOST", 5)
    assert [(await keys.few("a", str(n))).stopped for n in range(5, 8)] == [None, None, "many"]


async def test_a_compiled_call_carries_the_name_of_its_procedure(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    prepared = memory.prepared

    def watched(*given: Any) -> Any:
        run = prepared(*given)

        async def call(*arguments: bytes) -> Any:
            names.append(PROCEDURE.get())
            return await run(*arguments)

        return call

    monkeypatch.setattr(memory, "prepared", watched)
    keys = Depot(memory, seal=RING)
    for n in range(3):
        await keys.few("a", str(n))
    assert names == ["Depot.few"] * 2  # the first call is not compiled
    assert PROCEDURE.get() == ""


async def test_a_compiled_procedure_belongs_to_the_loop_of_its_store(memory: Store) -> None:
    [keys, _] = in_both_ways(memory)

    async def call() -> None:
        await keys.few("a", "1")

    with pytest.raises(WrongEventLoop):
        await asyncio.to_thread(asyncio.run, call())


async def test_a_store_with_compiled_procedures_is_not_kept_alive() -> None:
    async with connect("memory://") as store:
        keys = Depot(store, seal=RING)
        for n in range(3):
            await keys.few("a", str(n))
        assert keys._compiled[Depot.few] is not None
    gone = weakref.ref(store)
    del store, keys
    gc.collect()
    assert gone() is None
