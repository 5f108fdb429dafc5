"""Invalid requests: the documented error, which names the parameter, and nothing stored."""

from __future__ import annotations

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
    refused,
)

JSON = {"content-type": "application/json"}
BAD = (400, "VALIDATION_ERROR")
NO_NUMBERS = (
    "NaN",
    "-0",
    "+1",
    "1e5",
    "٣",
    " 3",
    "3 ",
    "03",
    "1.0",
    "",
    "Infinity",
    "0x1",
    "1_000",
    "-1",
    "1000000000",
)


@pytest.mark.parametrize("path", PATHS)
async def test_an_unknown_action_error_lists_the_actions(visitor: Visitor, path: str) -> None:
    for answer in (
        await visitor.get(path, "frobnicate"),
        await visitor.post(path, "frobnicate"),
        await visitor.http.get(path),
        await visitor.http.post(path, json={}),
        await visitor.http.post(path, json={"action": 5}),
    ):
        assert refused(answer) == BAD
    assert "updateSettings" in (await visitor.get(path, "frobnicate")).json()["error"]


@pytest.mark.parametrize("path", PATHS)
async def test_an_unknown_parameter_is_refused_by_name(visitor: Visitor, path: str) -> None:
    id = await visitor.create(path)
    for answer in (
        await visitor.get(path, "get", id=id, colour="red"),
        await visitor.post(path, "get", id=id, colour=1),
    ):
        assert refused(answer) == BAD
        assert answer.json()["field"] == "colour"
        assert "'colour'" in answer.json()["error"]


async def test_a_misspelt_option_creates_no_widget(site: Running, visitor: Visitor) -> None:
    answer = await visitor.post(BBS, "create", url=URL, token=TOKEN, enableIcon=False)
    assert refused(answer) == BAD
    assert await widgets_in(site) == []


async def widgets_in(site: Running) -> list[str]:
    """The keys of widgets, without those of the server."""
    return [key for key in await site.keys() if key.startswith(("url:", "counter", "like", "ranking", "bbs"))]


@pytest.mark.parametrize(
    "query",
    [
        "action=get&id=a&id=b",
        "action=get&id=a&id=a",
        "action=get&action=get&id=a",
        "action=increment&id=a&theme=dark&theme=light",
    ],
)
async def test_a_repeated_parameter_is_refused(visitor: Visitor, query: str) -> None:
    answer = await visitor.http.get(f"{VISIT}?{query}")
    assert refused(answer) == BAD
    assert "twice" in answer.json()["error"]


