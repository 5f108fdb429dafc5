"""Creating and deleting at the same moment: there is all of a widget or nothing of it, whatever the order."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from keystead import Store, connect
from keystead.kits.widgets.service import BatchItem, Owner, Widgets
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import (
    ME,
    OTHER_TOKEN,
    SERVICES,
    TOKEN,
    URL,
    Kept,
    keys_on,
    owner,
    refused,
    service_of,
    service_on,
    somebody,
    turns_of,
    used,
)
from tests.parts.sessions.relays import Actor, Gated, Relay, Slots, every_order, in_order

pytestmark = pytest.mark.usefixtures("quick_hash")

each_service = pytest.mark.parametrize("name", SERVICES)


async def what_there_is(store: Store, name: str) -> str:
    """The id of the one widget of a service for URL, which is whole; empty: there is nothing of it."""
    kept, families = Kept(store), keys_on(store, Clock())
    keys = await kept.keys() - {"outbox:waiting"}
    if not keys:
        return ""
    mapping, index = f"url:{name}:https%3A%2F%2Fexample.com%2Fpage", f"{name}s:index"
    assert mapping in keys, keys
    id: str = (await kept.ask("GET", mapping)).decode()
    key, owner_key = getattr(families, name)(id).key, getattr(families, f"{name}_owner")(id).key
    assert {key, owner_key, index} <= keys, keys
    record = json.loads(await kept.ask("GET", key))
    assert (record["id"], record["url"], record.get("ending")) == (id, URL, None)
    assert await kept.ask("ZRANGE", index, 0, -1) == [id.encode()]
    assert all(one.startswith(f"{key}:") for one in keys - {mapping, key, index}), keys
    return id


@both
@each_service
async def test_concurrent_creates_and_deletes_leave_a_whole_widget_or_none(
    store_url: str, store: Store, name: str
) -> None:
    """Three processes, two tokens, many rounds: after each there is all of it or nothing."""
    ways: list[Callable[[Any, str], Awaitable[Any]]] = [
        lambda service, token: service.create(URL, token, visitor=ME),
        lambda service, token: service.delete(owner(token=token), visitor=ME),
    ]
    seen = set()
    for round_ in range(25):
        actors = []
        for number in range(4):
            service = service_of(service_on(store), name)
            token = TOKEN if (round_ + number) % 3 else OTHER_TOKEN
            actors.append(refused(ways[(round_ >> number) & 1](service, token)))
        reasons = await asyncio.gather(*actors)
        assert set(reasons) <= {"", "UNAUTHORIZED", "NOT_FOUND"}
        there = await what_there_is(store, name)
        seen.add(bool(there))
        if there and round_ % 2:
            await used(service_on(store), name, there, 2)
    assert seen == {True, False}


# --- every order of two of them -------------------------------------------------------------------------------


@pytest.fixture(params=["one step", "slots"])
async def any_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store in which one step spans all keys, and one in which it spans the keys of one slot, as in a cluster."""
    if request.param == "slots":
        async with Slots() as opened:
            yield opened
    else:
        async with connect("memory://") as opened:
            yield opened


Program = Callable[[Widgets], Awaitable[str]]


def created(token: str, id: str | None = None, name: str = "counter") -> Program:
    return lambda widgets: refused(service_of(widgets, name).create(URL, token, visitor=ME, id=id))


def deleted(token: str = TOKEN, name: str = "counter") -> Program:
    return lambda widgets: refused(service_of(widgets, name).delete(owner(token=token), visitor=ME))


async def deleted_and_created(widgets: Widgets) -> str:
    gone = await deleted()(widgets)
    return gone or await created(OTHER_TOKEN)(widgets)


