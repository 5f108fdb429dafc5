"""One sign-in for all pages, in a real browser: the name in every header, one word for it, and no dead end."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests import servers
from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.browser.test_teamwork import speak
from tests.real_servers import redis_server
from tests.serving import Keystead, keystead_serving

__all__ = ["redis_server"]

PAGES = (
    "/",
    "/teamwork",
    "/membership/try",
    "/share",
    "/account",
    "/login",
    "/widgets",
    "/docs",
    "/reference",
    "/nowhere",
)
WORDS = {"en": ("Sign in", "Sign out"), "ja": ("サインイン", "サインアウト"), "ko": ("로그인", "로그아웃")}
SIZES = {"desktop": DESKTOP, "phone": PHONE}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    """All kits, on SQLite."""
    with keystead_serving(tmp_path_factory.mktemp("all"), None) as running:
        yield running


@pytest.fixture(scope="module")
def on_redis(tmp_path_factory: pytest.TempPathFactory, redis_server: servers.Server) -> Iterator[Keystead]:
    redis_server.ask("FLUSHALL")
    with keystead_serving(tmp_path_factory.mktemp("all"), redis_server.url) as running:
        yield running


@pytest.fixture(params=["server", "on_redis"])
def either(request: pytest.FixtureRequest) -> Keystead:
    found: Keystead = request.getfixturevalue(request.param)
    return found


@asynccontextmanager
async def visitor(browser: Browser, size: tuple[int, int] = DESKTOP, language: str = "en") -> AsyncIterator[Page]:
    """Somebody with a browser of their own; the test fails where anything goes wrong in it."""
    wrong: list[str] = []
    own = {} if language == "en" else {"locale": language}
    async with tab(browser, size, **own) as used:
        used.on("pageerror", lambda error: wrong.append(str(error)))
        used.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        yield used.page
    assert [one for one in wrong if "status of 40" not in one] == []


async def sign_in(page: Page, url: str, person: str = "Ada Lovelace") -> None:
    """From wherever the page to sign in is, to the provider and back."""
    await page.get_by_role("link", name=re.compile("Demo|デモ|데모")).click()
    await page.get_by_role("button", name=person).click()
    await page.wait_for_url(lambda at: "/demo/" not in at and "/callback" not in at)


def header(page: Page) -> Locator:
    return page.locator("header .signed-in")


@looks
@pytest.mark.parametrize("size", SIZES)
async def test_the_name_of_who_is_signed_in_is_in_the_header_of_every_page(
    server: Keystead, browser: Browser, size: str
) -> None:
    async with visitor(browser, SIZES[size]) as page:
        await page.goto(server.url)
        await header(page).get_by_role("link", name="Sign in", exact=True).click()
        await sign_in(page, server.url)
        for path in PAGES:
            await page.goto(server.url + path)
            await expect(header(page).get_by_role("link", name="Ada Lovelace")).to_be_visible()
            await expect(header(page).get_by_role("button", name="Sign out", exact=True)).to_be_visible()
            width = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{path} scrolls sideways by {width} px"
            spill = await header(page).evaluate("e => Math.round(e.getBoundingClientRect().right - innerWidth)")
            assert spill <= 0, path


@looks
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("language", WORDS)
async def test_the_header_has_one_word_in_each_language(
    server: Keystead, browser: Browser, language: str, size: str
) -> None:
    come, go = WORDS[language]
    async with visitor(browser, SIZES[size], language) as page:
        await page.goto(server.url + "/teamwork")
        await header(page).get_by_role("link", name=come, exact=True).click()
        assert page.url == f"{server.url}/login?returnTo=/teamwork"
        await sign_in(page, server.url, "Alan Turing")  # whose language it stays
        await page.wait_for_url(server.url + "/teamwork")
        await expect(header(page).get_by_role("link", name="Alan Turing")).to_be_visible()
        await expect(page.locator("#office")).to_be_visible()
        await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        await expect(page.locator("#sign-out")).to_be_hidden()  # there is one, in the header
        await speak(page, "ja")
        await expect(header(page).get_by_role("button", name="サインアウト", exact=True)).to_be_visible()
        await speak(page, language)
        await header(page).get_by_role("button", name=go, exact=True).click()
        await page.wait_for_url(server.url + "/login")
        await page.goto(server.url + "/teamwork")
        await expect(header(page).get_by_role("link", name=come, exact=True)).to_be_visible()
        await expect(page.locator("#office")).to_be_hidden()


async def test_from_a_refused_address_the_sign_in_is_no_dead_end(either: Keystead, browser: Browser) -> None:
    async with visitor(browser) as page:
        await page.goto(either.url + "/api/deadlines")
        await expect(page.get_by_role("heading", name="You are not signed in.")).to_be_visible()
        await page.locator("main").get_by_role("link", name="Sign in", exact=True).click()
        await sign_in(page, either.url)
        answer = await page.goto(either.url + "/api/deadlines")
        assert answer is not None
        assert answer.status == 200


async def test_whoever_is_sent_to_sign_in_comes_back(either: Keystead, browser: Browser) -> None:
    async with visitor(browser) as page:
        await page.goto(either.url + "/account")
        assert page.url == f"{either.url}/login?returnTo=/account"
        await sign_in(page, either.url)
        await page.wait_for_url(either.url + "/account")
        # Who is signed in already is not asked again.
        await page.goto(either.url + "/login?returnTo=/share")
        assert page.url == either.url + "/share"
        await page.goto(either.url + "/login?returnTo=https://elsewhere.example")
        assert page.url.startswith(either.url)


async def test_a_member_is_not_asked_to_sign_in_again(either: Keystead, browser: Browser) -> None:
    async with visitor(browser) as page:
        await page.goto(either.url + "/membership/try")
        await header(page).get_by_role("link", name="Sign in", exact=True).click()
        await sign_in(page, either.url, "Grace Hopper")
        await page.wait_for_url(either.url + "/membership/try")
        await expect(page.get_by_role("heading", name="You are signed in as Grace Hopper")).to_be_visible()
        await page.get_by_role("button", name="Continue as Grace Hopper").click()
        await expect(page.locator("#signed-in #name")).to_have_text("Grace Hopper")


async def test_somebody_new_is_in_no_team_and_can_join_the_demo(server: Keystead, browser: Browser) -> None:
    async with visitor(browser, PHONE) as page:
        await page.goto(server.url + "/login?returnTo=/teamwork")
        await page.get_by_role("link", name=re.compile("Demo")).click()
        await page.get_by_label("Somebody else").fill("Linus Pauling")
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await page.wait_for_url(server.url + "/teamwork")
        await expect(page.get_by_role("heading", name="You are not in a team yet")).to_be_visible()
        await page.get_by_role("button", name="Join the demo team").click()
        await expect(page.locator("#office")).to_be_visible()


async def test_a_sign_out_in_one_tab_is_one_in_all(either: Keystead, browser: Browser) -> None:
    async with visitor(browser) as page:
        await page.goto(either.url + "/login?returnTo=/teamwork")
        await sign_in(page, either.url)
        await expect(page.locator("#office")).to_be_visible()
        other = await page.context.new_page()
        await other.goto(either.url + "/share")
        await header(other).get_by_role("button", name="Sign out").click()
        await other.wait_for_url(either.url + "/login")
        await page.locator("#read-all").evaluate("button => { button.disabled = false; button.click(); }")
        await expect(page.locator("#ended")).to_be_visible()
        await expect(header(page)).to_have_count(0)
