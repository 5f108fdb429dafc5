"""Rankings: exactly the best, in both orders, the first of equals first; and nothing of those that are no more."""

import asyncio
import itertools
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.models import RankingEntry
from keystead.kits.widgets.service import Widgets
from keystead.kits.widgets.service.rankings import _STEPS, _came, _placed
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import (
    ME,
    TOKEN,
    URL,
    Kept,
    Reason,
    found_by_doctor,
    names,
    owner,
    refused,
    service_on,
    somebody,
    turns_of,
)
from tests.parts.sessions.relays import Actor, Gated, in_order

pytestmark = pytest.mark.usefixtures("quick_hash")


async def ranking(widgets: Widgets, **more: Any) -> str:
    return (await widgets.rankings.create(URL, TOKEN, visitor=ME, **more)).id


_others = itertools.count(20_000)


async def sent(widgets: Widgets, id: str, *scores: tuple[str, int]) -> None:
    """Scores that come one after the other, each from another visitor."""
    for name, score in scores:
        await widgets.rankings.submit(id, somebody(next(_others)), name, score)


@pytest.mark.parametrize("order", ["desc", "asc"])
@pytest.mark.parametrize("score", [0, 1, 999_999_998, 999_999_999])
def test_a_place_keeps_its_score_and_its_turn_exactly(score: int, order: Any) -> None:
    """Also the largest score, with the last of all numbers."""
    turns = [1, 2, 1000, _STEPS - 2, _STEPS - 1]
    places = [_placed(score, turn, order) for turn in turns]
    assert len(set(places)) == len(turns)
    assert all(score < one < score + 1 for one in places)
    assert places == sorted(places, reverse=order == "desc")
    assert [round(_came(one, order) * _STEPS) for one in places] == turns


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_a_better_score_replaces_a_worse_one_and_no_other_does(
    widgets: Widgets, order: str, clock: Clock
) -> None:
    clock.stand_at(clock())
    id = await ranking(widgets, sort_order=order)
    better, worse = (20, 5) if order == "desc" else (5, 20)
    await sent(widgets, id, ("Ann", 10))
    for score, improved, shown in ((worse, False, 10), (10, False, 10), (better, True, better), (10, False, better)):
        data = await widgets.rankings.submit(id, somebody(score), "Ann", score, f"{score} points")
        assert (data.improved, data.rank, names(data.entries)) == (improved, 1, [("Ann", shown)])
    assert data.entries[0].displayScore == f"{better} points"
    # One who has sent nothing better does not wait for the next try; one who has does.
    assert (await widgets.rankings.submit(id, somebody(worse), "Ann", worse)).improved is False
    with Reason() as reason:
        await widgets.rankings.submit(id, somebody(better), "Bob", 1)
    assert (reason.word, reason.more) == ("COOLDOWN", {"retryAfter": 60})


@both
async def test_of_equal_scores_the_first_is_first_also_after_it_was_sent_again(widgets: Widgets) -> None:
    for order in ("desc", "asc"):
        id = (await widgets.rankings.create(f"{URL}/{order}", TOKEN, visitor=ME, sort_order=order)).id
        await sent(widgets, id, ("c", 7), ("a", 7), ("b", 7))
        await sent(widgets, id, ("a", 7), ("c", 7))
        assert names((await widgets.rankings.get(id)).entries) == [("c", 7), ("a", 7), ("b", 7)]


@both
async def test_what_is_not_among_the_best_does_not_stand(widgets: Widgets) -> None:
    id = await ranking(widgets, max_entries=2)
    await sent(widgets, id, ("Ann", 10), ("Bob", 20))
    data = await widgets.rankings.submit(id, ME, "Cid", 5, "five")
    assert (data.rank, data.totalEntries, names(data.entries)) == (None, 2, [("Bob", 20), ("Ann", 10)])
    # Equal to the last: whoever came first stays.
    assert (await widgets.rankings.submit(id, somebody(1), "Dan", 10)).rank is None


