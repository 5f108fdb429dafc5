"""Rate limits: at most so many requests of one client per minute, however many arrive at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.service import LIMITS, BatchItem, Owner, Visitor, Widgets
from keystead.parts.limit import LimitReached
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import ME, TOKEN, URL, Kept, owner, refused, service_on, somebody

pytestmark = pytest.mark.usefixtures("quick_hash")


def alike(number: int) -> Visitor:
    """Visitors of one address, each with a browser of their own."""
    return Visitor("192.0.2.1", f"browser {number}")


async def passed(actions: Sequence[Awaitable[Any]]) -> int:
    answers = await asyncio.gather(*actions, return_exceptions=True)
    for one in answers:
        if isinstance(one, Exception) and not isinstance(one, LimitReached):
            raise one
    return sum(not isinstance(one, LimitReached) for one in answers)


@pytest.fixture
def stands(clock: Clock) -> Clock:
    """A clock in the middle of a minute, so that no other one begins."""
    clock.stand_at(clock() // 60_000 * 60_000 + 30_000)
    return clock


@pytest.mark.parametrize("store_url", ["memory", "redis", "cluster"], indirect=True)
async def test_of_200_concurrent_requests_with_a_limit_of_five_five_pass(store: Store, stands: Clock) -> None:
    widgets = service_on(store, stands, limits=dict.fromkeys(LIMITS, 5))
    counter = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    assert await passed([widgets.counters.increment(counter, alike(one)) for one in range(200)]) == 5
    assert (await widgets.counters.get(counter)).total == 5
    assert await passed([widgets.counters.get(counter, alike(one)) for one in range(50)]) == 5
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    assert await passed([widgets.boards.post(board, alike(one), "hello") for one in range(50)]) == 5
    assert (await widgets.boards.get(board)).total_messages == 5
    with pytest.raises(LimitReached) as reached:
        await widgets.boards.post(board, alike(99), "hello")
    assert reached.value.retry_after_s == 30


@both
async def test_two_processes_share_a_limit(store: Store, stands: Clock) -> None:
    one, two = (service_on(store, stands, limits={**dict.fromkeys(LIMITS, 0), "write": 5}) for _ in "12")
    id = (await one.counters.create(URL, TOKEN, visitor=ME)).id
    requests = [by.counters.increment(id, alike(at)) for at, by in enumerate([one, two] * 20)]
    assert await passed(requests) == 5
    assert (await two.counters.get(id)).total == 5


async def test_a_request_beyond_the_limit_changes_nothing(memory: Store, stands: Clock) -> None:
    widgets, kept = service_on(memory, stands, limits={**dict.fromkeys(LIMITS, 0), "write": 1}), Kept(memory)
    ids = {
        name: (await service.create(URL, TOKEN, visitor=ME)).id  # type: ignore[attr-defined]
        for name, service in widgets.services.items()
        if name != "yokoso"  # which is only looked at
    }
    await widgets.counters.increment(ids["counter"], alike(0))
    before = {key: await kept.held(key) for key in await kept.keys()}
    for action in (
        widgets.counters.increment(ids["counter"], alike(1)),
        widgets.likes.toggle(ids["like"], alike(2)),
        widgets.rankings.submit(ids["ranking"], alike(3), "Ann", 5),
    ):
        with pytest.raises(LimitReached):
            await action
    assert {key: await kept.held(key) for key in await kept.keys()} == before


async def test_limits_reset_every_minute(memory: Store, stands: Clock) -> None:
    widgets = service_on(memory, stands, limits={**dict.fromkeys(LIMITS, 0), "write": 2})
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    for _ in range(2):
        assert await passed([widgets.counters.increment(id, alike(one)) for one in range(10)]) == 2
        stands.stand_at(stands() + 30_000)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),  # one household
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
async def test_a_client_is_an_ipv4_address_or_an_ipv6_network(
    memory: Store, stands: Clock, first: str, second: str, together: bool
) -> None:
    widgets = service_on(memory, stands, limits={**dict.fromkeys(LIMITS, 0), "write": 1})
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    assert await passed([widgets.counters.increment(id, Visitor(first, "a"))]) == 1
    assert await passed([widgets.counters.increment(id, Visitor(second, "b"))]) == (0 if together else 1)


async def test_an_ipv6_network_with_one_browser_is_one_visitor(memory: Store) -> None:
    widgets = service_on(memory)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    await widgets.counters.increment(id, Visitor("2001:db8::1", "a browser"))
    assert (await widgets.counters.increment(id, Visitor("2001:db8::2", "a browser"))).duplicate
    assert not (await widgets.counters.increment(id, Visitor("2001:db8::2", "another"))).duplicate


@both
async def test_limits_of_0_count_nothing(store: Store) -> None:
    widgets = service_on(store)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    assert await passed([widgets.counters.increment(id, alike(one)) for one in range(150)]) == 150
    assert not any(key.startswith("widgets:requests:") for key in await Kept(store).keys(requests=True))


@both
async def test_request_counters_expire_and_contain_no_address(store: Store) -> None:
    widgets, kept = service_on(store, limits=LIMITS), Kept(store)
    id = (await widgets.counters.create(URL, TOKEN, visitor=alike(0))).id
    await widgets.counters.increment(id, alike(0))
    await widgets.counters.get(id, alike(0))
    counts = await kept.keys(requests=True) - await kept.keys()
    assert {key.split(":")[2] for key in counts} == {"create", "write", "read"}
    for key in counts:
        assert 0 < await kept.left_ms(key) <= 120_000
    assert "192.0.2.1" not in await kept.everything()


GUESSES: dict[str, tuple[str, Callable[[Widgets, str], Awaitable[Any]]]] = {
    "set": ("owner", lambda widgets, token: widgets.counters.set(owner(token=token), 1, visitor=ME)),
    "by id": ("owner", lambda widgets, token: widgets.counters.set(Owner(token, id="my-id"), 1, visitor=ME)),
    "delete": ("owner", lambda widgets, token: widgets.counters.delete(owner(token=token), visitor=ME)),
    "create": ("owner", lambda widgets, token: widgets.counters.create(URL, token, visitor=ME)),
    "batch": (
        "owner",
        lambda widgets, token: widgets.counters.batch_create(token, [BatchItem("my-id", URL)], visitor=ME),
    ),
}


@pytest.mark.parametrize("way", GUESSES)
async def test_token_guesses_are_rate_limited(memory: Store, stands: Clock, way: str) -> None:
    """The correct token is among those beyond the limit."""
    name, guess = GUESSES[way]
    await service_on(memory, stands).counters.create(URL, TOKEN, visitor=ME, id="my-id")
    widgets = service_on(memory, stands, limits=LIMITS)
    for number in range(LIMITS[name]):
        assert await refused(guess(widgets, f"a-guess-{number}")) == "UNAUTHORIZED"
    with pytest.raises(LimitReached):
        await guess(widgets, TOKEN)
    assert (await widgets.counters.set(owner(), 3, visitor=somebody(1))).total == 3


async def test_edit_token_guesses_are_rate_limited(memory: Store, stands: Clock) -> None:
    widgets = service_on(memory, stands, limits=LIMITS)
    id = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    posted = await widgets.boards.post(id, ME, "hello")
    for number in range(LIMITS["write"]):
        assert await refused(widgets.boards.remove(id, posted.message_id, f"no {number}", visitor=ME)) == "UNAUTHORIZED"
    with pytest.raises(LimitReached):
        await widgets.boards.remove(id, posted.message_id, posted.edit_token, visitor=ME)


async def test_a_batch_counts_each_item_and_compares_the_token_once(
    memory: Store, stands: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    async def noted(token: str, kept: str) -> bool:
        compared.append(kept)
        return True

    monkeypatch.setattr("keystead.kits.widgets.service.ownership.matches", noted)
    widgets = service_on(memory, stands, limits={"create": 100})
    items = [BatchItem(f"id-{number}", f"{URL}/{number}") for number in range(50)]
    await widgets.counters.batch_create(TOKEN, items, visitor=ME)
    await widgets.counters.batch_create(TOKEN, items, visitor=ME)
    assert len(compared) == 1
    with pytest.raises(LimitReached):
        await widgets.counters.batch_create(TOKEN, [BatchItem("another", f"{URL}/another")], visitor=ME)


async def test_a_batch_with_repeated_ids_or_pages_is_refused(memory: Store) -> None:
    widgets = service_on(memory)
    twice = [BatchItem("a", f"{URL}/1"), BatchItem("a", f"{URL}/2")], [BatchItem("a", URL), BatchItem("b", URL)]
    for items in twice:
        assert await refused(widgets.counters.batch_create(TOKEN, items, visitor=ME)) == "VALIDATION_ERROR"
    assert await widgets.counters.index.count() == 0
