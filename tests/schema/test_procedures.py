"""Procedures: declared once, atomic, and with a reason if they are stopped."""

import asyncio
import gc
import random
import weakref
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Counter, Keyspace, Set, Steps, Store, Value, after, attempts, connect, never, procedure
from keystead.errors import BadArgument, BadCall, BadDeclaration, Contended, CrossSlot, Unreadable
from keystead.schema import Operation
from keystead.schema.docs import document, html, markdown
from keystead.schema.export import json_schema, typescript
from keystead.schema.procedure_tracing import traced
from keystead.schema.repeated_reads import Repeated
from tests.schema.conftest import STORES

every_store = pytest.mark.parametrize("store_url", STORES, indirect=True)


class Order(BaseModel):
    sku: str
    pieces: int = 1


class Shop(Keyspace):
    stock = Counter("stock:{sku}", lifetime=never("inventory"), doc="pieces left", tag="sku")
    order = Value("order:{sku}:{id}", Order, lifetime=after("90d"), doc="an order", tag="sku")
    customer_orders = Set("customer:{who}:orders", str, lifetime=never("deleted by hand"), doc="orders of a customer")

    @procedure
    def reserve(self, sku: str, id: str, order: Order) -> Steps[int]:
        """Take a piece from the stock for a new order."""
        left = self.stock(sku).decrement()
        return Steps(
            self.stock(sku).at_least(1).otherwise("sold out"),
            self.order(sku, id).add(order).otherwise("there is such an order"),
            left,
        ).giving(left)

    @procedure(ordered="an order that no customer lists is found by the nightly count, and expires after 90 days")
    def buy(self, who: str, sku: str, id: str, order: Order, most: int = 3) -> Steps[tuple[int, int]]:
        """Reserve for a customer, who may have so many orders."""
        left, listed = self.stock(sku).decrement(), self.customer_orders(who).add(id)
        return (
            Steps(
                self.stock(sku).at_least(1).otherwise("sold out"),
                self.order(sku, id).add(order).otherwise("there is such an order"),
                left,
                self.customer_orders(who).at_most(most - 1).otherwise("too many orders"),
                listed.otherwise("listed already"),
            )
            .giving(left, listed)
            .undone_by(self.order(sku, id).delete(), self.stock(sku).increment())
        )

    @procedure(ordered="a count that is too high is put right by the nightly count")
    def count_three(self, first: str, second: str, third: str, most: int) -> Steps[None]:
        """Count three things in three slots, none of which has more than so many."""
        counted = [self.stock(sku).increment() for sku in (first, second, third)]
        guards = [self.stock(sku).at_most(most - 1).otherwise(sku) for sku in (first, second, third)]
        steps = Steps(*(one for pair in zip(guards, counted, strict=True) for one in pair))
        for sku, one in zip((first, second, third), counted, strict=True):
            steps.undone_by(self.stock(sku).decrement(), of=one)
        return steps

    @procedure
    def both(self, who: str, sku: str) -> Steps[None]:
        """Across slots, and not declared so."""
        return Steps(self.customer_orders(who).add("x"), self.stock(sku).increment())

    @procedure
    def cancel(self, sku: str, ids: list[str], note: str | None = None) -> Steps[None]:
        """Give orders back."""
        gone: list[Operation[Any]] = [self.order(sku, id).delete().otherwise("no such order") for id in ids]
        if note:
            gone.append(self.stock(sku).exists())
        return Steps(*gone, self.stock(sku).increment(len(ids)))


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store)


@every_store
async def test_all_steps_take_effect_and_value_is_the_given_result(shop: Shop) -> None:
    await shop.stock("apple").set(2)
    done = await shop.reserve("apple", "1", Order(sku="apple"))
    assert done
    assert (done.value, done.stopped) == (1, None)
    assert await shop.order("apple", "1").get() == Order(sku="apple")
    assert await shop.stock("apple").get() == 1


