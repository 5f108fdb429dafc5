"""Many at the same moment, in one process and in two."""

import asyncio
import sys
from pathlib import Path

import pytest

from keystead import Store, connect
from keystead.kits.widgets.service import Widgets
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import ME, TOKEN, URL, Kept, names, owner, refused, service_on, somebody

pytestmark = pytest.mark.usefixtures("quick_hash")

WORKER = Path(__file__).with_name("worker.py")


@both
async def test_200_parallel_visits_by_50_visitors_count_50(widgets: Widgets) -> None:
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    told = await asyncio.gather(*(widgets.counters.increment(id, somebody(one % 50)) for one in range(200)))
    assert sorted(one.total for one in told if not one.duplicate) == list(range(1, 51))
    assert sum(bool(one.duplicate) for one in told) == 150
    now = await widgets.counters.get(id)
    assert (now.total, now.today, now.week, now.month) == (50, 50, 50, 50)


@both
async def test_200_parallel_toggles_leave_the_total_equal_to_the_number_of_likers(widgets: Widgets) -> None:
    """40 visitors toggle five times concurrently, and like it in the end; 10 more toggle twice, and do not."""
    id = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    visits = [one for one in range(40) for _ in range(5)] + [one for one in range(40, 50) for _ in range(2)]
    told = await asyncio.gather(*(widgets.likes.toggle(id, somebody(one)) for one in visits))
    assert all(one.total >= 0 for one in told)
    likers = [(await widgets.likes.get(id, somebody(one))).user_liked for one in range(50)]
    assert likers == [True] * 40 + [False] * 10
    assert (await widgets.likes.get(id)).total == 40


