"""Rows as the document writes them, and rows of the first layout: read as they are, and upgraded when they are used."""

import asyncio
import json
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pytest

from keystead import Store
from keystead.kits.widgets.models import LAYOUT
from keystead.kits.widgets.service import Owner, Widgets
from keystead.parts.schedule import Run
from tests.kits.widgets.conftest import both, everywhere
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

ID = "example-a1b2c3d4"
CREATED, LAST = "2025-07-30T12:00:00.000Z", "2026-11-01T08:30:00.000Z"
HASH = sha256(TOKEN.encode()).hexdigest()
OF_DOCUMENT: dict[str, dict[str, Any]] = {
    "counter": {"lastVisit": LAST, "totalCount": 1234},
    "like": {"lastLike": LAST, "totalLikes": 56},
    "ranking": {"lastSubmit": LAST, "totalEntries": 3, "maxEntries": 10},
    "bbs": {
        "lastMessage": LAST,
        "totalMessages": 2,
        "settings": {
            "title": "Guests",
            "maxMessages": 50,
            "messagesPerPage": 5,
            "icons": ["😀"],
            "selects": [{"a": 1}],
        },
    },
}


def message(number: int, **more: Any) -> str:
    at = f"2026-11-0{number}T08:30:00.000Z"
    return json.dumps(
        {"id": f"m{number}", "timestamp": at, "author": "Ann", "message": f"no {number}", "userHash": "ab" * 8, **more}
    )


async def as_documented(kept: Kept, name: str, **more: Any) -> None:
    """The keys of a widget as the document shows them; it does not define the index entry."""
    record = {"service": name, "id": ID, "url": URL, "created": CREATED, **OF_DOCUMENT[name], "owner": HASH, **more}
    await kept.ask("SET", f"url:{name}:{quote(URL, safe='')}", ID)
    await kept.ask("SET", f"{name}:{ID}", json.dumps(record))
    await kept.ask("SET", f"{name}:{ID}:owner", HASH)
    match name:
        case "counter":
            await kept.ask("SET", f"counter:{ID}:total", 1234)
            await kept.ask("SET", f"counter:{ID}:daily:2026-11-01", 7)
        case "like":
            await kept.ask("SET", f"like:{ID}:total", 56)
        case "ranking":
            for score, member in ((5, "Bob:k3"), (5, "Ann:k1"), (9, "Cid:k2")):
                await kept.ask("ZADD", f"ranking:{ID}:scores", score, member)
            await kept.ask("SET", f"ranking:{ID}:meta", '{"title":"Best"}')
        case _:
            await kept.ask("RPUSH", f"bbs:{ID}:messages", message(2, selects={"mood": "😊"}), message(1, icon="😀"))


async def record_of(kept: Kept, name: str) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(await kept.held(f"{name}:{ID}"))
    return stored


@everywhere
@pytest.mark.parametrize("name", SERVICES)
async def test_original_data_is_read_and_upgraded(store: Store, widgets: Widgets, kept: Kept, name: str) -> None:
    await as_documented(kept, name)
    data = await service_of(widgets, name).get(ID)
    assert (data.id, data.url) == (ID, URL)
    match name:
        case "counter":
            assert (data.total, data.last_visit) == (1234, LAST)
        case "like":
            assert (data.total, data.last_like) == (56, LAST)
        case "ranking":
            assert (names(data.entries), data.title) == ([("Cid", 9), ("Bob", 5), ("Ann", 5)], "Best")
            assert (data.last_submit, data.total_entries) == (LAST, 3)
        case _:
            assert [one.message for one in data.messages] == ["no 2", "no 1"]
            assert (data.title, data.settings.max_messages, data.total_messages) == ("Guests", 50, 2)
            assert data.messages[0].selects == {"mood": "😊"}
    record = await record_of(kept, name)
    assert (record["layout"], record["created"], record["service"]) == (LAYOUT, CREATED, name)
    assert not {"owner", "totalCount", "totalLikes", "totalEntries", "totalMessages"} & record.keys()
    assert len(await kept.held(f"{name}s:index")) == 1
    await used(widgets, name, ID, 2)
    assert await found_by_doctor(store) == []
    assert (await service_of(widgets, name).create(URL, TOKEN, visitor=ME)).id == ID
    await service_of(widgets, name).delete(owner(), visitor=ME)
    assert await kept.keys() == set()