@every_store
async def test_a_guard_that_stops_gives_its_reason_and_nothing_takes_effect(shop: Shop) -> None:
    order = Order(sku="apple")
    done = await shop.reserve("apple", "1", order)
    assert not done
    assert (done.stopped, done.stopped_at) == ("sold out", 0)
    with pytest.raises(BadCall, match=r"stopped \(sold out\)"):
        _ = done.value
    await shop.stock("apple").set(2)
    assert await shop.reserve("apple", "1", order)
    done = await shop.reserve("apple", "1", order)
    assert (done.stopped, done.stopped_at, done.before) == ("there is such an order", 1, (True,))
    assert await shop.stock("apple").get() == 1


@every_store
async def test_of_many_callers_as_many_succeed_as_there_are_pieces(shop: Shop) -> None:
    await shop.stock("apple").set(7)
    done = await asyncio.gather(*(shop.reserve("apple", str(n), Order(sku="apple")) for n in range(40)))
    assert sorted(one.value for one in done if one) == list(range(7))
    assert {one.stopped for one in done if not one} == {"sold out"}
    assert await shop.stock("apple").get() == 0


@every_store
async def test_an_ordered_procedure_runs_in_order_and_undoes_stopped_steps(shop: Shop) -> None:
    await shop.stock("apple").set(5)
    for n in range(3):
        done = await shop.buy("ann", "apple", str(n), Order(sku="apple"))
        assert done.value == (4 - n, 1)
    done = await shop.buy("ann", "apple", "4", Order(sku="apple"))
    assert (done.stopped, done.stopped_at) == ("too many orders", 3)
    assert done.before == (True, True, 1)
    assert await shop.stock("apple").get() == 2
    assert not await shop.order("apple", "4").exists()
    done = await shop.buy("bob", "apple", "1", Order(sku="apple"))
    assert (done.stopped, done.stopped_at) == ("there is such an order", 1)
    assert await shop.stock("apple").get() == 2
    assert not await shop.customer_orders("bob").exists()


@every_store
async def test_a_compensating_operation_runs_only_if_its_step_took_effect(shop: Shop) -> None:
    for full in ("a", "b", "c"):
        await shop.run(*(shop.stock(sku).set(5 if sku == full else 1) for sku in ("a", "b", "c")))
        done = await shop.count_three("a", "b", "c", 5)
        assert done.stopped == full
        assert await shop.run(*(shop.stock(sku).get() for sku in ("a", "b", "c"))) == tuple(
            5 if sku == full else 1 for sku in ("a", "b", "c")
        )
    await shop.stock("c").set(1)
    assert await shop.count_three("a", "b", "c", 5)
    assert await shop.stock("c").get() == 2


@pytest.mark.parametrize("store_url", ["cluster"], indirect=True)
async def test_across_slots_a_procedure_that_is_not_ordered_is_refused(shop: Shop) -> None:
    with pytest.raises(CrossSlot, match=r"Shop\.both is one atomic step over customer_orders and stock") as caught:
        await shop.both("ann", "apple")
    assert "ordered=" in str(caught.value)
    assert await shop.stock("apple").get() == 0


@every_store
async def test_steps_that_depend_on_arguments_run(shop: Shop) -> None:
    await shop.stock("apple").set(5)
    for n in ("1", "2"):
        await shop.reserve("apple", n, Order(sku="apple"))
    assert not await shop.cancel("apple", ["1", "3"])
    assert await shop.order("apple", "1").exists()
    assert await shop.cancel("apple", ["1", "2"], "sorry")
    assert await shop.stock("apple").get() == 5


async def test_unreadable_content_is_an_error_and_is_logged_once(memory: Store) -> None:
    class Odd(Keyspace):
        thing = Value("thing:{id}", Order, lifetime=after("1d"), doc="something")

        @procedure
        def look(self, id: str) -> Steps[Order | None]:
            found = self.thing(id).get()
            return Steps(found, self.thing(id).exists().otherwise("none")).giving(found)

    keys = Odd(memory)
    await memory.run([("SET", "thing:1", "junk")])
    with pytest.raises(Unreadable):
        await keys.look("1")
    assert (await keys.look("2")).stopped == "none"


