"""The start page, and the pages that it leads to, in a real browser."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.serving import Keystead, keystead_serving

PAGES = ["", "/reference", "/keys", "/keys/login"]

# A click for each group of commands; that a person can click on one is a test of its own.
OPEN_ALL = "document.querySelectorAll('details:not([open]) > summary').forEach((summary) => summary.click())"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("serving")) as running:
        yield running


@asynccontextmanager
async def opened(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str, path: str = ""
) -> AsyncIterator[tuple[Page, list[str]]]:
    """The start page, or another, with every command shown, and a list of all that went wrong on the way."""
    async with tab(browser, size, scheme) as used:
        wrong: list[str] = []
        used.on("console", lambda message: wrong.append(f"console: {message.text}"))
        used.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        used.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
        used.on(
            "request",
            lambda request: (
                None if request.url.startswith((f"{server.url}/", "data:")) else wrong.append(f"outside: {request.url}")
            ),
        )
        used.on("response", lambda answer: wrong.append(f"{answer.status}: {answer.url}") if not answer.ok else None)
        await used.page.goto(f"{server.url}{path}")
        await used.page.evaluate(OPEN_ALL)
        yield used.page, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_pages_render_whole_and_load_nothing_from_elsewhere(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str
) -> None:
    for path, heading in zip(PAGES, ["Keystead is running.", "Reference", "Key documents", "Login keys"], strict=True):
        async with opened(browser, server, size, scheme, path) as (page, wrong):
            assert await page.get_by_role("heading", level=1).inner_text() == heading
            assert await page.evaluate("getComputedStyle(document.body).margin") == "0px", "its style is applied"
            await page.wait_for_load_state("load")
            assert wrong == []


async def test_the_reference_shows_guarantees_and_commands(browser: Browser, server: Keystead) -> None:
    async with opened(browser, server, DESKTOP, "light", "/reference") as (page, _):
        assert await page.locator("table.guarantees tbody tr").count() > 3
        assert await page.locator("details[open]").count() == await page.locator("details").count() > 3


@pytest.mark.main_path
async def test_links_lead_from_the_start_page_to_a_key_document_and_back(browser: Browser, server: Keystead) -> None:
    async with opened(browser, server, PHONE, "light") as (page, wrong):
        await page.get_by_role("link", name="See the key documents").click()
        await page.get_by_role("link", name="Login keys").click()
        assert page.url == f"{server.url}/keys/login"
        await page.get_by_role("navigation").get_by_role("link", name="Reference").click()
        await page.get_by_role("navigation").get_by_role("link", name="Keys").click()
        await page.get_by_role("banner").get_by_role("link", name="Keystead").click()
        assert await page.get_by_role("heading", level=1).inner_text() == "Keystead is running."
        assert wrong == []


@pytest.mark.main_path
async def test_each_of_the_three_first_steps_works_at_the_first_click(browser: Browser, server: Keystead) -> None:
    """A kit to try, the key documents and the console, and an example to copy."""
    async with opened(browser, server, DESKTOP, "light") as (page, wrong):
        steps = page.locator("ol.next")
        names = await steps.get_by_role("link").or_(steps.get_by_role("button")).all_inner_texts()
        assert names == ["Try a kit", "See the key documents", " Open the console", "Start your own"]
        arrived = []
        for name in names:
            await page.goto(server.url)
            await steps.get_by_role("button" if "console" in name else "link", name=name.strip(), exact=True).click()
            await page.wait_for_load_state("load")
            arrived.append((page.url.removeprefix(server.url), await page.get_by_role("heading", level=1).inner_text()))
        assert arrived == [
            ("/login", "Sign in"),
            ("/keys", "Key documents"),
            ("/console", "Overview"),
            ("/#first-steps", "Keystead is running."),
        ]
        assert await page.get_by_role("heading", name="Start your own").is_visible()
        assert "keystead init" in await page.get_by_label("Start a project").inner_text()
        assert [one for one in wrong if not one.startswith("303")] == []


async def test_a_click_opens_and_closes_a_group_of_commands(browser: Browser, server: Keystead) -> None:
    async with opened(browser, server, PHONE, "light", "/reference") as (page, _):
        group = page.locator("details").last
        for is_open in (False, True):
            await group.locator("summary").click()
            assert await group.locator("code").first.is_visible() == is_open


async def test_one_click_selects_a_whole_example(browser: Browser, server: Keystead) -> None:
    async with opened(browser, server, DESKTOP, "light") as (page, _):
        example = page.get_by_label("First example")
        await example.locator("code").click()
        assert await page.evaluate("getSelection().toString().trim()") == (await example.inner_text()).strip()


async def test_on_a_phone_a_guarantee_stands_out_from_its_label(browser: Browser, server: Keystead) -> None:
    async with opened(browser, server, PHONE, "light", "/reference") as (page, _):
        row = page.locator("table.guarantees tbody tr").first
        look = "element => [parseFloat(getComputedStyle(element).fontSize), +getComputedStyle(element).fontWeight]"
        label_size, label_weight = await row.locator("th").evaluate(look)
        value_size, value_weight = await row.locator(".value").evaluate(look)
        assert value_size > label_size
        assert value_weight > label_weight


@pytest.mark.parametrize("width", [320, 1280])
async def test_a_page_that_is_not_there_leads_back_home(browser: Browser, server: Keystead, width: int) -> None:
    async with tab(browser, (width, 800)) as used:
        await used.page.goto(f"{server.url}/no-such-page")
        assert await used.page.evaluate("document.documentElement.scrollWidth") <= width
        await used.page.get_by_role("link", name="Back to the start page").click()
        assert await used.page.get_by_role("heading", level=1).inner_text() == "Keystead is running."


@looks
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
async def test_nothing_overflows_sideways_at_any_width(browser: Browser, server: Keystead, width: int) -> None:
    for path in PAGES:
        async with opened(browser, server, (width, 800), "light", path) as (page, _):
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, path


async def test_each_kit_shows_examples_that_lead_somewhere(browser: Browser, server: Keystead) -> None:
    async with opened(browser, server, DESKTOP, "light") as (page, _):
        examples = page.locator(".kit .examples a")
        paths = [await link.get_attribute("href") for link in await examples.all()]
        assert paths
        for path in paths:
            answer = await page.request.get(f"{server.url}{path}")
            assert answer.status in (200, 401), path


async def test_a_server_without_kits_says_how_to_start_one(browser: Browser, tmp_path: Path) -> None:
    with keystead_serving(tmp_path, None, "--kits", "") as server:
        async with opened(browser, server, PHONE, "light") as (page, wrong):
            assert "No kit runs." in await page.locator("main").inner_text()
            assert wrong == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_api_page_works_without_the_internet(
    browser: Browser, server: Keystead, size: tuple[int, int]
) -> None:
    async with opened(browser, server, size, "light", "/docs") as (page, wrong):
        await page.locator("#operations-server-healthz").wait_for()
        await page.locator("#operations-server-healthz .opblock-summary-control").click()
        await page.get_by_role("button", name="Try it out").click()
        await page.get_by_role("button", name="Execute").click()
        answered = page.locator("#operations-server-healthz .live-responses-table .response-col_status")
        await answered.first.wait_for()
        assert "200" in await answered.last.inner_text()
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
        await page.emulate_media(color_scheme="dark")  # what only the dark needs would be loaded now
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert wrong == []


CONTRAST = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const background = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const low = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    const pair = [luminance(parse(getComputedStyle(element).color)), luminance(background(element))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) low.push(`${walker.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return low;
}"""


@looks
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_can_be_read_against_its_background(browser: Browser, server: Keystead, scheme: str) -> None:
    for path in PAGES:
        async with opened(browser, server, DESKTOP, scheme, path) as (page, _):
            assert await page.evaluate(CONTRAST) == [], path
