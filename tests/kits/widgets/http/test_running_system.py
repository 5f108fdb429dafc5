"""Admin clean-up, welcome cards, and the limit of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from xml.etree import ElementTree

import pytest

from tests.kits.widgets.http.visiting import (
    BBS,
    LIKE,
    RANKING,
    TOKEN,
    URL,
    VISIT,
    Running,
    Visitor,
    data,
    refused,
    running,
)

CLEANUP, YOKOSO = "/api/admin/cleanup", "/api/yokoso"
ADMIN = "an-admin-token-of-the-tests"
OWN = {"x-admin-token": ADMIN}
BAD, NOT_ALLOWED = (400, "VALIDATION_ERROR"), (403, "UNAUTHORIZED")


@pytest.fixture
async def site() -> AsyncIterator[Running]:
    async with running("memory://", admin_token=ADMIN) as opened:
        yield opened


@pytest.mark.parametrize("header", [OWN, {"authorization": f"Bearer {ADMIN}"}])
@pytest.mark.parametrize("method", ["get", "post"])
async def test_an_admin_deletes_widgets_by_id(
    site: Running, visitor: Visitor, header: dict[str, str], method: str
) -> None:
    ids = {await visitor.create(path) for path in (VISIT, LIKE, RANKING, BBS)}
    ask = getattr(visitor, method)
    [id] = ids
    would = data(await visitor.post(CLEANUP, "cleanup", header, targetId=id, dryRun=True))
    told = data(await ask(CLEANUP, "cleanup", header, targetId=id))
    assert told == would
    assert told["totalDeleted"] == 4
    assert told["deletedKeys"] == [f"{name}:{id}" for name in ("counter", "like", "ranking", "bbs")]
    assert told["deletedServices"][0] == {"type": "counter", "id": id, "url": URL}
    assert [key for key in await site.keys() if id in key] == []


async def test_an_admin_deletes_by_pattern_and_idle_widgets(site: Running, visitor: Visitor) -> None:
    for number in range(3):
        await visitor.create(LIKE, f"https://spam.example/{number}")
    await visitor.create(LIKE)
    told = data(await visitor.post(CLEANUP, "cleanupByUrl", OWN, urlPattern="https://spam.example/*"))
    assert (told["totalDeleted"], len(told["foundInstances"])) == (3, 3)
    assert data(await visitor.get(CLEANUP, "autoCleanup", OWN))["totalDeleted"] == 0
    assert refused(await visitor.post(CLEANUP, "cleanupByUrl", OWN, urlPattern="*")) == BAD
    assert refused(await visitor.post(CLEANUP, "cleanup", OWN)) == BAD
    assert refused(await visitor.post(CLEANUP, "everything", OWN)) == BAD


async def test_the_admin_token_is_refused_in_a_url_and_is_no_owner_token(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    answer = await visitor.get(CLEANUP, "cleanup", targetId=id, adminToken=ADMIN)
    assert refused(answer) == BAD
    assert ADMIN not in answer.text
    for header in ({}, {"x-admin-token": "wrong-wrong-wrong-wrong"}, {"x-owner-token": ADMIN}):
        assert refused(await visitor.post(CLEANUP, "cleanup", header, targetId=id))[0] in (400, 403)
    assert refused(await visitor.post(VISIT, "delete", {"x-owner-token": ADMIN[:16]}, id=id)) == NOT_ALLOWED
    assert data(await visitor.get(VISIT, "get", id=id))["id"] == id


async def test_pages_of_other_sites_cannot_clean_up(site: Running, visitor: Visitor) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in (await visitor.http.options(CLEANUP, headers=asked)).headers
    assert "access-control-allow-origin" in (await visitor.http.options(VISIT, headers=asked)).headers


async def test_without_admin_token_the_clean_up_is_disabled() -> None:
    async with running("memory://") as site:
        answer = await site.visitor().post(CLEANUP, "autoCleanup", OWN)
        assert refused(answer) == NOT_ALLOWED
        assert "ADMIN_CLEANUP_TOKEN" in answer.json()["error"]


# --- welcome cards ------------------------------------------------------------------------------------------------


async def test_a_welcome_card_as_json_text_and_picture(visitor: Visitor) -> None:
    id = await visitor.create(YOKOSO, message="Come in <b>!", mode="badge")
    told = data(await visitor.get(YOKOSO, "get", id=id))
    assert (told["id"], told["url"], told["message"], told["mode"]) == (id, URL, "Come in <b>!", "badge")
    assert (await visitor.get(YOKOSO, "get", id=id, format="text")).text == "Come in <b>!"
    for mode, message in (("badge", "Come in <b>!"), ("card", "One\ntwo & three " + "word " * 20)):
        changed = await visitor.post(
            YOKOSO, "update", id=id, token=TOKEN, mode=mode, message=message, name="Cat", avatar="https://a.example/x"
        )
        assert data(changed)["mode"] == mode
        for theme in ("light", "dark", "retro", "kawaii", "mom", "final"):
            shown = await visitor.get(YOKOSO, "get", id=id, format="image", theme=theme, lang="en")
            assert shown.headers["content-type"] == "image/svg+xml"
            tree = ElementTree.fromstring(shown.text)
            words = " ".join(tree.itertext())
            assert ("Come in <b>!" if mode == "badge" else "two & three") in words
            assert "a.example" not in shown.text  # a picture loads nothing
    owner = data(await visitor.post(YOKOSO, "get", url=URL, token=TOKEN))
    assert owner["name"] == "Cat"
    assert (await visitor.get(YOKOSO, "display", id=id)).json()["id"] == id
    data(await visitor.post(YOKOSO, "delete", url=URL, token=TOKEN))
    assert refused(await visitor.get(YOKOSO, "get", id=id)) == (404, "NOT_FOUND")


async def test_lang_sets_the_date_format_of_a_card(visitor: Visitor) -> None:
    id = await visitor.create(YOKOSO, message="Hello", mode="card", avatar="data:image/png;base64,iVBORw0KGgo=")
    day = data(await visitor.get(YOKOSO, "get", id=id))["updatedAt"][:10]
    year, month, date = day.split("-")
    shown = (await visitor.get(YOKOSO, "get", id=id, format="image")).text
    assert f">{day}<" in shown
    assert 'href="data:image/png;base64,iVBORw0KGgo="' in shown
    assert f">{month}-{date}-{year}<" in (await visitor.get(YOKOSO, "get", id=id, format="image", lang="en")).text


async def test_an_invalid_welcome_card_is_refused(visitor: Visitor) -> None:
    for wrong in ({}, {"message": "x" * 21}, {"message": "x", "mode": "poster"}, {"message": "x", "avatar": "x"}):
        assert refused(await visitor.post(YOKOSO, "create", url=URL, token=TOKEN, **wrong)) == BAD


# --- limit of messages ----------------------------------------------------------------------------------------------


async def test_limit_sets_the_number_of_messages_of_a_board(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS, messagesPerPage=5)
    for number in range(12):
        assert (await site.visitor().post(BBS, "post", id=id, message=f"message-{number}-")).status_code == 200
    assert len(data(await visitor.get(BBS, "get", id=id, limit=12))["messages"]) == 12
    assert len(data(await visitor.post(BBS, "get", id=id, token=TOKEN, limit=7))["messages"]) == 7
    assert len(data(await visitor.get(BBS, "get", id=id))["messages"]) == 5
    for limit, lines in ((None, 3), (1, 1), (6, 6), (1000, 10)):
        asked: dict[str, str | int] = {} if limit is None else {"limit": limit}
        shown = (await visitor.get(BBS, "get", id=id, format="image", **asked)).text
        words = " ".join(ElementTree.fromstring(shown).itertext())
        assert f"message-{12 - lines}-" in words
        assert f"message-{11 - lines}-" not in words
    for wrong in (0, 1001, "x"):
        assert refused(await visitor.get(BBS, "get", id=id, limit=wrong)) == BAD
