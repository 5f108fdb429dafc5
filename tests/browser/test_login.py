"""Logging in through the real pages, in a real browser, at a real provider."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext, Page

from tests.browser.page_checks import problems
from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.oidc import OidcProvider, log_in, oidc_provider
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
    with served(tmp_path_factory.mktemp("login")) as opened:
        yield opened


@pytest.fixture(scope="module")
def narrow_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Where a user has two sessions at most, and a third is refused."""
    with served(tmp_path_factory.mktemp("login"), "[login]", "cap = 2", 'at_cap = "refuse"') as opened:
        yield opened


@contextmanager
def served(folder: Path, *more: str) -> Iterator[Place]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    accounts = {ACCOUNT: {"name": "Ada Lovelace"}}
    with oidc_provider([f"{url}/api/auth/acme/callback"], accounts=accounts) as provider:
        settings = {"issuer": provider.issuer, "client_id": provider.client_id, "client_secret": provider.client_secret}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        (folder / "keystead.toml").write_text("\n".join([*more, "[login.providers.acme]", *lines]))
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

    async def follow(self, name: str) -> None:
        async with self.page.expect_navigation():
            await self.page.get_by_role("link", name=name, exact=True).click()

    async def cookies(self) -> dict[str, str]:
        found = await self.context.cookies(self.place.url)
        return {cookie.get("name", ""): cookie.get("value", "") for cookie in found}


@asynccontextmanager
async def somebody(
    browser: Browser, place: Place, size: tuple[int, int] = DESKTOP, scheme: str = "light", **own: str
) -> AsyncIterator[Person]:
    async with tab(browser, size, scheme, **own) as used:
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


@pytest.mark.main_path
async def test_somebody_logs_in_sees_their_sessions_ends_another_and_logs_out_everywhere(
    browser: Browser, place: Place
) -> None:
    async with somebody(browser, place) as laptop, somebody(browser, place, PHONE) as phone:
        await laptop.log_in()
        assert await laptop.heading() == "Hello, Ada Lovelace"
        assert await laptop.page.locator("tbody tr").count() == 1
        assert await laptop.page.get_by_role("button", name="Sign out everywhere else").is_disabled()

        await phone.log_in()
        await laptop.visit("/login")
        assert await laptop.page.locator("tbody tr").count() == 2
        await laptop.press("End this session: Chrome on Linux")
        assert await laptop.page.locator("tbody tr").count() == 1
        await phone.visit("/login")
        assert "this session was ended" in (await phone.page.get_by_role("status").inner_text()).lower()

        await phone.log_in()
        await phone.follow("Sign out everywhere")
        assert await phone.heading() == "Sign out everywhere?"
        await phone.follow("No, stay signed in")
        assert await phone.heading() == "Hello, Ada Lovelace"
        await phone.follow("Sign out everywhere")
        await phone.press("Sign out everywhere")
        assert await phone.heading() == "Sign in"
        assert "sid" not in await phone.cookies()
        await laptop.visit("/login")
        assert await laptop.heading() == "Sign in"
        assert laptop.wrong == []
        assert phone.wrong == []


