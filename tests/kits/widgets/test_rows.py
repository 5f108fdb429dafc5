"""The stored keys: each key of the document with its type and TTL, and nothing after a delete."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.service import Widgets
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
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

pytestmark = pytest.mark.usefixtures("quick_hash")

on_redis = pytest.mark.parametrize("store_url", ["redis"], indirect=True)
each_service = pytest.mark.parametrize("name", SERVICES)

FOR_EVER, UNTIL_MIDNIGHT, MINUTE, TEN_SECONDS = "for ever", "until midnight", "60 s", "10 s"

# The rows of the document, and those that were added to it.
ROWS = {
    "counter": {
        "url:counter:{url}": ("string", FOR_EVER),
        "counters:index": ("zset", FOR_EVER),
        "counter:{id}": ("string", FOR_EVER),
        "counter:{id}:total": ("string", FOR_EVER),
        "counter:{id}:last": ("string", FOR_EVER),
        "counter:{id}:daily:{day}": ("string", FOR_EVER),
        "counter:{id}:owner": ("string", FOR_EVER),
        "counter:{id}:visit:{hash}": ("string", UNTIL_MIDNIGHT),
        "counter:{id}:visitors": ("set", UNTIL_MIDNIGHT),
    },
    "like": {
        "url:like:{url}": ("string", FOR_EVER),
        "likes:index": ("zset", FOR_EVER),
        "like:{id}": ("string", FOR_EVER),
        "like:{id}:total": ("string", FOR_EVER),
        "like:{id}:last": ("string", FOR_EVER),
        "like:{id}:users:{hash}": ("string", UNTIL_MIDNIGHT),
        "like:{id}:users": ("set", UNTIL_MIDNIGHT),
        "like:{id}:owner": ("string", FOR_EVER),
    },
    "ranking": {
        "url:ranking:{url}": ("string", FOR_EVER),
        "rankings:index": ("zset", FOR_EVER),
        "ranking:{id}": ("string", FOR_EVER),
        "ranking:{id}:scores": ("zset", FOR_EVER),
        "ranking:{id}:turns": ("zset", FOR_EVER),
        "ranking:{id}:details": ("hash", FOR_EVER),
        "ranking:{id}:sequence": ("string", FOR_EVER),
        "ranking:{id}:last": ("string", FOR_EVER),
        "ranking:{id}:owner": ("string", FOR_EVER),
        "ranking:{id}:meta": ("string", FOR_EVER),
        "ranking:{id}:submit:{hash}": ("string", MINUTE),
        "ranking:{id}:submitters": ("zset", MINUTE),
    },
    "bbs": {
        "url:bbs:{url}": ("string", FOR_EVER),
        "bbss:index": ("zset", FOR_EVER),
        "bbs:{id}": ("string", FOR_EVER),
        "bbs:{id}:messages": ("list", FOR_EVER),
        "bbs:{id}:version": ("string", FOR_EVER),
        "bbs:{id}:owner": ("string", FOR_EVER),
        "bbs:{id}:post:{hash}": ("string", TEN_SECONDS),
        "bbs:{id}:posters": ("zset", TEN_SECONDS),
    },
}


def row_of(key: str, id: str) -> str:
    """The row that a key belongs to."""
    row = key.replace("https%3A%2F%2Fexample.com%2Fpage", "{url}").replace(id, "{id}")
    return re.sub(r":\d{4}-\d\d-\d\d$", ":{day}", re.sub(r":[0-9a-f]{16}$", ":{hash}", row))


def time_left(left_ms: int, midnight: datetime) -> str:
    if left_ms == -1:
        return FOR_EVER
    if 0 < left_ms <= 10_000:
        return TEN_SECONDS
    if 40_000 < left_ms <= 60_000:
        return MINUTE
    late = datetime.now(UTC) + timedelta(milliseconds=left_ms) - midnight
    return UNTIL_MIDNIGHT if abs(late) < timedelta(seconds=1) else f"{left_ms} ms"


@on_redis
@each_service
async def test_every_key_of_the_document_has_its_type_and_ttl(
    widgets: Widgets, kept: Kept, clock: Clock, name: str
) -> None:
    noon = datetime.now(UTC).replace(hour=12) + timedelta(days=1)  # so that no other day begins meanwhile
    clock.stand_at(round(noon.timestamp() * 1000))
    midnight = datetime.combine(noon.date() + timedelta(days=1), datetime.min.time(), UTC)
    id = (await service_of(widgets, name).create(URL, TOKEN, visitor=ME)).id
    assert id == "example-3641c5f2"
    await used(widgets, name, id, 3)
    found = {}
    for key in await kept.keys():
        found[row_of(key, id)] = (await kept.kind(key), time_left(await kept.left_ms(key), midnight))
    assert found == ROWS[name]


@both
@each_service
async def test_the_index_is_ordered_by_creation_time(widgets: Widgets, kept: Kept, clock: Clock, name: str) -> None:
    service, made = service_of(widgets, name), []
    for page in "abc":
        clock.move("1s")
        made.append((await service.create(f"{URL}/{page}", TOKEN, visitor=ME)).id)
    listed = await kept.ask("ZRANGE", f"{name}s:index", 0, -1, "WITHSCORES")
    assert [id.decode() for id, _ in listed] == made
    assert clock() - 10_000 < listed[0][1] < listed[1][1] < listed[2][1] <= clock()
    await service.delete(owner(f"{URL}/b"), visitor=ME)
    assert [id.decode() for id in await kept.ask("ZRANGE", f"{name}s:index", 0, -1)] == [made[0], made[2]]


@both
async def test_after_a_delete_a_scan_finds_nothing(widgets: Widgets, kept: Kept) -> None:
    """The checklist of the document: URL key, record, its keys, owner, index, markers; and the events."""
    ids = set()
    for name in SERVICES:
        service = service_of(widgets, name)
        id = (await service.create(URL, TOKEN, visitor=ME, webhook_url="https://hooks.example.net/x")).id
        await used(widgets, name, id, 5)
        ids.add(id)
    [id] = ids
    others = await kept.everything()
    assert all(one in others for one in (id, "example.com", "outbox:queue:"))
    for name in SERVICES:
        await service_of(widgets, name).delete(owner(), visitor=ME)
        left = await kept.everything()
        assert f"\n{name}:" not in f"\n{left}"
        assert f"url:{name}:" not in left
        assert f"outbox:queue:{name}:" not in left
    assert await kept.everything() == ""


@both
@each_service
async def test_a_delete_leaves_other_widgets_alone(widgets: Widgets, kept: Kept, name: str) -> None:
    """Another page, another service of the same page, and an id with the deleted one as its prefix."""
    for other in SERVICES:
        if other != name:
            id = (await service_of(widgets, other).create(URL, TOKEN, visitor=ME)).id
            await used(widgets, other, id)
    service = service_of(widgets, name)
    for page, wanted in (("https://other.example/", None), (f"{URL}/longer", f"{id}-longer"), (f"{URL}/a", "example")):
        await used(widgets, name, (await service.create(page, TOKEN, visitor=ME, id=wanted)).id)
    before = await kept.everything()
    await used(widgets, name, (await service.create(URL, TOKEN, visitor=ME)).id, 3)
    assert await kept.everything() != before
    deleted = await service.delete(owner(), visitor=ME)
    assert deleted.id == id
    assert await kept.everything() == before


@both
@each_service
async def test_a_recreated_widget_starts_at_zero(widgets: Widgets, kept: Kept, name: str) -> None:
    service = service_of(widgets, name)
    id = (await service.create(URL, TOKEN, visitor=ME)).id
    await used(widgets, name, id, 3)
    await service.delete(owner(), visitor=ME)
    assert await refused(service.get(id)) == "NOT_FOUND"
    again = await service.create(URL, OTHER_TOKEN, visitor=ME)
    assert again.id == id
    assert await refused(service.delete(owner(), visitor=ME)) == "UNAUTHORIZED"
    fresh = await service.get(id)
    empty: dict[str, dict[str, Any]] = {
        "counter": {"total": 0, "today": 0, "week": 0, "month": 0, "last_visit": None},
        "like": {"total": 0, "user_liked": False, "last_like": None},
        "ranking": {"entries": [], "total_entries": 0, "last_submit": None},
        "bbs": {"messages": [], "total_messages": 0, "last_message": None},
    }
    assert empty[name].items() <= dict(fresh).items()
    # The same visitors come again immediately: no marker of theirs is left.
    await used(widgets, name, id, 3)
    now = await service.get(id)
    match name:
        case "counter":
            assert (now.total, now.today) == (3, 3)
        case "like":
            assert now.total == 3
        case "ranking":
            assert names(now.entries) == [("player 2", 102), ("player 1", 101), ("player 0", 100)]
        case _:
            assert [one.message for one in now.messages] == ["message 2", "message 1", "message 0"]


@both
async def test_deleting_an_old_counter_deletes_all_its_days(
    widgets: Widgets, store: Store, kept: Kept, clock: Clock
) -> None:
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    for _ in range(4):
        await widgets.counters.increment(id, somebody(1))
        clock.move("200d")
    assert len([key for key in await kept.keys() if ":daily:" in key]) == 4
    await service_on(store, clock).counters.delete(owner(), visitor=ME)
    assert await kept.keys() == set()


@both
async def test_deleting_a_counter_deletes_days_of_another_time_zone(store: Store, kept: Kept, clock: Clock) -> None:
    """The zone of the settings was changed between: the date there may be the next, or the one before."""
    id = (await service_on(store, clock).counters.create(URL, TOKEN, visitor=ME)).id
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
        await service_on(store, clock, zone=zone).counters.increment(id, ME)
    assert len([key for key in await kept.keys() if ":daily:" in key]) >= 2
    await service_on(store, clock).counters.delete(owner(), visitor=ME)
    assert await kept.keys() == set()


@both
async def test_totals_are_stored_once(widgets: Widgets, kept: Kept) -> None:
    """So they cannot disagree: a record contains nothing that visitors change."""
    for name in SERVICES:
        id = (await service_of(widgets, name).create(URL, TOKEN, visitor=ME)).id
        before = await kept.ask("GET", f"{name}:{id}")
        await used(widgets, name, id, 3)
        assert await kept.ask("GET", f"{name}:{id}") == before


@both
async def test_the_doctor_finds_nothing_in_a_used_store(widgets: Widgets, store: Store, clock: Clock) -> None:
    for name in SERVICES:
        service = service_of(widgets, name)
        id = (await service.create(URL, TOKEN, visitor=ME, webhook_url="https://hooks.example.net/x")).id
        await used(widgets, name, id, 20)
        await service.create("https://other.example/" + "x" * 600, TOKEN, visitor=ME)
    assert await found_by_doctor(store) == []
    for name in SERVICES:
        await service_of(widgets, name).delete(owner(), visitor=ME)
        assert await found_by_doctor(store) == []
