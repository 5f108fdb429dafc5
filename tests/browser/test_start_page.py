"""The start page in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from tests.serving import Keystead, keystead_serving

DESKTOP = (1280, 800)
PHONE = (390, 844)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("serving")) as running:
        yield running


async def opened(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str, path: str = ""
) -> tuple[Page, list[str]]:
    """The start page, or another, with every command shown, and a list of all that went wrong on the way."""
    page = await browser.new_page(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith((f"{server.url}/", "data:")) else wrong.append(f"outside: {request.url}")
        ),
    )
    page.on("response", lambda answer: wrong.append(f"{answer.status}: {answer.url}") if not answer.ok else None)
    await page.goto(f"{server.url}{path}", wait_until="networkidle")
    for group in await page.locator("details").all():
        if await group.get_attribute("open") is None:
            await group.locator("summary").click()
    return page, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_start_page_renders_whole_and_loads_nothing_from_elsewhere(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str
) -> None:
    page, wrong = await opened(browser, server, size, scheme)
    assert await page.get_by_role("heading", level=1).inner_text() == "Keystead is running."
    assert await page.locator("table.guarantees tbody tr").count() > 3
    assert await page.locator("details[open]").count() == await page.locator("details").count() > 3
    assert wrong == []


async def test_one_click_selects_a_whole_example(browser: Browser, server: Keystead) -> None:
    page, _ = await opened(browser, server, DESKTOP, "light")
    example = page.get_by_label("Shell example")
    await example.locator("code").click()
    assert await page.evaluate("getSelection().toString().trim()") == await example.inner_text()


async def test_on_a_phone_a_guarantee_stands_out_from_its_label(browser: Browser, server: Keystead) -> None:
    page, _ = await opened(browser, server, PHONE, "light")
    row = page.locator("table.guarantees tbody tr").first
    look = "element => [parseFloat(getComputedStyle(element).fontSize), +getComputedStyle(element).fontWeight]"
    label_size, label_weight = await row.locator("th").evaluate(look)
    value_size, value_weight = await row.locator(".value").evaluate(look)
    assert value_size > label_size
    assert value_weight > label_weight


@pytest.mark.parametrize("width", [320, 1280])
async def test_a_page_that_is_not_there_leads_back_home(browser: Browser, server: Keystead, width: int) -> None:
    page = await browser.new_page(viewport={"width": width, "height": 800})
    await page.goto(f"{server.url}/no-such-page")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await page.get_by_role("link", name="Back to the start page").click()
    assert await page.get_by_role("heading", level=1).inner_text() == "Keystead is running."


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
async def test_nothing_overflows_sideways_at_any_width(browser: Browser, server: Keystead, width: int) -> None:
    page, _ = await opened(browser, server, (width, 800), "light")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_each_kit_shows_examples_that_lead_somewhere(browser: Browser, server: Keystead) -> None:
    page, _ = await opened(browser, server, DESKTOP, "light")
    examples = page.locator(".kit .examples a")
    paths = [await link.get_attribute("href") for link in await examples.all()]
    assert paths
    for path in paths:
        answer = await page.request.get(f"{server.url}{path}")
        assert answer.status in (200, 401), path


async def test_a_server_without_kits_says_how_to_start_one(browser: Browser, tmp_path: Path) -> None:
    with keystead_serving(tmp_path, None, "--kits", "") as server:
        page, wrong = await opened(browser, server, PHONE, "light")
        assert "No kit runs." in await page.locator("main").inner_text()
        assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_api_page_works_without_the_internet(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str
) -> None:
    page, wrong = await opened(browser, server, size, scheme, "/docs")
    await page.locator("#operations-server-healthz").wait_for()
    await page.locator("#operations-server-healthz .opblock-summary-control").click()
    await page.get_by_role("button", name="Try it out").click()
    await page.get_by_role("button", name="Execute").click()
    answered = page.locator("#operations-server-healthz .live-responses-table .response-col_status")
    await answered.first.wait_for()
    assert "200" in await answered.last.inner_text()
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_can_be_read_against_its_background(browser: Browser, server: Keystead, scheme: str) -> None:
    page, _ = await opened(browser, server, DESKTOP, scheme)
    assert await page.evaluate(CONTRAST) == []
