"""Tokens: where they may come from, and where they never turn up."""

from __future__ import annotations

import logging

import pytest

from tests.kits.widgets.http.visiting import BBS, PATHS, TOKEN, URL, VISIT, Running, Visitor, data, refused, running

BAD = (400, "VALIDATION_ERROR")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [{"x-owner-token": TOKEN}, {"authorization": f"Bearer {TOKEN}"}, {"authorization": f"bearer  {TOKEN} "}],
    ids=["own", "bearer", "loose"],
)
async def test_an_owner_shows_the_token_in_a_header(visitor: Visitor, path: str, headers: dict[str, str]) -> None:
    id = data(await visitor.post(path, "create", headers, url=URL))["id"]
    assert data(await visitor.get(path, "updateSettings", headers, url=URL))["id"] == id
    assert data(await visitor.post(path, "delete", headers, id=id))["id"] == id


@pytest.mark.parametrize("path", PATHS)
async def test_a_token_in_an_address_is_refused_with_the_way_to_send_it(
    site: Running, visitor: Visitor, path: str
) -> None:
    answer = await visitor.get(path, "create", url=URL, token=TOKEN)
    assert refused(answer) == BAD
    assert "x-owner-token" in answer.json()["error"].lower()
    assert TOKEN not in answer.text
    assert [key for key in await site.keys() if key.startswith("url:")] == []
    id = await visitor.create(path)
    assert refused(await visitor.get(path, "delete", url=URL, token=TOKEN)) == BAD
    assert data(await visitor.get(path, "get", id=id))["id"] == id


async def test_an_edit_token_in_an_address_is_refused_and_in_a_header_taken(visitor: Visitor) -> None:
    id = await visitor.create(BBS)
    told = (await visitor.post(BBS, "post", id=id, message="hello")).json()
    message, secret = told["messageId"], told["editToken"]
    in_address = await visitor.get(BBS, "deleteMessageById", id=id, messageId=message, editToken=secret)
    assert refused(in_address) == BAD
    assert secret not in in_address.text
    header = {"x-edit-token": secret}
    assert data(await visitor.get(BBS, "update", header, id=id, messageId=message, message="hi"))["messages"]
    assert data(await visitor.get(BBS, "deleteMessageById", header, id=id, messageId=message))["messages"] == []


async def test_tokens_in_addresses_are_taken_where_the_settings_say_so() -> None:
    async with running("memory://", tokens_in_urls=True) as site:
        visitor = site.visitor()
        id = data(await visitor.get(VISIT, "create", url=URL, token=TOKEN))["id"]
        assert data(await visitor.get(VISIT, "set", url=URL, token=TOKEN, total=3))["total"] == 3
        assert data(await visitor.get(VISIT, "delete", url=URL, token=TOKEN))["id"] == id


async def test_two_tokens_that_differ_are_refused(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    answer = await visitor.post(VISIT, "delete", {"x-owner-token": "another-token"}, url=URL, token=TOKEN)
    assert refused(answer) == BAD
    assert data(await visitor.get(VISIT, "get", id=id))["id"] == id
    assert data(await visitor.post(VISIT, "delete", {"x-owner-token": TOKEN}, url=URL, token=TOKEN))["id"] == id


async def test_a_password_of_a_proxy_is_no_token(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    assert data(await visitor.post(VISIT, "set", {"authorization": "Basic eDp5"}, id=id, token=TOKEN, total=1))
    assert refused(await visitor.post(VISIT, "set", {"authorization": "Basic eDp5"}, id=id, total=1)) == BAD


@pytest.mark.parametrize("token", ["ünïcödé-töken", "トークントークン", "a b c d e f", "🔑🔑🔑🔑🔑🔑🔑🔑"])
async def test_a_token_is_any_text(visitor: Visitor, token: str) -> None:
    id = data(await visitor.post(VISIT, "create", url=URL, token=token))["id"]
    answer = await visitor.http.post(
        VISIT, json={"action": "delete", "id": id}, headers=[(b"x-owner-token", token.encode())]
    )
    assert data(answer)["id"] == id


async def test_no_secret_is_stored_or_logged_or_told_again(
    site: Running, visitor: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = []
    for path in PATHS:
        answers.append(await visitor.post(path, "create", url=URL, token=TOKEN))
        answers.append(await visitor.post(path, "delete", url=URL, token="not-the-token"))
        answers.append(await visitor.get(path, "create", url=URL, token="in-the-address"))
    id = answers[0].json()["data"]["id"]
    posted = await visitor.post(BBS, "post", id=id, message="hello")
    secret = posted.json()["editToken"]
    for query in ({"editToken": secret}, {"editToken": "not-the-secret"}):
        answers.append(await visitor.get(BBS, "deleteMessageById", id=id, messageId="m", **query))
        answers.append(await visitor.post(BBS, "update", id=id, messageId="m", message="x", **query))
    answers.append(await visitor.get(BBS, "get", id=id))
    told = "\n".join(answer.text for answer in answers)
    stored = await site.everything()
    logged = "\n".join(str(vars(record)) for record in caplog.records if record.name.startswith("keystead"))
    assert VISIT in logged
    for hidden in (TOKEN, secret, "not-the-token", "not-the-secret", "in-the-address"):
        assert hidden not in told
        assert hidden not in stored
        assert hidden not in logged


async def test_whoever_guesses_tokens_is_held_up() -> None:
    async with running("memory://", limits={"owner": 3, "create": 0, "read": 0, "write": 0, "post": 0}) as site:
        owner, guesser = site.visitor(), site.visitor()
        await owner.create(VISIT)
        for guess in ("guess-01", "guess-02", "guess-03"):
            answer = await guesser.post(VISIT, "delete", url=URL, token=guess)
            assert refused(answer) == (403, "UNAUTHORIZED")
        held = await guesser.post(VISIT, "delete", url=URL, token=TOKEN)
        assert refused(held) == (429, "RATE_LIMITED")
        assert held.headers["retry-after"] == str(held.json()["retryAfter"])
        assert data(await owner.post(VISIT, "delete", url=URL, token=TOKEN))["id"]
