"""The Sessions API: responses, status codes and shapes as in the document; a refused request stores nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keystead.kits.sessiondata.error_messages import MESSAGES
from keystead.kits.sessiondata.routes import STATUS
from tests import servers
from tests.kits.sessiondata.asking import KEY, VALUE, WRONG, Client, running
from tests.kits.sessiondata.conftest import everywhere_by_http


@pytest.fixture
async def client(urls: dict[str, str]) -> AsyncIterator[Client]:
    async with running(urls) as opened:
        yield opened


@pytest.fixture
async def local() -> AsyncIterator[Client]:
    """For tests that do not depend on the store."""
    async with running() as opened:
        yield opened


# --- responses, on every store -------------------------------------------------------------------------------


@everywhere_by_http
async def test_a_user_value_is_set_read_and_deleted(client: Client) -> None:
    answer = await client.ask("Set", ApiVersion=1.1, SavePerUser=True, **VALUE)
    assert answer.status_code == 200
    assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 42, "Key": "My_Key"}}
    assert answer.headers["content-type"] == "application/json;charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert await client.durable.ask("HGETALL", "@42") == {b"User_My%5FKey": b"x"}
    answer = await client.ask("Get", SavePerUser=True, **KEY)
    assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 42, "Key": "My_Key", "Value": "x"}}
    answer = await client.ask("Delete", SavePerUser=True, **KEY)
    assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 42, "Key": "My_Key"}}
    for verb in ("Get", "Delete"):
        assert (await client.ask(verb, SavePerUser=True, **KEY)).status_code == 404


@everywhere_by_http
async def test_a_client_without_cookies_gets_a_session_id_and_can_use_it(client: Client) -> None:
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


@everywhere_by_http
async def test_an_ended_session_is_not_revived_and_the_client_gets_a_new_one(client: Client) -> None:
    first = (await client.ask("Set", **VALUE)).json()["Response"]["SessionGuid"]
    await client.data.session(first).clear()
    for verb in ("Get", "Delete"):
        assert (await client.ask(verb, SessionGuid=first, **KEY)).status_code == 404
    second = (await client.ask("Set", SessionGuid=first, **VALUE)).json()["Response"]["SessionGuid"]
    assert second != first
    assert await client.data.session(first).exists() is False
    assert (await client.ask("Get", SessionGuid=second, **KEY)).json()["Response"]["Value"] == "x"


@everywhere_by_http
async def test_concurrent_writes_to_different_keys_of_one_session_both_survive(client: Client) -> None:
    guid = (await client.ask("Set", **VALUE)).json()["Response"]["SessionGuid"]
    names = [f"Key_{number}" for number in range(20)]
    answers = await asyncio.gather(
        *(client.ask("Set", SessionGuid=guid, SessionKey=name, SessionValue=name) for name in names)
    )
    assert {answer.status_code for answer in answers} == {200}
    found = [(await client.ask("Get", SessionGuid=guid, SessionKey=name)).json()["Response"]["Value"] for name in names]
    assert found == names


@everywhere_by_http
async def test_a_set_racing_the_end_of_its_session_goes_to_a_new_session(client: Client) -> None:
    for _ in range(5):
        guid = (await client.ask("Set", SessionGuid="none", **VALUE)).json()["Response"]["SessionGuid"]
        client.http.cookies.clear()
        ending = asyncio.create_task(client.data.session(guid).clear())
        answers = await asyncio.gather(
            *(client.ask("Set", SessionGuid=guid, SessionKey=f"K{n}", SessionValue="x") for n in range(4))
        )
        await ending
        assert await client.data.session(guid).exists() is False
        for number, answer in enumerate(answers):
            told = answer.json()["Response"]
            if "SessionGuid" in told:  # it came after the end
                found = await client.ask("Get", SessionGuid=told["SessionGuid"], SessionKey=f"K{number}")
                assert found.json()["Response"]["Value"] == "x"


@everywhere_by_http
@pytest.mark.parametrize("per_user", [True, False])
async def test_names_and_values_of_any_characters_round_trip(client: Client, per_user: bool) -> None:
    guid = (await client.ask("Set", **VALUE)).json()["Response"]["SessionGuid"]
    place = {"SavePerUser": per_user, "SessionGuid": guid}
    for text in ("a_b", "User_", "\x00", "\n", "日本語", "😀", "'\";--", "%5F", "a/b", " ", "k" * 251):
        body = {"SessionKey": text, "SessionValue": text * 3, **place}
        answer = await client.ask("Set", **body)
        assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 42, "Key": text}}
        answer = await client.ask("Get", SessionKey=text, **place)
        assert answer.json()["Response"] == {"UserId": 42, "Key": text, "Value": text * 3}


# --- refusals, on every store --------------------------------------------------------------------------------

UNKNOWN = "ks_0000000000000000_" + "A" * 43
REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("Set", {"SessionKey": "a", "SessionValue": ""}, 400),  # an empty value
    ("Set", {"SessionKey": "a", "SessionValue": None}, 400),
    ("Set", {"SessionKey": "a"}, 400),
    ("Set", {"SessionValue": "x"}, 400),  # no key
    ("Set", {"SessionKey": None, "SessionValue": "x"}, 400),
    ("Get", {"SessionKey": ""}, 400),
    ("Delete", {}, 400),
    ("Set", {"SessionKey": 7, "SessionValue": "x"}, 400),  # other types
    ("Set", {"SessionKey": "a", "SessionValue": 7}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": {"b": 1}}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "SavePerUser": "yes"}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "SessionGuid": 7}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiVersion": "1.1"}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiVersion": 0}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiKey": 7}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": "\ud800"}, 400),  # half of a character
    ("Set", {"SessionKey": "\ud800", "SessionValue": "x"}, 400),
    ("Get", {"SessionKey": "\udfff"}, 400),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiKey": ""}, 401),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiKey": None}, 401),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiKey": UNKNOWN}, 401),
    ("Set", {"SessionKey": "a", "SessionValue": "x", "ApiKey": "\ud800"}, 401),
    ("Set", {"ApiKey": UNKNOWN}, 401),
    ("Get", {"SessionKey": "a"}, 404),
    ("Delete", {"SessionKey": "a"}, 404),
    ("Get", {"SessionKey": "a", "SessionGuid": "\ud800"}, 404),
    ("Set", {"SessionKey": "a" * 252, "SessionValue": "x"}, 422),  # with User_ before it, more than 256
    ("Get", {"SessionKey": "a" * 100_000}, 422),
    ("Set", {"SessionKey": "a", "SessionValue": "x" * 2**20}, 422),  # 1 MiB is more than 1 MB
    ("Set", {"SessionKey": "a", "SessionValue": "日" * 333_334}, 422),  # one byte too many
]


@everywhere_by_http
@pytest.mark.parametrize("per_user", [True, False])
async def test_an_error_has_its_status_and_shape_and_nothing_is_stored(client: Client, per_user: bool) -> None:
    before = await client.held()
    for verb, body, status in REFUSED:
        case = f"{verb} {str(body)[:80]}"
        answer = await client.send(f"/api/Sessions/{verb}", {"ApiKey": client.token, "SavePerUser": per_user, **body})
        told = answer.json()
        assert (answer.status_code, told["StatusCode"], told["Id"]) == (status, status, 0), case
        assert set(told) == WRONG, case
        assert told["Message"], case
        assert "set-cookie" not in answer.headers, case
        assert await client.held() == before, case


@everywhere_by_http
async def test_a_body_that_is_not_json_gets_a_message_only_and_nothing_is_stored(client: Client) -> None:
    before = await client.held()
    long = b'{"ApiVersion": 1%s}' % (b"0" * 5000)
    for body in (b"", b" ", b"{", b"\xff", b"NaN", b'{"a": Infinity}', b"[" * 100_000, long):
        answer = await client.send("/api/Sessions/Set", body)
        assert (answer.status_code, set(answer.json())) == (400, {"Message"}), body[:20]
    for body in (b"[]", b"null", b"7", b'"text"', b'{"ApiVersion": 1e999}'):  # JSON, but not a request
        answer = await client.send("/api/Sessions/Set", body)
        assert (answer.status_code, set(answer.json())) == (400, WRONG), body
    assert await client.held() == before


@everywhere_by_http
@pytest.mark.parametrize("per_user", [True, False])
async def test_a_value_of_one_megabyte_is_stored_and_one_byte_more_is_not(client: Client, per_user: bool) -> None:
    place, largest = {"SavePerUser": per_user, **KEY}, "日" * 333_333 + "x"
    guid = (await client.ask("Set", SessionValue=largest, **place)).json()["Response"].get("SessionGuid", "")
    answer = await client.ask("Set", SessionValue=f"{largest}x", SessionGuid=guid, **place)
    assert (answer.status_code, set(answer.json())) == (422, WRONG)
    found = await client.ask("Get", SessionGuid=guid, **place)
    assert found.json()["Response"]["Value"] == largest  # as it was


@everywhere_by_http
async def test_a_value_beyond_fields_max_is_a_441(urls: dict[str, str]) -> None:
    async with running(urls, fields_max=2) as client:
        for per_user in (True, False):
            guid = ""
            for key in ("a", "b"):
                answer = await client.ask(
                    "Set", SessionKey=key, SessionValue="x", SavePerUser=per_user, SessionGuid=guid
                )
                guid = answer.json()["Response"].get("SessionGuid", guid)
            before = await client.held()
            more = {"SessionGuid": guid, "SavePerUser": per_user}
            answer = await client.ask("Set", SessionKey="c", SessionValue="x", **more)
            assert (answer.status_code, answer.json()["StatusCode"], set(answer.json())) == (441, 441, WRONG)
            assert await client.held() == before
            assert (await client.ask("Set", SessionKey="b", SessionValue="y", **more)).status_code == 200


# --- independent of the store --------------------------------------------------------------------------------


async def test_a_client_with_cookies_stays_in_its_session(local: Client) -> None:
    answer = await local.ask("Set", **VALUE)
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert (await local.ask("Get", **KEY)).json()["Response"]["Value"] == "x"
    answer = await local.ask("Set", SessionKey="Other", SessionValue="y")
    assert "set-cookie" not in answer.headers
    assert "SessionGuid" not in answer.json()["Response"]


async def test_a_client_cannot_choose_its_session_id(local: Client) -> None:
    told = (await local.ask("Set", SessionGuid="attackerchosenid", **VALUE)).json()["Response"]
    assert told["SessionGuid"] != "attackerchosenid"
    local.http.cookies.clear()
    assert (await local.ask("Get", SessionGuid="attackerchosenid", **KEY)).status_code == 404


async def test_client_keys_do_not_collide_with_application_keys(local: Client) -> None:
    guid = (await local.ask("Set", **VALUE)).json()["Response"]["SessionGuid"]
    area = local.data.session(guid)
    await area.set("ViewMode", "List")
    await area.set_once("Message", "saved")
    for name in ("ViewMode", "Message", "StartTime"):
        assert (await local.ask("Get", SessionKey=name)).status_code == 404
        assert (await local.ask("Set", SessionKey=name, SessionValue="x")).status_code == 200
        assert (await local.ask("Delete", SessionKey=name)).status_code == 200
    assert (await area.get("ViewMode"), await area.get("Message")) == ("List", "saved")


@pytest.mark.parametrize("path", ["/api/sessions/set", "/API/SESSIONS/SET", "/api/Sessions/Set", "/aPi/sEssions/seT"])
async def test_paths_are_case_insensitive_for_large_values_too(local: Client, path: str) -> None:
    body = {"ApiKey": local.token, "SavePerUser": True, **KEY}
    assert (await local.send(path, {**body, "SessionValue": "\x00" * 1_000_000})).status_code == 200  # 6 MB of JSON
    assert (await local.send(path, {**body, "SessionValue": "x" * 2**20})).status_code == 422
    answer = await local.send(path, b" " * 6_100_000)
    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")


async def test_logs_and_metrics_have_the_path_as_documented_in_any_case(local: Client) -> None:
    answer = await local.http.get("/API/sessions/gET?health")
    assert answer.json() == {"ok": True, "route": "/api/Sessions/Get"}
    assert (await local.http.get("/api/sessions/get")).headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize("path", ["/api/sessions", "/api/sessions/set/", "/api/sessions/setx", "/x/api/sessions/set"])
async def test_other_paths_are_not_found(local: Client, path: str) -> None:
    assert (await local.send(path, {"ApiKey": local.token, **VALUE})).status_code == 404


async def test_of_a_repeated_field_the_last_one_wins(local: Client) -> None:
    body = f'{{"ApiKey": "{local.token}", "SessionKey": "a", "SessionKey": "b", "SessionValue": "x"}}'
    answer = await local.send("/api/Sessions/Set", body.encode())
    assert answer.json()["Response"]["Key"] == "b"


async def test_unknown_fields_and_a_byte_order_mark_are_ignored(local: Client) -> None:
    body = {"ApiKey": local.token, "ApiVersion": 99.5, "View": {"a": [1]}, "Keys": None, "Offset": -1, **VALUE}
    assert (await local.send("/api/Sessions/Set", body)).status_code == 200
    marked = b"\xef\xbb\xbf" + json.dumps({"ApiKey": local.token, **KEY}).encode()  # a byte order mark
    assert (await local.send("/api/Sessions/Get", marked)).status_code == 200


async def test_the_content_type_is_checked_only_by_setting(local: Client) -> None:
    path, plain = "/api/Sessions/Set", {"content-type": "text/plain"}
    body = {"ApiKey": local.token, "SavePerUser": True, **VALUE}
    assert (await local.send(path, body, **plain)).status_code == 200
    async with running(check_content_type=True) as strict:
        before = await strict.held()
        body = {"ApiKey": strict.token, "SavePerUser": True, **VALUE}
        for headers in (plain, {}, {"content-type": "application/jsonp"}):
            answer = await strict.send(path, body, **headers)
            assert (answer.status_code, set(answer.json())) == (400, {"Message"})
        assert await strict.held() == before
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        assert (await strict.send(path, body, **headers)).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "sentence"),
    [
        ("", "There is no value under this key."),
        ("ja", "このキーのデータはありません。"),
        ("ko-KR,ko;q=0.9,en;q=0.8", "이 키에 해당하는 데이터가 없습니다."),
        ("fr, en;q=0.2, ja;q=0.7", "このキーのデータはありません。"),
        ("ja;q=0, ko;q=x, *", "There is no value under this key."),
    ],
)
async def test_messages_are_in_the_preferred_language_of_the_client(
    local: Client, accepted: str, sentence: str
) -> None:
    local.http.headers["accept-language"] = accepted
    assert (await local.ask("Get", **KEY)).json()["Message"] == sentence


def test_every_error_has_a_message() -> None:
    assert MESSAGES.keys() >= STATUS.keys()


async def test_a_revoked_key_is_refused(local: Client) -> None:
    await local.ask("Set", SavePerUser=True, **VALUE)
    [listed] = await local.data.api_keys.list()
    assert await local.data.api_keys.revoke(listed.id) is True
    for verb in ("Get", "Set", "Delete"):
        assert (await local.ask(verb, SavePerUser=True, **VALUE)).status_code == 401


# --- store outages -------------------------------------------------------------------------------------------


async def _is_a_500(client: Client, **body: object) -> None:
    for verb in ("Get", "Set", "Delete"):
        answer = await client.ask(verb, **VALUE, **body)
        assert (answer.status_code, answer.json()["StatusCode"], set(answer.json())) == (500, 500, WRONG)
        assert "redis://" not in answer.text
        assert "set-cookie" not in answer.headers


async def test_a_store_outage_is_a_500_in_the_shape_of_the_document() -> None:
    with servers.redis() as server:
        async with running({"default": f"{server.url}?timeout=300ms"}) as client:
            server.kill()
            await _is_a_500(client, SavePerUser=True)
            await _is_a_500(client)


async def test_an_outage_of_one_of_two_stores_is_a_500() -> None:
    """API keys are in the durable store, sessions in the other one."""
    with servers.redis() as server:
        async with running({"default": "memory://", "durable": f"{server.url}?timeout=300ms"}) as client:
            server.kill()
            before = await client.raw.everything()
            await _is_a_500(client, SavePerUser=True)
            await _is_a_500(client)
            assert await client.raw.everything() == before
    with servers.redis() as server:
        async with running({"default": f"{server.url}?timeout=300ms", "durable": "memory://"}) as client:
            server.kill()
            before = await client.durable.everything()
            await _is_a_500(client)
            await _is_a_500(client, SavePerUser=True)
            assert await client.durable.everything() == before
