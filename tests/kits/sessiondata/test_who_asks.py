"""Authentication and rate limits of the Sessions API: API keys, and logged-in users."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fastapi import Request
from pydantic import ValidationError

from keystead.kits.sessiondata import KIT, SessionDataSettings, session_data_kit
from tests.kits.sessiondata.asking import KEY, VALUE, WRONG, Client, running
from tests.kits.sharing.visiting import BASE, Clock

GUESS = "ks_0000000000000000_" + "A" * 43


@pytest.fixture
def clock() -> Clock:
    """Stopped at the start of a minute, the next one of the store's clock."""
    clock = Clock()
    clock.stand_at((clock() // 60_000 + 1) * 60_000)
    return clock


@pytest.fixture
async def client(clock: Clock) -> AsyncIterator[Client]:
    async with running(clock=clock, limits={"guesses": 3}) as opened:
        yield opened


# --- wrong API keys ------------------------------------------------------------------------------------------


async def test_an_address_with_too_many_wrong_keys_waits_for_the_next_minute(client: Client, clock: Clock) -> None:
    for guess in (GUESS, "no key at all", client.token[:-1]):
        assert (await client.ask("Get", **KEY, ApiKey=guess)).status_code == 401
    before = await client.held()
    for token in (GUESS, client.token):  # whether the guess is right or not
        answer = await client.ask("Set", **VALUE, ApiKey=token)
        assert (answer.status_code, answer.json()["StatusCode"], set(answer.json())) == (429, 429, WRONG)
        assert answer.headers["retry-after"] == "60"
    assert await client.held() == before
    clock.stand_at(clock() + 60_000)
    assert (await client.ask("Set", **VALUE)).status_code == 200


async def test_wrong_keys_from_one_address_do_not_block_others(client: Client) -> None:
    for _ in range(5):
        await client.ask("Get", **KEY, ApiKey=GUESS)
    assert (await client.ask("Get", **KEY)).status_code == 429
    assert (await client.elsewhere("10.0.0.2").ask("Get", **KEY)).status_code == 404


async def test_valid_and_missing_keys_are_not_counted_as_guesses(client: Client) -> None:
    for _ in range(10):
        assert (await client.ask("Set", SavePerUser=True, **VALUE)).status_code == 200
        assert (await client.ask("Get", **KEY, ApiKey="")).status_code == 401
    assert not [key for key in await client.raw.keys() if key.startswith("sessiondata:asked:")]


async def test_guesses_leave_one_counter_that_expires(client: Client) -> None:
    before = await client.raw.keys()
    for number in range(20):
        await client.ask("Get", **KEY, ApiKey=f"ks_{number:016x}_" + "A" * 43)
    [counter] = await client.raw.keys() - before
    assert counter.startswith("sessiondata:asked:guesses:")
    assert "10.0.0.1" not in counter
    assert 0 < await client.raw.left_ms(counter) <= 70_000


async def test_the_limit_of_guesses_can_be_turned_off() -> None:
    async with running(limits={"guesses": 0}) as client:
        for _ in range(50):
            assert (await client.ask("Get", **KEY, ApiKey=GUESS)).status_code == 401


# --- requests per API key ------------------------------------------------------------------------------------


async def test_requests_per_key_can_be_limited(clock: Clock) -> None:
    async with running(clock=clock, limits={"requests": 2}) as client:
        other = (await client.data.api_keys.issue(42, "another")).token
        for _ in range(2):
            assert (await client.ask("Set", SavePerUser=True, **VALUE)).status_code == 200
        for address in ("10.0.0.1", "10.0.0.2"):  # it is the key that is counted
            answer = await client.elsewhere(address).ask("Get", SavePerUser=True, **KEY)
            assert (answer.status_code, set(answer.json())) == (429, WRONG)
            assert answer.headers["retry-after"] == "60"
        assert (await client.ask("Get", SavePerUser=True, **KEY, ApiKey=other)).status_code == 200
        clock.stand_at(clock() + 60_000)
        assert (await client.ask("Get", SavePerUser=True, **KEY)).status_code == 200


@pytest.mark.parametrize("wrong", [{"guess": 3}, {"guesses": -1}, {"requests": "many"}], ids=str)
def test_unknown_or_invalid_limits_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SessionDataSettings.model_validate({"limits": wrong})


# --- logged-in users -----------------------------------------------------------------------------------------


async def user_of(request: Request) -> int | None:
    """The application's login function: here the cookie is the user id."""
    who = request.cookies.get("who")
    return int(who) if who else None


@pytest.fixture
async def browser() -> AsyncIterator[Client]:
    async with running(kit=session_data_kit(user_of)) as opened:
        opened.token = ""
        opened.http.cookies.set("who", "7")
        yield opened


async def test_a_logged_in_user_needs_no_api_key(browser: Client) -> None:
    browser.http.headers["origin"] = BASE
    answer = await browser.ask("Set", SavePerUser=True, **VALUE)
    assert answer.json() == {"StatusCode": 200, "Response": {"UserId": 7, "Key": "My_Key"}}
    assert await browser.data.user(7).get("My_Key") == "x"
    assert (await browser.ask("Set", **VALUE)).status_code == 200
    assert (await browser.ask("Get", **KEY)).json()["Response"]["Value"] == "x"


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"origin": "null"}, {}], ids=str)
async def test_a_page_of_another_site_cannot_use_the_cookies_of_its_visitors(
    browser: Client, headers: dict[str, str]
) -> None:
    before = await browser.held()
    browser.http.headers.update(headers)
    for token in ("", "A" * 43):
        for verb in ("Get", "Set", "Delete"):
            answer = await browser.ask(verb, SavePerUser=True, Token=token, **VALUE)
            assert (answer.status_code, answer.json()["StatusCode"], set(answer.json())) == (403, 403, WRONG)
    assert await browser.held() == before