@both
@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("written", ["beside", "quoted", "inside"])
async def test_an_original_token_works_and_is_rehashed(widgets: Widgets, kept: Kept, name: str, written: str) -> None:
    await as_documented(kept, name)
    key, service = f"{name}:{ID}:owner", service_of(widgets, name)
    if written == "quoted":  # as the system writes it that the document describes
        await kept.ask("SET", key, f'"{HASH}"')
    elif written == "inside":
        await kept.ask("DEL", key)
    assert await refused(service.get_as_owner(owner(token=OTHER_TOKEN), visitor=ME)) == "UNAUTHORIZED"
    assert HASH in str(await kept.held(key))  # a wrong token changes nothing
    for _ in range(2):
        assert (await service.get_as_owner(owner(), visitor=ME)).id == ID
        assert (await kept.held(key)).startswith(b"scrypt.")
        assert await refused(service.get_as_owner(owner(token=HASH[:16]), visitor=ME)) == "UNAUTHORIZED"
    assert HASH not in await kept.everything()


@both
async def test_a_widget_with_a_null_owner_has_no_owner(widgets: Widgets, kept: Kept) -> None:
    await as_documented(kept, "counter", owner=None, lastVisit=None)
    await kept.ask("DEL", f"counter:{ID}:owner")
    assert (await widgets.counters.increment(ID, somebody())).total == 1235
    assert await refused(widgets.counters.delete(owner(), visitor=ME)) == "UNAUTHORIZED"


@both
async def test_a_total_in_the_record_is_upgraded(widgets: Widgets, kept: Kept) -> None:
    await as_documented(kept, "counter")
    await as_documented(kept, "like")
    await kept.ask("DEL", f"counter:{ID}:total", f"like:{ID}:total")
    assert (await widgets.counters.increment(ID, somebody())).total == 1235
    assert (await widgets.likes.toggle(ID, somebody())).total == 57


@both
@pytest.mark.parametrize("name", SERVICES)
async def test_of_50_concurrent_requests_one_upgrades(store: Store, kept: Kept, name: str) -> None:
    await as_documented(kept, name)
    processes = [service_on(store) for _ in range(5)]
    await asyncio.gather(*(service_of(processes[one % 5], name).get(ID) for one in range(25)))
    await as_documented(kept, name)  # and again, with writers
    visits = [used(processes[one % 5], name, ID) for one in range(5)]
    await asyncio.gather(*visits, *(service_of(one, name).get(ID) for one in processes), return_exceptions=True)
    assert (await record_of(kept, name))["layout"] == LAYOUT
    data = await service_of(processes[0], name).get(ID)
    match name:
        case "counter" | "like":
            assert data.total in (1234, 1235, 56, 57)
        case "ranking":
            assert names(data.entries) == [("player 0", 100), ("Cid", 9), ("Bob", 5), ("Ann", 5)]
        case _:
            assert [one.message for one in data.messages][-2:] == ["no 2", "no 1"]


@both
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_fractional_scores_become_the_submitted_numbers(widgets: Widgets, kept: Kept, order: str) -> None:
    """As the first layout wrote them: the fraction is the turn, so that of equals the first is nearer to the best."""
    steps, sent = 2**23, [("z", 5), ("a", 5), ("m", 7), ("b", 5), ("c", 7)]
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME, sort_order=order)).id
    for name, score in sent:
        await widgets.rankings.update(owner(), name, score, f"{name}!", visitor=ME)
    record = json.loads(await kept.held(f"ranking:{id}"))
    del record["layout"]
    await kept.ask("SET", f"ranking:{id}", json.dumps(record))
    for turn, (name, score) in enumerate(sent, 1):
        member = f"{name}:{sha256(name.encode()).hexdigest()[:16]}"
        fraction = 1 - turn / steps if order == "desc" else turn / steps
        await kept.ask("ZADD", f"ranking:{id}:scores", score + fraction, member)
        await kept.ask("HSET", f"ranking:{id}:details", member[2:], f'{{"displayScore":"{name}!","at":"{CREATED}"}}')
    other = service_on(kept.store)
    sevens, fives = [("m", 7), ("c", 7)], [("z", 5), ("a", 5), ("b", 5)]
    data = await other.rankings.get(id)
    assert names(data.entries) == ([*sevens, *fives] if order == "desc" else [*fives, *sevens])
    assert [one.display_score for one in data.entries] == [f"{one.name}!" for one in data.entries]
    stored = await kept.ask("ZRANGE", f"ranking:{id}:scores", 0, -1, "WITHSCORES")
    assert sorted(float(score) for _, score in stored) == [5, 5, 5, 7, 7]
    data = await other.rankings.submit(id, ME, "late", 5)
    assert data.rank == (6 if order == "desc" else 4)


