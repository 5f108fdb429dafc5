"""Tokens: where they are accepted, and where they never appear."""

from __future__ import annotations

import logging
import time

import pytest

from tests.kits.widgets.http.visiting import (
    BBS,
    LIKE,
    PATHS,
    TOKEN,
    URL,
    VISIT,
    Running,
    Visitor,
    data,
    refused,
    running,
)

BAD = (400, "VALIDATION_ERROR")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [{"x-owner-token": TOKEN}, {"authorization": f"Bearer {TOKEN}"}, {"authorization": f"bearer  {TOKEN} "}],
    ids=["own", "bearer", "loose"],
)
async def test_the_owner_token_can_come_in_a_header(visitor: Visitor, path: str, headers: dict[str, str]) -> None:
    id = data(await visitor.post(path, "create", headers, url=URL))["id"]
    assert data(await visitor.get(path, "updateSettings", headers, url=URL))["id"] == id
    assert data(await visitor.post(path, "delete", headers, id=id))["id"] == id


@pytest.mark.parametrize("path", PATHS)
async def test_a_token_in_a_url_is_refused_with_a_hint(site: Running, visitor: Visitor, path: str) -> None:
    answer = await visitor.get(path, "create", url=URL, token=TOKEN)
    assert refused(answer) == BAD
    assert "x-owner-token" in answer.json()["error"].lower()
    assert TOKEN not in answer.text
    assert [key for key in await site.keys() if key.startswith("url:")] == []
    id = await visitor.create(path)
    assert refused(await visitor.get(path, "delete", url=URL, token=TOKEN)) == BAD
    assert data(await visitor.get(path, "get", id=id))["id"] == id


async def test_an_edit_token_is_refused_in_a_url_and_accepted_in_a_header(visitor: Visitor) -> None:
    id = await visitor.create(BBS)
    told = (await visitor.post(BBS, "post", id=id, message="hello")).json()
    message, secret = told["messageId"], told["editToken"]
    in_address = await visitor.get(BBS, "deleteMessageById", id=id, messageId=message, editToken=secret)
    assert refused(in_address) == BAD
    assert secret not in in_address.text
    header = {"x-edit-token": secret}
    assert data(await visitor.get(BBS, "update", header, id=id, messageId=message, message="hi"))["messages"]
    assert data(await visitor.get(BBS, "deleteMessageById", header, id=id, messageId=message))["messages"] == []


async def test_tokens_in_urls_are_accepted_with_the_setting() -> None:
    async with running("memory://", tokens_in_urls=True) as site:
        visitor = site.visitor()
        id = data(await visitor.get(VISIT, "create", url=URL, token=TOKEN))["id"]
        assert data(await visitor.get(VISIT, "set", url=URL, token=TOKEN, total=3))["total"] == 3
        assert data(await visitor.get(VISIT, "delete", url=URL, token=TOKEN))["id"] == id


async def test_two_different_tokens_are_refused(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    answer = await visitor.post(VISIT, "delete", {"x-owner-token": "another-token"}, url=URL, token=TOKEN)
    assert refused(answer) == BAD
    assert data(await visitor.get(VISIT, "get", id=id))["id"] == id
    assert data(await visitor.post(VISIT, "delete", {"x-owner-token": TOKEN}, url=URL, token=TOKEN))["id"] == id


@pytest.mark.parametrize(
    "headers",
    [
        [("x-owner-token", TOKEN), ("authorization", "Bearer another-token")],
        [("x-owner-token", "another-token"), ("authorization", f"Bearer {TOKEN}")],
        [("x-owner-token", TOKEN), ("x-owner-token", "another-token")],
        [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer another-token")],
    ],
    ids=["own and bearer", "bearer and own", "own twice", "bearer twice"],
)
async def test_two_headers_with_different_tokens_are_refused(visitor: Visitor, headers: list[tuple[str, str]]) -> None:
    id = await visitor.create(VISIT)
    body = {"action": "delete", "id": id}
    assert refused(await visitor.http.post(VISIT, json=body, headers=headers)) == BAD
    assert data(await visitor.get(VISIT, "get", id=id))["id"] == id
    same = [(name, value.replace("another-token", TOKEN)) for name, value in headers]
    assert data(await visitor.http.post(VISIT, json=body, headers=same))["id"] == id


@pytest.mark.parametrize("path", PATHS)
async def test_a_forwarded_bearer_token_does_not_block_reads(visitor: Visitor, path: str) -> None:
    hook = "https://hooks.example.com/secret"
    id = data(await visitor.post(path, "create", url=URL, token=TOKEN, webhookUrl=hook))["id"]
    for bearer in ("a-token-of-the-gateway", "12345678", TOKEN):
        foreign = {"authorization": f"Bearer {bearer}"}
        shown = data(await visitor.get(path, "get", foreign, id=id))
        assert shown["id"] == id
        assert "webhookUrl" not in shown
        assert data(await visitor.post(path, "get", foreign, id=id, token=TOKEN))["webhookUrl"] == hook
        assert data(await visitor.get(path, "get", foreign | {"x-owner-token": TOKEN}, id=id))["webhookUrl"] == hook


async def test_reads_with_a_forwarded_bearer_token_are_no_guesses() -> None:
    async with running("memory://", limits={"owner": 1, "create": 0, "read": 0, "write": 0, "post": 0}) as site:
        visitor = site.visitor()
        id = await visitor.create(LIKE)
        for _ in range(3):
            assert data(await visitor.get(LIKE, "get", {"authorization": "Bearer not-ours"}, id=id))["id"] == id


@pytest.mark.parametrize("spaces", [b" ", b"\t", b"\xc2\xa0", b" \xc2\xa0"], ids=["space", "tab", "hard", "both"])
async def test_a_long_header_is_parsed_in_linear_time(visitor: Visitor, spaces: bytes) -> None:
    """60 KB, as much as a server accepts. Quadratic parsing would take minutes."""
    id = await visitor.create(VISIT)
    blank = (spaces * 60_000)[:60_000] + b"\xc2\xa0"
    began = time.thread_time()
    for action in ("get", "delete"):
        headers = [(b"authorization", b"bearer " + blank), (b"x-owner-token", blank)]
        await visitor.http.get(VISIT, params={"action": action, "id": id}, headers=headers)
        await visitor.http.get(VISIT, params={"action": action, "id": id}, headers=headers[:1])
    assert time.thread_time() - began < 2
    assert data(await visitor.get(VISIT, "get", id=id))["id"] == id


async def test_basic_authorization_is_not_a_token(visitor: Visitor) -> None:
    id = await visitor.create(VISIT)
    assert data(await visitor.post(VISIT, "set", {"authorization": "Basic eDp5"}, id=id, token=TOKEN, total=1))
    assert refused(await visitor.post(VISIT, "set", {"authorization": "Basic eDp5"}, id=id, total=1)) == BAD


@pytest.mark.parametrize("token", ["ünïcödé-töken", "トークントークン", "a b c d e f", "🔑🔑🔑🔑🔑🔑🔑🔑"])
async def test_a_token_can_be_any_text(visitor: Visitor, token: str) -> None:
    id = data(await visitor.post(VISIT, "create", url=URL, token=token))["id"]
    answer = await visitor.http.post(
        VISIT, json={"action": "delete", "id": id}, headers=[(b"x-owner-token", token.encode())]
    )
    assert data(answer)["id"] == id


async def test_no_secret_is_stored_logged_or_shown_again(
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


async def test_token_guesses_are_rate_limited() -> None:
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
