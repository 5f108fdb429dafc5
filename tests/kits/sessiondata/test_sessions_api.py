"""The Sessions API: the answers, status codes and shapes of the document, and nothing stored where it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from keystead.kits.sessiondata import KIT, SessionData
from keystead.server import Settings, create_app
from keystead.testing import servers
from tests.kits.conftest import Raw
from tests.kits.sharing.visiting import BASE, RING_TEXT, Clock

KEY = {"SessionKey": "My_Key"}
VALUE = {**KEY, "SessionValue": "x"}


class Client:
    """A program with an API key of user 42."""

    def __init__(self, app: Any, token: str) -> None:
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)
        self.token = token
        self.raw = Raw(app.state.stores["default"])

    async def ask(self, verb: str, **body: object) -> httpx2.Response:
        return await self.http.post(f"/api/Sessions/{verb}", json={"ApiKey": self.token, **body})


@asynccontextmanager
async def running(store: str = "memory://", **table: Any) -> AsyncIterator[Client]:
    app = create_app(
        Settings(
            store=store,
            seal_keys=RING_TEXT,
            kits=("sessiondata",),
            metrics=False,
            tables={"sessiondata": table},
            public_url=BASE,
        ),
        [KIT],
        now_ms=Clock(),
    )
    async with app.router.lifespan_context(app):
        data: SessionData = app.state.kits["sessiondata"].data
        yield Client(app, (await data.api_keys.issue(42, "a test")).token)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with running() as opened:
        yield opened


async def test_per_user_a_value_is_set_read_and_deleted(client: Client) -> None:
    answer = await client.ask("Set", ApiVersion=1.1, SavePerUser=True, **VALUE)
    assert answer.status_code == 200
    assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 42, "Key": "My_Key"}}
    assert answer.headers["content-type"] == "application/json;charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert await client.raw.ask("HGETALL", "@42") == {b"User_My%5FKey": b"x"}
    answer = await client.ask("Get", SavePerUser=True, **KEY)
    assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 42, "Key": "My_Key", "Value": "x"}}
    answer = await client.ask("Delete", SavePerUser=True, **KEY)
    assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 42, "Key": "My_Key"}}
    for verb in ("Get", "Delete"):
        assert (await client.ask(verb, SavePerUser=True, **KEY)).status_code == 404


async def test_a_client_without_cookies_is_told_its_session_and_can_use_it(client: Client) -> None:
    told = (await client.ask("Set", **VALUE)).json()["Response"]
    client.http.cookies.clear()
    assert set(told) == {"UserId", "Key", "SessionGuid"}
    guid = told["SessionGuid"]
    assert (await client.ask("Get", **KEY)).status_code == 404  # of no session
    assert (await client.ask("Get", SessionGuid=guid, **KEY)).json()["Response"]["Value"] == "x"
    again = (await client.ask("Set", SessionGuid=guid, SessionKey="Other", SessionValue="y")).json()["Response"]
    assert again == {"UserId": 42, "Key": "Other"}  # the same session
    assert (await client.ask("Delete", SessionGuid=guid, **KEY)).status_code == 200
    assert (await client.ask("Get", SessionGuid=guid, SessionKey="Other")).json()["Response"]["Value"] == "y"
    assert (await client.ask("Get", SavePerUser=True, SessionKey="Other")).status_code == 404


async def test_a_client_with_cookies_stays_in_its_session(client: Client) -> None:
    answer = await client.ask("Set", **VALUE)
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert (await client.ask("Get", **KEY)).json()["Response"]["Value"] == "x"
    answer = await client.ask("Set", SessionKey="Other", SessionValue="y")
    assert "set-cookie" not in answer.headers


async def test_nobody_chooses_the_id_of_a_session(client: Client) -> None:
    told = (await client.ask("Set", SessionGuid="attackerchosenid", **VALUE)).json()["Response"]
    assert told["SessionGuid"] != "attackerchosenid"
    client.http.cookies.clear()
    assert (await client.ask("Get", SessionGuid="attackerchosenid", **KEY)).status_code == 404


@pytest.mark.parametrize("path", ["/api/sessions/set", "/API/SESSIONS/SET", "/api/Sessions/Set"])
async def test_the_path_is_the_same_in_capitals_and_small_letters(client: Client, path: str) -> None:
    answer = await client.http.post(path, json={"ApiKey": client.token, "SavePerUser": True, **VALUE})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("Set", {"SessionKey": "a", "SessionValue": ""}, 400),
        ("Set", {"SessionKey": "a"}, 400),
        ("Set", {"SessionValue": "x"}, 400),
        ("Get", {"SessionKey": ""}, 400),
        ("Delete", {}, 400),
        ("Set", {"SessionKey": 7, "SessionValue": "x"}, 400),
        ("Set", {"SessionKey": "a", "SessionValue": {"b": 1}}, 400),
        ("Set", {"SessionKey": "a", "SessionValue": "x", "SavePerUser": "yes"}, 400),
        ("Set", {"SessionKey": "a", "SessionValue": "\ud800"}, 400),
        ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiKey": ""}, 401),
        ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiKey": "ks_0000000000000000_" + "A" * 43}, 401),
        ("Get", {"SessionKey": "a"}, 404),
        ("Delete", {"SessionKey": "a"}, 404),
        ("Set", {"SessionKey": "a" * 257, "SessionValue": "x"}, 422),
        ("Set", {"SessionKey": "a", "SessionValue": "x" * 2**20}, 422),
    ],
    ids=lambda value: str(value)[:60],
)
@pytest.mark.parametrize("per_user", [True, False])
async def test_a_refusal_has_its_status_and_shape_and_nothing_is_stored(
    client: Client, verb: str, body: dict[str, Any], status: int, per_user: bool
) -> None:
    before = await client.raw.everything()
    answer = await client.http.post(
        f"/api/Sessions/{verb}",
        content=_json({"ApiKey": client.token, "SavePerUser": per_user, **body}),
    )
    told = answer.json()
    assert (answer.status_code, told["StatusCode"], told["Id"]) == (status, status, 0)
    assert set(told) == {"Id", "StatusCode", "Message"}
    assert told["Message"]
    assert "set-cookie" not in answer.headers
    assert await client.raw.everything() == before


def _json(body: object) -> bytes:
    import json

    return json.dumps(body).encode()  # with half characters written out, as a client may do


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"NaN", b"[" * 100_000], ids=lambda body: repr(body[:10]))
async def test_what_is_no_json_is_told_with_a_message_only(client: Client, body: bytes) -> None:
    answer = await client.http.post("/api/Sessions/Set", content=body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"Message"}


@pytest.mark.parametrize("body", [b"[]", b"null", b"7"])
async def test_json_that_is_no_object_is_refused(client: Client, body: bytes) -> None:
    answer = await client.http.post("/api/Sessions/Set", content=body)
    assert (answer.status_code, set(answer.json())) == (400, {"Id", "StatusCode", "Message"})


async def test_the_content_type_counts_only_by_setting(client: Client) -> None:
    headers = {"content-type": "text/plain"}
    body = _json({"ApiKey": client.token, "SavePerUser": True, **VALUE})
    assert (await client.http.post("/api/Sessions/Set", content=body, headers=headers)).status_code == 200
    async with running(check_content_type=True) as strict:
        before = await strict.raw.everything()
        body = _json({"ApiKey": strict.token, "SavePerUser": True, **VALUE})
        answer = await strict.http.post("/api/Sessions/Set", content=body, headers=headers)
        assert (answer.status_code, set(answer.json())) == (400, {"Message"})
        assert await strict.raw.everything() == before
        headers = {"content-type": "application/json; charset=utf-8"}
        assert (await strict.http.post("/api/Sessions/Set", content=body, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "sentence"),
    [
        ("", "There is nothing under this key."),
        ("ja", "このキーのデータはありません。"),
        ("ko-KR,ko;q=0.9,en;q=0.8", "이 키에 해당하는 데이터가 없습니다."),
        ("fr, en;q=0.2, ja;q=0.7", "このキーのデータはありません。"),
        ("ja;q=0, ko;q=x, *", "There is nothing under this key."),
    ],
)
async def test_messages_come_in_the_language_that_the_client_likes_best(
    client: Client, accepted: str, sentence: str
) -> None:
    client.http.headers["accept-language"] = accepted
    assert (await client.ask("Get", **KEY)).json()["Message"] == sentence


async def test_a_revoked_key_opens_nothing_from_then_on(client: Client) -> None:
    await client.ask("Set", SavePerUser=True, **VALUE)
    data: SessionData = client.http._transport.app.state.kits["sessiondata"].data  # type: ignore[attr-defined]
    [listed] = await data.api_keys.list()
    assert await data.api_keys.revoke(listed.id) is True
    for verb in ("Get", "Set", "Delete"):
        assert (await client.ask(verb, SavePerUser=True, **VALUE)).status_code == 401


async def test_a_store_that_is_away_is_a_500_in_the_shape_of_the_document() -> None:
    with servers.redis() as server:
        async with running(f"{server.url}?timeout=300ms") as client:
            server.kill()
            for verb in ("Get", "Set", "Delete"):
                answer = await client.ask(verb, SavePerUser=True, **VALUE)
                assert (answer.status_code, answer.json()["StatusCode"]) == (500, 500)
                assert set(answer.json()) == {"Id", "StatusCode", "Message"}
