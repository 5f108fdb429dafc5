"""Rankings: exactly the best, in both orders, the first of equals first; and nothing of those that are no more."""

import asyncio
import itertools
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.models import RankingEntry
from keystead.kits.widgets.service import Widgets
from keystead.kits.widgets.service.rankings import _member
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
)

pytestmark = pytest.mark.usefixtures("quick_hash")


async def ranking(widgets: Widgets, **more: Any) -> str:
    return (await widgets.rankings.create(URL, TOKEN, visitor=ME, **more)).id


_others = itertools.count(20_000)


async def sent(widgets: Widgets, id: str, *scores: tuple[str, int]) -> None:
    """Submit scores one after the other, each from another visitor."""
    for name, score in scores:
        await widgets.rankings.submit(id, somebody(next(_others)), name, score)


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_stored_scores_are_the_submitted_numbers(widgets: Widgets, kept: Kept, order: str) -> None:
    id = await ranking(widgets, sort_order=order)
    await sent(widgets, id, ("b", 5), ("a", 5), ("c", 0), ("d", 999_999_999), ("e", 5))
    stored = await kept.ask("ZRANGE", f"ranking:{id}:scores", 0, -1, "WITHSCORES")
    assert [(member.partition(b":")[0], float(score)) for member, score in stored] == [
        (b"c", 0.0),
        (b"a", 5.0),
        (b"b", 5.0),
        (b"e", 5.0),
        (b"d", 999_999_999.0),
    ]
    for member, score in stored:
        assert str(float(await kept.ask("ZSCORE", f"ranking:{id}:scores", member))) == str(float(score))
    equal = [("b", 5), ("a", 5), ("e", 5)]
    best = [("d", 999_999_999), *equal, ("c", 0)] if order == "desc" else [("c", 0), *equal, ("d", 999_999_999)]
    assert names((await widgets.rankings.get(id)).entries) == best


@both
async def test_an_entry_of_another_program_is_shown(widgets: Widgets, kept: Kept) -> None:
    id = await ranking(widgets)
    await sent(widgets, id, ("Ann", 5), ("Bob", 7))
    await kept.ask("ZADD", f"ranking:{id}:scores", 6, "Cid:x1")
    await kept.ask("ZADD", f"ranking:{id}:scores", 7, "Zoe:x2")
    data = await widgets.rankings.submit(id, ME, "Dan", 6)
    assert names(data.entries) == [("Zoe", 7), ("Bob", 7), ("Cid", 6), ("Dan", 6), ("Ann", 5)]
    assert data.rank == 4


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_of_equal_scores_at_a_cut_the_earlier_stay(widgets: Widgets, order: str) -> None:
    id = await ranking(widgets, sort_order=order, max_entries=5)
    best, worst = (9, 1) if order == "desc" else (1, 9)
    # The store would sort equal scores by name.
    await sent(widgets, id, ("m", worst), ("z", worst), ("a", worst), ("y", worst), ("b", worst))
    equals = [("m", worst), ("z", worst), ("a", worst), ("y", worst), ("b", worst)]
    for limit in (1, 2, 3, 4, 5):
        assert names((await widgets.rankings.get(id, limit)).entries) == equals[:limit]
    assert (await widgets.rankings.submit(id, ME, "late", worst)).improved is False
    data = await widgets.rankings.submit(id, ME, "good", best)
    assert (data.rank, names(data.entries)) == (1, [("good", best), *equals[:4]])
    assert names((await widgets.rankings.get(id, 3)).entries) == [("good", best), *equals[:2]]
    data = await widgets.rankings.submit(id, somebody(9), "z", best)
    assert (data.rank, names(data.entries)) == (2, [("good", best), ("z", best), equals[0], *equals[2:4]])
    data = await widgets.rankings.update_settings(owner(), visitor=ME, max_entries=3)
    assert names(data.entries) == [("good", best), ("z", best), equals[0]]
    data = await widgets.rankings.update(owner(), "new", best, visitor=ME)
    assert names(data.entries) == [("good", best), ("z", best), ("new", best)]
    # An entry that would be cut off immediately is not written.
    before = data
    assert await widgets.rankings.update(owner(), "bad", worst, visitor=ME) == before


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_only_a_better_score_replaces_the_old_one(widgets: Widgets, order: str, clock: Clock) -> None:
    clock.stand_at(clock())
    id = await ranking(widgets, sort_order=order)
    better, worse = (20, 5) if order == "desc" else (5, 20)
    await sent(widgets, id, ("Ann", 10))
    for score, improved, shown in ((worse, False, 10), (10, False, 10), (better, True, better), (10, False, better)):
        data = await widgets.rankings.submit(id, somebody(score), "Ann", score, f"{score} points")
        assert (data.improved, data.rank, names(data.entries)) == (improved, 1, [("Ann", shown)])
    assert data.entries[0].display_score == f"{better} points"
    # One who has sent nothing better does not wait for the next try; one who has does.
    assert (await widgets.rankings.submit(id, somebody(worse), "Ann", worse)).improved is False
    with Reason() as reason:
        await widgets.rankings.submit(id, somebody(better), "Bob", 1)
    assert (reason.word, reason.more) == ("COOLDOWN", {"retry_after_s": 60})