@both
async def test_the_total_is_never_negative_when_the_owner_sets_it_to_zero_among_toggles(
    widgets: Widgets, kept: Kept
) -> None:
    id = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    await asyncio.gather(*(widgets.likes.toggle(id, somebody(one)) for one in range(20)))
    lowest = 0

    async def watched() -> None:
        nonlocal lowest
        for _ in range(40):
            lowest = min(lowest, int(await kept.ask("GET", f"like:{id}:total")))
            await asyncio.sleep(0)

    taking_back = [widgets.likes.toggle(id, somebody(one)) for one in range(20)]
    setting = [widgets.likes.set(owner(), 0, visitor=ME) for _ in range(5)]
    await asyncio.gather(*taking_back[:10], *setting, *taking_back[10:], watched())
    assert lowest == 0
    assert (await widgets.likes.get(id)).total == 0
    # Later likes count from there.
    assert (await widgets.likes.toggle(id, somebody(1))).total == 1
    assert (await widgets.likes.toggle(id, somebody(1))).total == 0


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_100_parallel_submits_keep_exactly_the_best_with_the_first_first(widgets: Widgets, order: str) -> None:
    """Ten of each score, listed in the order of submission: the earlier ranks higher."""
    created = await widgets.rankings.create(URL, TOKEN, visitor=ME, max_entries=25, sort_order=order)
    sent = [(f"name {one:02}", one // 10 * 7) for one in range(100)]
    await asyncio.gather(
        *(widgets.rankings.submit(created.id, somebody(place), *one) for place, one in enumerate(sent))
    )
    best = sorted(sent, key=lambda one: -one[1] if order == "desc" else one[1])
    data = await widgets.rankings.get(created.id, 100)
    assert names(data.entries) == best[:25]
    assert [one.rank for one in data.entries] == list(range(1, 26))
    assert data.total_entries == 25


@both
async def test_100_parallel_posts_keep_order_and_the_maximum(widgets: Widgets) -> None:
    created = await widgets.boards.create(URL, TOKEN, visitor=ME, max_messages=30, messages_per_page=100)
    posted = await asyncio.gather(*(widgets.boards.post(created.id, somebody(one), f"no {one}") for one in range(100)))
    data = await widgets.boards.get(created.id)
    assert [one.message for one in data.messages] == [f"no {one}" for one in range(99, 69, -1)]
    assert [one.id for one in data.messages] == [one.message_id for one in posted[:69:-1]]
    assert data.total_messages == 30
    assert len({one.edit_token for one in posted}) == 100


@both
async def test_concurrent_creates_of_one_page_have_one_owner(widgets: Widgets, kept: Kept) -> None:
    tokens = [f"a-token-{one:03}" for one in range(20)]
    told = await asyncio.gather(*(refused(widgets.counters.create(URL, one, visitor=ME)) for one in tokens))
    assert sorted(told) == [""] + ["UNAUTHORIZED"] * 19
    assert await kept.ask("ZCARD", "counters:index") == 1
    owns = [await refused(widgets.counters.set(owner(token=one), 1, visitor=ME)) for one in tokens]
    assert owns == told


@both
async def test_concurrent_changes_of_two_settings_both_survive(widgets: Widgets) -> None:
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    change = widgets.rankings.update_settings
    await asyncio.gather(
        change(owner(), visitor=ME, title="Best"),
        change(owner(), visitor=ME, description="of all"),
        change(owner(), visitor=ME, max_entries=7),
        change(owner(), visitor=ME, sort_order="asc"),
    )
    data = await widgets.rankings.get(id)
    assert (data.title, data.description, data.max_entries, data.sort_order) == ("Best", "of all", 7, "asc")


# --- two connections, two processes ----------------------------------------------------------------------------


@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_two_services_on_two_connections_share_their_counts(store_url: str, store: Store, clock: Clock) -> None:
    async with connect(store_url) as second:
        one, two = service_on(store, clock), service_on(second, clock)
        counter = (await one.counters.create(URL, TOKEN, visitor=ME)).id
        like = (await one.likes.create(URL, TOKEN, visitor=ME)).id
        ranking = (await one.rankings.create(URL, TOKEN, visitor=ME, max_entries=10)).id
        board = (await one.boards.create(URL, TOKEN, visitor=ME, max_messages=15, messages_per_page=100)).id
        each = list(enumerate([one, two] * 20))
        await asyncio.gather(*(by.counters.increment(counter, somebody(at // 2)) for at, by in each))
        assert (await two.counters.get(counter)).total == 20
        await asyncio.gather(*(by.likes.toggle(like, somebody(at)) for at, by in each))
        await asyncio.gather(*(by.likes.toggle(like, somebody(at)) for at, by in each[:10]))
        assert (await one.likes.get(like)).total == 30
        await asyncio.gather(*(by.rankings.submit(ranking, somebody(at), f"n{at}", at) for at, by in each))
        assert names((await two.rankings.get(ranking)).entries) == [(f"n{at}", at) for at in range(39, 29, -1)]
        posted = await asyncio.gather(*(by.boards.post(board, somebody(at), f"no {at}") for at, by in each))
        data = await one.boards.get(board)
        assert (data.total_messages, len({one.id for one in data.messages})) == (15, 15)
        assert {one.id for one in data.messages} <= {one.message_id for one in posted}
        # The messages of each process are in the order of posting.
        for side in (0, 1):
            own = [int(one.message[3:]) for one in data.messages if int(one.message[3:]) % 2 == side]
            assert own == sorted(own, reverse=True)


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
async def test_two_concurrent_processes_share_their_counts(store_url: str, store: Store, widgets: Widgets) -> None:
    counter = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    like = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    ranking = (await widgets.rankings.create(URL, TOKEN, visitor=ME, max_entries=10, sort_order="asc")).id
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME, max_messages=60, messages_per_page=100)).id

    async def worked(number: int) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(WORKER), store_url, str(number), counter, like, ranking, board
        )
        assert await process.wait() == 0

    await asyncio.gather(worked(0), worked(1))
    # Both came as the same 50 visitors, who all liked the page twice; 30 scores and 40 messages came from each.
    assert (await widgets.counters.get(counter)).total == 50
    assert (await widgets.likes.get(like)).total == 0
    assert names((await widgets.rankings.get(ranking)).entries) == [(f"n{one}", one) for one in range(10)]
    data = await widgets.boards.get(board)
    assert data.total_messages == 60
    for number in "01":
        own = [int(one.message[3:]) for one in data.messages if one.message.startswith(f"{number}: ")]
        assert own == sorted(own, reverse=True)
        assert own[0] == 39
    times = [one.timestamp for one in data.messages]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_messages_are_in_timestamp_order_despite_clock_skew(store_url: str, store: Store) -> None:
    clocks = [Clock() for _ in range(5)]
    for number, clock in enumerate(clocks):
        clock.move(f"{number * 7 + 1}s")
    workers = [service_on(store, clock) for clock in clocks]
    board = (await workers[0].boards.create(URL, TOKEN, visitor=ME, max_messages=100, messages_per_page=100)).id
    told = await asyncio.gather(
        *(workers[one % 5].boards.post(board, somebody(one), f"no {one}") for one in range(60)), return_exceptions=True
    )
    assert [one for one in told if isinstance(one, BaseException)] == []
    data = await workers[0].boards.get(board)
    assert len(data.messages) == len({one.id for one in data.messages}) == 60
    times = [one.timestamp for one in data.messages]
    assert times == sorted(times, reverse=True)
