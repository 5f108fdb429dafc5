"""Who may use the Sessions API: programs with a key, as often as they may, and users who are logged in."""

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
    """It stands at the beginning of a minute, the next one of the store's clock."""
    clock = Clock()
    clock.stand_at((clock() // 60_000 + 1) * 60_000)
    return clock


@pytest.fixture
async def client(clock: Clock) -> AsyncIterator[Client]:
    async with running(clock=clock, limits={"guesses": 3}) as opened:
        yield opened


# --- guesses of keys -----------------------------------------------------------------------------------------


async def test_who_guesses_too_often_waits_for_the_next_minute(client: Client, clock: Clock) -> None:
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


async def test_the_guesses_of_one_address_do_not_keep_others_out(client: Client) -> None:
    for _ in range(5):
        await client.ask("Get", **KEY, ApiKey=GUESS)
    assert (await client.ask("Get", **KEY)).status_code == 429
    assert (await client.elsewhere("10.0.0.2").ask("Get", **KEY)).status_code == 404


async def test_who_has_a_key_is_not_counted_and_no_key_is_no_guess(client: Client) -> None:
    for _ in range(10):
        assert (await client.ask("Set", SavePerUser=True, **VALUE)).status_code == 200
        assert (await client.ask("Get", **KEY, ApiKey="")).status_code == 401
    assert not [key for key in await client.raw.keys() if key.startswith("sessiondata:asked:")]


async def test_whatever_is_guessed_leaves_one_number_that_is_gone_after_a_minute(client: Client) -> None:
    before = await client.raw.keys()
    for number in range(20):
        await client.ask("Get", **KEY, ApiKey=f"ks_{number:016x}_" + "A" * 43)
    [counter] = await client.raw.keys() - before
    assert counter.startswith("sessiondata:asked:guesses:")
    assert "10.0.0.1" not in counter
    assert 0 < await client.raw.left_ms(counter) <= 70_000


async def test_by_setting_anybody_may_guess_as_often_as_they_like() -> None:
    async with running(limits={"guesses": 0}) as client:
        for _ in range(50):
            assert (await client.ask("Get", **KEY, ApiKey=GUESS)).status_code == 401


# --- requests of a key ---------------------------------------------------------------------------------------


async def test_by_setting_a_key_may_ask_so_often_a_minute(clock: Clock) -> None:
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
def test_limits_that_there_are_not_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SessionDataSettings.model_validate({"limits": wrong})


# --- being logged in -----------------------------------------------------------------------------------------


async def user_of(request: Request) -> int | None:
    """As an application might know its users: here the cookie says it outright."""
    who = request.cookies.get("who")
    return int(who) if who else None


@pytest.fixture
async def browser() -> AsyncIterator[Client]:
    async with running(kit=session_data_kit(user_of)) as opened:
        opened.token = ""
        opened.http.cookies.set("who", "7")
        yield opened


async def test_a_user_who_is_logged_in_needs_no_api_key(browser: Client) -> None:
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


async def test_where_no_origin_is_said_the_csrf_token_of_the_page_counts(browser: Client) -> None:
    browser.http.cookies.set("csrf", "c" * 43)
    assert (await browser.ask("Set", Token="c" * 43, **VALUE)).status_code == 200
    assert (await browser.ask("Set", Token="d" * 43, **VALUE)).status_code == 403


async def test_who_is_logged_in_as_nobody_or_shows_a_wrong_key_is_refused(browser: Client) -> None:
    browser.http.headers["origin"] = BASE
    assert (await browser.ask("Get", **KEY, ApiKey=GUESS)).status_code == 401  # a key that is shown counts
    browser.http.cookies.clear()
    assert (await browser.ask("Get", **KEY)).status_code == 401


async def test_an_application_moves_the_session_at_a_login_and_the_browser_stays_in_it(browser: Client) -> None:
    """Somebody planted the id of their own session in the browser before its user logs in."""
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


async def test_a_program_with_a_key_comes_from_wherever_it_likes(browser: Client) -> None:
    token = (await browser.data.api_keys.issue(42, "a test")).token
    browser.http.headers["origin"] = "https://elsewhere.example"
    answer = await browser.ask("Set", SavePerUser=True, ApiKey=token, **VALUE)
    assert answer.json()["Response"]["UserId"] == 42


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_a_page_of_another_site_with_a_key_of_its_own_does_not_get_into_the_session_of_its_visitor(
    browser: Client, origin: str
) -> None:
    """Neither by the visitor's cookie, nor by a cookie that puts another session in the place of the visitor's."""
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
    told = answer.json()["Response"]["SessionGuid"]  # whoever says the id itself is in that session
    assert (await browser.ask("Get", **key, **KEY, SessionGuid=told)).json()["Response"]["Value"] == "x"


async def test_without_an_application_that_knows_its_users_only_a_key_counts() -> None:
    async with running(kit=KIT) as client:
        client.http.cookies.set("who", "7")
        client.http.headers["origin"] = BASE
        assert (await client.ask("Get", **KEY, ApiKey="")).status_code == 401