class Orders:
    """Two programs in two processes, interleaved in many orders. `told`: their results, and if the widget exists."""

    def __init__(self, store: Store, there: bool, a: Program, b: Program) -> None:
        self._store, self._there = store, there
        self._programs: dict[Actor, Program] = {"a": a, "b": b}
        self.told: set[tuple[str, str, bool]] = set()

    async def one(self, first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        store, clock = self._store, Clock()
        await Kept(store).empty()
        if self._there:
            await created(TOKEN)(service_on(store, clock))
            clock.move("1s")
        gated = Gated(store)
        a, b = (service_on(gated, clock) for _ in "ab")
        programs: dict[Actor, Callable[[], Awaitable[str]]] = {
            "a": lambda: self._programs["a"](a),
            "b": lambda: self._programs["b"](b),
        }
        order, told = await in_order(gated, programs, first)
        await service_on(store, clock).clean_up()
        self.told.add((told["a"], told["b"], bool(await what_there_is(store, "counter"))))
        return order

    async def each(self) -> set[tuple[str, str, bool]]:
        """Every order with at most two switches between them."""
        assert await every_order(self.one, switches=2) > 5
        return self.told

    async def at_each_place(self) -> set[tuple[str, str, bool]]:
        """All of the one between any two steps of the other."""
        pairs: tuple[tuple[Actor, Actor], ...] = (("a", "b"), ("b", "a"))
        for one, other in pairs:
            steps = 0
            while True:
                order = await self.one([one] * steps + [other] * 100)
                steps += 1
                if [actor for actor, _ in order].count(one) < steps:
                    break
            assert steps > 3
        return self.told


async def test_interleaved_creates_have_one_owner(any_store: Store) -> None:
    outcomes = await Orders(any_store, False, created(TOKEN), created(OTHER_TOKEN)).each()
    assert outcomes == {("", "UNAUTHORIZED", True), ("UNAUTHORIZED", "", True)}


async def test_interleaved_creates_with_one_token_return_the_same_widget(any_store: Store) -> None:
    assert await Orders(any_store, False, created(TOKEN), created(TOKEN)).each() == {("", "", True)}


@pytest.mark.matrix
async def test_interleaved_creates_under_two_ids_leave_one_widget(any_store: Store) -> None:
    outcomes = await Orders(any_store, False, created(TOKEN, "one"), created(OTHER_TOKEN, "two")).each()
    assert outcomes == {("", "UNAUTHORIZED", True), ("UNAUTHORIZED", "", True)}


async def test_a_create_interleaved_with_a_delete_is_complete_or_refused(any_store: Store) -> None:
    outcomes = await Orders(any_store, True, deleted(), created(OTHER_TOKEN)).at_each_place()
    assert outcomes == {("", "", True), ("", "UNAUTHORIZED", False)}


async def test_interleaved_deletes_leave_nothing(any_store: Store) -> None:
    outcomes = await Orders(any_store, True, deleted(), deleted()).at_each_place()
    assert outcomes <= {("", "", False), ("", "NOT_FOUND", False), ("NOT_FOUND", "", False)}
    assert ("", "", False) in outcomes


async def test_a_late_delete_does_not_touch_a_widget_created_since(any_store: Store) -> None:
    """One deletes; another deletes and creates anew under another token, at any place between the steps of the first.

    It may delete the new one only before that is there.
    """
    outcomes = await Orders(any_store, True, deleted(), deleted_and_created).at_each_place()
    assert all(left for _, second, left in outcomes if second == "")
    assert ("", "", True) in outcomes


async def test_a_widget_deleted_during_a_create_leaves_no_url_key(any_store: Store) -> None:
    """The other one finds the widget, which is then deleted: it creates a complete new one."""
    relay = Relay(any_store)
    await Kept(any_store).empty()
    await created(TOKEN)(service_on(relay))
    steps = len(relay.log)

    async def created_and_deleted(widgets: Widgets) -> str:
        return await created(TOKEN)(widgets) or await deleted()(widgets)

    orders = Orders(any_store, False, created(TOKEN), created_and_deleted)
    for before in range(4):
        for between in range(5):
            turns = [*turns_of("a", before), *turns_of("b", steps), *turns_of("a", between), *turns_of("b", 100)]
            await orders.one(turns)
    # It was deleted before or after the other one returned.
    assert orders.told == {("", "", True), ("", "", False)}


# --- ids and addresses that meet -------------------------------------------------------------------------------


@both
async def test_a_taken_id_is_refused_and_nothing_is_stored(widgets: Widgets, kept: Kept) -> None:
    await widgets.counters.create(URL, TOKEN, visitor=ME, id="my-id")
    before = await kept.everything()
    assert await refused(widgets.counters.create(f"{URL}/2", TOKEN, visitor=ME, id="my-id")) == "VALIDATION_ERROR"
    assert await kept.everything() == before
    # The page has one already, so another id is not looked at.
    assert (await widgets.counters.create(URL, TOKEN, visitor=ME, id="other")).id == "my-id"
    assert await kept.everything() == before


@both
async def test_a_freed_id_can_be_used_by_another_page(widgets: Widgets, kept: Kept) -> None:
    await widgets.counters.create(URL, TOKEN, visitor=ME, id="my-id")
    await used(widgets, "counter", "my-id", 3)
    await widgets.counters.delete(Owner(TOKEN, id="my-id"), visitor=ME)
    await widgets.counters.create(f"{URL}/2", OTHER_TOKEN, visitor=ME, id="my-id")
    assert (await widgets.counters.get("my-id")).total == 0
    assert (await widgets.counters.increment("my-id", somebody(1))).url == f"{URL}/2"
    assert await refused(widgets.counters.delete(owner(), visitor=ME)) == "NOT_FOUND"


@both
async def test_batch_create_is_idempotent(widgets: Widgets, kept: Kept) -> None:
    for name in ("counter", "like"):
        service = service_of(widgets, name)
        items = [BatchItem(f"post_{one}", f"{URL}/{one}") for one in range(10)]
        made = await service.batch_create(TOKEN, items, visitor=ME)
        assert [(one.id, one.url) for one in made] == [(one.id, one.url) for one in items]
        before = await kept.everything()
        assert await service.batch_create(TOKEN, items, visitor=ME) == made
        assert await refused(service.batch_create(OTHER_TOKEN, items, visitor=ME)) == "UNAUTHORIZED"
        wrong = [*items, BatchItem("no id!", f"{URL}/11")]
        assert await refused(service.batch_create(TOKEN, wrong, visitor=ME)) == "VALIDATION_ERROR"
        assert await kept.everything() == before
        await used(widgets, name, "post_3", 2)
        await used(widgets, name, "post_4", 1)
        totals = await service.batch_get([*(one.id for one in items), "unknown"], visitor=ME)
        assert totals == dict.fromkeys(totals, 0) | {"post_3": 2, "post_4": 1}
        assert len(totals) == 11
        assert await service.sum_by_prefix("post_", visitor=ME) == 3
        assert await service.sum_by_prefix("post_4", visitor=ME) == 1
        for too_many in ([BatchItem(f"x{one}", f"{URL}/{one}") for one in range(101)], []):
            assert await refused(service.batch_create(TOKEN, too_many, visitor=ME)) == "VALIDATION_ERROR"
        assert await refused(service.batch_get(["x"] * 1001, visitor=ME)) == "VALIDATION_ERROR"


async def test_a_batch_hashes_its_token_once(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(password: str, salt: bytes) -> bytes:
        calls.append(salt)
        return b"x" * 32

    monkeypatch.setattr("keystead.parts.passwords._hash", counted)
    items = [BatchItem(f"id-{one}", f"{URL}/{one}") for one in range(30)]
    await service_on(memory).counters.batch_create(TOKEN, items, visitor=ME)
    assert len(calls) == 1


async def test_round_trips_of_create(memory: Store) -> None:
    relay = Relay(memory)
    await service_on(relay).counters.create(URL, TOKEN, visitor=ME)
    assert len(relay.log) <= 3