@both
async def test_a_maximum_that_is_lowered_cuts_off_the_worst_and_one_that_is_raised_brings_nobody_back(
    widgets: Widgets, kept: Kept
) -> None:
    for order, best in (("desc", [("n9", 9), ("n8", 8), ("n7", 7)]), ("asc", [("n0", 0), ("n1", 1), ("n2", 2)])):
        url = f"{URL}/{order}"
        id = (await widgets.rankings.create(url, TOKEN, visitor=ME, sort_order=order)).id
        for one in range(10):
            await widgets.rankings.submit(id, somebody(one), f"n{one}", one, f"shown {one}")
        data = await widgets.rankings.update_settings(owner(url), visitor=ME, max_entries=3)
        assert (names(data.entries), data.totalEntries, data.maxEntries) == (best, 3, 3)
        data = await widgets.rankings.update_settings(owner(url), visitor=ME, max_entries=10)
        assert names(data.entries) == best
        # Somebody who was cut off comes again without a text for the score: the old one is not shown.
        back = "n0" if order == "desc" else "n9"
        data = await widgets.rankings.submit(id, somebody(100), back, 5)
        assert [one.displayScore for one in data.entries if one.name == back] == [None]
        data = await widgets.rankings.update(owner(url), "n4", 4, visitor=ME)
        assert [one.displayScore for one in data.entries if one.name == "n4"] == [None]


@both
async def test_details_do_not_grow_without_bound(store: Store, widgets: Widgets, kept: Kept) -> None:
    id = await ranking(widgets, max_entries=5)
    for one in range(120):
        await widgets.rankings.submit(id, somebody(one), f"n{one}", one, f"shown {one}")
    assert await kept.ask("HLEN", f"ranking:{id}:details") <= 2 * 5 + 16 + 1
    data = await widgets.rankings.get(id)
    assert [(one.name, one.displayScore) for one in data.entries] == [
        (f"n{one}", f"shown {one}") for one in range(119, 114, -1)
    ]
    await widgets.rankings.clear(owner(), visitor=ME)
    assert await kept.ask("EXISTS", f"ranking:{id}:details", f"ranking:{id}:scores") == 0
    assert await found_by_doctor(store) == []


async def test_an_entry_that_comes_back_while_the_details_are_tidied_keeps_its_own(memory: Store) -> None:
    """Somebody who was cut off comes back in another process, at any place between the steps of the one that tidies."""
    for steps in range(14):
        await Kept(memory).empty()
        first = service_on(memory)
        id = await ranking(first, max_entries=1)
        for one in range(18):
            await first.rankings.submit(id, somebody(one), f"n{one}", 10 + one, "old")
        gated = Gated(memory)
        tidying, other = service_on(gated), service_on(gated)
        programs: dict[Actor, Any] = {
            "a": lambda tidying=tidying, id=id: tidying.rankings.submit(id, somebody(50), "n50", 50, "n50"),
            "b": lambda other=other, id=id: other.rankings.submit(id, somebody(51), "n0", 99, "new"),
        }
        turns: list[Actor] = [*turns_of("a", steps), *turns_of("b", 50)]
        order, _ = await in_order(gated, programs, turns)
        [entry] = (await first.rankings.get(id)).entries
        assert (entry.name, entry.displayScore) == ("n0", "new"), steps
        if [actor for actor, _ in order].count("a") < steps:
            break
    assert 6 <= steps < 13


# --- the sequence ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_when_the_sequence_is_used_up_it_begins_anew_and_nobody_loses_their_place(
    store: Store, widgets: Widgets, kept: Kept, order: str
) -> None:
    id = await ranking(widgets, sort_order=order, max_entries=100)
    await sent(widgets, id, *((f"old {one}", 7) for one in range(5)))
    await kept.ask("SET", f"ranking:{id}:sequence", _STEPS - 4)
    await sent(widgets, id, *((f"new {one}", 7) for one in range(10)))
    expected = [(f"old {one}", 7) for one in range(5)] + [(f"new {one}", 7) for one in range(10)]
    assert names((await widgets.rankings.get(id, 100)).entries) == expected
    assert int(await kept.ask("GET", f"ranking:{id}:sequence")) < 100
    assert await found_by_doctor(store) == []