async def test_wrong_declarations_and_calls_have_advice(memory: Store) -> None:
    with pytest.raises(BadDeclaration, match="what repairs an interruption"):
        procedure(ordered=" ")
    with pytest.raises(BadDeclaration, match="method that returns Steps"):
        procedure(7)  # type: ignore[call-overload]

    async def waits(self: Any) -> None: ...

    def yields(self: Any) -> Any:
        yield self

    for wrong in (waits, yields):
        with pytest.raises(BadDeclaration, match="is a plain `def` that returns Steps"):
            procedure(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadDeclaration, match="is a plain `def` that returns Steps"):
            procedure(ordered="somebody")(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadDeclaration, match="every keyspace has an attribute of this name"):

        class Taken(Keyspace):
            @procedure
            def run(self) -> Steps[None]:  # type: ignore[override]
                return Steps()

    class Wrong(Keyspace):
        n = Counter("n:{id:int}", lifetime=never("test"), doc="a number")
        other = Counter("m:{id:int}", lifetime=never("test"), doc="a number", role="cache")

        @procedure
        def nothing(self) -> Steps[None]:
            return Steps()

        @procedure
        def no_steps(self) -> Steps[None]:
            return None  # type: ignore[return-value]

        @procedure
        def gives_another(self) -> Steps[int]:
            return Steps(self.n(1).get()).giving(self.n(1).get())

        @procedure
        def undoes_another(self) -> Steps[None]:
            return Steps(self.n(1).get()).undone_by(self.n(1).delete(), of=self.n(1).get())

        @procedure
        def two_stores(self) -> Steps[None]:
            return Steps(self.n(1).get(), self.other(1).get())

    keys = Wrong(memory)
    assert await keys.nothing()
    with pytest.raises(BadDeclaration, match=r"Wrong\.no_steps returns Steps"):
        await keys.no_steps()
    with pytest.raises(BadArgument, match="put the operation in both"):
        await keys.gives_another()
    with pytest.raises(BadArgument, match="put the operation in both"):
        await keys.undoes_another()
    with pytest.raises(BadArgument, match="bind its keyspace first"):
        Wrong.nothing()
    with pytest.raises(BadArgument, match="otherwise takes the reason for the caller"):
        keys.n(1).increment().otherwise(" ")
    async with connect("memory://") as second:
        apart = Wrong(memory, cache=second)
        with pytest.raises(BadArgument, match="lives in another store"):
            await apart.two_stores()


async def test_a_procedure_that_is_replaced_can_call_the_first_by_super(memory: Store) -> None:
    class Base(Keyspace):
        n = Counter("n:{id}", lifetime=never("test"), doc="a number")

        @procedure
        def count(self, id: str) -> Steps[int]:
            up = self.n(id).increment()
            return Steps(up).giving(up)

    class Further(Base):
        @procedure
        def count(self, id: str) -> Steps[int]:
            up = self.n(id).increment(10)
            return Steps(up).giving(up)

        async def old_count(self, id: str) -> int:
            return (await super().count(id)).value

    keys = Further(memory)
    assert await keys.old_count("1") == 1
    assert (await keys.count("1")).value == 11
    assert await keys.old_count("1") == 12
    assert (await keys.count("1")).value == 22
    assert Further.procedures["count"].place == "Further.count"


async def test_attempts_wait_longer_each_time_and_give_up_in_the_end() -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    random.seed(1)

    async def go_on() -> list[int]:
        return [number async for number in attempts("the cart", most=9, wait=wait)]

    with pytest.raises(Contended, match="the cart was changed by other callers 9 times in a row"):
        await go_on()
    assert len(waits) == 8
    assert all(0 <= one <= 0.0005 * 2**number for number, one in enumerate(waits, 1))
    async for _ in attempts("the cart", wait=wait):
        break
    assert len(waits) == 8


def test_the_steps_are_known_without_a_call() -> None:
    found = traced(Shop, Shop.procedures["reserve"])
    assert [(step.family.name, step.verb, step.guard) for step in found.steps] == [
        ("stock", "at_least", "sold out"),
        ("order", "add", "there is such an order"),
        ("stock", "decrement", None),
    ]
    assert found.one_slot
    assert found.problem == ""
    assert {family.name: writes for family, writes in found.families.items()} == {"stock": True, "order": True}
    assert traced(Shop, Shop.procedures["buy"]).groups == 2
    assert not traced(Shop, Shop.procedures["both"]).one_slot


