"""Every action of the four services over HTTP, as both eras of the original have it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from keystead.kits.widgets.service.nicknames import nickname
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.http.visiting import (
    BBS,
    LIKE,
    PATHS,
    RANKING,
    TOKEN,
    URL,
    VISIT,
    Running,
    Visitor,
    data,
    refused,
)

OWNER = {"x-owner-token": TOKEN}
each_path = pytest.mark.parametrize("path", PATHS)


# --- all services -------------------------------------------------------------------------------------------------


@each_path
async def test_a_public_id_is_derived_from_host_and_url(visitor: Visitor, path: str) -> None:
    told = data(await visitor.post(path, "create", url="https://www.example.com/page", token=TOKEN))
    assert told["url"] == "https://www.example.com/page"
    assert re.fullmatch(r"example-[0-9a-f]{8}", told["id"])


@each_path
async def test_creating_again_returns_the_widget_to_its_owner_only(visitor: Visitor, path: str) -> None:
    id = await visitor.create(path)
    assert data(await visitor.post(path, "create", url=URL, token=TOKEN))["id"] == id
    assert refused(await visitor.post(path, "create", url=URL, token="another-token")) == (403, "UNAUTHORIZED")


async def test_the_four_services_of_a_page_have_the_same_id_and_share_nothing(visitor: Visitor) -> None:
    ids = {await visitor.create(path) for path in PATHS}
    assert len(ids) == 1
    [id] = ids
    data(await visitor.post(VISIT, "increment", id=id))
    assert data(await visitor.get(LIKE, "get", id=id))["total"] == 0


@each_path
async def test_a_deleted_widget_is_gone_and_can_be_recreated(visitor: Visitor, path: str) -> None:
    id = await visitor.create(path)
    told = data(await visitor.post(path, "delete", url=URL, token=TOKEN))
    assert told["id"] == id
    assert told["message"]
    assert refused(await visitor.get(path, "get", id=id)) == (404, "NOT_FOUND")
    assert refused(await visitor.post(path, "delete", url=URL, token=TOKEN)) == (404, "NOT_FOUND")
    assert await visitor.create(path) == id


@each_path
async def test_only_its_owner_can_delete_it(visitor: Visitor, path: str) -> None:
    id = await visitor.create(path)
    assert refused(await visitor.post(path, "delete", id=id, token="another-token")) == (403, "UNAUTHORIZED")
    assert data(await visitor.get(path, "get", id=id))["id"] == id
    assert data(await visitor.post(path, "delete", id=id, token=TOKEN))["id"] == id


@each_path
async def test_every_action_works_by_get(visitor: Visitor, path: str) -> None:
    id = data(await visitor.get(path, "create", OWNER, url=URL))["id"]
    assert data(await visitor.get(path, "get", id=id))["url"] == URL
    assert data(await visitor.get(path, "updateSettings", OWNER, url=URL))["id"] == id
    assert data(await visitor.get(path, "delete", OWNER, url=URL))["id"] == id


@each_path
async def test_the_action_of_a_post_can_be_in_the_url(visitor: Visitor, path: str) -> None:
    id = await visitor.create(path)
    answer = await visitor.http.post(f"{path}?action=get", json={"id": id})
    assert data(answer)["id"] == id
    same = await visitor.http.post(f"{path}?action=get", json={"action": "get", "id": id})
    assert data(same)["id"] == id
    other = await visitor.http.post(f"{path}?action=get", json={"action": "delete", "id": id, "token": TOKEN})
    assert refused(other) == (400, "VALIDATION_ERROR")
    assert data(await visitor.get(path, "get", id=id))["id"] == id


@each_path
async def test_only_the_owner_sees_the_webhook_url(visitor: Visitor, path: str) -> None:
    hook = "https://hooks.example.com/secret"
    created = data(await visitor.post(path, "create", url=URL, token=TOKEN, webhookUrl=hook))
    assert "webhookUrl" not in (await visitor.get(path, "get", id=created["id"])).text
    assert data(await visitor.post(path, "get", url=URL, token=TOKEN))["webhookUrl"] == hook
    assert data(await visitor.get(path, "get", OWNER, id=created["id"], format="json"))["webhookUrl"] == hook
    assert refused(await visitor.post(path, "get", id=created["id"], token="another-token")) == (403, "UNAUTHORIZED")


# --- counters -----------------------------------------------------------------------------------------------------


async def test_a_counter_counts_a_visitor_once_a_day(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    first = data(await visitor.get(VISIT, "increment", id=id))
    assert {name: first[name] for name in ("total", "today", "yesterday", "week", "month")} == {
        "total": 1,
        "today": 1,
        "yesterday": 0,
        "week": 1,
        "month": 1,
    }
    assert first["duplicate"] is False
    assert first["lastVisit"]
    again = data(await visitor.post(VISIT, "increment", id=id))
    assert (again["total"], again["duplicate"]) == (1, True)
    assert data(await site.visitor().post(VISIT, "increment", id=id))["total"] == 2


async def test_another_browser_is_another_visitor(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    for agent in ("one", "another", "one"):
        data(await visitor.get(VISIT, "increment", {"user-agent": agent}, id=id))
    assert data(await visitor.get(VISIT, "get", id=id))["total"] == 2


async def test_an_owner_sets_the_total_under_both_of_its_names(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    assert data(await visitor.post(VISIT, "set", url=URL, token=TOKEN, total=100))["total"] == 100
    assert data(await visitor.post(VISIT, "update", url=URL, token=TOKEN, value=7))["total"] == 7
    assert data(await visitor.post(VISIT, "update", id=id, token=TOKEN, total=0))["total"] == 0


async def test_counters_are_created_and_read_in_batches(visitor: Visitor) -> None:
    items = [{"id": f"mine-{at}", "url": f"https://example.com/{at}"} for at in range(3)]
    made = data(await visitor.post(VISIT, "batchCreate", token=TOKEN, items=items))
    assert [one["id"] for one in made] == ["mine-0", "mine-1", "mine-2"]
    data(await visitor.post(VISIT, "increment", id="mine-1"))
    data(await visitor.post(VISIT, "set", id="mine-2", token=TOKEN, total=5))
    expected = {"mine-0": 0, "mine-1": 1, "mine-2": 5, "nobody": 0}
    assert data(await visitor.post(VISIT, "batchGet", ids=list(expected))) == expected
    assert data(await visitor.get(VISIT, "batchGet", ids="mine-2,nobody")) == {"mine-2": 5, "nobody": 0}
    assert data(await visitor.get(VISIT, "sumByPrefix", prefix="mine-")) == {"prefix": "mine-", "total": 6}


async def test_a_batch_that_is_too_large_is_refused(visitor: Visitor) -> None:
    items = [{"id": f"mine-{at}", "url": f"https://example.com/{at}"} for at in range(101)]
    too_many = await visitor.post(VISIT, "batchCreate", token=TOKEN, items=items)
    assert refused(too_many) == (400, "VALIDATION_ERROR")
    assert data(await visitor.get(VISIT, "sumByPrefix", prefix="mine-"))["total"] == 0
    ids = [f"mine-{at}" for at in range(1001)]
    assert refused(await visitor.post(VISIT, "batchGet", ids=ids)) == (400, "VALIDATION_ERROR")


# --- like buttons -------------------------------------------------------------------------------------------------


async def test_a_like_can_be_toggled(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(LIKE, icon="star")
    liked = data(await visitor.get(LIKE, "toggle", id=id))
    assert (liked["total"], liked["userLiked"], liked["icon"]) == (1, True, "star")
    assert data(await site.visitor().get(LIKE, "get", id=id))["userLiked"] is False
    back = data(await visitor.post(LIKE, "toggle", id=id))
    assert (back["total"], back["userLiked"]) == (0, False)


async def test_a_total_of_likes_never_falls_below_zero(visitor: Visitor) -> None:
    id = await visitor.create(LIKE)
    data(await visitor.post(LIKE, "toggle", id=id))
    assert data(await visitor.post(LIKE, "set", url=URL, token=TOKEN, value=0))["total"] == 0
    assert data(await visitor.post(LIKE, "toggle", id=id))["total"] == 0


async def test_an_owner_changes_total_and_icon_together(visitor: Visitor) -> None:
    await visitor.create(LIKE)
    told = data(await visitor.post(LIKE, "update", url=URL, token=TOKEN, value=9, icon="thumb"))
    assert (told["total"], told["icon"]) == (9, "thumb")
    assert data(await visitor.post(LIKE, "updateSettings", url=URL, token=TOKEN, icon="peta"))["icon"] == "peta"
    assert refused(await visitor.post(LIKE, "updateSettings", url=URL, token=TOKEN, icon="dog"))[0] == 400


async def test_like_buttons_are_created_and_read_in_batches(visitor: Visitor) -> None:
    items = [{"id": f"mine_{at}", "url": f"https://example.com/{at}"} for at in range(2)]
    data(await visitor.post(LIKE, "batchCreate", token=TOKEN, items=items))
    data(await visitor.post(LIKE, "toggle", id="mine_0"))
    assert data(await visitor.post(LIKE, "batchGet", ids=["mine_0", "mine_1"])) == {"mine_0": 1, "mine_1": 0}
    assert data(await visitor.get(LIKE, "sumByPrefix", prefix="mine"))["total"] == 1


# --- rankings -----------------------------------------------------------------------------------------------------


async def submitted(site: Running, id: str, *scores: tuple[str, int]) -> dict[str, Any]:
    """The ranking after these scores, each of another visitor."""
    told: dict[str, Any] = {}
    for name, score in scores:
        told = data(await site.visitor().post(RANKING, "submit", id=id, name=name, score=score))
    return told


async def test_a_ranking_is_ordered_by_score_then_by_time(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(RANKING, title="Best", max=3)
    told = await submitted(site, id, ("Ann", 10), ("Bob", 30), ("Cid", 30), ("Dan", 20))
    assert [(one["rank"], one["name"], one["score"]) for one in told["entries"]] == [
        (1, "Bob", 30),
        (2, "Cid", 30),
        (3, "Dan", 20),
    ]
    assert (told["title"], told["maxEntries"], told["sortOrder"], told["totalEntries"]) == ("Best", 3, "desc", 3)


async def test_ascending_rankings_have_the_lowest_first(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(RANKING, sortOrder="asc", maxEntries=2)
    told = await submitted(site, id, ("Ann", 10), ("Bob", 30), ("Cid", 20))
    assert [one["name"] for one in told["entries"]] == ["Ann", "Cid"]


async def test_a_worse_score_of_the_same_name_changes_nothing(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(RANKING)
    told = await submitted(site, id, ("Ann", 10), ("Ann", 5))
    assert [one["score"] for one in told["entries"]] == [10]
    assert told["improved"] is False


async def test_a_visitor_submits_once_a_minute(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(RANKING)
    data(await visitor.post(RANKING, "submit", id=id, name="Ann", score=1, displayScore="one"))
    soon = await visitor.post(RANKING, "submit", id=id, name="Ann", score=2)
    assert refused(soon) == (429, "COOLDOWN")
    assert 0 < soon.json()["retryAfter"] <= 60
    assert soon.headers["retry-after"] == str(soon.json()["retryAfter"])
    shown = data(await visitor.get(RANKING, "get", id=id))["entries"]
    assert shown == [{"rank": 1, "name": "Ann", "score": 1, "displayScore": "one"}]


async def test_a_submit_without_a_name_gets_a_nickname(visitor: Visitor) -> None:
    id = await visitor.create(RANKING)
    told = data(await visitor.post(RANKING, "submit", id=id, score=5))
    assert re.fullmatch(r"([A-Z][a-z]+){2}[0-9]{3}", told["entries"][0]["name"])
    assert (told["rank"], told["improved"]) == (1, True)
    assert nickname("00000000000002a1") == nickname("00000000000002a1") == "BraveOwl002"


async def test_an_owner_corrects_a_ranking(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(RANKING)
    await submitted(site, id, ("Ann", 10), ("Bob", 30))
    own = {"url": URL, "token": TOKEN}
    lowered = data(await visitor.post(RANKING, "update", **own, name="Bob", score=3))
    assert [one["name"] for one in lowered["entries"]] == ["Ann", "Bob"]
    added = data(await visitor.post(RANKING, "update", **own, name="Cid", score=99, displayScore="1:39"))
    assert added["entries"][0] == {"rank": 1, "name": "Cid", "score": 99, "displayScore": "1:39"}
    assert len(data(await visitor.post(RANKING, "remove", **own, name="Cid"))["entries"]) == 2
    assert refused(await visitor.post(RANKING, "remove", **own, name="Cid")) == (404, "NOT_FOUND")
    titled = data(await visitor.post(RANKING, "update", **own, title="New", description="Of all time", maxEntries=1))
    assert (titled["title"], titled["description"], titled["maxEntries"]) == ("New", "Of all time", 1)
    turned = data(await visitor.post(RANKING, "updateSettings", **own, sortOrder="asc", max=5))
    assert (turned["sortOrder"], turned["maxEntries"], turned["title"]) == ("asc", 5, "New")
    assert data(await visitor.post(RANKING, "clear", **own))["entries"] == []


async def test_limit_sets_the_number_of_entries(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(RANKING, max=100)
    for at in range(12):
        data(await visitor.post(RANKING, "update", url=URL, token=TOKEN, name=f"n{at}", score=at))
    assert len(data(await visitor.get(RANKING, "get", id=id))["entries"]) == 10
    told = data(await visitor.get(RANKING, "get", id=id, limit=11))
    assert (len(told["entries"]), told["totalEntries"]) == (11, 12)


# --- boards -------------------------------------------------------------------------------------------------------


async def posted(visitor: Visitor, id: str, message: str, **more: object) -> tuple[str, str]:
    """The id of the message, and the secret that changes it."""
    answer = await visitor.post(BBS, "post", id=id, message=message, **more)
    assert data(answer)["messages"][0]["message"] == message
    return answer.json()["messageId"], answer.json()["editToken"]


async def test_a_new_message_is_on_top_and_its_edit_token_is_shown_once(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS, title="Guests", enableSelects=True)
    board = data(await visitor.get(BBS, "get", id=id))
    icon, choice = board["settings"]["icons"][0], board["settings"]["selects"][1]["options"][0]
    await posted(visitor, id, "first")
    _, secret = await posted(site.visitor(), id, "second", author="Ann", icon=icon, select2=choice)
    answer = await visitor.get(BBS, "get", id=id)
    board = data(answer)
    assert [one["message"] for one in board["messages"]] == ["second", "first"]
    newest = board["messages"][0]
    assert (newest["author"], newest["icon"], list(newest["selects"].values())) == ("Ann", icon, [choice])
    assert (board["title"], board["totalMessages"], board["currentPage"]) == ("Guests", 2, 1)
    assert secret not in answer.text
    assert newest["userHash"] != secret


async def test_an_author_edits_and_deletes_a_message(visitor: Visitor) -> None:
    id = await visitor.create(BBS)
    message, secret = await posted(visitor, id, "frist")
    own = {"id": id, "messageId": message, "editToken": secret}
    edited = data(await visitor.post(BBS, "editMessageById", **own, message="first"))["messages"][0]
    assert (edited["message"], edited["id"]) == ("first", message)
    assert edited["edited"]
    again = data(await visitor.post(BBS, "update", **own, author="Ann"))["messages"][0]
    assert (again["author"], again["message"]) == ("Ann", "first")
    assert data(await visitor.post(BBS, "deleteMessageById", **own))["messages"] == []


async def test_public_message_data_does_not_authorize_edits(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS)
    message, _ = await posted(visitor, id, "mine")
    hash = data(await site.visitor().get(BBS, "get", id=id))["messages"][0]["userHash"]
    for guess in (hash, message, "", TOKEN):
        for action in ("editMessageById", "deleteMessageById", "update", "remove"):
            text = {"message": "yours"} if action in ("editMessageById", "update") else {}
            answer = await site.visitor().post(BBS, action, id=id, messageId=message, editToken=guess, **text)
            assert refused(answer)[0] in (400, 403), (action, guess)
    assert data(await visitor.get(BBS, "get", id=id))["messages"][0]["message"] == "mine"


async def test_an_owner_moderates_a_board(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS)
    own = {"url": URL, "token": TOKEN}
    ids = [(await posted(site.visitor(), id, f"message {at}"))[0] for at in range(4)]
    board = data(await visitor.post(BBS, "editMessage", **own, messageId=ids[3], message="(edited)"))
    assert board["messages"][0]["message"] == "(edited)"
    data(await visitor.post(BBS, "update", **own, messageId=ids[2], message="(edited, too)"))
    data(await visitor.post(BBS, "deleteMessage", **own, messageId=ids[0]))
    board = data(await visitor.post(BBS, "remove", **own, messageId=ids[1]))
    assert [one["message"] for one in board["messages"]] == ["(edited)", "(edited, too)"]
    assert data(await visitor.post(BBS, "clear", **own))["messages"] == []


async def test_an_owner_changes_the_settings_of_a_board(visitor: Visitor) -> None:
    await visitor.create(BBS)
    own = {"url": URL, "token": TOKEN}
    told = data(await visitor.post(BBS, "update", **own, title="New", messagesPerPage=5))["settings"]
    assert (told["title"], told["messagesPerPage"], told["maxMessages"]) == ("New", 5, 100)
    told = data(await visitor.post(BBS, "updateSettings", **own, maxMessages=50))["settings"]
    assert (told["title"], told["messagesPerPage"], told["maxMessages"]) == ("New", 5, 50)


async def test_a_board_is_paginated(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS, messagesPerPage=2)
    for at in range(5):
        await posted(site.visitor(), id, f"message {at}")
    page = data(await visitor.get(BBS, "get", id=id, page=2))
    assert [one["message"] for one in page["messages"]] == ["message 2", "message 1"]
    assert page["pagination"] == {"page": 2, "totalPages": 3, "hasPrev": True, "hasNext": True}


async def test_a_visitor_posts_once_every_ten_seconds(visitor: Visitor, clock: Clock) -> None:
    id = await visitor.create(BBS)
    await posted(visitor, id, "first")
    soon = await visitor.post(BBS, "post", id=id, message="second")
    assert refused(soon) == (429, "COOLDOWN")
    assert 0 < soon.json()["retryAfter"] <= 10


async def test_spam_is_refused_and_not_stored(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS)
    for message in ("see https://example.com", "see www.example.com", "aaaaa"):
        answer = await site.visitor().post(BBS, "post", id=id, message=message)
        assert refused(answer) == (400, "VALIDATION_ERROR"), message
    assert data(await visitor.get(BBS, "get", id=id))["totalMessages"] == 0