@both
async def test_when_the_sequence_is_used_up_among_many_at_once_nobody_loses_their_place(
    store: Store, widgets: Widgets, kept: Kept
) -> None:
    id = await ranking(widgets, max_entries=100)
    await kept.ask("SET", f"ranking:{id}:sequence", _STEPS - 10)
    both_sides = [widgets, service_on(store)]
    await asyncio.gather(
        *(both_sides[one % 2].rankings.submit(id, somebody(one), f"n{one:02}", 7 - one % 2) for one in range(40))
    )
    entries = names((await widgets.rankings.get(id, 100)).entries)
    # Each side sends in order, and has a score of its own: all are there, the first of each before its others.
    assert entries == [(f"n{one:02}", 7) for one in range(0, 40, 2)] + [(f"n{one:02}", 6) for one in range(1, 40, 2)]


@both
async def test_an_owner_whose_sequence_is_used_up_can_still_write(widgets: Widgets, kept: Kept) -> None:
    id = await ranking(widgets)
    await sent(widgets, id, ("Ann", 5), ("Bob", 5))
    await kept.ask("SET", f"ranking:{id}:sequence", _STEPS + 5)  # clearing and removing count, too
    data = await widgets.rankings.update(owner(), "Cid", 5, visitor=ME)
    assert names(data.entries) == [("Ann", 5), ("Bob", 5), ("Cid", 5)]


# --- what an owner does -----------------------------------------------------------------------------------------


@both
async def test_another_order_turns_the_ranking_around_with_the_first_of_equals_first(widgets: Widgets) -> None:
    id = await ranking(widgets)
    await sent(widgets, id, ("a", 1), ("b", 2), ("c", 2), ("d", 3), ("e", 1))
    for order, expected in (
        ("asc", [("a", 1), ("e", 1), ("b", 2), ("c", 2), ("d", 3)]),
        ("desc", [("d", 3), ("b", 2), ("c", 2), ("a", 1), ("e", 1)]),
        ("desc", [("d", 3), ("b", 2), ("c", 2), ("a", 1), ("e", 1)]),
        ("asc", [("a", 1), ("e", 1), ("b", 2), ("c", 2), ("d", 3)]),
    ):
        data = await widgets.rankings.update_settings(owner(), visitor=ME, sort_order=order)
        assert names(data.entries) == expected
    assert (await widgets.rankings.submit(id, ME, "d", 0)).rank == 1  # the lowest is the best now
    assert names((await widgets.rankings.get(id)).entries)[0] == ("d", 0)