def test_both_branches_of_a_condition_are_known() -> None:
    found = traced(Shop, Shop.procedures["cancel"])
    assert {(step.family.name, step.verb, step.always) for step in found.steps} == {
        ("order", "delete", False),
        ("stock", "exists", False),
        ("stock", "increment", True),
    }


def test_the_key_document_lists_each_procedure() -> None:
    page, entries = markdown(Shop), {one.name: one for one in document(Shop).procedures}
    assert "## Procedures" in page
    assert (
        "| `reserve(sku, id, order)`<br>Take a piece from the stock for a new order. "
        "| `stock:{sku}`, `order:{sku}:{id}` | - "
        "| `stock.at_least`: sold out<br>`order.add`: there is such an order | one step |"
    ) in page
    assert entries["buy"].in_cluster == "in order, 2 round trips"
    assert "Interrupted: an order that no customer lists" in page
    assert entries["both"].in_cluster.startswith("refused")
    assert entries["buy"].stops == ("sold out", "there is such an order", "too many orders", "listed already")
    assert "Planned at each call, not compiled: `buy`, `count_three`, `cancel`." in page
    assert html(Shop).count("Planned at each call, not compiled.") == 3
    assert document(Shop).as_json()["procedures"][0]["name"] == "reserve"


def test_procedures_are_exported() -> None:
    described = json_schema([Shop])["keyspaces"]["Shop"]["procedures"]["reserve"]
    assert described["arguments"] == ["sku", "id", "order"]
    assert (described["changes"], described["reads"]) == (["stock", "order"], [])
    assert described["stops"] == ["sold out", "there is such an order"]
    assert described["compiled"] is True
    module = typescript([Shop])
    assert "export interface KeyProcedures {" in module
    assert '      stopped: "sold out" | "there is such an order";' in module


class Library(Keyspace):
    """Records that are listed in another slot."""

    titles = Set("titles", str, lifetime=never("a test"), doc="all titles")
    book = Value("book:{title}", str, lifetime=after("1d"), listed_in=titles, doc="a book")
    read = Counter("read:{title}", lifetime=never("a test"), doc="how often it was read")

    @procedure(ordered="readers skip a title without a book")
    def write(self, title: str, text: str, *, guarded: bool = False) -> Steps[int]:
        """Write a book, whether there is one or not."""
        book, count = self.book(title).set(text), self.read(title).increment()
        return Steps(book.otherwise("never") if guarded else book, count).giving(count)

    @procedure(ordered="readers skip a title without a book")
    def publish(self, title: str, text: str) -> Steps[int]:
        """Write a book that is new."""
        count = self.read(title).increment()
        return Steps(self.book(title).add(text), count).giving(count)


@every_store
@pytest.mark.parametrize("guarded", [False, True])
async def test_a_set_of_a_listed_record_works_across_slots(store: Store, guarded: bool) -> None:
    library = Library(store)
    for times in (1, 2):
        done = await library.write("emma", "text", guarded=guarded)
        assert done.value == times
    assert await library.titles().members() == {"emma"}
    stopped = await library.publish("emma", "another")
    assert (stopped.stopped, stopped.stopped_at) == ("book", 0)
    assert (await library.publish("persuasion", "text")).value == 1
    assert await library.read("emma").get() == 2


async def test_a_store_whose_reads_are_repeated_is_not_kept_alive() -> None:
    async with connect("memory://") as store:
        shop = Shop(store)
        ask = Repeated(shop.stock("apple").get(), shop.customer_orders("ann").has("1"))
        assert await ask() == [0, False]
        with pytest.raises(BadCall, match="Repeated takes reads"):
            Repeated(shop.stock("apple").increment())
    gone = weakref.ref(store)
    del store, shop, ask
    gc.collect()
    assert gone() is None