@both
async def test_resubmitting_an_equal_score_keeps_its_rank(widgets: Widgets) -> None:
    for order in ("desc", "asc"):
        id = (await widgets.rankings.create(f"{URL}/{order}", TOKEN, visitor=ME, sort_order=order)).id
        await sent(widgets, id, ("c", 7), ("a", 7), ("b", 7))
        await sent(widgets, id, ("a", 7), ("c", 7))
        assert names((await widgets.rankings.get(id)).entries) == [("c", 7), ("a", 7), ("b", 7)]


@both
async def test_a_score_below_a_full_ranking_is_not_stored(widgets: Widgets) -> None:
    id = await ranking(widgets, max_entries=2)
    await sent(widgets, id, ("Ann", 10), ("Bob", 20))
    data = await widgets.rankings.submit(id, ME, "Cid", 5, "five")
    assert (data.rank, data.total_entries, names(data.entries)) == (None, 2, [("Bob", 20), ("Ann", 10)])
    # Equal to the last: the earlier one stays.
    assert (await widgets.rankings.submit(id, somebody(1), "Dan", 10)).rank is None


@both
async def test_lowering_the_maximum_removes_the_worst_for_good(widgets: Widgets, kept: Kept) -> None:
    for order, best in (("desc", [("n9", 9), ("n8", 8), ("n7", 7)]), ("asc", [("n0", 0), ("n1", 1), ("n2", 2)])):
        url = f"{URL}/{order}"
        id = (await widgets.rankings.create(url, TOKEN, visitor=ME, sort_order=order)).id
        for one in range(10):
            await widgets.rankings.submit(id, somebody(one), f"n{one}", one, f"shown {one}")
        data = await widgets.rankings.update_settings(owner(url), visitor=ME, max_entries=3)
        assert (names(data.entries), data.total_entries, data.max_entries) == (best, 3, 3)
        data = await widgets.rankings.update_settings(owner(url), visitor=ME, max_entries=10)
        assert names(data.entries) == best
        # A removed name that returns without a display score does not show the old one.
        back = "n0" if order == "desc" else "n9"
        data = await widgets.rankings.submit(id, somebody(100), back, 5)
        assert [one.display_score for one in data.entries if one.name == back] == [None]
        data = await widgets.rankings.update(owner(url), "n4", 4, visitor=ME)
        assert [one.display_score for one in data.entries if one.name == "n4"] == [None]


@both
async def test_details_are_removed_with_their_entries(store: Store, widgets: Widgets, kept: Kept) -> None:
    id = await ranking(widgets, max_entries=5)
    for one in range(120):
        await widgets.rankings.submit(id, somebody(one), f"n{one}", one, f"shown {one}")
    assert await kept.ask("HLEN", f"ranking:{id}:details") == await kept.ask("ZCARD", f"ranking:{id}:turns") == 5
    data = await widgets.rankings.get(id)
    assert [(one.name, one.display_score) for one in data.entries] == [
        (f"n{one}", f"shown {one}") for one in range(119, 114, -1)
    ]
    await widgets.rankings.clear(owner(), visitor=ME)
    assert await kept.ask("EXISTS", *(f"ranking:{id}:{one}" for one in ("details", "scores", "turns"))) == 0
    assert await found_by_doctor(store) == []


# --- owner actions ----------------------------------------------------------------------------------------------


@both
async def test_changing_the_order_reverses_the_ranking_but_not_ties(widgets: Widgets) -> None:
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
async def test_changing_the_order_during_submits_loses_no_score(store: Store) -> None:
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
    assert data.sort_order == "asc"


@both
async def test_an_owner_sets_any_score_and_removes_entries(widgets: Widgets, kept: Kept) -> None:
    id = await ranking(widgets, max_entries=3)
    await sent(widgets, id, ("Ann", 10), ("Bob", 20))
    assert names((await widgets.rankings.update(owner(), "Bob", 5, "5!", visitor=ME)).entries) == [
        ("Ann", 10),
        ("Bob", 5),
    ]
    data = await widgets.rankings.update(owner(), "Cid", 7, visitor=ME)
    assert [(one.name, one.display_score) for one in data.entries] == [("Ann", None), ("Cid", None), ("Bob", "5!")]
    assert names((await widgets.rankings.remove(owner(), "Cid", visitor=ME)).entries) == [("Ann", 10), ("Bob", 5)]
    assert await refused(widgets.rankings.remove(owner(), "Cid", visitor=ME)) == "NOT_FOUND"
    assert (await widgets.rankings.clear(owner(), visitor=ME)).total_entries == 0
    await sent(widgets, id, ("Ann", 1))
    assert names((await widgets.rankings.get(id)).entries) == [("Ann", 1)]


