"""A process that dies in the middle, on every kind of store: the result is complete, absent, or repaired later."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.models import WidgetName
from keystead.kits.widgets.service import Owner, Widgets, services
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.opened import (
    ME,
    OTHER_TOKEN,
    SERVICES,
    TOKEN,
    URL,
    Kept,
    found_by_doctor,
    names,
    owner,
    refused,
    service_of,
    service_on,
    somebody,
    used,
)
from tests.kits.widgets.test_create_and_delete import what_there_is
from tests.parts.sessions.relays import Killed, Mortal, Relay

pytestmark = pytest.mark.usefixtures("quick_hash")

# All four on one store, and two that differ most on each kind of store: one of these every day.
each_service = pytest.mark.parametrize(
    ("store_url", "name"),
    [
        *(("memory", name) for name in SERVICES),
        ("cluster", "counter"),
        pytest.param("redis", "ranking", marks=pytest.mark.matrix),
        pytest.param("redis", "counter", marks=pytest.mark.matrix),
        pytest.param("cluster", "ranking", marks=pytest.mark.matrix),
    ],
    indirect=["store_url"],
)

HOOK = "https://hooks.example.net/x"


async def numbers(store: Store, name: str, id: str) -> int:
    """The data of its visitors: visits, likes, scores or messages."""
    data: Any = await service_of(service_on(store), name).get(id)
    match name:
        case "ranking":
            return len(data.entries)
        case "bbs":
            return len(data.messages)
        case _:
            return int(data.total)


async def lives_of(
    store: Store, action: Callable[[Widgets], Awaitable[Any]], prepare: Callable[[], Awaitable[Any]]
) -> AsyncIterator[int]:
    """Let the process of an action die after each command; yields after each death, and ends when it went through."""
    lives = 0
    while True:
        await prepare()
        try:
            await action(service_on(Mortal(store, lives)))
        except Killed:
            yield lives
            lives += 1
        else:
            return


@each_service
async def test_the_next_create_completes_one_that_died_at_any_command(store: Store, name: str) -> None:
    kept, deaths = Kept(store), 0

    async def create(widgets: Widgets, token: str = TOKEN) -> str:
        return await refused(service_of(widgets, name).create(URL, token, visitor=ME, webhook_url=HOOK))

    async for _ in lives_of(store, create, kept.empty):
        deaths += 1
        if store.guarantees.atomic == "any keys":
            # In one step: there is all of it or nothing.
            await what_there_is(store, name)
            assert await found_by_doctor(store) == []
        # The next create, with any token, gets a complete widget, unless the first one owns it.
        answer = await create(service_on(store), OTHER_TOKEN)
        mine = TOKEN if answer == "UNAUTHORIZED" else OTHER_TOKEN
        assert await create(service_on(store), mine) == ""
        id = await what_there_is(store, name)
        assert id == "example-3641c5f2"
        assert await found_by_doctor(store) == []
        await used(service_on(store), name, id, 2)
        assert await refused(service_of(service_on(store), name).delete(owner(token=mine), visitor=ME)) == ""
        assert await kept.keys() <= {"outbox:waiting"}
    assert deaths >= 3


async def made(store: Store, name: str) -> str:
    await Kept(store).empty()
    widgets = service_on(store)
    id: str = (await service_of(widgets, name).create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).id
    await used(widgets, name, id, 5)
    return id


REPAIRS: dict[str, Callable[[Store, str], Awaitable[str]]] = {
    "create": lambda store, name: refused(service_of(service_on(store), name).create(URL, OTHER_TOKEN, visitor=ME)),
    "delete": lambda store, name: refused(service_of(service_on(store), name).delete(owner(), visitor=ME)),
    "clean-up": lambda store, name: refused(service_on(store).clean_up()),
}


@each_service
@pytest.mark.parametrize("repair", REPAIRS)
async def test_a_delete_that_died_at_any_command_is_finished_later(
    store: Store, name: str, repair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_DELETE_BATCH", 3)  # so that a delete takes several steps
    kept, seen = Kept(store), set()
    id = await made(store, name)
    whole = await numbers(store, name, id)

    async def delete(widgets: Widgets) -> None:
        await service_of(widgets, name).delete(owner(), visitor=ME)

    async for _ in lives_of(store, delete, lambda: made(store, name)):
        state = await refused(service_of(service_on(store), name).get(id))
        seen.add(state)
        if state == "":
            assert await numbers(store, name, id) == whole  # nothing is lost
        else:
            assert state == "NOT_FOUND"
            assert await refused(used(service_on(store), name, id)) == "NOT_FOUND"
        if store.guarantees.atomic == "any keys":
            assert await found_by_doctor(store) == []
        answer = await REPAIRS[repair](store, name)
        if repair == "create" and state == "":
            assert answer == "UNAUTHORIZED"  # it is still another's
            continue
        if repair == "create":
            assert answer == ""
            await service_on(store).clean_up()
            assert await what_there_is(store, name) == id
            assert await found_by_doctor(store) == []
            await used(service_on(store), name, id, 2)
            await service_of(service_on(store), name).delete(owner(token=OTHER_TOKEN), visitor=ME)
        elif repair == "clean-up" and state == "":
            await service_of(service_on(store), name).delete(owner(), visitor=ME)
        elif store.guarantees.atomic != "any keys":
            await service_on(store).clean_up()  # the URL key, which a delete needs, is deleted before the record
        assert await kept.keys() <= {"outbox:waiting"}
        assert await found_by_doctor(store) == []
    assert seen == {"", "NOT_FOUND"}


async def test_the_clean_up_skips_unreadable_widgets(memory: Store) -> None:
    """An invalid record does not block other deletes."""
    kept, clock = Kept(memory), Clock()
    for page in "abc":
        id = (await service_on(memory, clock).counters.create(f"{URL}/{page}", TOKEN, visitor=ME)).id
        with pytest.raises(Killed):
            await service_on(Mortal(memory, 5), clock).counters.delete(Owner(TOKEN, id=id), visitor=ME)
    assert await kept.ask("SCARD", "widgets:ending") == 3
    await kept.ask("SET", f"counter:{id}", "no record")
    assert await service_on(memory, clock).clean_up() == 2
    assert set(await kept.ask("SMEMBERS", "widgets:ending")) == {f"counter:{id}".encode()}


async def test_the_clean_up_leaves_live_widgets_alone(memory: Store) -> None:
    widgets = service_on(memory)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    await used(widgets, "counter", id, 3)
    await Kept(memory).ask("SADD", "widgets:ending", f"counter:{id}", "counter:unknown", "nothing:x")
    assert await widgets.clean_up() == 0
    assert (await widgets.counters.get(id)).total == 3
    assert await Kept(memory).ask("EXISTS", "widgets:ending") == 0


async def test_the_clean_up_finishes_a_cancelled_delete(memory: Store) -> None:
    class Slow(Relay):
        async def before(self) -> None:
            if len(self.log) == 5:
                begun.set()
                await asyncio.Event().wait()

    begun = asyncio.Event()
    await made(memory, "counter")
    deleting = asyncio.create_task(service_on(Slow(memory)).counters.delete(owner(), visitor=ME))
    await begun.wait()
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    assert await service_on(memory).clean_up() == 1
    assert await Kept(memory).keys() == set()


async def test_the_kit_has_a_clean_up_job(memory: Store) -> None:
    crons = {job.name: job.cron for job in service_on(memory).jobs}
    assert crons["widgets.clean-up"] == "*/5 * * * *"
    assert crons.keys() == {"widgets.clean-up", "widgets.idle", "widgets.upgrade"}


# --- a real cluster -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store_url", ["cluster"], indirect=True)
async def test_all_services_work_on_a_cluster(store: Store, widgets: Widgets, kept: Kept) -> None:
    """The keys of one widget share a slot; 30 pages use many slots."""
    for name in SERVICES:
        service = service_of(widgets, name)
        pages = [f"https://site{one}.example/" for one in range(10)]
        ids = [(await service.create(page, TOKEN, visitor=ME, webhook_url=HOOK)).id for page in pages]
        await asyncio.gather(*(used(service_on(store), name, id, 4) for id in ids for _ in range(1)))
        await asyncio.gather(*(service.delete(owner(page), visitor=ME) for page in pages[5:]))
        for id in ids[:5]:
            assert await numbers(store, name, id) == 4
        for id in ids[5:]:
            assert await refused(service.get(id)) == "NOT_FOUND"
        assert await kept.ask("ZCARD", f"{name}s:index") == 5
    assert await found_by_doctor(store) == []
    for name in SERVICES:
        for page in pages[:5]:
            await service_of(widgets, name).delete(owner(page), visitor=ME)
    assert await kept.keys() == set()


@pytest.mark.parametrize("store_url", ["cluster"], indirect=True)
async def test_counts_are_exact_on_a_cluster(store: Store, widgets: Widgets) -> None:
    counter = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    await asyncio.gather(*(widgets.counters.increment(counter, somebody(one % 50)) for one in range(200)))
    assert (await widgets.counters.get(counter)).total == 50
    like = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    await asyncio.gather(*(widgets.likes.toggle(like, somebody(one % 50)) for one in range(125)))
    assert (await widgets.likes.get(like)).total == 25
    ranking = (await widgets.rankings.create(URL, TOKEN, visitor=ME, max_entries=5)).id
    await asyncio.gather(*(widgets.rankings.submit(ranking, somebody(one), f"n{one}", one) for one in range(40)))
    best = [(f"n{one}", one) for one in range(39, 34, -1)]
    assert names((await widgets.rankings.get(ranking)).entries) == best


@pytest.mark.parametrize("store_url", ["cluster"], indirect=True)
async def test_concurrent_creates_and_deletes_are_complete_on_a_cluster(store: Store) -> None:
    for round_ in range(20):
        actors = []
        for number in range(3):
            service, token = service_of(service_on(store), "like"), TOKEN if (round_ + number) % 2 else OTHER_TOKEN
            made_or_gone = (round_ >> number) & 1
            action = (
                service.create(URL, token, visitor=ME)
                if made_or_gone
                else service.delete(owner(token=token), visitor=ME)
            )
            actors.append(refused(action))
        assert set(await asyncio.gather(*actors)) <= {"", "UNAUTHORIZED", "NOT_FOUND"}
        await service_on(store).clean_up()
        await what_there_is(store, "like")


@pytest.mark.parametrize("store_url", ["memory", "redis"], indirect=True)
async def test_an_unreadable_widget_does_not_stop_other_deletes(store: Store) -> None:
    widgets = service_on(store)
    made = [(await widgets.likes.create(f"{URL}/{number}", TOKEN, visitor=ME)).id for number in range(2)]
    for id in made:
        record = await widgets.likes.find(id)
        assert record is not None
        await widgets.keys.like(id).set(record.model_copy(update={"ending": "being deleted"}))
        await widgets.keys.ending().add(WidgetName("like", id))
    ending = widgets.keys.ending().key
    bad = widgets.keys.like(made[0]).key
    await store.run([("DEL", bad), ("RPUSH", bad, "x"), ("SADD", ending, "nonsense", b"\xff", "like:")])
    await service_on(store).clean_up()
    assert not await widgets.keys.like(made[1]).exists()
    assert await store.run([("LLEN", bad)]) == [1]