@both
async def test_an_order_that_is_turned_around_while_scores_come_loses_none_of_them(store: Store) -> None:
    one, two = service_on(store), service_on(store)
    id = await ranking(one, max_entries=100)

    async def turning() -> None:
        for order in ("asc", "desc", "asc"):
            await two.rankings.update_settings(owner(), visitor=ME, sort_order=order)

    scores = [(f"n{at:02}", at // 4) for at in range(40)]
    submits = [one.rankings.submit(id, somebody(at), *score) for at, score in enumerate(scores)]
    await asyncio.gather(turning(), *submits)
    data = await one.rankings.get(id, 100)
    assert names(data.entries) == sorted(scores, key=lambda score: score[1])
    assert data.sortOrder == "asc"


@both
async def test_an_owner_writes_an_entry_lower_or_higher_and_takes_one_out(widgets: Widgets, kept: Kept) -> None:
    id = await ranking(widgets, max_entries=3)
    await sent(widgets, id, ("Ann", 10), ("Bob", 20))
    assert names((await widgets.rankings.update(owner(), "Bob", 5, "5!", visitor=ME)).entries) == [
        ("Ann", 10),
        ("Bob", 5),
    ]
    data = await widgets.rankings.update(owner(), "Cid", 7, visitor=ME)
    assert [(one.name, one.displayScore) for one in data.entries] == [("Ann", None), ("Cid", None), ("Bob", "5!")]
    assert names((await widgets.rankings.remove(owner(), "Cid", visitor=ME)).entries) == [("Ann", 10), ("Bob", 5)]
    assert await refused(widgets.rankings.remove(owner(), "Cid", visitor=ME)) == "NOT_FOUND"
    assert (await widgets.rankings.clear(owner(), visitor=ME)).totalEntries == 0
    await sent(widgets, id, ("Ann", 1))
    assert names((await widgets.rankings.get(id)).entries) == [("Ann", 1)]


@both
async def test_names_that_look_like_the_members_of_the_store_stay_apart(widgets: Widgets) -> None:
    id = await ranking(widgets, max_entries=20)
    strange = ["a:b", "a%3Ab", "a", ":", "%", "a:", ":a", "{a}", "*", "a b", "\\", '"', "<b>", "é", "👨‍👩‍👧"]
    await sent(widgets, id, *((name, 100 - at) for at, name in enumerate(strange)))
    data = await widgets.rankings.get(id, 20)
    assert [one.name for one in data.entries] == strange
    for name in strange:
        data = await widgets.rankings.remove(owner(), name, visitor=ME)
    assert data.entries == []


async def test_a_ranking_holds_10_000_and_shows_100_at_most(memory: Store) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    id = await ranking(widgets, max_entries=10_000)
    scores = widgets.keys.ranking_scores(id)
    await scores.put({RankingEntry(f"n{one}", f"{one:016x}"): _placed(one, one + 1, "desc") for one in range(10_000)})
    await kept.ask("SET", f"ranking:{id}:sequence", 10_000)
    data = await widgets.rankings.submit(id, ME, "last", 5_000)
    assert (data.totalEntries, data.rank) == (10_000, 5_001)
    assert len((await widgets.rankings.get(id, 100)).entries) == 100
    for limit in (0, 101, -1, "5", 1.0, None):
        assert await refused(widgets.rankings.get(id, limit)) == "VALIDATION_ERROR"
    turned = await widgets.rankings.update_settings(owner(), visitor=ME, sort_order="asc")
    assert names(turned.entries)[0] == ("n1", 1)  # the lowest was cut off when one came that was better
    assert turned.totalEntries == 10_000


@pytest.mark.parametrize(
    "more",
    [
        *({"max_entries": one} for one in (0, 10_001, "10", None, 1.5)),
        *({"sort_order": one} for one in ("up", "", None, 1)),
        *({"title": one} for one in ("", "x" * 51, 5, "\x00")),
        *({"description": one} for one in ("x" * 201, 5)),
        {"webhook_url": "nonsense"},
    ],
)
async def test_settings_that_are_none_make_nothing_and_change_nothing(memory: Store, more: dict[str, Any]) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    assert await refused(ranking(widgets, **more)) == "VALIDATION_ERROR"
    assert await kept.keys() == set()
    await ranking(widgets)
    before = await kept.everything()
    if more not in ({"title": None}, {"description": None}):
        assert await refused(widgets.rankings.update_settings(owner(), visitor=ME, **more)) == "VALIDATION_ERROR"
    assert await kept.everything() == before


async def test_a_title_can_be_changed_and_taken_away(memory: Store) -> None:
    widgets = service_on(memory)
    id = await ranking(widgets, title="Best", description="of all")
    await widgets.rankings.update_settings(owner(), visitor=ME, title="Better")
    data = await widgets.rankings.get(id)
    assert (data.title, data.description) == ("Better", "of all")
    await widgets.rankings.update_settings(owner(), visitor=ME, title=None, description=None)
    data = await widgets.rankings.get(id)
    assert (data.title, data.description) == (None, None)


@pytest.mark.parametrize(("order", "scores", "too_weak"), [("desc", (10, 20), 10), ("asc", (10, 20), 20)])
async def test_a_score_that_is_not_good_enough_to_be_kept_is_no_score(
    memory: Store, order: str, scores: tuple[int, int], too_weak: int
) -> None:
    widgets = service_on(memory)
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME, max_entries=2, sort_order=order)).id
    for number, score in enumerate(scores):
        await widgets.rankings.submit(id, somebody(number), f"n{number}", score)
    weak = await widgets.rankings.submit(id, ME, "Ann", too_weak)
    assert (weak.improved, weak.rank, weak.totalEntries) == (False, None, 2)
    # So the next may come at once, and one that is good enough puts the worst out.
    good = await widgets.rankings.submit(id, ME, "Ann", 15)
    assert (good.improved, good.rank, good.totalEntries) == (True, 2, 2)


async def test_what_is_shown_for_a_score_is_looked_at_like_a_name(memory: Store) -> None:
    widgets = service_on(memory)
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    shown = "see https://spam.example"
    assert await refused(widgets.rankings.submit(id, ME, "Ann", 5, shown)) == "VALIDATION_ERROR"
    assert await refused(widgets.rankings.update(owner(), "Ann", 5, shown, visitor=ME)) == "VALIDATION_ERROR"
