"""Writes in flight while a widget is deleted and created again: nothing of the old one comes back."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from keystead import Store, connect
from keystead.kits.widgets.service import LIMITS, Widgets
from keystead.parts.limit import LimitReached
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import (
    ME,
    OTHER_TOKEN,
    TOKEN,
    URL,
    Kept,
    found_by_doctor,
    owner,
    refused,
    service_of,
    service_on,
    somebody,
    turns_of,
    used,
)
from tests.parts.sessions.relays import Actor, Gated, Slots, in_order

pytestmark = pytest.mark.usefixtures("quick_hash")

Action = Callable[[Widgets, str, dict[str, str]], Awaitable[Any]]
LATE = somebody(7000)
HOOK = "https://hooks.example.net/x"

# Visitor actions: they take effect before the delete, or completely on the new widget.
BY_VISITORS: dict[str, tuple[str, Action]] = {
    "a visit": ("counter", lambda widgets, id, _: widgets.counters.increment(id, LATE)),
    "a like": ("like", lambda widgets, id, _: widgets.likes.toggle(id, LATE)),
    "a like that is taken back": ("like", lambda widgets, id, _: widgets.likes.toggle(id, somebody(0))),
    "a score": ("ranking", lambda widgets, id, _: widgets.rankings.submit(id, LATE, "late", 5, "five")),
    "a message": ("bbs", lambda widgets, id, _: widgets.boards.post(id, LATE, "late")),
}

# Actions that need a secret of the old widget: they take effect before the delete, or never.
BY_OWNERS: dict[str, tuple[str, Action]] = {
    "a total": ("counter", lambda widgets, id, _: widgets.counters.set(owner(), 99, visitor=ME)),
    "settings of a counter": (
        "counter",
        lambda widgets, id, _: widgets.counters.update_settings(owner(), visitor=ME, webhook_url=None, total=99),
    ),
    "a number of likes": ("like", lambda widgets, id, _: widgets.likes.set(owner(), 99, visitor=ME)),
    "settings of a button": (
        "like",
        lambda widgets, id, _: widgets.likes.update_settings(owner(), visitor=ME, icon="star", value=99),
    ),
    "an entry": ("ranking", lambda widgets, id, _: widgets.rankings.update(owner(), "Zoe", 99, visitor=ME)),
    "an entry that goes": ("ranking", lambda widgets, id, _: widgets.rankings.remove(owner(), "player 0", visitor=ME)),
    "no entries": ("ranking", lambda widgets, id, _: widgets.rankings.clear(owner(), visitor=ME)),
    "settings of a ranking": (
        "ranking",
        lambda widgets, id, _: widgets.rankings.update_settings(
            owner(), visitor=ME, title="Late", max_entries=1, sort_order="asc"
        ),
    ),
    "an edit": (
        "bbs",
        lambda widgets, id, posted: widgets.boards.edit(id, posted["id"], posted["token"], visitor=ME, message="late"),
    ),
    "a message that goes": (
        "bbs",
        lambda widgets, id, posted: widgets.boards.remove(id, posted["id"], posted["token"], visitor=ME),
    ),
    "an owner's edit": (
        "bbs",
        lambda widgets, id, posted: widgets.boards.owner_edit(owner(), posted["id"], visitor=ME, message="late"),
    ),
    "no messages": ("bbs", lambda widgets, id, _: widgets.boards.clear(owner(), visitor=ME)),
    "settings of a board": (
        "bbs",
        lambda widgets, id, _: widgets.boards.update_settings(owner(), visitor=ME, title="Late", max_messages=1),
    ),
}


@pytest.fixture(params=["one step", "slots"])
async def any_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "slots":
        async with Slots() as opened:
            yield opened
    else:
        async with connect("memory://") as opened:
            yield opened


class Late:
    """An action in flight while its widget is deleted and created again, between two of its steps."""

    def __init__(self, store: Store, name: str, action: Action) -> None:
        self._store, self._name, self._action = store, name, action
        self.steps = 0

    async def __aiter__(self) -> AsyncIterator[tuple[str, Any, Any]]:
        """For each position: the result of the action, the new widget, and an unused widget."""
        while True:
            kept, clock = Kept(self._store), Clock()
            await kept.empty()
            service = service_of(service_on(self._store, clock), self._name)
            id = (await service.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).id
            await used(service_on(self._store, clock), self._name, id)
            posted = {"id": "", "token": ""}
            if self._name == "bbs":
                mine = await service_on(self._store, clock).boards.post(id, somebody(5), "mine")
                posted = {"id": mine.message_id, "token": mine.edit_token}
            clock.move("1h")
            gated = Gated(self._store)
            acting, anew = service_on(gated, clock), service_of(service_on(gated, clock), self._name)
            await service_of(acting, self._name).get(id)  # it knows the old one

            async def again(anew: Any = anew) -> None:
                await anew.delete(owner(), visitor=ME)
                await anew.create(URL, OTHER_TOKEN, visitor=ME, webhook_url=HOOK)

            programs: dict[Actor, Callable[[], Awaitable[Any]]] = {
                "a": lambda acting=acting, id=id, posted=posted: refused(self._action(acting, id, posted)),  # type: ignore[misc]
                "b": again,
            }
            first: list[Actor] = [*turns_of("a", self.steps), *turns_of("b", 100)]
            order, told = await in_order(gated, programs, first)
            yield told["a"], service_of(service_on(self._store, clock), self._name), id
            self.steps += 1
            if [actor for actor, _ in order].count("a") < self.steps:
                return


@pytest.mark.parametrize("what", BY_OWNERS)
async def test_a_late_owner_change_does_not_reach_a_recreated_widget(any_store: Store, what: str) -> None:
    name, action = BY_OWNERS[what]
    late, told = Late(any_store, name, action), set()
    async for answer, new, id in late:
        told.add(answer)
        fresh = await new.get(id)
        match name:
            case "counter" | "like":
                assert fresh.total == 0
                assert getattr(fresh, "icon", "heart") == "heart"
            case "ranking":
                assert (fresh.entries, fresh.title, fresh.max_entries, fresh.sort_order) == ([], None, 10, "desc")
            case _:
                assert (fresh.messages, fresh.title, fresh.settings.max_messages) == ([], "BBS", 100)
        assert "Late" not in await Kept(any_store).everything()
        assert await refused(new.delete(owner(token=OTHER_TOKEN), visitor=ME)) == ""
        assert await Kept(any_store).keys() == set(), late.steps
    # After the last of its steps it was done; before, there was nothing of it left.
    assert "" in told
    assert told <= {"", "NOT_FOUND", "UNAUTHORIZED"}
    assert late.steps >= 3


@pytest.mark.parametrize("what", BY_VISITORS)
async def test_a_late_visitor_action_is_complete_or_absent_in_a_recreated_widget(any_store: Store, what: str) -> None:
    name, action = BY_VISITORS[what]
    late, counted = Late(any_store, name, action), set()
    async for answer, new, id in late:
        assert answer in ("", "NOT_FOUND")
        fresh = await new.get(id)
        match name:
            case "counter":
                number = fresh.total
                assert (fresh.today, fresh.week, fresh.last_visit is not None) == (number, number, number == 1)
            case "like":
                number = fresh.total
                who = somebody(0) if "back" in what else LATE
                assert (await new.get(id, who)).user_liked is (number == 1)
            case "ranking":
                number = fresh.total_entries
                assert [(one.name, one.score, one.display_score) for one in fresh.entries] == [
                    ("late", 5, "five")
                ] * number
            case _:
                number = fresh.total_messages
                assert [one.message for one in fresh.messages] == ["late"] * number
        assert number in (0, 1)
        counted.add((answer, number))
        assert await found_by_doctor(any_store) == []
        await new.delete(owner(token=OTHER_TOKEN), visitor=ME)
        assert await Kept(any_store).keys() == set(), late.steps
    assert ("NOT_FOUND", 1) not in counted
    assert ("", 0) in counted  # it was before the delete
    assert late.steps >= 2


@both
async def test_a_stale_process_shows_no_daily_counts_of_a_deleted_counter(store: Store, clock: Clock) -> None:
    """Another process deleted it and created it again: yesterday's visits belong to the old one."""
    one, other = service_on(store, clock), service_on(store, clock)
    id = (await one.counters.create(URL, TOKEN, visitor=ME)).id
    await used(one, "counter", id, 3)
    clock.move("25h")
    await used(one, "counter", id, 2)
    assert (await one.counters.get(id)).month == 5
    await other.counters.delete(owner(), visitor=ME)
    await other.counters.create(URL, TOKEN, visitor=ME)
    seen = await one.counters.increment(id, LATE)
    assert (seen.total, seen.today, seen.yesterday, seen.week, seen.month) == (1, 1, 0, 1, 1)
    again = await one.counters.get(id)
    assert (again.total, again.today, again.yesterday, again.week, again.month) == (1, 1, 0, 1, 1)