@both
async def test_names_that_look_like_stored_members_are_distinct(widgets: Widgets) -> None:
    id = await ranking(widgets, max_entries=20)
    strange = ["a:b", "a%3Ab", "a", ":", "%", "a:", ":a", "{a}", "*", "a b", "\\", '"', "<b>", "é", "👨‍👩‍👧"]
    await sent(widgets, id, *((name, 100 - at) for at, name in enumerate(strange)))
    data = await widgets.rankings.get(id, 20)
    assert [one.name for one in data.entries] == strange
    for name in strange:
        data = await widgets.rankings.remove(owner(), name, visitor=ME)
    assert data.entries == []


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_of_hundreds_of_equal_scores_the_earliest_stay(store: Store, widgets: Widgets, order: str) -> None:
    """More than are read one by one, and not in the order of their names."""
    id = await ranking(widgets, sort_order=order, max_entries=300)
    entries = [_member(f"n{(at * 37) % 300:03}") for at in range(300)]
    await widgets.keys.ranking_scores(id).put(dict.fromkeys(entries, 5))
    await widgets.keys.ranking_turns(id).put({entry: turn for turn, entry in enumerate(entries, 1)})
    await widgets.keys.ranking_sequence(id).set(300)
    assert [one.name for one in (await widgets.rankings.get(id, 100)).entries] == [one.name for one in entries[:100]]
    same = await widgets.rankings.submit(id, ME, entries[123].name, 5)
    assert (same.improved, same.rank) == (False, 124)
    better = 6 if order == "desc" else 4
    data = await widgets.rankings.submit(id, ME, "new", better)
    assert (data.rank, data.total_entries) == (1, 300)
    assert await widgets.keys.ranking_scores(id).score(entries[-1]) is None
    assert await widgets.keys.ranking_scores(id).score(entries[-2]) == 5
    data = await widgets.rankings.update_settings(owner(), visitor=ME, max_entries=4)
    assert [one.name for one in data.entries] == ["new", *(one.name for one in entries[:3])]
    assert await found_by_doctor(store) == []


async def test_a_ranking_stores_10_000_entries_and_shows_100(memory: Store) -> None:
    widgets = service_on(memory)
    id = await ranking(widgets, max_entries=10_000)
    scores = widgets.keys.ranking_scores(id)
    await scores.put({RankingEntry(f"n{one}", f"{one:016x}"): one for one in range(10_000)})
    data = await widgets.rankings.submit(id, ME, "last", 5_000)
    assert (data.total_entries, data.rank) == (10_000, 5_001)
    assert len((await widgets.rankings.get(id, 100)).entries) == 100
    for limit in (0, 101, -1, "5", 1.0, None):
        assert await refused(widgets.rankings.get(id, limit)) == "VALIDATION_ERROR"
    turned = await widgets.rankings.update_settings(owner(), visitor=ME, sort_order="asc")
    assert names(turned.entries)[0] == ("n1", 1)  # the lowest was cut off when one came that was better
    assert turned.total_entries == 10_000


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
async def test_invalid_settings_are_refused_and_store_nothing(memory: Store, more: dict[str, Any]) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    assert await refused(ranking(widgets, **more)) == "VALIDATION_ERROR"
    assert await kept.keys() == set()
    await ranking(widgets)
    before = await kept.everything()
    if more not in ({"title": None}, {"description": None}):
        assert await refused(widgets.rankings.update_settings(owner(), visitor=ME, **more)) == "VALIDATION_ERROR"
    assert await kept.everything() == before


async def test_a_title_can_be_changed_and_removed(memory: Store) -> None:
    widgets = service_on(memory)
    id = await ranking(widgets, title="Best", description="of all")
    await widgets.rankings.update_settings(owner(), visitor=ME, title="Better")
    data = await widgets.rankings.get(id)
    assert (data.title, data.description) == ("Better", "of all")
    await widgets.rankings.update_settings(owner(), visitor=ME, title=None, description=None)
    data = await widgets.rankings.get(id)
    assert (data.title, data.description) == (None, None)


@pytest.mark.parametrize(("order", "scores", "too_weak"), [("desc", (10, 20), 10), ("asc", (10, 20), 20)])
async def test_a_score_that_is_not_stored_starts_no_cooldown(
    memory: Store, order: str, scores: tuple[int, int], too_weak: int
) -> None:
    widgets = service_on(memory)
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME, max_entries=2, sort_order=order)).id
    for number, score in enumerate(scores):
        await widgets.rankings.submit(id, somebody(number), f"n{number}", score)
    weak = await widgets.rankings.submit(id, ME, "Ann", too_weak)
    assert (weak.improved, weak.rank, weak.total_entries) == (False, None, 2)
    # So the next may follow immediately, and a good one replaces the worst.
    good = await widgets.rankings.submit(id, ME, "Ann", 15)
    assert (good.improved, good.rank, good.total_entries) == (True, 2, 2)


async def test_display_scores_are_validated_like_names(memory: Store) -> None:
    widgets = service_on(memory)
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    shown = "see https://spam.example"
    assert await refused(widgets.rankings.submit(id, ME, "Ann", 5, shown)) == "VALIDATION_ERROR"
    assert await refused(widgets.rankings.update(owner(), "Ann", 5, shown, visitor=ME)) == "VALIDATION_ERROR"