async def test_a_repeated_name_in_json_is_refused(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    body = f'{{"action": "set", "id": "{id}", "token": "{TOKEN}", "total": 1, "total": 2}}'
    answer = await visitor.http.post(VISIT, content=body, headers=JSON)
    assert refused(answer) == BAD
    assert "twice" in answer.json()["error"]
    assert data(await visitor.get(VISIT, "get", id=id))["total"] == 0


async def test_two_names_of_one_parameter_count_as_repeated(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    answer = await visitor.post(VISIT, "set", id=id, token=TOKEN, total=1, value=1)
    assert refused(answer) == BAD
    assert "twice" in answer.json()["error"]


@pytest.mark.parametrize("number", NO_NUMBERS)
async def test_an_invalid_number_in_a_query_is_refused(visitor: Visitor, number: str) -> None:
    id = await visitor.create(RANKING)
    answer = await visitor.get(RANKING, "submit", id=id, name="Ann", score=number)
    assert refused(answer) == BAD
    assert answer.json()["field"] == "score"
    assert data(await visitor.get(RANKING, "get", id=id))["entries"] == []
    # And no mark is left of the attempt: the next one is not too soon.
    assert data(await visitor.get(RANKING, "submit", id=id, name="Ann", score=999_999_999))["entries"]


@pytest.mark.parametrize(
    "number",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "-0",
        "-0.0",
        "1.0",
        "1e5",
        "-1",
        "1" + "0" * 9,
        '"5"',
        "true",
        "null",
        "9" * 5000,
    ],
)
async def test_an_invalid_number_in_json_is_refused(visitor: Visitor, number: str) -> None:
    id = await visitor.create(VISIT)
    for action in ("set", "update"):
        body = f'{{"action": "{action}", "id": "{id}", "token": "{TOKEN}", "total": {number}}}'
        assert refused(await visitor.http.post(VISIT, content=body, headers=JSON)) == BAD
    assert data(await visitor.get(VISIT, "get", id=id))["total"] == 0


async def test_the_largest_number_is_accepted_and_larger_ones_are_refused(visitor: Visitor) -> None:
    await visitor.create(VISIT)
    await visitor.create(LIKE)
    most = 999_999_999
    assert data(await visitor.post(VISIT, "set", url=URL, token=TOKEN, total=most))["total"] == most
    assert refused(await visitor.post(VISIT, "set", url=URL, token=TOKEN, total=most + 1)) == BAD
    assert refused(await visitor.post(LIKE, "set", url=URL, token=TOKEN, value=most + 1)) == BAD


@pytest.mark.parametrize("said", ["yes", "1", "0", "True", "FALSE", ""])
async def test_a_boolean_is_true_or_false(site: Running, visitor: Visitor, said: str) -> None:
    answer = await visitor.get(BBS, "create", {"x-owner-token": TOKEN}, url=URL, enableIcons=said)
    assert refused(answer) == BAD
    assert answer.json()["field"] == "enableIcons"
    assert await widgets_in(site) == []


async def test_false_disables_an_option(visitor: Visitor) -> None:
    owner = {"x-owner-token": TOKEN}
    id = data(await visitor.get(BBS, "create", owner, url=URL, enableIcons="false", enableSelects="true"))["id"]
    settings = data(await visitor.get(BBS, "get", id=id))["settings"]
    assert "icons" not in settings
    assert len(settings["selects"]) == 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (VISIT, {"url": "http://example.com"}),
        (VISIT, {"url": "javascript:alert(1)"}),
        (VISIT, {"url": "https://example.com/" + "a" * 10_000}),
        (VISIT, {"url": 5}),
        (VISIT, {"token": "short"}),
        (VISIT, {"token": "x" * 17}),
        (VISIT, {"id": "no spaces"}),
        (VISIT, {"id": "x" * 129}),
        (LIKE, {"icon": "dog"}),
        (RANKING, {"title": "x" * 51}),
        (RANKING, {"max": 0}),
        (RANKING, {"max": 10_001}),
        (RANKING, {"sortOrder": "up"}),
        (BBS, {"title": "x" * 101}),
        (BBS, {"messagesPerPage": 101}),
        (BBS, {"max": 10_001}),
        (BBS, {"enableSelects": 1}),
    ],
)
async def test_invalid_widgets_are_not_created(
    site: Running, visitor: Visitor, path: str, body: dict[str, object]
) -> None:
    answer = await visitor.post(path, "create", **{"url": URL, "token": TOKEN, **body})
    assert refused(answer) == BAD
    assert answer.json()["field"] == next(iter(body))
    assert await widgets_in(site) == []


@pytest.mark.parametrize(
    ("path", "action", "body"),
    [
        (RANKING, "submit", {"name": "x" * 10_000, "score": 1}),
        (RANKING, "submit", {"name": "x" * 51, "score": 1}),
        (RANKING, "submit", {"name": "", "score": 1}),
        (RANKING, "submit", {"name": " \n ", "score": 1}),
        (RANKING, "submit", {"name": "Ann", "score": 1, "displayScore": "x" * 101}),
        (RANKING, "submit", {"name": "Ann"}),
        (RANKING, "submit", {}),
        (BBS, "post", {"message": "ab" * 101}),
        (BBS, "post", {"message": ""}),
        (BBS, "post", {"message": "hello", "author": "abc" * 7}),
        (BBS, "post", {"message": "hello", "icon": "no icon"}),
        (BBS, "post", {"message": "a\x00b"}),
        (BBS, "post", {"message": ["hello"]}),
    ],
)
async def test_invalid_text_stores_nothing(
    site: Running, visitor: Visitor, path: str, action: str, body: dict[str, object]
) -> None:
    id = await visitor.create(path)
    before = await widgets_in(site)
    assert refused(await visitor.post(path, action, id=id, **body)) == BAD
    assert await widgets_in(site) == before


