"""JSON, text and pictures: content, caching, and errors in an `<img>`."""

from __future__ import annotations

from xml.etree import ElementTree

import httpx2
import pytest

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
    running,
)

KEPT = "public, max-age=60"


def picture(answer: httpx2.Response, kept: str = KEPT) -> str:
    """The words of a picture, which is well-formed."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["cache-control"] == kept
    return " ".join(ElementTree.fromstring(answer.text).itertext())


def text(answer: httpx2.Response, kept: str = KEPT) -> str:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == kept
    return answer.text


async def test_a_counter_is_a_picture_by_default(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    data(await visitor.post(VISIT, "set", id=id, token=TOKEN, total=42))
    assert "42" in picture(await visitor.get(VISIT, "display", id=id))
    assert "000042" in picture(await visitor.get(VISIT, "display", id=id, digits=6, theme="kawaii"))
    assert "visitors" in picture(await visitor.get(VISIT, "display", id=id, theme="github"))
    assert text(await visitor.get(VISIT, "display", id=id, format="text")) == "42"
    assert text(await visitor.get(VISIT, "display", id=id, format="text", type="today")) == "0"
    assert text(await visitor.get(VISIT, "get", id=id, format="text"), "no-store") == "42"


async def test_display_as_json_is_the_bare_data(visitor: Visitor) -> None:
    for path in PATHS:
        id = await visitor.create(path)
        answer = await visitor.get(path, "display", id=id, format="json")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert (answer.json()["id"], answer.json()["url"]) == (id, URL)
        assert "success" not in answer.json()


async def test_a_picture_or_a_script_can_count_a_visit(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    assert "Visits: 1" in picture(await visitor.get(VISIT, "increment", id=id, format="image"), "no-store")
    assert text(await site.visitor().get(VISIT, "increment", id=id, format="text"), "no-store") == "2"
    shown = await site.visitor().get(VISIT, "increment", id=id, format="text", type="yesterday")
    assert text(shown, "no-store") == "0"


async def test_a_missing_counter_or_like_button_shows_zero(visitor: Visitor) -> None:
    for path in (VISIT, LIKE):
        for action, kept in (("display", KEPT), ("get", "no-store")):
            shown = await visitor.get(path, action, id="nobody-00000000", format="image")
            assert ": 0" in picture(shown, kept)
            assert text(await visitor.get(path, action, id="nobody-00000000", format="text"), kept) == "0"


async def test_a_public_picture_does_not_reveal_who_likes_the_page(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(LIKE, icon="star")
    data(await visitor.post(LIKE, "toggle", id=id))
    stranger = site.visitor()
    mine, theirs = [await who.get(LIKE, "display", id=id, format="image") for who in (visitor, stranger)]
    assert "Likes: 1" in picture(mine)
    assert mine.text == theirs.text
    own, other = [await who.get(LIKE, "get", id=id, format="image") for who in (visitor, stranger)]
    assert picture(own, "no-store") == picture(other, "no-store")
    assert own.text != other.text
    assert text(await visitor.get(LIKE, "display", id=id, format="text")) == "1"


async def test_a_ranking_as_text_and_picture(visitor: Visitor) -> None:
    id = await visitor.create(RANKING, title="Best", max=10)
    for at in range(7):
        await visitor.post(RANKING, "update", url=URL, token=TOKEN, name=f"n{at}", score=at, displayScore=f"{at} pt")
    lines = text(await visitor.get(RANKING, "display", id=id, format="text", limit=3)).splitlines()
    assert lines == ["1\tn6\t6 pt", "2\tn5\t5 pt", "3\tn4\t4 pt"]
    shown = picture(await visitor.get(RANKING, "display", id=id, format="image", theme="mom"))
    assert "Best" in shown
    assert "n2" in shown
    assert "n1" not in shown
    assert picture(await visitor.get(RANKING, "get", id=id, format="image"), "no-store")


async def test_a_board_as_text_and_picture(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS, title="Guests")
    for at in range(4):
        data(await site.visitor().post(BBS, "post", id=id, message=f"m{at}\nand more", author="Ann"))
    lines = text(await visitor.get(BBS, "display", id=id, format="text")).splitlines()
    assert [line.split("\t")[1:] for line in lines] == [["Ann", f"m{at} and more"] for at in (3, 2, 1, 0)]
    shown = picture(await visitor.get(BBS, "display", id=id, format="image"))
    assert "Guests" in shown
    assert "m1" in shown
    assert "m0" not in shown


async def test_names_and_messages_cannot_inject_into_a_picture(site: Running, visitor: Visitor) -> None:
    id = await visitor.create(BBS, title="</text><script>alert(1)</script>")
    data(await visitor.post(BBS, "post", id=id, message="<script>alert(2)</script>", author="<img onerror=x>"))
    answer = await site.visitor().get(BBS, "display", id=id, format="image")
    assert "<script" not in answer.text
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(answer.text).iter()}
    assert tags <= {"svg", "title", "defs", "pattern", "linearGradient", "stop", "rect", "path", "text", "circle"}


@pytest.mark.parametrize(
    "query",
    [
        "digits=0",
        "digits=11",
        "digits=NaN",
        "theme=pink",
        "type=year",
        "format=interactive",
        "colour=red",
        "theme=dark&theme=dark",
        "id=no%20id",
    ],
)
async def test_an_invalid_image_request_gets_an_error_picture(visitor: Visitor, query: str) -> None:
    id = "" if query.startswith("id=") else "&id=example-a1b2c3d4"
    answer = await visitor.http.get(f"{VISIT}?action=display{id}&{query}")
    assert picture(answer, "no-store") == "Error Error"


async def test_an_invalid_text_request_gets_an_error_as_text(visitor: Visitor) -> None:
    answer = await visitor.get(VISIT, "display", id="example-a1b2c3d4", format="text", digits="x")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "digits must be a whole number from 1 to 10\n"
    gone = await visitor.get(VISIT, "increment", id="nobody-00000000", format="text")
    assert (gone.status_code, gone.headers["cache-control"]) == (404, "no-store")


async def test_an_invalid_format_is_refused(visitor: Visitor) -> None:
    for path in (LIKE, RANKING, BBS):
        answer = await visitor.get(path, "display", id="example-a1b2c3d4", format="interactive")
        assert (answer.status_code, answer.json()["field"]) == (400, "format")


async def test_a_rate_limit_error_has_the_requested_format() -> None:
    async with running("memory://", limits={"read": 1}) as site:
        visitor = site.visitor()
        picture(await visitor.get(VISIT, "display", id="example-a1b2c3d4"))
        for format, kind in (("image", "image/svg+xml"), ("text", "text/plain; charset=utf-8")):
            answer = await visitor.get(VISIT, "display", id="example-a1b2c3d4", format=format)
            assert (answer.status_code, answer.headers["content-type"]) == (429, kind)
            assert 0 < int(answer.headers["retry-after"]) <= 60
            assert answer.headers["cache-control"] == "no-store"