async def test_each_button_of_the_page_does_what_it_says(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as first, somebody(browser, place) as second:
        await first.log_in("grace")
        await second.log_in("grace")
        await first.visit("/login")
        await first.press("Sign out everywhere else")
        assert await first.heading() == "Hello, grace"
        await second.visit("/login")
        assert await second.heading() == "Sign in"
        await first.press("Sign out")
        assert await first.heading() == "Sign in"
        assert first.wrong == second.wrong == []


async def test_a_login_whose_cookie_was_lost_asks_first(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as person:
        await person.visit("/login")
        await person.page.get_by_role("link", name="Acme").click()
        await person.page.get_by_label("Account").fill(ACCOUNT)
        await person.context.clear_cookies(name="d_login")
        await person.page.get_by_role("button", name="Allow").click()
        await person.page.wait_for_url("**/callback?**")
        assert await person.heading() == "Sign in as Ada Lovelace?"
        assert "sid" not in await person.cookies()
        await person.page.get_by_role("button", name="Yes, sign in as Ada Lovelace").click()
        await person.page.wait_for_url(f"{place.url}/login")
        assert await person.heading() == "Hello, Ada Lovelace"
        assert person.wrong == []


async def test_whoever_did_not_begin_a_login_says_no_and_is_not_logged_in(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as victim:
        async with httpx2.AsyncClient(trust_env=False) as attacker:
            started = await attacker.get(f"{place.url}/api/auth/acme/start?format=json")
        await victim.page.goto(await log_in(started.json()["authorizeUrl"], "mallory"))
        assert await victim.heading() == "Sign in as mallory?"
        await victim.page.get_by_role("button", name="No, that was not me").click()
        await victim.page.wait_for_url(f"{place.url}/login")
        assert await victim.heading() == "Sign in"
        assert "sid" not in await victim.cookies()
        assert victim.wrong == []


async def test_whoever_turns_back_at_the_provider_is_told_and_can_try_again(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as person:
        await person.visit("/login")
        await person.page.get_by_role("link", name="Acme").click()
        await person.page.get_by_role("button", name="Cancel").click()
        await person.page.wait_for_url("**/callback?**")
        assert await person.heading() == "You are not signed in"
        assert "You did not authorize this site at Acme." in await person.page.inner_text("main")
        # The status says so, too; nothing else went wrong.
        assert [one for one in person.wrong if "/callback?" not in one and "400" not in one] == []
        await person.page.get_by_role("link", name="Try again").click()
        assert await person.heading() == "Sign in"


async def test_no_page_of_the_kit_can_be_framed_or_runs_a_script(browser: Browser, place: Place) -> None:
    async with somebody(browser, place) as person:
        answer = await person.page.goto(f"{place.url}/login")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"


@looks
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


LANGUAGES = ("en-US", "ja-JP", "ko-KR")
LOOKS = [
    (size, scheme, locale)
    for size, schemes in ((DESKTOP, ("light", "dark", "light")), (PHONE, ("dark", "light", "dark")))
    for scheme, locale in zip(schemes, LANGUAGES, strict=True)
]


async def fits(person: Person) -> bool:
    width, shown = await person.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return bool(width <= shown)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
async def test_the_times_of_sessions_are_in_the_time_zone_of_the_user(
    browser: Browser, place: Place, zone: str
) -> None:
    async with somebody(browser, place, timezone_id=zone) as person:
        await person.log_in("zoe")
        times = person.page.locator("time")
        assert await times.first.inner_text() in ("now", "1 minute ago")
        # A session of the day before, by the user's calendar and clock.
        said = await person.page.evaluate(
            """() => {
              const then = new Date();
              then.setDate(then.getDate() - 1);
              then.setHours(9, 5, 0, 0);
              const time = document.querySelector("time");
              time.dateTime = then.toISOString();
              const again = document.createElement("script");
              again.type = "module";
              again.src = "/assets/login/login.js?again";
              return new Promise((done) => {
                again.onload = () => done(time.textContent);
                document.head.append(again);
              });
            }"""
        )
        assert said.replace("\u202f", " ") == "yesterday, 9:05 AM"
        assert await person.page.locator("#zone").inner_text() == f"Times are in your time zone, {zone}."
        assert person.wrong == []


async def test_a_third_session_takes_the_place_of_one_that_the_user_chooses(
    browser: Browser, narrow_place: Place
) -> None:
    phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 Version/18.6 Safari/604.1"
    async with (
        somebody(browser, narrow_place, user_agent=phone) as first,
        somebody(browser, narrow_place) as second,
        somebody(browser, narrow_place) as third,
    ):
        await first.log_in()
        await second.log_in()
        await third.visit("/login")
        await third.page.get_by_role("link", name="Acme").click()
        await third.page.get_by_label("Account").fill(ACCOUNT)
        await third.page.get_by_role("button", name="Allow").click()
        await third.page.wait_for_url("**/callback?**")
        assert await third.heading() == "You are signed in on the maximum number of devices"
        row = third.page.locator("tbody tr", has_text="Safari on iPhone")
        await row.get_by_role("button", name="End this and sign in").click()
        await third.page.wait_for_url(f"{narrow_place.url}/login")
        assert await third.heading() == "Hello, Ada Lovelace"
        await first.visit("/login")
        assert await first.heading() == "Sign in"
        await second.visit("/login")
        assert await second.heading() == "Hello, Ada Lovelace"


async def test_the_user_finds_the_code_of_the_app_and_the_app_is_signed_in(browser: Browser, place: Place) -> None:
    async with httpx2.AsyncClient(trust_env=False, base_url=place.url) as app, somebody(browser, place) as person:
        started = (await app.get("/api/auth/acme/start?context=pwa&format=json")).json()
        await person.page.goto(await log_in(started["authorizeUrl"], "pat"))
        assert await person.heading() == "Sign in as pat?"
        await person.page.get_by_role("button", name=f"The app shows {started['code']}").click()
        await person.page.wait_for_url("**/confirm")
        assert await person.heading() == "Go back to the app"
        claimed = await app.post("/api/auth/acme/claim-session", json={"state": started["state"]})
        assert claimed.json() == {"ok": True, "claimed": True}
        assert (await app.get("/api/auth/me")).json()["user"]["name"] == "pat"
        assert person.wrong == []


@looks
@pytest.mark.parametrize(("size", "scheme", "locale"), LOOKS)
async def test_all_pages_fit_the_screen_in_each_language_and_name_the_safe_answer_first(
    browser: Browser, narrow_place: Place, size: tuple[int, int], scheme: str, locale: str
) -> None:
    place, account = narrow_place, str(100 + LOOKS.index((size, scheme, locale)))
    async with (
        somebody(browser, place, size, scheme, locale=locale) as person,
        httpx2.AsyncClient(trust_env=False, base_url=place.url) as app,
    ):
        pages: list[str] = []

        async def look() -> None:
            assert await fits(person)
            pages.append(await person.heading())
            assert await problems(person.page, locale[:2], f"login {len(pages)} {locale} {size[0]} {scheme}") == []

        async def first_answer() -> str:
            """The class of the first of the buttons and links to choose from."""
            found = person.page.locator("main button, main a.button").first
            return await found.get_attribute("class") or ""

        await person.visit("/login")
        await look()
        await person.log_in(account)
        await look()
        await person.visit("/login/everywhere")
        await look()
        assert await first_answer() == "button"
        started = (await app.get("/api/auth/acme/start?context=pwa&format=json")).json()
        await person.context.clear_cookies()
        await person.page.goto(await log_in(started["authorizeUrl"], account))
        await look()
        assert await first_answer() == ""
        await person.page.locator("button", has_text=started["code"]).click()
        await person.page.wait_for_url("**/confirm")
        await look()
        begun = (await app.get("/api/auth/acme/start?format=json")).json()
        await person.context.clear_cookies()
        await person.page.goto(await log_in(begun["authorizeUrl"], account))
        await look()
        assert await first_answer() == ""
        await person.page.locator("main form button").nth(1).click()
        await person.page.wait_for_url("**/confirm")
        await look()
        assert await first_answer() == ""
        assert len(set(pages)) == 6  # the two questions have the same heading


@pytest.mark.main_path
def test_the_server_has_logged_no_error(place: Place) -> None:
    assert "Traceback" not in place.server.said
    assert Path(place.server.output).exists()
