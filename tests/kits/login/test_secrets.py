"""Secrets of a login are not in the store, a log or a response (promises 4 and 5)."""

import logging
from collections.abc import Iterator

import httpx2
import pytest

from tests.kits.login.browsing import ACCOUNT, BASE, HTML, Browser, Running, parameters
from tests.kits.login.front import Front
from tests.oidc import log_in


class Heard(logging.Handler):
    """Every line of every logger."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        extra = " ".join(f"{name}={value!r}" for name, value in vars(record).items() if name != "args")
        self.lines.append((record.name, f"{record.getMessage()} {extra}"))

    def of(self, *loggers: str) -> str:
        return "\n".join(line for name, line in self.lines if name.startswith(loggers))


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[Heard]:
    caplog.set_level(logging.DEBUG)
    handler = Heard()
    for name in ("keystead", "keystead.access", "keystead.server", "httpx2", "httpcore2"):
        caplog.set_level(logging.DEBUG, logger=name)
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    heard = [logging.root, *(logger for logger in loggers if not logger.propagate)]
    for logger in heard:
        logger.addHandler(handler)
    yield handler
    for logger in heard:
        logger.removeHandler(handler)


def keep(browser: Browser, answers: list[str]) -> None:
    """Record all responses to a browser, without the cookies, which carry the secrets."""

    async def note(answer: httpx2.Response) -> None:
        headers = [f"{name}: {value}" for name, value in answer.headers.multi_items() if name != "set-cookie"]
        answers.append("\n".join([*headers, (await answer.aread()).decode()]))

    browser.http.event_hooks = {"response": [note]}


async def test_no_token_is_in_the_store_a_log_or_a_response(stored_site: Running, front: Front, heard: Heard) -> None:
    answers: list[str] = []
    browser, app, helper = stored_site.browser(), stored_site.browser(), stored_site.browser()
    for one in (browser, app, helper):
        keep(one, answers)
    held = []
    secrets: set[str] = set()

    def note_cookies() -> None:
        for one in (browser, app, helper):
            secrets.update(cookie.value or "" for cookie in one.http.cookies.jar if cookie.name != "csrf")

    states, codes = [], []
    for provider_name in ("discord", "acme"):
        started = await browser.start(provider_name)
        held.append(await stored_site.everything())
        callback = await log_in(started["authorizeUrl"], ACCOUNT)
        await browser.back(callback, **HTML)
        states.append(started["state"])
        codes.append(parameters(callback)["code"])
        held.append(await stored_site.everything())
        note_cookies()
        stored_site.clock.move(seconds=3600)
        assert await browser.is_logged_in()
        await browser.get("/login", **HTML)
        held.append(await stored_site.everything())
    started = await app.start(context="pwa")
    note_cookies()
    callback = await log_in(started["authorizeUrl"], ACCOUNT)
    page = await helper.back(callback, **HTML)
    confirm = page.text.partition('name="confirm" value="')[2].partition('"')[0]
    note_cookies()
    held.append(await stored_site.everything())
    await helper.http.post(
        "/api/auth/discord/confirm",
        data={"confirm": confirm, "code": started["code"]},
        headers={"origin": BASE, **HTML},
    )
    held.append(await stored_site.everything())
    await app.post("/api/auth/discord/claim-session", {"state": started["state"]})
    note_cookies()
    front.refusing = "invalid_grant"
    stored_site.clock.move(seconds=3600)
    await app.is_logged_in()
    await app.get("/api/auth/discord/callback?code=x&state=y")
    await app.post("/api/auth/logout")
    held.append(await stored_site.everything())

    assert len(front.issued) >= 10
    assert len(secrets) >= 6
    tokens = front.issued | secrets
    assert {one for one in tokens if one in "\n".join(held)} == set()
    assert {one for one in tokens if one in "\n".join(answers)} == set()
    assert {one for one in tokens if one in heard.of("")} == set()
    # The browsers of this test log the addresses that they visit; what serves them does not.
    ours = heard.of("keystead", "uvicorn", "granian", "fastapi", "asyncio")
    assert {one for one in (*states, *codes, confirm) if one in ours} == set()
    assert {one for one in (*states, *codes, confirm) if one in "\n".join(held)} == set()
    assert "rejected the refresh token of a session" in ours  # or nothing was listened to


async def test_the_client_secret_is_shown_nowhere(stored_site: Running, heard: Heard) -> None:
    browser = stored_site.browser()
    answers: list[str] = []
    keep(browser, answers)
    await browser.log_in()
    await browser.get("/login", **HTML)
    await browser.get("/openapi.json")
    login = stored_site.app.state.kits["login"]
    everywhere = "\n".join(
        [*answers, heard.of(""), repr(login.settings), str(vars(login)), await stored_site.everything()]
    )
    assert "secret-of-keystead" not in everywhere


async def test_an_unreadable_record_is_logged_without_its_key(site: Running, heard: Heard) -> None:
    browser = site.browser()
    started = await browser.start()
    key = await site.key("discord:auth:")
    await site.ask("SET", key, b"rubbish")
    answer = await browser.get(f"/api/auth/discord/callback?code=x&state={started['state']}")
    assert answer.json()["code"] == "STATE_INVALID"
    assert "LoginKeys.auth_state has unreadable content" in heard.of("keystead.schema")
    assert key.rpartition(":")[2] not in heard.of("keystead")