@both
async def test_original_ranking_members_are_upgraded_to_one_entry_per_name(widgets: Widgets, kept: Kept) -> None:
    """The system that the document describes writes the name alone; the document, the name and something unique."""
    await as_documented(kept, "ranking")
    await kept.ask("DEL", f"ranking:{ID}:scores")
    for score, member in ((1, "Ann"), (8, "Ann:k1"), (3, "Ann:k2"), (4, "a:b:k3"), (2, "100%"), (6, "日本:k4")):
        await kept.ask("ZADD", f"ranking:{ID}:scores", score, member)
    expected = [("Ann", 8), ("日本", 6), ("a:b", 4), ("100%", 2)]
    assert names((await widgets.rankings.get(ID)).entries) == expected
    data = await widgets.rankings.submit(ID, ME, "a:b", 7)
    assert names(data.entries) == [("Ann", 8), ("a:b", 7), ("日本", 6), ("100%", 2)]
    assert names((await widgets.rankings.remove(owner(), "100%", visitor=ME)).entries)[-1] == ("日本", 6)


@both
async def test_original_messages_are_read(widgets: Widgets, kept: Kept) -> None:
    await as_documented(kept, "bbs")
    old = json.loads(message(3, selects=["Asia", "", "😊"]))
    old["authorHash"] = old.pop("userHash")
    await kept.ask("LPUSH", f"bbs:{ID}:messages", json.dumps(old))
    data = await widgets.boards.get(ID)
    assert data.messages[0].selects == {"select1": "Asia", "select3": "😊"}
    assert data.messages[0].user_hash == "ab" * 8
    assert await refused(widgets.boards.remove(ID, "m3", "ab" * 8, visitor=ME)) == "UNAUTHORIZED"
    assert (await widgets.boards.owner_remove(owner(), "m3", visitor=ME)).total_messages == 2


@both
async def test_original_url_keys_are_found(widgets: Widgets, kept: Kept) -> None:
    made = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    mapped = f"url:like:{quote(URL, safe='')}"
    await kept.ask("SET", mapped, f'"{made}"')
    assert (await widgets.likes.set(owner(), 5, visitor=ME)).total == 5
    await kept.ask("DEL", mapped)
    assert (await widgets.likes.set(owner(), 6, visitor=ME)).total == 6
    assert (await widgets.likes.create(URL, TOKEN, visitor=ME)).id == made
    assert await kept.held(mapped) == made.encode()


@both
async def test_a_widget_deleted_during_its_upgrade_stays_deleted(store: Store, kept: Kept) -> None:
    for name in SERVICES:
        await as_documented(kept, name)
        one, two = service_on(store), service_on(store)
        await asyncio.gather(
            service_of(one, name).delete(Owner(TOKEN, id=ID), visitor=ME),
            *(service_of(two, name).get(ID) for _ in range(10)),
            return_exceptions=True,
        )
        assert await refused(service_of(two, name).get(ID)) == "NOT_FOUND"
        assert {key for key in await kept.keys() if f"{name}:{ID}" in key and "daily" not in key} == set()


@everywhere
async def test_the_upgrade_job_finds_widgets_without_an_index_entry(store: Store, widgets: Widgets, kept: Kept) -> None:
    for name in SERVICES:
        await as_documented(kept, name)
    await kept.ask("ZADD", f"ranking:{ID}:scores", 7, "Dan")  # a name alone, not in our format
    await kept.ask("SET", "counter:broken", "{")
    await widgets.likes.create(f"{URL}/new", TOKEN, visitor=ME)
    [job] = [job for job in widgets.jobs if job.name == "widgets.upgrade"]
    assert await job.run(Run("widgets.upgrade", 0, 1)) == {"upgraded": 4}
    assert await job.run(Run("widgets.upgrade", 0, 2)) == {"upgraded": 0}
    for name in SERVICES:
        assert (await record_of(kept, name))["layout"] == LAYOUT
        assert ID.encode() in [one for one, _ in await kept.held(f"{name}s:index")]
    await kept.ask("DEL", "counter:broken")
    assert await found_by_doctor(store) == []
    assert names((await widgets.rankings.get(ID)).entries)[1] == ("Dan", 7)
