"""The console in a real browser: opened by the printed link, used with the keyboard, on a desk and on a phone."""

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser

from tests.browser.tabs import DESKTOP, PHONE, tab
from tests.serving import Keystead, keystead_serving

FITS = "document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    folder = tmp_path_factory.mktemp("console")
    with keystead_serving(folder, "sqlite:///app.db", "--kits", "widgets,console") as running:
        yield running


@pytest.mark.main_path
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_a_printed_link_opens_the_console_and_the_keyboard_finds_a_family(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str
) -> None:
    link = re.search(r"http\S+/console/enter#\S+", server.said)
    assert link is not None
    async with tab(browser, size, scheme) as used:
        wrong: list[str] = []
        used.on("console", lambda message: wrong.append(message.text))
        used.on("pageerror", lambda error: wrong.append(str(error)))
        page = used.page
        await page.goto(link[0])
        await page.wait_for_url("**/console")
        assert await page.evaluate(FITS)
        await page.keyboard.press("?")
        assert await page.locator("#help").is_visible()
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        await page.keyboard.type("WidgetKeys.counter")
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile("/console/(find|family)"))
        assert await page.evaluate(FITS)
        await page.locator("#theme").click()
        chosen = await page.evaluate("document.documentElement.dataset.theme")
        assert chosen == ("dark" if scheme == "light" else "light")
        assert wrong == []