async def test_without_an_origin_header_the_csrf_token_is_checked(browser: Client) -> None:
    browser.http.cookies.set("csrf", "c" * 43)
    assert (await browser.ask("Set", Token="c" * 43, **VALUE)).status_code == 200
    assert (await browser.ask("Set", Token="d" * 43, **VALUE)).status_code == 403


async def test_without_a_login_or_with_a_wrong_key_the_request_is_refused(browser: Client) -> None:
    browser.http.headers["origin"] = BASE
    assert (await browser.ask("Get", **KEY, ApiKey=GUESS)).status_code == 401  # a given key is checked first
    browser.http.cookies.clear()
    assert (await browser.ask("Get", **KEY)).status_code == 401


async def test_moving_the_session_at_login_prevents_session_fixation(browser: Client) -> None:
    """An attacker planted the id of their own session in the browser before its user logs in."""
    browser.http.headers["origin"] = BASE
    planted = (await browser.ask("Set", **VALUE)).json()["Response"]["SessionGuid"]
    opened = browser.app.state.kits["sessiondata"]
    header = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
    new_id = await opened.data.move(opened.cookie.read(header))
    name, _, value = opened.cookie.set(new_id).partition(";")[0].partition("=")
    browser.http.cookies.clear()
    browser.http.cookies.set("who", "7")
    browser.http.cookies.set(name, value)
    assert (await browser.ask("Get", **KEY)).json()["Response"]["Value"] == "x"
    assert (await browser.ask("Get", SessionGuid=planted, **KEY)).status_code == 404


async def test_a_program_with_a_key_may_have_any_origin(browser: Client) -> None:
    token = (await browser.data.api_keys.issue(42, "a test")).token
    browser.http.headers["origin"] = "https://elsewhere.example"
    answer = await browser.ask("Set", SavePerUser=True, ApiKey=token, **VALUE)
    assert answer.json()["Response"]["UserId"] == 42


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_a_cross_site_page_with_its_own_key_cannot_use_the_visitors_session(browser: Client, origin: str) -> None:
    """Neither by the visitor's cookie, nor by setting a cookie that replaces the visitor's session."""
    session_id = await browser.data.begin({"User_My_Key": "of the visitor"})
    cookie = browser.app.state.kits["sessiondata"].cookie.name
    browser.http.cookies.set(cookie, session_id)
    key = {"ApiKey": (await browser.data.api_keys.issue(42, "of an attacker")).token}
    browser.http.headers["origin"] = origin
    assert (await browser.ask("Get", **key, **KEY)).status_code == 404
    assert (await browser.ask("Delete", **key, **KEY)).status_code == 404
    answer = await browser.ask("Set", **key, **VALUE)
    assert "set-cookie" not in answer.headers
    assert await browser.data.session(session_id).get("User_My_Key") == "of the visitor"
    told = answer.json()["Response"]["SessionGuid"]  # the id itself grants access
    assert (await browser.ask("Get", **key, **KEY, SessionGuid=told)).json()["Response"]["Value"] == "x"


async def test_without_a_login_function_an_api_key_is_required() -> None:
    async with running(kit=KIT) as client:
        client.http.cookies.set("who", "7")
        client.http.headers["origin"] = BASE
        assert (await client.ask("Get", **KEY, ApiKey="")).status_code == 401
