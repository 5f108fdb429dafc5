"""The key document as a page, in a real browser: opened from a file, on a desk and on a phone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page
from pydantic import BaseModel, Field

from keystead.schema import Counter, Keyspace, Sealed, Set, Value, after, link, never, sliding
from keystead.schema.docs import html, html_index
from tests.browser.tabs import DESKTOP, looks, tab
from tests.browser.test_start_page import CONTRAST, OPEN_ALL

PHONE = (375, 812)

LONG = "a-rather-long-domain:with-an-entity-of-many-letters"
ROUTE = "/api/a-rather-long-route-without-any-break/{identifier}/and-something-else"


class Session(BaseModel):
    """Who is logged in."""

    user_identifier_at_the_provider: str = Field(description="the number that the provider gave, and `not` our own")
    token: Sealed[str] = Field(pattern="^[A-Za-z0-9_-]{43}$", description="for the provider")
    seen: list[dict[str, int]] = []


class PageKeys(Keyspace):
    """Sessions, and `what` goes with them."""

    source = "a table that somebody kept by hand"
    changes = ("The token is sealed; before, it was plain.",)

    sessions = Set(f"{LONG}:{{user_identifier}}:sessions", str, lifetime=never("emptied by the clean-up job"))
    session = Value(
        f"{LONG}:{{user_identifier}}:{{session_identifier:token}}",
        Session,
        lifetime=sliding("30d", touch_every="1h"),
        listed_in=sessions,
        owns="count",
        member_of="user:{user_identifier}",
        role="durable",
        doc="A session: who is logged in, and since when.",
        used_by=(ROUTE, "every request"),
        changed="The token is sealed.",
    )
    count = Counter("count:{session_identifier:token}", lifetime=after("1d"), tag="session_identifier")
    by_name = Value("name:{name}", str, lifetime=after("1d"), leads_to=link("sessions", user_identifier="name"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "page-keys.html").write_text(html(PageKeys), encoding="utf-8")
    (folder / "index.html").write_text(html_index({"page-keys.html": PageKeys}), encoding="utf-8")
    return folder


@asynccontextmanager
async def opened(
    browser: Browser, folder: Path, size: tuple[int, int], scheme: str = "light", file: str = "page-keys.html"
) -> AsyncIterator[tuple[Page, list[str]]]:
    """The page with all of it shown, and a list of all that went wrong on the way. There is no network."""
    async with tab(browser, size, scheme) as used:
        await used.page.context.set_offline(True)
        wrong: list[str] = []
        used.on("console", lambda message: wrong.append(f"console: {message.text}"))
        used.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        used.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
        used.on(
            "request",
            lambda request: (
                None if request.url.startswith(("data:", folder.as_uri())) else wrong.append(f"outside: {request.url}")
            ),
        )
        await used.page.goto((folder / file).as_uri())
        await used.page.evaluate(OPEN_ALL)
        yield used.page, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_document_renders_whole_from_a_file_and_loads_nothing(
    browser: Browser, folder: Path, size: tuple[int, int], scheme: str
) -> None:
    async with opened(browser, folder, size, scheme) as (page, wrong):
        assert await page.get_by_role("heading", level=1).inner_text() == "Page keys"
        for row in await page.locator("table.keys tbody tr").all():
            for cell in await row.locator("th, td:not(:empty)").all():
                assert await cell.is_visible()
        assert await page.locator("article.family").count() == len(PageKeys.families)
        assert wrong == []


@looks
@pytest.mark.parametrize("file", ["page-keys.html", "index.html"])
@pytest.mark.parametrize("width", [320, 375, 768, 1024, 1280])
async def test_nothing_overflows_sideways_at_any_width(browser: Browser, folder: Path, width: int, file: str) -> None:
    async with opened(browser, folder, (width, 800), file=file) as (page, _):
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


CUT = """() => [...document.querySelectorAll('main td, main th, main dd, main p, main h3')]
    .filter((e) => e.checkVisibility() && e.getBoundingClientRect().left >= 0 && e.scrollWidth > e.clientWidth + 1)
    .map((e) => e.textContent.trim())"""


@looks
@pytest.mark.parametrize("width", [320, 1100, 1280])
async def test_no_text_is_cut_off_or_lies_on_another(browser: Browser, folder: Path, width: int) -> None:
    async with opened(browser, folder, (width, 800)) as (page, _):
        assert await page.evaluate(CUT) == []


@looks
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_all_text_can_be_read_against_its_background(
    browser: Browser, folder: Path, size: tuple[int, int], scheme: str
) -> None:
    async with opened(browser, folder, size, scheme) as (page, _):
        assert await page.evaluate(CONTRAST) == []


async def test_dark_mode_is_dark_and_light_mode_is_light(browser: Browser, folder: Path) -> None:
    shown = {}
    for scheme in ("light", "dark"):
        async with opened(browser, folder, DESKTOP, scheme) as (page, _):
            shown[scheme] = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert shown == {"light": "rgb(246, 247, 245)", "dark": "rgb(15, 21, 20)"}


async def test_on_a_desk_the_keys_are_a_table_and_on_a_phone_cards_that_name_each_value(
    browser: Browser, folder: Path
) -> None:
    label = "getComputedStyle(document.querySelector('td[data-label=Lifetime]'), '::before').content"
    display = "getComputedStyle(document.querySelector('table.keys tbody tr')).display"
    async with opened(browser, folder, DESKTOP) as (page, _):
        assert (await page.evaluate(display), await page.evaluate(label)) == ("table-row", "none")
    async with opened(browser, folder, PHONE) as (page, _):
        assert (await page.evaluate(display), await page.evaluate(label)) == ("block", '"Lifetime"')


async def test_a_key_in_the_table_leads_to_its_section(browser: Browser, folder: Path) -> None:
    async with opened(browser, folder, PHONE) as (page, _):
        await page.locator("table.keys tbody tr").nth(1).get_by_role("link").click()
        assert page.url.endswith("#session")
        assert await page.locator("article#session h3").evaluate("e => e.getBoundingClientRect().top < innerHeight / 2")


async def test_the_index_leads_to_a_document_and_to_a_key_in_it(browser: Browser, folder: Path) -> None:
    async with opened(browser, folder, PHONE, file="index.html") as (page, wrong):
        await page.get_by_role("link", name="count:{session_identifier}").click()
        assert page.url.endswith("/page-keys.html#count")
        assert await page.get_by_role("heading", level=1).inner_text() == "Page keys"
        assert wrong == []


async def test_the_picture_shows_each_relation_and_its_text_fits_the_boxes(browser: Browser, folder: Path) -> None:
    async with opened(browser, folder, DESKTOP) as (page, _):
        assert await page.locator(".picture path[marker-end]").count() == 3
        overhanging = """() => [...document.querySelectorAll('.picture a')].flatMap((a) => {
            const box = a.querySelector('rect').getBoundingClientRect();
            return [...a.querySelectorAll('text')].filter((text) => {
              const own = text.getBoundingClientRect();
              return own.right > box.right || own.left < box.left || own.bottom > box.bottom || own.top < box.top;
            }).map((text) => text.textContent);
          })"""
        assert await page.locator(".picture rect").count() == 4
        assert await page.evaluate(overhanging) == []


async def test_on_a_phone_the_picture_scrolls_in_its_own_frame_and_stands_there_in_words(
    browser: Browser, folder: Path
) -> None:
    async with opened(browser, folder, PHONE) as (page, _):
        picture = page.locator(".picture")
        assert await picture.evaluate("e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === 'auto'")
        for is_open in (False, True):
            await page.locator("details summary").click()
            assert await page.locator("details li").first.is_visible() == is_open
        words = await page.locator("details li").all_inner_texts()
        assert f"{LONG}:{{user_identifier}}:sessions lists {LONG}:{{user_identifier}}:{{session_identifier}}" in words
        assert len(words) == 3