async def test_a_stale_process_uses_the_settings_of_a_recreated_board(memory: Store) -> None:
    one, other = service_on(memory), service_on(memory)
    id = (await one.boards.create(URL, TOKEN, visitor=ME)).id
    await one.boards.get(id)
    await other.boards.update_settings(owner(), visitor=ME, enable_icons=False, enable_selects=True)
    posted = await one.boards.post(id, somebody(1), "hello", None, None, ["Asia"])
    assert posted.data.messages[0].selects == {"region": "Asia"}
    await one.boards.get(id)
    await other.boards.update_settings(owner(), visitor=ME, enable_icons=True, enable_selects=False)
    assert await refused(one.boards.post(id, somebody(2), "hello", None, None, ["Asia"])) == "VALIDATION_ERROR"
    assert (await one.boards.post(id, somebody(2), "hello", None, "😀")).data.messages[0].icon == "😀"
    await other.boards.update_settings(owner(), visitor=ME, enable_icons=False)
    assert await refused(one.boards.post(id, somebody(3), "hello", None, "😀")) == "VALIDATION_ERROR"


@both
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_late_visit_within_a_limit_is_complete_or_absent_in_a_recreated_counter(
    store: Store, is_known: bool
) -> None:
    """The path of most visits: without a webhook, counted against the limit in the step itself."""
    limits, seen, steps, are_left = {**dict.fromkeys(LIMITS, 0), "write": 1000}, set(), 0, True
    while are_left:
        kept, clock, gated = Kept(store), Clock(), Gated(store)
        await kept.empty()
        acting, anew = service_on(gated, clock, limits=limits).counters, service_on(gated, clock).counters
        id = (await service_on(store, clock).counters.create(URL, TOKEN, visitor=ME)).id
        await acting.increment(id, LATE if is_known else somebody(1))  # it knows the old one, and maybe the visitor

        async def again(anew: Any = anew) -> None:
            await anew.delete(owner(), visitor=ME)
            await anew.create(URL, OTHER_TOKEN, visitor=ME)

        programs: dict[Actor, Callable[[], Awaitable[Any]]] = {
            "a": lambda acting=acting, id=id: refused(acting.increment(id, LATE)),  # type: ignore[misc]
            "b": again,
        }
        order, told = await in_order(gated, programs, [*turns_of("a", steps), *turns_of("b", 100)])
        fresh = await service_on(store, clock).counters.get(id)
        assert (fresh.today, fresh.last_visit is not None) == (fresh.total, fresh.total == 1)
        seen.add((told["a"], fresh.total))
        await service_on(store, clock).counters.delete(owner(token=OTHER_TOKEN), visitor=ME)
        assert {key for key in await kept.keys() if not key.startswith("widgets:requests:")} == set()
        steps += 1
        are_left = [actor for actor, _ in order].count("a") >= steps
    assert seen == {("", 0), ("", 1)}  # before the delete, or on the new one
    assert steps >= 2


@both
async def test_a_visitor_whom_another_process_counted_is_known(store: Store) -> None:
    limits = {**dict.fromkeys(LIMITS, 0), "write": 4}
    one, other = (service_on(store, Clock(), limits=limits).counters for _ in "12")
    id = (await one.create(URL, TOKEN, visitor=ME)).id
    assert [(await by.increment(id, LATE)).duplicate for by in (one, other, other, one)] == [False, True, True, True]
    assert (await other.get(id)).total == 1
    with pytest.raises(LimitReached):
        await other.increment(id, LATE)