async def test_a_lone_surrogate_is_refused(visitor: Visitor) -> None:
    id = await visitor.create(BBS)
    for body in (
        f'{{"action": "post", "id": "{id}", "message": "\\ud800"}}',
        f'{{"action": "post", "id": "{id}", "message": "hello", "\\ud800": 1}}',
        '{"action": "\\ud800"}',
    ):
        assert refused(await visitor.http.post(BBS, content=body, headers=JSON)) == BAD


@pytest.mark.parametrize("text", ["👩‍👩‍👧‍👦🏳️‍🌈", "مرحبا بالعالم", "שלום", "日本語の名前", "a <b>&\"' name", "Ünïcödé"])
async def test_text_in_any_script_is_stored_unchanged(visitor: Visitor, site: Running, text: str) -> None:
    ranking = await visitor.create(RANKING)
    by_post = data(await visitor.post(RANKING, "submit", id=ranking, name=text, score=1))
    assert by_post["entries"][0]["name"] == text
    by_get = data(await site.visitor().get(RANKING, "submit", id=ranking, name=text, score=2))
    assert [(one["name"], one["score"]) for one in by_get["entries"]] == [(text, 2)]
    board = await visitor.create(BBS)
    told = data(await visitor.post(BBS, "post", id=board, message=text, author=text[:20]))
    assert told["messages"][0]["message"] == text


@pytest.mark.parametrize(
    "query", ["action=get&id=%FF", "action=get&id=%C3%28", "&".join(f"a{at}=1" for at in range(60))]
)
async def test_an_invalid_query_is_refused(visitor: Visitor, query: str) -> None:
    assert refused(await visitor.http.get(f"{VISIT}?{query}")) == BAD


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"\xff", "application/json"),
        (b"", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"action": "create"}', "text/plain"),
        (b"action=create", "application/x-www-form-urlencoded"),
    ],
)
async def test_a_body_must_be_a_json_object(visitor: Visitor, content: bytes, kind: str) -> None:
    answer = await visitor.http.post(VISIT, content=content, headers={"content-type": kind})
    assert refused(answer) == BAD


async def test_a_post_takes_parameters_from_the_body_only(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    answer = await visitor.http.post(f"{VISIT}?action=increment&id={id}", json={})
    assert refused(answer) == BAD
    assert data(await visitor.get(VISIT, "get", id=id))["total"] == 0


async def test_parameters_of_another_call_are_refused(visitor: Visitor) -> None:
    id = await visitor.create(RANKING)
    answer = await visitor.post(RANKING, "update", id=id, token=TOKEN, name="Ann", score=1, title="New")
    assert refused(answer) == BAD
    assert answer.json()["field"] == "title"
    assert data(await visitor.get(RANKING, "get", id=id))["entries"] == []


async def test_url_and_id_together_are_refused(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    assert refused(await visitor.post(VISIT, "delete", url=URL, id=id, token=TOKEN)) == BAD
    assert refused(await visitor.post(VISIT, "delete", token=TOKEN)) == BAD
    assert data(await visitor.get(VISIT, "get", id=id))["id"] == id


@pytest.mark.parametrize("path", PATHS)
async def test_a_missing_widget_is_not_found(visitor: Visitor, path: str) -> None:
    assert refused(await visitor.get(path, "get", id="nobody-00000000")) == (404, "NOT_FOUND")
    assert refused(await visitor.post(path, "delete", url=URL, token=TOKEN)) == (404, "NOT_FOUND")
