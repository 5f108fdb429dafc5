"""Logging in through the real pages, in a real browser, at a real provider."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext, Page

from keystead.testing.oidc import OidcProvider, log_in, oidc_provider
from tests.browser.tabs import DESKTOP, PHONE, tab
from tests.serving import Keystead, free_port, keystead_serving

ACCOUNT = "ada"


@dataclass
class Place:
    """A server and the provider that people log in with there."""

    url: str
    provider: OidcProvider
    server: Keystead


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    folder = tmp_path_factory.mktemp("login")
    accounts = {ACCOUNT: {"name": "Ada Lovelace"}}
    with oidc_provider([f"{url}/api/auth/acme/callback"], accounts=accounts) as provider:
        settings = {"issuer": provider.issuer, "client_id": provider.client_id, "client_secret": provider.client_secret}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        (folder / "keystead.toml").write_text("\n".join(["[login.providers.acme]", *lines]))
        with keystead_serving(folder, "sqlite:///login.db", "--kits", "login", "--port", str(port)) as server:
            yield Place(url, provider, server)


@dataclass
class Person:
    """Somebody with a browser of their own, and a list of all that went wrong in it."""

    place: Place
    context: BrowserContext
    page: Page
    wrong: list[str] = field(default_factory=list)

    async def visit(self, path: str) -> None:
        await self.page.goto(f"{self.place.url}{path}")

    async def log_in(self, account: str = ACCOUNT) -> None:
        """From the page of the kit to the provider, and back to the page. The provider remembers whom it knows."""
        await self.visit("/login")
        async with self.page.expect_navigation(url=re.compile(r"/interaction/|/login$")):
            await self.page.get_by_role("link", name="Acme").click()
        if "/interaction/" in self.page.url:
            await self.page.get_by_label("Account").fill(account)
            await self.page.get_by_role("button", name="Allow").click()
        await self.page.wait_for_url(f"{self.place.url}/login")

    async def heading(self) -> str:
        return await self.page.get_by_role("heading", level=1).inner_text()

    async def press(self, name: str) -> None:
        async with self.page.expect_navigation():
            await self.page.get_by_role("button", name=name, exact=True).click()

    async def cookies(self) -> dict[str, str]:
        found = await self.context.cookies(self.place.url)
        return {cookie.get("name", ""): cookie.get("value", "") for cookie in found}


@asynccontextmanager
async def somebody(
    browser: Browser, place: Place, size: tuple[int, int] = DESKTOP, scheme: str = "light"
) -> AsyncIterator[Person]:
    async with tab(browser, size, scheme) as used:
        person = Person(place, used.page.context, used.page)
        wrong = person.wrong
        # The provider's pages are not ours.
        used.on(
            "console",
            lambda message: (
                wrong.append(f"console: {message.text}") if message.location["url"].startswith(place.url) else None
            ),
        )
        used.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        used.on(
            "response",
            lambda answer: (
                wrong.append(f"{answer.status}: {answer.url}")
                if answer.status >= 400 and answer.url.startswith(place.url)
                else None
            ),
        )
        yield person


async def test_somebody_logs_in_sees_their_sessions_ends_another_and_logs_out_everywhere(
    browser: Browser, place: Place
) -> None:
    async with somebody(browser, place) as laptop, somebody(browser, place, PHONE) as phone:
        await laptop.log_in()
        assert await laptop.heading() == "Hello, Ada Lovelace"
        assert await laptop.page.locator("tbody tr").count() == 1
        assert await laptop.page.get_by_role("button", name="Log out everywhere else").is_disabled()

        await phone.log_in()
        await laptop.visit("/login")
        assert await laptop.page.locator("tbody tr").count() == 2
        await laptop.press("End")
        assert await laptop.page.locator("tbody tr").count() == 1
        await phone.visit("/login")
        assert "this session was ended" in (await phone.page.get_by_role("status").inner_text()).lower()

        await phone.log_in()
        await phone.press("Log out everywhere")
        assert await phone.heading() == "Log in"
        assert "sid" not in await phone.cookies()
        await laptop.visit("/login")
        assert await laptop.heading() == "Log in"
        assert laptop.wrong == []
        assert phone.wrong == []


async def test_each_button_of_the_page_does_what_it_says(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as first, somebody(browser, place) as second:
        await first.log_in("grace")
        await second.log_in("grace")
        await first.visit("/login")
        await first.press("Log out everywhere else")
        assert await first.heading() == "Hello, grace"
        await second.visit("/login")
        assert await second.heading() == "Log in"
        await first.press("Log out")
        assert await first.heading() == "Log in"
        assert first.wrong == second.wrong == []


async def test_a_login_whose_cookie_was_lost_asks_first(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as person:
        await person.visit("/login")
        await person.page.get_by_role("link", name="Acme").click()
        await person.page.get_by_label("Account").fill(ACCOUNT)
        await person.context.clear_cookies(name="d_login")
        await person.page.get_by_role("button", name="Allow").click()
        await person.page.wait_for_url("**/callback?**")
        assert await person.heading() == "Log in as Ada Lovelace?"
        assert "sid" not in await person.cookies()
        await person.page.get_by_role("button", name="Yes, log in as Ada Lovelace").click()
        await person.page.wait_for_url(f"{place.url}/login")
        assert await person.heading() == "Hello, Ada Lovelace"
        assert person.wrong == []


async def test_whoever_did_not_begin_a_login_says_no_and_is_not_logged_in(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as victim:
        async with httpx2.AsyncClient(trust_env=False) as attacker:
            started = await attacker.get(f"{place.url}/api/auth/acme/start?format=json")
        await victim.page.goto(await log_in(started.json()["authorizeUrl"], "mallory"))
        assert await victim.heading() == "Log in as mallory?"
        await victim.page.get_by_role("link", name="No, that was not me").click()
        assert await victim.heading() == "Log in"
        assert "sid" not in await victim.cookies()
        assert victim.wrong == []


async def test_whoever_turns_back_at_the_provider_is_told_and_can_try_again(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as person:
        await person.visit("/login")
        await person.page.get_by_role("link", name="Acme").click()
        await person.page.get_by_role("button", name="Cancel").click()
        await person.page.wait_for_url("**/callback?**")
        assert await person.heading() == "You are not logged in"
        assert "You did not agree at Acme." in await person.page.inner_text("main")
        # The status says so, too; nothing else went wrong.
        assert [one for one in person.wrong if "/callback?" not in one and "400" not in one] == []
        await person.page.get_by_role("link", name="Try again").click()
        assert await person.heading() == "Log in"


async def test_no_page_of_the_kit_can_be_framed_or_runs_a_script(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as person:
        answer = await person.page.goto(f"{place.url}/login")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE, (320, 640)], ids=["desktop", "phone", "small phone"])
async def test_the_pages_fit_the_screen(browser: Browser, place: Place, size: tuple[int, int], scheme: str) -> None:
    async with somebody(browser, place, size, scheme) as person:
        width = "document.documentElement.scrollWidth"
        await person.visit("/login")
        assert await person.page.evaluate(width) <= size[0]
        await person.log_in("somebody-with-a-name-that-is-much-longer-than-names-are-and-has-no-spaces-" * 2)
        assert await person.page.evaluate(width) <= size[0]
        assert person.wrong == []


def test_the_server_has_logged_no_error(place: Place) -> None:
    assert "Traceback" not in place.server.said
    assert Path(place.server.output).exists()
