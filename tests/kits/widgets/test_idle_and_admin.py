"""The clean-up: unused widgets are deleted after a year, and an admin can delete any widget."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.service import LIMITS, Owner, Widgets
from keystead.kits.widgets.service.admin import _matches
from keystead.parts.limit import LimitReached
from keystead.parts.schedule import Run
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both, everywhere
from tests.kits.widgets.opened import (
    ME,
    OTHER_TOKEN,
    SERVICES,
    TOKEN,
    URL,
    Kept,
    owner,
    refused,
    service_of,
    service_on,
    somebody,
    turns_of,
    used,
)
from tests.parts.sessions.relays import Actor, Gated, in_order

pytestmark = pytest.mark.usefixtures("quick_hash")

ALL = (*SERVICES, "yokoso")
ADMIN = "an-admin-token-of-the-tests"


async def created(widgets: Widgets, name: str, url: str = URL) -> str:
    more: dict[str, Any] = {"message": "Hello"} if name == "yokoso" else {}
    return str((await service_of(widgets, name).create(url, TOKEN, visitor=ME, **more)).id)


# --- idle widgets -------------------------------------------------------------------------------------------------


@everywhere
async def test_a_widget_unused_for_a_year_is_deleted_with_all_its_keys(store: Store, clock: Clock, kept: Kept) -> None:
    widgets = service_on(store, clock)
    for name in ALL:
        await created(widgets, name)
        await used(widgets, name, await created(widgets, name, f"{URL}/used"), 2)
    clock.move("364d")
    assert (await widgets.admin.delete_idle()).total_deleted == 0
    for name in SERVICES:  # the marks of the store live by its own clock, so they are others
        await used(widgets, name, await created(widgets, name, f"{URL}/used"), 1, first=5)
    clock.move("2d")
    told = await widgets.admin.delete_idle(dry_run=True)
    assert [(one.type, one.url) for one in told.deleted_services] == [(name, URL) for name in SERVICES]
    assert await widgets.admin.delete_idle() == told
    for name in SERVICES:
        assert await refused(service_of(widgets, name).get(told.found_instances[0])) == "NOT_FOUND"
        assert (await service_of(widgets, name).get_as_owner(owner(f"{URL}/used"), visitor=ME)).url == f"{URL}/used"
    assert not [key for key in await kept.keys() if told.found_instances[0] in key and "yokoso" not in key]
    clock.move("366d")
    assert (await widgets.admin.delete_idle()).total_deleted == 4
    # Views of a welcome card are not recorded: it stays until its owner deletes it.
    assert {key for key in await kept.keys() if "yokoso" not in key} == set()
    assert await kept.ask("ZCARD", "yokosos:index") == 2


@pytest.mark.matrix
@both
async def test_the_idle_job_reports_how_many_it_deleted(store: Store, clock: Clock, kept: Kept) -> None:
    widgets = service_on(store, clock)
    for number in range(230):  # more than are looked at together
        await created(widgets, "counter", f"{URL}/{number}")
    for number in range(0, 230, 2):
        await used(widgets, "counter", await created(widgets, "counter", f"{URL}/{number}"))
    clock.move("200d")
    for number in range(0, 230, 2):
        await used(widgets, "counter", await created(widgets, "counter", f"{URL}/{number}"))
    clock.move("200d")
    [job] = [job for job in widgets.jobs if job.name == "widgets.idle"]
    assert await job.run(Run("widgets.idle", 0, 1)) == {"deleted": 115, "unreadable": 0}
    assert await kept.ask("ZCARD", "counters:index") == 115


async def test_idle_days_0_disables_deletion(memory: Store, clock: Clock) -> None:
    widgets = service_on(memory, clock, idle_days=0)
    await created(widgets, "like")
    clock.move("4000d")
    assert (await widgets.admin.delete_idle()).total_deleted == 0


@both
async def test_a_widget_used_during_the_clean_up_stays(store: Store, clock: Clock) -> None:
    """50 of each, all of them used by visitors while the clean-up runs: a widget that counted a use is there."""
    for name in ("counter", "like", "ranking", "bbs"):
        await Kept(store).empty()
        one, two = service_on(store, clock), service_on(store, clock)
        ids = [await created(one, name, f"{URL}/{name}/{number}") for number in range(50)]
        clock.move("400d")
        uses = [used(two, name, id) for id in ids]
        outcomes: list[Any] = await asyncio.gather(one.admin.delete_idle(), *uses, return_exceptions=True)
        cleaned, *told = outcomes
        assert not isinstance(cleaned, BaseException), cleaned
        counted = [id for id, outcome in zip(ids, told, strict=True) if outcome is None]
        there = [id for id in ids if not await refused(service_of(one, name).get(id))]
        assert there == counted
        assert cleaned.total_deleted == 50 - len(there)


@pytest.mark.parametrize("name", SERVICES)
async def test_no_use_is_lost_when_interleaved_with_the_clean_up(memory: Store, clock: Clock, name: str) -> None:
    outcomes = set()
    for steps in range(30):
        await Kept(memory).empty()
        id = await created(service_on(memory, clock), name)
        clock.move("400d")
        gated = Gated(memory)
        cleaning, visiting = service_on(gated, clock), service_on(gated, clock)
        before_ms = clock() - 365 * 86_400_000

        async def visit(visiting: Widgets = visiting, id: str = id) -> bool:
            return await refused(used(visiting, name, id)) == ""

        programs: dict[Actor, Any] = {
            "a": lambda cleaning=cleaning, id=id, before_ms=before_ms: service_of(cleaning, name).delete_if_idle(
                id, before_ms
            ),
            "b": visit,
        }
        order, told = await in_order(gated, programs, [*turns_of("a", steps), *turns_of("b", 60)])
        is_there = await refused(service_of(service_on(memory, clock), name).get(id)) == ""
        assert (told["a"] is None, told["b"]) == (is_there, is_there), steps
        outcomes.add(is_there)
        if [actor for actor, _ in order].count("a") < steps:
            break
    assert outcomes == {True, False}


@both
async def test_idle_days_count_from_the_upgrade(store: Store, clock: Clock, kept: Kept) -> None:
    at = datetime.fromtimestamp(clock() / 1000 - 500 * 86_400, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    record = {"id": "old", "url": URL, "created": at, "totalCount": 9, "lastVisit": at, "owner": None}
    await kept.ask("SET", "counter:old", json.dumps(record))
    widgets = service_on(store, clock)
    assert (await widgets.counters.get("old")).total == 9
    assert (await widgets.admin.delete_idle()).total_deleted == 0
    clock.move("366d")
    assert (await widgets.admin.delete_idle()).found_instances == ["old"]


@both
async def test_an_unreadable_widget_does_not_stop_the_clean_up(store: Store, clock: Clock, kept: Kept) -> None:
    widgets = service_on(store, clock)
    broken = await created(widgets, "counter")
    await created(widgets, "counter", f"{URL}/other")
    await kept.ask("SET", f"counter:{broken}", "{")
    await kept.ask("ZADD", "counters:index", 1, b"\xff")
    clock.move("400d")
    told = await widgets.admin.delete_idle()
    assert (told.total_deleted, len(told.errors)) == (1, 1)
    assert await kept.ask("GET", f"counter:{broken}") == b"{"


# --- admin --------------------------------------------------------------------------------------------------------


@both
async def test_admin_deletes_by_id_or_by_url(store: Store, kept: Kept) -> None:
    widgets = service_on(store, admin_token=ADMIN)
    ids = {name: await created(widgets, name) for name in ALL}
    others = [await created(widgets, "like", f"https://spam.example/{number}") for number in range(3)]
    for name in SERVICES:
        await used(widgets, name, ids[name], 2)
    asked: dict[str, Any] = {"admin_token": ADMIN, "visitor": ME}
    told = await widgets.admin.cleanup(**asked, target_id=ids["like"], dry_run=True)
    assert sorted(one.type for one in told.deleted_services) == sorted(ALL)
    told = await widgets.admin.cleanup(**asked, target_id=ids["like"], service="like")
    assert (told.deleted_keys, told.total_deleted) == ([f"like:{ids['like']}"], 1)
    assert await refused(widgets.likes.get(ids["like"])) == "NOT_FOUND"
    assert (await widgets.counters.get(ids["counter"])).total == 2
    told = await widgets.admin.cleanup_by_url(**asked, url_pattern="https://spam.example/*")
    assert (sorted(told.found_instances), told.total_deleted) == (sorted(others), 3)
    told = await widgets.admin.cleanup_by_url(**asked, url_pattern=URL)
    assert told.total_deleted == 4
    assert await kept.keys() == set()
    assert (await widgets.admin.cleanup(**asked, target_id="nobody")).total_deleted == 0


@pytest.mark.parametrize("pattern", ["", "*", "https://*", "https://", "http://a.example", "a", 5, None, "https://a b"])
async def test_a_url_pattern_needs_a_host(memory: Store, pattern: Any) -> None:
    widgets = service_on(memory, admin_token=ADMIN)
    id = await created(widgets, "counter")
    asked = widgets.admin.cleanup_by_url(ADMIN, visitor=ME, url_pattern=pattern)
    assert await refused(asked) == "VALIDATION_ERROR"
    assert (await widgets.counters.get(id)).total == 0


async def test_a_url_pattern_is_literal_except_for_stars(memory: Store) -> None:
    widgets = service_on(memory, admin_token=ADMIN)
    for url in ("https://a.example/x?y=(1)", "https://axexample/", "https://a.example/"):
        await created(widgets, "counter", url)
    told = await widgets.admin.cleanup_by_url(ADMIN, visitor=ME, url_pattern="https://a.example/*(1)", dry_run=True)
    assert [one.url for one in told.deleted_services] == ["https://a.example/x?y=(1)"]
    told = await widgets.admin.cleanup_by_url(ADMIN, visitor=ME, url_pattern="https://a.example/*", dry_run=True)
    assert told.total_deleted == 2


@pytest.mark.parametrize(
    ("pattern", "url", "fits"),
    [
        ("https://a.example/", "https://a.example/", True),
        ("https://a.example/", "https://a.example/x", False),
        ("https://a.example*", "https://a.example", True),
        ("https://a.example/*/b*c", "https://a.example/x/bxc", True),
        ("https://a.example/*b", "https://a.example/", False),
        ("https://a.example/ab*ba", "https://a.example/aba", False),
        ("https://a.example/**x", "https://a.example/x", True),
        ("https://a.example/" + "*a" * 900, "https://a.example/" + "a" * 1000, True),
        ("https://a.example/" + "*a" * 900 + "b", "https://a.example/" + "a" * 2000, False),
    ],
)
def test_a_star_matches_any_text(pattern: str, url: str, fits: bool) -> None:
    assert _matches(url, pattern) is fits


@both
async def test_a_board_with_an_unreadable_newest_message_is_not_idle(store: Store, clock: Clock, kept: Kept) -> None:
    widgets = service_on(store, clock)
    id = await created(widgets, "bbs")
    await kept.ask("LPUSH", f"bbs:{id}:messages", "{")
    clock.move("400d")
    assert (await widgets.admin.delete_idle()).total_deleted == 0


@pytest.mark.parametrize("token", ["", "x", TOKEN, OTHER_TOKEN, ADMIN + "x", ADMIN[:-1], None, 5])
async def test_wrong_admin_tokens_are_refused_rate_limited_and_logged(
    memory: Store, token: Any, caplog: pytest.LogCaptureFixture
) -> None:
    widgets = service_on(memory, admin_token=ADMIN, limits=LIMITS | {"owner": 5, "create": 0})
    id = await created(widgets, "counter")
    asks: tuple[Callable[[], Any], ...] = (
        lambda: widgets.admin.cleanup(token, visitor=somebody(), target_id=id),
        lambda: widgets.admin.auto_cleanup(token, visitor=somebody()),
        lambda: widgets.admin.cleanup_by_url(token, visitor=somebody(), url_pattern=URL),
    )
    with caplog.at_level(logging.WARNING, "keystead.security"):
        for ask in asks:
            assert await refused(ask()) == "UNAUTHORIZED"
    assert [one.event for one in caplog.records] == ["bad-admin-token"] * 3  # type: ignore[attr-defined]
    assert ADMIN not in caplog.text
    for _ in range(2):
        await refused(asks[0]())
    with pytest.raises(LimitReached):
        await asks[0]()
    assert (await widgets.counters.get(id)).total == 0


async def test_without_an_admin_token_the_clean_up_is_disabled(memory: Store) -> None:
    widgets = service_on(memory)
    for token in ("", "None", ADMIN, None):
        assert await refused(widgets.admin.auto_cleanup(token, visitor=ME)) == "UNAUTHORIZED"


async def test_the_owner_can_still_delete(memory: Store) -> None:
    widgets = service_on(memory, admin_token=ADMIN)
    id = await created(widgets, "yokoso")
    await widgets.welcomes.delete(Owner(TOKEN, id=id), visitor=ME)
    assert await Kept(memory).keys() == set()


@pytest.mark.parametrize("store_url", ["cluster"], indirect=True)
async def test_upgrade_idle_deletion_and_welcome_cards_on_a_cluster(store: Store, clock: Clock, kept: Kept) -> None:
    widgets = service_on(store, clock, admin_token=ADMIN)
    for name in ALL:
        id = await created(widgets, name)
        await used(widgets, name, id, 2)
        records: Any = getattr(widgets.keys, name)
        record = await records(id).get()
        await records(id).set(record.model_copy(update={"layout": 1}))
    fresh = service_on(store, clock, admin_token=ADMIN)
    for service in fresh.services.values():
        assert await service.upgrade_all() == 1
    assert (await fresh.welcomes.get_as_owner(owner(), visitor=ME)).message == "Hello"
    assert (await fresh.rankings.get_as_owner(owner(), visitor=ME)).total_entries == 2
    clock.move("400d")
    assert (await fresh.admin.delete_idle()).total_deleted == 4
    told = await fresh.admin.cleanup_by_url(ADMIN, visitor=ME, url_pattern=URL)
    assert [one.type for one in told.deleted_services] == ["yokoso"]
    assert await kept.keys() == set()
